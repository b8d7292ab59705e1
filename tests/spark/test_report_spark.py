"""Test from runs to a report through Spark: no line is bad, and the report's figures are those of the aggregates."""

import csv
from pathlib import Path
from random import Random

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")

from fjm2bench.comparison.trial import ProcessResult
from fjm2bench.report import build
from fjm2bench.report.warehouse import Warehouse as Read
from fjm2bench.runs.matrix import Cell, cells_of
from fjm2bench.runs.plan import load
from fjm2bench.runs.result_folder import ResultFolder
from fjm2bench.traces.ingest import ingest
from fjm2bench.traces.refresh import aggregate
from fjm2bench.traces.warehouse import Warehouse
from pyspark.sql import SparkSession

PLAN = """
[[experiment]]
name = "sizes"
systems = ["fjm2", "zenoh", "udp-c"]
sizes = [64, 8192]
rate = ["100mbit"]
[[experiment]]
name = "codes"
task = "fec"
systems = ["fjm2"]
repeat = 2
"""


def figures(cell: Cell, random: Random) -> dict[str, float]:
    if cell.symbol is not None:
        return {"encode_s": random.random()}
    rate = random.uniform(1e3, 1e5)
    return {"msgs_per_s": rate, "gbit_per_s": rate * cell.size * 8e-9, "cpu_s_per_gb": random.random()}


@pytest.mark.nightly
def test_results_of_runs_reach_the_report_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    random, book = Random(5), ResultFolder(tmp_path / "traces", "made")
    cells = cells_of(load(tmp_path / "plan.toml"))
    for cell in cells:
        is_bad = cell.system == "zenoh" and cell.turn == 0
        processes = (
            ProcessResult("pub", "pub", {"msgs_per_s": 1e12, "cpu_s": 1}),
            ProcessResult("sub", "sub1", {"lost": 0}),
        )
        labels = {"fault": "3 lost"} if is_bad else {"symbol_bytes": str(cell.symbol)} if cell.symbol else {}
        book.write(cell, {} if is_bad else figures(cell, random), labels, processes)
    book.write_missing("sizes", "nats", "messages", "nats-server is not installed", {})

    done = ingest(spark, tmp_path / "traces", Warehouse(tmp_path / "warehouse"), settle_s=0)
    aggregate(spark, Warehouse(tmp_path / "warehouse"))
    assert dict(done.counts) == {"results": 3 * len(cells) + 1}
    build(tmp_path / "warehouse", tmp_path / "report")

    by_place = {
        (row["system"], row["scenario"], row["size"]): row
        for row in Read(tmp_path / "warehouse").rows("aggregates/results_by_cell")
    }
    checked = 0
    for name, figure, scale in (("thesis-5-8", "gbit_per_s", 1e3), ("thesis-4-3-1", "encode_s", 1e3)):
        with (tmp_path / "report" / f"{name}.csv").open() as file:
            for point in csv.DictReader(file):
                scenario = "symbols-1440" if figure == "encode_s" else "lan"
                row = by_place[point["system"], scenario, float(point["x"])]
                for column, suffix in (("y", "median"), ("low", "min"), ("high", "max")):
                    assert float(point[column]) == pytest.approx(row[f"{figure}_{suffix}"] * scale)
                assert set(point["runs"].split()) == set(row["runs"]) - set(row["faulty_runs"])
                checked += 1
    assert checked == 2 * 2 + 1
    page = (tmp_path / "report" / "report.html").read_text()
    assert "nats-server is not installed" in page
    assert page.count("3 lost") == 2
