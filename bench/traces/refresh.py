"""Updates of a warehouse's figures: days and runs with new rows are computed again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from fjm2.base.quantities import counted

from .aggregate import by_minute, by_run, by_series, histogram, results_by_cell
from .anomalies import anomalies
from .ingest import batches, read_parquet, read_table
from .measures import CELL, RUN, SERIES
from .progress import Tell, untold
from .warehouse import Change, Move, Warehouse

DONE: Final = "aggregated.json"
"""Name of the state that keeps the batches that the figures include."""
_TURN_S: Final = 60.0
"""Longest time to wait for a stream's batch to release the warehouse."""
OF_DAYS: Final[dict[str, tuple[Callable[[DataFrame], DataFrame], Sequence[str]]]] = {
    "by_minute": (by_minute, (*SERIES, "minute")),
    "throughput_histogram": (histogram, (*SERIES, "bps")),
    "anomalies": (anomalies, (*SERIES, "kind", "start")),
}
"""Tables made from a day's samples, and their sort order."""
NAMES: Final = (*OF_DAYS, "by_series", "by_run", "results_by_cell")
"""All tables of figures."""
_LISTED_RUNS_MAX: Final = 100
"""Most runs that a query lists. More are a table to join with, which takes a job."""


@dataclass(slots=True)
class Aggregated:
    """The outcome of an update."""

    batches: int = 0
    days: list[str] = field(default_factory=list)
    runs: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    """Number of rows of each table."""


def aggregate(spark: SparkSession, warehouse: Warehouse, *, anew: bool = False, progress: Tell = untold) -> Aggregated:
    """Bring the figures up to date, or compute all of them again if `anew`. Repeating this changes nothing."""
    with warehouse.opened(_TURN_S):
        new = _new_batches(warehouse, anew)
        result = Aggregated(len(new))
        if new:
            touched = [warehouse.read(f"batches/{batch}.json", {}) for batch in new]
            result.days = sorted({day for batch in touched for day in batch["days"]["rows"]})
            runs = {run for batch in touched for run in batch["runs"]}
            result.runs = len(runs)
            _of_days(spark, warehouse, result.days, progress)
            _of_runs(spark, warehouse, runs, progress)
            _of_results(spark, warehouse, progress)
            known = set() if anew else set(warehouse.read(DONE, []))
            warehouse.apply(Change([], {DONE: sorted(known | set(new))}))
        result.tables = _table_rows(warehouse)
        return result


def up_to_date(warehouse: Warehouse, *, anew: bool = False) -> Aggregated | None:
    """Return the outcome of `aggregate` if nothing is new, else None. Spark is not needed to know."""
    with warehouse.opened(_TURN_S):
        return None if _new_batches(warehouse, anew) else Aggregated(tables=_table_rows(warehouse))


def _new_batches(warehouse: Warehouse, anew: bool) -> list[str]:
    known = set() if anew else set(warehouse.read(DONE, []))
    return [batch for batch in batches(warehouse) if batch not in known]


def _table_rows(warehouse: Warehouse) -> dict[str, int]:
    """Return the number of rows of each table of figures, as its files tell it."""
    found = {}
    for name in NAMES:
        files = list((warehouse.path / "aggregates" / name).rglob("*.parquet"))
        if files:
            found[name] = sum(pq.read_metadata(file).num_rows for file in files)
    return found


def read_figures(spark: SparkSession, warehouse: Warehouse, name: str) -> DataFrame | None:
    """Return a table of figures, or None if there is none yet."""
    figures = read_parquet(spark, warehouse.path / "aggregates" / name)
    if figures is None or "day" not in figures.columns:
        return figures
    return figures.withColumn("day", sf.col("day").cast("date"))


