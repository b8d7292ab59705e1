"""Tests of what snapshots keep of the service to clients."""

from serving_cells import Alone
from serving_clients import ORDERS, WRITER, Client, publish
from single_keepers import cell, events

from fjm2.cell.cell import Cell
from fjm2.cell.decision_log import Entry
from fjm2.cell.outgoing import Released
from fjm2.cell.replica import StoredEntry
from fjm2.cell.service.state_codec import encode_state
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
