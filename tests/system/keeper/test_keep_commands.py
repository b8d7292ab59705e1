"""`fjm2 keep status`, `export` and `bench` as processes."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from keepers import DEADLINE_S, Keepers, keeping, run_command, uri_of, writing

from fjm2.bus.ledgers.destinations import REQUESTS

pytestmark = pytest.mark.calm


@pytest.fixture
def store(cell_of_one: Keepers) -> Path:
    """Return a store with three messages, and a request to the keeper."""

    async def write() -> None:
        async with writing(cell_of_one.port) as writer:
            for number in range(3):
                writer.send(b"%d" % number)
            await writer.stored(writer.send(b"request", REQUESTS))

    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    asyncio.run(write())
    one.end(signal.SIGINT)
    return one.directory


def test_export_writes_json_lines_and_parquet(store: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    lines = run_command("export", store, "--json")
    rows = [json.loads(line) for line in lines.stdout.splitlines()]
    assert [(row["sequence"], row["destination"], row["state"]) for row in rows] == [
        (number, "queue://orders", "kept") for number in (1, 2, 3)
    ]
    assert json.loads(lines.stderr) == {"messages": 3, "unreadable": 0}
    target = tmp_path / "messages.parquet"
    assert run_command("export", store, "--format", "parquet", "--to", target).returncode == 0
    table = pyarrow.read_table(target).to_pylist()
    assert [row["body"] for row in table] == [b"0", b"1", b"2"]
    assert [row["sequence"] for row in table] == [1, 2, 3]
    assert {row["producer_id"] for row in table} == {row["producer_id"] for row in rows}


def test_parquet_without_its_library_is_an_error_that_tells_the_extra(store: Path, tmp_path: Path) -> None:
    (tmp_path / "lacking").mkdir()
    (tmp_path / "lacking" / "pyarrow.py").write_text("raise ModuleNotFoundError('no', name='pyarrow')")
    path = os.pathsep.join((str(tmp_path / "lacking"), os.environ.get("PYTHONPATH", "")))
    found = run_command("export", store, "--format", "parquet", "--to", tmp_path / "t", PYTHONPATH=path)
    assert found.returncode == 1
    assert found.stderr.startswith("Error: --format parquet needs pyarrow: pip install '.[spark]'")
    assert not (tmp_path / "t").exists()
    assert run_command("export", store, "--format", "parquet").returncode == 2


def test_status_tells_that_nobody_keeps(port: int) -> None:
    found = run_command("status", "--duration", "300ms", FJM2_URI=uri_of(port))
    assert found.returncode == 1
    assert found.stderr == "no keeper answered within 0.3 s; start one: fjm2 keep DIRECTORY\n"


def test_status_tells_that_a_cell_is_being_founded_and_waits_until_it_serves(tmp_path: Path, port: int) -> None:
    with keeping(tmp_path, port) as keepers:
        for name in "abc":
            keepers.start(name)

        def status(*options: object) -> tuple[int, str]:
            found = run_command("status", *options, FJM2_URI=uri_of(port))
            return found.returncode, found.stderr

        told: list[tuple[int, str]] = []

        def is_answered() -> bool:
            told.append(status("--duration", "300ms"))
            return "no keeper answered" not in told[-1][1]

        keepers.until(is_answered)
        code, said = told[-1]
        assert code == 1
        assert "without a cell. A new cell is founded when" in said
        assert status("--wait", "10s") == (0, "")
        keepers.until(lambda: keepers.serving)


def test_status_tells_that_too_few_keepers_are_there(cell_of_three: Keepers) -> None:
    alone = cell_of_three.start("a")
    cell_of_three.until(lambda: alone.state in ("follower", "candidate"))
    found = run_command("status", "--wait", "2s", "--duration", "500ms", FJM2_URI=uri_of(cell_of_three.port))
    assert found.returncode == 1
    assert "start its other keepers" in found.stderr


def test_top_shows_keepers_and_asks_nobody(cell_of_one: Keepers) -> None:
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    top = (sys.executable, "-m", "fjm2", "top", "--uri", uri_of(cell_of_one.port), "--once", "--duration", "6s")
    told = subprocess.run((*top, "--json"), capture_output=True, text=True, timeout=DEADLINE_S)
    (keeper,) = json.loads(told.stdout)["keepers"]
    assert (keeper["state"], keeper["lag"], keeper["is_full"]) == ("serving", 0, False)
    assert 0 < keeper["store_bytes"] <= keeper["allowed_bytes"]
    assert keeper["free_bytes"] > 0
    assert 0 < keeper["sync_s"] < 1
    shown = subprocess.run(top, capture_output=True, text=True, timeout=DEADLINE_S).stdout
    assert re.search(r"KEEPER +STATE +EPOCH +LAG +DISK .*\n.* at \S+ +serving ", shown), shown


def test_bench_measures_a_directory_and_leaves_nothing(tmp_path: Path) -> None:
    found = run_command("bench", tmp_path, "--duration", "400ms", "--json")
    told = json.loads(found.stdout)
    assert 0 < told["commit_p50_s"] <= told["commit_p99_s"] <= told["commit_max_s"]
    assert told["messages_per_s"] > 0
    assert not list(tmp_path.iterdir())
    assert "expect: awaited sends take" in run_command("bench", tmp_path, "--duration", "400ms").stdout


def test_bench_leaves_a_store_alone(store: Path) -> None:
    found = run_command("bench", store)
    assert found.returncode == 2
    assert "is a store: expected its parent" in found.stderr


def test_a_directory_named_like_a_command_is_written_with_a_dot(tmp_path: Path) -> None:
    found = run_command("--uri", "fjm2://?interface=127.0.0.1&ttl=0", "status")
    assert found.returncode == 2
    assert "write ./status for the directory" in found.stderr
    assert not (tmp_path / "status").exists()
