"""Tests of durable subscriptions: who may subscribe, what is kept for them, and what is released."""

import pytest
from serving_cells import Alone
from serving_clients import NEWS, ORDERS, WRITER, Client, kept, publish

from fjm2.base.ledger import Ledger
from fjm2.cell.outgoing import Released, Replay, TableChanged
from fjm2.cell.service import cursors, judge
from fjm2.cell.service.pages import PAGE_MESSAGES_MAX
from fjm2.cell.service.reasons import Reason
from fjm2.cell.wire.catch_up import PAGE_SPANS_MAX, CatchUpPage, CatchUpQuery
from fjm2.cell.wire.ranges import Position, Range
from fjm2.cell.wire.records import CloseRecord, FenceRecord, Subscription, TableRecord, TimeRecord
from fjm2.cell.wire.requests import (
    Ack,
    Close,
    Place,
    Subscribe,
    SubscriptionFlag,
    Unsubscribe,
    encode_request,
)

DURABLE = SubscriptionFlag.DURABLE


def opened(client_id: str = "client") -> tuple[Alone, Client]:
    """Return a cell with a client that has a session."""
    alone = Alone()
    client = Client(alone)
    assert client.open(client_id) is Reason.GRANTED
    return alone, client


def subscribed() -> tuple[Alone, Client, int]:
    """Return a cell with a client that has a durable consumer."""
    alone, client = opened()
    assert client.subscribe() is Reason.GRANTED
    consumer = client.sent
    alone.forget()
    return alone, client, consumer


def released(alone: Alone) -> list[tuple[int, int]]:
    """Return what the store may give up."""
    return [each for event in alone.events if isinstance(event, Released) for each in event.ranges]


def tables(alone: Alone) -> list[tuple[int, bool]]:
    return [(event.version, event.is_added) for event in alone.events if isinstance(event, TableChanged)]


def page(alone: Alone, client: Client, consumer: int, **changes: object) -> CatchUpPage | None:
    """Ask for a page."""
    alone.forget()
    fields = {
        "is_exact": True,
        "reply_to": 50,
        "keeper_node": 1,
        "consumer": consumer,
        "cell_id": alone.cell.cell_id,
        "session": client.session,
        "ledger": WRITER,
        "first": 1,
    }
    alone.cell.receive(CatchUpQuery(**{**fields, **changes}).encode(), 50, alone.now)  # type: ignore[arg-type]
    alone.settle()
    found = alone.sent_of(CatchUpPage)
    return found[0] if found else None


# Subscribing


def test_a_durable_subscription_needs_a_client_id_a_name_and_a_topic() -> None:
    alone, client = opened("")
    assert client.subscribe() is Reason.NO_CLIENT_ID
    client.session += 100
    assert client.open("a") is Reason.GRANTED
    assert client.subscribe("") is Reason.NO_NAME
    assert client.subscribe("x", Place(32, "a queue")) is Reason.INVALID_DESTINATION
    assert client.subscribe("x", Place(64, "temporary")) is Reason.INVALID_DESTINATION
    assert client.subscribe("x", Place(0, "")) is Reason.INVALID_DESTINATION
    assert client.subscribe("x" * 1025) is Reason.TEXT_TOO_LONG
    assert client.subscribe("x", selector="y" * 16_385) is Reason.TEXT_TOO_LONG
    assert client.subscribe("x", flags=0) is Reason.NOT_OFFERED
    assert not tables(alone)
    assert client.subscribe("x" * 128) is Reason.GRANTED
    assert tables(alone) == [(1, True)]


def test_a_durable_subscription_has_one_active_consumer() -> None:
    alone, client, consumer = subscribed()
    assert client.subscribe() is Reason.CONSUMER_ACTIVE
    assert client.subscribe(place=NEWS) is Reason.CONSUMER_ACTIVE
    assert client.unsubscribe() is Reason.CONSUMER_ACTIVE
    assert not tables(alone)
    assert client.close(consumer) is Reason.GRANTED
    assert client.close(consumer) is Reason.NO_CONSUMER
    assert client.subscribe() is Reason.GRANTED
    assert not tables(alone)  # it goes on where it was


