"""Ledgers as one keeper knows them: which sequences it has seen, which are on its disk, and which it refuses."""

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator
from enum import Enum, auto
from math import inf
from typing import Final, NamedTuple

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet

from .doubts.doubts import Doubts
from .times import HEARTBEAT_S
from .wire.ranges import Spans
from .wire.stored import LEDGERS_MAX, Progress

OPEN_MAX: Final = LEDGERS_MAX - 100
"""Most ledgers that are not closed. One STORED names all of them when a new manager asks, and there is room for those
that decisions name."""
CLOSED_MAX: Final = 50_000
"""Most closed ledgers: some 7,000 writers a day, each of which is remembered for 7 days."""
WRITER_OPEN_MAX: Final = 32
"""Most open ledgers of one producer id: three lanes of ten lives, so that no writer takes the room of others."""
ISLANDS_MAX: Final = 1024
"""Most separate ranges of a ledger. Each costs some 100 bytes. What lies beyond is fetched when holes are filled."""
_END: Final = 1 << 64
_FIRST: Final = 1
"""The first sequence of every ledger."""
_COMING_S: Final = 2 * HEARTBEAT_S
"""Silence of a ledger after which what others have of it is missing here. A busy member hears its frames that much
later than others do, and must not have them sent twice."""


class Refusal(Enum):
    """Reasons for which frames are not stored."""

    DUPLICATE = auto()
    """All sequences have been seen."""
    CLOSED = auto()
    """The ledger is closed, and its final set does not include the sequences."""
    FENCED = auto()
    """The ledger is about to be closed. Only fetched frames are stored."""
    SCATTERED = auto()
    """The ledger has too many holes."""
    WRITER_FULL = auto()
    """The writer has too many ledgers."""
    TABLE_FULL = auto()
    """All writers together have too many ledgers."""
    INVALID = auto()
    """The sequences are no sequences of a ledger."""


class Span(NamedTuple):
    """The sequences first, ..., end - 1 of a ledger."""

    ledger: Ledger
    first: int
    end: int


class ClosedLedger(NamedTuple):
    """A ledger whose final set is decided."""

    ledger: Ledger
    final: Spans
    at_ms: int
    """Time of the decision log at which it was closed."""


class Successions:
    """Ledgers of one producer and lane succeed each other by producer epoch: nothing comes in one when there is a later
    one.

    The end of a ledger is that of all older ones, too. Those that are not closed then are *void*: nobody has confirmed
    anything of them, and whatever a member still has is dropped.

    A writer that rests often leaves thousands of closed ledgers. Nothing here goes through them, but when the newest
    one is forgotten.
    """

    def __init__(self) -> None:
        self.incomplete: dict[Ledger, None] = {}
        """Closed ledgers of which something is not on disk."""
        self._ends: dict[tuple[int, int], dict[int, int]] = {}
        """End of the final set of each closed ledger, by producer id and lane, and by epoch."""
        self._open: dict[tuple[int, int], set[int]] = {}
        """Epochs of the ledgers that are known and not closed, by producer id and lane."""
        self._newest: dict[tuple[int, int], int] = {}
        """Epoch of the newest closed ledger, by producer id and lane."""
        self._heirs: dict[Ledger, None] = {}
        """Ledgers that are not closed, have got frames, and succeed others."""
        self._void: set[Ledger] = set()
        """Known ledgers that are void."""

    def add(self, ledger: Ledger) -> None:
        """Note a ledger that was not known."""
        self._open.setdefault(_line_of(ledger), set()).add(ledger.producer_epoch)

    def note_frames(self, ledger: Ledger) -> None:
        """Note that a ledger has frames, so that no older one gets any more."""
        if ledger.producer_epoch:
            self._heirs[ledger] = None

    def close(self, ledger: Ledger, end: int, *, is_whole: bool) -> None:
        """Note that nothing comes of a known ledger from a sequence on, and if what is before that is on disk."""
        line, epoch = _line_of(ledger), ledger.producer_epoch
        self._remove_open(line, epoch)
        self._ends.setdefault(line, {})[epoch] = end
        self._newest[line] = max(epoch, self._newest.get(line, 0))
        self._heirs.pop(ledger, None)
        if not is_whole:
            self.incomplete[ledger] = None

    def avoid(self, ledger: Ledger) -> None:
        """Note that a known ledger is void."""
        self.close(ledger, _FIRST, is_whole=True)
        self._void.add(ledger)

    def remove(self, ledger: Ledger) -> None:
        """Forget a closed ledger."""
        line, epoch = _line_of(ledger), ledger.producer_epoch
        self._void.discard(ledger)
        self.incomplete.pop(ledger, None)
        ends = self._ends[line]
        del ends[epoch]
        if not ends:
            del self._ends[line], self._newest[line]
        elif epoch == self._newest[line]:
            self._newest[line] = max(ends)

    def _remove_open(self, line: tuple[int, int], epoch: int) -> None:
        self._open[line].discard(epoch)
        if not self._open[line]:
            del self._open[line]

    def is_void(self, ledger: Ledger) -> bool:
        """Return True for a ledger that is void. It need not be known."""
        if ledger in self._void:
            return True
        line, epoch = _line_of(ledger), ledger.producer_epoch
        is_known = epoch in self._ends.get(line, ()) or epoch in self._open.get(line, ())
        return not is_known and epoch < self._newest.get(line, 0)

    def end_of(self, ledger: Ledger) -> int | None:
        """Return the end of a ledger's final set; None if nothing is decided about its end."""
        end = self._ends.get(_line_of(ledger), {}).get(ledger.producer_epoch)
        return _FIRST if end is None and self.is_void(ledger) else end

    def open_before(self, ledger: Ledger) -> list[Ledger]:
        """Return the older ledgers that are known and not closed, the newest one first."""
        epochs = self._open.get(_line_of(ledger), ())
        older = sorted((each for each in epochs if each < ledger.producer_epoch), reverse=True)
        return [ledger._replace(producer_epoch=each) for each in older]

    def open_after(self, ledger: Ledger) -> list[Ledger]:
        """Return the later ledgers that are known and not closed."""
        epochs = self._open.get(_line_of(ledger), ())
        return [ledger._replace(producer_epoch=each) for each in epochs if each > ledger.producer_epoch]

    def superseded(self) -> list[Ledger]:
        """Return the ledgers that have a later one, and are not closed.

        The one just before a later one counts even if nothing of it was ever heard: others may have heard something,
        and nobody can know that it had no messages before that is decided.
        """
        found: dict[Ledger, None] = {}
        for heir in self._heirs:
            found.update(dict.fromkeys(self.open_before(heir)))
            before = predecessor_of(heir)
            if self.end_of(before) is None:
                found[before] = None
        return list(found)


