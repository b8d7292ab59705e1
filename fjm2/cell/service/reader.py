"""The decisions of a cell as a client reads them: in order, each once, and only what is committed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.cell.wire.commands import Fetch, Heartbeat
from fjm2.cell.wire.ranges import DECISION_LANE, Range
from fjm2.cell.wire.records import EntryBody, Record, decode_entry

FETCH_INTERVAL_S: Final = 0.1
"""Shortest time between two questions for entries that are missing."""
FETCHED_MAX: Final = 64
"""Most entries of one question: as many as a manager sends."""
ENTRIES_MAX: Final = 4096
"""Most entries that wait. A client that lags further asks for them again."""


@dataclass(frozen=True, slots=True)
class CommittedEntry:
    """A decision that can never change, or the sections of a snapshot.

    A snapshot stands for decisions that are to be had no more. A client that gets one does not know what became of its
    requests and sessions, and begins anew.
    """

    index: int
    records: tuple[Record, ...]


class DecisionReader:
    """Reads the decision log from the moment on at which a client first heard the cell.

    An entry counts when the serving manager's heartbeat says that it is committed, and when it is known to be in that
    manager's log: it is of the manager's epoch, or an entry that is names its epoch. Another manager may have written
    another entry at the same index, which was never committed.
    """

    def __init__(self) -> None:
        self._heartbeat: Heartbeat | None = None
        self._through = 0
        """Index of the last entry that was read."""
        self._entries: dict[tuple[int, int], EntryBody] = {}
        """Entries by index and epoch."""
        self._snapshot: CommittedEntry | None = None
        self._fetch_at = -math.inf

    @property
    def index(self) -> int:
        """Index of the last entry that was read."""
        return self._through

    def receive_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Learn how far the log is committed."""
        known = self._heartbeat
        if known is None:
            self._through = heartbeat.committed
        elif heartbeat.cell_id != known.cell_id or (heartbeat.epoch, heartbeat.number) < (known.epoch, known.number):
            return
        self._heartbeat = heartbeat

    def receive_entry(self, epoch: int, index: int, data: bytes) -> None:
        """Take an entry of the log: sequence and body of a frame in the ledger of an epoch."""
        if index <= self._through:
            return
        body = decode_entry(data)
        if body is None:
            return
        if body.sections:
            if index > self._begun:
                self._snapshot = CommittedEntry(index, body.records)
            return
        if index > self._begun + ENTRIES_MAX:
            return
        self._entries[index, epoch] = body
        if len(self._entries) > ENTRIES_MAX:
            del self._entries[max(self._entries)]

    def read(self) -> Iterator[CommittedEntry]:
        """Yield the entries that are committed and have not been read."""
        chain, missing = self._walk()
        for entry in () if missing else reversed(chain):
            self._through = entry.index
            yield entry
        if self._snapshot is not None and self._snapshot.index <= self._through:
            self._snapshot = None
        for key in [key for key in self._entries if key[0] <= self._through]:
            del self._entries[key]

    @property
    def _begun(self) -> int:
        """Index after which entries are wanted: a manager has none that its snapshot stands for."""
        return self._through if self._snapshot is None else max(self._through, self._snapshot.index)

    def _walk(self) -> tuple[list[CommittedEntry], int]:
        """Return the committed entries that have not been read, the last one first, and the index of a missing one.

        That index is 0 if all are here.
        """
        heartbeat = self._heartbeat
        if heartbeat is None:
            return [], 0
        # A manager commits nothing before an entry of its own epoch, so that the last committed one is of that epoch.
        chain: list[CommittedEntry] = []
        epoch = heartbeat.epoch
        for index in range(heartbeat.committed, self._through, -1):
            body = self._entries.get((index, epoch))
            if body is None:
                snapshot = self._snapshot
                if snapshot is None or not index <= snapshot.index <= heartbeat.committed:
                    return chain, index
                return [*(entry for entry in chain if entry.index > snapshot.index), snapshot], 0
            chain.append(CommittedEntry(index, body.records))
            epoch = body.previous_epoch
        return chain, 0

    def poll_timeout(self) -> float:
        """Return the time at which to call `poll_fetch`, or infinity if nothing is missing."""
        return self._fetch_at if self._heartbeat is not None and self._walk()[1] > self._begun else math.inf

    def poll_fetch(self, node_id: int, now: float) -> Fetch | None:
        """Return a question for the entries that are missing, for the manager to answer; or None."""
        heartbeat = self._heartbeat
        if heartbeat is None or now < self._fetch_at:
            return None
        _, missing = self._walk()
        if missing <= self._begun:
            return None  # all are here, or the next heartbeat says that the snapshot counts
        self._fetch_at = now + FETCH_INTERVAL_S
        ledger = Ledger(heartbeat.cell_id, heartbeat.epoch, DECISION_LANE)
        # Those before it are probably missing as well. Far behind, a client begins with what it can keep.
        last = min(missing, self._begun + ENTRIES_MAX)
        first = max(self._begun + 1, last - FETCHED_MAX + 1)
        return Fetch(reply_to=node_id, cell_id=heartbeat.cell_id, ranges=(Range(ledger, first, last - first + 1),))
