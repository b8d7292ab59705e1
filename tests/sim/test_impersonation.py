"""False messages in the name of a sender: one must neither silence it nor lose its data, and is reported."""

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from groups import PAYLOAD, SMALL
from hostile.datagrams import Fake, fti
from representatives import representatives
from victim import Victim, fakes

from fjm2.norm.core.config import ReceiverConfig, SenderConfig, Sync
from fjm2.norm.core.engine import sender_of
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.train import Address, Train
from fjm2.norm.core.wire import Nack
from fjm2.norm.events import (
    CommandReceived,
    Doubt,
    LossReason,
    ObjectCompleted,
    ObjectLost,
    ObjectsMissed,
    SenderAppeared,
    SenderImpersonated,
    SenderVanished,
    StreamEnded,
    StreamGapOpened,
    StreamLost,
    StreamReceived,
)
from fjm2.norm.sim import Network, Node

ELSEWHERE: Address = ("10.66.66.66", 666)
SEEDS = representatives([1, 2, 3], 1)
_SEQUENCE, _INSTANCE, _OBJECT_ID, _PAYLOAD_ID = (struct.Struct(code) for code in (">H", ">H", ">H", ">I"))


class Forger:
    """Makes datagrams in a sender's name from those that it sends, as everybody in its group can."""

    def __init__(self, net: Network, pub: Node) -> None:
        self._pub = pub
        self._seen: dict[int, bytes] = {}
        net.on_send = self._note

    def _note(self, node: Node, train: Train) -> None:
        if node is self._pub:
            kind = int(train.data[0]) & 15
            last = (train.count - 1) * train.segment_bytes
            self._seen[kind] = train.data[last:].tobytes()

    def fake(self) -> Fake:
        """A fake sender that goes on where the sender is."""
        data = self._seen[2]
        fake = Fake(self._pub.node_id, sender_of(self._pub.engine).instance_id, self._pub.address)
        (fake.sequence,) = _SEQUENCE.unpack_from(data, 2)
        (fake.object_id,) = _OBJECT_ID.unpack_from(data, 14)
        return fake

    def data(self, ahead_blocks: int = 0, ahead_objects: int = 0, instance: int = 0) -> bytes:
        """DATA with other content, ahead of the sender's last, or of another incarnation."""
        data = bytearray(self._seen[2])
        (object_id,), (payload_id,) = _OBJECT_ID.unpack_from(data, 14), _PAYLOAD_ID.unpack_from(data, 16)
        (before,) = _INSTANCE.unpack_from(data, 8)
        _INSTANCE.pack_into(data, 8, before ^ instance)
        _OBJECT_ID.pack_into(data, 14, object_id + ahead_objects & 0xFFFF)
        _PAYLOAD_ID.pack_into(data, 16, (payload_id + (ahead_blocks << 8)) & 0xFFFFFFFF)
        return bytes(data[:-4]) + b"evil"


FORGERIES: dict[str, Callable[[Forger], bytes]] = {
    "data far ahead": lambda forger: forger.data(ahead_blocks=1000),
    "data half way round": lambda forger: forger.data(ahead_blocks=1 << 23),
    "an object far ahead": lambda forger: forger.data(ahead_objects=3000),
    "an object half way round": lambda forger: forger.data(ahead_objects=0x8000),
    "an info far ahead": lambda forger: ahead(forger, 5000).info(b"evil", fti(5, 1000, 100, 16)),
    "a flush far ahead": lambda forger: forger.fake().flush(5_000_000, 0),
    "a flush of an object far ahead": lambda forger: ahead(forger, 0x7000).flush(0, 0),
    "a squelch": lambda forger: forger.fake().flush(1 << 22, 0, flavor=3),
    "a squelch of the stream": lambda forger: ahead(forger, 1).flush(0, 0, flavor=3),
    "a squelch that lists it": lambda forger: forger.fake().flush(
        0, 0, _OBJECT_ID.pack(forger.fake().object_id), flavor=3
    ),
    "a goodbye": lambda forger: forger.fake().command(2),
    "a restart": lambda forger: forger.data(instance=0x5555),
    "a goodbye of a restarted one": lambda forger: restarted(forger).command(2),
}


def ahead(forger: Forger, objects: int) -> Fake:
    fake = forger.fake()
    fake.object_id = fake.object_id + objects & 0xFFFF
    return fake


