"""The temporary destinations of one connection. Nobody else consumes from them, and they are deleted at its close.

A temporary queue lives in the connection that made it, which holds its messages until consumers take them.
"""

import re
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from fjm2.bus.inbox import Delivery, Inbox, Received
from fjm2.bus.losses.kinds import Loss
from fjm2.bus.statistics import ConsumerStatistics
from fjm2.bus.subscriptions import Subscriptions
from fjm2.bus.waiting.home_loop import HomeLoop
from fjm2.messages.destination import Destination, TemporaryQueue, TemporaryTopic
from fjm2.messages.errors import IllegalStateError, InvalidDestinationError, MessageFormatError
from fjm2.messages.frame import look_up
from fjm2.messages.selector import Selector

_OWNER: Final = re.compile("([0-9a-f]{16})-")
"""The id of the connection in the name of a temporary destination."""


class QueueInbox(Inbox):
    """A consumer of a temporary queue. Messages stay in the queue until a consumer takes them."""

    __slots__ = ("_shared",)

    is_shared = True

    def __init__(self, shared: Inbox, selector: Selector | None) -> None:
        super().__init__(shared.destination, selector, None, shared.settings, shared.on_room, shared.on_full)
        self._shared = shared
        self.gaps = shared.gaps

    def pop(self) -> Received | None:
        for queue in self._shared.waiting():
            for place, received in enumerate(queue):
                if self._wants(received):
                    del queue[place]
                    return received
        return None

    def pop_again(self) -> Delivery | None:
        if not self.again:
            self._fetch_returned(self._shared.again)
        return super().pop_again()

    def has_waiting(self) -> bool:
        if self.again or any(self._wants(delivery.received) for delivery in self._shared.again):
            return True
        return any(self._wants(received) for queue in self._shared.waiting() for received in queue)

    def put_back(self, received: Received) -> None:
        self._shared.put_back(received)

    def release(self, received: Received) -> None:
        self._shared.release(received)

    def note_loss(self, loss: Loss) -> None:
        self._shared.note_loss(loss)

    @property
    def has_little_room(self) -> bool:
        return self._shared.has_little_room

    def statistics(self) -> ConsumerStatistics:
        return self._shared.statistics()

    def _fetch_returned(self, returned: deque[Delivery]) -> None:
        for place, delivery in enumerate(returned):
            if self._wants(delivery.received):
                del returned[place]
                delivery.inbox = self
                self.again.append(delivery)
                return

    def _wants(self, received: Received) -> bool:
        if self.selector is None:
            return True
        try:
            return self.selector.evaluate(partial(look_up, received.head, 0, received.header))
        except MessageFormatError:
            return False


class LocalQueue:
    """A temporary queue, with its messages and its consumers."""

    def __init__(self, shared: Inbox) -> None:
        self.shared = shared
        """The inbox that the router fills. It belongs to no session."""
        self._consumers: list[QueueInbox] = []
        shared.wake = self._wake

    @property
    def destination(self) -> Destination:
        return self.shared.destination

    @property
    def is_consumed(self) -> bool:
        return bool(self._consumers)

    def add(self, selector: Selector | None) -> QueueInbox:
        inbox = QueueInbox(self.shared, selector)
        self._consumers.append(inbox)
        return inbox

    def remove(self, inbox: QueueInbox, unacknowledged: list[Delivery]) -> None:
        """Remove a closed consumer, and put back the messages that it did not acknowledge. Other consumers get these
        next."""
        self._consumers.remove(inbox)
        for delivery in unacknowledged:
            delivery.count += 1
        returned = [*unacknowledged, *inbox.again]
        for delivery in returned:
            delivery.serial = 0
        self.shared.again.extendleft(reversed(returned))
        inbox.again.clear()
        self._wake()

    def _wake(self) -> None:
        for inbox in self._consumers:
            if inbox.wake is not None:
                inbox.wake()


class Temporaries:
    """Creates, checks and deletes temporary destinations."""

    def __init__(
        self, connection_id: int, subscriptions: Subscriptions, has_closed: Callable[[int], bool] = lambda _: False
    ) -> None:
        """`has_closed` returns True for the id of a connection that is known to be closed."""
        self.alive: set[Destination] = set()
        """Temporary destinations that have not been deleted."""
        self._prefix = f"{connection_id:016x}-"  # as _OWNER has it
        """Names with this prefix belong to this connection."""
        self._subscriptions = subscriptions
        self._has_closed = has_closed
        self._count = 0
        self._queues: dict[Destination, LocalQueue] = {}
        self._home = HomeLoop()

    def create_topic(self) -> TemporaryTopic:
        """Create a temporary topic."""
        topic = TemporaryTopic(self._next_name(), self.delete)
        self.alive.add(topic)
        return topic

    def create_queue(self) -> TemporaryQueue:
        """Create a temporary queue. It keeps all messages that are sent to it from now on."""
        queue = TemporaryQueue(self._next_name(), self.delete)
        self.alive.add(queue)
        self._queues[queue] = LocalQueue(self._subscriptions.add(queue))
        return queue

    def _next_name(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def queue_of(self, destination: Destination) -> LocalQueue | None:
        """Return the queue of a destination, or None if it is no temporary queue of this connection."""
        return self._queues.get(destination)

    def check_own(self, destination: Destination) -> None:
        """Raise InvalidDestinationError unless this connection may consume from `destination`."""
        if not destination.name.startswith(self._prefix):
            raise InvalidDestinationError(
                f"{destination} belongs to another connection: it can be sent to, but not consumed from"
            )
        self.check_alive(destination)

    def check_alive(self, destination: Destination) -> None:
        """Raise InvalidDestinationError if `destination` belonged to this connection and was deleted, or to a
        connection that is known to be closed."""
        name = destination.name
        if name.startswith(self._prefix):
            if destination not in self.alive:
                raise InvalidDestinationError(f"{destination} was deleted: create another one")
            return
        owner = _OWNER.match(name)
        if owner is not None and self._has_closed(int(owner[1], 16)):
            raise InvalidDestinationError(
                f"{destination} was deleted: the connection that created it is closed, so nobody gets the message"
            )

    async def delete(self, destination: Destination) -> None:
        """Delete a destination. Raise IllegalStateError while it has consumers. Calling this twice does no harm."""
        if destination not in self.alive:
            return
        self._home.check()
        queue = self._queues.get(destination)
        if queue.is_consumed if queue is not None else self._subscriptions.is_consumed(destination):
            raise IllegalStateError(f"{destination} has consumers: close them before it is deleted")
        self.alive.remove(destination)
        if queue is not None:
            del self._queues[destination]
            self._subscriptions.remove(queue.shared)

    def close(self) -> None:
        """Delete all temporary destinations of the connection."""
        self.alive.clear()
        for queue in self._queues.values():
            self._subscriptions.remove(queue.shared)
        self._queues.clear()
