"""Tests of a cell's part in the order of ledgers: it closes the older ones, and hands out nothing before."""

from serving_cells import Alone
from serving_clients import ORDERS, WRITER, Client, publish

from fjm2.base.ledger import Ledger
from fjm2.cell.outgoing import Decided
from fjm2.cell.service.pages import PAGE_MESSAGES_MAX
from fjm2.cell.service.reasons import Reason
from fjm2.cell.times import REMEMBERED_MS
from fjm2.cell.wire.catch_up import CatchUpPage, CatchUpQuery
from fjm2.cell.wire.records import CloseRecord, HandRecord, Record, TimeRecord
from fjm2.cell.wire.requests import Subscribe, SubscriptionFlag

SHARED = SubscriptionFlag.DURABLE | SubscriptionFlag.SHARED
NEXT = WRITER._replace(producer_epoch=1)


def subscribed() -> tuple[Alone, Client, int]:
    """Return a cell, a client with a consumer, and the consumer's number."""
    alone = Alone()
    client = Client(alone)
    assert client.open("client") is Reason.GRANTED
    assert client.subscribe() is Reason.GRANTED
    return alone, client, client.sent


def page(alone: Alone, client: Client, consumer: int, ledger: Ledger) -> CatchUpPage:
    """Ask for a page of one ledger."""
    alone.forget()
    query = CatchUpQuery(
        is_exact=True,
        reply_to=50,
        keeper_node=1,
        consumer=consumer,
        cell_id=alone.cell.cell_id,
        session=client.session,
        ledger=ledger,
        first=1,
    )
    alone.cell.receive(query.encode(), 50, alone.now)
    alone.settle()
    (found,) = alone.sent_of(CatchUpPage)
    assert isinstance(found, CatchUpPage)
    return found


def decided(alone: Alone, kind: type[Record]) -> list[Record]:
    """Return the decisions of a kind."""
    entries = [event for event in alone.events if isinstance(event, Decided)]
    return [record for entry in entries for record in entry.records if isinstance(record, kind)]


def test_a_ledger_is_closed_when_its_writer_goes_on_in_another_one() -> None:
    alone, _, _ = subscribed()
    publish(alone, 1, 3)
    publish(alone, 1, 1, ledger=NEXT)
    alone.run(0.1)
    assert decided(alone, CloseRecord) == [CloseRecord(WRITER, ((1, 3),))]
    assert not alone.cell.replica.ledgers.is_fenced(NEXT)


def test_a_ledger_with_sessions_is_closed_as_well() -> None:
    """Its client cannot use it any more, and consumers of its messages would wait for as long as it lives."""
    alone, client, _ = subscribed()
    publish(alone, 1, 1, ledger=client.ledger._replace(producer_epoch=1))
    alone.run(0.1)
    assert alone.cell.replica.ledgers.is_closed(client.ledger)


def test_a_page_of_a_later_ledger_names_the_older_one_until_that_is_acknowledged() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    publish(alone, 1, 2, ledger=NEXT)
    found = page(alone, client, consumer, NEXT)
    assert (found.older_ledger, found.is_final) == (WRITER, False)
    alone.run(0.1)
    found = page(alone, client, consumer, NEXT)
    assert (found.older_ledger, found.spans) == (WRITER, ((1, 2),))
    found = page(alone, client, consumer, WRITER)
    assert (found.older_ledger, found.is_final, found.spans) == (None, True, ((1, 3),))
    client.ack(consumer, 1, 3)
    assert page(alone, client, consumer, NEXT).older_ledger is None


def test_an_older_ledger_is_unread_while_a_keeper_doubts_what_it_counted_there() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    publish(alone, 1, 2, ledger=NEXT)
    alone.run(0.1)
    client.ack(consumer, 1, 3)
    alone.cell.replica.ledgers.doubts.add(WRITER, [(2, 3)], is_hearsay=True)
    assert page(alone, client, consumer, NEXT).older_ledger == WRITER


def test_a_page_that_has_no_room_for_all_is_not_the_last_one() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, PAGE_MESSAGES_MAX + 1)
    publish(alone, 1, 1, ledger=NEXT)
    alone.run(0.1)
    found = page(alone, client, consumer, WRITER)
    assert (found.through, found.is_final) == (PAGE_MESSAGES_MAX, False)


def test_the_end_of_a_ledger_is_decided_again_when_it_was_forgotten() -> None:
    """A writer may use a ledger for longer than the one before it is remembered."""
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    publish(alone, 1, 1, ledger=NEXT)
    alone.run(0.1)
    client.ack(consumer, 1, 3)
    alone.forget()
    alone.decide(TimeRecord(alone.cell.clients.state.time_ms + REMEMBERED_MS + 1))
    alone.run(0.6)
    assert decided(alone, CloseRecord) == [CloseRecord(WRITER, ())]
    assert page(alone, client, consumer, NEXT).older_ledger is None


def test_a_shared_subscription_is_handed_the_older_ledger_first() -> None:
    alone = Alone()
    client = Client(alone)
    assert client.open("") is Reason.GRANTED
    subscribe = Subscribe(client.session, SHARED, 100, ORDERS, "shared", "")
    assert client.ask(subscribe) is Reason.GRANTED
    client.close(client.sent)
    alone.cell.receive_frames(WRITER, 1, (b"m",) * 3, 60, alone.now)
    publish(alone, 1, 2, ledger=NEXT)
    alone.cell.clients.note_messages(ORDERS.frame_hash, WRITER, 1, 3)
    alone.run(0.1)
    alone.forget()
    assert client.ask(subscribe) is Reason.GRANTED
    alone.run(0.6)
    handed = [hand.range.ledger for record in decided(alone, HandRecord) for hand in record.hands]  # type: ignore[attr-defined]
    assert handed == [WRITER, NEXT]


def test_a_new_subscription_gets_nothing_of_ledgers_that_were_closed_before() -> None:
    """A keeper that lags, or that was started again, may still have messages that were acknowledged."""
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    publish(alone, 1, 1, ledger=NEXT)
    alone.run(0.1)
    client.ack(consumer, 1, 3)
    second = Client(alone, 2)
    second.open("second")
    second.subscribe()
    alone.cell.clients.note_messages(ORDERS.frame_hash, WRITER, 1, 3)
    found = page(alone, second, second.sent, WRITER)
    assert (found.spans, found.is_final) == ((), True)
    alone.run(0.1)
    assert alone.cell.clients.backlog.ranges(ORDERS.frame_hash, WRITER) == []


def test_what_is_void_is_dropped() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    alone.decide(CloseRecord(NEXT, ()))
    assert alone.cell.clients.backlog.ranges(ORDERS.frame_hash, WRITER) == []
    found = page(alone, client, consumer, WRITER)
    assert (found.through, found.spans, found.is_final) == (0, (), True)


def test_what_a_final_set_leaves_out_in_the_middle_is_handed_to_nobody() -> None:
    alone, client, consumer = subscribed()
    publish(alone, 1, 3)
    alone.run(0.1)
    alone.cell.propose((CloseRecord(WRITER, ((1, 1), (3, 3))),), alone.now)
    alone.run(0.1)
    found = page(alone, client, consumer, WRITER)
    assert (found.spans, found.through, found.is_final) == (((1, 1), (3, 3)), 3, True)
