"""Promises of a cell to its durable subscribers, checked against a model that knows nothing of the code.

The model replays the decisions in their order, and knows of each frame when it was sent and how far it was confirmed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cells import BrokenPromiseError

from fjm2.base.ledger import Ledger, is_older
from fjm2.base.ranges import RangeSet
from fjm2.cell.service.reasons import Reason
from fjm2.cell.wire.ranges import Range, Spans
from fjm2.cell.wire.records import (
    ApplyRecord,
    CloseRecord,
    Hand,
    HandRecord,
    Record,
    ReturnRecord,
    Subscription,
    TableRecord,
)
from fjm2.cell.wire.requests import (
    Ack,
    Close,
    Open,
    Request,
    Return,
    Subscribe,
    SubscriptionFlag,
    Unsubscribe,
    decode_request,
)

NEEDLESS = {
    Reason.MALFORMED,
    Reason.SESSION_TAKEN,
    Reason.NO_CONSUMER,
    Reason.TOO_SCATTERED,
    Reason.TOO_MANY_RANGES,
    Reason.NOT_OFFERED,
    Reason.NOT_HELD,
}
"""Refusals that a correct client avoids."""


IsKept = Callable[[Ledger, int], bool]
"""Tells whether most members have a message on disk."""
Key = tuple[str, str, bool]
"""Client id and name of a subscription, and True if it is durable: others have names of their own."""


def key_of(client_id: str, name: str, flags: int) -> Key:
    return client_id, name, bool(flags & SubscriptionFlag.DURABLE)


def due_ms_of(frame: bytes) -> int:
    """Return the delivery time of a delayed message."""
    return int(frame[2:].split(b"@")[0])


class Sent(NamedTuple):
    """A message as it was sent."""

    topic: str
    at: float
    version: int
    """Newest table that the writer knew. It waits for no copies that a newer one asks for."""
    due_at: float
    """Delivery time."""


class EpochOrder:
    """The order in which a subscription, and the programs of its consumers, got the ledgers of each producer and
    lane."""

    def __init__(self) -> None:
        self.handed_again: dict[Ledger, RangeSet] = defaultdict(RangeSet)
        """Messages that were handed out a second time. Their order is free."""
        self._newest: dict[tuple[object, int, int], int] = {}
        self._last_used: dict[tuple[object, int, int], tuple[int, int]] = {}
        """Epoch and sequence of the last message that each program used."""

    def check(self, of: object, ledger: Ledger, where: object) -> bool:
        """Check that somebody got nothing of a later ledger. Return True if the ledger is later than those before."""
        place = of, ledger.producer_id, ledger.lane
        newest = self._newest.get(place, 0)
        if ledger.producer_epoch < newest:
            raise BrokenPromiseError(f"{where}: after one of epoch {newest}")
        self._newest[place] = ledger.producer_epoch
        return ledger.producer_epoch > newest

    def check_use(self, of: object, ledger: Ledger, sequence: int, where: object) -> None:
        """Check that somebody's program got no later message of the producer and lane, of this ledger or another."""
        line, place = (of, ledger.producer_id, ledger.lane), (ledger.producer_epoch, sequence)
        last = self._last_used.get(line, (0, 0))
        if place <= last:
            raise BrokenPromiseError(f"{where}: after {last[1]} of epoch {last[0]}")
        self._last_used[line] = place


