"""Tests of sessions: who may open one, what ends it, and what a client is told."""

import pytest
from serving_cells import Alone
from serving_clients import Client

from fjm2.cell.outgoing import Decided, RequestWanted
from fjm2.cell.service import inbox, judge
from fjm2.cell.service.inbox import LEDGER_REQUESTS_MAX
from fjm2.cell.service.reasons import TEXTS, Reason, ReturnReason
from fjm2.cell.service.state_codec import decode_state, encode_state
from fjm2.cell.times import SESSION_LEASE_S
from fjm2.cell.wire.records import ApplyRecord, CloseRecord, FenceRecord, ReturnRecord
from fjm2.cell.wire.requests import TEXT_CHARACTERS_MAX, Claim, Open, Outcome, encode_request


def test_every_reason_has_a_text_that_says_what_to_do() -> None:
    assert set(TEXTS) == set(Reason)
    for reason, text in TEXTS.items():
        assert reason is Reason.GRANTED or ": " in text


def test_a_session_is_opened_once() -> None:
    alone = Alone()
    client = Client(alone)
    assert client.open() is Reason.GRANTED
    assert client.open() is Reason.GRANTED  # the client did not hear the first answer
    assert list(alone.cell.clients.state.sessions) == [client.session]
    assert client.open("other") is Reason.SESSION_TAKEN


def test_a_session_belongs_to_the_client_that_opened_it() -> None:
    alone = Alone()
    first, second = Client(alone, 1), Client(alone, 2)
    second.session = first.session
    assert first.open("a") is Reason.GRANTED
    assert second.open("b") is Reason.SESSION_TAKEN
    assert second.close() is Reason.NO_SESSION
    assert first.session in alone.cell.clients.state.sessions


def test_a_client_id_is_of_one_client_as_long_as_it_has_a_session() -> None:
    alone = Alone()
    first, second = Client(alone, 1), Client(alone, 2)
    assert first.open("a") is Reason.GRANTED
    assert second.open("a") is Reason.CLIENT_ID_TAKEN
    first.session += 100
    assert first.open("a") is Reason.GRANTED  # another session of the same client
    assert first.close() is Reason.GRANTED
    assert second.open("a") is Reason.CLIENT_ID_TAKEN
    first.session -= 100
    assert first.close() is Reason.GRANTED
    assert second.open("a") is Reason.GRANTED


def test_clients_without_a_client_id_do_not_meet() -> None:
    alone = Alone()
    assert [Client(alone, number).open("") for number in (1, 2, 3)] == [Reason.GRANTED] * 3


def test_a_session_ends_when_its_lease_has_lapsed_and_not_before() -> None:
    alone = Alone()
    quiet, alive = Client(alone, 1), Client(alone, 2)
    quiet.open("quiet")
    alive.open("alive")
    alone.forget()
    while alone.now < 6.0 + SESSION_LEASE_S - 0.2:
        alone.run(0.1)
        alive.renew()
    state = alone.cell.clients.state
    assert quiet.session in state.sessions
    for _ in range(8):
        alone.run(0.1)
        alive.renew()
    assert list(state.sessions) == [alive.session]
    returned = [
        record for event in alone.events for record in getattr(event, "records", ()) if isinstance(record, ReturnRecord)
    ]
    assert returned == [ReturnRecord(quiet.session, ReturnReason.LAPSED)]
    assert quiet.subscribe() is Reason.NO_SESSION
    assert quiet.open("quiet") is Reason.GRANTED


def test_a_request_renews_the_lease() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    for _ in range(10):
        alone.run(1.0)
        assert client.ask(Outcome(client.session, 1)) is Reason.NOT_OFFERED
    assert client.session in alone.cell.clients.state.sessions


def test_leases_of_strangers_and_odd_ones_take_no_memory() -> None:
    alone = Alone()
    clients = alone.cell.clients
    assert clients.receive_leases(bytes(8 * 100), alone.now)
    assert not clients.receive_leases(b"odd", alone.now)
    assert not clients.renewed


