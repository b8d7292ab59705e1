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


def is_older(ledger: Ledger, other: Ledger) -> bool:
    """Return True if a ledger is of the same producer and lane as another one, and from before it."""
    return ledger[1] < other[1] and ledger[0] == other[0] and ledger[2] == other[2]