class Generation:
    """A subscription from the moment at which it is added until it is dropped."""

    def __init__(
        self, subscription: Subscription, starts: dict[Ledger, int], closed: set[Ledger], version: int, now: float
    ) -> None:
        self.subscription = subscription
        self.starts = starts
        self.closed = closed
        """Ledgers that were closed before. It gets nothing of them."""
        self.version = version
        self.added_at = now
        self.complete_at: float | None = None
        self.active: tuple[int, int] | None = None
        """Session and number of the consumer."""
        self.is_shared = bool(subscription.flags & SubscriptionFlag.SHARED)
        self.is_durable = bool(subscription.flags & SubscriptionFlag.DURABLE)
        self.held: dict[tuple[int, int], dict[Ledger, RangeSet]] = {}
        """Messages that each consumer was handed: of a shared subscription all, of others those that are delayed."""
        self.handed: dict[Ledger, RangeSet] = defaultdict(RangeSet)
        """Messages that were ever handed out."""
        self.acked: dict[Ledger, RangeSet] = defaultdict(RangeSet)
        self.acked_by: dict[tuple[Ledger, int], tuple[int, int]] = {}
        """Consumer that acknowledged each message."""
        self.delivered: dict[Ledger, RangeSet] = defaultdict(RangeSet)
        self.order = EpochOrder()

    @property
    def topic(self) -> str:
        return self.subscription.destination.name

    def has(self, consumer: tuple[int, int]) -> bool:
        """Return True for a consumer whose session has not ended."""
        return self.active == consumer or consumer in self.held

    def needs(self, ledger: Ledger, sequence: int) -> bool:
        is_after = ledger not in self.closed and sequence >= self.starts.get(ledger, 1)
        return is_after and sequence not in self.acked[ledger]

    def is_promised(self, ledger: Ledger, sequence: int, sent: Sent) -> bool:
        """Return True for a message that W members have to keep, as the writer knew of the subscription."""
        return sent.topic == self.topic and sent.version >= self.version and self.needs(ledger, sequence)


