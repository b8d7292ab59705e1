"""Tests of acknowledgements whose types applications define, and of requests for them."""

import asyncio
from random import Random

import pytest
from hostile.datagrams import Fake, feedback, fti
from hostile.target import TARGET
from victim import Victim, fakes

from fjm2.errors import ConfigError
from fjm2.norm.core.config import ReceiverConfig
from fjm2.norm.core.engine import sender_of
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.wire import Ack, AckRequest, Flush, decode
from fjm2.norm.events import AckReceived, AckRequested, SenderAppeared
from fjm2.norm.net.event_queue import EVENT_BYTES_MAX, EventQueue
from fjm2.norm.net.session import Session
from fjm2.norm.sim import Network

STORED = 16


@pytest.fixture
def fake() -> Fake:
    return next(fakes(1))


def test_a_request_and_its_answer(net: Network) -> None:
    writer, keeper, other = net.sender(), net.receiver(), net.receiver()
    writer.request_acks(STORED, [keeper], ack_id=9)
    net.run(until=1.0)
    assert keeper.events(AckRequested) == [AckRequested(writer.node_id, STORED, 9)]
    assert not other.events(AckRequested)
    assert keeper.send_ack(writer, STORED, b"all of it", ack_id=9)
    net.run(until=2.0)
    assert writer.events(AckReceived) == [AckReceived(keeper.node_id, STORED, 9, b"all of it")]
    assert not other.events(AckReceived)


def test_a_request_to_nobody_in_particular_asks_everybody(net: Network) -> None:
    writer, keepers = net.sender(), [net.receiver() for _ in range(3)]
    writer.request_acks(255)
    net.run(until=1.0)
    assert all(keeper.events(AckRequested) == [AckRequested(writer.node_id, 255, 0)] for keeper in keepers)


def test_an_acknowledgement_needs_no_request(net: Network) -> None:
    writer, keeper, other = net.sender(), net.receiver(), net.receiver()
    writer.send(b"here I am")
    net.run(until=1.0)
    heard = other.stats.datagrams_received - keeper.stats.datagrams_received
    assert keeper.send_ack(writer, STORED, bytes(1400))
    net.run(until=2.0)
    assert writer.events(AckReceived) == [AckReceived(keeper.node_id, STORED, 0, bytes(1400))]
    # It went by unicast: another receiver would have counted it as meant for somebody else.
    assert other.stats.datagrams_received - keeper.stats.datagrams_received == heard


def test_an_unknown_sender_gets_no_acknowledgement(net: Network) -> None:
    keeper = net.receiver()
    assert not keeper.send_ack(99, STORED, b"")
    net.run(until=1.0)
    assert keeper.stats.acks_sent == 0


def test_a_node_that_answers_nobody_acknowledges_nothing(net: Network) -> None:
    writer, silent = net.sender(), net.receiver(ReceiverConfig(silent=True))
    writer.command(b"here I am")
    net.run(until=1.0)
    assert not silent.send_ack(writer, STORED, b"")
    leaver = net.receiver()
    writer.command(b"still here")
    net.run(until=2.0)
    leaver.engine.stop_answering()
    assert not leaver.send_ack(writer, STORED, b"")


def test_what_cannot_be_sent_is_refused(net: Network) -> None:
    node = net.sender()
    for ack_type in (-1, 0, 2, 15, 256):
        expected = f"ack_type={ack_type}: expected 16 to 255, the types of applications"
        with pytest.raises(ConfigError, match=expected):
            node.request_acks(ack_type)
        with pytest.raises(ConfigError, match=expected):
            node.send_ack(1, ack_type)
    for ack_id in (-1, 256):
        with pytest.raises(ConfigError, match=f"ack_id={ack_id}: expected 0 to 255"):
            node.request_acks(STORED, ack_id=ack_id)
        with pytest.raises(ConfigError, match=f"ack_id={ack_id}: expected 0 to 255"):
            node.send_ack(1, STORED, ack_id=ack_id)
    with pytest.raises(ConfigError, match="an acknowledgement of 1401 bytes: expected 1400 at most"):
        node.send_ack(1, STORED, bytes(1401))
    with pytest.raises(ConfigError, match="a request to 351 nodes: expected 350 at most"):
        node.request_acks(STORED, range(1, 352))
    node.request_acks(STORED, range(1, 351))


