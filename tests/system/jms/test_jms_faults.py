"""Tests of a bus when processes die or stop, when a link goes down, and when it is closed at a bad time."""

import time
from typing import Any

import pytest
from netns import Namespace, Network
from peers import READY_S, Peer, peers, until
from representatives import representatives

pytestmark = [pytest.mark.root, pytest.mark.calm]

GROUP = "239.192.57.96"
ACK_TIMEOUT_S = 1.0
SMALL: dict[str, Any] = {"window_bytes": "256KiB", "stream_bytes": "512KiB", "ack_timeout_s": ACK_TIMEOUT_S}
"""Settings with which a sender soon notices that a receiver does not answer."""
HOLD_UP_S = 0.3
"""Longest time for which a silent subscriber holds the others up, at the defaults."""
CLOSE_S = 2.0
BUSY_S = 1.0
"""Delay that a busy machine may add."""


def uri(port: int, **settings: object) -> str:
    return f"fjm2://{GROUP}:{port}?" + "&".join(f"{k}={v}" for k, v in ({"interface": "veth0"} | settings).items())


def pair(network: Network) -> tuple[Namespace, Namespace]:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    return left, right


def received(subscriber: Peer, publisher: Peer) -> int:
    """Return the number of messages from a publisher that the subscriber last reported."""
    counts: dict[str, int] = subscriber.last("received", {})
    return counts.get(str(publisher.pid), 0)


def wait_received(subscriber: Peer, publisher: Peer, count: int, timeout_s: float = READY_S) -> None:
    until(
        lambda: received(subscriber, publisher) >= count,
        timeout_s,
        lambda: f"{received(subscriber, publisher)} of {count} messages\n{subscriber}\n{publisher}",
    )


def close(*closing: Peer) -> None:
    """Close all peers, and check that each closes in time."""
    for peer in closing:
        peer.tell("close")
    for peer in closing:
        assert peer.wait_for("closed_s") <= CLOSE_S + BUSY_S / 2
        assert peer.wait() == 0
        assert peer.stderr == ""


# Processes.


@pytest.mark.parametrize("harm", representatives(["killed", "stopped"], "stopped"))
def test_a_silent_subscriber_blocks_others_no_longer_than_configured(network: Network, port: int, harm: str) -> None:
    left, right = pair(network)
    bad, good = (Peer(right, "jms_peer.py", "subscribe", uri(port)) for _ in range(2))
    publisher = Peer(left, "jms_peer.py", "publish", uri(port, **SMALL), 2000, 2000, "BEGIN")
    with peers(publisher, good, bad):
        for peer in (bad, good, publisher):
            peer.wait_for("ready")
        publisher.tell("begin")
        for subscriber in (bad, good):
            wait_received(subscriber, publisher, 500)
        bad.kill() if harm == "killed" else bad.stop()
        error = publisher.wait_for("error")
        assert error.startswith("BusError")
        assert f"(node {bad.last('node_id'):#010x}) is silent" in error
        wait_received(good, publisher, publisher.last("sent") + 2000)
        assert publisher.last("held_s") < HOLD_UP_S + BUSY_S / 2
        assert len(publisher.all("error")) == 1
        if harm == "stopped":
            bad.go_on()
            wait_received(bad, publisher, received(bad, publisher) + 4000)
            assert not bad.all("fault")  # no loss goes unreported
        assert not good.all("fault") + good.all("error")
        sent_before = publisher.last("sent")
        publisher.tell("pause")
        close(publisher)
        wait_received(good, publisher, max(publisher.last("sent"), sent_before))
        assert received(good, publisher) == publisher.last("sent")
        close(good)


