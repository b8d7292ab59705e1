"""A reader of all tables of a warehouse, so that tests can compare their contents."""

from typing import Any

from fjm2bench.traces.ingest import read_table
from fjm2bench.traces.refresh import read_figures
from fjm2bench.traces.warehouse import Warehouse
from pyspark.sql import DataFrame, SparkSession

FIGURES = ("by_minute", "throughput_histogram", "anomalies", "by_series", "by_run", "results_by_cell")


def contents(spark: SparkSession, warehouse: Warehouse) -> dict[str, Any]:
    """Return the contents of all tables of a warehouse."""
    tables = {name: read_table(spark, warehouse, name) for name in ("rows", "results", "bad")}
    if tables["bad"]:
        tables["bad"] = tables["bad"].drop("day")  # the day of the ingest, which may run after midnight
    figures = {name: read_figures(spark, warehouse, name) for name in FIGURES}
    return {name: _rows_of(frame) for name, frame in (tables | figures).items() if frame}


def _rows_of(frame: DataFrame) -> list[str]:
    """Return the rows of a table, sorted by their values."""
    columns = sorted(frame.columns)
    return sorted(repr([_plain(value) for value in row]) for row in frame.select(*columns).collect())


def _plain(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, dict) else value
