"""Tests of decisions on requests that come soon after each other: they share an entry of the log."""

from serving_cells import Alone
from serving_clients import Client

from fjm2.base.ledger import Ledger
from fjm2.cell.outgoing import Decided
from fjm2.cell.times import TELL_S
from fjm2.cell.wire.records import ApplyRecord
from fjm2.cell.wire.requests import Open, encode_request


def come(alone: Alone, client: Client) -> None:
    """Let a request come to the disk, and no time go by."""
    client.sent += 1
    body = encode_request(Open(client.session, 2, ""))
    alone.cell.receive_frames(client.ledger, client.sent, (body,), 50, alone.now)
    alone.cell.clients.receive_request(client.ledger, client.sent, body)
    alone.take()


def decided(alone: Alone) -> list[list[Ledger]]:
    """Return the clients that the entries decided on since the last call."""
    found = [
        [each.ledger for each in event.records if isinstance(each, ApplyRecord)]
        for event in alone.events
        if isinstance(event, Decided)
    ]
    alone.events.clear()
    return found


def test_the_first_request_is_decided_at_once_and_those_behind_it_together() -> None:
    alone = Alone()
    clients = [Client(alone, number) for number in range(1, 30)]
    for client in clients:
        come(alone, client)
        alone.now += TELL_S / 40
    assert decided(alone) == [[clients[0].ledger]]
    assert alone.cell.poll_timeout() <= alone.now + TELL_S
    alone.settle()
    assert decided(alone) == [[client.ledger for client in clients[1:]]]


def test_a_request_after_a_pause_is_decided_at_once() -> None:
    alone = Alone()
    client = Client(alone)
    for _ in range(5):
        come(alone, client)
        assert decided(alone) == [[client.ledger]]
        alone.pause(TELL_S * 1.01)


def test_requests_that_never_cease_wait_for_a_moment_only() -> None:
    alone = Alone()
    client = Client(alone)
    entries = 0
    for _ in range(1000):
        come(alone, client)
        alone.now += TELL_S / 20
        if alone.cell.poll_timeout() <= alone.now:
            alone.cell.handle_timeout(alone.now)
        entries += len(decided(alone))
    assert 45 <= entries <= 51