def test_a_publisher_that_dies_in_the_middle_of_a_message_is_reported_and_another_is_heard_at_once(
    network: Network, port: int
) -> None:
    left, right = pair(network)
    silence_s = 3.0
    subscriber = Peer(right, "jms_peer.py", "subscribe", uri(port, inactivity_s=silence_s))
    first = Peer(left, "jms_peer.py", "publish", uri(port, rate="80mbit"), 300_000, 1000, "BEGIN")
    second = Peer(left, "jms_peer.py", "publish", uri(port), 300_000, 10, "BEGIN")
    with peers(subscriber, first, second):
        for peer in (subscriber, first, second):
            peer.wait_for("ready")
        first.tell("begin")
        wait_received(subscriber, first, 10)
        first.kill()
        killed_at = time.monotonic()
        second.tell("begin")
        wait_received(subscriber, second, 1, silence_s)
        assert time.monotonic() - killed_at < BUSY_S
        lost = subscriber.wait_for("error", lambda error: "gone" in error)
        assert lost.startswith("MessagesLostError")
        assert f"{first.last('node_id'):#010x}" in lost
        assert silence_s / 2 < time.monotonic() - killed_at < 2 * silence_s + BUSY_S
        wait_received(subscriber, second, 20)
        assert not subscriber.all("fault")
        close(second, subscriber)


# Links.


def test_a_publisher_sends_on_while_its_link_is_down_and_all_of_it_arrives_after(network: Network, port: int) -> None:
    left, right = pair(network)
    subscriber = Peer(right, "jms_peer.py", "subscribe", uri(port))
    publisher = Peer(left, "jms_peer.py", "publish", uri(port), 1000, 500, "BEGIN")
    with peers(publisher, subscriber):
        for peer in (subscriber, publisher):
            peer.wait_for("ready")
        publisher.tell("begin")
        wait_received(subscriber, publisher, 300)
        left.ip("link", "set", "veth0", "down")
        time.sleep(2.5)
        for peer in (publisher, subscriber):  # the interface has no carrier
            peer.wait_for("error", lambda error: "veth0 is down" in error)
        before = received(subscriber, publisher)
        assert publisher.last("sent") > before
        left.ip("link", "set", "veth0", "up")
        for peer in (publisher, subscriber):
            peer.wait_for("error", lambda error: "veth0 is back" in error)
        wait_received(subscriber, publisher, before + 1000)
        publisher.tell("pause")
        close(publisher)
        wait_received(subscriber, publisher, publisher.last("sent"))
        assert received(subscriber, publisher) == publisher.last("sent")
        close(subscriber)
        for peer in (publisher, subscriber):
            assert not peer.all("failed") + peer.all("fault")
            assert len(peer.all("error")) == 2


def test_a_publisher_is_told_once_that_the_kernel_refuses_its_sends_and_all_of_it_arrives_after(
    network: Network, port: int
) -> None:
    left, right = pair(network)
    subscriber = Peer(right, "jms_peer.py", "subscribe", uri(port))
    publisher = Peer(left, "jms_peer.py", "publish", uri(port), 1000, 500, "BEGIN")
    with peers(publisher, subscriber):
        for peer in (subscriber, publisher):
            peer.wait_for("ready")
        publisher.tell("begin")
        wait_received(subscriber, publisher, 300)
        left.run("iptables", "-I", "OUTPUT", "-p", "udp", "-j", "REJECT")
        publisher.wait_for("error", lambda error: "refuses" in error)
        time.sleep(2.5)
        before = received(subscriber, publisher)
        left.run("iptables", "-D", "OUTPUT", "-p", "udp", "-j", "REJECT")
        wait_received(subscriber, publisher, before + 1000)
        publisher.tell("pause")
        close(publisher)
        wait_received(subscriber, publisher, publisher.last("sent"))
        close(subscriber)
        assert [error for error in publisher.all("error") if "refuses" in error] == [
            "BusError: the kernel refuses what this host sends over veth0: Operation not permitted"
        ]


def test_a_subscriber_whose_link_is_down_too_long_gets_a_loss_report_and_continues(network: Network, port: int) -> None:
    sending, cut, whole = (network.namespace() for _ in range(3))
    network.switch(sending, cut, whole)
    loser, good = (Peer(namespace, "jms_peer.py", "subscribe", uri(port)) for namespace in (cut, whole))
    publisher = Peer(sending, "jms_peer.py", "publish", uri(port, **SMALL, repair_bytes=0), 2000, 500, "BEGIN")
    with peers(publisher, loser, good):
        for peer in (loser, good, publisher):
            peer.wait_for("ready")
        publisher.tell("begin")
        for subscriber in (loser, good):
            wait_received(subscriber, publisher, 300)
        cut.ip("link", "set", "veth0", "down")
        publisher.wait_for("error", lambda error: f"(node {loser.last('node_id'):#010x}) is silent" in error)
        # By then, the segments that the subscriber lacks can no longer be repaired.
        wait_received(good, publisher, publisher.last("sent") + 1000)
        cut.ip("link", "set", "veth0", "up")
        lost = loser.wait_for("error", lambda error: "lost" in error)
        assert lost.startswith("MessagesLostError")
        wait_received(loser, publisher, received(loser, publisher) + 1000)
        assert loser.last("gaps") > 0
        assert publisher.last("held_s") < HOLD_UP_S + BUSY_S / 2
        assert not good.all("error") + good.all("fault") + loser.all("fault") + publisher.all("failed")
        close(publisher, good, loser)


