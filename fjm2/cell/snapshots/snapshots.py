"""Taking and adopting snapshots."""

from collections.abc import Sequence
from typing import Final

from ..decision_log import DecisionLog, Entry
from ..ledger_table import LedgerTable, Span
from ..subscription_table import SubscriptionTable
from ..wire.records import EntryBody, SectionRecord
from .log_sections import LedgerSection, LogSection, TableSection, TimeSection
from .sections import Section, decode_sections, encode_sections

SNAPSHOT_ENTRIES: Final = 10_000
"""Entries after which a snapshot is taken. Up to twice as many are in memory."""
SNAPSHOT_BYTES: Final = 16 << 20
"""Bytes of entries after which a snapshot is taken."""


class Snapshots:
    """The decided state as entries that stand for all before them."""

    def __init__(
        self,
        log: DecisionLog,
        ledgers: LedgerTable,
        table: SubscriptionTable,
        sections: Sequence[Section],
        entries_max: int,
    ) -> None:
        self._log, self._ledgers, self._entries_max = log, ledgers, entries_max
        self.time = TimeSection()
        self._sections: tuple[Section, ...] = (
            LogSection(log, ledgers),
            LedgerSection(ledgers),
            TableSection(table),
            self.time,
            *sections,
        )
        self._awaited: list[Span] = []
        self._pending: tuple[int, Entry] | None = None
        self._bytes_before = 0
        """Bytes that had been added to the log when the last snapshot was taken."""

    def take(self, applied: int, confirmable: int) -> tuple[int, Entry] | None:
        """Return a snapshot and its index if one is due. It counts when `handle_written` was called.

        All that the entries refer to has to be on disk: a member that starts from the snapshot answers for it.
        """
        log = self._log
        if self._pending is not None or applied > confirmable or applied <= log.snapshot_index:
            return None
        entries, size = applied - log.snapshot_index, log.added_bytes - self._bytes_before
        if entries < self._entries_max and size < SNAPSHOT_BYTES:
            return None
        if any(section.index not in (None, applied) for section in self._sections):
            return None
        body = EntryBody(max(0, log.epoch_at(applied - 1)), applied, self.state(applied))
        self._bytes_before = log.added_bytes
        self._pending = applied, Entry(log.epoch_at(applied), body, body.encode())
        return self._pending

    def state(self, applied: int) -> tuple[SectionRecord, ...]:
        """Return the decided state, which is that of the entry that was applied last."""
        return encode_sections(self._sections, applied)

    def handle_written(self, index: int) -> bool:
        """Note that a snapshot is on disk. Return False if another one has taken its place."""
        pending, self._pending = self._pending, None
        if pending is None or pending[0] != index or index <= self._log.snapshot_index:
            return False
        self._log.shorten(*pending)
        return True

    def withdraw(self) -> None:
        """Give up the snapshot that could not be written. Another one is taken later."""
        self._pending = None

    def adopt(self, index: int, entry: Entry, now: float) -> bool:
        """Put a snapshot in place of all that is known. Return False if it is malformed, or has unknown sections."""
        states = decode_sections(self._sections, entry.body.sections)
        if states is None:
            return False
        self._log.begin_with(index, entry)
        for section, state in states:
            section.adopt(state, index, now)
        self._awaited = [
            Span(each.ledger, first, last + 1) for each in self._ledgers.closed_ledgers for first, last in each.final
        ]
        self._pending = None
        return True

    @property
    def awaited(self) -> list[Span]:
        """Frames that the snapshot refers to. It is empty once all are on disk."""
        while self._awaited and self._ledgers.is_on_disk(*self._awaited[-1]):
            self._awaited.pop()
        return self._awaited
