"""Messages that a subscriber sends to its cell, and events that `Subscriber` tells its owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

from fjm2.base.ledger import Ledger

from ..outgoing import SendCommand
from ..service.reasons import Reason

F = TypeVar("F")
"""A frame, as the owner passes it in."""


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A PERSISTENT frame with this body to the queue FJM2.CELL, in a ledger of the connection.

    The owner sends requests in the order of their numbers, all in one lane, and calls `Subscriber.note_sent` for each
    as soon as it has a sequence, or `Subscriber.note_unsent` if it cannot be sent.
    """

    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class SendLeases:
    """A NORM_ACK of type 17 to the manager's node."""

    to_node: int
    content: bytes


Outgoing = SendRequest | SendLeases | SendCommand


class Loss(Enum):
    """Reasons for which a session is lost."""

    LAPSED = auto()
    """The cell did not hear the session for 3 s, and gave back what it held."""
    UNKNOWN = auto()
    """The cell does not know the session. Its ledger was closed."""
    MISSED = auto()
    """Decisions about the session were missed, and are to be had no more."""
    REPLACED = auto()
    """Another cell serves the bus."""


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The cell has opened a session. Consumers may have been asked for before."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionRefused:
    """The cell did not open a session. Nothing more is told about it or about its consumers."""

    session: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A session has ended as its owner asked. Nothing more is told about it or about its consumers."""

    session: int


@dataclass(frozen=True, slots=True)
class SessionLost:
    """A session has ended by itself. Nothing more is told about it or about its consumers.

    Acknowledgements that were not decided may or may not have been granted. What was not acknowledged comes again to
    the next consumer of its subscription.
    """

    session: int
    loss: Loss


@dataclass(frozen=True, slots=True)
class SessionsKept:
    """The cell has said of all sessions that it was asked about whether it keeps them. Those not lost go on."""


@dataclass(frozen=True, slots=True)
class ConsumerReady:
    """A consumer has its subscription, and W members keep what it is to get.

    Publishers that know an older table may still send without waiting for keepers. To complete the creation of a
    subscription the owner waits until all have announced this version.
    """

    consumer: int
    table_version: int


@dataclass(frozen=True, slots=True)
class ConsumerRefused:
    """The cell did not make a consumer. Nothing more is told about it."""

    consumer: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class ConsumerClosed:
    """A consumer has ended as its owner asked. Nothing more is told about it."""

    consumer: int


@dataclass(frozen=True, slots=True)
class Deliver(Generic[F]):
    """Messages for a consumer, in order: the frames `first`, `first` + 1, ... of a ledger."""

    consumer: int
    ledger: Ledger
    first: int
    frames: Sequence[F]
    is_redelivered: bool
    """True if an earlier consumer may have got these messages."""


@dataclass(frozen=True, slots=True)
class AcknowledgementDecided:
    """All ranges of one call of `acknowledge` or `give_back` are decided, on W disks."""

    number: int
    """Number that the call returned."""
    reason: Reason
    """GRANTED, or why at least one of the ranges was refused."""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A call of `unsubscribe` is decided."""

    number: int
    """Number that the call returned."""
    reason: Reason
    """GRANTED, or why the subscription stays."""


@dataclass(frozen=True, slots=True)
class ListenToReplays:
    """A keeper was asked, and may send frames on the replay group. The owner has to hear it for some time from now on.

    It passes in what it hears there by `receive_frames`, as if it came from its publisher. The event comes with each
    question: whoever left the group between two of them would lose what is on its way.
    """


Event = (
    SessionOpened
    | SessionRefused
    | SessionClosed
    | SessionLost
    | SessionsKept
    | ConsumerReady
    | ConsumerRefused
    | ConsumerClosed
    | Deliver[F]
    | AcknowledgementDecided
    | Unsubscribed
    | ListenToReplays
)
