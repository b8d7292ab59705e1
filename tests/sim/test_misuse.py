"""Tests of node ids in use twice, floods of requests, false claims, and refused objects."""

from random import Random

import pytest
from groups import CODES, NAMES, PARITY, PAYLOAD, SMALL

from fjm2.norm.core.config import Fec, ReceiverConfig, SenderConfig
from fjm2.norm.core.engine import sender_of
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.wire import (
    Data,
    Nack,
    Position,
    RepairFlag,
    RepairForm,
    RepairRequest,
    decode,
)
from fjm2.norm.events import (
    LossReason,
    NodeIdCollided,
    ObjectCompleted,
    ObjectLost,
    ObjectsMissed,
)
from fjm2.norm.sim import GROUP, Network, Node


def test_node_id_in_use_twice_is_reported(net: Network) -> None:
    pub, twin = net.sender(node_id=5), net.sender(node_id=5)
    third = net.receiver()
    pub.send(b"content")
    net.run(until=1.0)
    assert [event.address for event in twin.events(NodeIdCollided)] == [pub.address]
    assert third.objects == [b"content"]


def flood(net: Network, attacker: Node, pub: Node, position: Position, last: Position, flags: int) -> None:
    """Send a thousand NACKs with the same request, a millisecond apart."""
    nack = Nack(
        source_id=attacker.node_id,
        sender_id=pub.node_id,
        instance_id=sender_of(pub.engine).instance_id,
        grtt_response_s=0,
        grtt_response_us=0,
        extensions=(),
        requests=(RepairRequest(RepairForm.RANGES, flags, (position, last)),),
    )
    for number in range(1000):
        net.at(net.now + 0.001 * number, lambda: attacker.transmit(nack.encode()))


@pytest.mark.parametrize("config", CODES, ids=NAMES)
def test_flood_of_nacks_makes_few_repairs(net: Network, config: SenderConfig) -> None:
    pub, sub, attacker = net.sender(config), net.receiver(), net.receiver()
    net.link(pub, net.hub, delay_s=0.01)
    number = pub.send(PAYLOAD)  # 400 segments, of which the NACKs request the first ten blocks
    net.run(until=1.0)
    first, last = _block_range(config, number)
    flood(net, attacker, pub, first, last, RepairFlag.BLOCK)
    net.run(until=3.0)
    # A block is repaired at most once a round trip, which takes 30 ms here: about forty times 160 segments in a second.
    assert pub.stats.repair_segments_sent <= 40 * 160
    pub.send(b"still alive")
    net.run(until=10.0)
    assert sub.objects == [PAYLOAD, b"still alive"]


def _block_range(config: SenderConfig, number: int) -> tuple[Position, Position]:
    shift = 16 if config.fec is Fec.NOCODE else 8
    fec_id = config.fec.fec_id
    return Position(fec_id, number, 0), Position(fec_id, number, 9 << shift)


def test_requests_for_nonsense_are_dropped(net: Network) -> None:
    pub, sub, attacker = net.sender(SMALL), net.receiver(), net.receiver()
    number = pub.send(PAYLOAD)
    net.run(until=1.0)
    fec_id = SMALL.fec.fec_id
    flood(net, attacker, pub, Position(fec_id, number, 900 << 8), Position(fec_id, number, 901 << 8), RepairFlag.BLOCK)
    net.run(until=3.0)
    assert pub.stats.repair_segments_sent == 0
    assert pub.stats.drops[Drop.BAD_POSITION] == 1000
    flood(
        net,
        attacker,
        pub,
        Position(fec_id, number + 9 & 0xFFFF, 0),
        Position(fec_id, number + 9 & 0xFFFF, 0),
        RepairFlag.OBJECT,
    )
    net.run(until=5.0)
    assert (pub.stats.repair_segments_sent, pub.stats.squelches_sent <= 40) == (0, True)
    pub.send(b"still alive")
    net.run(until=10.0)
    assert sub.objects == [PAYLOAD, b"still alive"]


