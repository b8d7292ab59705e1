"""The sending side of an open session: room in the cache, open streams, and watermarks that are awaited."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from fjm2.base.errors import NormError
from fjm2.norm.core.engine import Engine
from fjm2.norm.core.events import Event, StreamWritable, TransmissionFlushed, WatermarkCompleted
from fjm2.norm.core.send.sources import Source
from fjm2.norm.core.timers import NEVER

from .driver import Driver

CLOSED_TEXT = "the session was closed"
"""Text of the exception that is raised if a closed session is used or awaited."""


class StreamPort(NamedTuple):
    """The operations of an open stream that its session needs."""

    hand_over: Callable[[], None]
    """Hand over to the engine as many bytes as it has room for."""
    drop: Callable[[], None]
    """Give up everything that was not handed over."""
    drain: Callable[[], Awaitable[None]]
    """Wait until all bytes are handed over."""
    pending_bytes: Callable[[], int]
    """Return the number of bytes that are not handed over yet."""


class Transmission:
    """Everything that a session sends, from `open` to `close`. Coroutines wait here for room and for confirmation."""

    def __init__(self, engine: Engine, driver: Driver) -> None:
        self.engine = engine
        """The engine that sends."""
        self.wake = driver.wake
        """Let the engine act on commands at the end of the loop's turn. See `LoopDriver.wake`."""
        self.send_alone = driver.send_alone
        """Send a short message at once, if it finds the session idle. See `Driver.send_alone`."""
        self.is_open = True
        """False once the session is closed."""
        self.is_flushed = True
        """True if nothing was queued since the last flush was complete."""
        self._now = driver.now
        self._streams: dict[int, StreamPort] = {}
        self._watermarks: dict[int, asyncio.Future[WatermarkCompleted]] = {}
        self._flush_changed = asyncio.Event()
        """Event that is set when `flushed` must check its condition again."""
        self._room_queue = asyncio.Lock()
        """Lock by which coroutines get room in the cache in the order in which they asked for it."""
        self._has_room = asyncio.Event()
        self.wanted_bytes: int | None = None
        """Bytes of room that the first waiting coroutine needs; None if no coroutine waits for room."""

    def check_open(self) -> None:
        """Raise NormError if the session is closed."""
        if not self.is_open:
            raise NormError(CLOSED_TEXT)

    async def send(self, source: Source, info: bytes | None, is_file: bool) -> int:
        """Queue an object once there is room, and return its transport id. Close the source if that fails."""
        try:
            async with self._room_queue:
                await self._wait_room(source.memory_bytes)
                object_id = self.engine.enqueue(source, info, is_file, self._now())
        except BaseException:
            source.close()
            raise
        self.is_flushed = False
        self.wake()
        return object_id

    async def open_stream(self, size: int, info: bytes | None) -> int:
        """Open a stream once there is room for a buffer of this size, and return its transport id."""
        async with self._room_queue:
            await self._wait_room(size)
            return self._open_stream(info)

    def open_stream_now(self, size: int, is_passing: bool) -> int:
        """Open a stream without waiting, and return its transport id. Raises NormError if there is no room."""
        self.check_open()
        if not self.engine.has_room(size):
            raise NormError("the cache is full of objects that are still to be sent: wait, or raise cache_objects")
        return self._open_stream(None, is_passing)

    def _open_stream(self, info: bytes | None, is_passing: bool = False) -> int:
        object_id = self.engine.open_stream(info, self._now(), is_passing=is_passing)
        if info is not None:
            self.is_flushed = False
            self.wake()
        return object_id

    def add_stream(self, object_id: int, port: StreamPort) -> None:
        """Hand over the data of a stream from now on, until `remove_stream`."""
        self._streams[object_id] = port

    def remove_stream(self, object_id: int) -> None:
        """Forget a stream. Harmless if it is unknown."""
        self._streams.pop(object_id, None)

    async def watermark(self, nodes: Sequence[int], timeout_s: float | None) -> WatermarkCompleted:
        """Ask nodes to confirm everything written so far, and wait for the outcome, or for `timeout_s` seconds."""
        for port in list(self._streams.values()):
            await port.drain()
        number = self.engine.watermark(nodes, self._now(), NEVER if timeout_s is None else timeout_s)
        future: asyncio.Future[WatermarkCompleted] = asyncio.get_running_loop().create_future()
        self._watermarks[number] = future
        self.wake()
        try:
            return await future
        finally:
            if self._watermarks.pop(number, None) is not None:  # cancelled: the next watermark must not wait for it
                self.engine.end_watermark(number, self._now())
                self.wake()

    async def flushed(self) -> None:
        """Wait until everything that was queued has been sent, repaired as requested, and flushed."""
        self.check_open()
        while not self.is_flushed:
            self._flush_changed.clear()
            await self._flush_changed.wait()
            self.check_open()

    def cancel(self, object_id: int) -> None:
        """Stop sending an object."""
        self.engine.cancel(object_id, self._now())
        port = self._streams.get(object_id)
        if port is not None:
            port.drop()
        self.wake()

    @property
    def pending_bytes(self) -> int:
        """Number of bytes written to streams that are not handed over yet. Safe to read from any thread."""
        return sum(port.pending_bytes() for port in list(self._streams.values()))

    def handle_event(self, event: Event) -> None:
        """Act on an event of the engine's sender."""
        match event:
            case StreamWritable(object_id) if object_id in self._streams:
                self.wake(self._streams[object_id].hand_over)
            case WatermarkCompleted(number):
                future = self._watermarks.pop(number, None)
                if future is not None and not future.done():
                    future.set_result(event)
            case TransmissionFlushed():
                self.is_flushed = not self.pending_bytes
                self._flush_changed.set()
            case _:
                pass

    def offer_room(self) -> None:
        """Wake the coroutine that waits for room, if there is room now."""
        if self.wanted_bytes is not None and self.engine.has_room(self.wanted_bytes):
            self.wanted_bytes = None
            self._has_room.set()

    def give_up(self, reason: str) -> None:
        """Drop all streams and fail all watermarks: the engine has given up what was being sent."""
        for port in list(self._streams.values()):
            port.drop()
        watermarks, self._watermarks = self._watermarks, {}
        for future in watermarks.values():
            if not future.done():
                future.set_exception(NormError(reason))
        self.is_flushed = True
        self._flush_changed.set()

    def close(self) -> None:
        """Give up everything, and wake all waiting coroutines, which raise NormError."""
        self.is_open = False
        self._has_room.set()
        self.give_up(CLOSED_TEXT)

    async def _wait_room(self, size: int) -> None:
        self.check_open()
        while not self.engine.has_room(size):
            self.wanted_bytes = size
            self._has_room.clear()
            await self._has_room.wait()
            self.check_open()