def test_a_late_copy_of_what_was_counted_is_no_message() -> None:
    """No keeper could send it to the consumer, which would wait for it without end."""
    alone, client = opened()
    alone.cell.receive_counted(WRITER, 1, 3, 60, alone.now)
    alone.settle()
    assert client.subscribe() is Reason.GRANTED
    publish(alone, 2, 4)
    assert kept(alone) == [(4, 5)]
    alone.cell.receive_counted(WRITER, 6, 2, 60, alone.now)  # not on disk yet
    publish(alone, 6, 3)
    assert kept(alone) == [(4, 5), (8, 8)]
    publish(alone, 3, 6)
    assert kept(alone) == [(4, 5), (8, 8)]


def test_a_late_copy_of_what_was_counted_too_early_is_a_message() -> None:
    alone = Alone()
    alone.cell.receive_counted(WRITER, 1, 3, 60, alone.now)
    alone.settle()
    alone.decide(TableRecord(1, True, Subscription(DURABLE, ORDERS, "client", "name", ""), ()))
    alone.cell.replica.ledgers.doubts.add(WRITER, [(2, 3)])
    publish(alone, 1, 3)
    assert kept(alone) == [(2, 2)]


def test_nothing_is_given_up_that_a_subscription_in_the_log_asks_for() -> None:
    """It begins before messages that came while it was being decided."""
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    assert client.close(consumer) is Reason.GRANTED
    alone.forget()
    old = TableRecord(2, False, Subscription(DURABLE, ORDERS, "client", "name", ""), ())
    new = TableRecord(3, True, Subscription(DURABLE, ORDERS, "client", "other", ""), (Position(WRITER, 2),))
    replica = alone.cell.replica
    replica.propose(replica.log.last_epoch, (old,), alone.now)
    last = replica.propose(replica.log.last_epoch, (new,), alone.now)
    replica.handle_synced(alone.store.lsn)
    replica.commit(last - 1, alone.now)
    alone.cell.clients.advance()
    assert kept(alone) == [(1, 3)]
    alone.cell.handle_timeout(alone.now + 1.0)
    alone.settle()
    assert released(alone) == [(1, 1)]


def test_messages_that_the_store_has_no_room_for_are_none() -> None:
    alone, _, _ = subscribed()
    alone.store.is_full = True
    publish(alone, 1, 2)
    assert kept(alone) == []


def test_two_sessions_do_not_hold_one_durable_subscription() -> None:
    alone, client, _ = subscribed()
    client.session += 100
    assert client.open() is Reason.GRANTED
    assert client.subscribe() is Reason.CONSUMER_ACTIVE
    client.session -= 100
    assert client.close() is Reason.GRANTED
    client.session += 100
    assert client.subscribe() is Reason.GRANTED
    (cursor,) = alone.cell.clients.state.cursors.values()
    assert [key.session for key in cursor.consumers] == [client.session]


@pytest.mark.parametrize(
    "changes",
    [{"place": NEWS}, {"selector": "a > 1"}, {"flags": DURABLE | SubscriptionFlag.NO_LOCAL}],
)
def test_another_topic_selector_or_no_local_makes_it_new(changes: dict[str, object]) -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    client.close(consumer)
    alone.forget()
    assert client.subscribe(**changes) is Reason.GRANTED  # type: ignore[arg-type]
    assert tables(alone) == [(2, False), (3, True)]
    assert not kept(alone)
    assert released(alone) == [(1, 3)]
    (added,) = (event for event in alone.events if isinstance(event, TableChanged) and event.is_added)
    assert Position(WRITER, 4) in added.starts


