"""Tests of plans of experiments: their cells, and the errors reported for plans with mistakes."""

import itertools
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fjm2bench.cli import main
from fjm2bench.comparison.trial import SYSTEMS
from fjm2bench.peers import RELIABLE
from fjm2bench.runs.matrix import Cell, cells_of
from fjm2bench.runs.plan import load
from fjm2bench.runs.values import PlanError

PLANS = Path(__file__).parents[3] / "bench" / "plans"
MATRIX = """
title = "Sizes by fan-out"
repeat = 2
seconds = 0.5
[[experiment]]
name = "first"
systems = ["fjm2", "zenoh"]
sizes = [64, 1024]
fanout = [1, 2]
rate = ["none", "100mbit"]
loss = [0, 0.01]
[[experiment]]
name = "second"
network = "wan"
layers = ["jms", "norm"]
repeat = 1
"""


def cells(tmp_path: Path, text: str) -> list[Cell]:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return cells_of(load(path))


def test_a_matrix_is_all_combinations(tmp_path: Path) -> None:
    found = cells(tmp_path, MATRIX)
    first = [cell for cell in found if cell.experiment.name == "first"]
    places = {(it.system, it.size, it.fanout, it.rate_bps, it.loss, it.turn) for it in first}
    assert len(places) == len(first) == 2 * 2 * 2 * 2 * 2 * 2
    assert {it.rate_bps for it in first} == {None, 1e8}
    assert {it.experiment.seconds for it in found} == {0.5}
    assert {it.layer for it in first} == {"norm", "messages"}
    second = [cell for cell in found if cell.experiment.name == "second"]
    assert {(it.system, it.layer) for it in second} == {
        (way, layer) for way in ("fjm2d", "plain-relay", "direct") for layer in ("jms", "norm")
    }


def test_cells_of_a_network_come_together_and_systems_take_turns(tmp_path: Path) -> None:
    found = cells(tmp_path, MATRIX)
    fields = [cell.network for cell in found]
    changes = sum(one != other for one, other in itertools.pairwise(fields))
    assert changes == len(set(fields)) - 1
    assert [cell.system for cell in found[:4]] == ["fjm2", "zenoh", "zenoh", "fjm2"]


def test_names_tell_cells_apart_and_fit_into_a_run(tmp_path: Path) -> None:
    for found in (cells(tmp_path, MATRIX), cells_of(load(PLANS / "full.toml"))):
        names = [cell.name for cell in found]
        assert len(set(names)) == len(names)
        assert max(map(len, names)) <= 128 - len("20260301T120000.")


def test_what_is_measured_otherwise_is_another_cell(tmp_path: Path) -> None:
    for change in (("seconds = 0.5", "seconds = 0.6"), ("zenoh", "pyzmq"), ('"first"', '"third"')):
        before = {cell.key for cell in cells(tmp_path, MATRIX) if cell.experiment.name != "second"}
        after = {cell.key for cell in cells(tmp_path, MATRIX.replace(*change)) if cell.experiment.name != "second"}
        assert (before & after) != before, change
    assert {cell.key for cell in cells(tmp_path, MATRIX)} == {
        cell.key for cell in cells(tmp_path, MATRIX.replace("repeat = 2", "repeat = 3")) if cell.turn < 2
    }


@pytest.mark.parametrize("name", ["quick", "full"])
def test_the_plans_that_come_with_it_are_good(name: str) -> None:
    plan = load(PLANS / f"{name}.toml")
    systems = {cell.system for cell in cells_of(plan)}
    assert {"fjm2", "fjm2-jms", "fjm2d"} <= systems
    assert len(systems & set(RELIABLE)) >= (5 if name == "quick" else len(RELIABLE))
    assert {experiment.task for experiment in plan.experiments} == {"throughput", "round-trips", "fec"}
    assert {experiment.network for experiment in plan.experiments} == {"loopback", "lan", "wan"}


def test_the_full_plan_has_the_thesis_s_experiments() -> None:
    found = cells_of(load(PLANS / "full.toml"))
    sizes = {64, 1024, 4096, 65536}

    def has(scenario: str, fanout: int, rate_bps: float | None, *systems: str) -> bool:
        return all(
            sizes
            <= {
                cell.size
                for cell in found
                if (cell.scenario, cell.fanout, cell.rate_bps, cell.system) == (scenario, fanout, rate_bps, system)
            }
            for system in systems
        )

    assert has("loopback", 1, None, "fjm2-jms", "activemq")
    assert has("lan", 1, 1e8, "fjm2-jms", "activemq")
    assert has("lan", 2, 1e8, "fjm2-jms", "activemq")
    assert has("wan", 1, 1e8, "fjm2d", "direct")
    codes = {(cell.symbol, cell.size) for cell in found if cell.experiment.task == "fec"}
    assert {(symbol, size << 10) for symbol in (512, 1024, 1440) for size in (1, 2, 4, 8, 16, 32, 64)} == codes


