"""The directory of a keeper: its lock, and the journal in it."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Final

from fjm2.base.errors import JournalError
from fjm2.base.logs import Log
from fjm2.cell.replica import Remembered
from fjm2.store.config import StoreConfig
from fjm2.store.disk import SECTOR_BYTES
from fjm2.store.errors import StoreInUseError
from fjm2.store.journal import Journal
from fjm2.store.opening import Owner, open_journal

from .kept_frames import KeptFrames, all_kept
from .last_values.stored_values import stored_values
from .last_values.value_table import Value
from .measured_disk import MeasuredDisk
from .storage import remember

log = Log("fjm2.keeper")

_SEGMENTS: Final = 20
"""Segments of a store that is too small for segments of the usual length. Six is the least."""
_SEGMENT_BYTES_MAX: Final = 64 << 20
_SEGMENT_UNIT_BYTES: Final = 1 << 20
LOOK_S: Final = 0.05
"""Interval at which a keeper that stands by looks for the end of the one before: it has to take over within 300 ms."""


@dataclass(frozen=True, slots=True)
class OpenStore:
    """A store that this process has locked and opened."""

    disk: MeasuredDisk
    journal: Journal
    remembered: Remembered
    kept: list[KeptFrames] = field(default_factory=list)
    """Destinations of the frames in the store."""
    values: list[Value] = field(default_factory=list)
    """Messages in the store that are last values, or were."""


def config_of(store_bytes_max: int) -> StoreConfig:
    """Return the settings of a store of some size. A small store has short segments."""
    fitting = store_bytes_max // _SEGMENTS // _SEGMENT_UNIT_BYTES * _SEGMENT_UNIT_BYTES
    return StoreConfig(
        segment_bytes=max(min(_SEGMENT_BYTES_MAX, fitting), _SEGMENT_UNIT_BYTES), store_bytes_max=store_bytes_max
    )


def present_config(directory: Path) -> StoreConfig:
    """Return settings that fit a store that is there, so that opening it changes no more than it has to."""
    sizes = [path.stat().st_size for path in directory.glob("segment-*") if path.suffix != ".tmp"]
    sizes = [size for size in sizes if size and size % SECTOR_BYTES == 0]  # others are damaged
    segment_bytes = min(sizes, default=_SEGMENT_BYTES_MAX)
    return StoreConfig(segment_bytes=segment_bytes, store_bytes_max=max(sum(sizes), _SEGMENTS * segment_bytes))


def open_store(directory: Path, config: StoreConfig) -> OpenStore:
    """Lock a directory and open the store in it, or found one there. This reads the disk, for seconds if it is large.

    Raise ConfigError if that is not possible: `fjm2.store.errors` tells the reasons apart.
    """
    disk = MeasuredDisk(directory)
    try:
        random = SystemRandom()
        journal = open_journal(disk, config, random, check=partial(Owner.KEEPER.check, directory))
        for damage in journal.recovered.notes if journal.recovered else ():
            log.tell(logging.WARNING, "store_repaired", f"{damage}; nothing is lost", damage.file, file=damage.file)
        try:
            remembered, kept = remember(journal, disk), all_kept(journal, disk)
            values = list(stored_values(kept, journal, disk))
        except JournalError:
            # The keeper has lost something that it confirmed, so that it is another one from now on.
            journal = open_journal(disk, config, random, renew=True)
            remembered, kept, values = Remembered(journal.identity.cell_id, lsn=journal.lsn), [], []
        return OpenStore(disk, journal, remembered, kept, values)
    except BaseException:
        disk.shut()
        raise


async def wait_for_store(
    directory: Path, config: StoreConfig, on_wait: Callable[[StoreInUseError], None] = lambda _: None
) -> OpenStore:
    """Open a store as soon as no other process has it open. Call `on_wait` once if there is one."""
    is_waiting = False
    while True:
        try:
            return await asyncio.to_thread(open_store, directory, config)
        except StoreInUseError as error:
            if not is_waiting:
                is_waiting = True
                on_wait(error)
            await asyncio.sleep(LOOK_S)
