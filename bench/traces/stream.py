"""Continuous ingest: Structured Streaming over a folder of traces, with the transformations of the batch.

Spark's source of text files reads a file once, when it first sees it, but traces grow. So this source tells Spark which
parts of files are new (`files.find`). An offset is the progress in each file. The workers read the parts, as in a
batch. Spark's checkpoint, in the warehouse, keeps the offsets, and a batch's number tells if the warehouse has it.
"""

import math
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from .clean import cleaned
from .files import NOTHING, SETTLE_S, Known, find, tasks
from .ingest import Ingested, batches, claim, lines_of, write
from .lines import Split
from .schema import SPLITS_TYPE
from .warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT: Final = "fjm2-traces"
BATCH_BYTES: Final = 256 << 20
"""Default size of a batch: several tasks of `files.TASK_BYTES`."""
TRIGGER_S: Final = 10.0
"""Default time between two batches."""
_UNLIMITED_S: Final = math.inf
"""Longest wait for the warehouse: a batch waits for `aggregate` however long it takes."""


class TraceSource(DataSource):
    """Spark's data source of new parts of trace files. Its options are `path`, `settle_s` and `batch_bytes`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SPLITS_TYPE

    def simpleStreamReader(self, schema: StructType) -> "TraceReader":  # noqa: N802, ARG002
        return TraceReader(dict(self.options))


class TraceReader(SimpleDataSourceStreamReader):
    """Reader of the source: finds the splits that are new since an offset. It runs at the driver, reading no lines."""

    def __init__(self, options: dict[str, str]) -> None:
        self._folder = options["path"]
        self._settle_s = float(options["settle_s"])
        self._batch_bytes = int(options["batch_bytes"])

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {}

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[str]], dict[str, Any]]:
        found = find(self._folder, start, self._settle_s, self._batch_bytes)
        return _rows(found.splits), start | {name: list(known) for name, known in found.done.items()}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[str]]:  # noqa: N802
        """Return the same splits again, after a crash."""
        splits = []
        for name, entry in sorted(end.items()):
            known, before = Known(*entry), Known(*start.get(name, NOTHING))
            begin = before.end if known.is_same(before) else 0
            if known.end > begin:
                splits.append(Split(name, begin, known.end, known.end, True))
        return _rows(splits)


def _rows(splits: list[Split]) -> Iterator[tuple[str]]:
    return iter([(text,) for text in tasks(splits)])


def stream(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    warehouse: Warehouse,
    now: Callable[[], float],
    *,
    settle_s: float = SETTLE_S,
    trigger_s: float = TRIGGER_S,
    batch_bytes: int = BATCH_BYTES,
    on_batch: Callable[[Ingested], None] = lambda _: None,
) -> "StreamingQuery":
    """Start to ingest the lines of a folder, those that are there and those to come. Return the running query."""
    with warehouse.opened(_UNLIMITED_S):
        claim(warehouse, "stream")
    spark.dataSource.register(TraceSource)
    splits = (
        spark.readStream.format(FORMAT)
        .option("path", str(os.path.abspath(folder)))
        .option("settle_s", str(settle_s))
        .option("batch_bytes", str(batch_bytes))
        .load()
    )
    parallel = max(2, spark.sparkContext.defaultParallelism)

    def take(lines: DataFrame, number: int) -> None:
        result = Ingested(f"stream-{number:06d}")
        with warehouse.opened(_UNLIMITED_S):
            if result.batch in batches(warehouse):
                return  # written, but Spark died before noting it
            write(cleaned(lines, now()), warehouse, result, {})
        on_batch(result)

    return (
        lines_of(splits.repartition(parallel))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(warehouse.path / "_state" / "checkpoint"))
        .trigger(processingTime=f"{trigger_s} seconds")
        .start()
    )