def predecessor_of(ledger: Ledger) -> Ledger:
    """Return the name of the ledger before one whose epoch is not 0."""
    return ledger._replace(producer_epoch=ledger.producer_epoch - 1)


def _line_of(ledger: Ledger) -> tuple[int, int]:
    return ledger.producer_id, ledger.lane


class _LedgerState:
    """Sequences of one ledger."""

    __slots__ = ("closed_at_ms", "coming_until", "final", "heard_at", "is_fenced", "on_disk", "seen")

    def __init__(self, now: float) -> None:
        self.seen = RangeSet()
        self.on_disk = RangeSet()
        self.final: RangeSet | None = None
        self.is_fenced = False
        self.heard_at = now
        self.coming_until = now + _COMING_S
        """Time until which frames behind the last one seen count as on their way."""
        self.closed_at_ms = 0


class Unstored:
    """Sequences of open ledgers that have come to a store without room for them. Some may be in it by now."""

    def __init__(self) -> None:
        self._ledgers: dict[Ledger, RangeSet] = {}

    def add(self, ledger: Ledger, first: int, end: int) -> None:
        """Note sequences, unless there are too many separate ranges."""
        ranges = self._ledgers.setdefault(ledger, RangeSet())
        if ranges.range_count < ISLANDS_MAX:
            ranges.add(first, end)

    def covers(self, ledger: Ledger, first: int, end: int) -> bool:
        """Return True if all sequences first, ..., end - 1 have come."""
        ranges = self._ledgers.get(ledger)
        return ranges is not None and ranges.covers(first, end)

    def forget(self, ledger: Ledger) -> None:
        """Forget a ledger."""
        self._ledgers.pop(ledger, None)


class Lost:
    """Sequences that decisions refer to, and whose frames nobody has any more."""

    def __init__(self) -> None:
        self._ledgers: dict[Ledger, RangeSet] = {}

    def __bool__(self) -> bool:
        return bool(self._ledgers)

    @property
    def ledgers(self) -> Collection[Ledger]:
        """Ledgers that have lost some."""
        return self._ledgers.keys()

    def count(self, ledger: Ledger) -> int:
        """Return the number of those of a ledger."""
        return len(self._ledgers.get(ledger, ()))

    def __contains__(self, at: tuple[Ledger, int]) -> bool:
        """Return True if a sequence of a ledger is lost."""
        ledger, sequence = at
        return ledger in self._ledgers and sequence in self._ledgers[ledger]

    def add(self, span: Span) -> None:
        """Note sequences."""
        self._ledgers.setdefault(span.ledger, RangeSet()).add(span.first, span.end)

    def forget(self, ledger: Ledger) -> None:
        """Forget a ledger."""
        self._ledgers.pop(ledger, None)


