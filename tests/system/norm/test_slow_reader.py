"""Tests of a receiver that stops reading, as a process stopped by a signal does.

The tests check which other nodes such a receiver blocks, and for how long.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flows import BIN_S
from netns import Namespace, Network

pytestmark = [pytest.mark.root, pytest.mark.calm]

SETTINGS = "interface=veth0&rate=40mbit&window_bytes=1MiB&stream_bytes=4MiB&loopback=off"
BEFORE_S, STOPPED_S, SEND_S = 1.0, 2.0, 6.0
BEGUN_BYTES = 500_000
FLOWS = (sys.executable, str(Path(__file__).with_name("flows.py")))


class Group:
    """A sender and two receivers, of which the second one is stopped."""

    def __init__(self, network: Network, settings: str) -> None:
        hosts = [network.namespace() for _ in range(3)]
        network.switch(*hosts)
        uri = f"fjm2://239.192.57.43:5744?{SETTINGS}&{settings}"
        self.begin = time.monotonic()
        deadline = self.begin + 30.0
        self.good, self.slow = (start(host, "receive", uri, deadline) for host in hosts[1:])
        self.good_id, self.slow_id = (int(line(receiver)) for receiver in (self.good, self.slow))
        self.sender = start(hosts[0], "send", uri, time.monotonic() + SEND_S)
        while int(hosts[2].run("cat", "/sys/class/net/veth0/statistics/rx_bytes")) < BEGUN_BYTES:
            assert self.sender.poll() is None
            time.sleep(0.01)
        time.sleep(BEFORE_S)
        os.kill(self.slow.pid, signal.SIGSTOP)
        self.stopped_at = time.monotonic()

    def go_on(self) -> None:
        os.kill(self.slow.pid, signal.SIGCONT)

    def moving(self, log: dict[str, dict[str, int]], start: float, end: float) -> list[bool]:
        """For each tenth of a second between two times, return True if anything arrived.

        The times count from the moment when the receiver was stopped.
        """
        first, after = (int((self.stopped_at + at) / BIN_S) for at in (start, end))
        return [log["bins"].get(str(number), 0) > 0 for number in range(first, after)]


def start(host: Namespace, *arguments: object) -> subprocess.Popen[str]:
    return host.start(*FLOWS, *map(str, arguments))


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def result(process: subprocess.Popen[str]) -> dict[str, dict[str, int]]:
    out, err = process.communicate(timeout=30.0)
    assert err == ""
    found: dict[str, dict[str, int]] = json.loads(out)
    return found


def check_whole(log: dict[str, dict[str, int]], sent: dict[str, dict[str, int]]) -> None:
    assert not log["faults"]
    assert sum(log["bins"].values()) == sent["bytes"]


def test_the_rest_go_on_and_nothing_is_lost(network: Network) -> None:
    group = Group(network, "flow=min&ack_timeout_s=20")
    time.sleep(STOPPED_S)
    group.go_on()
    sent = result(group.sender)
    good, slow = result(group.good), result(group.slow)
    check_whole(good, sent)
    check_whole(slow, sent)
    assert sent["evicted"] == []
    assert all(group.moving(good, 0.5, STOPPED_S))
    assert any(group.moving(good, STOPPED_S, STOPPED_S + 1.0))


@pytest.mark.nightly
def test_the_sender_waits_as_long_as_its_patience_lasts(network: Network) -> None:
    group = Group(network, "flow=min&ack_timeout_s=20&patience_s=20")
    time.sleep(STOPPED_S)
    group.go_on()
    sent = result(group.sender)
    good, slow = result(group.good), result(group.slow)
    check_whole(good, sent)
    check_whole(slow, sent)
    assert sent["evicted"] == []
    assert not any(group.moving(good, 1.0, STOPPED_S - 0.1))
    assert any(group.moving(good, STOPPED_S, STOPPED_S + 1.0))


@pytest.mark.nightly
def test_a_silent_receiver_is_evicted_and_the_rest_continue(network: Network) -> None:
    group = Group(network, "flow=min&ack_timeout_s=1")
    sent = result(group.sender)
    good = result(group.good)
    check_whole(good, sent)
    assert sent["evicted"] == [group.slow_id]
    assert all(group.moving(good, 0.5, 2.5))


def test_with_max_the_rest_never_notice(network: Network) -> None:
    group = Group(network, "flow=max&ack_timeout_s=1")
    sent = result(group.sender)
    good = result(group.good)
    check_whole(good, sent)
    assert sent["evicted"] == []
    assert all(group.moving(good, -0.5, 2.5))
