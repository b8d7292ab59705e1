"""Tests of `fjm2-bench peer`: other systems do the same task as FJM2, and print the same lines of results."""

import itertools
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench_processes import SIZES, Start, check_received, the_only_line
from click.testing import CliRunner
from fjm2bench.cli import main
from fjm2bench.networks.lan import Lan
from fjm2bench.networks.network import DEVICE
from fjm2bench.peers import RAW, RELIABLE, SYSTEMS, load
from fjm2bench.peers.window import Reports, Window
from representatives import representatives


def require(system: str) -> str:
    """Return the name of a system if it is installed. Otherwise skip the test."""
    if lack := load(system).missing():
        pytest.skip(f"{system}: {lack}")
    return system


@pytest.fixture(params=representatives(SYSTEMS, "libnorm", "nats", "udp-c"))
def peer(request: pytest.FixtureRequest) -> str:
    return require(request.param)


@pytest.fixture(params=representatives(RELIABLE, "libnorm", "pyzmq", "nats", "cyclonedds"))
def reliable_peer(request: pytest.FixtureRequest) -> str:
    return require(request.param)


@SIZES
def test_peers_do_the_same(start: Start, reliable_peer: str, port: int, size: int, count: int) -> None:
    place = ("--port", port, "--size", size, "--timeout", 30)
    subs = [start("peer", reliable_peer, "sub", *place) for _ in range(2)]
    pub = start("peer", reliable_peer, "pub", *place, "--count", count, "--receivers", 2)
    for sub in subs:
        sub.wait_until_ready()
    sent = the_only_line(pub.end())
    assert (sent["system"], sent["messages"], sent["bytes"]) == (reliable_peer, count, count * size)
    assert (sent["receivers"], sent["not_acked"]) == (2, [])
    for sub in subs:
        received = the_only_line(sub.end())
        check_received(received, count, size)
        assert received["verified"]


@pytest.mark.parametrize("system", representatives(RAW, "udp-multicast", "udp-trains"))
@SIZES
def test_bare_datagrams_are_counted(start: Start, system: str, port: int, size: int, count: int) -> None:
    require(system)
    place = ("--port", port, "--size", size, "--timeout", 30)
    subs = [start("peer", system, "sub", *place) for _ in range(2)]
    pub = start("peer", system, "pub", *place, "--count", count, "--receivers", 2)
    for sub in subs:
        sub.wait_until_ready()
    sent = the_only_line(pub.end())
    assert (sent["system"], sent["object"], sent["messages"]) == (system, "datagram", count)
    for sub in subs:
        received = the_only_line(sub.end())
        assert received["ended"]
        assert received["messages"] > 0
        assert received["messages"] + received["lost"] == count
        assert [received[name] for name in ("duplicated", "out_of_order", "corrupt")] == [0, 0, 0]


@pytest.mark.root
@pytest.mark.usefixtures("require_root_and_netns")
@pytest.mark.parametrize(
    ("system", "size"),
    representatives(itertools.product(RAW, [1024, 100_000]), ("udp-c", 1024), ("udp-trains", 100_000)),
)
def test_datagrams_lost_by_the_network_are_counted(start: Start, system: str, size: int) -> None:
    require(system)
    with Lan(1, loss=0.01) as lan:
        place = ("--publisher", lan.publisher.address, "--interface", DEVICE, "--size", size, "--timeout", 30)
        sub = start("peer", system, "sub", *place, host=lan.subscribers[0])
        sub.wait_until_ready()
        count = 2000 if size == 1024 else 100
        sent = the_only_line(start("peer", system, "pub", *place, "--count", count, host=lan.publisher).end())
        received = the_only_line(sub.end())
    assert received["ended"]
    assert received["messages"] + received["lost"] == sent["messages"] == count
    assert received["lost"] > 0
    assert [received[name] for name in ("duplicated", "out_of_order", "corrupt")] == [0, 0, 0]


@pytest.mark.root
@pytest.mark.usefixtures("require_root_and_netns")
@pytest.mark.parametrize("system", representatives(["cyclonedds", "jgroups"], "cyclonedds"))
def test_multicast_peers_repair_what_is_lost(start: Start, system: str) -> None:
    require(system)
    with Lan(2, loss=0.01) as lan:
        place = ("--publisher", lan.publisher.address, "--interface", DEVICE, "--timeout", 30, "--segment-size", 1428)
        subs = [start("peer", system, "sub", *place, host=host) for host in lan.subscribers]
        for sub in subs:
            sub.wait_until_ready()
        pub = start("peer", system, "pub", *place, "--count", 3000, "--receivers", 2, host=lan.publisher)
        assert the_only_line(pub.end())["messages"] == 3000
        for sub in subs:
            check_received(the_only_line(sub.end()), 3000, 1024)


def test_every_peer_tells_its_settings() -> None:
    for system in SYSTEMS:
        settings = load(system).settings
        assert settings.endswith("."), system
        assert settings.startswith("Not reliable.") == (system in RAW)


