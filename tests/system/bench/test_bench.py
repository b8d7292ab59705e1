"""`fjm2-bench` as processes: publisher and subscribers over the loopback, peers, and a comparison in namespaces."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from fjm2bench.cli import main
from fjm2bench.layers import LAYERS
from fjm2bench.micro import jms
from fjm2bench.networks.lan import Lan
from fjm2bench.networks.namespaces import Host
from fjm2bench.networks.network import DEVICE
from fjm2bench.peers import RAW, RELIABLE, SYSTEMS, load
from fjm2bench.peers.window import Reports, Window

DEADLINE_S = 40.0
CLEAN = ("lost", "duplicated", "out_of_order", "corrupt")
SIZES = pytest.mark.parametrize(
    ("size", "count"),
    [(1024, 2000), *(pytest.param(*each, marks=pytest.mark.nightly) for each in ((8, 500), (64, 2000), (100_000, 50)))],
)
"""Bytes of a message, and how many are sent. Each case starts three processes, of Java for some systems."""


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    lines: list[Any]
    err: str


class Process:
    """An `fjm2-bench` that runs."""

    def __init__(self, *arguments: object, host: Host | None = None) -> None:
        argv = [sys.executable, "-W", "error", "-m", "fjm2bench", *map(str, arguments), "--json"]
        if host is not None:
            argv = list(host.inside(*argv))
        self.popen = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_until_ready(self) -> None:
        """Until it has printed its first line."""
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, self.end()
        assert json.loads(line) == {"ready": True}

    def end(self) -> Ended:
        """Wait for its end."""
        out, err = self.popen.communicate(timeout=DEADLINE_S)
        return Ended(self.popen.returncode, [json.loads(line) for line in out.splitlines()], err)

    def stop(self) -> None:
        """End it, if it has not ended."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.communicate()


