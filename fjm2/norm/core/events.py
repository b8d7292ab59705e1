"""Events that the engine reports. Their names are in the past tense. One event covers a whole run of data.

The docstrings name the corresponding event of NRL's NORM API, if there is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import overload

import numpy as np

from .train import Address

__all__ = [
    "AckReceived",
    "AckRequested",
    "CommandReceived",
    "CommandSent",
    "Doubt",
    "Event",
    "EvictionReason",
    "FileFailed",
    "GrttUpdated",
    "InfoReceived",
    "InterfaceLost",
    "InterfaceRestored",
    "LossReason",
    "Marks",
    "NodeIdCollided",
    "ObjectCompleted",
    "ObjectLost",
    "ObjectPurged",
    "ObjectsMissed",
    "ReceiverEvicted",
    "ReceiverFull",
    "ReceiverReady",
    "SenderAppeared",
    "SenderEvent",
    "SenderImpersonated",
    "SenderVanished",
    "SendsRefused",
    "StreamEnded",
    "StreamGapOpened",
    "StreamLost",
    "StreamOpened",
    "StreamReceived",
    "StreamWritable",
    "TransmissionFlushed",
    "WatermarkCompleted",
]


class LossReason(Enum):
    """Reason why something could not be received."""

    SENDER_GONE = "the sender fell silent or left"
    SENDER_RESTARTED = "the sender began anew"
    SQUELCHED = "the sender no longer holds it"
    OVERRUN = "the sender ran too far ahead"
    TOO_LARGE = "larger than this receiver takes"
    UNSUPPORTED = "protected by a code that this receiver does not know"
    FAILED = "it could not be stored, or makes no sense"
    NO_MEMORY = "the bound on memory was reached"
    CLOSED = "this session was closed"
    FORGED = "false messages in the sender's name led reception astray"


class Doubt(Enum):
    """Reason why messages in a sender's name were refused."""

    OTHER_ADDRESS = "they came from another address, while the sender went on"
    OTHER_INSTANCE = "they claimed a restart, while the sender went on"
    FAR_AHEAD = "they were about data far ahead, while the sender went on where it was"
    GOODBYE = "they said goodbye, while the sender went on"
    SQUELCH = "they gave up data that the sender still repaired"


class EvictionReason(Enum):
    """Reason why flow control gave a receiver up."""

    SILENT = "it said nothing"
    NO_PROGRESS = "it answered, but made no progress"


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class SenderEvent(Event):
    """Base of events about a remote sender, or about what it sends."""

    sender_id: int
    """Node id of the sender."""


@dataclass(frozen=True, slots=True)
class SenderAppeared(SenderEvent):
    """A remote sender was heard for the first time, or again after it had vanished (REMOTE_SENDER_NEW)."""

    instance_id: int
    """Number that the sender drew at random when it started. If it changes, the sender has restarted."""
    address: Address
    """Address that the sender's messages come from."""


@dataclass(frozen=True, slots=True)
class SenderVanished(SenderEvent):
    """A remote sender left, fell silent or restarted (REMOTE_SENDER_PURGED, REMOTE_SENDER_RESET)."""

    reason: LossReason
    """Reason why the sender vanished, such as `SENDER_GONE` or `SENDER_RESTARTED`."""


@dataclass(frozen=True, slots=True)
class SenderImpersonated(SenderEvent):
    """Messages in a sender's name were refused. Reported every few seconds at most for each sender."""

    address: Address
    """Address that the messages came from. It can be forged."""
    doubt: Doubt
    """Reason why they were refused."""


@dataclass(frozen=True, slots=True)
class InfoReceived(SenderEvent):
    """The INFO of an object arrived, possibly before the object itself (RX_OBJECT_INFO)."""

    object_id: int
    """Transport id of the object."""
    info: bytes
    """Content of the INFO."""


@dataclass(frozen=True, slots=True)
class ObjectCompleted(SenderEvent):
    """An object arrived completely (RX_OBJECT_COMPLETED)."""

    object_id: int
    """Transport id of the object."""
    info: bytes | None
    """INFO of the object; None if it has none."""
    is_file: bool
    """True if the object was sent as a file."""
    data: memoryview | None
    """Content of the object, which belongs to the application; None if the content is on disk."""
    path: str | None
    """Path of a temporary file, for the application to move or delete; None if the content is in memory."""
    size: int
    """Size of the object in bytes."""


