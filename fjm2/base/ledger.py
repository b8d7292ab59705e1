"""Names of ledgers: the frames of one producer and lane that need storing, numbered 1, 2, 3 ..."""

from typing import Final, NamedTuple

SEQUENCE_MAX: Final = (1 << 64) - 1
"""Largest sequence of a ledger."""


class Ledger(NamedTuple):
    """Name of a ledger."""

    producer_id: int
    producer_epoch: int
    lane: int

    def __str__(self) -> str:
        return f"{self.producer_id:016x}/{self.producer_epoch}/{self.lane}"
