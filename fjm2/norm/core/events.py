"""What the engine tells upwards, in the past tense, one event for a whole run of data.

The docstrings name the event of NRL's NORM API where there is one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import overload

import numpy as np

from .train import Address

__all__ = [
    "CommandReceived",
    "CommandSent",
    "Event",
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
    "SenderAppeared",
    "SenderEvent",
    "SenderVanished",
    "StreamEnded",
    "StreamLost",
    "StreamOpened",
    "StreamReceived",
    "StreamWritable",
    "TransmissionFlushed",
    "WatermarkCompleted",
]


class LossReason(Enum):
    """Why something could not be received."""

    SENDER_GONE = "the sender fell silent or left"
    SENDER_RESTARTED = "the sender began anew"
    SQUELCHED = "the sender no longer holds it"
    OVERRUN = "the sender ran too far ahead"
    TOO_LARGE = "larger than this receiver takes"
    UNSUPPORTED = "protected by a code that this receiver does not know"
    FAILED = "it could not be stored, or makes no sense"
    NO_MEMORY = "the bound on memory was reached"
    CLOSED = "this session was closed"


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class SenderEvent(Event):
    """Something happened to a remote sender, or to what it sends."""

    sender_id: int
    """The sender's node id."""


@dataclass(frozen=True, slots=True)
class SenderAppeared(SenderEvent):
    """A remote sender was heard of for the first time, or again (REMOTE_SENDER_NEW)."""

    instance_id: int
    """Drawn by the sender when it began; another one tells that it began anew."""
    address: Address
    """From where it is heard."""


@dataclass(frozen=True, slots=True)
class SenderVanished(SenderEvent):
    """A remote sender left or fell silent, or began anew (REMOTE_SENDER_PURGED, REMOTE_SENDER_RESET)."""

    reason: LossReason
    """Whether it is gone, or began anew."""


@dataclass(frozen=True, slots=True)
class InfoReceived(SenderEvent):
    """The INFO of an object arrived, perhaps before the object has (RX_OBJECT_INFO)."""

    object_id: int
    """Its transport id."""
    info: bytes
    """The INFO."""


@dataclass(frozen=True, slots=True)
class ObjectCompleted(SenderEvent):
    """A whole object arrived (RX_OBJECT_COMPLETED)."""

    object_id: int
    """Its transport id."""
    info: bytes | None
    """Its INFO; None if it has none."""
    is_file: bool
    """Whether it was sent as a file."""
    data: memoryview | None
    """The content, the application's to keep; None if it is on disk."""
    path: str | None
    """A temporary file with the content, the application's to move or delete; None if it is in memory."""
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class ObjectLost(SenderEvent):
    """An object will not be completed (RX_OBJECT_ABORTED)."""

    object_id: int
    """Its transport id."""
    missing: tuple[tuple[int, int], ...]
    """Byte ranges that never came, as far as its size is known."""
    reason: LossReason
    """Why not."""


@dataclass(frozen=True, slots=True)
class ObjectsMissed(SenderEvent):
    """Objects of which nothing ever came, and nothing will: the sender ran too far ahead."""

    first_object_id: int
    """The transport id of the first one; the others follow it."""
    count: int
    """How many there were."""


@dataclass(frozen=True, slots=True)
class StreamOpened(SenderEvent):
    """The first segment of a stream arrived (RX_OBJECT_NEW)."""

    object_id: int
    """The stream's transport id."""
    start: int
    """Where in the stream reading begins, in bytes; 0 unless this receiver came late."""


class Marks(Sequence[int]):
    """Where messages begin in full segments laid end to end, worked out once somebody asks."""

    __slots__ = ("_column", "_places", "_segment_bytes")

    def __init__(self, column: bytes, segment_bytes: int) -> None:
        """`column` has the message-start field of each segment, as on the wire."""
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
    """The stream's transport id."""
    start: int
    """Place of the first byte in the stream."""
    data: bytes
    """The bytes."""
    marks: Sequence[int]
    """Where in `data` messages begin, as far as segments tell: only the first of each segment is marked."""


@dataclass(frozen=True, slots=True)
class StreamLost(SenderEvent):
    """Bytes of a stream that will not come; reading goes on behind them."""

    object_id: int
    """The stream's transport id."""
    start: int
    """Place of the first byte that is lost."""
    end: int
    """First byte that can still come, as far as is known; `start` if that is not known."""
    reason: LossReason
    """Why they will not come."""


@dataclass(frozen=True, slots=True)
class StreamEnded(SenderEvent):
    """A stream was closed by its sender, and all of it has been read (RX_OBJECT_COMPLETED)."""

    object_id: int
    """The stream's transport id."""
    size: int
    """Bytes from the stream's beginning."""


@dataclass(frozen=True, slots=True)
class CommandReceived(SenderEvent):
    """A CMD(APPLICATION) arrived (RX_CMD_NEW); a robust one comes more than once."""

    content: bytes
    """What the command says."""


@dataclass(frozen=True, slots=True)
class TransmissionFlushed(Event):
    """All that was queued has been sent, repaired as asked, and flushed (TX_FLUSH_COMPLETED)."""

    object_id: int | None
    """The last object; None if all were cancelled before anything went out."""


@dataclass(frozen=True, slots=True)
class ObjectPurged(Event):
    """An object left the cache of what can be repaired (TX_OBJECT_PURGED)."""

    object_id: int
    """Its transport id."""


@dataclass(frozen=True, slots=True)
class WatermarkCompleted(Event):
    """Every node that a watermark asked has answered, or has been asked often enough (TX_WATERMARK_COMPLETED)."""

    watermark: int
    """The number that `Engine.watermark` gave."""
    acked: frozenset[int]
    """Node ids of those that confirmed."""
    failed: frozenset[int]
    """Node ids of those that gave no answer."""


@dataclass(frozen=True, slots=True)
class ReceiverEvicted(Event):
    """A receiver that flow control waited for has been silent for too long, and is waited for no more."""

    node_id: int
    """Whose silence it was."""


@dataclass(frozen=True, slots=True)
class CommandSent(Event):
    """A CMD(APPLICATION) has been sent for the last time (TX_CMD_SENT)."""


@dataclass(frozen=True, slots=True)
class StreamWritable(Event):
    """A stream's buffer has room again (TX_QUEUE_VACANCY)."""

    object_id: int
    """The stream's transport id."""


@dataclass(frozen=True, slots=True)
class GrttUpdated(Event):
    """The estimate of the group's round-trip time changed (GRTT_UPDATED)."""

    grtt_s: float
    """The new estimate, in seconds."""


@dataclass(frozen=True, slots=True)
class NodeIdCollided(Event):
    """Another node uses this node's id: what either sends is taken for the other's."""

    address: Address
    """From where the other one is heard."""


@dataclass(frozen=True, slots=True)
class FileFailed(Event):
    """A file being sent could not be read any more, and was cancelled."""

    object_id: int
    """Its transport id."""
    error: str
    """What the system said."""


@dataclass(frozen=True, slots=True)
class InterfaceLost(Event):
    """The network interface went down or away; sending and receiving go on when it is back."""

    interface: str
    """Its name."""


@dataclass(frozen=True, slots=True)
class InterfaceRestored(Event):
    """The network interface is back, and the group joined again."""

    interface: str
    """Its name."""
