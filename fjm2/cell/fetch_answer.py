"""The answer to a fetch: the frames that are kept, and the sequences that need no keeping."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from .context import Storage
from .ledger_table import LedgerTable
from .wire.ranges import Range

REPLAY_RANGES_MAX: Final = 1000
"""Most ranges of frames that one fetch gets. The next one names the rest."""
COUNTED_RANGES_MAX: Final = 40
"""Most ranges that need no keeping in one answer: as many as one datagram of 1,400 bytes holds."""
SEQUENCES_MAX: Final = 1 << 16
"""Most sequences that are looked at for one fetch. A keeper that catches up asks ten times a second."""


class FetchAnswer(NamedTuple):
    """Sequences that a keeper has on disk, or knows to need no disk."""

    kept: tuple[Range, ...]
    counted: tuple[Range, ...]


def answer_fetch(wanted: Iterable[Range], ledgers: LedgerTable, storage: Storage) -> FetchAnswer:
    """Return what a keeper can tell of these ranges."""
    kept: list[Range] = []
    counted: list[Range] = []
    left = SEQUENCES_MAX
    for each in wanted:
        for first, end in ledgers.on_disk_within(each.ledger, each.first, each.last + 1):
            if left <= 0 or len(kept) >= REPLAY_RANGES_MAX:
                break
            end = min(end, first + left)
            left -= end - first
            live = storage.live(each.ledger, first, end)
            kept += [Range(each.ledger, low, high - low) for low, high in live]
            counted += [Range(each.ledger, low, high - low) for low, high in live.gaps(first, end)]
    return FetchAnswer(tuple(kept[:REPLAY_RANGES_MAX]), tuple(counted[:COUNTED_RANGES_MAX]))
