"""Names of ledgers: the frames of one writer and lane that need storing, numbered 1, 2, 3 ..."""

from struct import Struct
from typing import NamedTuple

LEDGER = Struct(">QIB")
"""Producer id, producer epoch and lane: the name on disk."""


class Ledger(NamedTuple):
    """Name of a ledger."""

    producer_id: int
    producer_epoch: int
    lane: int

    def __str__(self) -> str:
        return f"{self.producer_id:016x}/{self.producer_epoch}/{self.lane}"