class Model:
    """Everything that was sent, decided and delivered."""

    def __init__(self) -> None:
        self.index = 0
        self.table_version = 0
        self.requests: dict[tuple[Ledger, int], Request] = {}
        self.refusals: Counter[Reason] = Counter()
        self.stored_at_start: dict[tuple[int, int], dict[Ledger, int]] = {}
        """Confirmed sequences when each consumer came. An earlier one may have got what was not confirmed, too."""
        self.liars: set[Ledger] = set()
        """Clients that ask for what they must not have."""
        self.last_hand: Range | None = None
        self.messages: dict[Ledger, dict[int, Sent]] = defaultdict(dict)
        self.confirmed: dict[Ledger, int] = {}
        self.final: dict[Ledger, Spans] = {}
        self.sessions: dict[int, tuple[Ledger, str]] = {}
        self.subscriptions: dict[Key, Generation] = {}
        self.consumers: dict[tuple[int, int], Generation] = {}
        """All consumers that there ever were."""
        self.last: dict[tuple[int, int, Ledger], int] = {}
        """Last message that each consumer got of each ledger."""
        self.counts: dict[str, int] = defaultdict(int)
        """Number of times that things happened, so that a test can say that they did."""

    # Clients

    def topic_of(self, client_id: str, name: str, flags: int) -> int:
        """Return the topic of a subscription; 0 if there is none."""
        found = self.subscriptions.get(key_of(client_id, name, flags))
        return 0 if found is None else int(found.topic.removeprefix("topic"))

    def note_sent(self, ledger: Ledger, sequence: int, frame: bytes, now: float, version: int) -> None:
        if frame[:1] == b"M":
            due_at = due_ms_of(frame) / 1000 if ledger.is_delayed else now
            self.messages[ledger][sequence] = Sent(f"topic{frame[1:2].decode()}", now, version, due_at)
        else:
            request = decode_request(frame[1:])
            assert request is not None
            self.requests[ledger, sequence] = request

    def note_confirmed(self, ledger: Ledger, through: int) -> list[int]:
        """Note how far a writer's sends have completed. Return the messages of them that subscriptions need."""
        before = self.confirmed.get(ledger, 0)
        self.confirmed[ledger] = max(through, before)
        self._check_final(ledger)
        messages = self.messages[ledger]
        return [
            sequence
            for sequence in range(before + 1, through + 1)
            if sequence in messages
            and any(each.is_promised(ledger, sequence, messages[sequence]) for each in self.subscriptions.values())
        ]

    def complete(self, session: int, number: int, now: float) -> None:
        """Note that creating a subscription returned: from now on it gets everything."""
        generation = self.consumers[session, number]
        if generation.complete_at is None:
            generation.complete_at = now

    def deliver(
        self,
        session: int,
        number: int,
        ledger: Ledger,
        sequence: int,
        frame: bytes,
        *,
        is_redelivered: bool,
        is_kept: IsKept,
        now: float,
    ) -> None:
        """Check a delivery. A consumer whose session has ended does not count: its acknowledgements are refused."""
        generation = self.consumers[session, number]
        if not generation.has((session, number)):
            self.counts["late deliveries"] += 1
            return
        where = f"message {sequence} of {ledger} to consumer {number} of session {session:x}"
        if f"topic{frame[1:2].decode()}" != generation.topic:
            raise BrokenPromiseError(f"{where}: of another topic")
        due_at = self.messages[ledger][sequence].due_at
        if due_at > now:
            raise BrokenPromiseError(f"{where}: it is not due before {due_at}, and it is {now}")
        if ledger in generation.closed:
            raise BrokenPromiseError(f"{where}: the ledger was closed before there was the subscription")
        if sequence in generation.acked[ledger]:
            raise BrokenPromiseError(f"{where}: it was acknowledged by a decision, and came back")
        if generation.is_shared or ledger.is_delayed:
            self._deliver_handed(generation, (session, number), ledger, sequence, where)
            return
        self.counts["later ledgers"] += generation.order.check((session, number), ledger, where)
        for older in self._older(ledger):
            for other, sent in self.messages[older].items():
                is_new = self.last.get((session, number, older), 0) < other <= self.confirmed.get(older, 0)
                if is_new and self._has_to_come(generation, older, other, sent, is_kept):
                    raise BrokenPromiseError(f"{where}: {other} of {older} was left out")
        last = self.last.get((session, number, ledger), 0)
        if sequence <= last:
            raise BrokenPromiseError(f"{where}: out of order, after {last}")
        for other, sent in self.messages[ledger].items():
            if last < other < sequence and self._has_to_come(generation, ledger, other, sent, is_kept):
                raise BrokenPromiseError(f"{where}: {other} was left out")
        self.last[session, number, ledger] = sequence
        if sequence in generation.delivered[ledger]:
            self.counts["redeliveries"] += 1
            if not is_redelivered and sequence <= self.stored_at_start[session, number].get(ledger, 0):
                raise BrokenPromiseError(f"{where}: it was delivered before, and is not flagged")
        generation.delivered[ledger].add(sequence, sequence + 1)
        self.counts["deliveries"] += 1

    def use(self, session: int, number: int, ledger: Ledger, sequence: int, *, is_redelivered: bool) -> None:
        """Check that a program uses messages in order, over all lives of their producer, and that it does not use in
        silence what another one has acknowledged."""
        consumer = session, number
        generation = self.consumers[consumer]
        if not (generation.is_shared or ledger.is_delayed):
            where = f"message {sequence} of {ledger} is used by consumer {number} of session {session:x}"
            generation.order.check_use(consumer, ledger, sequence, where)
        acked_by = generation.acked_by.get((ledger, sequence), consumer)
        if acked_by != consumer and not is_redelivered:
            raise BrokenPromiseError(
                f"message {sequence} of {ledger} is used by consumer {number} of session {session:x}, and is not "
                f"flagged: {acked_by} has acknowledged it"
            )
        self.counts["uses"] += 1

    def _has_to_come(self, generation: Generation, ledger: Ledger, sequence: int, sent: Sent, is_kept: IsKept) -> bool:
        """Return True for a message that a subscription gets before any later one.

        It is not enough that the subscription needs it: its start is behind what the manager had seen, and a message
        that was on its way then may be before no start. If its writer did not know of the subscription, nothing was
        promised: most members may have counted the message, as nobody had asked for it, and then it is gone. But it
        comes if most members keep it all the same, as others that heard of the subscription in time do.
        """
        if sent.topic != generation.topic or not generation.needs(ledger, sequence):
            return False
        if sent.version >= generation.version:
            return True
        has_to_come = is_kept(ledger, sequence)
        self.counts["left out"] += not has_to_come
        return has_to_come

    def _older(self, ledger: Ledger) -> list[Ledger]:
        """Return the ledgers of a producer and lane from before it began this one."""
        return [each for each in self.messages if is_older(each, ledger)]

    def _deliver_handed(
        self, generation: Generation, consumer: tuple[int, int], ledger: Ledger, sequence: int, where: str
    ) -> None:
        if sequence not in generation.held[consumer].get(ledger, RangeSet()):
            raise BrokenPromiseError(f"{where}: it was not handed to it")
        if sequence not in generation.order.handed_again[ledger]:
            generation.order.check(consumer, ledger, where)
        generation.delivered[ledger].add(sequence, sequence + 1)
        self.counts["delayed deliveries" if ledger.is_delayed else "shared deliveries"] += 1

    # Decisions

    def apply(self, index: int, records: Sequence[Record], is_kept: IsKept, now: float) -> None:
        """Take the records of the next entry."""
        self.index = index
        missing = {key for key, generation in self.subscriptions.items() if generation.is_durable}
        for record in records:
            match record:
                case TableRecord():
                    self._change_table(record, now)
                case ApplyRecord():
                    for sequence, reason in record.verdicts:
                        missing.discard(self._unsubscribed(record.ledger, sequence, Reason(reason)))
                        self._judge(record.ledger, sequence, Reason(reason))
                case HandRecord():
                    for hand in record.hands:
                        self._hand(hand, is_kept, now)
                case ReturnRecord():
                    self.counts["lapses"] += 1
                    self._end(record.session)
                case CloseRecord():
                    self._close(record)
                case _:
                    pass
        missing -= set(self.subscriptions)
        if missing:
            raise BrokenPromiseError(f"{missing} were dropped, and nobody asked for that")
        for key, generation in self.subscriptions.items():
            if not generation.is_durable and not generation.held:
                raise BrokenPromiseError(f"subscription {key} is not durable, and stays without consumers")

    def _close(self, record: CloseRecord) -> None:
        """Take a final set. Older ledgers that have none get an empty one: nobody has confirmed anything of them."""
        self.final.setdefault(record.ledger, record.final)
        for older in self._older(record.ledger):
            if older not in self.final:
                self.final[older] = ()
                self.counts["void ledgers"] += 1
        for ledger in (record.ledger, *self._older(record.ledger)):
            self._check_final(ledger)

    def _check_final(self, ledger: Ledger) -> None:
        """Check that the final set of a ledger has all that was confirmed, but messages that nobody asked to keep."""
        final = self.final.get(ledger, ((1, 1 << 64),))
        for gap in RangeSet((first, last + 1) for first, last in final).gaps(1, self.confirmed.get(ledger, 0) + 1):
            for sequence in range(*gap):
                sent = self.messages[ledger].get(sequence)
                if sent is None or any(
                    each.is_promised(ledger, sequence, sent) for each in self.subscriptions.values()
                ):
                    raise BrokenPromiseError(f"{ledger}: {sequence} was confirmed, and is not in its final set {final}")

    def _change_table(self, record: TableRecord, now: float) -> None:
        if record.version != self.table_version + 1:
            raise BrokenPromiseError(f"table version {record.version} after {self.table_version}")
        self.table_version = record.version
        key = key_of(record.subscription.client_id, record.subscription.name, record.subscription.flags)
        old = self.subscriptions.pop(key, None)
        if old is not None and (old.active is not None or old.held):
            raise BrokenPromiseError(f"subscription {key} was dropped while consumer {old.active} was active")
        if old is not None and not old.is_durable:
            self.counts["subscriptions passed"] += 1
        if record.is_added:
            starts, closed = dict(record.starts), set(self.final)
            self.subscriptions[key] = Generation(record.subscription, starts, closed, record.version, now)

    def _hand(self, hand: Hand, is_kept: IsKept, now: float) -> None:
        each, consumer = hand.range, (hand.session, hand.range.consumer)
        self.last_hand = each
        generation = self.consumers[consumer]
        if consumer not in generation.held:
            raise BrokenPromiseError(f"{hand}: the consumer has ended")
        if not (generation.is_shared or each.ledger.is_delayed):
            raise BrokenPromiseError(f"{hand}: the subscription is not shared")
        holders = [held.get(each.ledger, RangeSet()) for held in generation.held.values()]
        for sequence in range(each.first, each.last + 1):
            if sequence in generation.acked[each.ledger] or any(sequence in held for held in holders):
                raise BrokenPromiseError(f"{hand}: message {sequence} is held or acknowledged")
            sent = self.messages[each.ledger].get(sequence)
            # One that nobody kept is a number like those of others. If a consumer gets it, that delivery is checked.
            if sent and sent.due_at > now and self._has_to_come(generation, each.ledger, sequence, sent, is_kept):
                raise BrokenPromiseError(f"{hand}: message {sequence} is not due before {sent.due_at}, and it is {now}")
            is_again = sequence in generation.handed[each.ledger]
            if sent is not None and sent.topic == generation.topic and is_again != bool(each.deliveries):
                raise BrokenPromiseError(f"{hand}: message {sequence} was handed out before: {is_again}")
            self.counts["handed again"] += is_again
            if is_again:
                generation.order.handed_again[each.ledger].add(sequence, sequence + 1)
            elif sent is not None and sent.topic == generation.topic:
                generation.order.check(None, each.ledger, hand)
        generation.handed[each.ledger].add(each.first, each.last + 1)
        generation.held[consumer].setdefault(each.ledger, RangeSet()).add(each.first, each.last + 1)

    def _take(self, consumer: tuple[int, int], each: Range) -> Generation:
        """Take a range from its consumer, which has to hold it."""
        generation = self.consumers[consumer]
        if generation.is_shared or each.ledger.is_delayed:
            held = generation.held[consumer].get(each.ledger, RangeSet())
            if not held.covers(each.first, each.last + 1):
                raise BrokenPromiseError(f"{each} of {consumer} was granted, and it does not hold it")
            held.remove(each.first, each.last + 1)
        return generation

    def _unsubscribed(self, ledger: Ledger, sequence: int, reason: Reason) -> Key | None:
        """Return the durable subscription that a request ends."""
        request = self.requests[ledger, sequence]
        session = self.sessions.get(request.session)
        if reason is not Reason.GRANTED or session is None or not isinstance(request, Unsubscribe):
            return None
        return key_of(session[1], request.name, SubscriptionFlag.DURABLE)

    def _judge(self, ledger: Ledger, sequence: int, reason: Reason) -> None:
        request = self.requests[ledger, sequence]
        session = self.sessions.get(request.session)
        if reason is not Reason.GRANTED:
            self.refusals[reason] += 1
            self._check_refusal(ledger, request, reason)
            return
        match request:
            case Open():
                others = [each for each in self.sessions.values() if each[1] == request.client_id and each[0] != ledger]
                if others and request.client_id:
                    raise BrokenPromiseError(f"client id {request.client_id} is used by {ledger} and {others}")
                self.sessions[request.session] = ledger, request.client_id
            case _ if session is None or session[0] != ledger:
                raise BrokenPromiseError(f"{request} was granted without a session")
            case Subscribe():
                self._attach(request, session[1], sequence)
            case Ack():
                self.counts["acknowledgements"] += 1
                for each in request.ranges:
                    generation = self._take((request.session, each.consumer), each)
                    generation.acked[each.ledger].add(each.first, each.last + 1)
                    for place in range(each.first, each.last + 1):
                        generation.acked_by[each.ledger, place] = request.session, each.consumer
            case Return():
                for each in request.ranges:
                    self._take((request.session, each.consumer), each)
            case Close(consumers=()):
                self._end(request.session)
            case Close():
                for number in request.consumers:
                    self.consumers[request.session, number].active = None
                    self.consumers[request.session, number].held.pop((request.session, number), None)
            case Unsubscribe():
                self.counts["unsubscriptions"] += 1
                key = key_of(session[1], request.name, SubscriptionFlag.DURABLE)
                if key in self.subscriptions:
                    raise BrokenPromiseError(f"{request} was granted, and the subscription is still there")
            case _:
                raise BrokenPromiseError(f"{request} was granted, and nobody offers it")

    def _check_refusal(self, ledger: Ledger, request: Request, reason: Reason) -> None:
        session = self.sessions.get(request.session)
        if reason in NEEDLESS and ledger not in self.liars:
            raise BrokenPromiseError(f"{request} was refused, and an honest client never asks so: {reason.name}")
        if reason is Reason.NO_SESSION and session is not None:
            raise BrokenPromiseError(f"{request} was refused, and the session is open")
        if reason is Reason.CONSUMER_ACTIVE and isinstance(request, Subscribe | Unsubscribe) and session is not None:
            flags = request.flags if isinstance(request, Subscribe) else SubscriptionFlag.DURABLE
            generation = self.subscriptions.get(key_of(session[1], request.name, flags))
            if generation is None or (generation.active is None and not generation.held):
                raise BrokenPromiseError(f"{request} was refused, and no consumer is active")

    def _attach(self, request: Subscribe, client_id: str, sequence: int) -> None:
        generation = self.subscriptions.get(key_of(client_id, request.name, request.flags))
        if generation is None or generation.topic != request.destination.name:
            raise BrokenPromiseError(f"{request} was granted, and there is no such subscription")
        if generation.active is None:
            generation.held[request.session, sequence] = {}
        if generation.is_shared:
            self.consumers[request.session, sequence] = generation
            return
        if generation.active is not None:
            raise BrokenPromiseError(f"{request}: {generation.active} has the subscription already")
        generation.active = request.session, sequence
        self.stored_at_start[generation.active] = dict(self.confirmed)
        self.consumers[generation.active] = generation

    def _end(self, session: int) -> None:
        self.sessions.pop(session, None)
        for generation in self.subscriptions.values():
            if generation.active is not None and generation.active[0] == session:
                generation.active = None
            for consumer in [consumer for consumer in generation.held if consumer[0] == session]:
                del generation.held[consumer]

    # Checks

    def check_released(self, ledger: Ledger, ranges: Spans, table_version: int) -> None:
        """Check that a keeper gives up nothing that a subscription of its table needs.

        For a subscription that it does not know yet it has to get again what it gave up, before it knows it.
        """
        for first, last in ranges:
            for sequence in range(first, last + 1):
                if any(low <= sequence <= high for low, high in self.final.get(ledger, ((1, 1 << 64),))):
                    self._check_needless(ledger, sequence, table_version)
        self.counts["releases"] += 1

    def _check_needless(self, ledger: Ledger, sequence: int, table_version: int) -> None:
        sent = self.messages[ledger].get(sequence)
        if sent is None:
            return  # a request
        for key, generation in self.subscriptions.items():
            is_after = sent.at > generation.added_at and generation.topic == sent.topic
            if is_after and generation.version <= table_version and generation.needs(ledger, sequence):
                raise BrokenPromiseError(f"message {sequence} of {ledger} was released, and {key} needs it")

    def undelivered(self) -> list[tuple[str, Ledger, int]]:
        """Return confirmed messages that a subscription is to get, and has not got."""
        return [
            (generation.topic, ledger, sequence)
            for generation in self.subscriptions.values()
            if generation.complete_at is not None
            for ledger, messages in self.messages.items()
            for sequence, sent in messages.items()
            if sent.topic == generation.topic
            and sent.version >= generation.version
            and sequence <= self.confirmed.get(ledger, 0)
            and sequence not in generation.delivered[ledger]
        ]

    def check_end(self) -> None:
        """Check that nothing is lost."""
        lost = self.undelivered()
        if lost:
            raise BrokenPromiseError(f"{len(lost)} messages are lost, the first is {lost[0]}")