BROKERS = {"activemq": "java", "activemq-stomp": "java", "mosquitto": "mosquitto", "nats": "nats-server"}


@pytest.mark.parametrize(
    ("number", "system"),
    [
        *(
            pytest.param(signal.SIGTERM, system, marks=() if system in ("mosquitto", "nats") else pytest.mark.nightly)
            for system in BROKERS
        ),
        # The kernel ends the broker, whichever it is.
        (signal.SIGKILL, "activemq"),
        *(
            pytest.param(signal.SIGKILL, system, marks=pytest.mark.nightly)
            for system in BROKERS
            if system != "activemq"
        ),
    ],
)
def test_brokers_end_with_their_publishers(start: Start, port: int, system: str, number: signal.Signals) -> None:
    require(system)
    pub = start("peer", system, "pub", "--port", port, "--seconds", 20)  # the publisher waits for a subscriber
    wait_until(lambda: is_open(port))
    brokers = children_of(pub.popen.pid)
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in brokers]
    assert BROKERS[system] in names
    before = set(os.listdir(tempfile.gettempdir()))
    pub.popen.send_signal(number)
    assert pub.end().code == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    wait_until(lambda: not is_open(port) and not any(os.path.exists(f"/proc/{pid}") for pid in brokers))
    fresh = set(os.listdir(tempfile.gettempdir())) - before
    assert not [name for name in fresh if BROKERS[system] in name or "activemq" in name]


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15.0
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("system", ["mosquitto", "nats"])
def test_a_port_in_use_is_reported(start: Start, system: str) -> None:
    require(system)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = start("peer", system, "pub", "--port", port, "--count", 1, "--timeout", 10).end()
    assert (ended.code, ended.err) == (1, f"Error: {system}: 127.0.0.1:{port} is in use\n")


def test_messages_wait_for_the_slowest_reporting_subscriber() -> None:
    window = Window(2, 1 << 20)  # room for 16 messages
    early, late = b"1 %d", b"2 %d"
    window.note(early % 0)
    assert not window.has_all()
    window.note(late % 0)
    assert window.has_all()
    assert window.has_room(16)
    assert not window.has_room(17)
    window.note(early % 16)
    assert not window.has_room(17)
    window.note(late % 4)
    assert window.has_room(20)
    assert not window.has_room(21)
    window.note(early % 21)
    assert not window.is_confirmed(20)
    window.note(late % 21)
    assert window.is_confirmed(20)


def test_subscribers_report_four_times_a_window() -> None:
    reports = Reports(1 << 20)
    assert [count for count in range(17) if reports.due(count)] == [4, 8, 12, 16]


def test_libnorm_sends_objects(start: Start, port: int) -> None:
    if lack := load("libnorm").missing():
        pytest.skip(f"libnorm: {lack}")
    place = ("--port", port, "--size", 200_000, "--timeout", 30)
    sub = start("peer", "libnorm", "sub", *place)
    pub = start("peer", "libnorm", "pub", *place, "--count", 200, "--object", "data")
    sub.wait_until_ready()
    assert the_only_line(pub.end())["object"] == "data"
    received = the_only_line(sub.end())
    assert [received[name] for name in ("messages", "lost", "duplicated", "corrupt")] == [200, 0, 0, 0]


def test_peers_ping(start: Start, peer: str, port: int) -> None:
    place = ("--port", port, "--size", 64, "--timeout", 30)
    echo = start("peer", peer, "echo", *place)
    echo.wait_until_ready()
    ping = start("peer", peer, "ping", *place, "--count", 50, "--warm-up", 5)
    line = the_only_line(ping.end())
    assert (line["system"], line["count"]) == (peer, 50)
    assert 0 < line["p50_us"] <= line["max_us"]
    assert the_only_line(echo.end())["messages"] == 55


def test_peers_wait_for_so_long(start: Start, peer: str, port: int) -> None:
    ended = start("peer", peer, "pub", "--port", port, "--count", 1, "--timeout", 0.5).end()
    assert ended.code == 1
    assert "not done within 0.5 s" in ended.err
    assert "Traceback" not in ended.err


def test_activemq_checks_properties(start: Start, port: int) -> None:
    require("activemq")
    sub = start("peer", "activemq", "sub", "--port", port, "--properties", 2, "--timeout", 30)
    pub = start("peer", "activemq", "pub", "--port", port, "--properties", 2, "--count", 3000)
    sub.wait_until_ready()
    sent = the_only_line(pub.end())
    assert (sent["messages"], sent["properties"]) == (3000, 2)
    check_received(the_only_line(sub.end()), 3000, 1024)
    assert not is_open(port)


def test_a_peer_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2bench.peers.zenoh_peer.find_spec", lambda _: None)
    result = CliRunner().invoke(main, ["peer", "zenoh", "sub"])
    assert result.exit_code == 1
    assert result.output == "Error: zenoh: eclipse-zenoh is not installed\n"