# The end.


STATES = ["alive", "killed", "down", "transaction", "commit", "full"]


@pytest.mark.parametrize("state", representatives(STATES, "killed", "commit", "full"))
def test_close_returns_in_time_whatever_the_state(network: Network, port: int, state: str) -> None:
    """A connection of either API closes in time. It loses no accepted message if the subscriber is alive."""
    left, right = pair(network)
    subscriber = Peer(right, "jms_peer.py", "subscribe", uri(port))
    closing = [Peer(left, "jms_closing.py", api, state, uri(port)) for api in ("asyncio", "blocking")]
    with peers(subscriber, *closing):
        subscriber.wait_for("ready")
        for peer in closing:
            peer.tell("begin")
        for peer in closing:
            wait_received(subscriber, peer, 1)
        match state:
            case "killed" | "commit":
                subscriber.kill()
            case "full":
                subscriber.stop()
            case "down":
                left.ip("link", "set", "veth0", "down")
        for peer in closing:
            peer.tell("go")
        for peer in closing:
            closed = peer.wait_for("closed")
            assert closed["took_s"] <= CLOSE_S + BUSY_S / 2
            # The pending call ended with the connection, well before the call's own timeout.
            assert closed["outcome"] in OUTCOMES[state]
            assert peer.wait() == 0
            if state in ("alive", "transaction"):
                assert closed["errors"] == []
                wait_received(subscriber, peer, closed["accepted"])
                time.sleep(0.1)
                assert received(subscriber, peer) == closed["accepted"]
                assert not subscriber.all("error")
            else:
                assert any("UnconfirmedError" in error for error in closed["errors"])
        assert not subscriber.all("fault")


OUTCOMES = {
    "alive": ["nothing"],
    "killed": ["nothing"],
    "down": ["nothing"],
    "transaction": ["nothing"],
    "commit": ["UnconfirmedError"],
    "full": ["IllegalStateError"],
}


# Idle connections.


def test_idle_connections_are_nearly_silent(network: Network, port: int) -> None:
    left, right = pair(network)
    subscriber = Peer(right, "jms_peer.py", "subscribe", uri(port))
    publisher = Peer(left, "jms_peer.py", "publish", uri(port), 1000, 100, "BEGIN")
    with peers(publisher, subscriber):
        for peer in (subscriber, publisher):
            peer.wait_for("ready")
        publisher.tell("begin")
        wait_received(subscriber, publisher, 100)
        publisher.tell("pause")
        time.sleep(3.0)  # by then, the last messages are confirmed and announcements have settled
        before = packets_sent(left), packets_sent(right), cpu_s(publisher), cpu_s(subscriber)
        time.sleep(IDLE_S)
        after = packets_sent(left), packets_sent(right), cpu_s(publisher), cpu_s(subscriber)
        spent = [late - early for early, late in zip(before, after, strict=True)]
        assert max(spent[:2]) / IDLE_S < 10
        assert max(spent[2:]) / IDLE_S < 0.01
        close(publisher, subscriber)


IDLE_S = 5.0


def packets_sent(namespace: Namespace) -> int:
    """Return the number of packets that all programs of the namespace have sent."""
    return int(namespace.run("cat", "/sys/class/net/veth0/statistics/tx_packets"))


def cpu_s(peer: Peer) -> float:
    known = len(peer.all("cpu_s"))
    peer.tell("cpu")
    until(lambda: len(peer.all("cpu_s")) > known, READY_S, lambda: str(peer))
    used: float = peer.last("cpu_s")
    return used
