"""Ingest: from a folder of traces to a warehouse's tables, each line once."""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from fjm2.base.quantities import counted

from .clean import cleaned
from .files import SETTLE_S, Done, Found, find, tasks, unpacked_bytes
from .lines import read_few, read_lines
from .progress import Tell, size_text, untold
from .schema import LINES_TYPE, SPLITS_TYPE, TABLES
from .warehouse import Change, Move, Warehouse, WarehouseError

FILES: Final = "files.json"
"""Name of the state that keeps the progress in each file. Only warehouses that `ingest` feeds have it."""
FEEDER: Final = "feeder.json"
"""Name of the state that keeps the command that feeds the warehouse: "ingest" or "stream"."""
_ROW_TYPE: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Key under which Spark keeps the columns' types in a Parquet file."""
_HERE_BYTES: Final = 4 << 20
"""Most bytes of lines that this process reads itself, if Spark is here too: a worker takes a second to start."""


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


def new_in(folder: str | os.PathLike[str], warehouse: Warehouse, settle_s: float = SETTLE_S) -> tuple[Ingested, int]:
    """Return the outcome of `ingest` if nothing is new, and the estimated bytes of new lines, unpacked."""
    with warehouse.opened():
        claim(warehouse, "ingest")
        found = find(folder, warehouse.read(FILES, {}), settle_s)
        return _outcome(found), unpacked_bytes(found.splits)


def ingest(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    warehouse: Warehouse,
    *,
    settle_s: float = SETTLE_S,
    now: float | None = None,
    progress: Tell = untold,
) -> Ingested:
    """Read the new lines of a folder, or of one file, into a warehouse. Repeating this changes nothing."""
    with warehouse.opened():
        claim(warehouse, "ingest")
        done: Done = warehouse.read(FILES, {})
        found = find(folder, done, settle_s)
        result = _outcome(found)
        if not found.splits:
            return result
        number = 1 + max((int(batch.removeprefix("batch-")) for batch in batches(warehouse)), default=0)
        result.batch = f"batch-{number:06d}"
        progress(f"ingest: read {counted(result.files, 'file')}, {size_text(found.bytes)}")
        lines = _lines_of(spark, tasks(found.splits), unpacked_bytes(found.splits))
        rows = cleaned(lines, time.time() if now is None else now)
        write(rows, warehouse, result, {FILES: {**done, **found.done}}, progress)
        return result


def _outcome(found: Found) -> Ingested:
    result = Ingested(None, len(found.splits), found.bytes)
    result.pending, result.shrunk, result.links = found.pending, found.shrunk, found.links
    return result


def _lines_of(spark: SparkSession, texts: list[str], bytes_: int) -> DataFrame:
    """Return the lines of tasks. Few of them are read here, more by Spark's workers."""
    if bytes_ <= _HERE_BYTES and (spark.sparkContext.master or "").startswith("local"):
        few = read_few(texts, _HERE_BYTES)  # an archive may have more than was estimated
        if few is not None:
            return spark.createDataFrame(few, LINES_TYPE).coalesce(1)
    return lines_of(splits_frame(spark, texts))


def splits_frame(spark: SparkSession, texts: list[str]) -> DataFrame:
    """Return a frame with one row and one partition for each task."""
    rows = spark.createDataFrame([(text,) for text in texts], SPLITS_TYPE).coalesce(1)
    return rows.repartition(len(texts)) if len(texts) > 1 else rows


def lines_of(splits: DataFrame) -> DataFrame:
    """Return the lines of splits: (file, offset, text, fault)."""
    return splits.mapInArrow(read_lines, LINES_TYPE)


def write(
    rows: DataFrame, warehouse: Warehouse, result: Ingested, state: Mapping[str, Any], progress: Tell = untold
) -> None:
    """Add the rows of `cleaned` to the warehouse as one batch, atomically."""
    staging = warehouse.new_staging()
    rows.write.partitionBy("table", "day").parquet(str(staging))
    progress("ingest: count what was written")
    touched = _count(staging, result)
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


def _count(staging: Path, result: Ingested) -> dict[str, Any]:
    """Count a batch's lines by table, and collect the runs and days that it has new rows of.

    The files themselves tell: another job of Spark would take longer than reading two of their columns.
    """
    days: dict[str, set[str]] = {name: set() for name in TABLES}
    runs: set[str] = set()
    for name in TABLES:
        for path in staging.glob(f"table={name}/day=*/*.parquet"):
            with pq.ParquetFile(path) as file:
                result.counts[name] += file.metadata.num_rows
                days[name].add(path.parent.name.removeprefix("day="))
                if name == "rows":
                    runs.update(values_of(file, "run"))
                elif name == "bad":
                    result.reasons.update(values_of(file, "reason"))
    return {
        "counts": dict(result.counts),
        "reasons": dict(result.reasons),
        "days": {name: sorted(found) for name, found in days.items()},
        "runs": sorted(runs),
    }


def values_of(file: pq.ParquetFile, column: str) -> Counter[str]:
    """Return how often each value occurs in a column of texts. A part of the file is in memory at a time."""
    found: Counter[str] = Counter()
    for batch in file.iter_batches(columns=[column]):
        for one in pc.value_counts(batch.column(0)).to_pylist():
            found[one["values"]] += one["counts"]
    return found


def read_table(spark: SparkSession, warehouse: Warehouse, name: str) -> DataFrame | None:
    """Return a table of the warehouse, or None if it is empty."""
    frame = read_parquet(spark, warehouse.path / name)
    return None if frame is None else frame.select(*TABLES[name], sf.col("day").cast("date"))


def read_parquet(spark: SparkSession, folder: Path) -> DataFrame | None:
    """Return the rows of a folder of Parquet files, or None if there are none.

    The newest file tells the columns: to find out by itself, Spark would run a job. Older files may lack some.
    """
    files = sorted(folder.rglob("*.parquet"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    if not files:
        return None
    schema = StructType.fromJson(json.loads(pq.read_schema(files[-1]).metadata[_ROW_TYPE]))
    if files[0].parent.name.startswith("day="):
        schema = schema.add("day", "string")
    return spark.read.schema(schema).option("basePath", str(folder)).parquet(str(folder))
