"""Messages that a cell's member sends, and events that it tells its driver."""

from dataclasses import dataclass
from enum import Enum, auto

from fjm2.base.ledger import Ledger

from .wire.commands import Command
from .wire.ranges import Position, Range, Spans
from .wire.records import Record, Subscription
from .wire.stored import Stored


class State(Enum):
    """States of a keeper."""

    EMPTY = auto()
    """It knows no cell, and listens."""
    SPARE = auto()
    """It has heard a cell that does not name it."""
    LEARNER = auto()
    """The manager lets it catch up."""
    FOLLOWER = auto()
    CANDIDATE = auto()
    RECOVERING = auto()
    """It is elected, and reads what members store."""
    CLAIMING = auto()
    """It waits for clients that claim the messages they work on."""
    SERVING = auto()
    AMNESIAC = auto()
    """The cell names it in an earlier incarnation."""
    STRANDED = auto()
    """Its cell lost a conflict with another one on the same bus."""


@dataclass(frozen=True, slots=True)
class SendCommand:
    """A NORM_CMD(APPLICATION) to all."""

    command: Command


@dataclass(frozen=True, slots=True)
class SendStored:
    """A NORM_ACK of type 16 to one node."""

    to_node: int
    stored: Stored


@dataclass(frozen=True, slots=True)
class SendEntry:
    """An entry of the decision log to all: a frame with this body, in the ledger of this epoch, at this sequence."""

    epoch: int
    index: int
    data: bytes


Outgoing = SendCommand | SendStored | SendEntry


@dataclass(frozen=True, slots=True)
class StateChanged:
    """The keeper is in another state."""

    state: State
    epoch: int


@dataclass(frozen=True, slots=True)
class CellJoined:
    """The keeper belongs to a cell from now on, which its identity has to name."""

    cell_id: int


@dataclass(frozen=True, slots=True)
class Replay:
    """Frames on disk that a keeper or a subscriber lacks: to be sent unchanged on the replay group."""

    to_node: int
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """An entry of the decision log that is committed, and can never change."""

    epoch: int
    index: int
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class TableChanged:
    """A subscription was added or dropped.

    The driver keeps the frames of its destination from these positions on, passes those that it has to
    `Cell.clients.note_ranges`, and then calls `Cell.handle_table_ready`. The cell fetches those that were counted.
    Until then the keeper reports the older version, and confirms nothing to those who know the newer one.
    """

    version: int
    is_added: bool
    subscription: Subscription
    starts: tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class RequestWanted:
    """A decision grants a request that the keeper has on disk, and not in memory.

    The driver reads the frame and calls `Cell.clients.receive_request`. Until then no later decision is applied.
    """

    ledger: Ledger
    sequence: int


@dataclass(frozen=True, slots=True)
class Released:
    """Messages that no subscription needs any more. The store may give up their frames."""

    ledger: Ledger
    ranges: Spans


@dataclass(frozen=True, slots=True)
class CellConflict:
    """Two cells are on one bus."""

    other_cell_id: int
    is_stranded: bool
    """True if this keeper's cell serves nothing from now on."""


@dataclass(frozen=True, slots=True)
class LossFound:
    """The only member of a cell goes on without what its disk has lost."""

    frames: int
    """Number of frames that are missing among those that are left. Nothing tells what was behind them."""
    ledgers: int
    """Number of the ledgers that they are missing in."""
    decisions: int
    """Number of decisions that are left and void, because one before them is lost."""


@dataclass(frozen=True, slots=True)
class ReplacementWaits:
    """The member whose place this keeper is to take is there, or unknown."""

    lost: bytes
    """Beginning of its keeper id."""
    members: int
    """Number of members whose id begins so: 1 is a member that answers the manager."""


Event = (
    StateChanged
    | CellJoined
    | Replay
    | Decided
    | TableChanged
    | RequestWanted
    | Released
    | CellConflict
    | LossFound
    | ReplacementWaits
)
