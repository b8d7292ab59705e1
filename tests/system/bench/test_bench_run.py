"""Tests of `fjm2-bench run`: plans run in namespaces, are interrupted in every way, and continued."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fjm2bench.cli import main
from fjm2bench.networks import namespaces
from fjm2bench.networks.lan import Lan
from fjm2bench.runs.result_folder import ResultFolderError, ownership
from representatives import representatives

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("require_root_and_netns")]

DEADLINE_S = 120.0
BRIEF = "seconds = 0.2\nrepeat = 1\n"
SETTINGS = 'settings = "rate=200mbit&flow=min&loopback=off"\n'
PLAN = f"""
{BRIEF}
[[experiment]]
name = "lan"
systems = ["fjm2", "fjm2-jms"]
sizes = [512]
fanout = [2]
{SETTINGS}
[[experiment]]
name = "host"
network = "loopback"
systems = ["fjm2"]
settings = "rate=200mbit&flow=min&ttl=0"
[[experiment]]
name = "trips"
task = "round-trips"
systems = ["fjm2"]
sizes = [64]
round_trips = 50
[[experiment]]
name = "code"
task = "fec"
systems = ["fjm2"]
sizes = [4096]
symbols = [512]
"""
CELLS = 5
LONG = f"""
[[experiment]]
name = "long"
systems = ["fjm2"]
seconds = 20
repeat = 2
{SETTINGS}
"""


class Run:
    """A running `fjm2-bench run`."""

    def __init__(self, folder: Path, plan: str, *arguments: str) -> None:
        self.folder = folder / "to"
        path = folder / "plan.toml"
        path.write_text(plan)
        command = (sys.executable, "-W", "error", "-m", "fjm2bench", "run", path, "--to", self.folder, *arguments)
        self.popen = subprocess.Popen(
            [*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> str:
        """Wait for the run to end, and return its standard error. Fail if it wrote to its standard output."""
        out, err = self.popen.communicate(timeout=DEADLINE_S)
        assert out == ""
        assert "Traceback" not in err, err
        return err

    def namespaces(self) -> list[str]:
        """Return the names of the network namespaces that the run has made and not removed yet."""
        return [name for name in namespaces.names() if name.startswith(namespaces.prefix_of(self.popen.pid))]

    def wait_until(self, condition: Any) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline
            assert self.popen.poll() is None, self.end()
            time.sleep(0.05)


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return all lines of traces in a run's folder."""
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_text().splitlines()]


def results(folder: Path, role: str = "run") -> list[dict[str, Any]]:
    return [line for line in lines(folder) if line["kind"] == "result" and line["role"] == role]


def test_every_cell_has_a_result_and_programs_of_ours_write_samples(tmp_path: Path) -> None:
    run = Run(tmp_path, PLAN)
    said = run.end()
    assert run.popen.returncode == 0, said
    assert f"{CELLS} runs, 0 with faults, 0 systems missing" in said
    found = results(run.folder)
    places = {(it["system"], it["layer"], it["scenario"], it["size"], it["fanout"]) for it in found}
    assert len(found) == CELLS
    assert places == {
        ("fjm2", "norm", "lan", 512, 2),
        ("fjm2-jms", "jms", "lan", 512, 2),
        ("fjm2", "norm", "loopback", 1024, 1),
        ("fjm2", "norm", "lan", 64, 1),
        ("fjm2", "fec", "symbols-512", 4096, None),
    }
    for result in found:
        labels, figures = result["labels"], result["r"]
        assert {"cpu", "cores", "kernel", "python", "version", "settings", "udp_offload", "load", "plan"} <= set(labels)
        if labels["task"] == "throughput":
            assert figures["gbit_per_s"] == pytest.approx(figures["msgs_per_s"] * result["size"] * 8e-9)
            assert 0 < figures["gbit_per_s"] < 0.2
            assert figures["cpu_s_per_gb"] > 0
        elif labels["task"] == "round-trips":
            assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["max_us"]
        else:
            assert 0 < figures["encode_s"] < 1
            assert (figures["source_symbols"], figures["parity_symbols"]) == (8, 2)
    ends = [(it["node"], it["role"]) for it in results(run.folder, "sub") if it["scenario"] == "lan"]
    assert sorted(ends) == [("sub1", "sub"), ("sub1", "sub"), ("sub2", "sub"), ("sub2", "sub")]
    check_samples(run.folder, found)
    assert run.namespaces() == []


