"""Offline looks at a store: what is damaged, all messages, and its journal. None of them changes anything."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet

from .config import StoreConfig
from .disk import Disk
from .index import Entries
from .journal import Journal
from .opening import damaged
from .reader import Read
from .recovery import Recovered, recover
from .segments import Space
from .verification import Damage, forget_lost, lost_frames

_READ_FRAMES = 1024
"""Frames read at a time."""


@dataclass(frozen=True, slots=True)
class ExportedMessage:
    """A frame that is live in a store."""

    ledger: Ledger
    sequence: int
    frame: bytes


class _Reported:
    """Ranges of files that were reported."""

    def __init__(self, damages: list[Damage]) -> None:
        self._ranges: dict[str, RangeSet] = {}
        for damage in damages:
            self._ranges.setdefault(damage.file, RangeSet()).add(damage.offset, damage.offset + damage.size)

    def has(self, damage: Damage) -> bool:
        """Return True if a range was reported."""
        ranges = self._ranges.get(damage.file, RangeSet())
        return ranges.covers(damage.offset, damage.offset + damage.size)


def check(disk: Disk) -> Iterator[Damage]:
    """Yield every damaged range of a store: of what recovery needs, and of all batches with live frames.

    A torn tail is no damage. Damage that costs nothing is told as such (`Damage.is_lost`). Raises ConfigError if there
    is no store, or one of a newer format.
    """
    found = _recovered(disk)
    yield from found.damages
    yield from found.notes
    known = _Reported(found.damages)
    for damage, _ in lost_frames(disk, found.snapshot.contents, found.snapshot.segments):
        if not known.has(damage):
            yield damage


def export(disk: Disk, *, accept_loss: bool = False) -> Iterator[ExportedMessage]:
    """Yield all live messages, ledger by ledger, in the order of their sequences.

    Frames that the disk does not give are left out. Raises ConfigError if there is no store, and DamagedStoreError if
    it is damaged, unless the loss is accepted.
    """
    found = _recovered(disk)
    if found.damages and not accept_loss:
        raise damaged(found.damages)
    for ledger in sorted(found.snapshot.contents.ledgers):
        for read in _reads(found, ledger):
            for sequence, frame in zip(read.sequences.tolist(), read.fetch(disk), strict=True):
                if frame is not None:
                    yield ExportedMessage(ledger, sequence, frame)


def read_journal(
    disk: Disk, *, accept_loss: bool = False, check: Callable[[Recovered], None] = lambda _: None
) -> Journal:
    """Return the journal of a store, only to be read. With `accept_loss` what is damaged is left out. `check` may
    refuse what was recovered: it raises.

    Raises ConfigError if there is no store, and DamagedStoreError if it is damaged, unless the loss is accepted.
    """
    found = recover(disk)
    check(found)
    if found.damages and not accept_loss:
        raise damaged(found.damages)
    if found.identity is None:
        raise ConfigError("identity: missing or damaged: expected the directory of a store")
    if accept_loss:
        forget_lost(disk, found.snapshot.contents, found.snapshot.segments)
    config = StoreConfig()
    space = Space(config)
    space.used.update((segment.number, segment) for segment in found.snapshot.segments)
    return Journal(config, Random(0), found.identity, found.snapshot.contents, space, found.snapshot.position)


def _recovered(disk: Disk) -> Recovered:
    """Return what a directory holds. Raise ConfigError if no store was ever there: nothing to read is not all well."""
    found = recover(disk)
    if found.is_empty:
        raise ConfigError(
            "no store is in this directory: expected that of a keeper; look for a typing error, or a disk that is not "
            "mounted"
        )
    return found


def _reads(found: Recovered, ledger: Ledger) -> Iterator[Read]:
    used = {segment.number: segment for segment in found.snapshot.segments}
    for entries in found.snapshot.contents.ledgers[ledger].snapshot():
        for first in range(0, len(entries.sequences), _READ_FRAMES):
            here = slice(first, first + _READ_FRAMES)
            part = Entries(entries.sequences[here], entries.places[here])
            yield Read.of([part], None, used)
