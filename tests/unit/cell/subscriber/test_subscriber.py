"""Tests of a connection's sessions and consumers at a real cell of one."""

import pytest
from serving_cells import Alone
from subscribed_cells import ORDERS, SHARED, WRITERS, Connection

from fjm2.cell.service import judge
from fjm2.cell.service.pages import PAGE_MESSAGES_MAX
from fjm2.cell.service.reasons import Reason
from fjm2.cell.subscriber import held_frames, request_line, session
from fjm2.cell.subscriber.discovery import REST_S
from fjm2.cell.subscriber.outgoing import (
    ConsumerClosed,
    ConsumerReady,
    ConsumerRefused,
    Deliver,
    ListenToReplays,
    Loss,
    SendLeases,
    SendRequest,
    SessionClosed,
    SessionLost,
    SessionRefused,
)
from fjm2.cell.times import SESSION_LEASE_S
from fjm2.cell.wire.catch_up import CatchUpPage
from fjm2.cell.wire.ranges import Range
from fjm2.cell.wire.records import CloseRecord, FenceRecord, Hand, HandRecord, ReturnRecord
from fjm2.cell.wire.requests import Ack, Close, Open, Subscribe, SubscriptionFlag

DURABLE = SubscriptionFlag.DURABLE
ROOM_MAX = 100_000


@pytest.fixture
def alone() -> Alone:
    return Alone()


@pytest.fixture
def connection(alone: Alone) -> Connection:
    return Connection(alone)


def live(connection: Connection, room: int = ROOM_MAX, mode: int = 2) -> tuple[int, int]:
    """Return a session and a consumer that hears a writer in order."""
    number = connection.open(mode=mode)
    consumer = connection.subscribe(number, room=room)
    connection.hear(*connection.publish(True))
    connection.run_all(1.0)
    connection.told.clear()
    return number, consumer


# Delivering


def test_a_run_that_is_heard_in_order_is_passed_on_as_it_is(connection: Connection) -> None:
    live(connection)
    frames = [b"frame"] * 64
    connection.subscriber.receive_frames(ORDERS.frame_hash, WRITERS[0], 2, frames, connection.alone.now)
    event = connection.subscriber.poll_event()
    assert isinstance(event, Deliver)
    assert event.frames is frames
    assert (event.ledger, event.first, event.is_redelivered) == (WRITERS[0], 2, False)
    assert connection.subscriber.held_bytes == 0


def test_without_room_nothing_is_kept_and_everything_comes_later(connection: Connection) -> None:
    _, consumer = live(connection)
    connection.room(consumer, 0)
    for _ in range(50):
        connection.hear(*connection.publish(*[True] * 20))
    assert connection.subscriber.held_bytes == 0
    assert connection.got() == [1]
    connection.run_all(1.0)
    assert connection.got() == [1]
    connection.room(consumer, ROOM_MAX)
    connection.run_all(5.0)
    assert connection.got() == list(range(1, 1002))
    assert connection.told_of(ListenToReplays)


def behind(connection: Connection, messages: int, room: int) -> int:
    """Return a consumer that has all messages to catch up with, and room for some."""
    consumer = connection.subscribe(connection.open(), room=0)
    connection.publish(*[True] * messages)
    connection.room(consumer, room)
    return consumer


def test_what_was_asked_for_and_came_without_room_is_not_asked_for_again(connection: Connection) -> None:
    consumer = behind(connection, 100, 30)
    connection.run_all(0.5)
    assert connection.got() == list(range(1, 31))
    connection.queries.clear()
    for _ in range(3):
        connection.room(consumer, 30)
    assert connection.got() == list(range(1, 101))
    assert connection.queries == []
    assert connection.subscriber.held_bytes == 0


