"""The directory of an outbox: its lock, and the journal in it."""

import logging
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

from fjm2.base.logs import Log
from fjm2.store.config import StoreConfig
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.inspection import read_journal
from fjm2.store.journal import Journal
from fjm2.store.opening import Owner, open_journal

from ..outbox_lane import Recovered
from ..outbox_store import recover_lane

log = Log("fjm2.outbox")

LANES: Final = 3
"""Lanes of a bus."""
_SEGMENTS: Final = 20
"""Segments of an outbox. Each is written with zeros before use, so that short ones make a small outbox open fast."""
_SEGMENT_BYTES_MAX: Final = 64 << 20
_SEGMENT_UNIT_BYTES: Final = 1 << 20


class OpenOutbox(NamedTuple):
    """An outbox that this process has locked and opened."""

    disk: OsDisk
    journal: Journal
    recovered: dict[int, Recovered]
    """Content of each lane."""


def config_of(bytes_max: int) -> StoreConfig:
    """Return the settings of the journal of an outbox of some size."""
    fitting = bytes_max // _SEGMENTS // _SEGMENT_UNIT_BYTES * _SEGMENT_UNIT_BYTES
    segment_bytes = max(min(_SEGMENT_BYTES_MAX, fitting), _SEGMENT_UNIT_BYTES)
    return StoreConfig(segment_bytes=segment_bytes, store_bytes_max=bytes_max)


def open_outbox(directory: Path, bytes_max: int) -> OpenOutbox:
    """Lock a directory and open the outbox in it, or found one there. This reads the disk, for seconds if it is large.

    Raise ConfigError if that is not possible: `fjm2.store.errors` tells the reasons apart.
    """
    disk = OsDisk(directory)
    try:
        journal = open_journal(
            disk, config_of(bytes_max), SystemRandom(), check=partial(Owner.OUTBOX.check, f"outbox={directory}")
        )
        for damage in journal.recovered.notes if journal.recovered else ():
            log.tell(logging.WARNING, "outbox_repaired", f"{damage}; nothing is lost", damage.file, file=damage.file)
        return OpenOutbox(disk, journal, {lane: recover_lane(journal, disk, lane) for lane in range(LANES)})
    except BaseException:
        disk.shut()
        raise


def accepted_in(directory: Path) -> list[int]:
    """Return the number of messages that each lane of an outbox has ever accepted. Nothing is changed.

    Raise ConfigError if another process has it open, or if it is damaged.
    """
    with OsDisk(directory, read_only=True) as disk:
        journal = read_journal(disk)
        return [recover_lane(journal, disk, lane).accepted for lane in range(LANES)]
