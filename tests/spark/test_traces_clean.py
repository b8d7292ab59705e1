"""Tests of cleaning: every line becomes one row of a table, or a bad line with the right reason."""

import json
from datetime import date, datetime
from typing import Any

import pytest
from fjm2bench.traces.clean import cleaned, table
from fjm2bench.traces.schema import LINES_TYPE, REASONS, TABLES
from pyspark.sql import SparkSession
from sparks import Sparks
from trace_lines import T, result, sample

NOW = T + 3600
GOOD = json.dumps(sample())


def changed(**keys: Any) -> str:
    return json.dumps(sample(**keys))


BAD: dict[str, tuple[str, str, str | None]] = {
    "nothing": ("", "empty", None),
    "spaces": (" \t\r", "empty", None),
    "half": (GOOD[: len(GOOD) // 2], "json", None),
    "two": (GOOD + GOOD, "json", None),
    "two, comma": (GOOD + "," + GOOD, "json", None),
    "more behind": (GOOD + " x", "json", None),
    "bracket behind": (GOOD + "]", "json", None),
    "brace behind": (GOOD + "}", "json", None),
    "pair behind": (GOOD + ',"x":{}', "json", None),
    "zeros": ("\0" * 100, "json", None),
    "NaN": (changed(dt=float("nan")), "json", None),
    "quotes": (GOOD.replace('"', "'"), "json", None),
    "deep": ('{"v":1,"x":' + "[" * 2000 + "]" * 2000 + "}", "json", None),
    "null": ("null", "object", None),
    "number": ("3", "object", None),
    "text": ('"{"', "object", None),
    "list": (f"[{GOOD}]", "object", None),
    "version": (changed(v=2), "version", "2"),
    "version, and more": (changed(v=2, t="soon"), "version", "2"),
    "version as text": (changed(v="1"), "type", "v"),
    "no version": (changed(v=...), "missing", "v"),
    "kind": (changed(kind="simple"), "kind", "simple"),
    "no kind": (changed(kind=None), "missing", "kind"),
    "no run": (changed(run=...), "missing", "run"),
    "no seq": (changed(seq=...), "missing", "seq"),
    "no counters": (changed(c=...), "missing", "c"),
    "no numbers": (json.dumps(result(r=...)), "missing", "r"),
    "t as text": (changed(t="1790000000"), "type", "t"),
    "t is true": (changed(t=True), "type", "t"),
    "seq with a point": (changed(seq=1.0), "type", "seq"),
    "run as number": (changed(run=17), "type", "run"),
    "run as 1e9": (GOOD.replace('"r1"', "1e9"), "type", "run"),
    "scenario is true": (changed(scenario=True), "type", "scenario"),
    "link as object": (changed(link={}), "type", "link"),
    "size as text": (changed(size="10"), "type", "size"),
    "counters as list": (changed(c=[1]), "type", "c"),
    "counter as text": (changed(c={"nacks_sent": "1"}), "type", "c"),
    "counter is null": (changed(c={"nacks_sent": None}), "type", "c"),
    "run with a space": (changed(run="a b"), "label", "run"),
    "run without letters": (changed(run=""), "label", "run"),
    "run too long": (changed(run="r" * 129), "label", "run"),
    "newline in a label": (changed(scenario="a\nb"), "label", "scenario"),
    "loss": (changed(loss=1.5), "label", "loss"),
    "fan-out": (changed(fanout=-1), "label", "fanout"),
    "rate": (changed(rate_bps=0), "label", "rate_bps"),
    "1970": (changed(t=5), "time", "5.0"),
    "future": (changed(t=NOW + 90_000), "time", None),
    "endless t": (GOOD.replace(f'"t": {T}', '"t": 1e999'), "time", "Infinity"),
    "no time": (changed(dt=0), "dt", "0.0"),
    "time runs back": (changed(dt=-0.1), "dt", "-0.1"),
    "two days": (changed(dt=172_800), "dt", "172800.0"),
    "negative seq": (changed(seq=-1), "number", "seq"),
    "negative counter": (changed(c={"nacks_sent": -1}), "number", "c"),
    "negative unknown counter": (changed(c={"new": -1}), "number", "c"),
    "counter too large": (changed(c={"bytes_sent": 1 << 60}), "number", "c"),
    "endless gauge": (GOOD.replace('"grtt_s": 0.01', '"grtt_s": 1e999'), "number", "g"),
    "negative drop": (changed(drops={"own": -1}), "number", "drops"),
    "much CPU": (changed(c={"cpu_s": 1e10}), "number", "cpu_s"),
    "name twice": (GOOD.replace('"cpu_s"', '"cpu_s":1,"cpu_s"'), "duplicate", "c"),
}
KEPT: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (GOOD, {"run": "r1", "seq": 0, "payload_bytes_received": 1000, "cpu_s": 0.01, "grtt_s": 0.01}),
    "time": (changed(t=T + 0.123456), {"t": datetime(2026, 9, 21, 14, 13, 20, 123456), "day": date(2026, 9, 21)}),
    "run like a number": (changed(run="20261118"), {"run": "20261118"}),
    "run like a word": (changed(run="true"), {"run": "true"}),
    "link like an object": (changed(link="{}"), {"link": "{}"}),
    "unknown names": (
        changed(c={"new": 1.5, "nacks_sent": 2}, g={"hot": -1}),
        {"more": {"new": 1.5}, "more_gauges": {"hot": -1.0}, "nacks_sent": 2},
    ),
    "unknown keys": (changed(extra={"a": [1]}), {"run": "r1"}),
    "labels that are not known": (changed(scenario=None, size=None, fanout=...), {"scenario": None, "fanout": None}),
    "drops": (changed(drops={"own": 3}), {"drops": {"own": 3.0}}),
    "carriage return": (GOOD + "\r", {"run": "r1"}),
    "key twice": (GOOD.replace('"v": 1', '"v": 2, "v": 1'), {"run": "r1"}),
}


@pytest.fixture(scope="module")
def judged(sparks: Sparks) -> dict[str, dict[str, Any]]:
    """Clean all lines of the tables of cases at once. Return the resulting rows, by the name of the case."""
    texts = {name: case[0] for name, case in BAD.items()} | {name: case[0] for name, case in KEPT.items()}
    texts["result"] = json.dumps(result(labels={"fault": "none"}))
    lines = [(name, 7, text, None) for name, text in texts.items()]
    faults = [("torn", GOOD[:50]), ("oversize", GOOD), ("utf8", GOOD), ("unreadable", "gone")]
    lines += [(fault, 7, text, fault) for fault, text in faults]
    lines.append(("whole, but for its newline", 7, GOOD, "torn"))
    rows = cleaned(sparks.here().createDataFrame(lines, LINES_TYPE), NOW).collect()
    assert len(rows) == len(lines)
    return {row["file"]: row.asDict() for row in rows}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_put_aside_with_its_reason(judged: dict[str, dict[str, Any]], name: str) -> None:
    text, reason, detail = BAD[name]
    row = judged[name]
    assert (row["table"], row["reason"]) == ("bad", reason)
    assert row["reason"] in REASONS
    if detail is not None:
        assert row["detail"] == detail
    assert row["text"] == text.rstrip("\r")
    assert row["offset"] == 7
    assert row["day"] == date(2026, 9, 21)


@pytest.mark.parametrize("name", KEPT)
def test_a_good_line_is_a_row(judged: dict[str, dict[str, Any]], name: str) -> None:
    row = judged[name]
    assert (row["table"], row["reason"], row["text"]) == ("rows", None, None)
    for column, value in KEPT[name][1].items():
        assert row[column] == value, column


@pytest.mark.parametrize("fault", ["torn", "oversize", "utf8", "unreadable"])
def test_faults_seen_by_the_reader_are_the_reason(judged: dict[str, dict[str, Any]], fault: str) -> None:
    assert (judged[fault]["table"], judged[fault]["reason"]) == ("bad", fault)


def test_a_last_line_that_only_lacks_its_newline_is_a_row(judged: dict[str, dict[str, Any]]) -> None:
    assert judged["whole, but for its newline"]["table"] == "rows"


def test_results_keep_their_numbers_and_labels(judged: dict[str, dict[str, Any]]) -> None:
    row = judged["result"]
    assert (row["table"], row["r"], row["labels"]) == (
        "results",
        {"msgs_per_s": 1000.0, "lost": 0.0},
        {"fault": "none"},
    )


def test_tables_have_their_columns(spark: SparkSession) -> None:
    rows = cleaned(spark.createDataFrame([("f", 0, GOOD, None)], LINES_TYPE), NOW)
    for name, columns in TABLES.items():
        assert table(rows, name).columns == [*columns, "day"]
    assert table(rows, "rows").count() == 1
    assert table(rows, "bad").count() == 0
