"""Tests of shared durable subscriptions: each message is held by one consumer, and comes back when that one ends."""

import pytest
from serving_cells import Alone
from serving_clients import NEWS, ORDERS, WRITER, Client, kept, publish

from fjm2.base.ledger import Ledger
from fjm2.cell.outgoing import Decided
from fjm2.cell.service import hands, judge
from fjm2.cell.service.hands import PORTION
from fjm2.cell.service.reasons import Reason
from fjm2.cell.service.state_codec import decode_state, encode_state
from fjm2.cell.times import SESSION_LEASE_S
from fjm2.cell.wire.catch_up import CatchUpPage, CatchUpQuery
from fjm2.cell.wire.ranges import Range
from fjm2.cell.wire.records import FenceRecord, Hand, HandRecord
from fjm2.cell.wire.requests import Return, Subscribe, SubscriptionFlag

SHARED = SubscriptionFlag.DURABLE | SubscriptionFlag.SHARED


def sharing(alone: Alone, number: int, credit: int = 256) -> tuple[Client, int]:
    """Return a client without a client id that has a consumer of the shared subscription."""
    client = Client(alone, number)
    assert client.open("") is Reason.GRANTED
    assert client.ask(Subscribe(client.session, SHARED, credit, ORDERS, "shared", "")) is Reason.GRANTED
    return client, client.sent


def handed(alone: Alone) -> list[tuple[int, int, int, int]]:
    """Return session, first and last sequence, and deliveries of all that was handed out."""
    alone.run(0.03)
    alone.settle()
    found: list[Hand] = [
        hand
        for event in alone.events
        if isinstance(event, Decided)
        for record in event.records
        if isinstance(record, HandRecord)
        for hand in record.hands
    ]
    alone.events = [event for event in alone.events if not isinstance(event, Decided)]
    return [(hand.session, hand.range.first, hand.range.last, hand.range.deliveries) for hand in found]


def give_back(client: Client, consumer: int, first: int, last: int) -> Reason | None:
    return client.ask(Return(client.session, (Range(WRITER, first, last - first + 1, consumer),)))


def page(alone: Alone, client: Client, consumer: int, first: int) -> CatchUpPage:
    query = CatchUpQuery(
        is_exact=True,
        reply_to=50,
        keeper_node=1,
        consumer=consumer,
        cell_id=alone.cell.cell_id,
        session=client.session,
        ledger=WRITER,
        first=first,
    )
    alone.forget()
    alone.cell.receive(query.encode(), 50, alone.now)
    alone.settle()
    (found,) = alone.sent_of(CatchUpPage)
    assert isinstance(found, CatchUpPage)
    return found


def test_consumers_that_acknowledge_nothing_do_not_keep_others_from_it() -> None:
    """Each of them leaves a gap for every portion that it holds."""
    alone = Alone()
    slow, _ = sharing(alone, 1, 1000)
    quick, number = sharing(alone, 2, 1000)
    publish(alone, 1, 2000)
    portions = [(first, last) for session, first, last, _ in handed(alone) if session == quick.session]
    assert len(portions) * PORTION >= 900
    for first, last in portions:
        slow.renew()
        for sequence in range(first, last + 1, 2):
            assert quick.ack(number, sequence, sequence) is Reason.GRANTED
    assert slow.session in alone.cell.clients.state.sessions
    (cursor,) = alone.cell.clients.state.cursors.values()
    assert len(list(cursor.acked_within(WRITER, 1, 2001))) > 256


def test_consumers_take_turns() -> None:
    alone = Alone()
    one, _ = sharing(alone, 1)
    two, _ = sharing(alone, 2)
    publish(alone, 1, 3 * PORTION)
    assert handed(alone) == [
        (one.session, 1, PORTION, 0),
        (two.session, PORTION + 1, 2 * PORTION, 0),
        (one.session, 2 * PORTION + 1, 3 * PORTION, 0),
    ]
    assert handed(alone) == []


def test_a_consumer_gets_no_more_than_its_credit_in_portions() -> None:
    alone = Alone()
    client, consumer = sharing(alone, 1, credit=PORTION + 1)
    publish(alone, 1, 10 * PORTION)
    assert handed(alone) == [(client.session, 1, PORTION, 0), (client.session, PORTION + 1, 2 * PORTION, 0)]
    assert client.ack(consumer, 1, PORTION) is Reason.GRANTED
    assert handed(alone) == [(client.session, 2 * PORTION + 1, 3 * PORTION, 0)]


def test_credit_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hands, "CREDIT_MAX", PORTION)
    alone = Alone()
    client, _ = sharing(alone, 1, credit=(1 << 32) - 1)
    publish(alone, 1, 10 * PORTION)
    assert handed(alone) == [(client.session, 1, PORTION, 0)]
    none, _ = sharing(alone, 2, credit=0)
    assert none.session not in {session for session, *_ in handed(alone)}


def test_what_is_handed_includes_what_is_for_nobody_so_that_cursors_stay_whole() -> None:
    alone = Alone()
    client, consumer = sharing(alone, 1)
    for first in range(1, 21, 2):
        publish(alone, first, 1, NEWS)
        publish(alone, first + 1, 1)
    ((_, first, last, _),) = handed(alone)
    assert (first, last) == (1, 20)
    found = page(alone, client, consumer, 1)
    assert found.spans == tuple((sequence, sequence) for sequence in range(2, 21, 2))
    assert client.ack(consumer, 1, 20) is Reason.GRANTED
    assert not kept(alone)
    (cursor,) = alone.cell.clients.state.cursors.values()
    assert dict(cursor.acknowledged())[WRITER].range_count == 1