def test_unsubscribing() -> None:
    alone, client, consumer = subscribed()
    assert client.unsubscribe("other") is Reason.NO_SUBSCRIPTION
    publish(alone, 1, 5)
    client.close(consumer)
    assert client.unsubscribe() is Reason.GRANTED
    assert tables(alone) == [(2, False)]
    assert released(alone) == [(1, 5)]
    assert client.unsubscribe() is Reason.NO_SUBSCRIPTION
    publish(alone, 6)
    assert not kept(alone)  # nobody wants them any more


def test_names_belong_to_a_client_id() -> None:
    alone, _, _ = subscribed()
    other = Client(alone, 2)
    other.open("other")
    assert other.unsubscribe() is Reason.NO_SUBSCRIPTION
    assert other.subscribe() is Reason.GRANTED
    assert len(alone.cell.clients.state.cursors) == 2


def test_several_requests_in_one_turn_are_decided_in_their_order() -> None:
    """The table changes between them, so that the entry has several APPLY records of one ledger."""
    alone, client = opened()
    cell = alone.cell
    requests = [
        Subscribe(client.session, DURABLE, 1, ORDERS, "x", ""),
        Close(client.session, (2,)),
        Unsubscribe(client.session, "x"),
        Subscribe(client.session, DURABLE, 1, NEWS, "x", ""),
        Subscribe(client.session, DURABLE, 1, NEWS, "x", ""),
    ]
    for at, request in enumerate(requests, 2):
        body = encode_request(request)
        cell.receive_frames(client.ledger, at, (body,), 50, alone.now)
        cell.clients.receive_request(client.ledger, at, body)
    alone.settle()
    assert [client.verdict(at) for at in range(2, 7)] == [Reason.GRANTED] * 4 + [Reason.CONSUMER_ACTIVE]
    assert tables(alone) == [(1, True), (2, False), (3, True)]
    (cursor,) = cell.clients.state.cursors.values()
    assert [key.number for key in cursor.consumers] == [5]


def test_subscriptions_and_consumers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "CLIENT_SUBSCRIPTIONS_MAX", 2)
    monkeypatch.setattr(judge, "DESTINATION_SUBSCRIPTIONS_MAX", 3)
    monkeypatch.setattr(judge, "SUBSCRIPTIONS_MAX", 4)
    alone, client = opened()
    full = Reason.TOO_MANY_SUBSCRIPTIONS
    assert [client.subscribe(name) for name in "abc"] == [Reason.GRANTED, Reason.GRANTED, full]
    other = Client(alone, 2)
    other.open("other")
    assert [other.subscribe(name) for name in "ab"] == [Reason.GRANTED, full]
    assert other.subscribe("b", NEWS) is Reason.GRANTED
    third = Client(alone, 3)
    third.open("third")
    assert third.subscribe("a", Place(0, "third")) is full
    monkeypatch.setattr(judge, "CONSUMERS_MAX", 2)
    assert client.subscribe("a") is Reason.TOO_MANY_CONSUMERS


# Keeping and releasing


def test_messages_are_kept_until_they_are_acknowledged() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 10)
    publish(alone, 11, 5, NEWS)
    assert kept(alone) == [(1, 10)]
    assert client.ack(consumer, 1, 4) is Reason.GRANTED
    assert released(alone) == [(1, 4)]
    assert kept(alone) == [(5, 10)]
    assert client.ack(consumer, 1, 15) is Reason.GRANTED  # what has been acknowledged, and what is for others
    assert kept(alone) == []
    (cursor,) = alone.cell.clients.state.cursors.values()
    assert [(ledger, list(ranges)) for ledger, ranges in cursor.acknowledged() if ledger == WRITER] == [
        (WRITER, [(1, 16)])
    ]


def test_messages_are_kept_until_all_subscriptions_have_acknowledged_them() -> None:
    alone, first, one = subscribed()
    second = Client(alone, 2)
    second.open("second")
    second.subscribe()
    two = second.sent
    publish(alone, 1, 10)
    assert first.ack(one, 1, 10) is Reason.GRANTED
    assert not released(alone)
    assert second.ack(two, 3, 5) is Reason.GRANTED
    assert released(alone) == [(3, 5)]
    second.close(two)
    assert second.unsubscribe() is Reason.GRANTED
    assert released(alone) == [(3, 5), (1, 2), (6, 10)]


