"""Anomalies: collapses of throughput and storms of NACKs, found by rolling windows.

The samples of a series are summed for each second. Each second is judged by its window: the `WINDOW_S` seconds before
it and after it. A window does not reach beyond midnight UTC, so that the result of a day depends on its own rows only.
A series is divided into blocks of an hour, so that a long one can be spread over several tasks. Seconds near the border
of two blocks belong to both, so that windows are complete there.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from .measures import SERIES, parts_of_samples

WINDOW_S: Final = 10
"""Length of a window: the number of seconds before the judged second, and as many after it."""
BLOCK_S: Final = 3600
"""Length of a block in seconds. The window function of a task handles one block of a series."""
COLLAPSE: Final = "throughput_collapse"
COLLAPSE_SHARE: Final = 0.2
"""Share of the mean throughput before a second. A second with less is a collapse, if `COLLAPSE_BPS` allows it."""
COLLAPSE_BPS: Final = 1e6
"""Least mean throughput before a second that may be a collapse. The series must also continue after the second."""
STORM: Final = "nack_storm"
STORM_NACKS: Final = 50
"""Least NACKs, sent and received, in a second that may be a storm: see `STORM_FACTOR`."""
STORM_FACTOR: Final = 5.0
"""Least NACKs in a second that may be a storm, as a multiple of the mean before it."""
KEYS: Final = ("day", *SERIES)


def anomalies(rows: DataFrame) -> DataFrame:
    """Return a row for each episode: seconds with an anomaly of one kind, with gaps of at most one second."""
    return _episodes(_flagged(_with_context(by_second(rows))))


def by_second(rows: DataFrame) -> DataFrame:
    """Return the seconds of each series: bytes, the length of the samples that ended in the second, and NACKs."""
    second = sf.unix_seconds("end")
    nacks = sf.coalesce("nacks_sent", sf.lit(0)) + sf.coalesce("nacks_received", sf.lit(0))
    signs = sf.coalesce("window_waits", sf.lit(0)) + nacks
    parts = parts_of_samples(rows).withColumns({"second": second, "nacks": nacks, "signs": signs})
    sums = [sf.try_sum(name).alias(name) for name in ("bytes", "us", "nacks", "signs")]
    return parts.groupBy(*KEYS, "second").agg(*sums)


def _with_context(seconds: DataFrame) -> DataFrame:
    """Put each second into its block and, near a border, into the next block as context."""
    own, earlier, later = (sf.floor((sf.col("second") + shift) / BLOCK_S) for shift in (0, -WINDOW_S, WINDOW_S))
    blocks = sf.array_distinct(sf.array(own, earlier, later))
    return seconds.select("*", own.alias("own"), sf.explode(blocks).alias("block"))


def _flagged(seconds: DataFrame) -> DataFrame:
    """Return the seconds with an anomaly: its kind, its value and the value that it is compared with."""
    order = Window.partitionBy(*KEYS, "block").orderBy("second")
    before, after = order.rangeBetween(-WINDOW_S, -1), order.rangeBetween(1, WINDOW_S)
    bps = sf.col("bytes") * 8e6 / sf.col("us")
    us_before = sf.try_sum("us").over(before)
    bps_before = sf.try_sum("bytes").over(before) * 8e6 / us_before
    nacks_before = sf.try_sum("nacks").over(before) * 1e6 / us_before
    nacks = sf.col("nacks") * 1e6 / sf.greatest("us", sf.lit(1_000_000))
    # A stream that ends in the second may still be repaired in it: signs prove a collapse only if they go on, too.
    bytes_after, signs_after = (sf.coalesce(sf.max(name).over(after), sf.lit(0)) for name in ("bytes", "signs"))
    goes_on = (bytes_after > 0) | ((sf.col("signs") > 0) & (signs_after > 0))
    is_collapse = (bps_before >= COLLAPSE_BPS) & (bps < COLLAPSE_SHARE * bps_before) & goes_on
    is_storm = (nacks >= STORM_NACKS) & (nacks >= STORM_FACTOR * sf.coalesce(nacks_before, sf.lit(0.0)))
    found = sf.array_compact(
        sf.array(
            sf.when(is_collapse, _anomaly(COLLAPSE, bps, bps_before)),
            sf.when(is_storm, _anomaly(STORM, nacks, nacks_before)),
        )
    )
    marked = seconds.withColumn("found", found).where(sf.col("own") == sf.col("block"))
    return marked.select(*KEYS, "second", sf.inline("found"))


def _anomaly(kind: str, value: Column, usual: Column) -> Column:
    return sf.struct(sf.lit(kind).alias("kind"), value.alias("value"), usual.alias("usual"))


def _episodes(flagged: DataFrame) -> DataFrame:
    order = Window.partitionBy(*KEYS, "kind").orderBy("second")
    is_first = sf.coalesce(sf.col("second") - sf.lag("second").over(order) > 2, sf.lit(True))
    numbered = flagged.withColumn("first", is_first).withColumn(
        "episode", sf.sum(sf.col("first").cast("int")).over(order.rowsBetween(Window.unboundedPreceding, 0))
    )
    worst = sf.when(sf.col("kind") == COLLAPSE, sf.min("value")).otherwise(sf.max("value"))
    episodes = numbered.groupBy(*KEYS, "kind", "episode").agg(
        sf.timestamp_seconds(sf.min("second")).alias("start"),
        sf.timestamp_seconds(sf.max("second") + 1).alias("end"),
        sf.count("*").alias("seconds"),
        worst.alias("value"),
        sf.min_by("usual", "second").alias("usual"),
    )
    return episodes.drop("episode")
