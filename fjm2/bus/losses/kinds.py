"""Kinds of losses: every way in which a message does not reach a consumer that wants it.

A gap lies between two messages of a sender's lane. The message behind it carries the property JMS_FJM2_Gap, and
JMS_FJM2_GapReason, which is the word of a `Gap`. The `Loss` says what made the gap, and who tells of it.
"""

from enum import Enum, IntEnum


class Gap(IntEnum):
    """Reasons that applications see, the gravest last: a flag for several losses shows that one."""

    EXPIRED = 1
    GIVEN_UP = 2
    DROPPED = 3
    LOST = 4

    @property
    def word(self) -> str:
        """Value of the property JMS_FJM2_GapReason."""
        return self.name.lower()


class Loss(Enum):
    """Ways in which messages are lost. docs/bus.md has the same list."""

    BYTES = "bytes", Gap.LOST, "BytesLost"
    """Bytes of a stream could not be repaired."""
    STREAM = "stream", Gap.LOST, "StreamsMissed"
    """A whole stream could not be read."""
    SENDER = "sender", Gap.LOST, "SenderLost"
    """The sender went before it had ended its streams, or continued under another node id."""
    UNREADABLE = "unreadable", Gap.LOST, "MessagesUnreadable"
    """Something in the stream was no message that this library reads, or too large."""
    NO_MEMORY = "no_memory", Gap.LOST, "MessagesUnreadable"
    """Incomplete messages of all senders took too much memory, or the sender had too many streams."""
    TRANSACTION = "transaction", Gap.LOST, "TransactionDropped"
    """A transaction did not become complete."""
    FILE = "file", Gap.LOST, "FileDropped"
    """A file did not become whole, or could not be stored."""
    UNSELECTABLE = "unselectable", Gap.LOST, "MessagesLostError"
    """The message's properties could not be read when the consumer's selector asked for them."""
    OVERFLOW = "overflow", Gap.DROPPED, "MessagesDroppedError"
    """The consumer was full, and drops."""
    GIVEN_UP = "given_up", Gap.GIVEN_UP, "ListenerError"
    """The listener raised too often."""
    EXPIRED = "expired", Gap.EXPIRED, "MessagesExpiredError"
    """The message's time to live was over before the consumer took it."""

    def __init__(self, word: str, gap: Gap, told_by: str) -> None:
        self.word = word
        self.gap = gap
        """Reason that the message behind it shows."""
        self.told_by = told_by
        """Report of the bus, or exception for the exception listener, that tells of it."""