def restarted(forger: Forger) -> Fake:
    fake = forger.fake()
    fake.instance_id ^= 0x5555
    return fake


def inject(sub: Node, data: bytes, address: Address) -> None:
    """Let a datagram arrive that claims to come from an address."""
    array = np.frombuffer(data, np.uint8)
    sub.receive(Train(array, array.size, address), False)


def write_on(net: Network, pub: Node, content: bytes, until: float, step_s: float = 0.002) -> None:
    """Write content bit by bit."""
    steps = max(round((until - net.now) / step_s), 1)
    size = -(-len(content) // steps)
    for at in range(0, len(content), size):
        pub.write(content[at : at + size])
        net.run(until=net.now + step_s)


def trouble(sub: Node) -> list[object]:
    return [*sub.events(StreamLost), *sub.events(ObjectLost), *sub.events(ObjectsMissed), *sub.events(SenderVanished)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("is_spoofed", [True, False], ids=["own address", "other address"])
@pytest.mark.parametrize("name", FORGERIES)
def test_one_forged_datagram_loses_nothing_of_a_busy_sender(
    name: str, is_spoofed: bool, loss: float, seed: int
) -> None:
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(sync=Sync.CURRENT))
    forger = Forger(net, pub)
    link = net.link(pub, sub)
    pub.write(PAYLOAD[:1000])
    net.run(until=0.05)
    link.lose(loss)
    write_on(net, pub, PAYLOAD[1000:20_000], 0.3)
    inject(sub, FORGERIES[name](forger), pub.address if is_spoofed else ELSEWHERE)
    write_on(net, pub, PAYLOAD[20_000:], 0.7)
    pub.end_stream()
    net.run(until=10.0)
    assert sub.received == PAYLOAD
    assert [event.size for event in sub.events(StreamEnded)] == [len(PAYLOAD)]
    assert not trouble(sub)
    if not is_spoofed:
        reports = [(event.sender_id, event.address) for event in sub.events(SenderImpersonated)]
        assert reports == [(pub.node_id, ELSEWHERE)]
        assert sub.stats.drops[Drop.IMPOSTOR] == 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FORGERIES)
def test_one_forged_datagram_loses_nothing_of_an_idle_sender(name: str, seed: int) -> None:
    """A goodbye of an idle sender is believed until it speaks."""
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(sync=Sync.CURRENT))
    forger = Forger(net, pub)
    net.link(pub, sub)
    write_on(net, pub, PAYLOAD[:20_000], 0.3)
    net.run(until=3.0)
    inject(sub, FORGERIES[name](forger), pub.address)
    net.run(until=4.0)
    write_on(net, pub, PAYLOAD[20_000:], 5.0)
    net.run(until=10.0)
    assert sub.received == PAYLOAD
    lost = [event for event in trouble(sub) if getattr(event, "reason", None) is not LossReason.SENDER_GONE]
    assert not lost
    if sub.events(SenderVanished):
        assert [event.doubt for event in sub.events(SenderImpersonated)] == [Doubt.GOODBYE]


@pytest.mark.parametrize("seed", SEEDS)
def test_goodbyes_one_after_the_other_lose_nothing(seed: int) -> None:
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver()
    forger = Forger(net, pub)
    net.link(pub, sub)
    write_on(net, pub, PAYLOAD[:2000], 0.1)
    for number in range(2, 20):
        inject(sub, forger.fake().command(2), pub.address)
        write_on(net, pub, PAYLOAD[1000 * number : 1000 * number + 1000], net.now + 0.1, 0.01)
    net.run(until=net.now + 3.0)
    assert sub.received == PAYLOAD[:20_000]
    assert not trouble(sub)
    assert {event.doubt for event in sub.events(SenderImpersonated)} == {Doubt.GOODBYE}
    assert sub.stats.drops[Drop.IMPLAUSIBLE] == 18


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("is_near", [True, False])
def test_a_leap_that_many_forged_datagrams_prove_is_taken_back(seed: int, is_near: bool) -> None:
    """The sender goes on where it was, and delivery goes back to there."""
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver()
    forger = Forger(net, pub)
    net.link(pub, sub)
    write_on(net, pub, PAYLOAD[:20_000], 0.3)
    net.run(until=1.0)
    for step in range(5):
        inject(sub, forger.data(ahead_blocks=200 + step if is_near else 100_000 + step), pub.address)
        net.run(until=net.now + 0.01)
    net.run(until=2.0)
    write_on(net, pub, PAYLOAD[20_000:], 3.0, 0.01)
    net.run(until=10.0)
    genuine = b"".join(run.data for runs in sub.log.runs.values() for run in runs if b"evil" not in run.data)
    assert genuine.endswith(PAYLOAD[20_000:])
    assert sub.events(StreamLost)[-1].reason is LossReason.FORGED