def test_many_fake_senders_take_bounded_memory(net: Network) -> None:
    pub = net.sender(SenderConfig(segment_bytes=100, rate_bps=1e6))
    sub = net.receiver(ReceiverConfig(senders_max=16, total_bytes_max=1 << 20, object_bytes_max=1 << 19))
    attacker = net.receiver()
    pub.send(b"proven")
    net.run(until=0.5)
    pub.send(PAYLOAD)
    rng = Random(5)
    template = _template(net, pub)
    for number in range(3000):
        forged = bytearray(template)
        forged[4:8] = (1000 + number).to_bytes(4, "big")
        forged[14:16] = rng.randbytes(2)
        net.at(0.5 + number * 1e-3, lambda forged=bytes(forged): attacker.transmit(forged))
    worst = 0
    while net.now < 4.0:
        net.run(until=net.now + 0.05)
        assert len(sub.engine.remote_senders) <= 16
        worst = max(worst, sub.engine.memory_bytes)
    assert worst <= 1 << 20
    assert pub.node_id in sub.engine.remote_senders
    assert sub.objects == [b"proven", PAYLOAD]


def _template(net: Network, pub: Node) -> bytes:
    """Return a DATA datagram of a large object of which nothing else will be sent."""
    data: list[bytes] = []
    other = Network(net.seed)
    other.on_send = lambda _, train: data.append(bytes(train.data[: train.segment_bytes]))
    twin = other.sender(pub.config.sender)
    twin.send(bytes(400_000))
    other.run(until=0.1)
    return next(item for item in data if isinstance(decode(item), Data))


def test_too_large_objects_are_refused(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(object_bytes_max=1000))
    large, small = pub.send(PAYLOAD), pub.send(b"small")
    net.run(until=5.0)
    assert [(event.object_id, event.reason) for event in sub.events(ObjectLost)] == [(large, LossReason.TOO_LARGE)]
    assert [event.object_id for event in sub.events(ObjectCompleted)] == [small]
    assert sub.stats.nacks_sent == 0


def test_sender_too_far_ahead_is_an_event(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(objects_max=4))
    link = net.link(pub, sub)
    pub.send(b"first")
    net.run(until=0.5)
    link.cut()
    for _ in range(10):
        pub.send(b"unheard")
    net.run(until=0.6)
    link.mend()
    pub.send(b"last")
    net.run(until=10.0)
    assert [event.count for event in sub.events(ObjectsMissed)] == [7]
    assert sub.objects.count(b"unheard") == 3
    assert sorted(set(sub.objects)) == [b"first", b"last", b"unheard"]


def test_same_seed_same_history() -> None:
    def history(seed: int) -> list[tuple[float, bytes]]:
        net = Network(seed)
        sent: list[tuple[float, bytes]] = []
        net.on_send = lambda _, train: sent.append((net.now, train.data.tobytes()))
        pub, sub = net.sender(PARITY), net.receiver()
        net.link(pub, sub, jitter_s=0.01).lose(0.2, burst=3).reorder(0.1, by_s=0.01).duplicate(0.1)
        pub.write(PAYLOAD)
        net.run(until=5.0)
        assert sub.received == PAYLOAD
        return sent

    assert history(3) == history(3) != history(4)


def test_unicast_goes_to_one(net: Network) -> None:
    pub, sub, other = net.sender(), net.receiver(), net.receiver()
    pub.transmit(b"nonsense", to=sub.address)
    pub.transmit(b"nonsense", to=("nowhere", 1))
    net.run(until=1.0)
    assert (sub.stats.drops[Drop.MALFORMED], other.stats.drops[Drop.MALFORMED]) == (1, 0)
    pub.transmit(b"nonsense", to=GROUP)
    net.run(until=2.0)
    assert (sub.stats.drops[Drop.MALFORMED], other.stats.drops[Drop.MALFORMED]) == (2, 1)
