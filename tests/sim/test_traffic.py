"""Tests of several streams, senders, files and commands at once, and of measured round trips."""

import os
from pathlib import Path

from groups import PARITY, PAYLOAD, SMALL

from fjm2.norm.core.config import Flow, ReceiverConfig, SenderConfig
from fjm2.norm.events import (
    CommandReceived,
    CommandSent,
    ObjectCompleted,
    StreamEnded,
)
from fjm2.norm.sim import Network


def test_two_streams_at_once(net: Network) -> None:
    pub, sub = net.sender(SMALL), net.receiver()
    net.link(pub, sub).lose(0.1)
    first, second = pub.open_stream(b"first"), pub.open_stream(b"second")
    for part in range(0, len(PAYLOAD), 1000):
        pub.write(PAYLOAD[part : part + 1000], stream=first)
        pub.write(PAYLOAD[::-1][part : part + 1000], stream=second)
        net.run(until=net.now + 0.005)
    pub.end_stream(first)
    pub.end_stream(second)
    net.run(until=10.0)
    assert sub.log.stream(pub.node_id, first) == PAYLOAD
    assert sub.log.stream(pub.node_id, second) == PAYLOAD[::-1]
    assert sorted(event.object_id for event in sub.events(StreamEnded)) == sorted([first, second])


def test_every_node_sends_to_all(net: Network) -> None:
    nodes = [net.sender(SMALL) for _ in range(5)]
    for node in nodes:
        net.link(node, net.hub).lose(0.05)
    for number, node in enumerate(nodes):
        node.send(bytes([number]) * 5000)
        node.write(bytes([number + 100]) * 5000)
    net.run(until=10.0)
    for number, node in enumerate(nodes):
        others = [other for other in range(5) if other != number]
        assert sorted(node.objects) == [bytes([other]) * 5000 for other in others]
        assert sorted(b"".join(run.data for run in runs) for runs in node.log.runs.values()) == [
            bytes([other + 100]) * 5000 for other in others
        ]


def test_files_arrive_as_files(net: Network, tmp_path: Path) -> None:
    outbox, inbox = tmp_path / "out", tmp_path / "in"
    outbox.mkdir()
    inbox.mkdir()
    (outbox / "file").write_bytes(PAYLOAD)
    pub, sub = net.sender(PARITY), net.receiver(ReceiverConfig(file_directory=str(inbox)))
    other = net.receiver()
    net.link(pub, net.hub).lose(0.1)
    pub.send_file(outbox / "file", info=b"file")
    net.run(until=10.0)
    (event,) = sub.events(ObjectCompleted)
    assert (event.is_file, event.info, event.data, event.size) == (True, b"file", None, len(PAYLOAD))
    assert event.path is not None
    assert Path(event.path).read_bytes() == PAYLOAD
    assert os.listdir(inbox) == [os.path.basename(event.path)]
    assert other.objects == [PAYLOAD]


def test_crashed_receiver_leaves_no_file(net: Network, tmp_path: Path) -> None:
    pub = net.sender(SenderConfig(segment_bytes=100, rate_bps=1e6))
    sub = net.receiver(ReceiverConfig(file_directory=str(tmp_path)))
    (tmp_path / "file").write_bytes(PAYLOAD)
    pub.send_file(tmp_path / "file")
    net.run(until=0.1)
    assert len(os.listdir(tmp_path)) == 2
    sub.crash()
    assert os.listdir(tmp_path) == ["file"]


def test_robust_command_survives_loss(net: Network) -> None:
    pub, sub = net.sender(SenderConfig(robust_factor=20)), net.receiver()
    net.link(pub, sub).lose(0.5)
    pub.command(b"robust", is_robust=True)
    net.run(until=5.0)
    assert {event.content for event in sub.events(CommandReceived)} == {b"robust"}
    assert pub.events(CommandSent) == [CommandSent()]


def test_command_is_sent_once(net: Network) -> None:
    pub, sub = net.sender(), net.receiver()
    pub.command(b"once")
    net.run(until=5.0)
    assert [event.content for event in sub.events(CommandReceived)] == [b"once"]


def test_grtt_falls_to_the_longest_round_trip(net: Network) -> None:
    pub, router = net.sender(SenderConfig(grtt_s=0.5)), net.router()
    net.link(pub, router, delay_s=0.005)
    for delay_s in (0.005, 0.01, 0.02):
        net.link(router, net.receiver(), delay_s=delay_s)
    pub.write(PAYLOAD)
    net.run(until=60.0)
    assert 0.045 <= pub.engine.grtt_s <= 0.07


def test_grtt_grows_to_the_longest_round_trip(net: Network) -> None:
    pub, near, far = net.sender(SenderConfig(grtt_s=0.01)), net.receiver(), net.receiver()
    net.link(pub, near, delay_s=0.001)
    net.link(pub, far, delay_s=0.2)
    pub.write(PAYLOAD)
    net.run(until=300.0)
    assert 0.3 <= pub.engine.grtt_s <= 0.55  # the estimate shrinks by a tenth when only the near node answers


def test_a_round_trip_time_that_was_long_for_a_moment_is_forgotten_in_seconds() -> None:
    """A burst of answers to a busy host makes them all late. Everybody's timers follow the estimate."""
    net = Network(3, delay_s=0.002)
    pub, subs = net.sender(SenderConfig(flow=Flow.MIN, rate_bps=1e6)), [net.receiver() for _ in range(10)]
    pub.write(bytes(2_000_000))
    link = net.link(net.hub, pub)
    net.run(until=1.0)
    link.shape(delay_s=0.8)
    net.run(until=5.0)
    assert pub.engine.grtt_s > 0.7
    link.shape(delay_s=0.002)
    net.run(until=15.0)
    assert pub.engine.grtt_s < 0.1
    assert pub.engine.receivers == {sub.node_id for sub in subs}
