"""Frames of a bus, sorted for the cell: those to be stored, those to be counted, and decisions."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ledger import Ledger
from fjm2.bus.ledgers.destinations import DECISIONS, REQUESTS
from fjm2.bus.ledgers.ledger_tap import NumberedFrames, NumberedRun, one_run, run_alone
from fjm2.messages.batches.frame_run import FrameRun, Frames
from fjm2.messages.destination import KIND_FLAGS, QUEUE_FLAG
from fjm2.messages.frame import Frame, FrameReader
from fjm2.messages.header import (
    DELAYED,
    DESTINATION_HASH,
    FLAGS,
    MARKS_AT,
    NOT_WHOLE,
    PERSISTENT,
    RETAINED,
)
from fjm2.messages.ledgers.ledger_number import is_intact, ledger_number_of
from fjm2.messages.ledgers.run_columns import RunColumns, columns_of, joined_columns, numbered_frames
from fjm2.store.laid_frames import LaidFrames

from .counts import KeeperCounts
from .kept_frames import delivery_time

_STORED, _URGENT, _COUNTED, _DECISION = range(4)
_VALUE_FLAGS: Final = PERSISTENT | KIND_FLAGS | NOT_WHOLE
"""Flags that decide whether a message can be a last value."""
REFUSED_BYTES_MAX: Final = 16 << 20
"""Bytes of frames that wait in memory for room in the store: what two lanes of a sender may have on the way."""
RUN_BYTES: Final = 200
"""Bytes that a run of them takes beside the frames."""
_NO_MESSAGE: Final = -1
"""Stands for the hash of a destination without subscriptions."""


class FrameTaker(Protocol):
    """The part of a cell that takes frames."""

    @property
    def cell_id(self) -> int: ...
    def receive_frames(
        self,
        ledger: Ledger,
        first: int,
        frames: Sequence[bytes],
        source: int,
        now: float,
        *,
        is_fetched: bool = False,
        is_urgent: bool = False,
    ) -> bool: ...
    def receive_counted(self, ledger: Ledger, first: int, count: int, source: int, now: float) -> bool: ...
    def receive_entry(self, epoch: int, index: int, data: bytes, now: float) -> None: ...


class FrameNoter(Protocol):
    """The part of a cell's service that is told what frames are, once the cell has got them."""

    def receive_request(self, ledger: Ledger, sequence: int, body: bytes) -> None: ...
    def note_messages(self, frame_hash: int, ledger: Ledger, first: int, count: int) -> None: ...
    def note_delivery_times(self, ledger: Ledger, first: int, times_ms: Sequence[int]) -> None: ...


class _Alone:
    """A frame that came alone. It has what passing frames on takes of `RunColumns`, without arrays."""

    __slots__ = ("_frame",)

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    @property
    def laid(self) -> LaidFrames:
        buffer, start, _, end, _ = self._frame
        return LaidFrames(buffer[start:end], np.array((end - start,), np.int64))

    def body(self, _index: int) -> bytes:
        buffer, _, body, end, _ = self._frame
        return buffer[body:end]


class RefusedRun(NamedTuple):
    """Consecutive frames of a ledger for which there was no room, end to end."""

    sender_id: int
    ledger: Ledger
    frames: bytes

    @property
    def size(self) -> int:
        """Bytes that the run takes in memory."""
        return len(self.frames) + RUN_BYTES


