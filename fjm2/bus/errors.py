"""Exceptions for the exception listener: problems that no call can raise.

JMSError
├── MessagesLostError          the bus could not repair what a sender sent, or the sender vanished
├── MessagesDroppedError       a full consumer dropped messages, as its settings say
├── ConsumerFullError          a consumer is full, and holds senders back
├── UnconfirmedError           subscribers did not confirm persistent messages
├── ListenerError              a listener raised, and the message is not delivered again
└── BusError                   anything else: interface, time-outs, node ids
"""

from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError


class MessagesLostError(JMSError):
    """Messages of a sender are lost. The next message from that sender has the property JMS_FJM2_Gap."""


class MessagesDroppedError(JMSError):
    """A full consumer dropped messages. The next message that it gets has the property JMS_FJM2_Gap."""

    def __init__(self, destination: Destination, count: int) -> None:
        super().__init__(f"a full consumer of {destination} dropped {count} messages")
        self.destination = destination
        """Destination of the consumer."""
        self.count = count
        """Number of messages dropped."""


class ConsumerFullError(JMSError):
    """A consumer with `overflow="block"` stays full. Until it catches up, this process takes nothing from the bus."""

    def __init__(self, destination: Destination, count: int) -> None:
        super().__init__(f"a consumer of {destination} holds {count} messages, and holds senders back")
        self.destination = destination
        """Destination of the consumer."""
        self.count = count
        """Number of messages that the consumer holds."""


class UnconfirmedError(JMSError):
    """Persistent messages were sent, but not confirmed by all known subscribers."""

    def __init__(self, reason: str, unacknowledged_nodes: frozenset[int] = frozenset(), in_doubt: bool = True) -> None:
        super().__init__(reason)
        self.unacknowledged_nodes = unacknowledged_nodes
        """NORM node ids of subscribers that did not confirm; empty if they are unknown."""
        self.in_doubt = in_doubt
        """True if some subscribers may have the messages."""


class ListenerError(JMSError):
    """A message listener raised `linked_exception`. In AUTO and DUPS_OK mode, it raised at every delivery of the
    message."""


class BusError(JMSError):
    """An event of the bus that has no class of its own among the exceptions.

    `error_code` names the event: `subscriber_evicted`, `node_id_collided`, `interface_down` or `interface_up`.
    """
