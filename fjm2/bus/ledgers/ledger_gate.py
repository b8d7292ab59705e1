"""The gate that numbers a connection's messages for keepers, and holds sends back until these have stored them.

It knows nothing of keepers. Its owner hears them, and calls `confirmed_through` and `fail`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.messages.batches.frame_array import FrameArray
from fjm2.messages.destination import QUEUE_FLAG, Destination
from fjm2.messages.errors import JMSError
from fjm2.messages.frame import Parts
from fjm2.messages.header import FLAGS, PERSISTENT, PRIORITY
from fjm2.messages.ledgers.ledger_number import LEDGER_SECTION_BYTES, LedgerNumber, with_ledger_number

from ..lane import LANE_COUNT, LANE_OF_PRIORITY
from .ledger_room import LedgerRoom


@dataclass(slots=True)
class _Run:
    """Messages of one turn of the loop, which share a future."""

    future: "asyncio.Future[None]"
    last: int = 0
    """Sequence of the last message."""
    size: int = 0
    """Bytes of all messages."""
    count: int = 0


class _LaneLedger:
    """The ledger of one lane: its numbers so far, and the runs that are not confirmed."""

    __slots__ = ("newest", "open", "runs")

    def __init__(self) -> None:
        self.newest = 0
        """Latest sequence."""
        self.runs: deque[_Run] = deque()
        """Unconfirmed runs, oldest first."""
        self.open: _Run | None = None
        """Run of this turn."""


class LedgerGate:
    """Numbers and seals the PERSISTENT messages of a connection, and all that it sends to queues."""

    def __init__(self, producer_id: int, producer_epoch: int, room: LedgerRoom) -> None:
        self.is_stored: Callable[[int], bool] | None = None
        """Returns True if keepers store what is sent to a destination, by its hash: the look-up in the newest table.
        None while no cell is known: messages pass as they are."""
        self.on_room: Callable[[], None] = lambda: None
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._room = room
        self._ledgers: Final = [_LaneLedger() for _ in range(LANE_COUNT)]
        self._error: JMSError | None = None
        """Error of all further messages; None while the gate is open."""
        room.add_waiter(self._note_room)

    @property
    def bytes_max(self) -> int:
        """Greatest number of bytes of a lane that may be unconfirmed at a time."""
        return self._room.bytes_max

    @property
    def unconfirmed(self) -> int:
        """Number of messages that wait until they are stored."""
        return sum(run.count for ledger in self._ledgers for run in ledger.runs)

    def newest(self, lane: int) -> LedgerNumber:
        """Return the number of the latest message of a lane; its sequence is 0 before the first."""
        return LedgerNumber(self._producer_id, self._producer_epoch, self._ledgers[lane].newest)

    # The gate.

    def holds(self, destination: Destination, flags: int) -> bool:
        """Return True if such a message counts as sent only when it is stored. Any thread may ask."""
        is_stored = self.is_stored
        return bool(flags & PERSISTENT) and is_stored is not None and is_stored(destination.frame_hash)

    def admit(self, destination: Destination, parts: Parts) -> "tuple[Parts, asyncio.Future[None] | None] | None":
        """Number a frame, unless it needs no number."""
        head, body = parts
        flags, is_stored = head[FLAGS], self.is_stored
        if self._error is not None:
            raise self._error
        if is_stored is None or not (flags & PERSISTENT or destination.kind_flags == QUEUE_FLAG):
            return parts, None
        lane = LANE_OF_PRIORITY[head[PRIORITY]]
        ledger = self._ledgers[lane]
        has_future = flags & PERSISTENT and is_stored(destination.frame_hash)
        size = len(head) + len(body) + LEDGER_SECTION_BYTES
        if has_future and not self._room.has(lane, size):
            return None
        sequence = ledger.newest + 1
        numbered = with_ledger_number(parts, self._producer_id, self._producer_epoch, sequence)
        ledger.newest = sequence
        return numbered, self._count(lane, ledger, 1, size) if has_future else None

    def admit_many(
        self, destination: Destination, frames: FrameArray
    ) -> "tuple[FrameArray, asyncio.Future[None] | None] | None":
        """Number the frames of a batch."""
        head = frames.pieces[0]
        flags, is_stored = head[FLAGS], self.is_stored
        if self._error is not None:
            raise self._error
        if is_stored is None or not (flags & PERSISTENT or destination.kind_flags == QUEUE_FLAG):
            return frames, None
        lane = LANE_OF_PRIORITY[head[PRIORITY]]
        ledger = self._ledgers[lane]
        has_future = flags & PERSISTENT and is_stored(destination.frame_hash)
        size = frames.size + LEDGER_SECTION_BYTES * len(frames)
        if has_future and not self._room.has(lane, size):
            return None
        from fjm2.messages.ledgers.number_columns import with_ledger_numbers  # only now: it loads numpy

        first = LedgerNumber(self._producer_id, self._producer_epoch, ledger.newest + 1)
        numbered = with_ledger_numbers(frames, first)
        ledger.newest += len(frames)
        return numbered, self._count(lane, ledger, len(frames), size) if has_future else None

    def _count(self, lane: int, ledger: _LaneLedger, count: int, size: int) -> "asyncio.Future[None]":
        """Count messages that were just numbered as unconfirmed, and return their future."""
        run = ledger.open
        if run is None:
            loop = asyncio.get_running_loop()
            run = ledger.open = _Run(loop.create_future())
            run.future.add_done_callback(_retrieve)
            ledger.runs.append(run)
            loop.call_soon(self._end_run, ledger)
        run.last = ledger.newest
        run.count += count
        run.size += size
        self._room.used[lane] += size
        return run.future

    @staticmethod
    def _end_run(ledger: _LaneLedger) -> None:
        ledger.open = None

    # The owner.

    def confirmed_through(self, ledger: Ledger, sequence: int) -> bool:
        """Complete the sends of a ledger up to a sequence, in order. Return False, and do nothing, if that is not a
        ledger of this gate, or if it has no such sequence yet: somebody forged the confirmation."""
        producer_id, producer_epoch, lane = ledger
        is_ours = producer_id == self._producer_id and producer_epoch == self._producer_epoch and lane < LANE_COUNT
        if not is_ours or sequence > self._ledgers[lane].newest:
            return False
        mine = self._ledgers[lane]
        is_freed = False
        while mine.runs and mine.runs[0].last <= sequence:
            run = mine.runs.popleft()
            self._forget(lane, mine, run)
            is_freed = True
            if not run.future.done():
                run.future.set_result(None)
        if is_freed:
            self._room.note_freed()
        return True

    def fail(self, error: JMSError) -> None:
        """Let all sends fail that are not confirmed."""
        for lane, ledger in enumerate(self._ledgers):
            while ledger.runs:
                run = ledger.runs.popleft()
                self._forget(lane, ledger, run)
                if not run.future.done():
                    run.future.set_exception(error)
        self._room.note_freed()

    def close(self, error: JMSError) -> None:
        """Let all sends fail that are not confirmed, and all that follow. Calling this twice does no harm."""
        if self._error is None:
            self._error = error
            self.fail(error)
            self._room.remove_waiter(self._note_room)

    def _forget(self, lane: int, ledger: _LaneLedger, run: _Run) -> None:
        self._room.used[lane] -= run.size
        if ledger.open is run:
            ledger.open = None

    def _note_room(self) -> None:
        self.on_room()


def _retrieve(future: "asyncio.Future[None]") -> None:
    """Mark an error as seen: nobody may be waiting for a message of the run."""
    if not future.cancelled():
        future.exception()
