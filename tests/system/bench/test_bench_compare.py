"""Tests of `fjm2-bench compare`, which measures systems one after another in network namespaces."""

import os
import signal
import subprocess
import sys
import time

import pytest
from bench_processes import Start, the_only_line
from click.testing import CliRunner
from fjm2bench.cli import main
from fjm2bench.peers import RELIABLE, load


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
@pytest.mark.nightly
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
def test_a_failing_system_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
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
