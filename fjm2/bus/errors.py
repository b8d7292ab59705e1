"""What the exception listener hears: problems that no call can report.

JMSError
├── MessagesLostError          the bus could not repair what a sender sent, or its sender vanished
├── MessagesDroppedError       a consumer was full, and dropped as it was told to
├── ConsumerFullError          a consumer is full, and holds the senders back
├── UnconfirmedError           subscribers did not confirm persistent messages
├── ListenerError              a listener raised; the message will not come again
└── BusError                   anything else that the bus has to tell: interface, time-outs, node ids
"""

from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError


class MessagesLostError(JMSError):
    """Bytes of a sender are missing for good; the next message of it has JMS_FJM2_Gap set."""


class MessagesDroppedError(JMSError):
    """A full consumer dropped messages; the next one it gets has JMS_FJM2_Gap set."""

    def __init__(self, destination: Destination, count: int) -> None:
        super().__init__(f"a full consumer of {destination} dropped {count} messages")
        self.destination = destination
        """What the consumer consumes from."""
        self.count = count
        """How many messages it dropped."""


class ConsumerFullError(JMSError):
    """A consumer with `overflow="block"` stays full: nothing is taken from the bus until it catches up."""

    def __init__(self, destination: Destination, count: int) -> None:
        super().__init__(f"a consumer of {destination} holds {count} messages, and the senders back")
        self.destination = destination
        """What the consumer consumes from."""
        self.count = count
        """Messages that it holds."""


class UnconfirmedError(JMSError):
    """Persistent messages were sent, but not all known subscribers confirmed them."""

    def __init__(self, reason: str, unacknowledged_nodes: frozenset[int] = frozenset(), in_doubt: bool = True) -> None:
        super().__init__(reason)
        self.unacknowledged_nodes = unacknowledged_nodes
        """NORM node ids of those that did not confirm; empty if it is not known who they are."""
        self.in_doubt = in_doubt
        """Some may have the messages."""


class ListenerError(JMSError):
    """A listener raised what is linked; in AUTO and DUPS_OK mode, as often as the message was delivered."""


class BusError(JMSError):
    """What the bus has to tell otherwise.

    `error_code` says what: `subscriber_evicted`, `node_id_collided`, `interface_down` or `interface_up`.
    """