def check_samples(folder: Path, found: list[dict[str, Any]]) -> None:
    """Check that each run of throughput has samples of all its nodes, and that they contain all bytes received."""
    samples = [line for line in lines(folder) if line["kind"] == "sample"]
    for result in found:
        if result["labels"]["task"] != "throughput":
            continue
        own = [it for it in samples if it["run"] == result["run"]]
        assert {it["node"] for it in own} == {"pub", *(f"sub{n}" for n in range(1, result["fanout"] + 1))}
        assert {(it["system"], it["layer"], it["size"], it["fanout"]) for it in own} == {
            (result["system"], result["layer"], result["size"], result["fanout"])
        }
        received = sum(it["c"].get("payload_bytes_received", 0) for it in own if it["node"] == "sub1")
        assert received >= result["r"]["bytes"]


def test_a_way_from_lan_to_lan_is_measured(tmp_path: Path) -> None:
    plan = f"{BRIEF}[[experiment]]\nname = 'wan'\nnetwork = 'wan'\nsizes = [8192]\nrate = ['50mbit']\n"
    run = Run(tmp_path, plan)
    said = run.end()
    assert run.popen.returncode == 0, said
    found = {it["system"]: it for it in results(run.folder)}
    assert set(found) == {"fjm2d", "plain-relay", "direct"}
    for system, result in found.items():
        assert "fault" not in result["labels"], result
        assert (result["layer"], result["scenario"], result["rate_bps"]) == ("jms", "wan", 5e7)
        assert 0.005 < result["r"]["gbit_per_s"] < 0.05
        assert (result["r"]["gateway_cpu_s_per_gb"] > 0) == (system != "direct")
    assert run.namespaces() == []


def test_finished_cells_are_not_repeated(tmp_path: Path) -> None:
    plan = f"{BRIEF}[[experiment]]\nname = 'code'\ntask = 'fec'\nsystems = ['fjm2']\nsizes = [1024]\nsymbols = [512]\n"
    Run(tmp_path, plan).end()
    second = Run(tmp_path, plan.replace("sizes = [1024]", "sizes = [1024, 2048]"))
    assert "1 of 2 runs are in" in second.end()
    assert [it["size"] for it in results(second.folder)] == [1024, 2048]
    time.sleep(1 - time.time() % 1)  # a run's id contains the second in which it began
    assert "2 runs, 0 with faults" in Run(tmp_path, plan.replace("[1024]", "[1024, 2048]"), "--again").end()
    found = results(second.folder)
    assert sorted(it["size"] for it in found) == [1024, 1024, 2048, 2048]
    assert len({it["run"] for it in found}) == 4


def test_after_a_kill_the_rest_is_done_and_nothing_is_left_behind(tmp_path: Path) -> None:
    run = Run(tmp_path, LONG.replace("seconds = 20", "seconds = 1"))
    run.wait_until(lambda: len(results_so_far(run.folder)) == 1 and len(run.namespaces()) == 3 and inside(run))
    left, processes = run.namespaces(), inside(run)
    run.popen.kill()
    run.popen.communicate()
    (done,) = results_so_far(run.folder)
    torn = run.folder / f"run={done['run']}" / "node=bench.jsonl"
    with torn.open("a") as file:
        file.write('{"v":1,"kind":"result","role":"run","labels":{"cell":"lo')

    second = Run(tmp_path, LONG.replace("seconds = 20", "seconds = 1"))
    said = second.end()
    assert second.popen.returncode == 0, said
    assert "1 of 2 runs are in" in said
    assert "1 run, 0 with faults" in said
    assert len({it["labels"]["repeat"] for it in results_so_far(run.folder)}) == 2
    assert not set(left) & set(namespaces.names())
    assert not any(os.path.exists(f"/proc/{pid}") for pid in processes)


