"""Tests of delayed messages: the manager hands them out when they are due, those of unshared subscriptions too."""

import pytest
from serving_cells import Alone
from serving_clients import NEWS, ORDERS, Client, kept, publish

from fjm2.base.ledger import DELAYED_LANE, Ledger
from fjm2.cell.outgoing import Decided
from fjm2.cell.service import cursors
from fjm2.cell.service.hands import PORTION
from fjm2.cell.service.reasons import Reason
from fjm2.cell.service.state_codec import decode_state, encode_state
from fjm2.cell.times import SESSION_LEASE_S
from fjm2.cell.wire.catch_up import CatchUpPage, CatchUpQuery
from fjm2.cell.wire.ranges import Range
from fjm2.cell.wire.records import HandRecord
from fjm2.cell.wire.requests import Place, Return, SubscriptionFlag

LATER = Ledger(900, 0, 1 + DELAYED_LANE)
SHARED = SubscriptionFlag.DURABLE | SubscriptionFlag.SHARED


def subscribed(alone: Alone, number: int = 1, flags: int = SubscriptionFlag.DURABLE) -> tuple[Client, int]:
    """Return a client that has a consumer, and the consumer's number."""
    client = Client(alone, number)
    assert client.open("" if flags & SubscriptionFlag.SHARED else f"client {number}") is Reason.GRANTED
    assert client.subscribe(flags=flags) is Reason.GRANTED
    return client, client.sent


def delay(alone: Alone, first: int, *delays_s: float, place: Place = ORDERS) -> None:
    """Let delayed messages come."""
    times_ms = [int((alone.now + each) * 1000) for each in delays_s]
    alone.cell.clients.note_delivery_times(LATER, first, times_ms)
    publish(alone, first, len(delays_s), place, LATER)


def handed(alone: Alone, seconds: float = 0.2) -> list[tuple[int, int, int, int]]:
    """Let time go by. Return session, first and last sequence, and deliveries of all that was handed out since the last
    call."""
    alone.run(seconds)
    found = [
        (hand.session, hand.range.first, hand.range.last, hand.range.deliveries)
        for event in alone.events
        if isinstance(event, Decided)
        for record in event.records
        if isinstance(record, HandRecord)
        for hand in record.hands
    ]
    alone.events.clear()
    return found


def test_nothing_is_handed_out_before_it_is_due() -> None:
    alone = Alone()
    client, _ = subscribed(alone)
    delay(alone, 1, 2.0, 1.0, 1.0, 2.0)
    assert handed(alone, 0.8) == []
    assert handed(alone, 0.5) == [(client.session, 2, 3, 0)]
    client.renew()
    assert handed(alone, 1.0) == [(client.session, 1, 1, 0), (client.session, 4, 4, 0)]


def test_nothing_is_handed_out_of_a_ledger_that_may_have_messages_which_are_not_due() -> None:
    """A portion has the numbers before its message as well, and what was counted too early may not be due."""
    alone = Alone()
    client, _ = subscribed(alone)
    alone.cell.receive_counted(LATER, 1, 1, 60, alone.now)
    alone.cell.replica.ledgers.doubts.add(LATER, [(1, 2)], is_hearsay=True)
    delay(alone, 2, 0.1)
    assert handed(alone, 0.3) == []
    alone.cell.replica.ledgers.doubts.resolve(LATER, 1, 2)
    assert handed(alone, 0.3) == [(client.session, 1, 2, 0)]


def test_what_is_not_delayed_is_not_handed_out_to_unshared_ones() -> None:
    alone = Alone()
    subscribed(alone)
    publish(alone, 1, 5)
    assert handed(alone) == []


def test_only_what_was_handed_out_is_acknowledged() -> None:
    alone = Alone()
    client, consumer = subscribed(alone)
    delay(alone, 1, 0.5, 10.0)
    assert client.ack(consumer, 1, 1, LATER) is Reason.NOT_HELD
    assert handed(alone, 1.0) == [(client.session, 1, 1, 0)]
    assert client.ack(consumer, 1, 2, LATER) is Reason.NOT_HELD
    assert client.ack(consumer, 1, 1, LATER) is Reason.GRANTED
    assert kept(alone, ledger=LATER) == [(2, 2)]
    assert client.ack(consumer, 1, 1, LATER) is Reason.NOT_HELD


@pytest.mark.parametrize("ending", ["close", "lapse", "give back"])
def test_what_comes_back_is_handed_out_again_and_flagged(ending: str) -> None:
    alone = Alone()
    client, consumer = subscribed(alone)
    delay(alone, 1, 0.5)
    assert len(handed(alone, 1.0)) == 1
    match ending:
        case "close":
            client.close(consumer)
            assert handed(alone) == []
            assert client.subscribe() is Reason.GRANTED
        case "lapse":
            alone.run(SESSION_LEASE_S + 1.0)
            assert client.open("client 1") is Reason.GRANTED
            assert client.subscribe() is Reason.GRANTED
        case _:
            assert client.ask(Return(client.session, (Range(LATER, 1, 1, consumer),))) is Reason.GRANTED
    assert handed(alone) == [(client.session, 1, 1, 1)]