def test_requests_that_cannot_be_read_or_are_not_offered_are_told() -> None:
    alone = Alone()
    client = Client(alone)
    assert client.verdict(client.send(b"nonsense")) is Reason.MALFORMED
    assert client.ask(Claim(client.session, ())) is Reason.NO_SESSION
    client.open()
    assert client.ask(Claim(client.session, ())) is Reason.NOT_OFFERED


def test_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "CLIENT_SESSIONS_MAX", 2)
    monkeypatch.setattr(judge, "SESSIONS_MAX", 3)
    alone = Alone()
    first, second = Client(alone, 1), Client(alone, 2)
    assert [first.ask(Open(session, 1, "")) for session in (1, 2, 3)] == [
        Reason.GRANTED,
        Reason.GRANTED,
        Reason.TOO_MANY_SESSIONS,
    ]
    assert [second.ask(Open(session, 1, "")) for session in (4, 5)] == [Reason.GRANTED, Reason.TOO_MANY_SESSIONS]
    assert first.ask(Open(6, 1, "x" * (TEXT_CHARACTERS_MAX + 1))) is Reason.TEXT_TOO_LONG


def test_requests_wait_for_those_before_them() -> None:
    """The manager judges what it holds without a hole: an OPEN that is missing could be in it."""
    alone = Alone()
    client = Client(alone)
    cell = alone.cell
    bodies = [encode_request(Open(client.session, 1, "a")), encode_request(Open(client.session, 1, "b"))]
    for sequence in (2, 1):
        body = bodies[sequence - 1]
        assert client.verdict(2) is None
        cell.receive_frames(client.ledger, sequence, (body,), 50, alone.now)
        cell.clients.receive_request(client.ledger, sequence, body)
        alone.settle()
    assert [client.verdict(1), client.verdict(2)] == [Reason.GRANTED, Reason.SESSION_TAKEN]


def test_requests_of_a_client_that_wait_are_bounded_and_the_others_are_not_decided() -> None:
    alone = Alone()
    client = Client(alone)
    cell = alone.cell
    body = encode_request(Open(client.session, 1, "a"))
    count = LEDGER_REQUESTS_MAX + 3
    for sequence in range(2, count + 1):
        cell.receive_frames(client.ledger, sequence, (body,), 50, alone.now)
        cell.clients.receive_request(client.ledger, sequence, body)
    assert cell.clients.inbox.dropped == count - 1 - LEDGER_REQUESTS_MAX
    cell.receive_frames(client.ledger, 1, (b"a message",), 50, alone.now)
    for _ in range(10):
        alone.run(0.1)
    known = [sequence for sequence in range(1, count + 1) if client.verdict(sequence) is not None]
    assert known == list(range(2, LEDGER_REQUESTS_MAX + 2))
    assert not list(cell.clients.inbox.ledgers())


def test_a_request_whose_frame_was_not_stored_is_ignored() -> None:
    alone = Alone()
    for number in range(1, 5000):
        alone.cell.clients.receive_request(Client(alone, number).ledger, 1, b"x")
    assert not list(alone.cell.clients.inbox.ledgers())


def test_requests_of_a_ledger_that_is_about_to_be_closed_wait_for_its_final_set() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    alone.cell.propose((FenceRecord(client.ledger),), alone.now)
    sequence = client.send(encode_request(Open(5, 1, "a")))
    alone.settle()
    alone.run(0.2)
    assert client.verdict(sequence) is None  # it is outside the final set, and will never be decided
    assert client.ledger in alone.cell.clients.state.closed


