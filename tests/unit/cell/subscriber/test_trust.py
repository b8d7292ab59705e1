"""Tests of the time for which a connection knows that the cell keeps its sessions."""

import pytest
from serving_cells import Alone
from subscribed_cells import Connection

from fjm2.cell.subscriber.outgoing import Loss, SendRequest, SessionLost, SessionsKept
from fjm2.cell.subscriber.trust import NEVER, RENEW_S, TRUST_S, Trust
from fjm2.cell.times import SESSION_LEASE_S
from fjm2.cell.wire.requests import Ack


@pytest.fixture
def alone() -> Alone:
    return Alone()


@pytest.fixture
def connection(alone: Alone) -> Connection:
    connection = Connection(alone)
    connection.run(0.5)
    return connection


def questions(connection: Connection) -> list[int]:
    """Return the sessions that the cell was asked about."""
    return [each.session for each in connection.requests if isinstance(each, Ack) and each.session and not each.ranges]


def opened(connection: Connection) -> int:
    """Return a session that has been open for a while."""
    number = connection.open()
    connection.subscribe(number)
    connection.run(1.0)
    connection.told.clear()
    return number


def test_sessions_that_are_renewed_and_hear_the_cell_are_never_asked_about(
    alone: Alone, connection: Connection
) -> None:
    opened(connection)
    for _ in range(100):
        connection.run(0.1)
        assert connection.subscriber.tenure.until > alone.now
    assert questions(connection) == []
    assert connection.told_of(SessionsKept) == []


def test_after_a_silence_the_cell_is_asked_and_nothing_is_certain_before_it_answers(
    alone: Alone, connection: Connection
) -> None:
    number = opened(connection)
    alone.run(TRUST_S + 0.1)
    assert connection.subscriber.tenure.until < alone.now
    connection.subscriber.handle_timeout(alone.now)
    assert connection.subscriber.tenure.is_asked
    assert connection.subscriber.tenure.until == NEVER
    connection.run(0.5)
    assert questions(connection) == [number]
    assert connection.told == [SessionsKept()]
    assert connection.subscriber.tenure.until > alone.now
    assert number in alone.cell.clients.state.sessions


def test_a_session_that_lapsed_meanwhile_is_lost_before_the_others_go_on(alone: Alone, connection: Connection) -> None:
    number = opened(connection)
    alone.run(SESSION_LEASE_S + 1.0)
    connection.subscriber.tenure.doubt(alone.now)
    connection.flush()
    connection.run(0.5)
    assert connection.told == [SessionLost(number, Loss.LAPSED), SessionsKept()]


def test_the_owner_is_answered_also_if_no_session_is_open(alone: Alone, connection: Connection) -> None:
    connection.subscriber.tenure.doubt(alone.now)
    connection.flush()
    assert connection.told_of(SessionsKept) == [SessionsKept()]
    assert connection.subscriber.tenure.until > alone.now


def test_while_the_cell_is_not_heard_nothing_is_certain(alone: Alone, connection: Connection) -> None:
    """The program runs and renews its leases, and knows of nobody who gets them."""
    number = opened(connection)
    subscriber = connection.subscriber
    for _ in range(19):
        alone.run(0.1)
        subscriber.handle_timeout(alone.now)
    assert subscriber.tenure.until < alone.now
    connection.run(0.5)
    assert questions(connection) == [number]
    assert connection.told == [SessionsKept()]


def test_the_answer_to_a_question_before_another_silence_does_not_count(alone: Alone, connection: Connection) -> None:
    opened(connection)
    subscriber = connection.subscriber
    subscriber.tenure.doubt(alone.now)
    message = subscriber.poll_message()
    assert isinstance(message, SendRequest)
    subscriber.tenure.doubt(alone.now)
    assert subscriber.tenure.is_asked
    trust, sessions = Trust(), {1, 2}
    trust.begin_round(set(sessions), 0.0)
    trust.begin_round(set(sessions), 5.0)
    assert not any(trust.settle(each, 1) for each in sessions)
    assert [trust.settle(each, 2) for each in (1, 1, 2)] == [False, False, True]
    assert trust.until == 5.0 + TRUST_S


def test_a_question_that_could_not_be_sent_is_asked_again(alone: Alone, connection: Connection) -> None:
    opened(connection)
    subscriber = connection.subscriber
    subscriber.tenure.doubt(alone.now)
    message = subscriber.poll_message()
    assert isinstance(message, SendRequest)
    subscriber.note_unsent(message.number, alone.now)
    assert subscriber.tenure.is_asked
    assert alone.now < subscriber.poll_timeout() <= alone.now + 1.0
    connection.run(1.0)
    assert connection.told == [SessionsKept()]


def test_two_renewals_of_which_one_is_lost_are_enough() -> None:
    assert 2 * RENEW_S < RENEW_S + TRUST_S < SESSION_LEASE_S
