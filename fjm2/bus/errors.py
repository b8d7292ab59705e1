"""Exceptions for the exception listener: problems that no call can raise.

JMSError
├── MessagesLostError          the bus could not repair what a sender sent, or the sender vanished
├── MessagesDroppedError       a full consumer dropped messages, as its settings say
├── MessagesExpiredError       messages expired before a consumer took them
├── ConsumerFullError          a consumer is full, and holds senders back
├── UnconfirmedError           subscribers did not confirm persistent messages
├── ListenerError              a listener raised, and the message is not delivered again
└── BusError                   anything else: interface, time-outs, node ids
"""

from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError

from .losses.names import Remedy, counted


class MessagesLostError(JMSError):
    """Messages of a sender are lost. The next message from that sender has the property JMS_FJM2_Gap.

    What is not known of the loss is None or empty.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        client_ids: tuple[str, ...] = (),
        host: str | None = None,
        topics: tuple[Destination, ...] = (),
        messages: int | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.client_ids = client_ids
        """Client ids of the sender's connections."""
        self.host = host
        """Address of the sender's host or, if the messages came through a gateway, of the gateway."""
        self.topics = topics
        """Destinations of this process's consumers that the sender has sent to lately. It may send to others, too."""
        self.messages = messages
        """Estimated number of lost messages."""
        self.since = since
        """Time when the last message before the loss had come, within a second, in seconds since the epoch."""
        self.until = until
        """Time when the loss was noticed, in seconds since the epoch."""


class MessagesDroppedError(JMSError):
    """A full consumer dropped messages. The next one of the same sender and priority has the property JMS_FJM2_Gap."""

    def __init__(self, destination: Destination, count: int) -> None:
        text = f"a full consumer of {destination} dropped {counted(count, 'message')}"
        super().__init__(Remedy.LOST.after(text))
        self.destination = destination
        """Destination of the consumer."""
        self.count = count
        """Number of messages dropped."""


class MessagesExpiredError(JMSError):
    """Messages expired before a consumer took them. The next one of the same sender has the property JMS_FJM2_Gap."""

    def __init__(self, destination: Destination, count: int) -> None:
        text = f"{counted(count, 'message')} expired before a consumer of {destination} took them"
        super().__init__(Remedy.LOST.after(text))
        self.destination = destination
        """Destination of the consumer."""
        self.count = count
        """Number of messages expired."""


class ConsumerFullError(JMSError):
    """A consumer with `overflow="block"` stays full. Until it catches up, this process takes nothing from the bus."""

    def __init__(self, destination: Destination, count: int) -> None:
        text = f"a consumer of {destination} holds {counted(count, 'message')}, and holds senders back"
        super().__init__(Remedy.FULL.after(text))
        self.destination = destination
        """Destination of the consumer."""
        self.count = count
        """Number of messages that the consumer holds."""


class UnconfirmedError(JMSError):
    """Persistent messages were sent, but not confirmed by all known subscribers."""

    def __init__(
        self,
        reason: str,
        unacknowledged_nodes: frozenset[int] = frozenset(),
        in_doubt: bool = True,
        subscribers: tuple[str, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.unacknowledged_nodes = unacknowledged_nodes
        """NORM node ids of subscribers that did not confirm; empty if they are unknown."""
        self.in_doubt = in_doubt
        """True if some subscribers may have the messages."""
        self.subscribers = subscribers
        """Client ids and hosts of the subscribers that did not confirm, as in `'desk-7' at 10.0.0.13`."""


class ListenerError(JMSError):
    """A message listener raised `linked_exception`. In AUTO and DUPS_OK mode, it raised at every delivery of the
    message."""


class BusError(JMSError):
    """An event of the bus that has no class of its own among the exceptions.

    `error_code` names the event: `subscriber_evicted`, `node_id_collided`, `interface_down` or `interface_up`.
    """