class Counting:
    """Sequences that were counted and are not on disk yet. For others the store tells if it has their frames."""

    def __init__(self) -> None:
        self._ledgers: dict[Ledger, RangeSet] = {}

    def add(self, span: Span) -> None:
        """Note sequences."""
        self._ledgers.setdefault(span.ledger, RangeSet()).add(span.first, span.end)

    def remove(self, span: Span) -> None:
        """Note that sequences are on disk, or that they could not be written."""
        ranges = self._ledgers.get(span.ledger)
        if ranges is not None:
            ranges.remove(span.first, span.end)
            if not ranges:
                del self._ledgers[span.ledger]

    def within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return those between `first` and `end`."""
        ranges = self._ledgers.get(ledger)
        return [] if ranges is None else list(ranges.within(first, end))


class LedgerTable:
    """All ledgers that a keeper knows. Its size is bounded, whatever is sent."""

    def __init__(
        self, open_max: int = OPEN_MAX, writer_open_max: int = WRITER_OPEN_MAX, islands_max: int = ISLANDS_MAX
    ) -> None:
        self.refused: Counter[Refusal] = Counter()
        """Number of runs that were refused, by reason."""
        self.pinned: Container[Ledger] = ()
        """Ledgers that are not forgotten, however long they have been closed: a subscription needs their messages."""
        self.doubts = Doubts()
        """Sequences that were counted, although a subscription may ask for their frames."""
        self.successions: Final = Successions()
        self.unstored: Final = Unstored()
        self.counting: Final = Counting()
        self.lost: Final = Lost()
        self._open_max = open_max
        self._writer_open_max = writer_open_max
        self._islands_max = islands_max
        self._ledgers: dict[Ledger, _LedgerState] = {}
        self._open_of_writer: Counter[int] = Counter()
        self._open = 0

    def __contains__(self, ledger: Ledger) -> bool:
        return ledger in self._ledgers

    @property
    def open_ledgers(self) -> Iterator[Ledger]:
        """Ledgers that are not closed, in the order in which they were first heard of."""
        return (ledger for ledger, state in self._ledgers.items() if state.final is None)

    @property
    def fenced_ledgers(self) -> list[Ledger]:
        """Ledgers that are fenced and not closed."""
        return [ledger for ledger, state in self._ledgers.items() if state.is_fenced and state.final is None]

    @property
    def closed_ledgers(self) -> list[ClosedLedger]:
        """Ledgers that decisions closed, by name: in whatever order keepers heard of them, the list is the same."""
        return [
            ClosedLedger(ledger, tuple((first, end - 1) for first, end in state.final), state.closed_at_ms)
            for ledger, state in sorted(self._ledgers.items())
            if state.final is not None and not self.successions.is_void(ledger)
        ]

    @property
    def has_room(self) -> bool:
        """True if there may be one more ledger."""
        return self._open < self._open_max and len(self._ledgers) - self._open < CLOSED_MAX

    def accept(self, ledger: Ledger, first: int, count: int, now: float, *, is_fetched: bool = False) -> list[Span]:
        """Note that frames have arrived. Return the sequences that are new, and that the caller has to store.

        Sequences that are refused, duplicates among them, are counted and not returned.
        """
        end = first + count
        if first < _FIRST or count < 1 or end > 1 << 64:
            return self._refuse(Refusal.INVALID)
        state = self._ledgers.get(ledger)
        if state is None:
            state = self._add(ledger, now, is_fetched=is_fetched)
            if state is None:
                return []
        if not is_fetched:
            state.heard_at = now
            state.coming_until = now + _COMING_S
        if state.final is not None:
            wanted = list(state.final.within(first, end))
        elif state.is_fenced and not is_fetched:
            return self._refuse(Refusal.DUPLICATE if state.seen.covers(first, end) else Refusal.FENCED)
        else:
            wanted = [(first, end)]
        if not wanted:
            return self._refuse(Refusal.CLOSED)
        fresh = [gap for low, high in wanted for gap in state.seen.gaps(low, high)]
        if not fresh:
            return self._refuse(Refusal.DUPLICATE)
        return [Span(ledger, low, high) for low, high in fresh if self._see(state, low, high)]

    def _see(self, state: _LedgerState, first: int, end: int) -> bool:
        """Add sequences that were not seen before, unless they would be one island too many."""
        touches = first - 1 in state.seen or end in state.seen
        if not touches and state.seen.range_count >= self._islands_max:
            self._refuse(Refusal.SCATTERED)
            return False
        state.seen.add(first, end)
        return True

    def _add(self, ledger: Ledger, now: float, *, is_fetched: bool) -> _LedgerState | None:
        if self.successions.is_void(ledger):
            self._refuse(Refusal.CLOSED)
            return None
        is_fenced = any(self.is_fenced(each) for each in self.successions.open_after(ledger))
        if is_fenced and not is_fetched:
            self._refuse(Refusal.FENCED)
            return None
        if not self.has_room:
            self._refuse(Refusal.TABLE_FULL)
            return None
        if self._open_of_writer[ledger.producer_id] >= self._writer_open_max:
            self._refuse(Refusal.WRITER_FULL)
            return None
        self.successions.note_frames(ledger)
        state = self._create(ledger, now)
        state.is_fenced = is_fenced
        return state

    def _create(self, ledger: Ledger, now: float) -> _LedgerState:
        state = self._ledgers[ledger] = _LedgerState(now)
        self._open += 1
        self._open_of_writer[ledger.producer_id] += 1
        self.successions.add(ledger)
        return state

    def _refuse(self, reason: Refusal) -> list[Span]:
        self.refused[reason] += 1
        return []

    def note_on_disk(self, span: Span) -> None:
        """Note that sequences are on disk, or need no disk."""
        self.counting.remove(span)
        state = self._ledgers.get(span.ledger)
        if state is not None:
            state.on_disk.add(span.first, span.end)
            if state.final is not None and all(state.on_disk.covers(first, end) for first, end in state.final):
                self.successions.incomplete.pop(span.ledger, None)

    def restore(self, span: Span, now: float) -> None:
        """Note sequences that were on disk when the keeper started. What is on disk is never refused."""
        state = self._ledgers.get(span.ledger) or self._create(span.ledger, now)
        if state.final is None:
            self.successions.note_frames(span.ledger)
        state.seen.add(span.first, span.end)
        state.on_disk.add(span.first, span.end)

    def fence(self, ledger: Ledger, now: float) -> None:
        """Refuse further frames of a ledger and of older ones, unless they are fetched. It need not be known."""
        state = self._ledgers.get(ledger) or self._create(ledger, now)
        state.is_fenced = True
        for older in self.successions.open_before(ledger):
            self._ledgers[older].is_fenced = True

    def close(self, ledger: Ledger, final: Spans, now: float, at_ms: int) -> None:
        """Fix the set of a ledger's sequences for ever. The first final set of a ledger counts.

        Older ledgers that are not closed become void.
        """
        state = self._ledgers.get(ledger) or self._create(ledger, now)
        if state.final is not None:
            return
        self._close(ledger, state, final, at_ms)
        is_whole = all(state.on_disk.covers(first, last + 1) for first, last in final)
        self.successions.close(ledger, final[-1][1] + 1 if final else _FIRST, is_whole=is_whole)
        for older in self.successions.open_before(ledger):
            self._close(older, self._ledgers[older], (), at_ms)
            self.successions.avoid(older)

    def _close(self, ledger: Ledger, state: _LedgerState, final: Spans, at_ms: int) -> None:
        state.final = RangeSet((first, last + 1) for first, last in final)
        state.closed_at_ms = at_ms
        for first, end in list(state.final.gaps(_FIRST, _END)):
            self.doubts.resolve(ledger, first, end)
            if state.final and end <= state.final.last:
                # Nobody has these sequences. To readers they are known to be no messages.
                state.seen.add(first, end)
                state.on_disk.add(first, end)
        self.unstored.forget(ledger)
        self._open -= 1
        self._open_of_writer[ledger.producer_id] -= 1
        if not self._open_of_writer[ledger.producer_id]:
            del self._open_of_writer[ledger.producer_id]

    def forget_closed(self, before_ms: int) -> list[Ledger]:
        """Forget ledgers that were closed before a time of the decision log, and return them."""
        old = [
            ledger
            for ledger, state in self._ledgers.items()
            if state.final is not None and state.closed_at_ms < before_ms and ledger not in self.pinned
        ]
        for ledger in old:
            del self._ledgers[ledger]
            self.lost.forget(ledger)
            self.doubts.forget(ledger)
            self.successions.remove(ledger)
        return old

    def progress(self, ledger: Ledger) -> Progress:
        """Return how far a ledger is known. Both counts are 0 for an unknown ledger."""
        state = self._ledgers.get(ledger)
        if state is None:
            return Progress(ledger, 0, 0)
        on_disk, seen = state.on_disk.end_of(_FIRST) - 1, state.seen.end_of(_FIRST) - 1
        if state.final is not None:
            # A frame outside the final set may be on disk. It will never be delivered, so that it counts nowhere.
            through = state.final.end_of(_FIRST) - 1
            on_disk, seen = min(on_disk, through), min(seen, through)
        return Progress(ledger, max(on_disk, 0), max(seen, 0), state.final is not None)

    def progress_of(self, producer_id: int) -> list[Progress]:
        """Return the progress of a writer's ledgers as the writer may hear it.

        Ledgers that are fenced and not closed are left out: a confirmation could come too late for the final set.
        So are those in doubt: a writer that waits for frames of a subscription would count one copy too many. So are
        those of earlier lives, of which an outbox can have very many.
        """
        mine = [ledger for ledger in self._ledgers if ledger.producer_id == producer_id and ledger not in self.doubts]
        newest: Counter[int] = Counter()
        for ledger in mine:
            newest[ledger.lane] = max(newest[ledger.lane], ledger.producer_epoch)
        late = [each for each in mine if each.producer_epoch >= newest[each.lane] - WRITER_OPEN_MAX]
        told = [(ledger, self._ledgers[ledger]) for ledger in late]
        return [self.progress(ledger) for ledger, state in told if state.final is not None or not state.is_fenced]

    def missing(self, ledger: Ledger, first: int, end: int, now: float = inf) -> list[tuple[int, int]]:
        """Return the ranges between `first` and `end` that have not been seen, without those that are on their way.

        A lane delivers in order. While frames of a ledger come, those behind the last one seen will come, too.
        """
        state = self._ledgers.get(ledger)
        if state is None:
            return [(first, end)] if first < end else []
        if not state.is_fenced and now < state.coming_until:
            end = min(end, state.seen.last + 1 if state.seen else _FIRST)
        return list(state.seen.gaps(first, end))

    def is_on_disk(self, ledger: Ledger, first: int, end: int) -> bool:
        """Return True if all sequences first, ..., end - 1 are on disk."""
        state = self._ledgers.get(ledger)
        return first >= end or (state is not None and state.on_disk.covers(first, end))

    def on_disk_within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges between `first` and `end` that are on disk."""
        state = self._ledgers.get(ledger)
        return [] if state is None else list(state.on_disk.within(first, end))

    def seen_within(self, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Return the ranges between `first` and `end` that have been seen."""
        state = self._ledgers.get(ledger)
        return [] if state is None else list(state.seen.within(first, end))

    def highest_seen(self, ledger: Ledger) -> int:
        """Return the last sequence that has been seen, with holes before it or not; 0 for an unknown ledger."""
        state = self._ledgers.get(ledger)
        return state.seen.last if state is not None and state.seen else 0

    def end_on_disk(self, ledger: Ledger, sequence: int) -> int:
        """Return the first sequence from one on that is not on disk, or behind the final set of a closed ledger."""
        state = self._ledgers.get(ledger)
        if state is None:
            return sequence
        end = state.on_disk.end_of(sequence)
        if state.final is None:
            return end
        return min(end, max(sequence, state.final.last + 1 if state.final else _FIRST))

    def is_fenced(self, ledger: Ledger) -> bool:
        """Return True if further frames of the ledger are refused, but for those of its final set."""
        state = self._ledgers.get(ledger)
        return state is not None and (state.is_fenced or state.final is not None)

    def is_closed(self, ledger: Ledger) -> bool:
        """Return True if a final set is decided. No member has anything of the ledger that is still to be read."""
        state = self._ledgers.get(ledger)
        return state.final is not None if state is not None else self.successions.is_void(ledger)

    def is_refused(self, ledger: Ledger, sequence: int) -> bool:
        """Return True if a ledger is closed and its final set does not include a sequence."""
        state = self._ledgers.get(ledger)
        return self.is_closed(ledger) and (state is None or state.final is None or sequence not in state.final)

    def silent_since(self, before: float) -> list[Ledger]:
        """Return the open ledgers whose writers were heard last before a time."""
        return [ledger for ledger, state in self._ledgers.items() if state.final is None and state.heard_at < before]

    def drop_unsynced(self, spans: Iterable[Span]) -> None:
        """Forget sequences that were seen but could not be written, so that they are stored when they come again.

        Their writer does not send them again, so that they have to be fetched.
        """
        for span in spans:
            ledger, first, end = span
            self.counting.remove(span)
            state = self._ledgers.get(ledger)
            if state is not None and state.final is None:
                self.unstored.add(ledger, first, end)
            if state is not None:
                state.seen.remove(first, end)
                state.coming_until = 0.0