KILLED = """
import signal, subprocess, sys
from fjm2bench.networks.lan import Lan
with Lan(1) as lan:
    subprocess.Popen(lan.publisher.inside("sleep", "60"), stdout=subprocess.DEVNULL)
    print("ready", flush=True)
    signal.pause()
"""


def test_a_new_network_removes_those_of_killed_runs() -> None:
    """Making a network removes the namespaces of killed runs, but not those of living processes."""
    with Lan(1) as other, subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == b"ready\n"
        left = [name for name in namespaces.names() if name.startswith(namespaces.prefix_of(killed.pid))]
        assert len(left) == 3
        deadline = time.monotonic() + DEADLINE_S
        while not (processes := [pid for name in left for pid in namespaces.processes(name)]):  # it has yet to enter
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert len(processes) == 1
        killed.kill()
        killed.wait()
        with Lan(1) as next_one:
            names = namespaces.names()
            assert not set(left) & set(names)
            deadline = time.monotonic() + DEADLINE_S
            while any(os.path.exists(f"/proc/{pid}") for pid in processes):  # until they are reaped
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert {other.publisher.name, next_one.publisher.name} <= set(names)


def results_so_far(folder: Path) -> list[dict[str, Any]]:
    """Return the results that a run has written so far. The last line of a file may be incomplete."""
    found = []
    for path in folder.rglob("node=bench.jsonl"):
        for text in path.read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if line["role"] == "run":
                found.append(line)
    return found


def inside(run: Run) -> list[int]:
    """Return the ids of the processes in the run's namespaces."""
    return [pid for name in run.namespaces() for pid in namespaces.processes(name)]


@pytest.mark.parametrize("number", representatives([signal.SIGINT, signal.SIGTERM], signal.SIGINT))
def test_an_interrupted_run_cleans_up_and_keeps_finished_cells(tmp_path: Path, number: signal.Signals) -> None:
    code = "[[experiment]]\nname = 'code'\ntask = 'fec'\nsystems = ['fjm2']\nsizes = [1024]\nsymbols = [512]\n"
    run = Run(tmp_path, BRIEF + code + LONG)
    run.wait_until(lambda: len(run.namespaces()) == 3 and len(inside(run)) == 2)
    left, processes = run.namespaces(), inside(run)
    run.popen.send_signal(number)
    said = run.end()
    assert run.popen.returncode == 130
    assert "1 of 3 runs are done and kept; the same command goes on from there" in said
    assert [it["labels"]["experiment"] for it in results(run.folder)] == ["code"]
    assert not set(left) & set(namespaces.names())
    assert not any(os.path.exists(f"/proc/{pid}") for pid in processes)


def test_a_folder_belongs_to_one_run_at_a_time(tmp_path: Path) -> None:
    with ownership(tmp_path), pytest.raises(ResultFolderError, match="another run writes there"), ownership(tmp_path):
        pass
    with ownership(tmp_path):
        pass


def test_faults_and_missing_systems_are_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fjm2bench.peers.zenoh_peer.find_spec", lambda _: None)
    monkeypatch.setattr(
        "fjm2bench.comparison.trial._COMMAND", (sys.executable, "-c", "raise SystemExit('it is broken')")
    )
    plan = tmp_path / "plan.toml"
    plan.write_text(f"{BRIEF}[[experiment]]\nname = 'both'\nsystems = ['fjm2', 'zenoh']\n{SETTINGS}")
    folder = tmp_path / "to"
    ran = CliRunner().invoke(main, ["run", str(plan), "--to", str(folder)])
    assert ran.exit_code == 1, ran.output
    assert "fault: both: fjm2, 1024 B to 1: it is broken" in ran.output
    assert "missing: zenoh: eclipse-zenoh is not installed" in ran.output
    found = {it["system"]: it for it in results(folder)}
    assert found["fjm2"]["labels"]["fault"] == "it is broken"
    assert found["fjm2"]["r"] == {}
    assert found["zenoh"]["labels"]["missing"] == "eclipse-zenoh is not installed"
    again = CliRunner().invoke(main, ["run", str(plan), "--to", str(folder)])
    assert "1 of 2 runs are in" in again.output
    assert "missing: zenoh" in again.output