@dataclass(frozen=True, slots=True)
class ObjectLost(SenderEvent):
    """An object will not be completed (RX_OBJECT_ABORTED)."""

    object_id: int
    """Transport id of the object."""
    missing: tuple[tuple[int, int], ...]
    """Byte ranges that never arrived. Empty if the size of the object is unknown."""
    reason: LossReason
    """Reason of the loss."""


@dataclass(frozen=True, slots=True)
class ObjectsMissed(SenderEvent):
    """Objects were missed completely: nothing of them arrived before the sender ran too far ahead."""

    first_object_id: int
    """Transport id of the first object missed. The ids of the others follow it."""
    count: int
    """Number of objects missed."""


@dataclass(frozen=True, slots=True)
class StreamOpened(SenderEvent):
    """The first segment of a stream arrived (RX_OBJECT_NEW)."""

    object_id: int
    """Transport id of the stream."""
    start: int
    """Offset in the stream at which reading begins, in bytes; 0 unless this receiver joined late."""


class Marks(Sequence[int]):
    """Offsets at which messages begin in full segments laid end to end. They are computed when first used."""

    __slots__ = ("_column", "_places", "_segment_bytes")

    def __init__(self, column: bytes, segment_bytes: int) -> None:
        """Keep `column`: the message-start field of each segment, as on the wire."""
        self._column = column
        self._segment_bytes = segment_bytes
        self._places: tuple[int, ...] | None = None

    def _made(self) -> tuple[int, ...]:
        if self._places is None:
            starts = np.frombuffer(self._column, ">u2").astype(np.int64)
            marked = np.flatnonzero((starts > 0) & (starts <= self._segment_bytes))
            self._places = tuple((marked * self._segment_bytes + starts[marked] - 1).tolist())
        return self._places

    def __len__(self) -> int:
        return len(self._made())

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return self._made()[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._made() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._made())

    def __repr__(self) -> str:
        return repr(self._made())


@dataclass(frozen=True, slots=True)
class StreamReceived(SenderEvent):
    """The next bytes of a stream (RX_OBJECT_UPDATED)."""

    object_id: int
    """Transport id of the stream."""
    start: int
    """Offset of the first byte in the stream."""
    data: bytes
    """Bytes received."""
    marks: Sequence[int]
    """Offsets in `data` at which messages begin. Only the first message that begins in each segment is marked."""


@dataclass(frozen=True, slots=True)
class StreamGapOpened(SenderEvent):
    """Bytes of a stream were given up, and nothing has come after them yet.

    `StreamLost` follows with the next bytes, or when the stream is given up. Only then is it certain how many they are,
    and there may be more of them.
    """

    object_id: int
    """Transport id of the stream."""
    start: int
    """Offset of the first lost byte."""
    size: int
    """Number of lost bytes so far, if all of their segments were full."""
    reason: LossReason
    """Reason of the loss."""


@dataclass(frozen=True, slots=True)
class StreamLost(SenderEvent):
    """Bytes of a stream will not arrive. Reading continues after them."""

    object_id: int
    """Transport id of the stream."""
    start: int
    """Offset of the first lost byte."""
    end: int
    """Offset of the first byte that can still arrive; `start` if that is unknown."""
    reason: LossReason
    """Reason of the loss."""


@dataclass(frozen=True, slots=True)
class StreamEnded(SenderEvent):
    """A stream was closed by its sender, and has been delivered to its end (RX_OBJECT_COMPLETED)."""

    object_id: int
    """Transport id of the stream."""
    size: int
    """Length of the stream in bytes, from its beginning."""


@dataclass(frozen=True, slots=True)
class CommandReceived(SenderEvent):
    """A CMD(APPLICATION) arrived (RX_CMD_NEW). A robust command can arrive more than once."""

    content: bytes
    """Content of the command."""