def test_a_message_that_comes_after_its_acknowledgement_is_released_at_once() -> None:
    """Another keeper had it first. This one learns of it when it fetches it."""
    alone, client, consumer = subscribed()
    alone.cell.receive_frames(WRITER, 1, (b"m",) * 3, 60, alone.now)
    alone.settle()
    assert client.ack(consumer, 1, 3) is Reason.GRANTED
    alone.cell.clients.note_messages(ORDERS.frame_hash, WRITER, 1, 3)
    alone.run(0.1)
    assert released(alone) == [(1, 3)]


def test_a_new_subscription_gets_nothing_from_before() -> None:
    alone, client = opened()
    publish(alone, 1, 5)
    client.subscribe()
    consumer = client.sent
    publish(alone, 6, 2)
    found = page(alone, client, consumer)
    assert found is not None
    assert found.spans == ((6, 7),)


def test_a_new_subscription_gets_nothing_of_closed_ledgers_that_others_still_need() -> None:
    alone, first, _ = subscribed()
    publish(alone, 1, 5)
    alone.decide(FenceRecord(WRITER))
    alone.run(0.1)
    assert alone.cell.replica.ledgers.is_closed(WRITER)
    second = Client(alone, 2)
    second.open("second")
    second.subscribe()
    found = page(alone, second, second.sent)
    assert found is not None
    assert (found.spans, found.next_ledger) == ((), None)
    found = page(alone, first, 2)
    assert found is not None
    assert (found.ledger, found.spans) == (WRITER, ((1, 5),))


def test_acknowledgements_name_a_consumer_of_the_session() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    assert client.ack(consumer + 1, 1, 3) is Reason.NO_CONSUMER
    other = Client(alone, 2)
    other.open("other")
    assert other.ack(consumer, 1, 3) is Reason.NO_CONSUMER
    other.session = client.session
    assert other.ack(consumer, 1, 3) is Reason.NO_SESSION
    assert kept(alone) == [(1, 3)]


def test_an_acknowledgement_is_all_or_nothing() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    ranges = (Range(WRITER, 1, 1, consumer), Range(WRITER, 2, 1, consumer + 1))
    assert client.ask(Ack(client.session, ranges)) is Reason.NO_CONSUMER
    assert kept(alone) == [(1, 3)]
    many = tuple(Range(WRITER, 1, 1, consumer) for _ in range(judge.ACK_RANGES_MAX + 1))
    assert client.ask(Ack(client.session, many)) is Reason.TOO_MANY_RANGES


def test_an_acknowledgement_waits_a_second_for_its_messages() -> None:
    """A subscriber may hear a message before the manager. What never comes is refused: it would be lost otherwise."""
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    assert client.ack(consumer, 1, 5) is None
    publish(alone, 4, 2)
    assert client.verdict(client.sent) is Reason.GRANTED
    assert client.ack(consumer, 1, 9) is None
    for _ in range(9):
        alone.run(0.1)
        assert client.verdict(client.sent) is None
    alone.run(0.11)
    assert client.verdict(client.sent) is Reason.UNKNOWN_MESSAGES
    publish(alone, 6, 4)
    assert kept(alone) == [(6, 9)]


def test_messages_that_came_to_a_full_store_can_be_acknowledged() -> None:
    """Their acknowledgement may name others, too, and so be what makes room for them."""
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    alone.store.is_full = True
    publish(alone, 4, 2)
    assert kept(alone) == [(1, 3)]
    alone.store.is_full = False
    assert client.ack(consumer, 1, 5) is Reason.GRANTED
    publish(alone, 4, 2)  # the keeper has held them meanwhile
    assert not kept(alone)
    assert client.ack(consumer, 6, 6) is None  # it never came