def test_repairs_that_come_after_a_leap_do_not_take_it_back() -> None:
    """Receivers asked for them before: they do not show where the sender is."""
    net, content = Network(1), Random(1).randbytes(300_000)
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(sync=Sync.CURRENT))
    sent: list[bytes] = []

    def note(node: Node, train: Train) -> None:
        data = train.data.tobytes()
        if node is pub and data[0] & 15 == 2:
            sent.extend(data[at : at + train.segment_bytes] for at in range(0, len(data), train.segment_bytes))

    def take(datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            inject(sub, datagram, pub.address)
            net.run(until=net.now + 0.005)

    net.on_send = note
    net.link(pub, sub).lose(1.0)
    write_on(net, pub, content[:40_000], 2.0)
    first = len(sent)
    take(sent)
    before = sub.received
    write_on(net, pub, content[40_000:], 10.0)
    more = sent[first:]
    take(more[1:80])  # the first is missing
    take(more[-12:-4])
    assert sub.events(StreamLost)
    take(more[:20])
    take(more[-4:])
    net.run(until=net.now + 20.0)
    assert LossReason.FORGED not in {event.reason for event in sub.events(StreamLost)}
    assert sub.received.startswith(before)
    assert max(sub.received.count(content[at : at + 50]) for at in range(0, len(content), 50)) == 1


# A sender that really restarts or moves.


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("pause_s", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("address", [None, ("10.0.0.99", 1234)], ids=["same address", "other address"])
def test_a_restarted_sender_is_received_within_a_second(seed: int, pause_s: float, address: Address | None) -> None:
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub)
    write_on(net, pub, PAYLOAD[:20_000], 0.3)
    pub.crash()
    net.run(until=net.now + pause_s)
    pub.address = address or pub.address
    pub.rejoin()
    began_at = net.now
    stream = pub.write(PAYLOAD)
    net.run(until=10.0)
    assert sub.log.stream(pub.node_id, stream) == PAYLOAD
    appeared = [at for at, event in sub.log.history if isinstance(event, SenderAppeared)]
    assert len(appeared) == 2
    assert appeared[1] - began_at <= (0.1 if address is None else 0.6)
    assert [event.reason for event in sub.events(SenderVanished)] == [LossReason.SENDER_RESTARTED]


def test_what_is_kept_of_a_restarted_sender_is_a_copy() -> None:
    """A socket reads the next train into the same memory."""
    victim, contents = Victim(), [bytes((number,)) * 50 for number in range(8)]
    first, second = Fake(1, 7, ("10.0.0.1", 6003)), Fake(1, 8, ("10.0.0.1", 6003))
    victim.take(first, first.data(0, 0, b"tiny", fti=fti(5, 4, 100, 64)))
    memory = np.zeros(500, np.uint8)
    for content in contents:
        data = np.frombuffer(second.data(0, 0, content, fti=fti(5, 50, 100, 64)), np.uint8)
        memory[: data.size] = data
        victim.engine.receive_train(Train(memory[: data.size], data.size, second.address), victim.now)
        second.object_id += 1
    memory[:] = 0xFF
    completed = [event for event in victim.pass_time(1.0) if isinstance(event, ObjectCompleted)]
    assert [bytes(event.data or b"") for event in completed] == contents


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sender_whose_address_changes_loses_nothing(seed: int) -> None:
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub).lose(0.05)
    write_on(net, pub, PAYLOAD[:20_000], 0.3)
    pub.address = "10.0.0.99", 1234
    pub.engine.own_address = pub.address
    write_on(net, pub, PAYLOAD[20_000:], 1.5)
    net.run(until=10.0)
    assert sub.received == PAYLOAD
    assert not trouble(sub)


