"""Tests of shared subscriptions that are not durable: they end with their last consumers."""

import pytest
from serving_cells import Alone
from serving_clients import NEWS, ORDERS, Client, kept, publish

from fjm2.cell.outgoing import Decided
from fjm2.cell.service import desk
from fjm2.cell.service.decided import Decided as State
from fjm2.cell.service.reasons import Reason
from fjm2.cell.service.state_codec import decode_state, encode_state
from fjm2.cell.times import SESSION_LEASE_S
from fjm2.cell.wire.records import ApplyRecord, TableRecord
from fjm2.cell.wire.requests import Close, Subscribe, SubscriptionFlag, encode_request

PASSING = SubscriptionFlag.SHARED
SHARED = SubscriptionFlag.DURABLE | SubscriptionFlag.SHARED


def sharing(alone: Alone, number: int, client_id: str = "") -> tuple[Client, int]:
    """Return a client that has a consumer of the subscription, and the consumer's number."""
    client = Client(alone, number)
    assert client.open(client_id) is Reason.GRANTED
    assert client.subscribe(flags=PASSING) is Reason.GRANTED
    return client, client.sent


def subscriptions(alone: Alone) -> int:
    """Return the number of subscriptions, on which the table and the cursors agree."""
    found = len(alone.cell.clients.state.cursors)
    assert len(alone.cell.replica.table) == found
    return found


@pytest.mark.parametrize("ending", ["close the consumer", "close the session", "lapse"])
def test_the_last_consumer_takes_the_subscription_along(ending: str) -> None:
    alone = Alone()
    one, consumer = sharing(alone, 1)
    two, _ = sharing(alone, 2)
    publish(alone, 1, 5)
    assert one.close(consumer) is Reason.GRANTED
    assert subscriptions(alone) == 1
    assert kept(alone) == [(1, 5)]
    match ending:
        case "close the consumer":
            assert two.close(two.sent) is Reason.GRANTED
        case "close the session":
            assert two.close() is Reason.GRANTED
        case _:
            alone.run(SESSION_LEASE_S + 1.0)
    assert subscriptions(alone) == 0
    assert not kept(alone)
    assert not alone.cell.replica.table.stores(ORDERS.frame_hash)


def test_one_entry_has_the_end_of_the_consumer_and_of_the_subscription() -> None:
    """A manager that takes over never finds a subscription without a consumer."""
    alone = Alone()
    client, consumer = sharing(alone, 1)
    alone.forget()
    assert client.close(consumer) is Reason.GRANTED
    (entry,) = [
        event.records
        for event in alone.events
        if isinstance(event, Decided) and any(isinstance(each, ApplyRecord) for each in event.records)
    ]
    assert [type(each) for each in entry] == [ApplyRecord, TableRecord]


def test_a_new_one_of_the_same_name_gets_nothing_of_the_old_one() -> None:
    alone = Alone()
    client, consumer = sharing(alone, 1)
    publish(alone, 1, 5)
    client.close(consumer)
    assert client.subscribe(flags=PASSING) is Reason.GRANTED
    assert not kept(alone)
    publish(alone, 6, 2)
    assert kept(alone) == [(6, 7)]
    alone.run(0.1)
    (cursor,) = alone.cell.clients.state.cursors.values()
    assert [list(held) for *_, held in cursor.handed()] == [[(6, 8)]]


def test_a_consumer_that_comes_with_the_end_of_the_last_one_gets_a_new_subscription() -> None:
    """Both requests are decided by one entry."""
    alone = Alone()
    client, consumer = sharing(alone, 1)
    publish(alone, 1, 5)
    session, through = client.session, client.sent
    bodies = [
        encode_request(Close(session, (consumer,))),
        encode_request(Subscribe(session, PASSING, 256, ORDERS, "name", "")),
    ]
    client.alone.cell.receive_frames(client.ledger, through + 1, bodies, 50, alone.now)
    for number, body in enumerate(bodies, through + 1):
        alone.cell.clients.receive_request(client.ledger, number, body)
    alone.settle()
    assert [client.verdict(through + 1), client.verdict(through + 2)] == [Reason.GRANTED, Reason.GRANTED]
    assert subscriptions(alone) == 1
    assert not kept(alone)


def test_durable_ones_have_names_of_their_own() -> None:
    alone = Alone()
    client, consumer = sharing(alone, 1)
    assert client.unsubscribe() is Reason.NO_SUBSCRIPTION
    assert client.subscribe(flags=SHARED) is Reason.GRANTED
    assert subscriptions(alone) == 2
    durable = client.sent
    publish(alone, 1, 5)
    assert client.close(consumer) is Reason.GRANTED
    assert subscriptions(alone) == 1
    assert kept(alone) == [(1, 5)]
    assert client.close(durable) is Reason.GRANTED
    assert kept(alone) == [(1, 5)], "the durable one stays"
    named, _ = sharing(alone, 2, "client")
    assert named.subscribe() is Reason.GRANTED, "nor do unshared ones clash"
    assert subscriptions(alone) == 3


def test_client_ids_share_among_themselves() -> None:
    alone = Alone()
    sharing(alone, 1)
    sharing(alone, 2, "client")
    assert subscriptions(alone) == 2


def test_consumers_agree_on_topic_and_selector() -> None:
    alone = Alone()
    sharing(alone, 1)
    other = Client(alone, 2)
    other.open("")
    assert other.subscribe(place=NEWS, flags=PASSING) is Reason.CONSUMER_ACTIVE
    assert other.subscribe(selector="a > 1", flags=PASSING) is Reason.CONSUMER_ACTIVE
    assert other.subscribe(flags=PASSING) is Reason.GRANTED
    assert other.subscribe(name="", flags=PASSING) is Reason.NO_NAME


def test_many_that_end_at_once_take_several_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "ENDINGS_MAX", 2)
    alone = Alone()
    client = Client(alone, 1)
    client.open("")
    for number in range(5):
        assert client.subscribe(f"name {number}", flags=PASSING) is Reason.GRANTED
    alone.forget()
    assert client.close() is Reason.GRANTED
    alone.run(0.5)
    assert subscriptions(alone) == 0
    ended = [
        sum(isinstance(each, TableRecord) for each in event.records)
        for event in alone.events
        if isinstance(event, Decided)
    ]
    assert max(ended) == 2


def test_the_next_manager_ends_what_the_last_one_left() -> None:
    """A state that comes as bytes has subscriptions without consumers, if its manager had too many to end."""
    alone = Alone()
    sharing(alone, 1)
    state = decode_state(encode_state(alone.cell.clients.state))
    assert state is not None
    assert list(state.unused_cursors()) == []
    state.end_session(1001)
    back = decode_state(encode_state(state))
    assert isinstance(back, State)
    assert [cursor.subscription.name for cursor in back.unused_cursors()] == ["name"]
    assert encode_state(back) == encode_state(state)
