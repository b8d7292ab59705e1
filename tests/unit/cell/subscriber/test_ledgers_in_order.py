"""Tests of the order in which a consumer gets the ledgers of one producer and lane."""

import pytest
from serving_cells import Alone
from subscribed_cells import SHARED, WRITERS, Connection

from fjm2.base.ledger import Ledger
from fjm2.cell.service.reasons import Reason
from fjm2.cell.wire.records import CloseRecord, FenceRecord

FIRST, SECOND, THIRD = 0, 2, 3
"""Numbers of the ledgers of one writer, the oldest one first."""


@pytest.fixture
def alone() -> Alone:
    return Alone()


@pytest.fixture
def connection(alone: Alone) -> Connection:
    return Connection(alone)


def got(connection: Connection) -> list[tuple[int, int]]:
    """Return epoch and sequence of all messages in the order in which they came."""
    return [(ledger.producer_epoch, sequence) for ledger, sequence, _, _ in connection.delivered]


def away(connection: Connection) -> int:
    """Return the session of a connection whose consumer is away."""
    session = connection.open()
    consumer = connection.subscribe(session)
    connection.subscriber.close_consumer(consumer, connection.alone.now)
    connection.flush()
    connection.run(0.3)
    return session


def test_a_consumer_that_was_away_gets_the_older_ledgers_first(connection: Connection) -> None:
    session = away(connection)
    for writer in (FIRST, SECOND, THIRD):
        connection.publish(True, False, True, writer=writer)
        connection.run(0.3)
    connection.subscribe(session)
    connection.run_all(3.0)
    assert got(connection) == [(0, 1), (0, 3), (1, 1), (1, 3), (2, 1), (2, 3)]
    assert connection.subscriber.held_bytes == 0


def test_what_is_heard_of_a_later_ledger_waits_for_the_end_of_the_older_one(connection: Connection) -> None:
    consumer = connection.subscribe(connection.open())
    connection.hear(*connection.publish(True, True, writer=FIRST))
    connection.run_all(0.5)
    connection.publish(True, writer=FIRST)  # the consumer does not hear it
    connection.hear(*connection.publish(True, writer=SECOND))
    connection.run_all(1.0)
    connection.hear(*connection.publish(True, writer=SECOND))
    assert got(connection) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    number = connection.acknowledge(consumer, 1, 2, SECOND)
    connection.run(0.3)
    assert connection.verdict(number) is Reason.GRANTED


def test_a_later_ledger_is_read_as_soon_as_the_older_one_is_closed(connection: Connection) -> None:
    connection.subscribe(connection.open())
    connection.hear(*connection.publish(True, writer=FIRST))
    connection.run_all(0.5)
    connection.hear(*connection.publish(True, writer=SECOND))
    began_at = connection.alone.now
    while (1, 1) not in got(connection):
        assert connection.alone.now < began_at + 0.25
        connection.run_all(0.05)


def test_without_room_for_the_older_ledger_nothing_of_the_later_one_comes(connection: Connection) -> None:
    session = away(connection)
    connection.publish(True, True, True, writer=FIRST)
    connection.publish(True, True, writer=SECOND)
    consumer = connection.subscribe(session, room=2)
    connection.run_all(2.0)
    assert got(connection) == [(0, 1), (0, 2)]
    connection.room(consumer, 2)
    connection.run_all(2.0)
    assert got(connection) == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_what_is_not_acknowledged_does_not_hold_up_the_later_ledger(connection: Connection) -> None:
    """Otherwise a session that commits many messages at once would never get the last of them."""
    session = away(connection)
    connection.publish(True, writer=FIRST)
    connection.publish(True, writer=SECOND)
    connection.subscribe(session)
    connection.run_all(2.0)
    assert got(connection) == [(0, 1), (1, 1)]


def test_frames_behind_the_end_of_a_ledger_are_not_waited_for(connection: Connection) -> None:
    """The second frame is lost everywhere. What lies behind it was heard, and is in no final set."""
    connection.subscribe(connection.open())
    ledger, _, _ = connection.publish(True)
    connection.hear(ledger, 1, 1)
    connection.run_all(0.5)
    connection.published[ledger] += [b"o1", b"o2"]
    connection.hear(ledger, 3, 1)
    connection.hear(*connection.publish(True, writer=SECOND))
    connection.run_all(2.0)
    connection.hear(ledger, 2, 2)
    connection.run_all(1.0)
    assert got(connection) == [(0, 1), (1, 1)]
    assert connection.subscriber.held_bytes == 0


@pytest.mark.parametrize("delivered", [1, 3])
def test_a_plan_ends_where_the_ledger_ends(alone: Alone, connection: Connection, delivered: int) -> None:
    """A keeper names frames, and before it sends them, a decision leaves them out."""
    session = away(connection)
    connection.publish(*[True] * 5)
    connection.subscribe(session)
    connection.run(0.5)
    while connection.packets and len(connection.got()) < delivered:
        connection.packets.pop(0)()
        connection.flush()
    connection.packets.clear()
    assert len(connection.got()) == delivered
    alone.decide(FenceRecord(WRITERS[FIRST]), CloseRecord(WRITERS[FIRST], ((1, 3),)))
    connection.hear(*connection.publish(True, writer=SECOND))
    connection.run_all(3.0)
    assert got(connection) == [(0, 1), (0, 2), (0, 3), (1, 1)]


def test_a_ledger_of_which_nothing_was_ever_heard_is_closed_first(connection: Connection) -> None:
    connection.subscribe(connection.open())
    connection.hear(*connection.publish(True, writer=THIRD))
    connection.run_all(2.0)
    assert got(connection) == [(2, 1)]
    assert connection.alone.cell.replica.ledgers.is_closed(WRITERS[SECOND])
    assert connection.alone.cell.replica.ledgers.is_closed(WRITERS[FIRST])


def test_a_shared_consumer_delivers_in_the_order_in_which_it_was_handed(connection: Connection) -> None:
    consumer = connection.subscribe(connection.open(), SHARED, room=0)
    connection.publish(True, True, writer=FIRST)
    connection.run(0.5)
    connection.packets.clear()
    connection.hear(*connection.publish(True, writer=SECOND))
    connection.run(0.5)
    connection.room(consumer, 100)
    assert got(connection) == []  # the newer one is here, and the older ones are not
    connection.run_all(2.0)
    assert got(connection) == [(0, 1), (0, 2), (1, 1)]


def test_another_lane_and_another_producer_do_not_wait(connection: Connection) -> None:
    connection.subscribe(connection.open())
    connection.publish(True, writer=FIRST)  # not heard
    connection.hear(*connection.publish(True, writer=1))
    other = Ledger(WRITERS[FIRST].producer_id, 0, 2)
    connection.published[other] = [b"o"]
    connection.hear(other, 1, 1)
    connection.packets.pop(0)
    connection.run(0.1)
    connection.come()
    assert {ledger for ledger, _, _, _ in connection.delivered} >= {WRITERS[1], other}