Start = Callable[..., Process]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts commands, and ends those that are left."""
    with contextlib.ExitStack() as started:

        def begin(*arguments: object, host: Host | None = None) -> Process:
            process = Process(*arguments, host=host)
            started.callback(process.stop)
            return process

        yield begin


@pytest.fixture
def uri(port: int) -> str:
    """A bus on the loopback that stays there."""
    return f"fjm2://239.192.57.41:{port}?interface=127.0.0.1&ttl=0&rate=500mbit&flow=min"


def the_only_line(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended
    assert ended.err == ""
    (line,) = ended.lines
    assert isinstance(line, dict)
    return line


def check_received(line: dict[str, Any], messages: int, size: int) -> None:
    assert line["ended"]
    assert (line["messages"], line["bytes"]) == (messages, messages * size)
    assert [line[name] for name in CLEAN] == [0, 0, 0, 0], line


# Our own.


@pytest.mark.parametrize(
    ("form", "size", "count", "more"),
    [
        ("stream", 64, 20_000, ()),
        ("stream", 1024, 5000, ("--batch", 100)),
        ("stream", 100_000, 100, ()),
        ("data", 65_536, 100, ()),
        ("data", 8, 50, ()),
    ],
)
def test_all_messages_arrive_and_are_counted(
    start: Start, uri: str, form: str, size: int, count: int, more: tuple[object, ...]
) -> None:
    subs = [start("sub", "--uri", uri, "--size", size, "--timeout", 30) for _ in range(2)]
    pub = start("pub", "--uri", uri, "--size", size, "--count", count, "--object", form, "--receivers", 2, *more)
    for sub in subs:
        sub.wait_until_ready()
    sent = the_only_line(pub.end())
    assert (sent["messages"], sent["bytes"], sent["receivers"]) == (count, count * size, 2)
    assert (sent["object"], sent["not_acked"], sent["batch"]) == (form, [], more[1] if more else 1)
    assert sent["msgs_per_s"] == pytest.approx(count / sent["seconds"], rel=0.01, abs=1e-6)
    assert sent["gbit_per_s"] == pytest.approx(count * size * 8e-9 / sent["seconds"], rel=0.01, abs=1e-6)
    assert sent["cpu_s"] > 0
    for sub in subs:
        received = the_only_line(sub.end())
        check_received(received, count, size)
        assert received["verified"]


def test_for_so_many_seconds_at_a_rate_of_its_own(start: Start, uri: str) -> None:
    sub = start("sub", "--uri", uri, "--size", 1000, "--timeout", 30, "--no-verify")
    pub = start("pub", "--uri", uri, "--size", 1000, "--seconds", 0.5, "--rate", "20mbit")
    sub.wait_until_ready()
    sent = the_only_line(pub.end())
    assert 0.003 < sent["gbit_per_s"] < 0.022
    received = the_only_line(sub.end())
    check_received(received, sent["messages"], 1000)
    assert not received["verified"]


def test_publisher_needs_nobody(start: Start, uri: str) -> None:
    sent = the_only_line(start("pub", "--uri", uri, "--size", 64, "--count", 10, "--receivers", 0).end())
    assert (sent["messages"], sent["receivers"], sent["not_acked"]) == (10, 0, [])


def test_subscriber_ends_by_itself_when_it_has_what_it_was_to_get(start: Start, uri: str) -> None:
    sub = start("sub", "--uri", uri, "--size", 64, "--count", 100, "--timeout", 30)
    pub = start("pub", "--uri", uri, "--size", 64, "--count", 100)
    sub.wait_until_ready()
    assert pub.end().code == 0
    check_received(the_only_line(sub.end()), 100, 64)


def test_subscriber_that_wants_more_than_there_is_has_lost_it(start: Start, uri: str) -> None:
    sub = start("sub", "--uri", uri, "--size", 64, "--count", 150, "--timeout", 30)
    pub = start("pub", "--uri", uri, "--size", 64, "--count", 100)
    sub.wait_until_ready()
    assert pub.end().code == 0
    ended = sub.end()
    assert ended.code == 1
    assert (ended.lines[-1]["messages"], ended.lines[-1]["lost"]) == (100, 50)


def test_another_size_is_seen_at_once(start: Start, uri: str) -> None:
    sub = start("sub", "--uri", uri, "--size", 100, "--timeout", 30)
    pub = start("pub", "--uri", uri, "--size", 64, "--count", 100)
    sub.wait_until_ready()
    assert pub.end().code == 0
    ended = sub.end()
    assert ended.code == 1
    assert ended.lines[-1]["corrupt"] == 64


def test_a_late_subscriber_gets_the_rest(start: Start, uri: str) -> None:
    current = f"{uri}&sync=current"
    early = start("sub", "--uri", uri, "--size", 1000, "--timeout", 30)
    pub = start("pub", "--uri", uri, "--size", 1000, "--seconds", 4, "--rate", "20mbit")
    early.wait_until_ready()
    late = start("sub", "--uri", current, "--size", 1000, "--timeout", 30)
    late.wait_until_ready()
    sent = the_only_line(pub.end())
    check_received(the_only_line(early.end()), sent["messages"], 1000)
    received = the_only_line(late.end())
    check_received(received, received["messages"], 1000)
    assert 0 < received["messages"] <= sent["messages"]


def test_a_subscriber_that_dies_does_not_stop_the_others(start: Start, uri: str) -> None:
    uri = f"{uri}&ack_timeout_s=1"
    subs = [start("sub", "--uri", uri, "--size", 1000, "--timeout", 30) for _ in range(2)]
    pub = start("pub", "--uri", uri, "--size", 1000, "--seconds", 3, "--rate", "20mbit", "--receivers", 2)
    for sub in subs:
        sub.wait_until_ready()
    with pytest.raises(subprocess.TimeoutExpired):
        pub.popen.wait(timeout=1.5)
    subs[0].popen.kill()
    ended = pub.end()
    (sent,) = ended.lines
    assert ended.code == 1
    assert len(sent["not_acked"]) == 1
    check_received(the_only_line(subs[1].end()), sent["messages"], 1000)


def test_publisher_that_dies_is_noticed(start: Start, uri: str) -> None:
    sub = start("sub", "--uri", f"{uri}&inactivity_s=1", "--size", 1000, "--timeout", 30)
    pub = start("pub", "--uri", uri, "--size", 1000, "--seconds", 20, "--rate", "20mbit")
    sub.wait_until_ready()
    with pytest.raises(subprocess.TimeoutExpired):
        pub.popen.wait(timeout=1.5)
    pub.popen.kill()
    ended = sub.end()
    assert ended.code == 1
    assert not ended.lines[-1]["ended"]
    assert ended.lines[-1]["corrupt"] == 0


def test_ping_and_echo(start: Start, uri: str) -> None:
    echo = start("echo", "--uri", uri, "--timeout", 30)
    echo.wait_until_ready()
    ping = start("ping", "--uri", uri, "--count", 200, "--warm-up", 20, "--timeout", 30)
    line = the_only_line(ping.end())
    assert (line["count"], line["size"]) == (200, 64)
    assert 0 < line["p50_us"] <= line["p99_us"] <= line["p999_us"] <= line["max_us"]
    assert the_only_line(echo.end())["messages"] == 220


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", [("sub",), ("echo",), ("pub", "--seconds", 20, "--rate", "10mbit")])
def test_interrupted_commands_end_quietly(
    start: Start, uri: str, command: tuple[object, ...], number: signal.Signals, layer: str
) -> None:
    process = start(*command, "--layer", layer, "--uri", uri)
    if command[0] == "pub":
        sub = start("sub", "--layer", layer, "--uri", uri)
        sub.wait_until_ready()
        with pytest.raises(subprocess.TimeoutExpired):
            process.popen.wait(timeout=2.0)
    else:
        process.wait_until_ready()
    process.popen.send_signal(number)
    ended = process.end()
    assert (ended.code, ended.lines, ended.err) == (130, [], "")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("pub", "--uri", "fjm2://?colour=red", "--count", "1"), 2, "colour=red: unknown"),
        (("pub", "--uri", "http://here", "--count", "1"), 2, "expected fjm2://GROUP:PORT"),
        (("pub",), 2, "give one of --count and --seconds"),
        (("pub", "--count", "1", "--seconds", "1"), 2, "give one of --count and --seconds"),
        (("pub", "--count", "1", "--rate", "fast"), 2, "rate_bps=fast: expected bits per second"),
        (("pub", "--count", "1", "--batch", "2", "--object", "data"), 2, "--batch is for streams"),
        (("pub", "--count", "1", "--size", "7"), 2, "--size"),
        (("sub", "--size", "7"), 2, "--size"),
        (("sub", "--uri", "fjm2://?interface=nowhere0"), 1, "nowhere0"),
        (("peer", "kafka", "pub"), 2, "kafka"),
        (("peer", "pyzmq", "pub"), 2, "give one of --count and --seconds"),
        (("pub", "--layer", "jms", "--count", "1", "--object", "stream"), 2, "--object is for --layer norm"),
        (("pub", "--layer", "jms", "--count", "1", "--batch", "1"), 2, "--batch is for --layer norm"),
        (("pub", "--count", "1", "--properties", "2"), 2, "--properties is for --layer jms"),
        (("pub", "--layer", "jms", "--count", "1", "--properties", "9"), 2, "--properties"),
        (("sub", "--selector", "p0 = 1"), 2, "--selector is for --layer jms"),
        (("sub", "--api", "listener"), 2, "--api is for --layer jms"),
        (("sub", "--layer", "jms", "--properties", "1", "--selector", "p0 == 1"), 2, "at position 4"),
        (("sub", "--layer", "jms", "--selector", "p0 = 1"), 2, "lets no message pass that has 0 properties"),
        (("sub", "--layer", "jms", "--api", "poll"), 2, "'listener', 'receive', 'iterate'"),
        (("sub", "--layer", "jms", "--uri", "fjm2://?interface=nowhere0"), 1, "nowhere0"),
        (("echo", "--layer", "udp"), 2, "'norm', 'jms'"),
        (("peer", "activemq", "pub", "--count", "1", "--properties", "9"), 2, "--properties"),
        (
            ("compare", "--systems", "fjm2,kafka"),
            2,
            "'kafka': expected some of fjm2, fjm2-jms, activemq, activemq-stomp",
        ),
        (("compare", "--round-trips", "10", "--fanout", "2"), 2, "--fanout is for throughput"),
        (("compare", "--rate", "fast"), 2, "rate_bps=fast: expected bits per second"),
        (("compare", "--settings", "colour=red"), 2, "colour=red: unknown"),
        (("compare", "--sizes", "64,x"), 2, "expected numbers from 8"),
        (("compare", "--fanout", "0"), 2, "expected numbers from 1 to 64"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: tuple[str, ...], code: int, said: str) -> None:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, result.output
    assert said in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("arguments", [("pub", "--count", "1"), ("ping",)])
def test_waiting_is_bounded(uri: str, arguments: tuple[str, ...], layer: str) -> None:
    result = CliRunner().invoke(main, [*arguments, "--layer", layer, "--uri", uri, "--timeout", "0.3"])
    assert result.exit_code == 1
    assert "not done within 0.3 s" in result.output
    assert "waiting for" in result.output


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("arguments", [("sub",), ("echo",)])
def test_listening_is_bounded(uri: str, arguments: tuple[str, ...], layer: str) -> None:
    result = CliRunner().invoke(main, [*arguments, "--layer", layer, "--uri", uri, "--timeout", "0.3", "--json"])
    assert result.exit_code == 1
    assert json.loads(result.output.splitlines()[-1])["messages"] == 0


def test_people_get_sentences(uri: str) -> None:
    result = CliRunner().invoke(main, ["pub", "--uri", uri, "--count", "5", "--receivers", "0"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("5 messages of 1024 B to 0 in ")


@pytest.mark.parametrize("command", ["pub", "sub", "ping", "echo", "peer", "compare"])
def test_every_command_tells_how_it_is_used(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert f"Example: fjm2-bench {command}" in result.output


# The JMS layer: the same contract, over connections.


@pytest.mark.parametrize(
    ("size", "count", "properties", "more"),
    [
        (64, 20_000, 0, ()),
        (1024, 5000, 2, ()),
        (1024, 2000, 3, ("--api", "receive")),
        (1024, 2000, 1, ("--api", "iterate")),
        (100_000, 100, 2, ()),
        (8, 50, 8, ()),
    ],
)
def test_all_messages_arrive_by_jms_and_are_counted(
    start: Start, uri: str, size: int, count: int, properties: int, more: tuple[object, ...]
) -> None:
    common = ("--layer", "jms", "--uri", uri, "--size", size, "--properties", properties, "--timeout", 30)
    subs = [start("sub", *common, *more) for _ in range(2)]
    pub = start("pub", *common, "--count", count, "--receivers", 2)
    for sub in subs:
        sub.wait_until_ready()
    sent = the_only_line(pub.end())
    assert (sent["system"], sent["object"], sent["properties"]) == ("fjm2-jms", "message", properties)
    assert (sent["messages"], sent["bytes"], sent["receivers"]) == (count, count * size, 2)
    assert sent["not_acked"] == []
    assert sent["msgs_per_s"] == pytest.approx(count / sent["seconds"], rel=0.01, abs=1e-6)
    assert sent["cpu_s"] > 0
    for sub in subs:
        received = the_only_line(sub.end())
        check_received(received, count, size)
        assert received["verified"]
        assert received["loss_reports"] == 0


def test_jms_subscriber_gets_what_its_selector_lets_pass(start: Start, uri: str) -> None:
    common = ("--layer", "jms", "--uri", uri, "--properties", 2, "--timeout", 30)
    tenth = start("sub", *common, "--selector", "p0 = 3")
    fifth = start("sub", *common, "--selector", "p1 IN ('two', 'nine')")
    pub = start("pub", *common, "--count", 2005, "--receivers", 2)
    for sub in (tenth, fifth):
        sub.wait_until_ready()
    assert the_only_line(pub.end())["messages"] == 2005
    check_received(the_only_line(tenth.end()), 201, 1024)
    check_received(the_only_line(fifth.end()), 401, 1024)


def test_jms_messages_of_other_properties_are_corrupt(start: Start, uri: str) -> None:
    sub = start("sub", "--layer", "jms", "--uri", uri, "--properties", 2, "--timeout", 30)
    pub = start("pub", "--layer", "jms", "--uri", uri, "--properties", 1, "--count", 10)
    sub.wait_until_ready()
    the_only_line(pub.end())
    ended = sub.end()
    assert ended.code == 1
    assert ended.lines[-1]["corrupt"] > 0


def test_jms_messages_of_another_size_are_seen_at_once(start: Start, uri: str) -> None:
    sub = start("sub", "--layer", "jms", "--uri", uri, "--size", 100, "--timeout", 30)
    pub = start("pub", "--layer", "jms", "--uri", uri, "--size", 64, "--count", 100)
    sub.wait_until_ready()
    assert pub.end().code == 0
    ended = sub.end()
    assert ended.code == 1
    assert ended.lines[-1]["corrupt"] == 100


def test_jms_subscriber_that_wants_more_than_there_is_has_lost_it(start: Start, uri: str) -> None:
    sub = start("sub", "--layer", "jms", "--uri", uri, "--size", 64, "--count", 150, "--timeout", 30)
    pub = start("pub", "--layer", "jms", "--uri", uri, "--size", 64, "--count", 100)
    sub.wait_until_ready()
    assert pub.end().code == 0
    ended = sub.end()
    assert ended.code == 1
    assert (ended.lines[-1]["messages"], ended.lines[-1]["lost"]) == (100, 50)


def test_jms_publisher_that_dies_is_noticed(start: Start, uri: str) -> None:
    sub = start("sub", "--layer", "jms", "--uri", f"{uri}&inactivity_s=1", "--size", 1000, "--timeout", 60)
    pub = start("pub", "--layer", "jms", "--uri", uri, "--size", 1000, "--seconds", 20, "--rate", "20mbit")
    sub.wait_until_ready()
    with pytest.raises(subprocess.TimeoutExpired):
        pub.popen.wait(timeout=2.0)
    pub.popen.kill()
    ended = sub.end()
    assert ended.code == 1
    line = ended.lines[-1]
    assert (line["ended"], line["corrupt"], line["loss_reports"]) == (False, 0, 1)
    assert "is gone" in ended.err


def test_jms_publisher_needs_nobody(start: Start, uri: str) -> None:
    pub = start("pub", "--layer", "jms", "--uri", uri, "--size", 64, "--count", 10, "--receivers", 0)
    sent = the_only_line(pub.end())
    assert (sent["messages"], sent["receivers"], sent["not_acked"]) == (10, 0, [])


def test_jms_ping_and_echo(start: Start, uri: str) -> None:
    echo = start("echo", "--layer", "jms", "--uri", uri, "--timeout", 30)
    echo.wait_until_ready()
    ping = start("ping", "--layer", "jms", "--uri", uri, "--count", 200, "--warm-up", 20, "--timeout", 30)
    line = the_only_line(ping.end())
    assert (line["system"], line["count"], line["size"]) == ("fjm2-jms", 200, 64)
    assert 0 < line["p50_us"] <= line["p99_us"] <= line["p999_us"] <= line["max_us"]
    assert the_only_line(echo.end())["messages"] == 220


def test_micro_tells_what_a_selector_adds() -> None:
    costs = {cost.step: cost.us for cost in jms.run(1)}
    assert set(costs) >= {"route, not subscribed", "route, selected by p0 = 3", "what that selector adds"}
    difference = costs["route, selected by p0 = 3"] - costs["route, not subscribed"]
    assert costs["what that selector adds"] == pytest.approx(difference)


# Peers.


def require(system: str) -> str:
    """A system that is installed."""
    if lack := load(system).missing():
        pytest.skip(f"{system}: {lack}")
    return system


@pytest.fixture(params=SYSTEMS)
def peer(request: pytest.FixtureRequest) -> str:
    return require(request.param)


@pytest.fixture(params=RELIABLE)
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


@pytest.mark.parametrize("system", RAW)
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
@pytest.mark.parametrize("system", RAW)
@pytest.mark.parametrize("size", [1024, 100_000])
def test_what_the_network_loses_is_told(start: Start, system: str, size: int) -> None:
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
@pytest.mark.parametrize("system", ["cyclonedds", "jgroups"])
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


@pytest.mark.parametrize("system", BROKERS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_brokers_end_with_their_publishers(start: Start, port: int, system: str, number: signal.Signals) -> None:
    require(system)
    pub = start("peer", system, "pub", "--port", port, "--seconds", 20)  # it waits for a subscriber
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
def test_a_port_that_is_taken_is_told(start: Start, port: int, system: str) -> None:
    require(system)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        ended = start("peer", system, "pub", "--port", port, "--count", 1, "--timeout", 10).end()
    assert (ended.code, ended.err) == (1, f"Error: {system}: 127.0.0.1:{port} is in use\n")


def test_messages_wait_for_the_slowest_who_reports() -> None:
    window = Window(2, 1 << 20)  # 16 of them
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


# Comparison.


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


@pytest.mark.root
@pytest.mark.usefixtures("require_root_and_netns")
def test_two_systems_are_compared_in_namespaces(start: Start) -> None:
    others = [name for name in RELIABLE if load(name).missing() is None]
    if not others:
        pytest.skip("no peer is installed")
    brief = ("--sizes", 1024, "--fanout", 2, "--seconds", 0.3, "--repeat", 1, "--settings", "rate=500mbit&flow=min")
    process = start("compare", "--systems", f"fjm2,{others[-1]}", *brief)
    result = the_only_line(process.end())
    assert [row["system"] for row in result["rows"]] == ["fjm2", others[-1]]
    for row in result["rows"]:
        assert (row["faults"], row["size"], row["fanout"]) == ([], 1024, 2)
        assert row["msgs_per_s"] > 0
        assert row["cpu_s_per_gb"] > 0
    ratios = [row["ratio"] for row in result["rows"]]
    assert ratios[0] * ratios[1] == pytest.approx(1.0)
    assert f"fjm2-bench-{process.popen.pid}-" not in namespaces()


@pytest.mark.root
@pytest.mark.usefixtures("require_root_and_netns")
def test_jms_and_activemq_are_compared_in_namespaces(start: Start) -> None:
    if lack := load("activemq").missing():
        pytest.skip(f"activemq: {lack}")
    brief = ("--sizes", 1024, "--repeat", 1, "--settings", "rate=500mbit")
    both = ("--systems", "fjm2-jms,activemq")
    process = start("compare", *both, *brief, "--fanout", 2, "--seconds", 0.3, "--properties", 2)
    result = the_only_line(process.end())
    assert [row["system"] for row in result["rows"]] == ["fjm2-jms", "activemq"]
    for row, other in zip(result["rows"], reversed(result["rows"]), strict=True):
        assert (row["faults"], row["size"], row["fanout"]) == ([], 1024, 2)
        assert row["ratios"] == {other["system"]: pytest.approx(row["msgs_per_s"] / other["msgs_per_s"])}
        assert row["cpu_s_per_gb"] > 0
        assert row["p50_us"] is None
    assert f"fjm2-bench-{process.popen.pid}-" not in namespaces()

    result = the_only_line(start("compare", *both, *brief, "--round-trips", 50).end())
    for row in result["rows"]:
        assert (row["faults"], row["fanout"], row["msgs_per_s"]) == ([], 1, None)
        assert 0 < row["p50_us"] <= row["p99_us"] <= row["p999_us"]


@pytest.mark.root
@pytest.mark.usefixtures("require_root_and_netns")
def test_an_interrupted_comparison_leaves_nothing_behind(start: Start) -> None:
    process = start("compare", "--systems", "fjm2", "--sizes", 1024, "--fanout", 1, "--seconds", 30)
    prefix = f"fjm2-bench-{process.popen.pid}-"
    inside: list[str] = []
    pids = ""
    deadline = time.monotonic() + 30.0
    while not pids:
        assert time.monotonic() < deadline, inside
        assert process.popen.poll() is None
        time.sleep(0.2)
        inside = [line.split()[0] for line in namespaces().splitlines() if line.startswith(prefix)]
        if len(inside) == 3:
            pids = "".join(
                subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=True).stdout
                for name in inside
            )
    process.popen.send_signal(signal.SIGINT)
    ended = process.end()
    assert ended.code == 130
    assert ended.err == ""
    assert prefix not in namespaces()
    for pid in pids.split():
        assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.root
@pytest.mark.usefixtures("require_root_and_netns")
def test_a_system_that_fails_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2bench.peers.zenoh_peer.find_spec", lambda _: None)
    brief = ["--sizes", "1024", "--fanout", "1", "--seconds", "0.1", "--repeat", "1", "--settings", "ttl=0"]
    monkeypatch.setattr(
        "fjm2bench.comparison.trial._COMMAND", (sys.executable, "-c", "raise SystemExit('it is broken')")
    )
    result = CliRunner().invoke(main, ["compare", "--systems", "fjm2,zenoh", *brief])
    assert result.exit_code == 1
    assert "it is broken (1 x)" in result.output
    assert "zenoh: eclipse-zenoh is not installed" in result.output


def test_comparing_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = CliRunner().invoke(main, ["compare"])
    assert result.exit_code == 1
    assert result.output == "Error: network namespaces need root\n"