def test_what_comes_without_room_takes_bounded_memory(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2.cell.subscriber.context.HELD_BYTES_MAX", 100)
    consumer = behind(connection, 100, 10)
    connection.run_all(0.5)
    assert connection.got() == list(range(1, 11))
    assert 0 < connection.subscriber.held_bytes <= 100
    connection.room(consumer, 1000)
    connection.run_all(2.0)
    assert connection.got() == list(range(1, 101))


def test_no_page_is_asked_for_without_room_for_all_of_it(connection: Connection) -> None:
    page = PAGE_MESSAGES_MAX
    consumer = behind(connection, 3 * page, 2 * page - 1)
    connection.run(0.5)
    connection.packets.pop(0)()  # the first page, whose frames wait
    connection.flush()
    assert [query.first for query in connection.queries if query.is_exact] == [1]
    connection.come()
    connection.room(consumer, 3 * page)
    connection.run_all(1.0)
    assert connection.got() == list(range(1, 3 * page + 1))


def test_the_owner_is_to_hear_replays_for_some_time_after_each_question(connection: Connection) -> None:
    behind(connection, 3 * PAGE_MESSAGES_MAX, ROOM_MAX)
    connection.run_all(1.0)
    assert connection.got() == list(range(1, 3 * PAGE_MESSAGES_MAX + 1))
    questions = [query for query in connection.queries if query.is_exact]
    assert len(connection.told_of(ListenToReplays)) == len(questions) >= 3


def test_frames_behind_a_gap_take_bounded_memory(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2.cell.subscriber.context.HELD_BYTES_MAX", 3000)
    live(connection)
    for _ in range(5):
        connection.publish(True)
    for first in range(8, 8 + 2 * held_frames.AHEAD_MAX, 100):
        frames = [bytes(100)] * 100
        connection.subscriber.receive_frames(ORDERS.frame_hash, WRITERS[0], first, frames, connection.alone.now)
        assert connection.subscriber.held_bytes <= 3000
    assert connection.subscriber.held_bytes


def test_what_an_earlier_consumer_may_have_got_is_flagged(alone: Alone, connection: Connection) -> None:
    number, consumer = live(connection)
    connection.acknowledge(consumer, 1, 1)
    connection.hear(*connection.publish(True, True))
    connection.run(0.5)
    connection.subscriber.close_session(number, alone.now)
    connection.run(0.5)
    assert SessionClosed(number) in connection.told
    connection.publish(True)
    again = connection.open()
    connection.subscribe(again)
    connection.run_all(1.0)
    connection.hear(*connection.publish(True))
    flags = [(sequence, is_again) for _, sequence, _, is_again in connection.delivered]
    assert flags == [(1, False), (2, False), (3, False), (2, True), (3, True), (4, True), (5, False)]


def told(
    connection: Connection,
    session: int,
    consumer: int,
    first: int,
    through: int,
    *spans: tuple[int, int],
    is_hint: bool = False,
    is_final: bool = False,
) -> None:
    """Let a page come, of a keeper that knows of 3 acknowledged messages."""
    page = CatchUpPage(
        is_hint=is_hint,
        reply_to=connection.node,
        consumer=connection.subscriber.number_of(consumer),
        cell_id=connection.alone.cell.cell_id,
        session=session,
        ledger=WRITERS[0],
        first=first,
        through=through,
        acknowledged=3,
        is_final=is_final,
        older_ledger=None,
        next_ledger=None,
        spans=spans,
    )
    connection.subscriber.receive_command(page.encode(), 1, connection.alone.now)
    connection.flush()


def test_what_was_acknowledged_out_of_order_is_not_taken_as_it_is_heard(connection: Connection) -> None:
    number = connection.open()
    consumer = connection.subscribe(number)
    place = connection.publish(*[True] * 5)
    connection.hear(*place)
    told(connection, number, consumer, 1, 0)
    connection.hear(*place)
    assert connection.got() == []
    told(connection, number, consumer, 1, 3, (1, 2))
    assert connection.got() == [1, 2, 4, 5]


def test_a_page_about_what_is_known_adds_only_what_is_new(connection: Connection) -> None:
    number = connection.open()
    consumer = connection.subscribe(number)
    place = connection.publish(*[True] * 9)
    told(connection, number, consumer, 1, 4, (1, 4))
    connection.hear(place[0], 1, 2)
    told(connection, number, consumer, 1, 6, (1, 6))
    for _ in range(3):
        connection.hear(*place)
    assert connection.got() == list(range(1, 10))


def asked(connection: Connection) -> set[bool]:
    """Let time go by, and return the kinds of questions that were asked: True for messages, False for a search."""
    connection.run_all(REST_S + 1.0)
    return {query.is_exact for query in connection.queries}


def test_a_page_that_comes_late_draws_no_question(connection: Connection) -> None:
    number, consumer = live(connection)
    connection.hear(*connection.publish(*[True] * PAGE_MESSAGES_MAX))
    connection.queries.clear()
    told(connection, number, consumer, 1, PAGE_MESSAGES_MAX, (1, PAGE_MESSAGES_MAX))
    assert asked(connection) == {False}
    assert connection.got() == list(range(1, PAGE_MESSAGES_MAX + 2))


@pytest.mark.parametrize("runs", [1, 2])
def test_what_a_page_had_no_room_for_is_not_asked_for_when_it_is_heard(connection: Connection, runs: int) -> None:
    number, consumer = live(connection)
    first, last = 2, PAGE_MESSAGES_MAX + 1
    told(connection, number, consumer, first, last, (first, last))
    connection.queries.clear()
    place = connection.publish(*[True] * 2 * PAGE_MESSAGES_MAX)
    count = place[2] // runs
    for at in range(runs):
        connection.hear(place[0], first + at * count, count)
    assert asked(connection) == {False}
    assert connection.got() == list(range(1, 2 * PAGE_MESSAGES_MAX + 2))


def test_a_lost_end_is_found_by_a_search(connection: Connection) -> None:
    live(connection)
    connection.publish(True)
    connection.run_all(REST_S + 1.0)
    assert connection.got() == [1, 2]


def test_a_full_page_that_comes_after_the_end_of_its_ledger_asks_for_nothing(connection: Connection) -> None:
    number = connection.open()
    consumer = connection.subscribe(number)
    place = connection.publish(*[True] * 5)
    told(connection, number, consumer, 1, 5, (5, 5), is_hint=True)
    told(connection, number, consumer, 1, 5, (4, 5), is_final=True)
    connection.hear(*place)
    assert connection.got() == [4, 5]
    told(connection, number, consumer, 1, PAGE_MESSAGES_MAX, (1, PAGE_MESSAGES_MAX))
    connection.run_all(2.0)
    assert connection.got() == [4, 5]


def test_a_plan_that_is_replaced_does_not_bring_back_what_is_decided(connection: Connection) -> None:
    number = connection.open()
    consumer = connection.subscribe(number)
    place = connection.publish(*[True] * 9)
    told(connection, number, consumer, 1, 9, (9, 9), is_hint=True)
    told(connection, number, consumer, 1, 6, (5, 6))
    connection.run(1.0)  # frames 5 and 6 do not come, and are asked for again
    connection.packets.clear()
    told(connection, number, consumer, 5, 7, (5, 5), (7, 7))
    connection.hear(*place)
    assert connection.got() == [5, 7, 8, 9]


# Sessions


def test_leases_are_renewed_to_the_manager(alone: Alone, connection: Connection) -> None:
    number, _ = live(connection)
    connection.run(3 * SESSION_LEASE_S)
    assert number in alone.cell.clients.state.sessions
    connection.subscriber.handle_timeout(alone.now + 1.0)
    leases = connection.subscriber.poll_message()
    assert isinstance(leases, SendLeases)
    assert leases.to_node == 1


def test_a_session_that_lapsed_is_lost(alone: Alone, connection: Connection) -> None:
    number, consumer = live(connection)
    call = connection.acknowledge(consumer, 1, 1)
    alone.decide(ReturnRecord(number, 1))
    connection.run(0.5)
    assert connection.told_of(SessionLost) == [SessionLost(number, Loss.LAPSED)]
    assert connection.acknowledge(consumer, 1, 1) != call
    connection.hear(*connection.publish(True))
    assert connection.got() == [1]
    connection.open()


def test_a_client_id_that_another_one_has_is_refused(alone: Alone, connection: Connection) -> None:
    live(connection)
    other = Connection(alone, 2)
    number = other.subscriber.open_session(2, "client", alone.now)
    consumer = other.subscriber.create_consumer(number, DURABLE, "orders", "name", "", alone.now)
    other.run(0.6)
    assert other.told == [SessionRefused(number, Reason.CLIENT_ID_TAKEN)]
    other.room(consumer, 10)
    assert len(other.requests) == 1  # nothing of a session that is not there


# Consumers


def test_a_second_consumer_of_a_durable_subscription_is_refused(alone: Alone, connection: Connection) -> None:
    number, _ = live(connection)
    second = connection.subscriber.create_consumer(number, DURABLE, "orders", "name", "", alone.now)
    connection.run(0.6)
    assert connection.told_of(ConsumerRefused) == [ConsumerRefused(second, Reason.CONSUMER_ACTIVE)]


def test_another_selector_makes_a_subscription_new(alone: Alone, connection: Connection) -> None:
    number, consumer = live(connection)
    connection.publish(True)
    connection.subscriber.close_consumer(consumer, alone.now)
    second = connection.subscriber.create_consumer(number, DURABLE, "orders", "name", "a = 1", alone.now)
    connection.run(1.0)
    assert ConsumerClosed(consumer) in connection.told
    ready = connection.told_of(ConsumerReady)
    assert ready == [ConsumerReady(second, alone.cell.clients.state.table_version)]
    connection.room(second, 10)
    connection.run_all(1.0)
    assert connection.got() == [1]


def test_a_subscription_in_use_cannot_be_ended(alone: Alone, connection: Connection) -> None:
    number, consumer = live(connection)
    refused = connection.subscriber.unsubscribe(number, "name", alone.now)
    connection.subscriber.close_consumer(consumer, alone.now)
    granted = connection.subscriber.unsubscribe(number, "name", alone.now)
    unknown = connection.subscriber.unsubscribe(number, "name", alone.now)
    connection.run(2.0)
    reasons = [connection.verdict(call) for call in (refused, granted, unknown)]
    assert reasons == [Reason.CONSUMER_ACTIVE, Reason.GRANTED, Reason.NO_SUBSCRIPTION]


def test_consumers_of_a_shared_subscription_get_each_message_once(alone: Alone, connection: Connection) -> None:
    other = Connection(alone, 2)
    other.published = connection.published
    consumers = [each.subscribe(each.open(""), SHARED) for each in (connection, other)]
    for _ in range(20):
        place = connection.publish(True, False, True)
        connection.hear(*place)
    for _ in range(40):
        connection.run(0.05)
        connection.come()
        other.run(0.05)
        other.come()
    # The decisions of the cell go to the one that looks first: the other one asks for them.
    got = connection.got() + other.got()
    assert sorted(got) == connection.orders()
    assert connection.got()
    call = connection.subscriber.give_back(consumers[0], [(WRITERS[0], connection.got()[0], 60)], alone.now)
    connection.flush()
    connection.run_all(2.0)
    assert connection.verdict(call) is Reason.GRANTED
    assert any(is_again for _, _, _, is_again in connection.delivered + other.delivered)


def test_what_was_handed_and_not_delivered_is_not_acknowledged(alone: Alone, connection: Connection) -> None:
    number = connection.open("")
    subscriber = connection.subscriber
    consumer = subscriber.create_consumer(number, SHARED, "orders", "name", "", alone.now, credit=0)
    connection.run(1.0)
    connection.room(consumer, 7)
    connection.hear(*connection.publish(*[True] * 20))
    wire = subscriber.number_of(consumer)
    alone.decide(
        HandRecord((Hand(Range(WRITERS[0], 10, 5, wire), number), Hand(Range(WRITERS[0], 1, 5, wire, 1), number)))
    )
    connection.run(0.5)
    assert [(sequence, is_again) for _, sequence, _, is_again in connection.delivered] == [
        *((sequence, False) for sequence in range(10, 15)),
        (1, True),
        (2, True),
    ]
    call = connection.acknowledge(consumer, 10, 14)
    connection.run(0.5)
    assert connection.verdict(call) is Reason.GRANTED
    cursor = alone.cell.clients.state.cursor_of(number, wire)
    assert cursor is not None
    assert list(cursor.acked_within(WRITERS[0], 1, 30)) == [(10, 15)]


def test_a_durable_consumer_gives_nothing_back(alone: Alone, connection: Connection) -> None:
    _, consumer = live(connection)
    with pytest.raises(ValueError, match="expected one of a shared subscription"):
        connection.subscriber.give_back(consumer, [(WRITERS[0], 1, 1)], alone.now)


# Requests


@pytest.mark.parametrize(("mode", "most"), [(session.AUTO_MODE, session.AUTO_FLYING_MAX), (2, session.ACKS_FLYING_MAX)])
def test_acknowledgements_that_are_asked_for_together_are_one_range(
    connection: Connection, mode: int, most: int
) -> None:
    _, consumer = live(connection, mode=mode)
    connection.hear(*connection.publish(*[True] * 100))
    connection.requests.clear()
    calls = [connection.acknowledge(consumer, sequence, sequence) for sequence in range(1, 102)]
    connection.run(1.0)
    assert [connection.verdict(call) for call in calls] == [Reason.GRANTED] * 101
    acks = [request for request in connection.requests if isinstance(request, Ack)]
    assert most <= len(acks) <= most + 1
    assert all(len(ack.ranges) == 1 for ack in acks)


@pytest.mark.parametrize(("flags", "most"), [(DURABLE, session.ACKS_FLYING_MAX), (SHARED, session.HANDED_FLYING_MAX)])
def test_acknowledgements_of_what_is_handed_out_do_not_wait_for_those_before(
    connection: Connection, flags: SubscriptionFlag, most: int
) -> None:
    consumer = connection.subscribe(connection.open(), flags, room=100)
    connection.hear(*connection.publish(*[True] * 20))
    connection.run_all(1.0)
    assert len(connection.got()) == 20
    connection.requests.clear()
    connection.is_deaf = True
    for sequence in range(1, 21):
        connection.acknowledge(consumer, sequence, sequence)
    assert len([request for request in connection.requests if isinstance(request, Ack)]) == most


def test_a_request_that_was_dropped_is_sent_again_once_that_is_decided(alone: Alone, connection: Connection) -> None:
    connection.run(0.5)
    connection.is_deaf = True
    number = connection.subscriber.open_session(2, "client", alone.now)
    connection.flush()
    connection.is_deaf = False
    connection.run(request_line.NUDGE_S - 0.5)
    assert [type(request) for request in connection.requests] == [Open]
    connection.run(1.5)
    assert [type(request) for request in connection.requests] == [Open, Ack, Open]
    assert number in alone.cell.clients.state.sessions


def test_a_request_that_was_sent_in_a_closed_ledger_comes_again(alone: Alone, connection: Connection) -> None:
    """The connection hears that its ledger is closed before it sends, and learns that from keepers after it."""
    number, consumer = live(connection)
    alone.decide(FenceRecord(connection.ledger), CloseRecord(connection.ledger, ((1, connection.sent),)))
    connection.run(0.1)
    connection.acknowledge(consumer, 1, 1)
    connection.run(0.1)
    assert isinstance(connection.requests[-1], Ack)
    asked = len(connection.requests)
    connection.ledger, connection.sent = connection.ledger._replace(producer_epoch=1), 0
    connection.run(request_line.UNSENT_S + 0.1)
    assert isinstance(connection.requests[asked], Ack)
    connection.run(0.1)
    assert SessionLost(number, Loss.UNKNOWN) in connection.told  # no other ledger may use the session


def test_a_request_that_could_not_be_sent_comes_again(alone: Alone, connection: Connection) -> None:
    connection.run(0.5)
    connection.subscriber.open_session(2, "client", alone.now)
    message = connection.subscriber.poll_message()
    assert isinstance(message, SendRequest)
    connection.subscriber.note_unsent(message.number, alone.now)
    assert connection.subscriber.poll_message() is None
    assert connection.subscriber.poll_timeout() <= alone.now + request_line.UNSENT_S
    connection.run(1.0)
    assert [type(request) for request in connection.requests] == [Open]


def test_the_end_of_a_consumer_waits_for_its_acknowledgements(alone: Alone, connection: Connection) -> None:
    _, consumer = live(connection)
    connection.hear(*connection.publish(*[True] * 20))
    connection.requests.clear()
    calls = [connection.acknowledge(consumer, sequence, sequence) for sequence in range(20, 0, -1)]
    connection.subscriber.close_consumer(consumer, alone.now)
    connection.run(1.0)
    assert [connection.verdict(call) for call in calls] == [Reason.GRANTED] * 20
    assert isinstance(connection.requests[-1], Close)


def test_the_end_of_a_consumer_waits_for_acknowledgements_that_were_dropped(connection: Connection) -> None:
    _, consumer = live(connection)
    connection.is_deaf = True
    call = connection.acknowledge(consumer, 1, 1)
    connection.is_deaf = False
    connection.subscriber.close_consumer(consumer, connection.alone.now)
    connection.run(2 * request_line.NUDGE_S)
    assert connection.verdict(call) is Reason.GRANTED
    assert ConsumerClosed(consumer) in connection.told


def test_acknowledgements_that_come_too_early_are_sent_again(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, consumer = live(connection)
    refuse = [Reason.UNKNOWN_MESSAGES, Reason.TOO_SCATTERED]
    judge_ack = judge.Judge._judge_ack
    monkeypatch.setattr(judge.Judge, "_judge_ack", lambda *each: refuse.pop() if refuse else judge_ack(*each))
    call = connection.acknowledge(consumer, 1, 1)
    connection.run(3.0)
    assert not refuse
    assert connection.verdict(call) is Reason.GRANTED


def test_subscribe_is_sent_behind_open_and_readiness_is_proved(alone: Alone, connection: Connection) -> None:
    connection.run(0.5)
    number = connection.subscriber.open_session(2, "client", alone.now)
    connection.subscriber.create_consumer(number, DURABLE, "orders", "name", "", alone.now)
    connection.run(1.5)
    assert [type(request) for request in connection.requests] == [Open, Subscribe, Ack]


def test_hostile_commands_do_no_harm(alone: Alone, connection: Connection) -> None:
    live(connection)
    for content in (b"", b"\x0d", b"\x02" * 60, bytes(300)):
        connection.subscriber.receive_command(content, 99, alone.now)
        connection.subscriber.receive_entry(1, 1 << 40, content, alone.now)
    connection.hear(*connection.publish(True))
    assert connection.got() == [1, 2]


def test_a_request_that_waits_for_others_has_no_timer_that_is_always_due(alone: Alone, connection: Connection) -> None:
    _, consumer = live(connection)
    connection.is_deaf = True
    connection.acknowledge(consumer, 1, 1)
    connection.subscriber.close_consumer(consumer, alone.now)
    connection.subscriber.handle_timeout(alone.now)
    connection.flush()
    assert connection.subscriber.poll_timeout() > alone.now
