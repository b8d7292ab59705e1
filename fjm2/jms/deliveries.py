"""Deliveries of messages from inboxes to the application: opened, tracked until acknowledged, perhaps repeated."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from time import time
from typing import TypeAlias, cast

from fjm2.bus.inbox import Delivery, Inbox, Received, is_expired
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.bus.routing.targets import ReceivedRun
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.header import EXPIRATION, KIND, MARKS_AT, REDELIVERED, Kind
from fjm2.messages.message import Message, open_message, put_property
from fjm2.messages.object_codec import ObjectCodec
from fjm2.messages.object_message import ObjectMessage

from .durable.inbox import DurableInbox
from .settings import SessionMode

GAP = "JMS_FJM2_Gap"
GAP_REASON = "JMS_FJM2_GapReason"

_OBJECT = int(Kind.OBJECT)


class RunDelivery:
    """The first delivery of messages that were received together."""

    __slots__ = ("inbox", "run", "serial")

    def __init__(self, run: ReceivedRun, inbox: Inbox, serial: int) -> None:
        self.run = run
        self.inbox = inbox
        self.serial = serial
        """Position of the first message in the order of the session's first deliveries."""

    def __len__(self) -> int:
        return len(self.run)

    def deliveries(self) -> Iterator[Delivery]:
        """Return the deliveries one by one."""
        for place, received in enumerate(self.run.messages()):
            yield Delivery(received, self.inbox, 1, self.serial + place, None)


BatchItem: TypeAlias = Delivery | RunDelivery
"""A part of a batch: one message, or several that were received together."""


def deliveries_of(items: Iterable[BatchItem]) -> list[Delivery]:
    """Return the deliveries of a batch one by one."""
    found: list[Delivery] = []
    for item in items:
        if isinstance(item, RunDelivery):
            found += item.deliveries()
        else:
            found.append(item)
    return found


def messages_in(items: Iterable[BatchItem]) -> int:
    """Return the number of messages of a batch."""
    return sum(len(item) if isinstance(item, RunDelivery) else 1 for item in items)


def may_deliver(inbox: Inbox, items: Iterable[BatchItem]) -> bool:
    """Return False if messages that were taken have to be given back now instead of being delivered. Any thread may
    ask."""
    if not isinstance(inbox, DurableInbox):
        return True
    return all(inbox.may_deliver(delivery.received) for delivery in deliveries_of(items))


class Opener:
    """Takes deliveries from inboxes, in the order of one session, and opens their messages."""

    def __init__(self, codec: ObjectCodec, acknowledge_hook: Callable[[], Awaitable[None]]) -> None:
        self.acknowledge_hook = acknowledge_hook
        """Function that `message.acknowledge()` calls."""
        self._codec = codec
        self._serial = 0
        """Number of messages delivered for the first time."""

    def take(self, inbox: Inbox) -> Delivery | None:
        """Take the next message of an inbox; None if there is none. The caller opens it, and tells `Deliveries` the
        outcome."""
        delivery = inbox.pop_again()
        if delivery is not None:
            if not delivery.serial:  # another session of the connection had it before
                self._serial += 1
                delivery.serial = self._serial
            return delivery
        while (received := inbox.pop()) is not None:
            if not received.header[EXPIRATION] or not is_expired(received, time() * 1000):
                return self.deliver_first(received, inbox, inbox.gap_before(received))
            inbox.lose(received, Loss.EXPIRED)
        return None

    def take_many(self, inbox: Inbox, messages_max: int) -> list[BatchItem]:
        """Take the next messages of an inbox, as many as wait, and at most `messages_max`. See `take`."""
        items: list[BatchItem] = []
        if inbox.again:
            inbox.split_runs()
        while messages_max > 0:
            run = inbox.pop_run(messages_max)
            if run is not None:
                items.append(RunDelivery(run, inbox, self._serial + 1))
                self._serial += len(run)
                messages_max -= len(run)
                continue
            delivery = self.take(inbox)
            if delivery is None:
                break
            items.append(delivery)
            messages_max -= 1
        return items

    def deliver_first(self, received: Received, inbox: Inbox, gap: Gap | None = None) -> Delivery:
        """Return the first delivery of a message that was popped from an inbox."""
        self._serial += 1
        return Delivery(received, inbox, 1, self._serial, gap)

    def open(self, delivery: Delivery) -> Message:
        """Return the message of a delivery."""
        received = delivery.received
        message = open_message(
            received.head,
            received.body,
            received.header,
            delivery.count + bool(received.head[MARKS_AT] & REDELIVERED),
            self.acknowledge_hook,
            delivery.inbox.message_destination,
        )
        if received.header[KIND] == _OBJECT:
            cast(ObjectMessage, message).codec = self._codec
        if delivery.gap is not None:
            with contextlib.suppress(MessageFormatError):  # reading a property will raise it
                put_property(message, GAP, True)
                put_property(message, GAP_REASON, delivery.gap.word)
        return message


