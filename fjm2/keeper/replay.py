"""The sending side of the replay group, where keepers send what others lack (`fjm2.bus.ledgers.replay_listener`)."""

import asyncio
from collections import deque
from typing import Final

from fjm2.base.errors import FJM2Error
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.bus.config import BusConfig
from fjm2.bus.ledgers.replay_listener import REPLAY_IDLE_S, replay_config
from fjm2.cell.wire.ranges import Range
from fjm2.norm import OutgoingMessages
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal
from fjm2.store.reader import Read

from .counts import KeeperCounts

_MESSAGE_BYTES: Final = 1 << 20
"""Size at which a message takes no further frames."""
_FETCH_BYTES_MAX: Final = 64 << 20
"""Bytes sent for one fetch. The next one names the rest, so that nobody gets what it does not wait for any more."""
_RECENT_S: Final = 0.5
"""Time for which a range is not sent again: keepers repeat their fetches while an answer is on its way."""
_WAITING_MAX: Final = 4096
"""Most ranges that wait to be sent."""


class _Answer:
    """Rest of a range that somebody lacks."""

    __slots__ = ("end", "first", "ledger", "live")

    def __init__(self, ledger: Ledger, first: int, end: int) -> None:
        self.ledger, self.first, self.end = ledger, first, end
        self.live: RangeSet | None = None
        """The part of the range that is stored; None before its first turn."""


class Answers:
    """Ranges that wait to be sent. They take turns, so that whoever lacks little does not wait for a new member, which
    lacks everything."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waiting: deque[_Answer] = deque()
        self._left: dict[Ledger, RangeSet] = {}
        """Sequences that wait."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, ledger: Ledger, first: int, end: int) -> None:
        """Let the part of a range that does not wait yet wait for its turn, unless there is too much."""
        left = self._left.setdefault(ledger, RangeSet())
        for low, high in list(left.gaps(first, end)):
            if len(self._waiting) < _WAITING_MAX:
                left.add(low, high)
                self._waiting.append(_Answer(ledger, low, high))

    def clear(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
        self._left.clear()

    def poll(self) -> tuple[Ledger, Read] | None:
        """Return the plan of the next message, and the ledger that it is of. Return None if nothing is left."""
        while self._waiting:
            answer = self._waiting.popleft()
            ledger, first = answer.ledger, answer.first
            if answer.live is None:
                answer.live = self._journal.live(ledger, first, answer.end)
            read = self._journal.read(ledger, answer.live, _MESSAGE_BYTES, first)
            answer.first = answer.end if read.resume_at is None else read.resume_at
            self._left[ledger].remove(first, answer.first)
            if answer.first < answer.end:
                self._waiting.append(answer)
            if len(read.sequences):
                return ledger, read
        return None


class ReplaySender:
    """Sends what is stored to those who fetch it."""

    def __init__(self, config: BusConfig, journal: Journal, disk: Disk, counts: KeeperCounts) -> None:
        self._config = replay_config(config)
        self._disk, self._counts = disk, counts
        self._loop = asyncio.get_running_loop()
        self._answers = Answers(journal)
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
                self._answers.add(each.ledger, first, end)
        self._is_wanted.set()
        if self._task is None and self._answers:
            self._task = asyncio.ensure_future(self._send_all())

    async def _send_all(self) -> None:
        session = self._config.session(is_sender_only=True)
        session.is_counted_alone = False
        try:
            async with session:
                messages = await session.open_messages()
                while await self._has_more():
                    await self._send_next(messages)
        except (FJM2Error, OSError):
            pass  # the interface is away; whoever lacks something asks again
        finally:
            self._answers.clear()
            self._task = None

    async def _has_more(self) -> bool:
        """Wait for a range to send. Return False if nobody has asked for any for a while."""
        while not self._answers:
            self._is_wanted.clear()
            try:
                async with asyncio.timeout(REPLAY_IDLE_S):
                    await self._is_wanted.wait()
            except TimeoutError:
                return False
        return True

    async def _send_next(self, messages: OutgoingMessages) -> None:
        found = self._answers.poll()
        if found is None:
            return
        ledger, read = found
        frames = [frame for frame in await asyncio.to_thread(read.fetch, self._disk) if frame is not None]
        data = b"".join(frames)
        if data:
            await messages.send(data)
        self._recent.setdefault(ledger, RangeSet()).add(int(read.sequences[0]), int(read.sequences[-1]) + 1)
        self._counts.frames_replayed += len(frames)
        self._bytes_left -= len(data)
        if self._bytes_left <= 0:
            self._answers.clear()

    async def close(self) -> None:
        await _end(self._task)


async def _end(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
