"""Tests of congestion control with real sockets, on a slow link that flows share.

The link has 100 Mbit/s and a round-trip time of 1 ms.
"""

import errno
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flows import BIN_S
from netns import Namespace, Network, set_up

pytestmark = [pytest.mark.root, pytest.mark.alone]

RATE_MBIT = 100
DELAY_S = 0.0005
QUEUE_BYTES = 200_000
BURST_BYTES = 10_000
LEAD_S = 1.0
"""Time allowed for Python to start, before a flow begins."""
FLOWS = (sys.executable, str(Path(__file__).with_name("flows.py")))


class Flow:
    """One flow over the shared link, between two hosts that no other flow uses."""

    def __init__(self, source: Namespace, sink: Namespace) -> None:
        self.source = source
        self.sink = sink
        self._receiver: subprocess.Popen[str] | None = None

    def norm(self, port: int, until: float) -> None:
        uri = f"fjm2://239.192.57.42:{port}?interface=veth0&cc=on&rate=none&flow=min&stream_bytes=1MiB&loopback=off"
        self._receiver = started(self.sink, "receive", uri, until)
        self.source.start(*FLOWS, "send", uri, str(until))

    def tcp(self, port: int, until: float) -> None:
        self._receiver = started(self.sink, "tcp-receive", port)
        address = self.sink.ip("-br", "-4", "address", "show", "veth0").split()[2].partition("/")[0]
        self.source.start(*FLOWS, "tcp-send", address, str(port), "cubic", str(until))

    def mbit(self, until: float) -> list[float]:
        """Return the Mbit/s received in each tenth of a second, from the first byte on."""
        assert self._receiver is not None
        out, err = self._receiver.communicate(timeout=30.0)
        assert err == ""
        log = json.loads(out)
        assert log["faults"] == []
        bins = {int(number): size * 8e-6 / BIN_S for number, size in log["bins"].items()}
        return [bins.get(number, 0.0) for number in range(min(bins), int(until / BIN_S))]


def started(host: Namespace, *arguments: object) -> subprocess.Popen[str]:
    process = host.start(*FLOWS, *map(str, arguments))
    assert process.stdout is not None
    assert process.stdout.readline(), process.communicate()
    return process


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.fixture
def flows(network: Network) -> tuple[Flow, Flow]:
    """Return two flows, each between two hosts on either side of a link with limited rate and added delay."""
    sides = [network.namespace() for _ in range(2)]
    way = network.namespace()
    for side, device in zip(sides, ("left", "right"), strict=True):
        side.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        side.ip("link", "set", "br0", "up")
        way.ip(*f"link add {device} type veth peer name way netns {side.name}".split())
        side.ip("link", "set", "way", "master", "br0", "up")
        way.ip(*f"link set {device} gso_max_segs 1 up".split())
    way.limit("right", RATE_MBIT, queue_bytes=QUEUE_BYTES, burst_bytes=BURST_BYTES)
    started(way, "relay", "left", "right", DELAY_S)
    hosts = [network.namespace() for _ in range(4)]
    for number, host in enumerate(hosts):
        side = sides[number % 2]
        host.ip(*f"link add veth0 type veth peer name port{number} netns {side.name}".split())
        host.cut_trains("veth0")
        side.ip(*f"link set port{number} master br0 up".split())
        set_up(host, "veth0", f"10.57.0.{number + 1}/24")
    wait_for_way(hosts[0], "10.57.0.4")
    return Flow(hosts[0], hosts[1]), Flow(hosts[2], hosts[3])


def wait_for_way(host: Namespace, address: str) -> None:
    """Wait until both switches forward packets: then a host on the other side refuses a connection."""
    deadline = time.monotonic() + 10.0
    while True:
        with host.entered(), socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex((address, 9)) == errno.ECONNREFUSED:
                return
        assert time.monotonic() < deadline, f"no way to {address}"


def test_a_fresh_flow_soon_fills_the_link(flows: tuple[Flow, Flow]) -> None:
    until = time.monotonic() + LEAD_S + 4.0
    flows[0].norm(5742, until)
    rates = flows[0].mbit(until)
    spans = [mean(rates[at : at + 5]) for at in range(16)]
    assert max(spans) >= 0.8 * RATE_MBIT, rates
    assert mean(rates[20:]) >= 0.75 * RATE_MBIT, rates


def test_two_flows_share_the_link(flows: tuple[Flow, Flow]) -> None:
    until = time.monotonic() + LEAD_S + 10.0
    flows[0].norm(5742, until)
    time.sleep(1.0)
    flows[1].norm(5743, until)
    last = [mean(flow.mbit(until)[-30:]) for flow in flows]
    assert sum(last) >= 0.8 * RATE_MBIT, last
    assert sum(last) ** 2 / (2 * sum(rate**2 for rate in last)) > 0.9, last


def test_a_flow_and_a_tcp_connection_share_the_link(flows: tuple[Flow, Flow]) -> None:
    until = time.monotonic() + LEAD_S + 10.0
    flows[0].norm(5742, until)
    flows[1].tcp(5743, until)
    norm, tcp = (mean(flow.mbit(until)[-50:]) for flow in flows)
    assert norm + tcp >= 0.8 * RATE_MBIT, (norm, tcp)
    assert 0.25 <= norm / (norm + tcp) <= 0.75, (norm, tcp)
