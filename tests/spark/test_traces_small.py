"""Tests that a small warehouse is cheap: one start of Spark, few jobs, and the same figures as with other settings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from fjm2bench.traces import session
from fjm2bench.traces.cli import traces
from fjm2bench.traces.ingest import batches, ingest, read_parquet, read_table
from fjm2bench.traces.lines import TO_ITS_END, Split, encode_splits, read_few
from fjm2bench.traces.refresh import aggregate
from fjm2bench.traces.session import SMALL_BYTES, suited
from fjm2bench.traces.warehouse import Warehouse
from pyspark.sql import SparkSession
from representatives import representatives
from sparks import Sparks
from trace_lines import T, result, sample, write
from trace_tables import contents

JOBS_MAX = 10
"""Most jobs of Spark for a small warehouse, from lines to a report. There were 40 before they were counted."""
TASKS_MAX = 40


def write_some(folder: Path) -> None:
    """Write 61 lines of a publisher and a subscriber."""
    for role, way in (("pub", "sent"), ("sub", "received")):
        lines = [
            sample(node=role, role=role, seq=seq, t=T + seq / 10, c={f"payload_bytes_{way}": 10**5, "cpu_s": 0.01})
            for seq in range(30)
        ]
        write(folder, f"run=r1/node={role}.jsonl", lines)
    write(folder, "run=r1/node=bench.jsonl", [result()])


def events_of(folder: Path) -> list[list[dict[str, Any]]]:
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in folder.iterdir()]


class Small(NamedTuple):
    """A folder of lines, and a warehouse made of them with the settings that all tests share."""

    folder: Path
    warehouse: Warehouse
    rows: dict[str, int]


@pytest.fixture(scope="module")
def small(sparks: Sparks, tmp_path_factory: pytest.TempPathFactory) -> Small:
    made = tmp_path_factory.mktemp("small")
    folder, warehouse = made / "traces", Warehouse(made / "w")
    folder.mkdir()
    write_some(folder)
    ingest(sparks.here(), folder, warehouse, settle_s=0)
    return Small(folder, warehouse, aggregate(sparks.here(), warehouse).tables)


def test_a_small_warehouse_takes_one_session_and_few_jobs(spark: SparkSession, small: Small, tmp_path: Path) -> None:
    """Jobs and tasks are counted rather than seconds: these depend on the machine."""
    (tmp_path / "events").mkdir()
    options = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }
    warehouse, report = Warehouse(tmp_path / "w"), tmp_path / "report"
    command = ["all", str(small.folder), str(warehouse.path), "--to", str(report), "--settle", "0", "--memory", "1g"]
    confs = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
    ran = subprocess.run(
        [sys.executable, "-m", "fjm2bench", "traces", *command, *confs],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "batch-000001: 61 lines" in ran.stdout
    assert ran.stdout.splitlines()[-1] == str(report / "report.html")
    (events,) = events_of(tmp_path / "events")
    kinds = [event["Event"] for event in events]
    assert 0 < kinds.count("SparkListenerJobStart") <= JOBS_MAX
    assert kinds.count("SparkListenerTaskEnd") <= TASKS_MAX
    phases = [line.partition(" (")[0] for line in ran.stderr.splitlines()]
    wanted = ("ingest: read 3 files, ", "aggregate: by_minute, 1 day", "aggregate: by_run, 1 run", "report: draw")
    for phase in wanted:
        assert any(line.startswith(phase) for line in phases), (phase, phases)
    assert contents(spark, warehouse) == contents(spark, small.warehouse)


def test_spark_does_not_start_for_nothing(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, warehouse = small.folder, small.warehouse
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: pytest.fail("Spark was started"))
    monkeypatch.chdir(tmp_path)
    places = {"ingest": [folder, warehouse.path], "aggregate": [warehouse.path], "all": [folder, warehouse.path]}
    for command, paths in places.items():
        ran = CliRunner().invoke(traces, [command, *map(str, paths), "--quiet"])
        assert ran.exit_code == 0, ran.output
        assert "nothing new" in ran.output
        assert (f"by_minute {small.rows['by_minute']:>25,} rows" in ran.output) == (command != "ingest")
        assert len(batches(warehouse)) == 1


def test_settings_suit_the_size() -> None:
    partitions = "spark.sql.shuffle.partitions"
    master, settings = suited("local[*]", SMALL_BYTES)
    assert (master, settings[partitions]) == ("local[1]", "1")
    assert suited("local[4]", 1)[0] == "local[4]"
    assert suited("local[*]", SMALL_BYTES + 1) == ("local[*]", {partitions: "8"})
    assert suited("local[*]", 1 << 30) == ("local[*]", {partitions: "32"})
    assert suited("local[*]", 1 << 50) == ("local[*]", {partitions: "200"})
    assert suited("spark://host:7077", 1) == ("spark://host:7077", {})


def test_what_is_read_here_is_bounded(folder: Path) -> None:
    """`read_few` returns None above its limit: a small archive may unpack to far more than its size."""
    path = write(folder, "x.jsonl", [sample(seq=seq) for seq in range(1000)])
    text = encode_splits([Split(str(path), 0, TO_ITS_END, TO_ITS_END, True)])
    few = read_few([text], 10 << 20)
    assert few is not None
    assert few.num_rows == 1000
    assert read_few([text], 100_000) is None
    assert read_few([text, text], int(1.5 * few.nbytes)) is None


@pytest.mark.parametrize("here_bytes", representatives([0, 1 << 20], 0))
def test_lines_read_here_and_by_workers_are_the_same(
    spark: SparkSession, folder: Path, tmp_path: Path, here_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fjm2bench.traces.ingest._HERE_BYTES", here_bytes)
    write(folder, "a.jsonl", [sample(), "broken", b"\xff", result(), b"x" * 100_000])
    os.symlink("/etc/passwd", folder / "b.jsonl")
    warehouse = Warehouse(tmp_path / "w")
    done = ingest(spark, folder, warehouse, settle_s=0)
    assert dict(done.counts) == {"rows": 1, "results": 1, "bad": 3}
    assert dict(done.reasons) == {"json": 1, "utf8": 1, "oversize": 1}
    assert done.links == [str(folder / "b.jsonl")]
    bad = read_table(spark, warehouse, "bad")
    assert bad is not None
    assert sorted(row["offset"] for row in bad.select("offset").collect()) == sorted(
        [len((folder / "a.jsonl").read_bytes().split(b"broken")[0]), *offsets_of(folder / "a.jsonl", b"\xff", b"xxx")]
    )


def offsets_of(path: Path, *beginnings: bytes) -> list[int]:
    return [path.read_bytes().index(b"\n" + beginning) + 1 for beginning in beginnings]


def test_files_with_fewer_columns_are_read_beside_newer_ones(spark: SparkSession, tmp_path: Path) -> None:
    """A counter that an older version did not know is null in its rows."""
    for number, frame in enumerate((spark.sql("SELECT 1 AS a"), spark.sql("SELECT 2 AS a, 3L AS b"))):
        frame.coalesce(1).write.mode("append").parquet(str(tmp_path / "t"))
        for path in (tmp_path / "t").glob("*.parquet"):
            if path.stat().st_mtime > T:
                os.utime(path, (number + 1, number + 1))
    rows = read_parquet(spark, tmp_path / "t")
    assert rows is not None
    assert sorted(tuple(row) for row in rows.collect()) == [(1, None), (2, 3)]
