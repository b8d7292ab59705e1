"""Ingest: from a folder of traces to a warehouse's tables, each line once."""

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from .clean import cleaned
from .files import SETTLE_S, Done, find, tasks
from .lines import read_lines
from .schema import LINES_TYPE, SPLITS_TYPE, TABLES
from .warehouse import Change, Move, Warehouse, WarehouseError

FILES: Final = "files.json"
"""Name of the state that keeps the progress in each file. Only warehouses that `ingest` feeds have it."""
FEEDER: Final = "feeder.json"
"""Name of the state that keeps the command that feeds the warehouse: "ingest" or "stream"."""


@dataclass(slots=True)
class Ingested:
    """The outcome of a batch."""

    batch: str | None = None
    files: int = 0
    bytes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    """Number of lines by table."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Number of bad lines by reason."""
    pending: list[str] = field(default_factory=list)
    shrunk: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    """Symbolic links, which were not followed."""

    @property
    def lines(self) -> int:
        return self.counts.total()


def ingest(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    warehouse: Warehouse,
    *,
    settle_s: float = SETTLE_S,
    now: float | None = None,
) -> Ingested:
    """Read the new lines of a folder, or of one file, into a warehouse. Repeating this changes nothing."""
    with warehouse.opened():
        claim(warehouse, "ingest")
        done: Done = warehouse.read(FILES, {})
        found = find(folder, done, settle_s)
        result = Ingested(None, len(found.splits), found.bytes)
        result.pending, result.shrunk, result.links = found.pending, found.shrunk, found.links
        if not found.splits:
            return result
        number = 1 + max((int(batch.removeprefix("batch-")) for batch in batches(warehouse)), default=0)
        result.batch = f"batch-{number:06d}"
        lines = lines_of(splits_frame(spark, tasks(found.splits)))
        rows = cleaned(lines, time.time() if now is None else now)
        write(rows, warehouse, result, {FILES: {**done, **found.done}})
        return result


def splits_frame(spark: SparkSession, texts: list[str]) -> DataFrame:
    """Return a frame with one row and one partition for each task."""
    rows = spark.createDataFrame([(text,) for text in texts], SPLITS_TYPE)
    return rows.coalesce(1).repartition(len(texts))


def lines_of(splits: DataFrame) -> DataFrame:
    """Return the lines of splits: (file, offset, text, fault)."""
    return splits.mapInArrow(read_lines, LINES_TYPE)


def write(rows: DataFrame, warehouse: Warehouse, result: Ingested, state: Mapping[str, Any]) -> None:
    """Add the rows of `cleaned` to the warehouse as one batch, atomically."""
    staging = warehouse.new_staging()
    rows.write.partitionBy("table", "day").parquet(str(staging))
    touched = _count(rows.sparkSession.read.schema(rows.schema).parquet(str(staging)), result)
    moves = []
    for name in TABLES:
        for index, file in enumerate(sorted(staging.glob(f"table={name}/day=*/*.parquet"))):
            target = f"{name}/{file.parent.name}/{result.batch}-{index:05d}.parquet"
            moves.append(Move(warehouse.relative(file), target))
    warehouse.apply(Change(moves, {**state, f"batches/{result.batch}.json": touched}))


def batches(warehouse: Warehouse) -> list[str]:
    """Return the names of the warehouse's batches, the oldest first."""
    return sorted(path.stem for path in (warehouse.path / "_state" / "batches").glob("*.json"))


def claim(warehouse: Warehouse, feeder: str) -> None:
    """Reserve the warehouse for `ingest` or for `stream`: each keeps its own record of what it has read."""
    known = warehouse.read(FEEDER, None)
    if known is None:
        warehouse.apply(Change([], {FEEDER: feeder}))
    elif known != feeder:
        raise WarehouseError(
            f"{warehouse.path} is fed by `fjm2-bench traces {known}`: continue with that, or choose another folder"
        )


def _count(staged: DataFrame, result: Ingested) -> dict[str, Any]:
    """Count a batch's lines by table, and collect the runs and days that it has new rows of."""
    days: dict[str, set[str]] = {name: set() for name in TABLES}
    runs = set()
    counted = staged.groupBy("table", "day", "run", "reason").count()
    for table, day, run, reason, count in _tuples(counted):
        result.counts[table] += count
        days[table].add(str(day))
        if reason is not None:
            result.reasons[reason] += count
        if table == "rows":
            runs.add(run)
    return {
        "counts": dict(result.counts),
        "reasons": dict(result.reasons),
        "days": {name: sorted(found) for name, found in days.items()},
        "runs": sorted(runs),
    }


def _tuples(frame: DataFrame) -> Iterable[tuple[str, Any, str, str | None, int]]:
    return (tuple(row) for row in frame.collect())


def read_table(spark: SparkSession, warehouse: Warehouse, name: str) -> DataFrame | None:
    """Return a table of the warehouse, or None if it is empty."""
    path = warehouse.path / name
    if not any(path.glob("day=*/*.parquet")):
        return None
    return spark.read.option("basePath", str(path)).parquet(str(path)).select(*TABLES[name], sf.col("day").cast("date"))