class RefusedFrames:
    """Frames for which the store has no room, in the order in which they came.

    Nobody sends them again. Without them their ledgers would have holes, behind which nothing is ever confirmed, and
    their senders would wait in vain long after consumers have made room.
    """

    def __init__(self, is_ended: Callable[[Ledger], bool]) -> None:
        self.is_ended = is_ended
        """Returns True for a ledger of which nothing is taken any more."""
        self._runs: deque[RefusedRun] = deque()
        self._counts: Counter[Ledger] = Counter()
        """Runs of each ledger."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, sender_id: int, ledger: Ledger, frames: LaidFrames) -> None:
        """Hold frames, unless too much is held. Those that came first are worth most: the others wait for them."""
        run = RefusedRun(sender_id, ledger, bytes(frames.data))
        if self._bytes + run.size > REFUSED_BYTES_MAX:
            self._drop_ended()
        if self._bytes + run.size <= REFUSED_BYTES_MAX:
            self._runs.append(run)
            self._counts[ledger] += 1
            self._bytes += run.size

    def _drop_ended(self) -> None:
        ended = {ledger for ledger in self._counts if self.is_ended(ledger)}
        if ended:
            self._runs = deque(run for run in self._runs if run.ledger not in ended)
            self._counts = Counter(run.ledger for run in self._runs)
            self._bytes = sum(run.size for run in self._runs)

    def poll(self) -> RefusedRun | None:
        """Return the frames that came first, and hold them no longer."""
        if not self._runs:
            return None
        run = self._runs.popleft()
        self._bytes -= run.size
        self._counts[run.ledger] -= 1
        if not self._counts[run.ledger]:
            del self._counts[run.ledger]
        return run

    def put_first(self, count: int) -> None:
        """Hold the runs that were added last before all others."""
        self._runs.rotate(count)


def no_topics() -> NDArray[np.uint32]:
    """Return no hashes: those of a keeper without subscriptions."""
    return np.empty(0, np.uint32)


class FrameIntake:
    """Takes the frames of all senders, run by run, or gathers them first."""

    def __init__(
        self,
        cell: FrameTaker,
        noter: FrameNoter,
        counts: KeeperCounts,
        clock: Callable[[], float],
        on_taken: Callable[[int, int], None] = lambda *_: None,
        is_ended: Callable[[Ledger], bool] = lambda _: False,
    ) -> None:
        """Call `on_taken` with a sender's node and the producer id for each run of numbered frames. `is_ended` returns
        True for a ledger of which nothing is taken any more."""
        self.topics: Callable[[], NDArray[np.uint32]] = no_topics
        """Returns the hashes of the topics that the table of subscriptions names."""
        self.knows_table: Callable[[], bool] = lambda: True
        """Returns False while the table may be older than what others go by. All frames are kept then."""
        self.note_values: Callable[[RunColumns, NumberedRun], None] = lambda *_: None
        """Called with frames that were stored, and that say that they are last values."""
        self._cell, self._noter = cell, noter
        self._counts = counts
        self._clock = clock
        self._on_taken = on_taken
        self._gathered: dict[int, list[Frames]] = {}
        """Frames that were not taken yet, by sender."""
        self.gathered_bytes = 0
        """Bytes that these keep in memory, which are those of all that came in one run with them."""
        self.has_decisions = False
        """True if some of them are decisions."""
        self.refused = RefusedFrames(is_ended)

    def gather(self, sender_id: int, frames: Frames) -> bool:
        """Keep frames of one run of a lane until `take_gathered`: many cost little more than one. Return False if none
        of them is the cell's."""
        numbered = numbered_frames(frames)
        if isinstance(numbered, FrameRun):
            header, kept_bytes = numbered.header, len(numbered.buffer)
        elif numbered:
            header = numbered[0][4]
            kept_bytes = sum(map(len, {id(frame[0]): frame[0] for frame in numbered}.values()))
        else:
            return False
        self._gathered.setdefault(sender_id, []).append(numbered)
        self.gathered_bytes += kept_bytes
        # A manager sends nothing but decisions.
        self.has_decisions = self.has_decisions or header[DESTINATION_HASH] == DECISIONS.frame_hash
        return True

    def take_gathered(self) -> None:
        """Take what was gathered."""
        gathered, self._gathered = self._gathered, {}
        self.gathered_bytes, self.has_decisions = 0, False
        for sender_id, runs in gathered.items():
            frames = runs[0]
            is_alone = len(runs) == 1 and len(frames) == 1
            if not is_alone or isinstance(frames, FrameRun) or not self._take_alone(sender_id, frames[0]):
                self._take_columns(sender_id, joined_columns(runs), is_fetched=False)

    def take_refused(self) -> None:
        """Take frames again for which there was no room, in their order, until there is none for some of them."""
        refused = self.refused
        while (each := refused.poll()) is not None:
            left = len(refused)
            self.take(each.sender_id, FrameReader().feed(each.frames, (0,)))
            if len(refused) > left:
                refused.put_first(len(refused) - left)
                return

    def take(self, sender_id: int, frames: list[Frame], *, is_fetched: bool = False) -> None:
        """Pass frames on, each run of consecutive ones at once. Frames without a number are none of the cell's.

        `is_fetched` tells those that another keeper sent.
        """
        for columns in columns_of(frames):
            self._take_columns(sender_id, columns, is_fetched=is_fetched)

    def _take_alone(self, sender_id: int, frame: Frame) -> bool:
        """Take a frame that came alone, in a fraction of the time of `_take_columns`. Return False, and do nothing, if
        there is more to it than that it is stored."""
        buffer, start, _, _, header = frame
        flags, frame_hash = header[FLAGS], header[DESTINATION_HASH]
        number = ledger_number_of(buffer, header, start)
        is_plain = not (flags & DELAYED or buffer[start + MARKS_AT] & RETAINED)
        if number is None or not is_plain or not is_intact(buffer, header, start):
            return False
        is_subscribed = frame_hash in self.topics()
        run = run_alone(header, number, self._kind_of(frame_hash, flags, is_kept=is_subscribed))
        self._pass_run(sender_id, _Alone(frame), run, is_fetched=False, now=self._clock())
        if is_subscribed and run.kind == _STORED:
            self._noter.note_messages(frame_hash, run.ledger, run.first, 1)
        return True

    def _kind_of(self, frame_hash: int, flags: int, *, is_kept: bool) -> int:
        if frame_hash == DECISIONS.frame_hash:
            return _DECISION
        if frame_hash == REQUESTS.frame_hash:
            return _URGENT
        return _STORED if is_kept or flags & KIND_FLAGS == QUEUE_FLAG or not self.knows_table() else _COUNTED

    def _take_columns(self, sender_id: int, columns: RunColumns, *, is_fetched: bool) -> None:
        intact = columns.intact()
        self._counts.frames_broken += int(np.count_nonzero(columns.has_number)) - int(np.count_nonzero(intact))
        if intact.all() and columns.are_one_run():
            self._pass_one_run(sender_id, columns, is_fetched)
            return
        places = np.flatnonzero(intact)
        if len(places):
            self._pass_on(sender_id, columns, places, is_fetched)

    def _pass_one_run(self, sender_id: int, columns: RunColumns, is_fetched: bool) -> None:
        """Pass on frames that are one run, as nearly all are, in a fraction of the time of `_pass_on`."""
        header = columns.headers[0]
        frame_hash = int(header["destination_hash"])
        is_subscribed = frame_hash in self.topics()
        is_value = bool(header["marks"] & RETAINED) and int(header["flags"]) & _VALUE_FLAGS == PERSISTENT
        kind = self._kind_of(frame_hash, int(header["flags"]), is_kept=is_subscribed or is_value or is_fetched)
        run = one_run(columns, kind)
        self._pass_run(sender_id, columns, run, is_fetched, self._clock())
        if is_subscribed and kind == _STORED:
            self._note_messages(columns, frame_hash, run)
        if is_value and kind == _STORED:
            self.note_values(columns, run)

    def _pass_on(self, sender_id: int, columns: RunColumns, places: NDArray[np.intp], is_fetched: bool) -> None:
        headers, numbered = columns.headers[places], NumberedFrames(columns, places)
        hashes = headers["destination_hash"]
        is_subscribed = np.isin(hashes, self.topics())
        is_value = ((headers["marks"] & RETAINED) != 0) & ((headers["flags"] & _VALUE_FLAGS) == PERSISTENT)
        is_kept = ((headers["flags"] & KIND_FLAGS) == QUEUE_FLAG) | is_subscribed | is_value
        # Another keeper had a reason to keep it.
        is_any_kept = is_fetched or not self.knows_table()
        kinds = np.where(is_kept | is_any_kept, _STORED, _COUNTED)
        kinds[hashes == REQUESTS.frame_hash] = _URGENT
        kinds[hashes == DECISIONS.frame_hash] = _DECISION
        now = self._clock()
        for run in numbered.runs(kinds):
            self._pass_run(sender_id, columns, run, is_fetched, now)
        # Frames to different destinations may lie in one run.
        messages = np.where(is_subscribed & (kinds == _STORED), hashes.astype(np.int64), _NO_MESSAGE)
        for run in numbered.runs(messages):
            if run.kind != _NO_MESSAGE:
                self._note_messages(columns, run.kind, run)
        if is_value.any():
            for run in numbered.runs((is_value & (kinds == _STORED)).astype(np.int64)):
                if run.kind:
                    self.note_values(columns, run)

    def _note_messages(self, columns: RunColumns, frame_hash: int, run: NumberedRun) -> None:
        if run.ledger.is_delayed:
            frames = _laid(columns, run.place, run.size)
            self._noter.note_delivery_times(run.ledger, run.first, [delivery_time(bytes(each)) for each in frames])
        self._noter.note_messages(frame_hash, run.ledger, run.first, run.size)

    def _pass_run(
        self, sender_id: int, columns: RunColumns | _Alone, run: NumberedRun, is_fetched: bool, now: float
    ) -> None:
        ledger, first, kind, place, count = run
        if kind == _DECISION:
            self._pass_decisions(columns, run, now)
            return
        if not is_fetched:
            self._on_taken(sender_id, ledger.producer_id)
        if kind == _COUNTED:
            if self._cell.receive_counted(ledger, first, count, sender_id, now):
                self._counts.frames_counted += count
            else:
                self.refused.add(sender_id, ledger, _laid(columns, place, count))
            return
        frames = _laid(columns, place, count)
        is_urgent = kind == _URGENT
        is_taken = self._cell.receive_frames(
            ledger, first, frames, sender_id, now, is_fetched=is_fetched, is_urgent=is_urgent
        )
        if is_taken:
            self._counts.frames_stored += count
        elif not is_fetched:
            self.refused.add(sender_id, ledger, frames)
        for index in range(count if is_urgent else 0):
            self._noter.receive_request(ledger, first + index, columns.body(place + index))

    def _pass_decisions(self, columns: RunColumns | _Alone, run: NumberedRun, now: float) -> None:
        if run.ledger.producer_id != self._cell.cell_id:
            self._counts.decisions_foreign += run.size
            return
        for index in range(run.size):
            body = columns.body(run.place + index)
            self._cell.receive_entry(run.ledger.producer_epoch, run.first + index, body, now)


def _laid(columns: RunColumns | _Alone, place: int, count: int) -> LaidFrames:
    """Return consecutive frames of a run as they lie there. A copy is made if the run is mostly something else, which
    would stay in memory with them."""
    if isinstance(columns, _Alone):
        return columns.laid
    start, ends = int(columns.starts[place]), columns.ends[place : place + count]
    data = memoryview(columns.buffer)[start : int(ends[-1])]
    return LaidFrames(data if 2 * len(data) >= len(columns.buffer) else bytes(data), ends - start)
