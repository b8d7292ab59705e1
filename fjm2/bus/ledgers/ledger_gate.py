"""The gate that numbers a connection's messages for keepers, and holds sends back until these have stored them.

It knows nothing of keepers. Its owner hears them, and calls `confirmed_through` and `give_up`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fjm2.base.ledger import DELAYED_LANE, Ledger, carrier_of
from fjm2.messages.batches.frame_array import FrameArray
from fjm2.messages.destination import QUEUE_FLAG, Destination
from fjm2.messages.errors import JMSError, ResourceAllocationError
from fjm2.messages.files.parts import is_begin
from fjm2.messages.frame import Parts
from fjm2.messages.header import DELAYED, FILE, FLAGS, KIND, MARKS_AT, PERSISTENT, PRIORITY, RETAINED, RETAINED_SEND
from fjm2.messages.ledgers.ledger_number import LEDGER_SECTION_BYTES, LedgerNumber, with_ledger_number

from ..lane import LANE_OF_PRIORITY, LEDGER_LANES
from .destinations import REQUESTS
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
    """A ledger of one lane: its numbers so far, and the runs that are not confirmed."""

    __slots__ = ("epoch", "newest", "open", "rested_at", "runs")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.newest = 0
        """Latest sequence."""
        self.runs: deque[_Run] = deque()
        """Unconfirmed runs, oldest first."""
        self.open: _Run | None = None
        """Run of this turn."""
        self.rested_at = 0
        """Latest sequence when `end_resting` looked last."""


class LedgerGate:
    """Numbers and seals the PERSISTENT messages of a connection, and all that it sends to queues."""

    is_waiting: Final = False

    def __init__(self, producer_id: int, producer_epoch: int, room: LedgerRoom) -> None:
        self.is_stored: Callable[[int], bool] | None = None
        """Returns True if keepers store what is sent to a topic, by its hash: the look-up in the newest table. They
        store all that is sent to queues. None while no cell is known: messages pass as they are."""
        self.on_room: Callable[[], None] = lambda: None
        self.on_waiting: Callable[[Ledger, int], None] = lambda *_: None
        """Called once a turn with a ledger that has messages to be stored, and the sequence of the latest one."""
        self.on_numbered: Callable[[Destination, Ledger, int, list[bytes]], None] | None = None
        """Called with a destination, a ledger, the first sequence, and frames that were just numbered, if it is not
        None. The network does not bring them back to this process."""
        self.on_begun: Callable[[int], None] = lambda _: None
        """Called with the number of a lane before the first message of a ledger is sent there."""
        self.is_kept_open: Callable[[int], bool] = lambda _: False
        """Returns True for a lane whose ledger `end_resting` must not end: the cell knows its writer by it."""
        self._producer_id = producer_id
        self._room = room
        self._ledgers: Final = {lane: _LaneLedger(producer_epoch) for lane in LEDGER_LANES}
        """Ledgers that get messages, by lane."""
        self._ended: Final[dict[Ledger, _LaneLedger]] = {}
        """Ledgers that get no more messages, and have some that are not confirmed."""
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
        return sum(run.count for ledger in (*self._ledgers.values(), *self._ended.values()) for run in ledger.runs)

    def newest(self, lane: int) -> LedgerNumber:
        """Return the number of the latest message of a lane; its sequence is 0 before the first."""
        ledger = self._ledgers[lane]
        return LedgerNumber(self._producer_id, ledger.epoch, ledger.newest)

    # The gate.

    def holds(self, destination: Destination, flags: int) -> bool:
        """Return True if such a message counts as sent only when it is stored. Any thread may ask."""
        is_stored = self.is_stored
        if not flags & PERSISTENT or is_stored is None:
            return False
        return bool(flags & RETAINED_SEND) or _is_kept(destination, is_stored)

    def admit(self, destination: Destination, parts: Parts) -> "tuple[Parts, asyncio.Future[None] | None] | None":
        """Number a frame, unless it needs no number.

        Of a file, only the first frame has a number: if keepers store it all the same, because they know of a
        subscription that this gate does not know yet, its subscriber is told. Raise ResourceAllocationError for that
        frame if the file would have to be stored.
        """
        head, body = parts
        flags, is_stored = head[FLAGS], self.is_stored
        if self._error is not None:
            raise self._error
        if is_stored is None or not (flags & PERSISTENT or destination.kind_flags == QUEUE_FLAG):
            return parts, None
        has_future = flags & PERSISTENT and (head[MARKS_AT] & RETAINED or _is_kept(destination, is_stored))
        if head[KIND] == FILE:
            if not is_begin(body):
                return parts, None
            if has_future:
                raise _file_refused(destination)
        lane = _lane_of(head)
        ledger = self._ledgers[lane]
        size = len(head) + len(body) + LEDGER_SECTION_BYTES
        if has_future and not self._room.has(carrier_of(lane), size):
            return None
        if not ledger.newest:
            self.on_begun(carrier_of(lane))
        sequence = ledger.newest + 1
        numbered = with_ledger_number(parts, self._producer_id, ledger.epoch, sequence)
        ledger.newest = sequence
        if self.on_numbered is not None:
            self.on_numbered(destination, self._name(lane, ledger), sequence, [b"".join(numbered)])
        return numbered, self._count(lane, ledger, 1, size) if has_future else None

    def admit_request(self, parts: Parts) -> "tuple[Parts, Ledger, int, asyncio.Future[None]]":
        """Number a request to keepers, even if there is no room: it may be what makes room. Return the frame to be
        sent, its place, and a future that is done when it is stored."""
        if self._error is not None:
            raise self._error
        lane = LANE_OF_PRIORITY[parts[0][PRIORITY]]
        ledger = self._ledgers[lane]
        if not ledger.newest:
            self.on_begun(carrier_of(lane))
        sequence = ledger.newest + 1
        numbered = with_ledger_number(parts, self._producer_id, ledger.epoch, sequence)
        ledger.newest = sequence
        name = self._name(lane, ledger)
        if self.on_numbered is not None:
            self.on_numbered(REQUESTS, name, sequence, [b"".join(numbered)])
        size = len(numbered[0]) + len(numbered[1])
        return numbered, name, sequence, self._count(lane, ledger, 1, size)

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
        lane = _lane_of(head)
        ledger = self._ledgers[lane]
        has_future = flags & PERSISTENT and (head[MARKS_AT] & RETAINED or _is_kept(destination, is_stored))
        size = frames.size + LEDGER_SECTION_BYTES * len(frames)
        if has_future and not self._room.has(carrier_of(lane), size):
            return None
        from fjm2.messages.ledgers.number_columns import with_ledger_numbers  # only now: it loads numpy

        if not ledger.newest:
            self.on_begun(carrier_of(lane))
        first = LedgerNumber(self._producer_id, ledger.epoch, ledger.newest + 1)
        numbered = with_ledger_numbers(frames, first)
        ledger.newest += len(frames)
        if self.on_numbered is not None:
            self.on_numbered(
                destination, self._name(lane, ledger), first.sequence, [head + body for head, body in numbered.parts()]
            )
        return numbered, self._count(lane, ledger, len(frames), size) if has_future else None

    def _count(self, lane: int, ledger: _LaneLedger, count: int, size: int) -> "asyncio.Future[None]":
        """Count messages that were just numbered as unconfirmed, and return their future."""
        run = ledger.open
        if run is None:
            loop = asyncio.get_running_loop()
            run = ledger.open = _Run(loop.create_future())
            run.future.add_done_callback(_retrieve)
            ledger.runs.append(run)
            loop.call_soon(self._end_run, lane, ledger, run)
        run.last = ledger.newest
        run.count += count
        run.size += size
        self._room.used[carrier_of(lane)] += size
        return run.future

    def _end_run(self, lane: int, ledger: _LaneLedger, run: _Run) -> None:
        if ledger.open is run:
            ledger.open = None
            self.on_waiting(self._name(lane, ledger), run.last)

    def _name(self, lane: int, ledger: _LaneLedger) -> Ledger:
        return Ledger(self._producer_id, ledger.epoch, lane)

    # The owner.

    def confirmed_through(self, ledger: Ledger, sequence: int) -> bool:
        """Complete the sends of a ledger up to a sequence, in order. Return False, and do nothing, if that is not a
        ledger of this gate, or if it has no such sequence yet: somebody forged the confirmation."""
        mine = self._find(ledger)
        if mine is None or sequence > mine.newest:
            return False
        self._finish(ledger, mine, sequence, None)
        return True

    def give_up(self, ledger: Ledger, sequence: int, error: JMSError) -> None:
        """Let the sends of a ledger fail up to a sequence. If keepers may lack one of its messages for ever, end the
        ledger before: those behind it would wait in vain."""
        mine = self._find(ledger)
        if mine is not None:
            self._finish(ledger, mine, sequence, error)

    def end(self, ledger: Ledger) -> bool:
        """Write the messages that follow into another ledger, of the next producer epoch. Return False, and do nothing,
        if a ledger gets no messages anyhow."""
        producer_id, producer_epoch, lane = ledger
        mine = self._ledgers.get(lane)
        if mine is None or producer_id != self._producer_id or producer_epoch != mine.epoch:
            return False
        self._ledgers[lane] = _LaneLedger(mine.epoch + 1)
        if mine.open is not None:
            self._end_run(lane, mine, mine.open)
        if mine.runs:
            self._ended[ledger] = mine
        return True

    def end_all(self) -> list[Ledger]:
        """End the ledgers of all lanes that have messages, and return them."""
        return [name for name in self._names() if self.end(name)]

    def end_resting(self) -> list[Ledger]:
        """End the ledgers that got no message since the last call, and return them: keepers close the ledgers of silent
        writers, and would refuse a message that comes later."""
        resting: list[Ledger] = []
        for lane, ledger in self._ledgers.items():
            is_resting = ledger.newest and ledger.newest == ledger.rested_at and not ledger.runs
            if is_resting and not self.is_kept_open(lane):
                resting.append(self._name(lane, ledger))
            ledger.rested_at = ledger.newest
        for name in resting:
            self.end(name)
        return resting

    def fail(self, error: JMSError) -> None:
        """Let all sends fail that are not confirmed."""
        present = [(self._name(lane, ledger), ledger) for lane, ledger in self._ledgers.items()]
        # Messages that get room now are later ones.
        for name, ledger, newest in [(*each, each[1].newest) for each in (*present, *self._ended.items())]:
            self._finish(name, ledger, newest, error)

    def close(self, error: JMSError) -> None:
        """Let all sends fail that are not confirmed, and all that follow. Calling this twice does no harm."""
        if self._error is None:
            self._error = error
            self.fail(error)
            self._room.note_freed()
            self._room.remove_waiter(self._note_room)

    def _names(self) -> list[Ledger]:
        return [self._name(lane, ledger) for lane, ledger in self._ledgers.items() if ledger.newest]

    def _find(self, ledger: Ledger) -> _LaneLedger | None:
        producer_id, producer_epoch, lane = ledger
        current = self._ledgers.get(lane)
        if producer_id != self._producer_id or current is None:
            return None
        return current if current.epoch == producer_epoch else self._ended.get(ledger)

    def _finish(self, name: Ledger, ledger: _LaneLedger, sequence: int, error: JMSError | None) -> None:
        """End the wait of messages up to a sequence."""
        is_freed = False
        while ledger.runs and ledger.runs[0].last <= sequence:
            run = ledger.runs.popleft()
            self._room.used[carrier_of(name.lane)] -= run.size
            if ledger.open is run:
                ledger.open = None
            is_freed = True
            if run.future.done():
                continue
            if error is None:
                run.future.set_result(None)
            else:
                run.future.set_exception(error)
        if not ledger.runs:
            self._ended.pop(name, None)
        if is_freed:
            self._room.note_freed()

    def _note_room(self) -> None:
        self.on_room()


def _lane_of(head: bytes) -> int:
    """Return the lane of the ledger that a frame belongs to."""
    lane = LANE_OF_PRIORITY[head[PRIORITY]]
    return lane + DELAYED_LANE if head[FLAGS] & DELAYED and head[KIND] != FILE else lane


def _is_kept(destination: Destination, is_stored: Callable[[int], bool]) -> bool:
    """Return True if keepers store what is sent to a destination."""
    return destination.kind_flags == QUEUE_FLAG or is_stored(destination.frame_hash)


def _file_refused(destination: Destination) -> JMSError:
    return ResourceAllocationError(
        f"{destination} has a durable or shared subscription, and keepers do not keep files: send it with delivery "
        "mode NON_PERSISTENT, which only other subscribers get, or as a BytesMessage",
        "files_not_kept",
    )


def _retrieve(future: "asyncio.Future[None]") -> None:
    """Mark an error as seen: nobody may be waiting for a message of the run."""
    if not future.cancelled():
        future.exception()
