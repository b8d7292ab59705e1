"""The figures of samples: the same for a minute, a series and a run.

Times are summed as whole microseconds, and throughputs are rounded before percentiles are taken. So no figure depends
on the order of rows or on how they were shared among tasks, and percentiles of a group need little memory, however many
samples it has.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from .schema import CAPTURE, COUNTERS, CPU, DT_MAX_S, RECEIVERS, SENDERS

BENCH: Final = "bench"
"""The source that counts the payload and messages that an application saw. Sessions count the same again."""

CELL: Final = ("system", "layer", "scenario", "size", "fanout", "loss", "rate_bps")
RUN: Final = ("run", *CELL)
SERIES: Final = (*RUN, "role", "node", "source", "link")
"""The columns that identify a series."""

DIGITS: Final = 4
"""Digits to which a sample's throughput is rounded. The error is at most 0.05 %."""
PERCENTILES: Final = {"p5": 0.05, "p50": 0.5, "p95": 0.95}
_BPS_MAX: Final = 1e18
"""Highest throughput that is kept, in bit/s: larger values would overflow a bigint."""

MOST: Final = ("seq_last", "grtt_s_max", "rss_bytes_max", "queue_bytes_max", "end")
LEAST: Final = ("seq_first", "start")
SUMS: Final = ("lines", "us", "idle_us", "bytes", *COUNTERS, "cpu_us", "grtt_us", "grtt_samples")
"""Columns that are summed: whole numbers."""


def parts_of_samples(rows: DataFrame) -> DataFrame:
    """Return a row for each sample: its parts of sums, and its throughput `bps`, which is null if it moved nothing."""
    us, count = _microseconds(sf.col("dt")), _moved()
    grtt = sf.when(sf.col("grtt_s").between(0, DT_MAX_S), sf.col("grtt_s"))
    parts = rows.select(
        "day",
        *SERIES,
        sf.col("t").alias("end"),
        "seq",
        us.alias("us"),
        count.alias("bytes"),
        *COUNTERS,
        _microseconds(sf.col(CPU)).alias("cpu_us"),
        _microseconds(grtt).alias("grtt_us"),
        grtt.alias("grtt_s_max"),
        sf.col("rss_bytes").alias("rss_bytes_max"),
        sf.col("queue_bytes").alias("queue_bytes_max"),
    )
    return parts.select(
        "*",
        sf.lit(1).alias("lines"),
        sf.col("seq").alias("seq_first"),
        sf.col("seq").alias("seq_last"),
        sf.when(sf.col("bytes") == 0, sf.col("us")).alias("idle_us"),
        sf.when(sf.col("grtt_us").isNotNull(), 1).alias("grtt_samples"),
        sf.timestamp_micros(sf.unix_micros("end") - sf.col("us")).alias("start"),
        _rounded_bps(sf.col("bytes"), sf.col("us")).alias("bps"),
    )


def parts_of_figures(figures: DataFrame) -> DataFrame:
    """Return rows of `with_figures` as parts of larger groups: minutes as parts of a series, series of a run."""
    return figures.select(
        "*",
        _microseconds(sf.col("seconds")).alias("us"),
        _microseconds(sf.col("idle_seconds")).alias("idle_us"),
        _microseconds(sf.col(CPU)).alias("cpu_us"),
        _microseconds(sf.col("grtt_s") * sf.col("grtt_samples")).alias("grtt_us"),
    )


def added_up(parts: DataFrame, keys: Sequence[str], *more: Column) -> DataFrame:
    """Return the sums, and the least and greatest values, of parts by keys."""
    sums = [sf.coalesce(sf.try_sum(name), sf.lit(0)).alias(name) for name in SUMS if name in parts.columns]
    ends = [sf.max(name).alias(name) for name in MOST] + [sf.min(name).alias(name) for name in LEAST]
    return parts.groupBy(*keys).agg(*sums, *ends, *more)


def percentiles(weights: Column | None = None) -> Column:
    """Return the percentiles of `bps`: exact, and interpolated between neighbours."""
    wanted = sf.array(*map(sf.lit, PERCENTILES.values()))
    found = sf.percentile("bps", wanted) if weights is None else sf.percentile("bps", wanted, weights)
    return found.alias("percentiles")


def with_figures(groups: DataFrame, keys: Sequence[str], gaps: Column) -> DataFrame:
    """Return the columns of a table of figures, from groups with sums and percentiles."""
    seconds = sf.col("us") / 1e6
    cpu_s = sf.col("cpu_us") / 1e6
    figures = {
        "throughput_bps": _ratio(sf.col("bytes") * 8.0, seconds),
        **{f"throughput_{name}_bps": sf.get("percentiles", sf.lit(index)) for index, name in enumerate(PERCENTILES)},
        "message_loss": _share("messages_lost", "messages_received"),
        "byte_loss": _share("bytes_lost", "payload_bytes_received"),
        "nacks_per_s": _ratio(sf.col("nacks_sent"), seconds),
        "repair_ratio": _ratio(sf.col("repair_segments_sent"), sf.col("segments_sent")),
        "suppression_ratio": _share("nacks_suppressed", "nacks_sent"),
        "cpu_s_per_gb": sf.when(cpu_s > 0, _ratio(cpu_s * 1e9, sf.col("bytes"))),
        "grtt_s": _ratio(sf.col("grtt_us") / 1e6, sf.col("grtt_samples")),
    }
    return groups.select(
        *keys,
        "start",
        "end",
        "lines",
        "seq_first",
        "seq_last",
        sf.greatest(gaps, sf.lit(0)).alias("gaps"),
        seconds.alias("seconds"),
        (sf.col("idle_us") / 1e6).alias("idle_seconds"),
        "bytes",
        *(column.alias(name) for name, column in figures.items()),
        "grtt_s_max",
        "grtt_samples",
        cpu_s.alias(CPU),
        "rss_bytes_max",
        "queue_bytes_max",
        *COUNTERS,
    )


def _microseconds(seconds: Column) -> Column:
    return sf.rint(seconds * 1e6).try_cast("bigint")


def _ratio(part: Column, whole: Column) -> Column:
    return sf.when(whole > 0, part / whole)


def _share(part: str, other: str) -> Column:
    return _ratio(sf.col(part), sf.col(part) + sf.col(other))


def _moved() -> Column:
    """Return the bytes of a sample that count as throughput.

    For subscribers these are the bytes received, for publishers the bytes sent, for others both together. They are
    payload; where the layer does not know the payload (gateways, captures), they are bytes of datagrams.
    """
    has_payload = (sf.col("layer") != "gateway") & (sf.col("role") != CAPTURE)
    sent, received = (
        sf.coalesce(f"payload_bytes_{way}", sf.when(~has_payload, sf.col(f"bytes_{way}")), sf.lit(0))
        for way in ("sent", "received")
    )
    role = sf.col("role")
    return sf.when(role.isin(*RECEIVERS), received).when(role.isin(*SENDERS), sent).otherwise(sent + received)


def _rounded_bps(count: Column, us: Column) -> Column:
    """Return the throughput in bit/s, rounded to `DIGITS` digits."""
    bps = sf.rint(sf.least(count * 8e6 / us, sf.lit(_BPS_MAX))).cast("bigint")
    rounded = sf.when(count == 0, sf.lit(None).cast("bigint"))
    for digits in range(18, DIGITS, -1):
        rounded = rounded.when(bps >= 10 ** (digits - 1), sf.round(bps, DIGITS - digits))
    return rounded.otherwise(bps)
