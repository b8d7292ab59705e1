"""Tests of receivers that take of a stream only what its sender wants kept."""

from dataclasses import replace
from random import Random

import pytest
from groups import CODES, NAMES, PAYLOAD, SMALL, Chooser, Tap

from fjm2.norm.core.config import Flow, ReceiverConfig, SenderConfig, Sync
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.wire import Ack, Data, Info, Nack, Report, kept_info
from fjm2.norm.events import WatermarkCompleted
from fjm2.norm.sim import Network, Node

KEPT_ONLY = ReceiverConfig(sync=Sync.KEPT)
BEFORE, AFTER = PAYLOAD[:20_000], PAYLOAD[20_000:]
NAMED = replace(SMALL, flow=Flow.NAMED)
SEEDS = range(20)


def group(net: Network, config: SenderConfig = SMALL) -> tuple[Node, Node, Node]:
    """Return a sender, an ordinary receiver, and one that takes only what is to be kept."""
    pub, sub, keeper = net.sender(config), net.receiver(), net.receiver(KEPT_ONLY)
    net.link(pub, sub)
    net.link(pub, keeper)
    return pub, sub, keeper


def answers(tap: Tap, node: Node) -> list[object]:
    """Return what a node has said to senders."""
    return [message for _, by, message in tap.messages if by is node and isinstance(message, Nack | Ack | Report)]


class Writer:
    """Writes to a passing stream, of which everything is to be kept from some time on."""

    def __init__(self, net: Network, pub: Node, kept_at: float) -> None:
        self.pub = pub
        self.stream = pub.open_stream(is_passing=True)
        self.write(BEFORE)
        net.at(kept_at, self.keep)

    def write(self, data: bytes) -> None:
        self.pub.write(data, stream=self.stream)

    def keep(self) -> None:
        self.pub.keep_stream(self.stream)
        self.write(AFTER)


def test_a_passing_stream_passes_by(net: Network) -> None:
    tap = Tap(net)
    pub, sub, keeper = group(net)
    pub.write(PAYLOAD, stream=pub.open_stream(is_passing=True))
    net.run(until=5.0)
    assert (sub.received, keeper.received) == (PAYLOAD, b"")
    assert keeper.stats.drops[Drop.PASSING] == pub.stats.segments_sent + pub.stats.flushes_sent
    assert answers(tap, keeper) == []


def test_other_streams_are_received_from_their_beginning(net: Network) -> None:
    pub, sub, keeper = group(net)
    net.link(pub, keeper).lose(segments=[0, 1, 2, 7])
    pub.write(PAYLOAD, stream=pub.open_stream())
    net.run(until=5.0)
    assert sub.received == keeper.received == PAYLOAD


@pytest.mark.parametrize("config", CODES, ids=NAMES)
@pytest.mark.parametrize("at", [0.0, 0.001, 1.0], ids=["at once", "while it sends", "when it rests"])
def test_keeping_begins_in_the_middle(net: Network, config: SenderConfig, at: float) -> None:
    pub, sub, keeper = group(net, config)
    Writer(net, pub, at)
    net.run(until=8.0)
    assert sub.received == PAYLOAD
    assert keeper.received == AFTER
    assert keeper.stats.bytes_lost == sub.stats.bytes_lost == 0
    assert pub.stats.repair_segments_sent == 0


@pytest.mark.parametrize("lost", [range(1), range(50), range(199), range(198, 200)], ids=str)
def test_what_is_lost_where_keeping_begins_is_repaired(net: Network, lost: range) -> None:
    pub, sub, keeper = group(net)
    Writer(net, pub, 1.0)
    net.at(1.0, lambda: net.link(pub, keeper).lose(segments=lost))
    net.run(until=8.0)
    assert sub.received == PAYLOAD
    assert keeper.received == AFTER
    assert pub.stats.repair_segments_sent <= len(lost)


