"""Tests of `fjm2-bench` in processes: FJM2's publisher and subscribers over the loopback interface."""

import json
import signal
import subprocess

import pytest
from bench_processes import Start, check_received, the_only_line
from click.testing import CliRunner
from fjm2bench.cli import main
from fjm2bench.layers import LAYERS
from fjm2bench.micro import consumers, jms, store
from representatives import representatives


@pytest.mark.parametrize(
    ("form", "size", "count", "more"),
    [
        pytest.param("stream", 64, 20_000, (), marks=pytest.mark.nightly),
        ("stream", 1024, 5000, ("--batch", 100)),
        pytest.param("stream", 100_000, 100, (), marks=pytest.mark.nightly),
        ("data", 65_536, 100, ()),
        pytest.param("data", 8, 50, (), marks=pytest.mark.nightly),
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


def test_publisher_sends_for_a_given_time_at_a_given_rate(start: Start, uri: str) -> None:
    sub = start("sub", "--uri", uri, "--size", 1000, "--timeout", 30, "--no-verify")
    pub = start("pub", "--uri", uri, "--size", 1000, "--seconds", 0.5, "--rate", "20mbit")
    sub.wait_until_ready()
    sent = the_only_line(pub.end())
    assert 0.003 < sent["gbit_per_s"] < 0.022
    received = the_only_line(sub.end())
    check_received(received, sent["messages"], 1000)
    assert not received["verified"]


@pytest.mark.nightly
def test_publisher_needs_no_subscriber(start: Start, uri: str) -> None:
    sent = the_only_line(start("pub", "--uri", uri, "--size", 64, "--count", 10, "--receivers", 0).end())
    assert (sent["messages"], sent["receivers"], sent["not_acked"]) == (10, 0, [])


@pytest.mark.nightly
def test_subscriber_ends_once_it_has_its_messages(start: Start, uri: str) -> None:
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


@pytest.mark.nightly
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


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_ping_and_echo(start: Start, uri: str) -> None:
    echo = start("echo", "--uri", uri, "--timeout", 30)
    echo.wait_until_ready()
    ping = start("ping", "--uri", uri, "--count", 200, "--warm-up", 20, "--timeout", 30)
    line = the_only_line(ping.end())
    assert (line["count"], line["size"]) == (200, 64)
    assert 0 < line["p50_us"] <= line["p99_us"] <= line["p999_us"] <= line["max_us"]
    assert the_only_line(echo.end())["messages"] == 220


@pytest.mark.parametrize(
    ("command", "number", "layer"),
    [
        pytest.param(
            command,
            number,
            layer,
            # Each command ends by each signal, and each signal on each layer.
            marks=[pytest.mark.nightly] if (number == signal.SIGINT) != (layer == "norm") else [],
        )
        for command in (("sub",), ("echo",), ("pub", "--seconds", 20, "--rate", "10mbit"))
        for number in (signal.SIGINT, signal.SIGTERM)
        for layer in LAYERS
    ],
)
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
        (("pub", "--count", "1", "--rate", "fast"), 2, "rate=fast: expected bits per second"),
        (("pub", "--count", "1", "--batch", "2", "--object", "data"), 2, "--batch is for streams"),
        (("pub", "--count", "1", "--size", "7"), 2, "--size"),
        (("sub", "--size", "7"), 2, "--size"),
        (("sub", "--uri", "fjm2://?interface=nowhere0"), 1, "nowhere0"),
        (("peer", "kafka", "pub"), 2, "kafka"),
        (("peer", "pyzmq", "pub"), 2, "give one of --count and --seconds"),
        (("pub", "--layer", "jms", "--count", "1", "--object", "stream"), 2, "--object is for --layer norm"),
        (("pub", "--count", "1", "--properties", "2"), 2, "--properties is for --layer jms"),
        (("pub", "--layer", "jms", "--count", "1", "--properties", "9"), 2, "--properties"),
        (("sub", "--selector", "p0 = 1"), 2, "--selector is for --layer jms"),
        (("sub", "--api", "listener"), 2, "--api is for --layer jms"),
        (("sub", "--layer", "jms", "--properties", "1", "--selector", "p0 == 1"), 2, "at position 4"),
        (("sub", "--layer", "jms", "--selector", "p0 = 1"), 2, "lets no message pass that has 0 properties"),
        (("sub", "--layer", "jms", "--api", "poll"), 2, "'listener', 'receive', 'iterate', 'batches'"),
        (("sub", "--layer", "jms", "--uri", "fjm2://?interface=nowhere0"), 1, "nowhere0"),
        (("echo", "--layer", "udp"), 2, "'norm', 'jms'"),
        (("peer", "activemq", "pub", "--count", "1", "--properties", "9"), 2, "--properties"),
        (
            ("compare", "--systems", "fjm2,kafka"),
            2,
            "'kafka': expected some of fjm2, fjm2-jms, activemq, activemq-stomp",
        ),
        (("compare", "--round-trips", "10", "--fanout", "2"), 2, "--fanout is for throughput"),
        (("compare", "--rate", "fast"), 2, "rate=fast: expected bits per second"),
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
        pytest.param(1024, 5000, 2, (), marks=pytest.mark.nightly),
        pytest.param(1024, 2000, 3, ("--api", "receive"), marks=pytest.mark.nightly),
        (1024, 2000, 1, ("--api", "iterate")),
        (1024, 2000, 2, ("--api", "batches")),
        pytest.param(100_000, 100, 2, (), marks=pytest.mark.nightly),
        pytest.param(8, 50, 8, (), marks=pytest.mark.nightly),
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


@pytest.mark.parametrize("batch", representatives([2, 1000], 1000))
def test_batches_are_sent_and_received_by_jms(start: Start, uri: str, batch: int) -> None:
    common = ("--layer", "jms", "--uri", uri, "--size", 64, "--properties", 2, "--timeout", 30)
    subs = [start("sub", *common, "--api", api) for api in ("batches", "listener")]
    pub = start("pub", *common, "--count", 5500, "--batch", batch, "--receivers", 2)
    for sub in subs:
        sub.wait_until_ready()
    assert the_only_line(pub.end())["messages"] == 5500
    for sub in subs:
        check_received(the_only_line(sub.end()), 5500, 64)


def test_jms_subscriber_gets_the_messages_its_selector_accepts(start: Start, uri: str) -> None:
    common = ("--layer", "jms", "--uri", uri, "--properties", 2, "--timeout", 30)
    tenth = start("sub", *common, "--selector", "p0 = 3")
    fifth = start("sub", *common, "--selector", "p1 IN ('two', 'nine')")
    pub = start("pub", *common, "--count", 2005, "--receivers", 2)
    for sub in (tenth, fifth):
        sub.wait_until_ready()
    assert the_only_line(pub.end())["messages"] == 2005
    check_received(the_only_line(tenth.end()), 201, 1024)
    check_received(the_only_line(fifth.end()), 401, 1024)


@pytest.mark.nightly
def test_jms_messages_of_other_properties_are_corrupt(start: Start, uri: str) -> None:
    sub = start("sub", "--layer", "jms", "--uri", uri, "--properties", 2, "--timeout", 30)
    pub = start("pub", "--layer", "jms", "--uri", uri, "--properties", 1, "--count", 10)
    sub.wait_until_ready()
    the_only_line(pub.end())
    ended = sub.end()
    assert ended.code == 1
    assert ended.lines[-1]["corrupt"] > 0


@pytest.mark.nightly
def test_jms_messages_of_another_size_are_seen_at_once(start: Start, uri: str) -> None:
    sub = start("sub", "--layer", "jms", "--uri", uri, "--size", 100, "--timeout", 30)
    pub = start("pub", "--layer", "jms", "--uri", uri, "--size", 64, "--count", 100)
    sub.wait_until_ready()
    assert pub.end().code == 0
    ended = sub.end()
    assert ended.code == 1
    assert ended.lines[-1]["corrupt"] == 100


@pytest.mark.nightly
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


def test_jms_publisher_needs_no_subscriber(start: Start, uri: str) -> None:
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


def test_micro_reports_the_cost_of_a_selector() -> None:
    costs = {cost.step: cost.us for cost in jms.run(1)}
    assert set(costs) >= {"route, not subscribed", "route, selected by p0 = 3", "what that selector adds"}
    difference = costs["route, selected by p0 = 3"] - costs["route, not subscribed"]
    assert costs["what that selector adds"] == pytest.approx(difference)


def test_micro_reports_the_cost_of_a_store() -> None:
    costs = store.run(1)
    assert {cost.size for cost in costs} == {64, 1024}
    assert {cost.step for cost in costs} >= {"append", "read", "open, from batches", "open, from a checkpoint"}
    assert all(cost.us > 0 for cost in costs)


def test_micro_reports_the_cost_of_many_consumers() -> None:
    costs = consumers.run(1)
    assert [cost.consumers for cost in costs] == [1, 1_000, 10_000]
    assert costs[0].ratio == 1.0
    assert costs[-1].ratio == pytest.approx(costs[-1].us / costs[0].us)