def test_scattered_acknowledgements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "CURSOR_RANGES_MAX", 3)
    alone, client, consumer = subscribed()
    publish(alone, 1, 20)
    for sequence in (2, 4, 6):
        assert client.ack(consumer, sequence, sequence) is Reason.GRANTED
    assert client.ack(consumer, 8, 8) is Reason.TOO_SCATTERED
    assert client.ack(consumer, 5, 5) is Reason.GRANTED
    assert client.ack(consumer, 8, 8) is Reason.GRANTED


def test_the_end_of_a_session_keeps_the_subscription_and_its_cursor() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 5)
    client.ack(consumer, 1, 2)
    for _ in range(40):
        alone.run(0.1)
    assert not alone.cell.clients.state.sessions
    assert client.ack(consumer, 3, 5) is Reason.NO_SESSION
    client.open()
    assert client.subscribe() is Reason.GRANTED
    found = page(alone, client, client.sent)
    assert found is not None
    assert (found.ledger, found.first, found.through, found.acknowledged) == (WRITER, 1, 5, 2)
    assert found.spans == ((3, 5),)


# Catching up


def test_a_page_names_what_is_not_acknowledged_and_has_it_sent() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    publish(alone, 4, 2, NEWS)
    publish(alone, 6, 3)
    client.ack(consumer, 1, 1)
    found = page(alone, client, consumer)
    assert found is not None
    assert (found.first, found.through, found.spans, found.next_ledger) == (1, 8, ((2, 3), (6, 8)), None)
    ranges = (Range(WRITER, 2, 2), Range(WRITER, 6, 3))
    assert [event for event in alone.events if isinstance(event, Replay)] == [Replay(50, ranges)]


def test_pages_are_bounded_and_follow_each_other() -> None:
    alone, client, consumer = subscribed()
    count = PAGE_MESSAGES_MAX + 10
    publish(alone, 1, count)
    first = page(alone, client, consumer)
    assert first is not None
    assert (first.through, first.spans) == (PAGE_MESSAGES_MAX, ((1, PAGE_MESSAGES_MAX),))
    rest = page(alone, client, consumer, ledger=WRITER, first=first.through + 1)
    assert rest is not None
    assert rest.spans == ((PAGE_MESSAGES_MAX + 1, count),)


def test_pages_of_scattered_messages_are_bounded_and_follow_each_other() -> None:
    alone, client, consumer = subscribed()
    count = PAGE_SPANS_MAX + 5
    for at in range(count):
        publish(alone, 1 + 2 * at, 1)
        publish(alone, 2 + 2 * at, 1, NEWS)
    first = page(alone, client, consumer)
    assert first is not None
    assert len(first.spans) == PAGE_SPANS_MAX
    rest = page(alone, client, consumer, ledger=WRITER, first=first.through + 1)
    assert rest is not None
    assert [*first.spans, *rest.spans] == [(1 + 2 * at, 1 + 2 * at) for at in range(count)]


def test_a_page_decides_about_nothing_behind_a_hole() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    publish(alone, 5, 2)
    found = page(alone, client, consumer)
    assert found is not None
    assert (found.through, found.spans) == (3, ((1, 3),))


def test_a_page_tells_what_is_acknowledged_beyond_its_end() -> None:
    """A frame that this keeper lacks may have been acknowledged: a late copy of it is not to be taken for a new one."""
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    (cursor,) = alone.cell.clients.state.cursors.values()
    cursor.acknowledge(WRITER, 4, 7)
    cursor.acknowledge(WRITER, 9, 11)
    found = page(alone, client, consumer)
    assert found is not None
    assert (found.through, found.spans, found.acknowledged) == (6, ((1, 3),), 10)


def hint(alone: Alone, client: Client, consumer: int, ledger: Ledger) -> CatchUpPage:
    """Ask whether a ledger has messages, or which one behind it."""
    found = page(alone, client, consumer, ledger=ledger, is_exact=False)
    assert found is not None
    assert found.is_hint
    return found


