"""A tap that hears numbered frames as durable consumers want them: by ledger, runs of consecutive ones at once."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ledger import DELAYED_LANE, Ledger
from fjm2.messages.batches.frame_run import Frames
from fjm2.messages.frame import Frame
from fjm2.messages.header import DELAYED, FILE, FLAGS, KIND, PRIORITY, Header
from fjm2.messages.ledgers.ledger_number import LedgerNumber
from fjm2.messages.ledgers.run_columns import RunColumns, joined_columns, numbered_frames

from ..lane import LANE_OF_PRIORITY
from .destinations import DECISIONS

_LANES: Final = np.array(LANE_OF_PRIORITY, np.uint8)
_OTHER, _DECISION = -1, -2
"""Kinds of frames. Any other kind is the hash of a destination that is wanted."""


class NumberedRun(NamedTuple):
    """Frames that lie one behind the other, and have consecutive sequences of one ledger and the same kind."""

    ledger: Ledger
    first: int
    """Sequence of the first one."""
    kind: int
    place: int
    """Index of the first one in the columns."""
    size: int
    """Number of frames."""


class NumberedFrames:
    """Numbered frames at some places of columns, to be parted into runs."""

    def __init__(self, columns: RunColumns, places: NDArray[np.intp]) -> None:
        """There must be one frame at least, and all must have a number."""
        sections = columns.sections[places]
        headers = columns.headers[places]
        is_delayed = ((headers["flags"] & DELAYED) != 0) & (headers["kind"] != FILE)
        lanes = _LANES[headers["priority"]] + np.where(is_delayed, np.uint8(DELAYED_LANE), np.uint8(0))
        self._columns = sections["producer_id"], sections["producer_epoch"], lanes
        self._sequences, self._places = sections["sequence"], places
        self._continues = (columns.starts[places[1:]] == columns.ends[places[:-1]]) & (
            self._sequences[1:] == self._sequences[:-1] + np.uint64(1)
        )
        for column in self._columns:
            self._continues &= column[1:] == column[:-1]

    def runs(self, kinds: NDArray[np.int64]) -> Iterator[NumberedRun]:
        """Yield the runs, if each frame has a kind."""
        starts = np.r_[0, np.flatnonzero(~(self._continues & (kinds[1:] == kinds[:-1]))) + 1]
        sizes = np.diff(starts, append=len(self._places)).tolist()
        columns = (*self._columns, self._sequences, kinds, self._places)
        runs = zip(*(column[starts].tolist() for column in columns), sizes, strict=True)
        for producer, epoch, lane, first, kind, place, size in runs:
            yield NumberedRun(Ledger(producer, epoch, lane), first, kind, place, size)


def one_run(columns: RunColumns, kind: int) -> NumberedRun:
    """Return the run that all frames are, if `RunColumns.are_one_run`."""
    section, header = columns.sections[0], columns.headers[0]
    lane = _lane_of(int(header["priority"]), int(header["flags"]), int(header["kind"]))
    ledger = Ledger(int(section["producer_id"]), int(section["producer_epoch"]), lane)
    return NumberedRun(ledger, int(section["sequence"]), kind, 0, len(columns))


def run_alone(header: Header, number: LedgerNumber, kind: int) -> NumberedRun:
    """Return the run that a single frame with a number is."""
    producer_id, producer_epoch, sequence = number
    lane = _lane_of(header[PRIORITY], header[FLAGS], header[KIND])
    return NumberedRun(Ledger(producer_id, producer_epoch, lane), sequence, kind, 0, 1)


def _lane_of(priority: int, flags: int, kind: int) -> int:
    return LANE_OF_PRIORITY[priority] + (DELAYED_LANE if flags & DELAYED and kind != FILE else 0)


class LedgerHearer(Protocol):
    """A receiver of what a `LedgerTap` hears. It must not raise or wait."""

    def receive_frames(self, frame_hash: int, ledger: Ledger, first: int, frames: list[Frame]) -> None:
        """Take frames of one destination, with consecutive sequences of a ledger. Slice what is to be kept."""

    def receive_others(self, ledger: Ledger, first: int, count: int) -> None:
        """Take note that sequences of a ledger are for other destinations."""

    def receive_entry(self, ledger: Ledger, index: int, data: bytes) -> None:
        """Take an entry of a decision log. The ledger tells the cell, and the epoch."""


class LedgerTap:
    """Hears the numbered frames of all senders. Implements `RunTap`.

    It takes whatever comes: senders never wait for it.
    """

    is_full = False

    def __init__(self, hearer: LedgerHearer, on_gathered: Callable[[], None]) -> None:
        """Call `on_gathered` when runs have come and none waited. The owner calls `take_gathered` soon."""
        self.frames_broken = 0
        """Frames with a wrong checksum. They are dropped: a keeper has them, or gets them again."""
        self._hearer = hearer
        self._on_gathered = on_gathered
        self._wanted: NDArray[np.int64] = np.empty(0, np.int64)
        self._gathered: list[Frames] = []

    def want(self, hashes: Iterable[int]) -> None:
        """Pass on the frames to these destinations from now on, and only the numbers of all others."""
        self._wanted = np.array(sorted(hashes), np.int64)

    def take_run(self, sender_id: int, frames: Frames) -> None:  # noqa: ARG002 - the ledger tells the sender
        """Keep the frames of one run of a lane until `take_gathered`: many cost little more than one."""
        numbered = numbered_frames(frames)
        if numbered:
            self._gathered.append(numbered)
            if len(self._gathered) == 1:
                self._on_gathered()

    def take_gathered(self) -> None:
        """Pass on all that was gathered."""
        if self._gathered:
            gathered, self._gathered = self._gathered, []
            self._take(joined_columns(gathered))

    def take(self, frames: list[Frame]) -> None:
        """Pass frames on now. Those without a number are for nobody."""
        if frames:
            self._take(joined_columns([frames]))

    def _take(self, columns: RunColumns) -> None:
        intact = columns.intact()
        self.frames_broken += int(np.count_nonzero(columns.has_number)) - int(np.count_nonzero(intact))
        if intact.all() and columns.are_one_run():  # as nearly all are
            run = one_run(columns, self._kind_of(int(columns.headers["destination_hash"][0])))
            self._pass_run(columns, run)
            return
        places = np.flatnonzero(intact)
        if len(places):
            self._pass_on(columns, places)

    def _kind_of(self, frame_hash: int) -> int:
        if frame_hash == DECISIONS.frame_hash:
            return _DECISION
        return frame_hash if frame_hash in self._wanted else _OTHER

    def _pass_on(self, columns: RunColumns, places: NDArray[np.intp]) -> None:
        hashes = columns.headers["destination_hash"][places].astype(np.int64)
        kinds = np.where(np.isin(hashes, self._wanted), hashes, _OTHER)
        kinds[hashes == DECISIONS.frame_hash] = _DECISION
        for run in NumberedFrames(columns, places).runs(kinds):
            self._pass_run(columns, run)

    def _pass_run(self, columns: RunColumns, run: NumberedRun) -> None:
        hearer = self._hearer
        ledger, first, kind, place, count = run
        if kind == _OTHER:
            hearer.receive_others(ledger, first, count)
        elif kind == _DECISION:
            for index in range(count):
                hearer.receive_entry(ledger, first + index, columns.body(place + index))
        else:
            hearer.receive_frames(kind, ledger, first, columns.frames(place, count))