def test_a_consumer_gets_no_more_than_its_credit() -> None:
    alone = Alone()
    subscribed(alone)
    delay(alone, 1, *[0.1] * 1000)
    hands = handed(alone, 1.0)
    assert sum(last - first + 1 for _, first, last, _ in hands) == 256
    assert all(last - first < PORTION for _, first, last, _ in hands)


def test_each_subscription_gets_a_message_and_shared_ones_once() -> None:
    alone = Alone()
    one, _ = subscribed(alone, 1)
    two, _ = subscribed(alone, 2)
    three, _ = subscribed(alone, 3, SHARED)
    four, _ = subscribed(alone, 4, SHARED)
    delay(alone, 1, 0.1)
    sessions = {session for session, *_ in handed(alone, 0.5)}
    assert {one.session, two.session} < sessions
    assert len(sessions & {three.session, four.session}) == 1


def test_cursors_stay_whole_whatever_else_is_in_the_ledger() -> None:
    """Messages to others are handed out with the one behind them, but never one that is not due."""
    alone = Alone()
    client, consumer = subscribed(alone)
    for first in range(1, 41, 4):
        delay(alone, first, 0.1, place=NEWS)
        delay(alone, first + 1, 1.0 if first % 8 == 1 else 0.1)
        delay(alone, first + 2, 0.1)
        delay(alone, first + 3, 0.1, place=NEWS)
    while hands := handed(alone, 0.5):
        for _, first, last, _ in hands:
            assert client.ack(consumer, first, last, LATER) is Reason.GRANTED
    assert not kept(alone, ledger=LATER)
    (cursor,) = alone.cell.clients.state.cursors.values()
    assert [list(acked) for _, acked in cursor.acknowledged() if _ == LATER] == [[(1, 40)]]


def test_acknowledgements_may_be_scattered_more_widely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "CURSOR_RANGES_MAX", 2)
    monkeypatch.setattr(cursors, "HANDED_RANGES_MAX", 4)
    alone = Alone()
    client, consumer = subscribed(alone)
    delay(alone, 1, *[60.0 if number % 2 else 0.1 for number in range(1, 21)])
    handed(alone, 0.5)
    granted = [client.ack(consumer, number, number, LATER) for number in range(2, 21, 2)]
    assert granted == [Reason.GRANTED] * 4 + [Reason.TOO_SCATTERED] * 6


def test_a_page_names_only_what_is_handed_out() -> None:
    alone = Alone()
    client, consumer = subscribed(alone)
    delay(alone, 1, 0.1, 10.0)
    handed(alone, 0.5)
    query = CatchUpQuery(
        is_exact=True,
        reply_to=50,
        keeper_node=1,
        consumer=consumer,
        cell_id=alone.cell.cell_id,
        session=client.session,
        ledger=LATER,
        first=1,
    )
    alone.forget()
    alone.cell.receive(query.encode(), 50, alone.now)
    alone.settle()
    (page,) = alone.sent_of(CatchUpPage)
    assert (page.spans, page.through) == (((1, 1),), 1)


def test_a_new_subscription_gets_nothing_that_was_sent_before() -> None:
    alone = Alone()
    subscribed(alone, 1)
    delay(alone, 1, 0.5)
    two, _ = subscribed(alone, 2)
    delay(alone, 2, 0.5)
    assert {first for session, first, *_ in handed(alone, 1.0) if session == two.session} == {2}


def test_unsubscribing_forgets_delivery_times() -> None:
    alone = Alone()
    client, consumer = subscribed(alone)
    delay(alone, 1, *[60.0] * 10)
    times = alone.cell.clients.backlog.due_times
    assert times.waiting == 10
    client.close(consumer)
    assert client.unsubscribe() is Reason.GRANTED
    assert times.waiting == 0


def test_the_clock_of_the_host_counts() -> None:
    alone = Alone()
    subscribed(alone)
    delay(alone, 1, 3600.0)
    assert handed(alone, 1.0) == []
    alone.cell.clients.set_wall_offset(3600.0)
    assert len(handed(alone, 0.5)) == 1


def test_what_is_held_survives_as_bytes() -> None:
    alone = Alone()
    subscribed(alone)
    delay(alone, 1, 0.1, 10.0)
    handed(alone, 0.5)
    data = encode_state(alone.cell.clients.state)
    back = decode_state(data)
    assert back is not None
    assert encode_state(back) == data
