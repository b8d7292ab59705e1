"""Tests of `traces scale` with thousands of lines instead of millions.

DuckDB computes the same figures from the same files.
"""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from fjm2bench.traces import scale
from fjm2bench.traces.cli import traces
from fjm2bench.traces.generate import WAYS, Generated, generate
from fjm2bench.traces.ingest import ingest
from fjm2bench.traces.refresh import aggregate
from fjm2bench.traces.warehouse import Warehouse
from sparks import SETTINGS, Sparks

from fjm2.base.quantities import counted

pytest.importorskip("duckdb", reason="the extra `dev` is not installed")
import pyarrow as pa
import pyarrow.parquet as pq

LINES = 20_000


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Generated]:
    """Return a folder of traces, and the counts of its lines."""
    folder: Path = tmp_path_factory.mktemp("scale") / "traces"
    return folder, generate(folder, LINES)


@pytest.fixture(scope="module")
def made(sparks: Sparks, written: tuple[Path, Generated]) -> tuple[Path, Warehouse, Generated]:
    """Return the traces, a warehouse that has ingested them, and the counts of the lines that were written."""
    folder, counts = written
    warehouse = Warehouse(folder.parent / "warehouse")
    ingest(sparks.here(), folder, warehouse, settle_s=0)
    aggregate(sparks.here(), warehouse)
    return folder, warehouse, counts


def test_generated_lines_are_realistic(written: tuple[Path, Generated]) -> None:
    """A twentieth of the lines are broken, in all possible ways. The runs differ much in length."""
    folder, counts = written
    bad = counts.bad.total()
    assert counts.good + bad == LINES
    assert 0.04 < bad / LINES < 0.06
    assert counts.bad.keys() == {reason for reason, _ in WAYS}
    bytes_of_runs = sorted(sum(file.stat().st_size for file in run.iterdir()) for run in folder.iterdir())
    assert len(bytes_of_runs) > 5
    assert bytes_of_runs[-1] > 5 * bytes_of_runs[0]
    again = generate(folder.parent / "again", LINES)
    assert again == counts
    shutil.rmtree(folder.parent / "again")


@pytest.mark.nightly
def test_duckdb_finds_the_same(made: tuple[Path, Warehouse, Generated]) -> None:
    folder, warehouse, written = made
    assert scale.differences(folder, warehouse.path, written, "1g") == []


def changed(path: Path, column: str) -> None:
    """Change one figure in one row of a table."""
    kept = pq.read_table(path)
    values = kept[column].to_pylist()
    row = next(index for index, value in enumerate(values) if value)
    values[row] = type(values[row])(values[row] * 1.001 + 1)
    at = kept.column_names.index(column)
    pq.write_table(kept.set_column(at, column, pa.array(values, kept.schema.field(column).type)), path)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("table", "column"),
    [("by_run", "throughput_p50_bps"), ("by_run", "nacks_sent"), ("by_minute", "cpu_s"), ("by_minute", "lines")],
)
def test_a_wrong_figure_would_be_noticed(
    made: tuple[Path, Warehouse, Generated], table: str, column: str, tmp_path: Path
) -> None:
    folder, warehouse, written = made
    copy = shutil.copytree(warehouse.path, tmp_path / "copy")
    changed(next((copy / "aggregates" / table).rglob("*.parquet")), column)
    (difference,) = scale.differences(folder, copy, written, "1g")
    assert difference.startswith(f"{table}, run-0")
    assert f": {column} is " in difference


@pytest.mark.nightly
def test_lines_that_are_lost_or_misjudged_would_be_noticed(made: tuple[Path, Warehouse, Generated]) -> None:
    folder, warehouse, written = made
    more = Generated(written.files, written.bytes, written.good + 1, written.results, written.bad + Counter(utf8=1))
    found = scale.differences(folder, warehouse.path, more, "1g")
    assert found == [
        f"rows: {counted(written.good, 'line')}, {written.good + 1:,} written",
        f"bad: {counted(written.bad.total(), 'line')}, {written.bad.total() + 1:,} written",
        f"bad, utf8: {counted(written.bad['utf8'], 'line')}, {written.bad['utf8'] + 1:,} written",
    ]


@pytest.mark.parametrize(("seconds", "expected"), [((10.0, 100.0), 1.0), ((10.0, 10.0), 0.0), ((10.0, 1000.0), 2.0)])
def test_the_exponent_of_growth(seconds: tuple[float, float], expected: float) -> None:
    sizes = [
        scale.Scaled(lines, 0, scale.Step(one / 2, 0), scale.Step(one / 2, 0), None)
        for lines, one in zip((2_000_000, 20_000_000), seconds, strict=True)
    ]
    assert scale.exponent(sizes) == pytest.approx(expected)


def test_the_command_compares_and_leaves_nothing_behind(
    sparks: Sparks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two steps run in the tests' session. Another test measures a command in a process of its own."""
    steps = []

    def here(arguments: list[str]) -> scale.Step:
        steps.append(arguments[0])
        if arguments[0] == "ingest":
            ingest(sparks.here(), Path(arguments[1]), Warehouse(arguments[2]), settle_s=0)
        else:
            aggregate(sparks.here(), Warehouse(arguments[1]))
        return scale.Step(2.0, 10**9)

    monkeypatch.setattr(scale, "measured", here)
    ran = CliRunner().invoke(traces, ["scale", "--rows", "1000", "--folder", str(tmp_path), "--json"])
    assert ran.exit_code == 0, ran.output
    (size,) = json.loads(ran.stdout)["sizes"]
    assert (size["differences"], steps) == ([], ["ingest", "aggregate"])
    assert size["lines"] > 1000
    assert list(tmp_path.iterdir()) == []


def test_a_step_is_measured_in_a_process_of_its_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    step = scale.measured(["generate", str(tmp_path / "traces"), "--rows", "1000"])
    assert (tmp_path / "traces").is_dir()
    assert step.seconds > 0.1
    assert 1e7 < step.peak_bytes < 1e9
    with pytest.raises(subprocess.CalledProcessError):
        scale.measured(["aggregate", str(tmp_path / "nothing"), "--quiet"])
    assert "is not a warehouse" in capfd.readouterr().err


@pytest.mark.nightly
def test_the_command_measures_and_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, folder = tmp_path / "settings", tmp_path / "scale"
    settings.mkdir()
    folder.mkdir()
    # Settings are given as an operator would give them: the command has no option for them.
    (settings / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in SETTINGS.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(settings))
    arguments = ["scale", "--rows", "1000", "--memory", "1g", "--master", "local[1]", "--folder", str(folder)]
    ran = CliRunner().invoke(traces, [*arguments, "--json"])
    assert ran.exit_code == 0, ran.output
    (size,) = json.loads(ran.stdout)["sizes"]
    assert size["differences"] == []
    assert size["lines"] > 1000
    for step in ("ingest", "aggregate"):
        assert size[step]["seconds"] > 1
        assert 1e8 < size[step]["peak_bytes"] < 4e9
    assert list(folder.iterdir()) == []