@dataclass(frozen=True, slots=True)
class AckRequested(SenderEvent):
    """A sender asks this node for an acknowledgement of a type that the application defines: a CMD(ACK_REQ)."""

    ack_type: int
    """Type of the acknowledgement, from 16 to 255."""
    ack_id: int
    """Number of the request, chosen by the sender."""


@dataclass(frozen=True, slots=True)
class AckReceived(Event):
    """A node acknowledged something to this node's sender, in a way that the application defines: an ACK of type 16
    to 255. Acknowledgements are not repeated, and nobody proves who sent them."""

    node_id: int
    """Node id that sent the acknowledgement."""
    ack_type: int
    """Type of the acknowledgement, from 16 to 255."""
    ack_id: int
    """Number of the request that this answers; 0 without a request."""
    content: bytes
    """Content of the acknowledgement: at most a datagram."""


@dataclass(frozen=True, slots=True)
class TransmissionFlushed(Event):
    """Everything queued has been sent, repaired as requested, and flushed (TX_FLUSH_COMPLETED)."""

    object_id: int | None
    """Transport id of the last object; None if all objects were cancelled before anything was sent."""


@dataclass(frozen=True, slots=True)
class ObjectPurged(Event):
    """An object left the cache, and cannot be repaired any more (TX_OBJECT_PURGED)."""

    object_id: int
    """Transport id of the object."""


@dataclass(frozen=True, slots=True)
class WatermarkCompleted(Event):
    """Every node asked to confirm a watermark has answered, or has failed to answer (TX_WATERMARK_COMPLETED)."""

    watermark: int
    """The number that `Engine.watermark` returned."""
    acked: frozenset[int]
    """Node ids of receivers that confirmed."""
    failed: frozenset[int]
    """Node ids of receivers that did not answer."""


@dataclass(frozen=True, slots=True)
class ReceiverEvicted(Event):
    """Flow control stopped waiting for a receiver that held the sender up in vain."""

    node_id: int
    """Node id of the receiver."""
    reason: EvictionReason = EvictionReason.SILENT
    """Reason of the eviction."""


@dataclass(frozen=True, slots=True)
class ReceiverFull(Event):
    """A receiver holds the sender up because its application takes nothing at the moment. It is waited for."""

    node_id: int
    """Node id of the receiver."""


@dataclass(frozen=True, slots=True)
class ReceiverReady(Event):
    """A receiver that was full takes data again."""

    node_id: int
    """Node id of the receiver."""


@dataclass(frozen=True, slots=True)
class CommandSent(Event):
    """A CMD(APPLICATION) has been sent for the last time (TX_CMD_SENT)."""


@dataclass(frozen=True, slots=True)
class StreamWritable(Event):
    """A stream's buffer has room again (TX_QUEUE_VACANCY)."""

    object_id: int
    """Transport id of the stream."""


@dataclass(frozen=True, slots=True)
class GrttUpdated(Event):
    """The estimate of the group's round-trip time changed (GRTT_UPDATED)."""

    grtt_s: float
    """The new estimate, in seconds."""


@dataclass(frozen=True, slots=True)
class NodeIdCollided(Event):
    """Another node uses this node's id, so that receivers cannot tell the messages of the two apart."""

    address: Address
    """Address of the other node."""


@dataclass(frozen=True, slots=True)
class FileFailed(Event):
    """A file that was being sent could not be read any more, and was cancelled."""

    object_id: int
    """Transport id of the object."""
    error: str
    """Error message of the operating system."""


@dataclass(frozen=True, slots=True)
class InterfaceLost(Event):
    """The network interface went down or disappeared. Sending and receiving continue when it is back."""

    interface: str
    """Name of the interface."""


@dataclass(frozen=True, slots=True)
class InterfaceRestored(Event):
    """The network interface is back, and the session has joined the group on it again."""

    interface: str
    """Name of the interface."""


@dataclass(frozen=True, slots=True)
class SendsRefused(Event):
    """The kernel refuses what this host sends, most likely because of a firewall. Sending goes on, in vain.

    Reported once, and again only after ten seconds in which nothing was refused.
    """

    interface: str
    """Name of the interface."""
    reason: str
    """Error message of the operating system."""
