"""Messages that a publisher sends to its cell, and events that `CellView` tells its owner."""

from dataclasses import dataclass
from enum import Enum, auto

from fjm2.base.ledger import Ledger


@dataclass(frozen=True, slots=True)
class AskTable:
    """A request for the table's hashes, to all."""

    cell_id: int
    version: int


@dataclass(frozen=True, slots=True)
class AskStored:
    """A NORM_CMD(ACK_REQ) of type 16 in a lane, to keepers."""

    lane: int
    node_ids: tuple[int, ...]


Outgoing = AskTable | AskStored


class Reason(Enum):
    """Reasons for which messages count as not stored."""

    FULL = auto()
    """Keepers answered that their stores are full."""
    SILENT = auto()
    """Fewer than W members answered."""
    STUCK = auto()
    """W members answered, and lack the message or one before it."""
    REPLACED = auto()
    """Another cell serves the bus."""


@dataclass(frozen=True, slots=True)
class CellHeard:
    """A cell serves the bus. Messages have to be numbered from now on, and for ever."""

    cell_id: int


@dataclass(frozen=True, slots=True)
class CellReplaced:
    """Another cell serves the bus. It does not know the ledgers so far: all have to begin anew."""

    cell_id: int


@dataclass(frozen=True, slots=True)
class TableLearned:
    """The destinations that a version of the table stores are known."""

    version: int


@dataclass(frozen=True, slots=True)
class Confirmed:
    """W members have a ledger on disk through a sequence."""

    ledger: Ledger
    through: int


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The messages of a ledger through a sequence were not confirmed in time."""

    ledger: Ledger
    through: int
    reason: Reason
    timeout_s: float
    """Time limit of the producer."""


@dataclass(frozen=True, slots=True)
class LedgerClosed:
    """The cell takes no more messages of a ledger: the writer was silent for too long."""

    ledger: Ledger


@dataclass(frozen=True, slots=True)
class LedgerFinal:
    """The final set of a ledger is decided. What lies behind it was not stored, and never will be in this ledger."""

    ledger: Ledger
    through: int
    """Last sequence that is stored; 0 if none is."""


@dataclass(frozen=True, slots=True)
class KeeperLost:
    """The manager hears nothing of a keeper any more. Senders need not wait for its node."""

    node_id: int


Event = CellHeard | CellReplaced | TableLearned | Confirmed | GaveUp | LedgerClosed | LedgerFinal | KeeperLost
