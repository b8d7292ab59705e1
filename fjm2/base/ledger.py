"""Names of ledgers: the frames of one producer and lane that need storing, numbered 1, 2, 3 ..."""

from typing import Final, NamedTuple

SEQUENCE_MAX: Final = (1 << 64) - 1
"""Largest sequence of a ledger."""
DELAYED_LANE: Final = 4
"""Lane of the ledger of delayed messages that lane 0 carries. Those of the next lanes follow."""


class Ledger(NamedTuple):
    """Name of a ledger."""

    producer_id: int
    producer_epoch: int
    lane: int

    @property
    def is_delayed(self) -> bool:
        """True if the messages are not to be delivered before their delivery times."""
        return DELAYED_LANE <= self.lane < 2 * DELAYED_LANE

    def __str__(self) -> str:
        return f"{self.producer_id:016x}/{self.producer_epoch}/{self.lane}"


def is_older(ledger: Ledger, other: Ledger) -> bool:
    """Return True if a ledger is of the same producer and lane as another one, and from before it."""
    return ledger[1] < other[1] and ledger[0] == other[0] and ledger[2] == other[2]


def carrier_of(lane: int) -> int:
    """Return the lane that carries the messages of a ledger with a lane in its name."""
    return lane % DELAYED_LANE