ONE = '[[experiment]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ("colour = 1\n" + ONE, "colour", "some of title, experiment, seconds, repeat"),
        ("title = 3\n" + ONE, "title", "a line of text"),
        ("", "experiment", "at least one table [[experiment]]"),
        ("experiment = 3", "experiment", "at least one table [[experiment]]"),
        ("[[experiment]]\nsizes = [64]", "experiment 1: name", "is missing"),
        (ONE + ONE, "experiment a: name", "two of this name"),
        ('[[experiment]]\nname = "a b"', "name", "letters, digits"),
        (ONE + "size = [64]", "experiment a: size", "name, task, network"),
        (ONE + 'task = "speed"', "task", "throughput, round-trips, fec"),
        (ONE + 'network = "moon"', "network", "loopback, lan, wan"),
        (ONE + 'systems = ["rabbit"]', "systems", "fjm2-jms"),
        (ONE + "systems = []", "systems", "one or more"),
        (ONE + 'systems = "fjm2"', "systems", "a list"),
        (ONE + 'network = "wan"\nsystems = ["zenoh"]', "systems", "fjm2d, plain-relay, direct"),
        (ONE + 'task = "fec"\nsystems = ["zenoh"]', "systems", "fjm2, zfec, creedsolo"),
        (ONE + "sizes = [7]", "sizes", "a whole number from 8 to"),
        (ONE + "sizes = [64.5]", "sizes", "a whole number"),
        (ONE + "sizes = [true]", "sizes", "a whole number"),
        (ONE + "sizes = 64", "sizes", "in brackets"),
        (ONE + "fanout = [65]", "fanout", "from 1 to 64"),
        (ONE + 'task = "round-trips"\nfanout = [2]', "fanout", "expected [1]"),
        (ONE + 'network = "wan"\nfanout = [2]', "fanout", "expected [1]"),
        (ONE + "loss = [0.6]", "loss", "from 0 to 0.5"),
        (ONE + "loss = [nan]", "loss", "from 0 to 0.5"),
        (ONE + 'network = "loopback"\nloss = [0.1]', "loss", "[0.0], or network lan or wan"),
        (ONE + 'rate = ["fast"]', "rate", '"none"'),
        (ONE + "rate = [true]", "rate", '"none"'),
        (ONE + 'rate = ["10"]', "rate", "from 1kbit up"),
        (ONE + 'network = "loopback"\nrate = ["1gbit"]', "rate", "['none']"),
        (ONE + 'layers = ["jms"]', "layers", "network wan only"),
        (ONE + 'network = "wan"\nlayers = ["udp"]', "layers", "jms, norm"),
        (ONE + "round_trips = 9", "round_trips", "task round-trips only"),
        (ONE + "symbols = [512]", "symbols", "task fec only"),
        (ONE + 'task = "fec"\nnetwork = "lan"', "network", "not for task fec"),
        (ONE + 'task = "fec"\nsizes = [131072]\nsymbols = [512]', "sizes", "at most 255 symbols"),
        (ONE + 'task = "fec"\nseconds = 2', "seconds", "throughput only"),
        (ONE + "seconds = 0", "seconds", "from 0.1 to 3600"),
        (ONE + 'seconds = "2"', "seconds", "from 0.1 to 3600"),
        (ONE + "repeat = 0", "repeat", "from 1 to 99"),
        (ONE + "offload = 1", "offload", "true or false"),
        (ONE + 'settings = "colour=red"', "settings", "colour=red"),
        (ONE + "properties = 9", "properties", "from 0 to 8"),
        (ONE + 'object = "file"', "object", "stream, data"),
        (ONE + "segment_bytes = 10", "segment_bytes", "from 64 to 65000"),
        (ONE + "sizes = [64", "", "not a TOML file"),
    ],
)
def test_mistakes_name_file_key_and_what_is_allowed(tmp_path: Path, text: str, key: str, allowed: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        load(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: ")
    assert f"{key}: " in said
    assert allowed in said


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"nowhere\.toml: No such file"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PlanError, match="not a TOML file"):
        load(tmp_path / "bytes.toml")


def test_without_systems_all_are_meant(tmp_path: Path) -> None:
    assert {cell.system for cell in cells(tmp_path, ONE)} == set(SYSTEMS)


# The command, in cases where it measures nothing.


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def test_the_command_lists_what_it_would_do(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(MATRIX)
    listed = run(path, "--list", "--to", tmp_path / "to")
    assert listed.exit_code == 0
    assert "first: fjm2, 64 B to 1\n" in listed.output
    assert "first: zenoh, 1024 B to 2, 100 Mbit/s, 1.00% lost\n" in listed.output
    assert "70 runs, about " in listed.output
    only = run(path, "--list", "--only", "second")
    assert "first" not in only.output
    assert "6 runs" in only.output
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give a plan: a file, --quick or --full"),
        (("mine.toml", "--quick"), "give a plan: a file, --quick or --full"),
        (("nowhere.toml",), "nowhere.toml: No such file"),
        (("--quick", "--only", "moon"), "'moon': expected some of "),
    ],
)
def test_the_command_says_what_it_expects(arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_measuring_needs_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = run("--quick", "--to", tmp_path / "to")
    assert (result.exit_code, result.output) == (1, "Error: network namespaces need root\n")