def test_an_acknowledgement_is_a_sign_of_life(net: Network) -> None:
    writer, keeper = net.sender(), net.receiver()
    writer.command(b"here I am")
    net.run(until=1.0)
    keeper.send_ack(writer, STORED)
    net.run(until=1.5)
    assert writer.stats.acks_received >= 1
    assert sender_of(writer.engine).window.acking_set.is_measured(keeper.node_id)


def test_acknowledgements_are_taken_while_data_are_not(net: Network) -> None:
    writer, keeper = net.sender(), net.receiver()
    writer.command(b"here I am")
    net.run(until=1.0)
    writer.engine.is_paused = True
    keeper.send_ack(writer, STORED, b"x")
    net.run(until=2.0)
    assert writer.events(AckReceived) == [AckReceived(keeper.node_id, STORED, 0, b"x")]


def test_requests_are_taken_while_data_are_not(net: Network) -> None:
    writer, keeper = net.sender(), net.receiver()
    writer.command(b"here I am")
    net.run(until=1.0)
    keeper.engine.is_paused = True
    writer.request_acks(STORED, [keeper], ack_id=5)
    net.run(until=2.0)
    assert keeper.events(AckRequested) == [AckRequested(writer.node_id, STORED, 5)]


def answer(victim: Victim, ack_type: int, content: bytes, source: int = 50, instance: int | None = None) -> bytes:
    number = sender_of(victim.engine).instance_id if instance is None else instance
    return feedback(5, source, TARGET, number, content, (ack_type, 4))


def test_forged_acknowledgements(fake: Fake) -> None:
    victim = Victim()
    longest = bytes(65_000)
    events = victim.take(
        fake,
        answer(victim, 16, b""),
        answer(victim, 255, longest),
        answer(victim, 15, b"a type of nobody"),
        answer(victim, 0, b""),
        answer(victim, 16, b"", instance=sender_of(victim.engine).instance_id ^ 1),
    )
    assert [event for event in events if isinstance(event, AckReceived)] == [
        AckReceived(50, 16, 4, b""),
        AckReceived(50, 255, 4, longest),
    ]
    assert victim.drops(Drop.STALE_INSTANCE) == 1


def request(fake: Fake, ack_type: int, nodes: tuple[int, ...] = (), instance: int | None = None) -> bytes:
    return AckRequest(
        source_id=fake.node_id,
        instance_id=fake.instance_id if instance is None else instance,
        grtt_q=100,
        backoff=4,
        gsize_q=3,
        ack_type=ack_type,
        ack_id=1,
        acking_nodes=nodes,
    ).encode()


def test_forged_requests(fake: Fake) -> None:
    victim = Victim()
    for ack_type in range(256):
        victim.take(fake, request(fake, ack_type, (TARGET + 1,)))
    assert victim.drops(Drop.UNSUPPORTED) == 16
    assert victim.drops(Drop.NOT_OURS) == 240
    events = victim.take(fake, request(fake, 16, tuple(range(TARGET - 8000, TARGET + 1))))
    assert events == [AckRequested(fake.node_id, 16, 1)]
    assert not victim.sent_of(Ack), "the engine answers none of them by itself"
    assert victim.take(fake, request(fake, 16, instance=fake.instance_id ^ 1)) == []


def test_a_request_makes_its_sender_known(fake: Fake) -> None:
    victim = Victim()
    events = victim.take(fake, request(fake, 16))
    assert [type(event) for event in events] == [SenderAppeared, AckRequested]
    assert victim.engine.send_ack(fake.node_id, 16, b"yes", victim.now, 1)
    victim.settle()
    (ack,) = map(decode, victim.sent_of(Ack))
    assert isinstance(ack, Ack)
    assert (ack.sender_id, ack.instance_id, ack.ack_type, ack.ack_id, ack.content) == (
        fake.node_id,
        fake.instance_id,
        16,
        1,
        b"yes",
    )


def test_a_program_that_acknowledges_too_much_is_bounded(fake: Fake) -> None:
    victim = Victim()
    victim.take(fake, *data_of(fake))
    for _ in range(3000):
        victim.engine.send_ack(fake.node_id, 16, b"", victim.now)
    assert victim.drops(Drop.RATE_LIMITED) == 3000 - 1024


def data_of(fake: Fake) -> list[bytes]:
    """A small object, which proves its sender useful."""
    return [fake.data(0, 0, b"useful", fti=fti(5, 6, 100, 16))]


