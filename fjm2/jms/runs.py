"""Runs of messages that cross to the thread of a blocking consumer together, so that most receives need not ask the
event loop.

The loop hands a run over, and takes back what is left of it. The consumer's thread takes messages, and notes them as
done. Both sides only use operations on deques that are atomic: a message is either taken by the thread or taken back.
"""

from collections import deque
from collections.abc import Callable
from time import perf_counter, time
from typing import Final

from fjm2.bus.inbox import Delivery, Inbox, is_expired
from fjm2.messages.header import EXPIRATION

from .deliveries import Deliveries, Opener
from .durable.inbox import DurableInbox

RUN_MESSAGES_MAX: Final = 256
"""Greatest number of messages of a run: enough to spread the cost of a call into the loop."""
_RUNS_PER_INBOX: Final = 64
"""A run has at most this part (1/64) of the messages that an inbox may hold. The inbox counts a whole run as taken: if
runs were longer, a slow consumer would seem faster than it is."""
_SETTLE_S: Final = 0.01
"""Time after which messages that the thread has done are told to the loop before the run is used up, so that senders
do not wait for a slow consumer longer than they must."""


class Run:
    """Messages of one consumer that its thread may take."""

    def __init__(self, inbox: Inbox, deliveries: Deliveries, tell: Callable[[Callable[[], object]], object]) -> None:
        """`tell` calls a function soon in the loop."""
        self._inbox = inbox
        self._durable = inbox if isinstance(inbox, DurableInbox) else None
        self._messages_max = min(RUN_MESSAGES_MAX, inbox.settings.messages_max // _RUNS_PER_INBOX)
        self._deliveries = deliveries
        self._tell = tell
        self._waiting: deque[Delivery] = deque()
        self._done: deque[Delivery] = deque()
        """Messages that the thread is done with, which the inbox still counts as held."""
        self._settled_at = 0.0

    # In the thread of the consumer.

    def take(self) -> Delivery | None:
        """Take the next message; None if the loop must be asked."""
        try:
            delivery = self._waiting.popleft()
        except IndexError:
            return None
        received = delivery.received
        is_over = received.header[EXPIRATION] and is_expired(received, time() * 1000)
        if is_over or (self._durable is not None and not self._durable.may_deliver(received)):
            self._waiting.appendleft(delivery)
            return None
        return delivery

    def refuse(self, delivery: Delivery) -> None:
        """Note that the client could not use a message; see `Deliveries.refuse`."""
        if self._deliveries.is_tracking:
            self._deliveries.refuse(delivery)
        else:
            self._waiting.appendleft(delivery)

    def consume(self, delivery: Delivery) -> None:
        """Note that the client got a message; see `Deliveries.consume`."""
        self._inbox.handled += 1
        if self._deliveries.is_tracking:
            self._deliveries.consume(delivery)
            return
        looped = self._deliveries.take_looped(self._inbox)
        if looped is not None:
            self._done.append(looped)
        self._done.append(delivery)
        self._settle_soon()

    def consume_in_loop(self, delivery: Delivery) -> None:
        """Note that a loop got a message; see `Deliveries.consume_in_loop`."""
        self._inbox.handled += 1
        looped = self._deliveries.take_looped(self._inbox)
        self._deliveries.consume_in_loop(delivery)
        if looped is not None:
            self._done.append(looped)
            self._settle_soon()

    def _settle_soon(self) -> None:
        now = perf_counter()
        if not self._waiting or now > self._settled_at + _SETTLE_S:
            self._settled_at = now
            self._tell(self.settle)

    # In the loop.

    def fill(self, first: Delivery, opener: Opener) -> None:
        """Hand over a message, and those that wait behind it."""
        self._waiting.append(first)
        if self._inbox.is_shared:
            return
        for _ in range(self._messages_max):
            delivery = opener.take(self._inbox)
            if delivery is None:
                return
            self._waiting.append(delivery)

    def settle(self) -> None:
        """Release the messages that the thread is done with."""
        done, release = self._done, self._inbox.release
        while done:
            release(done.popleft().received)

    def cut_off(self) -> None:
        """Forget the messages. Unlike `take_back`, wake nobody."""
        self._waiting.clear()
        self._done.clear()

    def take_back(self) -> None:
        """Put back the messages that the thread has not taken, and settle the others."""
        waiting = self._waiting
        while waiting:
            try:
                delivery = waiting.pop()
            except IndexError:  # the thread took it
                break
            self._deliveries.give_back(delivery)
        self.settle()