def test_where_keeping_begins_is_asked_for_if_it_is_not_heard(net: Network, is_kind: Chooser) -> None:
    pub, sub, keeper = group(net)
    link = net.link(pub, keeper).lose(where=is_kind(Info))
    Writer(net, pub, 1.0)
    net.at(2.0, link.mend)
    net.run(until=8.0)
    assert sub.received == PAYLOAD
    assert keeper.received == AFTER
    assert pub.stats.repair_segments_sent <= 200  # nothing from before


def test_nothing_heard_of_what_is_to_be_kept_is_asked_for_by_a_flush(net: Network, is_kind: Chooser) -> None:
    pub, sub, keeper = group(net)
    link = net.link(pub, keeper).lose(where=is_kind(Info, Data))
    Writer(net, pub, 1.0)
    net.at(2.0, link.mend)
    net.at(2.0, lambda: pub.repeat_flush([keeper]))
    net.run(until=8.0)
    assert sub.received == PAYLOAD
    assert keeper.received == AFTER
    assert pub.stats.repair_segments_sent <= 200  # nothing from before


def test_a_watermark_is_confirmed_when_all_is_there(net: Network, is_kind: Chooser) -> None:
    pub, _, keeper = group(net, NAMED)
    link = net.link(pub, keeper).lose(where=is_kind(Info, Data))
    writer = Writer(net, pub, 1.0)
    net.run(until=1.1)
    pub.watermark([keeper])
    net.run(until=1.5)
    assert pub.events(WatermarkCompleted) == []
    link.mend()
    writer.write(b"more")
    net.run(until=8.0)
    assert [event.failed for event in pub.events(WatermarkCompleted)] == [frozenset()]
    assert keeper.received == AFTER + b"more"


def test_a_late_one_gets_what_was_to_be_kept(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    writer = Writer(net, pub, 1.0)
    net.run(until=2.0)
    keeper = net.receiver(KEPT_ONLY)
    writer.write(b"more")
    net.run(until=8.0)
    assert sub.received == PAYLOAD + b"more"
    assert keeper.received == AFTER + b"more"


def test_a_very_late_one_begins_where_it_comes(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    writer = Writer(net, pub, 1.0)
    for _ in range(10):
        net.at(2.0, lambda: writer.write(PAYLOAD))
    net.run(until=30.0)
    keeper = net.receiver(KEPT_ONLY)
    writer.write(PAYLOAD)
    net.run(until=60.0)
    assert len(sub.received) == len(PAYLOAD) * 12
    assert keeper.received == PAYLOAD
    assert keeper.stats.bytes_lost == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_in_bad_weather(seed: int) -> None:
    net, random = Network(seed), Random(seed)
    pub, sub, keeper = group(net, random.choice(CODES))
    for node in (sub, keeper):
        net.link(pub, node, jitter_s=random.choice([0.0, 0.002])).lose(random.uniform(0.0, 0.3)).reorder(0.1, 0.01)
    writer = Writer(net, pub, random.choice([0.0, 0.002, 0.05, 1.0]))
    net.at(3.0, lambda: writer.write(b"more"))
    net.at(4.0, lambda: pub.repeat_flush([sub, keeper]))
    net.run(until=60.0)
    assert sub.received == PAYLOAD + b"more"
    assert keeper.received == AFTER + b"more"


@pytest.mark.parametrize("info", [b"", b"KEEP", b"KEEP1234", kept_info(0xFFFFFFFF), kept_info(255), b"x" * 90])
def test_a_false_beginning_does_no_harm(net: Network, info: bytes) -> None:
    pub, sub, keeper = group(net)
    stream = pub.open_stream(info)
    pub.write(PAYLOAD, stream=stream)
    net.run(until=5.0)
    assert sub.received == PAYLOAD
    assert keeper.received in {PAYLOAD, b""} or PAYLOAD.endswith(keeper.received)
    pub.write(PAYLOAD, stream=pub.open_stream())
    net.run(until=10.0)
    assert keeper.received.endswith(PAYLOAD)