def announce_when_idle(net: Network, node: Node, until: float, offset_s: float = 0.0) -> None:
    """Let a node send one command each 4 to 6 s, as a connection with nothing to send does."""
    random, at = Random(net.seed), net.now + offset_s
    while at < until:
        net.at(at, lambda: node.command(b"here"))
        at += random.uniform(4.0, 6.0)


def move(node: Node) -> None:
    """Give a node another address, as a gateway that restarts gives those behind it."""
    node.address = node.engine.own_address = "10.0.0.99", 1234


@pytest.mark.parametrize("seed", representatives(range(10), 0, 1, 2))
def test_an_idle_sender_whose_address_changes_is_known_again_before_it_is_forgotten(seed: int) -> None:
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub)
    announce_when_idle(net, pub, until=60.0)
    net.run(until=20.0)
    move(pub)
    net.run(until=60.0)
    heard = [at for at, event in sub.log.history if isinstance(event, CommandReceived)]
    assert max(after - before for before, after in pairwise(heard)) < 15.0, "the bus forgets a connection after 15 s"
    assert heard[-1] > 50.0
    assert not sub.events(SenderImpersonated)
    assert sub.stats.drops[Drop.IMPOSTOR] == 0
    assert not trouble(sub)


def test_hundreds_of_idle_senders_that_move_at_once_are_known_again() -> None:
    """A gateway restarts, and all nodes behind it have another address."""
    victim, senders = Victim(ReceiverConfig()), list(fakes(600))
    for fake in senders:
        victim.take(fake, fake.command(7, content=b"here"))
        victim.pass_time(0.02)
    victim.pass_time(1.0)
    moved = [replace(fake, address=("10.9.9.9", 7000)) for fake in senders]
    heard = 0
    for _ in range(3):
        for fake in moved:
            events = victim.take(fake, fake.command(7, content=b"here"))
            heard += sum(isinstance(event, CommandReceived) for event in events)
            victim.pass_time(5.0 / len(moved))
    assert heard == 3 * len(moved), "nothing is lost, either"
    assert victim.drops(Drop.IMPOSTOR) == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_forger_does_not_get_the_name_of_an_idle_sender_that_goes_on(seed: int) -> None:
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver()
    forger = Forger(net, pub)
    net.link(pub, sub)
    announce_when_idle(net, pub, until=60.0)
    pub.write(PAYLOAD[:1000])
    for at in range(12, 52, 5):
        net.at(at, lambda: inject(sub, forger.fake().command(7, content=b"evil"), ELSEWHERE))
    net.run(until=60.0)
    assert {event.content for event in sub.events(CommandReceived)} == {b"here"}
    assert sub.stats.drops[Drop.IMPOSTOR] == 8
    reports = sub.events(SenderImpersonated)
    assert {(event.address, event.doubt) for event in reports} == {(ELSEWHERE, Doubt.OTHER_ADDRESS)}
    assert len(reports) >= 4


@pytest.mark.parametrize("seed", SEEDS)
def test_an_idle_sender_gets_its_name_back_from_a_forger_that_falls_silent(seed: int) -> None:
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver()
    forger = Forger(net, pub)
    net.link(pub, sub)
    announce_when_idle(net, pub, until=80.0)
    pub.write(PAYLOAD[:1000])
    for step in range(300):
        net.at(20.0 + 0.1 * step, lambda: inject(sub, forger.fake().command(7, content=b"evil"), ELSEWHERE))
    net.run(until=80.0)
    heard = [(at, event.content) for at, event in sub.log.history if isinstance(event, CommandReceived)]
    assert b"evil" in {content for _, content in heard}, "nothing but authentication helps against that"
    assert min(at for at, content in heard if content == b"here" and at > 50.0) < 65.0