class Deliveries:
    """Tracks messages that were delivered and not acknowledged.

    In CLIENT_ACKNOWLEDGE and transacted mode, these are all messages since the last acknowledgement, in order. In the
    other modes, it is only the message that the body of a consumer's loop is working on.
    """

    def __init__(self, mode: SessionMode, redeliveries_max: int, on_again: Callable[[Delivery], None]) -> None:
        """Call `on_again` with each delivery that is put back into its inbox."""
        self.is_tracking = mode in (SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED)
        """True if the client, or a commit, acknowledges messages. Otherwise the session does."""
        self._redeliveries_max = redeliveries_max
        self._on_again = on_again
        self._unacknowledged: list[Delivery] = []
        self._looped: dict[Inbox, Delivery] = {}
        """Message that each consumer's loop is working on, by inbox. Empty if the session tracks messages."""
        self._batches: dict[Inbox, list[BatchItem]] = {}
        """Batch that each consumer's loop is working on, by inbox. Empty if the session tracks messages."""

    def __len__(self) -> int:
        return len(self._unacknowledged) + len(self._looped) + sum(map(messages_in, self._batches.values()))

    def track(self, deliveries: Iterable[Delivery]) -> None:
        """Keep messages until they are acknowledged."""
        self._unacknowledged += deliveries

    def consume(self, delivery: Delivery) -> None:
        """Note that the client got a message. Unless messages are tracked, this acknowledges the message, and the one
        that a loop of the same consumer is working on."""
        if self.is_tracking:
            self._unacknowledged.append(delivery)
        else:
            self.acknowledge_looped(delivery.inbox)
            delivery.inbox.release(delivery.received)

    def consume_in_loop(self, delivery: Delivery) -> None:
        """Note that a loop got a message. The message is acknowledged when the loop asks for the next, and can be
        recovered before."""
        if self.is_tracking:
            self._unacknowledged.append(delivery)
        else:
            self._looped[delivery.inbox] = delivery

    def acknowledge_looped(self, inbox: Inbox) -> None:
        """Acknowledge the message that a consumer's loop was working on."""
        delivery = self.take_looped(inbox)
        if delivery is not None:
            inbox.release(delivery.received)

    def take_looped(self, inbox: Inbox) -> Delivery | None:
        """Return the message that a consumer's loop was working on, and stop tracking it; None if there is none."""
        return self._looped.pop(inbox, None)

    def consume_batch(self, inbox: Inbox, items: list[BatchItem]) -> None:
        """Note that a loop got a batch. It is acknowledged when the loop asks for the next, and can be recovered
        before."""
        if self.is_tracking:
            self._unacknowledged += deliveries_of(items)
        else:
            self._batches[inbox] = items

    def acknowledge_batch(self, inbox: Inbox) -> None:
        """Acknowledge the batch that a consumer's loop was working on."""
        for item in self._batches.pop(inbox, ()):
            if isinstance(item, RunDelivery):
                inbox.release_run(item.run)
            else:
                inbox.release(item.received)

    def end_batches(self, inbox: Inbox) -> None:
        """Go on without batches: a program that receives in another way is done with the last one."""
        self.acknowledge_batch(inbox)
        inbox.end_runs()

    def give_back_batch(self, items: list[BatchItem]) -> None:
        """Put messages back that were not handed to the client after all. See `give_back`."""
        for delivery in reversed(deliveries_of(items)):
            self.give_back(delivery)

    def refuse(self, delivery: Delivery) -> None:
        """Note that the client could not use a message. Unless messages are tracked, the next receive gets it again."""
        if self.is_tracking:
            self._unacknowledged.append(delivery)
        else:
            self.give_back(delivery)

    def give_back(self, delivery: Delivery) -> None:
        """Put a message back that was not handed to the client after all. This does not count as a delivery."""
        delivery.inbox.again.appendleft(delivery)
        self._on_again(delivery)

    def deliver_again(self, delivery: Delivery) -> None:
        """Put a message back to be delivered once more."""
        delivery.count += 1
        self.give_back(delivery)

    def retry(self, delivery: Delivery) -> bool:
        """Put a message back at which a listener raised. If it was delivered too often, drop it and return False."""
        if delivery.count <= self._redeliveries_max:
            self.deliver_again(delivery)
            return True
        delivery.inbox.lose_again(delivery, Loss.GIVEN_UP)
        return False

    def acknowledge_all(self) -> None:
        """Release all tracked messages."""
        unacknowledged, self._unacknowledged = self._unacknowledged, []
        for delivery in unacknowledged:
            delivery.inbox.release(delivery.received)

    @property
    def unacknowledged(self) -> list[Delivery]:
        """Tracked messages, in order."""
        return list(self._unacknowledged)

    def acknowledge(self, deliveries: Iterable[Delivery]) -> None:
        """Release messages, unless they are not tracked any more."""
        done = set(deliveries)
        unacknowledged, self._unacknowledged = self._unacknowledged, []
        for delivery in unacknowledged:
            if delivery in done:
                delivery.inbox.release(delivery.received)
            else:
                self._unacknowledged.append(delivery)

    def recover(self) -> set[Inbox]:
        """Put back all messages that are not acknowledged, in order. Return the inboxes concerned."""
        batches = [delivery for items in self._batches.values() for delivery in deliveries_of(items)]
        unacknowledged = [*self._looped.values(), *batches, *self._unacknowledged]
        self._unacknowledged = []
        self._looped.clear()
        self._batches.clear()
        for delivery in reversed(unacknowledged):
            if delivery.inbox.is_closed:
                delivery.count += 1
                delivery.inbox.forgo(delivery.received)
            else:
                self.deliver_again(delivery)
        return {delivery.inbox for delivery in unacknowledged}

    def tracks(self, inbox: Inbox) -> bool:
        """Return True if the client has messages of an inbox that it did not acknowledge, and still may."""
        return any(delivery.inbox is inbox for delivery in self._unacknowledged)

    def forget(self, inbox: Inbox) -> list[Delivery]:
        """Stop tracking the messages that a closed consumer of a queue, or of a durable subscription, did not
        acknowledge. Return them: they go back there."""
        mine = [delivery for delivery in self._unacknowledged if delivery.inbox is inbox]
        if inbox in self._looped:
            mine.append(self._looped.pop(inbox))
        mine += deliveries_of(self._batches.pop(inbox, ()))
        self._unacknowledged = [delivery for delivery in self._unacknowledged if delivery.inbox is not inbox]
        return mine