@pytest.mark.parametrize("requests", [1, 10, 1000])
def test_requests_from_the_forged_address_of_a_victim_are_not_amplified_much(fake: Fake, requests: int) -> None:
    """A program answers each request with as much as there is room for, and with little."""
    victim = Victim()
    for _ in range(requests):
        victim.take(fake, request(fake, 16))
        victim.engine.send_ack(fake.node_id, 16, bytes(1400), victim.now, 1)
        for _ in range(5):
            victim.engine.send_ack(fake.node_id, 16, b"yes", victim.now, 1)
        victim.settle()
    answers = victim.sent_of(Ack)
    headers_bytes = 28
    heard = requests * (len(request(fake, 16)) + headers_bytes)
    assert requests <= len(answers)
    assert sum(len(answer) + headers_bytes for answer in answers) <= 3 * heard
    assert victim.drops(Drop.RATE_LIMITED) >= requests


def test_acknowledgements_to_a_proven_sender_are_paced(fake: Fake) -> None:
    victim = Victim()
    victim.take(fake, *data_of(fake))
    for _ in range(1000):
        for _ in range(10):
            victim.engine.send_ack(fake.node_id, 16, bytes(1400), victim.now)
        victim.pass_time(0.001)
    sent_bytes = sum(map(len, victim.sent_of(Ack)))
    assert 1 << 20 < sent_bytes < (1 << 20) + (1 << 17) + 1500


@pytest.mark.parametrize("kind", [AckRequest, Flush])
def test_claims_do_not_keep_endless_lists_of_nodes(kind: type) -> None:
    """A claimant's messages are kept until it is believed or refused: each list of nodes takes memory."""
    victim, random = Victim(), Random(1)
    known = next(fakes(1))
    victim.take(known, request(known, 16))
    nodes = tuple(random.randrange(1 << 31, 1 << 32) for _ in range(16_000))
    for number in range(64):
        data = request(known, 16, nodes, instance=known.instance_id ^ 1)
        if kind is Flush:
            data = known.flush(0, 0, b"".join(node.to_bytes(4, "big") for node in nodes))
            data = data[:8] + (known.instance_id ^ 1).to_bytes(2, "big") + data[10:]
        if number % 2 == 0:
            victim.now += 1e-5
        victim.take(known, data)
    kept = [part for claim in victim.engine._receivers._claims._by_claimant.values() for part in claim.parts]
    assert [len(getattr(part, "acking_nodes", ())) for part in kept] == [16_000], "only the first one is kept"
    assert victim.pass_time(0.1), "a claimant whose first message is long is believed like any other"


def test_a_flood_of_acknowledgements_pauses_the_queue_of_events() -> None:
    class Source:
        is_paused = False

    source, queue = Source(), EventQueue(is_sender_only=False)
    queue.attach(source)
    content = bytes(65_000)
    while not source.is_paused:
        queue.put(AckReceived(1, 16, 0, content))
    assert queue.waiting_bytes <= EVENT_BYTES_MAX + len(content)
    assert len(queue.waiting) < 1100


def test_a_session_that_only_sends_goes_on_after_any_number_of_acknowledgements() -> None:
    """Its queue keeps the latest events only, and counts the bytes of no others."""

    class Source:
        is_paused = False

    source, queue = Source(), EventQueue(is_sender_only=True)
    queue.attach(source)
    content = bytes(65_000)
    for _ in range(3000):
        queue.put(AckReceived(1, 16, 0, content))
    assert not source.is_paused
    assert queue.waiting_bytes == len(queue.waiting) * len(content)
    while queue.take() is not None:
        pass
    assert queue.waiting_bytes == 0


def test_acknowledgements_are_dropped_in_a_pause() -> None:
    """The queue of events would grow without a bound: feedback is heard even in a pause."""

    async def main() -> None:
        async with Session("127.0.0.1", 9, interface="127.0.0.1") as session:
            engine = session._engine
            session._handle_event(AckReceived(1, 16, 0, b"first"))
            engine.is_paused = True
            session._handle_event(AckReceived(1, 16, 0, b"second"))
            session._handle_event(AckRequested(1, 16, 0))
            assert engine.stats.drops[Drop.PAUSED] == 2
            assert [session.take(), session.take()] == [AckReceived(1, 16, 0, b"first"), None]

    asyncio.run(main())
