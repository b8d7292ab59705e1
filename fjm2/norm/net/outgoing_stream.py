"""Streams that a session sends. Bytes are collected for a turn of the loop, and then handed over to the engine."""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from types import TracebackType
from typing import Self

from fjm2.base.errors import NormError
from fjm2.base.functions import check_bytes

from .statistics import StreamStatistics
from .transmission import StreamPort, Transmission

BATCH_BYTES = 1 << 20
"""Bytes that a stream collects before its writer has to wait for the loop's turn: a millisecond or two of work."""
BATCH_PARTS = 2_000
"""Parts that a stream collects before its writer has to wait for the loop's turn: a millisecond or two of work."""


class OutgoingBytes:
    """Base of streams that a session sends: objects without end, which receivers read while they are written."""

    def __init__(self, transmission: Transmission, object_id: int) -> None:
        self.object_id = object_id
        """Transport id of the stream."""
        self._transmission = transmission
        self._parts: list[bytes | bytearray | memoryview] = []
        self._marks: list[int] = []
        self._size = 0
        self._messages_sent = self._bytes_sent = 0
        self._drained = asyncio.Event()
        self._is_closed = False
        self._is_ended = False
        """True if the engine knows that nothing more will be written."""
        port = StreamPort(self._hand_over, self._drop, self.drain, lambda: self._size)
        transmission.add_stream(object_id, port)

    def _is_sent_alone(self, head: bytes, body: bytes) -> bool:
        """Send a message at once if it is short and the session idle. Return False otherwise."""
        transmission = self._transmission
        transmission.is_flushed = False
        if not transmission.send_alone(self.object_id, head, body):
            return False
        transmission.engine.stats.messages_sent += 1
        self._messages_sent += 1
        self._bytes_sent += len(head) + len(body)
        return True

    @property
    def pending_bytes(self) -> int:
        """Bytes written that have no place in the stream's buffer yet."""
        return self._size

    @property
    def unsent_bytes(self) -> int:
        """Size of what was written and not sent yet. Flow control may keep it back in the stream's buffer."""
        transmission = self._transmission
        in_buffer = transmission.engine.unsent_bytes(self.object_id) if transmission.is_open else 0
        return self._size + in_buffer

    def statistics(self) -> StreamStatistics:
        """Return the counters of this stream, and the number of messages and bytes that wait in it."""
        return StreamStatistics(
            messages_sent=self._messages_sent,
            payload_bytes_sent=self._bytes_sent,
            queue_messages=len(self._marks),
            queue_bytes=self._size,
            is_closed=self._is_closed,
        )

    async def drain(self) -> None:
        """Wait until everything written so far has a place in the stream's buffer.

        Bytes that others write meanwhile are not waited for: somebody who writes all the time would keep others waiting
        for good.
        """
        if self._size:
            await self._wait_turn()

    async def close(self) -> None:
        """End the stream after its last byte, and tell receivers. Harmless if the stream is closed already."""
        if self._transmission.is_open:
            self._end_soon()
            while not self._is_ended:
                await self._wait_turn()

    def take_back(self) -> list[bytes]:
        """Remove and return the whole messages that were not handed over to the engine."""
        data, marks = b"".join(self._parts), self._marks
        self._parts, self._marks, self._size = [], [], 0
        return [data[start:end] for start, end in pairwise((*marks, len(data)))]

    def _hand_over(self) -> None:
        if self._is_ended:
            return
        engine, object_id = self._transmission.engine, self.object_id
        is_busy = self._size >= BATCH_BYTES or len(self._parts) >= BATCH_PARTS
        if self._size:
            parts = self._parts
            data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))
            taken = engine.write(object_id, data, self._marks)
            self._transmission.is_flushed = False
            self._parts = [data[taken:]] if taken < len(data) else []
            begun = bisect_left(self._marks, taken)
            self._marks = [mark - taken for mark in self._marks[begun:]]
            engine.stats.messages_sent += begun
            self._messages_sent += begun
            self._bytes_sent += taken
            self._size -= taken
        if not self._size:
            self._drained.set()
            if is_busy and not self._is_closed:
                # An application that wrote a whole batch will most likely write more. The last train, which is not
                # full, waits one turn for it.
                self._transmission.wake(self._hand_over)
                return
            engine.flush(object_id)
            if self._is_closed:
                engine.end_stream(object_id)
                self._transmission.is_flushed = False
                self._forget()

    def _end_soon(self) -> None:
        """Accept no more writes, and end the stream after the bytes that the engine does not have yet."""
        self._is_closed = True
        if not self._is_ended:
            self._transmission.wake(self._hand_over)

    def _drop(self) -> None:
        """Discard bytes not handed over, because the engine has given up the stream, or the session is closed."""
        self._is_closed = True
        self._parts, self._marks, self._size = [], [], 0
        self._forget()
        self._drained.set()

    def _forget(self) -> None:
        self._is_ended = True
        self._transmission.remove_stream(self.object_id)

    async def _wait_turn(self) -> None:
        self._drained.clear()
        self._transmission.wake(self._hand_over)
        await self._drained.wait()
        self._transmission.check_open()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the stream. After an exception, do not wait for room in the buffer."""
        if kind is None:
            await self.close()
        elif self._transmission.is_open:
            self._end_soon()


class OutgoingStream(OutgoingBytes):
    """Stream that a session sends: an object without end, which receivers read while it is written."""

    def keep(self) -> None:
        """Have everything that is written from now on received by those who receive only what is to be kept.

        Only a stream that was opened as passing needs that.
        """
        if not self._is_closed:
            self._transmission.engine.keep_stream(self.object_id)
            self._transmission.wake()

    async def write(self, data: bytes | bytearray | memoryview, *, is_start: bool = True) -> None:
        """Append bytes. The bytes are not copied: leave them unchanged.

        `is_start` marks the first byte as the beginning of a message. The bytes go out at the end of the loop's turn,
        together with everything else that is written until then. Waits only while the stream's buffer is full, or if
        much has been written in one turn.
        """
        if self._is_closed:
            raise NormError("write to a closed stream")
        if type(data) is not bytes:
            check_bytes("data", data)
        transmission = self._transmission
        transmission.check_open()
        size = self._size
        if not size:
            if is_start and isinstance(data, bytes) and self._is_sent_alone(data, b""):
                return
            transmission.wake(self._hand_over)
        if is_start:
            self._marks.append(size)
        self._parts.append(data)
        self._size = size + len(data)
        if self._size >= BATCH_BYTES or len(self._parts) >= BATCH_PARTS:
            await self.drain()

    def append(self, head: bytes, body: bytes = b"") -> bool:
        """Append one message, given in two parts, without waiting.

        Return True if `drain()` must be awaited before the next message.
        """
        if self._is_closed:
            raise NormError("write to a closed stream")
        if type(head) is not bytes or type(body) is not bytes:
            check_bytes("head", head)
            check_bytes("body", body)
        size = self._size
        if not size:
            if self._is_sent_alone(head, body):
                return False
            self._transmission.wake(self._hand_over)
        parts = self._parts
        self._marks.append(size)
        parts.append(head)
        parts.append(body)
        self._size = size = size + len(head) + len(body)
        return size >= BATCH_BYTES or len(parts) >= BATCH_PARTS

    def append_many(self, pieces: Sequence[bytes], size: int, starts: Sequence[int]) -> bool:
        """Append messages of `size` bytes, without waiting. They begin at the offsets `starts` in the joined pieces.

        Return True if `drain()` must be awaited before the next message.
        """
        if self._is_closed:
            raise NormError("write to a closed stream")
        before = self._size
        if not before:
            self._transmission.wake(self._hand_over)
        self._marks += [before + start for start in starts] if before else starts
        self._parts += pieces
        self._size = before + size
        return self._size >= BATCH_BYTES or len(self._parts) >= BATCH_PARTS