def test_a_claim_that_nothing_contradicts_grows_old_without_a_report(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    forger = Forger(net, pub)
    net.link(pub, sub)
    pub.write(PAYLOAD[:1000])
    net.run(until=10.0)
    claim = forger.fake().command(7, content=b"here")
    pub.crash()
    inject(sub, claim, ELSEWHERE)
    net.run(until=10.1)
    inject(sub, claim, ELSEWHERE)  # as if the network repeated it
    net.run(until=90.0)
    assert not sub.events(CommandReceived)
    assert not sub.events(SenderImpersonated)
    assert sub.stats.drops[Drop.IMPOSTOR] == 2


@pytest.mark.parametrize("seed", SEEDS)
def test_an_incarnation_that_many_datagrams_claim_gives_way_when_the_sender_speaks(seed: int) -> None:
    """A forger takes the name of an idle sender, and keeps sending. The sender gets it back."""
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver()
    forger = Forger(net, pub)
    net.link(pub, sub)
    write_on(net, pub, PAYLOAD[:20_000], 0.3)
    net.run(until=3.0)
    for _ in range(100):
        inject(sub, restarted(forger).probe(), ELSEWHERE)
        net.run(until=net.now + 0.01)
    assert [event.reason for event in sub.events(SenderVanished)] == [LossReason.SENDER_RESTARTED]
    for at in range(20_000, 40_000, 200):
        inject(sub, restarted(forger).probe(), ELSEWHERE)
        pub.write(PAYLOAD[at : at + 200])
        net.run(until=net.now + 0.01)
    net.run(until=10.0)
    assert sub.received == PAYLOAD
    assert ELSEWHERE in [event.address for event in sub.events(SenderImpersonated)]
    assert not sub.events(StreamLost)[1:]


# A SQUELCH that is meant, and gaps.


def test_a_squelch_counts_when_the_sender_repeats_it() -> None:
    victim, fake = Victim(), Fake(1, 7, ("10.0.0.1", 6003))
    ext = fti(5, 1 << 20, 10, 200)

    def segment(at: int) -> bytes:
        return fake.data(0, at, b"\0\1\0\0" + at.to_bytes(4, "big") + bytes((at,)) + bytes(9), fti=ext, flags=0x20)

    victim.take(fake, segment(0), fake.flush(0, 9))
    victim.pass_time(1.0)
    squelch = fake.flush(0, 9, flavor=3)
    nacks = len(victim.sent_of(Nack))
    assert nacks
    assert victim.take(fake, squelch) == []
    assert victim.take(fake, squelch) == []  # at once, and unasked
    while len(victim.sent_of(Nack)) == nacks:
        victim.pass_time(0.1)
    squelch = fake.flush(1, 0, flavor=3)
    assert victim.take(fake, squelch) == [StreamGapOpened(1, 0, 1, 90, LossReason.SQUELCHED)]
    assert victim.pass_time(5.0) == []
    lost, received = victim.take(fake, fake.data(0, 10, b"\0\1\0\0\0\0\0\x20z" + bytes(9), fti=ext, flags=0x20))
    assert lost == StreamLost(1, 0, 1, 32, LossReason.SQUELCHED)
    assert isinstance(received, StreamReceived)


def test_a_squelch_that_a_repair_contradicts_is_reported() -> None:
    victim, fake = Victim(), Fake(1, 7, ("10.0.0.1", 6003))
    ext = fti(5, 50, 10, 200)
    victim.take(fake, fake.data(0, 0, bytes(10), fti=ext), fake.data(0, 2, bytes(10), fti=ext))
    victim.pass_time(0.5)
    fake.object_id = 1
    assert victim.take(fake, fake.flush(0, 0, flavor=3)) == []
    fake.object_id = 0
    events = victim.take(fake, *(fake.data(0, at, bytes(10), fti=ext) for at in (1, 3, 4)))
    events += victim.pass_time(1.0)
    fake.object_id = 1
    events += victim.take(fake, fake.data(0, 0, b"tiny", fti=fti(5, 4, 10, 200)))
    assert not [event for event in events if isinstance(event, ObjectLost)]
    assert [event for event in events if isinstance(event, SenderImpersonated)] == [
        SenderImpersonated(1, fake.address, Doubt.SQUELCH)
    ]


def test_a_gap_is_reported_when_it_opens(net: Network) -> None:
    """The sender says that it no longer holds what is missing, and nothing else comes for a while."""
    config = SenderConfig(segment_bytes=100, block_segments=4, stream_bytes=3200)
    pub, sub = net.sender(config), net.receiver()
    link = net.link(pub, sub)
    pub.write(PAYLOAD[:1000])
    net.run(until=0.5)
    link.cut()
    pub.write(PAYLOAD[1000:20_000])
    net.run(until=1.0)
    link.mend()
    pub.write(PAYLOAD[20_000:20_100])
    net.run(until=10.0)
    gaps = [at for at, event in sub.log.history if isinstance(event, StreamGapOpened | StreamLost)]
    (lost,) = sub.events(StreamLost)
    assert gaps[0] < 2.0
    assert sub.received == PAYLOAD[: lost.start] + PAYLOAD[lost.end : 20_100]


# Names that are used once.


def test_a_flood_of_new_senders_neither_takes_room_nor_keeps_a_newcomer_out() -> None:
    """40,000 new names in a second."""
    victim, random = Victim(ReceiverConfig(senders_max=1024)), Random(1)
    newcomer = Fake(5, 7, ("10.0.0.5", 6003))
    ext = fti(5, 4, 1000, 64)
    appeared = 0
    for number in range(40_000):
        fake = Fake(1000 + number, random.getrandbits(16), (f"10.1.{number >> 8 & 255}.{number & 255}", 6003))
        appeared += sum(
            isinstance(event, SenderAppeared) for event in victim.take(fake, fake.data(0, 0, b"tiny", fti=ext))
        )
        victim.now += 25e-6
        if number in (30_000, 30_400):  # 10 ms later
            events = victim.take(newcomer, newcomer.data(0, 0, b"tiny", fti=ext))
            newcomer.object_id += 1
    assert any(isinstance(event, ObjectCompleted) for event in events)
    assert appeared <= 800
    assert victim.drops(Drop.STRANGER) > 39_000


def test_names_used_once_give_way_to_those_who_stay() -> None:
    """Each has sent something complete, and so would have been taken for useful."""
    victim = Victim(ReceiverConfig(senders_max=400))
    ext = fti(5, 4, 1000, 64)
    for number in range(500):
        fake = Fake(1000 + number, 7, (f"10.1.{number >> 8 & 255}.{number & 255}", 6003))
        victim.take(fake, fake.data(0, 0, b"tiny", fti=ext))
        victim.now += 3e-3
    newcomer = Fake(5, 7, ("10.0.0.5", 6003))
    assert any(
        isinstance(event, ObjectCompleted) for event in victim.take(newcomer, newcomer.data(0, 0, b"tiny", fti=ext))
    )


def test_some_hundreds_of_senders_are_received_from_their_first_datagram() -> None:
    victim = Victim()
    completed = 0
    for number in range(500):
        fake = Fake(1000 + number, 7, (f"10.1.{number >> 8 & 255}.{number & 255}", 6003))
        completed += len(victim.take(fake, fake.data(0, 0, b"tiny", fti=fti(5, 4, 1000, 64)))) == 2
    assert completed == 500


@pytest.mark.alone
def test_new_senders_cost_no_more_than_noise() -> None:

    def cost(datagrams: list[bytes]) -> float:
        victim = Victim()
        fake = Fake(1, 7, ("10.0.0.1", 6003))
        trains = [Train(np.frombuffer(data, np.uint8), len(data), fake.address) for data in datagrams]
        for train in trains[:1000]:
            victim.engine.receive_train(train, victim.now)
        began = time.thread_time()
        for train in trains[1000:]:
            victim.engine.receive_train(train, victim.now)
        return time.thread_time() - began

    noise = [b"\xff" + Random(number).randbytes(99) for number in range(5000)]
    names = [Fake(1000 + at, 7, ("", 0)).data(0, 0, bytes(100), fti=fti(5, 1 << 20, 100, 64)) for at in range(5000)]
    assert min(cost(names) for _ in range(3)) < min(cost(noise) for _ in range(3))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("step", [40, 400], ids=["alone", "trains"])
def test_data_of_a_busy_sender_contradict_forged_leaps_between_them(seed: int, step: int) -> None:
    net = Network(seed)
    pub, sub = net.sender(SMALL), net.receiver(ReceiverConfig(sync=Sync.CURRENT))
    forger = Forger(net, pub)
    net.link(pub, sub)
    pub.write(PAYLOAD[:2000])
    net.run(until=0.05)
    for number, at in enumerate(range(2000, len(PAYLOAD), step)):
        pub.write(PAYLOAD[at : at + step])
        net.run(until=net.now + 0.002)
        if number < 24 and number % 4 == 3:
            inject(sub, forger.data(ahead_blocks=1000), pub.address)
    pub.end_stream()
    net.run(until=net.now + 10.0)
    assert sub.received == PAYLOAD
    assert not trouble(sub)
    assert sub.stats.drops[Drop.IMPLAUSIBLE] == 6
