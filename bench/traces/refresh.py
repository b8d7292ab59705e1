"""Updates of a warehouse's figures: days and runs with new rows are computed again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from fjm2.base.quantities import counted

from .aggregate import by_minute, by_run, by_series, histogram, results_by_cell
from .anomalies import anomalies
from .ingest import batches, read_table
from .measures import CELL, RUN, SERIES
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


@dataclass(slots=True)
class Aggregated:
    """The outcome of an update."""

    batches: int = 0
    days: list[str] = field(default_factory=list)
    runs: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    """Number of rows of each table."""


def aggregate(
    spark: SparkSession, warehouse: Warehouse, *, anew: bool = False, progress: Callable[[str], None] = lambda _: None
) -> Aggregated:
    """Bring the figures up to date, or compute all of them again if `anew`. Repeating this changes nothing."""
    with warehouse.opened(_TURN_S):
        known = set() if anew else set(warehouse.read(DONE, []))
        new = [batch for batch in batches(warehouse) if batch not in known]
        result = Aggregated(len(new))
        if new:
            touched = [warehouse.read(f"batches/{batch}.json", {}) for batch in new]
            result.days = sorted({day for batch in touched for day in batch["days"]["rows"]})
            runs = {run for batch in touched for run in batch["runs"]}
            result.runs = len(runs)
            _of_days(spark, warehouse, result.days, progress)
            _of_runs(spark, warehouse, runs, progress)
            _of_results(spark, warehouse, progress)
            warehouse.apply(Change([], {DONE: sorted(known | set(new))}))
        for name in (*OF_DAYS, "by_series", "by_run", "results_by_cell"):
            figures = read_figures(spark, warehouse, name)
            if figures is not None:
                result.tables[name] = figures.count()
        return result


def read_figures(spark: SparkSession, warehouse: Warehouse, name: str) -> DataFrame | None:
    """Return a table of figures, or None if there is none yet."""
    path = warehouse.path / "aggregates" / name
    if not any(path.rglob("*.parquet")):
        return None
    figures = spark.read.parquet(str(path))
    return figures.withColumn("day", sf.col("day").cast("date")) if "day" in figures.columns else figures


def _of_days(spark: SparkSession, warehouse: Warehouse, days: list[str], progress: Callable[[str], None]) -> None:
    rows = read_table(spark, warehouse, "rows")
    if rows is None or not days:
        return
    rows = rows.where(sf.col("day").isin(*map(_date, days)))
    for name, (function, order) in OF_DAYS.items():
        progress(f"{name}: {counted(len(days), 'day')}")
        staging = warehouse.new_staging()
        _sorted(function(rows), "day", order).write.partitionBy("day").parquet(str(staging))
        moves = []
        for day in days:  # also days without rows: an empty folder replaces the old one
            (staging / f"day={day}").mkdir(parents=True, exist_ok=True)
            moves.append(_move(warehouse, staging / f"day={day}", f"{name}/day={day}"))
        warehouse.apply(Change(moves))


def _of_runs(spark: SparkSession, warehouse: Warehouse, runs: set[str], progress: Callable[[str], None]) -> None:
    minutes = read_figures(spark, warehouse, "by_minute")
    histograms = read_figures(spark, warehouse, "throughput_histogram")
    if minutes is None or not runs:
        return
    if histograms is None:  # no sample moved anything
        histograms = minutes.select("day", *SERIES, sf.lit(0).cast("bigint").alias("bps"), sf.lit(0).alias("samples"))
        histograms = histograms.limit(0)
    touched = spark.createDataFrame([(run,) for run in sorted(runs)], "run string")
    minutes, histograms = (frame.join(touched, "run", "left_semi") for frame in (minutes, histograms))
    histograms = histograms.drop("day")
    progress(f"by_series: {len(runs)} runs")
    _replace(spark, warehouse, "by_series", by_series(minutes.drop("day", "minute"), histograms), SERIES, touched)
    series = read_figures(spark, warehouse, "by_series")
    assert series is not None
    progress(f"by_run: {len(runs)} runs")
    of_runs = by_run(series.join(touched, "run", "left_semi"), histograms)
    _replace(spark, warehouse, "by_run", of_runs, RUN, touched)


def _of_results(spark: SparkSession, warehouse: Warehouse, progress: Callable[[str], None]) -> None:
    results = read_table(spark, warehouse, "results")
    if results is not None:
        progress("results_by_cell")
        _replace(spark, warehouse, "results_by_cell", results_by_cell(results), CELL, None)


def _replace(
    spark: SparkSession,
    warehouse: Warehouse,
    name: str,
    figures: DataFrame,
    order: Sequence[str],
    touched: DataFrame | None,
) -> None:
    """Replace the rows of the runs that have new lines, and keep the others."""
    old = read_figures(spark, warehouse, name)
    if old is not None and touched is not None:
        figures = figures.unionByName(old.join(touched, "run", "left_anti"))
    staging = warehouse.new_staging()
    figures.coalesce(1).sortWithinPartitions(*order).write.parquet(str(staging))
    warehouse.apply(Change([_move(warehouse, staging, name)]))


def _sorted(figures: DataFrame, day: str, order: Iterable[str]) -> DataFrame:
    """Return the figures with one partition for each day, always in the same order."""
    return figures.repartition(day).sortWithinPartitions(day, *order)


def _move(warehouse: Warehouse, staged: Path, name: str) -> Move:
    return Move(warehouse.relative(staged), f"aggregates/{name}")


def _date(text: str) -> date:
    return date.fromisoformat(text)
