"""Last values that a store has when its keeper starts."""

from collections.abc import Iterable, Iterator
from typing import Final

from fjm2.base.errors import JournalError
from fjm2.base.ranges import RangeSet
from fjm2.messages.header import HEADER, HEADER_BYTES
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal

from ..kept_frames import KeptFrames
from .value_table import Value, value_of

_PORTION_BYTES: Final = 16 << 20
"""Bytes of frames that are read at a time."""


def stored_values(kept: Iterable[KeptFrames], journal: Journal, disk: Disk) -> Iterator[Value]:
    """Yield the values among the frames of a store. Raise JournalError if the disk does not give one of them."""
    for each in kept:
        places = RangeSet((sequence, sequence + 1) for sequence in each.retained.tolist())
        at: int | None = 0
        while places and at is not None:
            read = journal.read(each.ledger, places, _PORTION_BYTES, at)
            for sequence, frame in zip(read.sequences.tolist(), read.fetch(disk), strict=True):
                if frame is None:
                    raise JournalError(
                        f"message {sequence} of {each.ledger} cannot be read: expected what was stored; open the store "
                        "with renew"
                    )
                if len(frame) >= HEADER_BYTES:
                    value = value_of(frame, HEADER.unpack_from(frame), 0, each.ledger, sequence)
                    if value is not None:
                        yield value
            at = read.resume_at
