"""Tests of what snapshots keep of the service to clients."""

from serving_cells import Alone
from serving_clients import NEWS, ORDERS, WRITER, Client, publish
from single_keepers import cell, events

from fjm2.base.ledger import Ledger
from fjm2.cell.cell import Cell
from fjm2.cell.decision_log import Entry
from fjm2.cell.ledger_table import Span
from fjm2.cell.outgoing import Released, SendCommand, TableChanged
from fjm2.cell.replica import StoredEntry
from fjm2.cell.service.state_codec import encode_state
from fjm2.cell.wire.catch_up import CatchUpQuery
from fjm2.cell.wire.records import CloseRecord, Record, TimeRecord
from fjm2.cell.wire.requests import Open, encode_request


def served(*records: Record) -> Alone:
    """Return a cell whose client has acknowledged two of three messages, and whose log begins with a snapshot.

    It decides `records` before the snapshot.
    """
    alone = Alone(snapshot_entries=4)
    client = Client(alone)
    client.open()
    client.subscribe()
    consumer = client.sent
    publish(alone, 1, 3)
    client.ack(consumer, 1, 2)
    alone.decide(*records)
    while alone.cell.replica.log.snapshot_index < alone.cell.clients.state.index:
        alone.decide(TimeRecord(int(alone.now * 1000)))
    return alone


def snapshot_of(alone: Alone) -> tuple[int, Entry]:
    log = alone.cell.replica.log
    assert log.snapshot is not None
    return log.snapshot_index, log.snapshot


def lagging(alone: Alone, messages: int) -> Cell:
    """Return a member that got messages, and of all decisions nothing but the snapshot."""
    keeper, store = cell()
    keeper.receive_frames(WRITER, 1, (b"m",) * messages, 60, 0.1)
    keeper.clients.backlog.add(ORDERS.frame_hash, WRITER, 1, messages + 1)
    index, entry = snapshot_of(alone)
    keeper.receive_entry(1, index, entry.data, 0.2)
    keeper.handle_synced(store.lsn, 0.2)
    return keeper


def test_a_snapshot_has_the_state_of_the_service() -> None:
    alone = served()
    index, entry = snapshot_of(alone)
    (data,) = [section.data for section in entry.body.sections if section.name == "service/1"]
    assert data == encode_state(alone.cell.clients.state)
    keeper, _ = cell(StoredEntry(1, index, entry.data))
    assert encode_state(keeper.clients.state) == data
    assert keeper.clients.state.index == index
    assert keeper.replica.log.first_index == index + 1


def test_a_member_that_lags_releases_what_was_acknowledged_meanwhile() -> None:
    keeper = lagging(served(), 3)
    assert keeper.clients.backlog.ranges(ORDERS.frame_hash, WRITER) == [(3, 4)]
    assert Released(WRITER, ((1, 2),)) in events(keeper)


def test_a_member_that_lags_drops_what_is_outside_the_final_set_of_a_closed_ledger() -> None:
    keeper = lagging(served(CloseRecord(WRITER, ((1, 3),))), 5)
    assert keeper.clients.backlog.ranges(ORDERS.frame_hash, WRITER) == [(3, 4)]
    assert Released(WRITER, ((4, 5),)) in events(keeper)


def test_no_snapshot_is_taken_while_a_request_has_to_be_read() -> None:
    """Otherwise the decision on it would be lost."""
    alone = Alone(snapshot_entries=1)
    client = Client(alone)
    body = encode_request(Open(client.session, 1, "a"))
    alone.cell.receive_frames(client.ledger, 1, (body,), 50, alone.now)
    alone.cell.clients.receive_request(client.ledger, 1, body)
    alone.cell.handle_synced(alone.store.lsn, alone.now)  # the decision is under way to the disk
    alone.cell.clients.inbox.forget(client.ledger, 1)
    alone.settle()
    for _ in range(3):
        alone.decide(TimeRecord(int(alone.now * 1000)))
    log = alone.cell.replica.log
    assert alone.cell.clients.state.index < log.committed
    assert log.snapshot_index <= alone.cell.clients.state.index
    alone.cell.clients.receive_request(client.ledger, 1, body)
    alone.run(0.1)
    alone.run(0.1)
    assert alone.cell.clients.state.index == log.committed == log.snapshot_index
    assert client.session in alone.cell.clients.state.sessions


