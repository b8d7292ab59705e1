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

import math

from fjm2.base.quantities import counted
from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError

from .losses.names import Remedy


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
    """A consumer with `overflow="block"` stays full, and this process takes nothing from the bus: senders wait for it.

    With `is_let_go`, it held senders up for too long without taking a message. From then on it drops its oldest
    messages, until it takes one.
    """

    def __init__(
        self,
        destination: Destination,
        count: int,
        *,
        taken: int = 0,
        selector: str | None = None,
        session: int | None = None,
        program: str = "",
        block_s: float = math.inf,
        is_let_go: bool = False,
    ) -> None:
        owner = "" if session is None else f" in session {session}"
        which = "" if selector is None else f" with selector {selector!r}"
        consumer = f"a consumer of {destination}{which}{owner}{f' of {program}' if program else ''}"
        held = f"it holds {counted(count, 'message')}"
        if is_let_go:
            text = f"{consumer} was full, and took no message for {block_s:g} s (block_s): {held}, and drops the oldest"
            text += " until it takes one"
        else:
            took = f"and took {counted(taken, 'message')} meanwhile" if taken else "and takes none"
            text = f"{consumer} is full, and holds senders back: {held}, {took}"
        super().__init__(Remedy.FULL.after(f"{text}; {_advice(taken, is_let_go, block_s)}"))
        self.destination = destination
        """Destination of the consumer."""
        self.count = count
        """Number of messages that the consumer holds."""
        self.taken = taken
        """Number of messages that it took since it became full."""
        self.selector = selector
        """Selector of the consumer; None if it has none."""
        self.session = session
        """Number of the consumer's session in its connection, from 1; None if it has none."""
        self.program = program
        """Client id of the connection, and process id and host of the program."""
        self.block_s = block_s
        """Time in seconds for which a full consumer may hold senders up without taking a message."""
        self.is_let_go = is_let_go
        """True if that time is over, so that senders no longer wait."""


def _advice(taken: int, is_let_go: bool, block_s: float) -> str:
    advice = "take messages faster" if taken else "read it or close it"
    if is_let_go:
        return f"{advice}, or let senders wait for longer: block_s"
    limit = "" if math.isinf(block_s) or taken else f"; after {block_s:g} s without a take it drops messages (block_s)"
    return f"{advice}, or let it drop messages: overflow='drop_oldest'{limit}"


class UnconfirmedError(JMSError):
    """Persistent messages were sent, but not confirmed by all known subscribers.

    The exception listener gets one when a subscriber begins not to confirm, and one with a summary when that is over,
    because the subscriber confirms again or is gone, or the connection is closed.
    """

    def __init__(
        self,
        reason: str,
        unacknowledged_nodes: frozenset[int] = frozenset(),
        in_doubt: bool = True,
        subscribers: tuple[str, ...] = (),
        *,
        messages: int | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.unacknowledged_nodes = unacknowledged_nodes
        """NORM node ids of subscribers that did not confirm; empty if they are unknown."""
        self.in_doubt = in_doubt
        """True if some subscribers may have the messages."""
        self.subscribers = subscribers
        """Client ids and hosts of the subscribers that did not confirm, as in `'desk-7' at 10.0.0.13`."""
        self.messages = messages
        """In the summary of an outage: the number of messages not confirmed. None otherwise."""
        self.since = since
        """In a summary: time when a confirmation was first asked for in vain, in seconds since the epoch."""
        self.until = until
        """In a summary: time when the outage ended, in seconds since the epoch."""


class ListenerError(JMSError):
    """A message listener raised `linked_exception`. In AUTO and DUPS_OK mode, it raised at every delivery of the
    message."""


class BusError(JMSError):
    """An event of the bus that has no class of its own among the exceptions.

    `error_code` names the event: `subscriber_evicted`, `subscriber_full`, `subscriber_ready`,
    `sender_impersonated`, `lost_after_confirmation`, `node_id_collided`, `interface_down`, `interface_up` or
    `sends_refused`.
    """