def test_hints_go_from_ledger_to_ledger() -> None:
    alone, client, consumer = subscribed()
    other = WRITER._replace(producer_id=950)
    publish(alone, 1, 2)
    publish(alone, 1, 3, ledger=other)
    first = hint(alone, client, consumer, Ledger(0, 0, 0))
    assert (first.ledger, first.spans, first.next_ledger) == (WRITER, ((2, 2),), other)
    second = hint(alone, client, consumer, other)
    assert (second.ledger, second.spans, second.next_ledger) == (other, ((3, 3),), None)
    exact = page(alone, client, consumer, ledger=Ledger(1, 0, 1))
    assert exact is not None
    assert (exact.ledger, exact.spans, exact.through) == (Ledger(1, 0, 1), (), client.sent)


def test_a_hint_names_the_last_message_that_is_not_acknowledged_and_sends_nothing() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 9)
    (cursor,) = alone.cell.clients.state.cursors.values()
    cursor.acknowledge(WRITER, 7, 10)
    assert hint(alone, client, consumer, WRITER).spans == ((6, 6),)
    assert not any(isinstance(event, Replay) for event in alone.events)
    cursor.acknowledge(WRITER, 1, 7)
    assert hint(alone, client, consumer, WRITER).spans == ()


def test_only_the_keeper_that_is_asked_answers_and_only_a_consumer_that_it_knows() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    assert page(alone, client, consumer, keeper_node=2) is None
    assert page(alone, client, consumer + 1) is None
    assert page(alone, client, consumer, session=1) is None


# Closed ledgers


def test_a_silent_writer_is_closed_but_no_client_with_a_session() -> None:
    alone, client, _ = subscribed()
    publish(alone, 1, 3)
    alone.run(1.0)
    for _ in range(61):
        client.renew()
        alone.run(1.0)
    alone.run(0.1)
    ledgers = alone.cell.replica.ledgers
    assert ledgers.is_closed(WRITER)
    assert not ledgers.is_fenced(client.ledger)
    assert kept(alone) == [(1, 3)]  # closing takes nothing away
    for _ in range(64):
        alone.run(1.0)
    assert ledgers.is_fenced(client.ledger)


def test_what_is_outside_the_final_set_is_not_handed_out() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 5)
    alone.decide(CloseRecord(WRITER, ((1, 3),)))
    assert kept(alone) == [(1, 3)]
    assert released(alone) == [(4, 5)]
    found = page(alone, client, consumer)
    assert found is not None
    assert (found.through, found.spans) == (3, ((1, 3),))


def test_a_closed_ledger_is_forgotten_after_a_week_unless_a_subscription_needs_it() -> None:
    week_ms = 7 * 24 * 3600 * 1000
    other = WRITER._replace(producer_id=950)
    alone, client, consumer = subscribed()
    publish(alone, 1, 5)
    publish(alone, 1, 5, ledger=other)
    alone.decide(TimeRecord(1000), CloseRecord(WRITER, ((1, 5),)), CloseRecord(other, ((1, 5),)))
    client.ack(consumer, 1, 5)
    client.ack(consumer, 1, 3, other)
    alone.decide(TimeRecord(1000 + week_ms - 1))
    (cursor,) = alone.cell.clients.state.cursors.values()
    assert WRITER in cursor
    alone.decide(TimeRecord(1001 + week_ms))
    ledgers = alone.cell.replica.ledgers
    assert WRITER not in cursor
    assert WRITER not in ledgers
    assert other in cursor
    found = page(alone, client, consumer, ledger=other)
    assert found is not None
    assert (found.ledger, found.spans) == (other, ((4, 5),))
    client.ack(consumer, 4, 5, other)
    alone.decide(TimeRecord(1001 + 2 * week_ms))
    assert other not in cursor
    assert not alone.cell.clients.state.closed
    alone.decide(TimeRecord(1002 + 2 * week_ms))
    assert other not in ledgers