def test_requests_that_a_fence_overtakes_are_decided_after_the_final_set() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    alone.forget()
    body = encode_request(Open(5, 1, "client"))
    alone.cell.receive_frames(client.ledger, 2, (body,), 50, alone.now)
    alone.cell.clients.receive_request(client.ledger, 2, body)
    lsn = alone.store.lsn
    alone.cell.propose((FenceRecord(client.ledger),), alone.now)
    alone.cell.handle_synced(lsn, alone.now)  # the request is on disk, and FENCE is not
    alone.settle()
    alone.run(0.2)
    decided = [type(record) for event in alone.events if isinstance(event, Decided) for record in event.records]
    assert decided.index(CloseRecord) < decided.index(ApplyRecord)
    assert client.verdict(2) is Reason.GRANTED


def test_requests_outside_a_final_set_take_no_room() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    cell = alone.cell
    body = encode_request(Open(5, 1, "a"))
    cell.receive_frames(client.ledger, 3, (body,), 50, alone.now)  # the second one never comes
    cell.clients.receive_request(client.ledger, 3, body)
    alone.settle()
    assert list(cell.clients.inbox.ledgers()) == [client.ledger]
    alone.decide(FenceRecord(client.ledger))
    alone.run(0.2)
    assert not list(cell.clients.inbox.ledgers())


def test_the_bytes_of_requests_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "INBOX_BYTES_MAX", 1000)
    requests = inbox.RequestInbox()
    for number in range(10):
        requests.add(Client(None, number).ledger, 1, bytes(100))  # type: ignore[arg-type]
    assert (len(list(requests.ledgers())), requests.dropped) == (3, 7)
    for ledger in requests.ledgers():
        requests.forget(ledger, 1)
    for number in range(10):
        requests.add(Client(None, number).ledger, 1, bytes(100))  # type: ignore[arg-type]
    assert requests.dropped == 14
    requests.wanted[Client(None, 99).ledger, 7] = None  # type: ignore[arg-type]
    requests.add(Client(None, 99).ledger, 7, bytes(100))  # type: ignore[arg-type]
    assert (requests.dropped, requests.wanted) == (14, {})


def test_a_keeper_that_has_forgotten_a_request_asks_its_driver_for_it() -> None:
    alone = Alone()
    client = Client(alone)
    body = encode_request(Open(client.session, 1, "a"))
    cell = alone.cell
    cell.receive_frames(client.ledger, 1, (body,), 50, alone.now)
    cell.clients.receive_request(client.ledger, 1, body)
    cell.handle_synced(alone.store.lsn, alone.now)  # the request is decided, and the decision is under way to the disk
    cell.clients.inbox.forget(client.ledger, 1)
    alone.settle()
    alone.run(0.1)
    assert [event for event in alone.events if isinstance(event, RequestWanted)] == [RequestWanted(client.ledger, 1)]
    assert client.session not in cell.clients.state.sessions
    cell.clients.receive_request(client.ledger, 1, body)
    alone.run(0.1)
    assert client.session in cell.clients.state.sessions
    assert not cell.clients.inbox.wanted


def test_the_state_survives_as_bytes() -> None:
    alone = Alone()
    first, second = Client(alone, 1), Client(alone, 2)
    first.open("a")
    second.open("")
    first.subscribe("x")
    state = alone.cell.clients.state
    data = encode_state(state)
    back = decode_state(data)
    assert back is not None
    assert encode_state(back) == data
    assert back.sessions[first.session].consumers == state.sessions[first.session].consumers
    assert back.owner("a") == first.ledger
    assert back.session_count(first.ledger) == 1
    for end in range(len(data)):
        assert decode_state(data[:end]) is None
    assert decode_state(data + b"\0") is None
    assert decode_state(b"\xff" * 200) is None


def test_a_pause_of_the_manager_ends_no_session() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    alone.pause(2 * SESSION_LEASE_S)  # the leases that came meanwhile have not been read
    for _ in range(10):
        client.renew()
        alone.run(0.1)
    assert alone.cell.is_serving
    assert client.session in alone.cell.clients.state.sessions
