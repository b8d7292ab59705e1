"""Temporary queues: the connection that made one holds its messages until its consumers take them, each by one."""

from collections import deque
from functools import partial

from fjm2.bus.inbox import Delivery, Inbox, Received
from fjm2.bus.statistics import ConsumerStatistics
from fjm2.messages.destination import Destination
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.frame import look_up
from fjm2.messages.selector import Selector


class QueueInbox(Inbox):
    """A consumer of such a queue: what it wants stays in the queue until it is taken."""

    __slots__ = ("_shared",)

    is_shared = True

    def __init__(self, shared: Inbox, selector: Selector | None) -> None:
        super().__init__(shared.destination, selector, None, shared.settings, shared.on_room, shared.on_full)
        self._shared = shared

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
    """One temporary queue."""

    def __init__(self, shared: Inbox) -> None:
        self.shared = shared
        """What the router fills; it belongs to no session."""
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
        """What the consumer took and did not acknowledge is the next again, for the others."""
        self._consumers.remove(inbox)
        for delivery in unacknowledged:
            delivery.count += 1
        self.shared.again.extendleft(reversed([*unacknowledged, *inbox.again]))
        inbox.again.clear()
        self._wake()

    def _wake(self) -> None:
        for inbox in self._consumers:
            if inbox.wake is not None:
                inbox.wake()
