"""The sending side of the replay group, where keepers send what others lack (`fjm2.bus.ledgers.replay_listener`)."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from fjm2.base.errors import FJM2Error
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.bus.config import BusConfig
from fjm2.bus.ledgers.replay_listener import REPLAY_IDLE_S, replay_config
from fjm2.cell.ledger_table import Span
from fjm2.cell.wire.ranges import Range
from fjm2.norm import OutgoingMessages
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal

from .counts import KeeperCounts

_MESSAGE_BYTES: Final = 1 << 20
"""Size at which a message takes no further frames."""
_FETCH_BYTES_MAX: Final = 64 << 20
"""Bytes sent for one fetch. The next one names the rest, so that nobody gets what it does not wait for any more."""
_RECENT_S: Final = 0.5
"""Time for which a range is not sent again: keepers repeat their fetches while an answer is on its way."""
_WAITING_MAX: Final = 4096
"""Most ranges that wait to be sent."""


class ReplaySender:
    """Sends what is stored to those who fetch it."""

    def __init__(self, config: BusConfig, journal: Journal, disk: Disk, counts: KeeperCounts) -> None:
        self._config = replay_config(config)
        self._journal, self._disk, self._counts = journal, disk, counts
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Span] = deque()
        self._is_wanted = asyncio.Event()
        self._bytes_left = 0
        self._recent: dict[Ledger, RangeSet] = {}
        self._recent_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def send(self, ranges: tuple[Range, ...]) -> None:
        """Send the frames of some ranges, unless it was done a moment ago."""
        now = self._loop.time()
        if now >= self._recent_until:
            self._recent.clear()
            self._recent_until = now + _RECENT_S
        self._bytes_left = _FETCH_BYTES_MAX
        for each in ranges:
            recent = self._recent.setdefault(each.ledger, RangeSet())
            for first, end in list(recent.gaps(each.first, each.last + 1)):
                if len(self._waiting) < _WAITING_MAX:
                    self._waiting.append(Span(each.ledger, first, end))
        self._is_wanted.set()
        if self._task is None and self._waiting:
            self._task = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        session = self._config.session(is_sender_only=True)
        session.is_counted_alone = False
        try:
            async with session:
                messages = await session.open_messages()
                while await self._has_more():
                    await self._send_span(messages, self._waiting.popleft())
        except (FJM2Error, OSError):
            pass  # the interface is away; whoever lacks something asks again
        finally:
            self._waiting.clear()
            self._task = None

    async def _has_more(self) -> bool:
        """Wait for a range to send. Return False if nobody has asked for any for a while."""
        while not self._waiting:
            self._is_wanted.clear()
            try:
                async with asyncio.timeout(REPLAY_IDLE_S):
                    await self._is_wanted.wait()
            except TimeoutError:
                return False
        return True

    async def _send_span(self, messages: OutgoingMessages, span: Span) -> None:
        ledger, first, end = span
        live = self._journal.live(ledger, first, end)
        async for sequences, frames in self._read(ledger, live):
            data = b"".join(frames)
            if data:
                await messages.send(data)
            self._recent.setdefault(ledger, RangeSet()).add(sequences[0], sequences[-1] + 1)
            self._counts.frames_replayed += len(frames)
            self._bytes_left -= len(data)
            if self._bytes_left <= 0:
                self._waiting.clear()
                return

    async def _read(self, ledger: Ledger, live: RangeSet) -> AsyncIterator[tuple[list[int], list[bytes]]]:
        at: int | None = 0
        while at is not None:
            read = self._journal.read(ledger, live, _MESSAGE_BYTES, at)
            if not len(read.sequences):
                return
            frames = await asyncio.to_thread(read.fetch, self._disk)
            yield read.sequences.tolist(), [frame for frame in frames if frame is not None]
            at = read.resume_at

    async def close(self) -> None:
        await _end(self._task)


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