def test_requests_are_released_when_the_log_has_no_entry_that_names_them() -> None:
    alone = served()
    client = Client(alone, 2)
    client.open()
    assert released_of(alone, Ledger(1, 0, 1)) == [((1, 2),)]  # the entries between the last two snapshots are held
    for _ in range(20):
        alone.decide(TimeRecord(int(alone.now * 1000)))
    assert released_of(alone, Ledger(1, 0, 1)) == [((1, 2),), ((3, 3),)]
    assert released_of(alone, client.ledger) == [((1, 1),)]


def released_of(alone: Alone, ledger: Ledger) -> list[object]:
    return [event.ranges for event in alone.events if isinstance(event, Released) and event.ledger == ledger]


def test_requests_that_come_back_with_a_restart_are_released_again() -> None:
    """A release is on disk with the next checkpoint of the store only."""
    index, entry = snapshot_of(served())
    keeper, _ = cell(StoredEntry(1, index, entry.data))
    ledger = Ledger(1, 0, 1)
    keeper.replica.ledgers.restore(Span(ledger, 1, 9), 0.0)
    keeper.clients.note_requests(ledger, 1, 8)
    events(keeper)
    keeper.clients.advance()
    assert events(keeper) == [Released(ledger, ((1, 3),))]


def test_a_page_waits_until_the_driver_has_told_all_messages() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    alone.is_table_told = False
    client.subscribe()
    query = CatchUpQuery(
        is_exact=True,
        reply_to=7,
        keeper_node=1,
        consumer=client.sent,
        cell_id=alone.cell.cell_id,
        session=client.session,
        ledger=WRITER,
        first=1,
    )
    alone.cell.clients.answer(query)
    alone.settle()
    assert not alone.sent_of(SendCommand)
    alone.cell.handle_table_ready(1)
    alone.cell.clients.answer(query)
    assert isinstance(alone.cell.poll_message(), SendCommand)


def test_a_snapshot_of_several_subscriptions_is_told_when_the_last_one_is() -> None:
    alone = Alone(snapshot_entries=4)
    client = Client(alone)
    client.open()
    consumers = []
    for name, place in (("orders", ORDERS), ("news", NEWS)):
        client.subscribe(name, place)
        consumers.append(client.sent)
    publish(alone, 1, 3)
    while alone.cell.replica.log.snapshot_index < alone.cell.clients.state.index:
        alone.decide(TimeRecord(int(alone.now * 1000)))
    keeper, _ = cell()
    index, entry = snapshot_of(alone)
    keeper.receive_entry(1, index, entry.data, 0.2)
    keeper.clients.advance()
    changes = [event for event in events(keeper) if isinstance(event, TableChanged)]
    assert [change.subscription.destination for change in changes] == [ORDERS, NEWS]
    answered: list[list[bool]] = []
    for change in changes:
        keeper.handle_table_ready(change.version)
        answered.append([answers(keeper, client, consumer) for consumer in consumers])
        assert (keeper.replica.readiness.version == change.version) == (change is changes[-1])
    assert answered == [[True, False], [True, True]]


def answers(keeper: Cell, client: Client, consumer: int) -> bool:
    """Return True if a keeper answers a consumer."""
    while keeper.poll_message() is not None:
        pass
    query = CatchUpQuery(
        is_exact=False,
        reply_to=7,
        keeper_node=1,
        consumer=consumer,
        cell_id=keeper.cell_id,
        session=client.session,
        ledger=WRITER,
        first=1,
    )
    keeper.clients.answer(query)
    return keeper.poll_message() is not None