def test_only_the_holder_acknowledges() -> None:
    alone = Alone()
    one, first = sharing(alone, 1)
    two, second = sharing(alone, 2)
    publish(alone, 1, 2 * PORTION)
    assert len(handed(alone)) == 2
    assert two.ack(second, 1, PORTION) is Reason.NOT_HELD
    assert one.ack(first, 1, 2 * PORTION) is Reason.NOT_HELD
    assert give_back(two, second, 1, 1) is Reason.NOT_HELD
    assert kept(alone) == [(1, 2 * PORTION)]
    assert one.ack(first, 1, PORTION) is Reason.GRANTED
    assert one.ack(first, 1, PORTION) is Reason.NOT_HELD
    assert two.ack(second, PORTION + 1, 2 * PORTION) is Reason.GRANTED
    assert not kept(alone)


def test_what_is_given_back_is_flagged_and_not_mixed_with_what_is_new() -> None:
    alone = Alone()
    client, consumer = sharing(alone, 1)
    publish(alone, 1, 10)
    handed(alone)
    assert give_back(client, consumer, 4, 6) is Reason.GRANTED
    publish(alone, 11, 2)
    assert handed(alone) == [(client.session, 4, 6, 1), (client.session, 11, 12, 0)]
    assert give_back(client, consumer + 1, 4, 6) is Reason.NO_CONSUMER


@pytest.mark.parametrize("ending", ["close the consumer", "close the session", "lapse"])
def test_the_end_of_a_consumer_gives_back_what_it_holds(ending: str) -> None:
    alone = Alone()
    one, first = sharing(alone, 1)
    publish(alone, 1, 5)
    handed(alone)
    two, _ = sharing(alone, 2)
    assert handed(alone) == []
    match ending:
        case "close the consumer":
            one.close(first)
        case "close the session":
            one.close()
        case _:
            for _ in range(int(SESSION_LEASE_S / 0.1) + 5):
                alone.run(0.1)
                two.renew()
    assert (two.session, 1, 5, 1) in handed(alone)


def test_a_page_names_only_what_the_consumer_holds() -> None:
    alone = Alone()
    one, first = sharing(alone, 1)
    two, second = sharing(alone, 2)
    publish(alone, 1, 2 * PORTION)
    handed(alone)
    assert page(alone, one, first, 1).spans == ((1, PORTION),)
    assert page(alone, two, second, PORTION + 1).spans == ((PORTION + 1, 2 * PORTION),)
    nothing = page(alone, two, second, 1)
    assert (nothing.spans, nothing.through) == ((), 0)  # nothing is decided: the keeper may not know yet


def test_messages_of_closed_ledgers_are_handed_out() -> None:
    alone = Alone()
    client, consumer = sharing(alone, 1)
    client.close(consumer)
    publish(alone, 1, 5)
    alone.decide(FenceRecord(WRITER))
    alone.run(0.1)
    assert alone.cell.replica.ledgers.is_closed(WRITER)
    client, consumer = sharing(alone, 2)
    assert handed(alone) == [(client.session, 1, 5, 0)]
    assert client.ack(consumer, 1, 5) is Reason.GRANTED


def test_many_ledgers_have_their_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hands, "LOOKED_AT_MAX", 3)
    alone = Alone()
    sharing(alone, 1)
    for number in range(10):
        publish(alone, 1, 2, ledger=Ledger(2000 + number, 0, 1))
    assert sum(len(handed(alone)) for _ in range(12)) == 10


def test_shared_subscriptions_are_shared_by_equal_ones_only() -> None:
    alone = Alone()
    one, first = sharing(alone, 1)
    two = Client(alone, 2)
    two.open("")
    assert two.subscribe("shared", NEWS, flags=SHARED) is Reason.CONSUMER_ACTIVE
    assert two.subscribe("shared", selector="a > 1", flags=SHARED) is Reason.CONSUMER_ACTIVE
    assert two.unsubscribe("shared") is Reason.CONSUMER_ACTIVE
    assert two.subscribe("other", flags=SHARED | SubscriptionFlag.NO_LOCAL) is Reason.NOT_OFFERED
    assert two.subscribe("other", flags=SubscriptionFlag.SHARED | SubscriptionFlag.NO_LOCAL) is Reason.NOT_OFFERED
    assert two.subscribe("other", flags=SubscriptionFlag(0)) is Reason.NOT_OFFERED
    named = Client(alone, 3)
    named.open("client")
    assert named.subscribe("name") is Reason.GRANTED
    assert named.subscribe("name", flags=SHARED) is Reason.OTHER_KIND
    one.close(first)
    assert two.subscribe("shared", NEWS, flags=SHARED) is Reason.GRANTED  # another topic makes it new
    two.close(two.sent)
    assert two.unsubscribe("shared") is Reason.GRANTED


def test_consumers_of_a_shared_subscription_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "SHARED_CONSUMERS_MAX", 2)
    alone = Alone()
    sharing(alone, 1)
    sharing(alone, 2)
    third = Client(alone, 3)
    third.open("")
    assert third.subscribe("shared", flags=SHARED) is Reason.TOO_MANY_CONSUMERS


def test_what_is_held_survives_as_bytes() -> None:
    alone = Alone()
    client, consumer = sharing(alone, 1)
    publish(alone, 1, 10)
    handed(alone)
    give_back(client, consumer, 4, 6)
    state = alone.cell.clients.state
    data = encode_state(state)
    back = decode_state(data)
    assert back is not None
    assert encode_state(back) == data
    assert len(back.shared_cursors()) == 1
    (cursor,) = back.cursors.values()
    assert cursor.again_within(WRITER, 1, 20) == [(4, 7)]
    for end in range(len(data)):
        assert decode_state(data[:end]) is None