def _of_days(spark: SparkSession, warehouse: Warehouse, days: list[str], progress: Tell) -> None:
    rows = read_table(spark, warehouse, "rows")
    if rows is None or not days:
        return
    rows = rows.where(sf.col("day").isin(*map(_date, days)))
    for name, (function, order) in OF_DAYS.items():
        progress(f"aggregate: {name}, {counted(len(days), 'day')}")
        staging = warehouse.new_staging()
        _sorted(function(rows), "day", order).write.partitionBy("day").parquet(str(staging))
        moves = []
        for day in days:  # also days without rows: an empty folder replaces the old one
            (staging / f"day={day}").mkdir(parents=True, exist_ok=True)
            moves.append(_move(warehouse, staging / f"day={day}", f"{name}/day={day}"))
        warehouse.apply(Change(moves))


def _of_runs(spark: SparkSession, warehouse: Warehouse, runs: set[str], progress: Tell) -> None:
    minutes = read_figures(spark, warehouse, "by_minute")
    histograms = read_figures(spark, warehouse, "throughput_histogram")
    if minutes is None or not runs:
        return
    if histograms is None:  # no sample moved anything
        histograms = minutes.select("day", *SERIES, sf.lit(0).cast("bigint").alias("bps"), sf.lit(0).alias("samples"))
        histograms = histograms.limit(0)
    touched = _Touched(spark, runs)
    minutes, histograms = touched.of(minutes), touched.of(histograms).drop("day")
    progress(f"aggregate: by_series, {counted(len(runs), 'run')}")
    _replace(spark, warehouse, "by_series", by_series(minutes.drop("day", "minute"), histograms), SERIES, touched)
    series = read_figures(spark, warehouse, "by_series")
    assert series is not None
    progress(f"aggregate: by_run, {counted(len(runs), 'run')}")
    of_runs = by_run(touched.of(series), histograms)
    _replace(spark, warehouse, "by_run", of_runs, RUN, touched)


class _Touched:
    """The runs with new rows."""

    def __init__(self, spark: SparkSession, runs: set[str]) -> None:
        self._is_listed = len(runs) <= _LISTED_RUNS_MAX
        self._runs = sorted(runs)
        if not self._is_listed:
            self._frame = spark.createDataFrame([(run,) for run in self._runs], "run string")

    def of(self, figures: DataFrame) -> DataFrame:
        """Return the figures of these runs."""
        if self._is_listed:
            return figures.where(sf.col("run").isin(*self._runs))
        return figures.join(self._frame, "run", "left_semi")

    def others(self, figures: DataFrame) -> DataFrame:
        """Return the figures of all other runs."""
        if self._is_listed:
            return figures.where(~sf.col("run").isin(*self._runs))
        return figures.join(self._frame, "run", "left_anti")


def _of_results(spark: SparkSession, warehouse: Warehouse, progress: Tell) -> None:
    results = read_table(spark, warehouse, "results")
    if results is not None:
        progress("aggregate: results_by_cell")
        _replace(spark, warehouse, "results_by_cell", results_by_cell(results), CELL, None)


def _replace(
    spark: SparkSession,
    warehouse: Warehouse,
    name: str,
    figures: DataFrame,
    order: Sequence[str],
    touched: "_Touched | None",
) -> None:
    """Replace the rows of the runs that have new lines, and keep the others."""
    old = read_figures(spark, warehouse, name)
    if old is not None and touched is not None:
        figures = figures.unionByName(touched.others(old))
    staging = warehouse.new_staging()
    figures.coalesce(1).sortWithinPartitions(*order).write.parquet(str(staging))
    warehouse.apply(Change([_move(warehouse, staging, name)]))


def _sorted(figures: DataFrame, day: str, order: Iterable[str]) -> DataFrame:
    """Return the figures with one partition for each day, always in the same order."""
    is_single = figures.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
    return (figures.coalesce(1) if is_single else figures.repartition(day)).sortWithinPartitions(day, *order)


def _move(warehouse: Warehouse, staged: Path, name: str) -> Move:
    return Move(warehouse.relative(staged), f"aggregates/{name}")


def _date(text: str) -> date:
    return date.fromisoformat(text)
