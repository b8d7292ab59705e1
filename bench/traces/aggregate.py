"""Figures by minute, series and run, and results by cell. All functions here are pure: they turn tables into tables.

Samples are read only twice: once for the table of minutes, and once for a histogram of throughputs by series and day.
Both tables are small, and the figures by series and run are computed from them. Results by cell come from the results
of the runs.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from .measures import (
    BENCH,
    CELL,
    RUN,
    SERIES,
    added_up,
    parts_of_figures,
    parts_of_samples,
    percentiles,
    with_figures,
)
from .schema import CAPTURE, RECEIVERS

APPLICATION_COUNTERS = (
    "payload_bytes_sent",
    "payload_bytes_received",
    "messages_sent",
    "messages_received",
    "messages_lost",
    "bytes_lost",
)
"""Counters that both sessions and the source `bench` report."""
RESULT_FIGURES = (
    "msgs_per_s",
    "gbit_per_s",
    "cpu_s_per_gb",
    "p50_us",
    "p99_us",
    "p999_us",
    "max_us",
    "encode_s",
)
RESULT_SUMS = ("messages", "bytes", "lost", "duplicated", "corrupt", "nacks", "repairs")
RESULT_ROLE = "run"


def by_minute(rows: DataFrame) -> DataFrame:
    """Return a row for each series and minute in which a sample of the series ended."""
    parts = parts_of_samples(rows).withColumn("minute", sf.date_trunc("minute", "end"))
    keys = ("day", *SERIES, "minute")
    groups = added_up(parts, keys, percentiles())
    return with_figures(groups, keys, sf.col("seq_last") - sf.col("seq_first") + 1 - sf.col("lines"))


def histogram(rows: DataFrame) -> DataFrame:
    """Return the number of samples of each series and day by throughput. Tasks aggregate before the shuffle."""
    parts = parts_of_samples(rows).where(sf.col("bps").isNotNull())
    return parts.groupBy("day", *SERIES, "bps").agg(sf.count("*").alias("samples"))


def by_series(minutes: DataFrame, histograms: DataFrame) -> DataFrame:
    """Return a row for each series. The lines of a series are numbered from 0, so that missing lines are known."""
    parts = parts_of_figures(minutes).unionByName(histograms, allowMissingColumns=True)
    groups = added_up(parts, SERIES, percentiles(sf.col("samples")))
    return with_figures(groups, SERIES, sf.col("seq_last") + 1 - sf.col("lines"))


def by_run(series: DataFrame, histograms: DataFrame) -> DataFrame:
    """Return a row for each run and system.

    The throughput is that of an average series among those that carry payload: their total bytes by total seconds.
    """
    marked = _marked(series)
    carried = _joined(histograms, marked.where("carries").select(*SERIES).distinct(), SERIES)
    parts = parts_of_figures(marked.where("counts"))
    own = [sf.when(~sf.col("repeats"), sf.col(name)).alias(name) for name in APPLICATION_COUNTERS]
    carrying = [sf.when(sf.col("carries"), sf.col(name)).alias(name) for name in ("bytes", "us", "idle_us")]
    changed = {*APPLICATION_COUNTERS, "bytes", "us", "idle_us"}
    parts = parts.select(
        *(name for name in parts.columns if name not in changed),
        *own,
        *carrying,
        sf.lit(1).alias("series"),
        sf.when(sf.col("carries"), 1).alias("carrying"),
    ).unionByName(carried, allowMissingColumns=True)
    counted = [sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in ("gaps", "series", "carrying")]
    groups = added_up(parts, RUN, percentiles(sf.col("samples")), *counted, sf.count_distinct("node").alias("nodes"))
    figures = with_figures(groups, (*RUN, "nodes", "series", "carrying"), sf.col("gaps"))
    elapsed = (sf.unix_micros("end") - sf.unix_micros("start")) / 1e6
    return figures.drop("seq_first", "seq_last").withColumns(
        {
            "elapsed_s": elapsed,
            "nacks_per_s": sf.when(elapsed > 0, sf.col("nacks_sent") / elapsed),
        }
    )


def results_by_cell(results: DataFrame) -> DataFrame:
    """Return a row for each combination of system, layer and setting, from the runs' results without a fault."""
    of_runs = results.where(sf.col("role") == RESULT_ROLE)
    is_fault = sf.coalesce(sf.col("labels")["fault"] != "", sf.lit(False))
    figures: list[Column] = []
    for name in RESULT_FIGURES:
        value = sf.when(~is_fault, sf.col("r")[name])
        figures += [
            sf.percentile(value, sf.lit(0.5)).alias(f"{name}_median"),
            sf.min(value).alias(f"{name}_min"),
            sf.max(value).alias(f"{name}_max"),
        ]
    sums = [_exact_sum(sf.when(~is_fault, sf.col("r")[name])).alias(name) for name in RESULT_SUMS]
    return of_runs.groupBy(*CELL).agg(
        sf.count("*").alias("count"),
        sf.count_if(is_fault).alias("faults"),
        *figures,
        *sums,
        sf.sort_array(sf.collect_set("run")).alias("runs"),
        sf.sort_array(sf.collect_set(sf.when(is_fault, sf.col("run")))).alias("faulty_runs"),
    )


def _exact_sum(value: Column) -> Column:
    return sf.try_sum(sf.round(value).try_cast("bigint"))


def _marked(series: DataFrame) -> DataFrame:
    """Add columns that tell the part of each series in its run.

    `counts` is true unless the series is a capture of traffic that other series count. `repeats` is true if the source
    `bench` of the same node counts the same. `carries` is true if the series moved payload; if any subscriber's series
    did, it is true for subscribers only.
    """
    node = Window.partitionBy(*RUN, "node")
    run = Window.partitionBy(*RUN)
    is_capture = sf.col("role") == CAPTURE
    has_bench = sf.max(sf.col("source") == BENCH).over(node)
    marked = series.withColumns(
        {
            "repeats": has_bench & (sf.col("source") != BENCH),
            "counts": ~is_capture | sf.min(is_capture).over(run),
        }
    )
    moves = (sf.col("bytes") > 0) & sf.col("counts") & ~sf.col("repeats")
    receives = moves & sf.col("role").isin(*RECEIVERS)
    return marked.withColumn("carries", sf.when(sf.max(receives).over(run), receives).otherwise(moves))


def _joined(left: DataFrame, right: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Return the rows of `left` whose keys, nulls included, are in `right`."""
    right = right.select(*(sf.col(name).alias(f"right_{name}") for name in keys))
    condition = sf.lit(True)
    for name in keys:
        condition &= sf.col(name).eqNullSafe(sf.col(f"right_{name}"))
    return left.join(right, condition, "left_semi")
