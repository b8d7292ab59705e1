"""Tests of the pipeline's figures against an oracle in plain Python.

Separate tests check anomalies and results by cell, which the oracle does not cover.
"""

import math
from typing import Any

import oracle
import pytest
from fjm2bench.traces.aggregate import by_minute, by_run, by_series, histogram, results_by_cell
from fjm2bench.traces.anomalies import anomalies
from fjm2bench.traces.clean import cleaned, table
from fjm2bench.traces.schema import LINES_TYPE
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from trace_lines import T, encode, result, sample

NAMES = st.sampled_from(oracle.COUNTERS)
COUNTS = st.dictionaries(NAMES, st.integers(0, 10**6) | st.integers(0, 10**12), max_size=5)
SAMPLES = st.tuples(
    st.integers(0, 2),  # sequence numbers that are skipped
    st.integers(1, 70_000_000),  # microseconds that the sample covers
    COUNTS,
    st.none() | st.integers(0, 10**6),  # CPU, in microseconds
    st.none() | st.integers(0, 10**5),  # GRTT, in microseconds
)
SERIES = st.tuples(
    st.sampled_from(["pub", "sub", "node", "gateway", "capture"]),
    st.sampled_from(["norm", "jms", "gateway"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["session", "bench", "lane0"]),
    st.none() | st.just("peer"),
    st.lists(SAMPLES, min_size=1, max_size=6),
)
HOUR = int(T - T % 3600 + 3600)
MIDNIGHT = int(T - T % 86_400 + 86_400)
RUN = st.lists(SERIES, min_size=1, max_size=4)
RUNS = 80


def some(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """Draw examples from a strategy, and return them in a list.

    One job of Spark checks them together: a job for each would take too long.
    """
    kept: list[Any] = []

    @settings(max_examples=count, phases=[Phase.generate], database=None)
    @given(strategy)
    def keep(example: Any) -> None:
        kept.append(example)

    keep()
    return kept


def lines_of(runs: list[Any]) -> list[dict[str, Any]]:
    """Return the samples of generated runs as a recorder would write them."""
    lines = {}
    for number, run in enumerate(runs):
        for role, layer, node, source, link, samples in run:
            labels = {"run": f"r{number}", "role": role, "layer": layer, "node": node, "source": source, "link": link}
            at, seq = int(T * 1e6), -1
            for skipped, us, counts, cpu, trip in samples:
                at, seq = at + us, seq + 1 + skipped
                c = counts | ({} if cpu is None else {"cpu_s": cpu / 1e6})
                g = {} if trip is None else {"grtt_s": trip / 1e6}
                line = sample(**labels, t=at / 1e6, seq=seq, dt=us / 1e6, c=c, g=g)
                lines[tuple(labels.values()), at] = line
    return list(lines.values())


def frame_of(spark: SparkSession, lines: list[dict[str, Any]], name: str = "rows") -> DataFrame:
    texts = [("f", 0, encode([line]).decode(), None) for line in lines]
    return table(cleaned(spark.createDataFrame(texts, LINES_TYPE), T + 86_400), name)


def assert_same(frame: DataFrame, expected: list[dict[str, Any]], keys: tuple[str, ...], runs: list[Any]) -> None:
    found = {tuple(row[key] for key in keys): row.asDict() for row in frame.collect()}
    wanted = {tuple(row[key] for key in keys): row for row in expected}
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            other = found[key][name]
            same = other == value or (
                isinstance(value, float) and other is not None and math.isclose(other, value, rel_tol=1e-9)
            )
            assert same, f"{name} of {key}: {other}, expected {value}, of {runs[int(row['run'][1:])]}"


def test_figures_equal_the_oracles(spark: SparkSession) -> None:
    runs = some(RUN, RUNS)
    lines = lines_of(runs)
    rows = frame_of(spark, lines).cache()
    assert rows.count() == len(lines)
    minutes, histograms = by_minute(rows).cache(), histogram(rows).drop("day").cache()
    series = by_series(minutes.drop("day", "minute"), histograms).cache()
    assert_same(minutes, oracle.by_minute(lines), (*oracle.SERIES, "minute"), runs)
    assert_same(series, oracle.by_series(lines), oracle.SERIES, runs)
    assert_same(by_run(series, histograms), oracle.by_run(lines), oracle.RUN, runs)
    for frame in (rows, minutes, histograms, series):
        frame.unpersist()


SECOND = st.tuples(
    st.sampled_from([1, 1, 1, 1, 1, 2, 3, 9, 11, 12]),  # seconds after the sample before
    st.sampled_from([0, 1_000, 200_000, 1_000_000, 1_000_000, 1_000_000]),  # bytes
    st.sampled_from([0, 0, 0, 0, 10, 49, 50, 400]),  # NACKs sent, and those received
    st.sampled_from([0, 0, 0, 30]),
    st.sampled_from([0, 0, 0, 1]),  # how often the window was full
    st.integers(1, 3_000_000),  # microseconds that the sample covers
    st.integers(0, 999_999),  # microsecond of the second in which the sample ends
)
FLOW = st.tuples(
    st.sampled_from([HOUR, MIDNIGHT, HOUR + 1800]),
    st.integers(-30, 5),  # seconds after that time at which the flow begins
    st.sampled_from(["pub", "sub", "node"]),
    st.lists(SECOND, min_size=12, max_size=50),
)


def flow_lines(run: str, begin: int, role: str, seconds: list[Any]) -> list[dict[str, Any]]:
    lines = []
    for seq, (later, moved, sent, received, waits, us, where) in enumerate(seconds):
        begin += later
        c = {"nacks_sent": sent, "nacks_received": received, "window_waits": waits}
        c |= {"payload_bytes_sent": moved, "payload_bytes_received": moved}
        lines.append(sample(run=run, role=role, t=begin + where / 1e6, seq=seq, dt=us / 1e6, c=c, g={}))
    return lines


def test_anomalies_equal_the_oracles(spark: SparkSession) -> None:
    flows = some(FLOW, 150)
    lines = [
        line
        for number, (place, offset, role, seconds) in enumerate(flows)
        for line in flow_lines(f"r{number}", place + offset, role, seconds)
    ]
    expected = oracle.anomalies(lines)
    assert {row["kind"] for row in expected} == {"throughput_collapse", "nack_storm"}
    assert_same(anomalies(frame_of(spark, lines)), expected, ("run", "kind", "start"), flows)


def flow(begin: float, rates: list[int], **keys: Any) -> list[dict[str, Any]]:
    """Return one sample for each second, with these numbers of bytes received."""
    labels = {"dt": 1.0} | keys
    return [
        sample(**{"t": begin + index + 0.5, "seq": index, "c": {"payload_bytes_received": rate}, **labels})
        for index, rate in enumerate(rates)
    ]


STEADY = [1_000_000] * 20


def test_anomalies_are_found_and_nothing_else(spark: SparkSession) -> None:
    nacks = flow(HOUR, STEADY, run="storm")
    nacks[12]["c"]["nacks_sent"] = 400
    nacks[13]["c"]["nacks_received"] = 300
    lossy = flow(HOUR, [*STEADY, 100_000, 0, 0], run="ends-with-repairs")
    for line in lossy[:21]:
        line["c"]["nacks_sent"] = 5
    stalled = flow(HOUR, [*STEADY, 0, 0, 0, 0], run="stalls")
    for line in stalled[20:]:
        line["c"]["nacks_sent"] = 5
    lines = [
        *lossy,
        *stalled,
        *flow(HOUR, STEADY, run="steady"),
        *flow(HOUR, STEADY + [10] * 3 + STEADY, run="collapse"),
        *flow(HOUR - 21, STEADY + [10] * 3 + STEADY, run="across"),  # a block ends within the collapse
        *flow(HOUR, STEADY + [0] * 20, run="ends"),
        *flow(HOUR, [100] * 20 + [1] * 3 + [100] * 20, run="hardly-anything"),
        *nacks,
    ]
    found = {(row["run"], row["kind"]): row for row in anomalies(frame_of(spark, lines)).collect()}
    assert found.keys() == {
        ("collapse", "throughput_collapse"),
        ("across", "throughput_collapse"),
        ("stalls", "throughput_collapse"),
        ("storm", "nack_storm"),
    }
    for run in ("collapse", "across"):
        row = found[run, "throughput_collapse"]
        assert (row["seconds"], row["value"], row["usual"]) == (3, 80.0, 8e6)
        assert (row["end"] - row["start"]).total_seconds() == 3
    assert (found["storm", "nack_storm"]["seconds"], found["storm", "nack_storm"]["value"]) == (2, 400.0)


def test_results_by_cell_leave_out_faults_and_name_their_runs(spark: SparkSession) -> None:
    rates = {"r1": 100.0, "r2": 300.0, "r3": 200.0}
    lines = [result(run=run, r={"msgs_per_s": rate, "lost": 1}) for run, rate in rates.items()]
    lines += [
        result(run="r4", r={"msgs_per_s": 1.0}, labels={"fault": "timed out"}),
        result(run="r1", node="p", role="pub", r={"msgs_per_s": 5.0}),  # a process, not a run
        result(run="r5", size=64, r={"p50_us": 7.0}),
    ]
    rows = {row["size"]: row for row in results_by_cell(frame_of(spark, lines, "results")).collect()}
    assert rows.keys() == {64, 1024}
    cell = rows[1024]
    assert (cell["count"], cell["faults"], cell["runs"], cell["faulty_runs"]) == (
        4,
        1,
        ["r1", "r2", "r3", "r4"],
        ["r4"],
    )
    assert (cell["msgs_per_s_median"], cell["msgs_per_s_min"], cell["msgs_per_s_max"]) == (200.0, 100.0, 300.0)
    assert (cell["lost"], cell["p50_us_median"]) == (3, None)
    assert (rows[64]["p50_us_median"], rows[64]["msgs_per_s_median"]) == (7.0, None)


@pytest.mark.parametrize("huge", [2**53])
def test_counts_too_large_to_add_up_stop_nothing(spark: SparkSession, huge: int) -> None:
    lines = [
        sample(run="r", seq=index, t=T + index, dt=1e-6, c={"payload_bytes_received": huge, "nacks_sent": huge})
        for index in range(1100)
    ]
    rows = frame_of(spark, lines)
    assert by_minute(rows).count() > 0
    assert anomalies(rows).collect() is not None
