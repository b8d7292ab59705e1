"""Conversion of lines to rows: samples, results, and bad lines with the reason.

Every line becomes one row. Spark's own parser does the work, and costly checks run on bad lines only.
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from .schema import (
    AHEAD_S,
    COUNTER_MAX,
    COUNTERS,
    CPU,
    CPU_MAX_S,
    DT_MAX_S,
    DT_MIN_S,
    GAUGES,
    LABELS,
    LINE_TYPE,
    MAPS,
    NAME,
    REQUIRED_LABELS,
    T_MIN,
    TABLES,
    TEXT,
    VERSION,
)

# A line is parsed as the only element of a list, with something behind the list. So whatever follows the line's object,
# such as a second object or a bracket, makes it bad. Otherwise Spark would not read it.
_PARSED_TYPE = f"struct<line:array<struct<{LINE_TYPE}>>,end:int,bad:string>"
_OPTIONS = {
    "columnNameOfCorruptRecord": "bad",
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}
_TEXT_KEYS = (
    "run",
    "node",
    "kind",
    *(name for name, kind in LABELS.items() if kind == "string" and name not in ("run", "node")),
)
_LOOKS_LIKE_ANOTHER = r"^(-?[0-9.]+([eE][+-]?[0-9]+)?|true|false|[\[{].*)$"
"""Pattern of texts that may have been other values: Spark converts any value to text, whether it was quoted or not."""


def cleaned(lines: DataFrame, now: float) -> DataFrame:
    """Return a row for each line. `table` is the table for the row, `day` the partition. Missing values are null.

    Lines are (file, offset, text, fault). `now` is Unix time in seconds. A line whose time is more than a day ahead of
    it is bad.
    """
    parsed = lines.withColumn(
        "parsed",
        sf.from_json(sf.concat(sf.lit('{"line":['), sf.col("text"), sf.lit('],"end":1}')), _PARSED_TYPE, _OPTIONS),
    )
    whole = (sf.size("parsed.line") == 1) & (sf.col("parsed.end") == 1)
    line = sf.when(whole, sf.element_at("parsed.line", 1))
    read = parsed.select("file", "offset", "text", "fault", sf.col("parsed.bad").alias("bad"), line.alias("line"))
    judged = read.withColumn("verdict", _verdict(now))
    is_good = sf.col("verdict").isNull()
    table = sf.when(~is_good, "bad").when(sf.col("line.kind") == "result", "results").otherwise("rows")
    t = sf.when(is_good, sf.timestamp_micros(_whole(sf.col("line.t") * 1e6)))
    day = sf.coalesce(sf.to_date(t), sf.to_date(sf.timestamp_micros(sf.lit(int(now * 1e6)))))
    return judged.select(
        table.alias("table"),
        day.alias("day"),
        t.alias("t"),
        *(sf.when(is_good, sf.col(f"line.{name}")).alias(name) for name in (*LABELS, "seq", "dt")),
        *(sf.when(is_good, column).alias(name) for name, column in _numbers().items()),
        sf.when(is_good, sf.col("line.r")).alias("r"),
        sf.when(is_good, sf.col("line.labels")).alias("labels"),
        sf.col("verdict.reason").alias("reason"),
        sf.col("verdict.detail").alias("detail"),
        sf.when(~is_good, sf.rtrim("text", sf.lit("\r\n"))).alias("text"),
        "file",
        "offset",
    )


def table(rows: DataFrame, name: str) -> DataFrame:
    """Return the rows and columns of one table, from the rows that `cleaned` returns."""
    return rows.where(sf.col("table") == name).select(*TABLES[name], "day")


def _numbers() -> dict[str, Column]:
    counts = {name: _whole(sf.col("line.c")[name]) for name in COUNTERS}
    gauges = {name: sf.col("line.g")[name] for name in GAUGES}
    columns = counts | {CPU: sf.col("line.c")[CPU]} | gauges
    columns["drops"] = sf.col("line.drops")
    columns["more"] = _others(sf.col("line.c"), (*COUNTERS, CPU))
    columns["more_gauges"] = _others(sf.col("line.g"), GAUGES)
    return columns


def _whole(number: Column) -> Column:
    return sf.rint(number).try_cast("bigint")


def _others(numbers: Column, known: Iterable[str]) -> Column:
    """Return the numbers without a column of their own. Usually there are none, which is quick to find out."""
    names = sf.array(*map(sf.lit, known))
    has_others = sf.size(sf.array_except(sf.map_keys(numbers), names)) > 0
    return sf.when(has_others, sf.map_filter(numbers, lambda name, _: ~sf.array_contains(names, name)))


def _verdict(now: float) -> Column:
    """Return the first fault of a line as (reason, detail), or null."""
    line = sf.col("line")
    is_sample = line.kind == "sample"
    of_all, of_samples = _missing(("v", "kind", "t", *REQUIRED_LABELS)), _missing(("seq", "dt", "c", "g"))
    return _first(
        [
            *((sf.col("fault") == fault, fault, None) for fault in ("unreadable", "no_norm", "oversize", "utf8")),
            (sf.trim("text", sf.lit(" \t\r\n")) == "", "empty", None),
            (line.isNull(), _why_unparsed(), None),
            (line.v != VERSION, "version", line.v.cast("string")),
            (_may_be_of_wrong_type() & _wrong_type().isNotNull(), "type", _wrong_type()),
            (of_all.isNotNull(), "missing", of_all),
            (~line.kind.isin("sample", "result"), "kind", line.kind),
            (is_sample & of_samples.isNotNull(), "missing", of_samples),
            (~is_sample & line.r.isNull(), "missing", sf.lit("r")),
            (~_has_good_texts(), "label", _bad_text()),
            (_bad_label_number().isNotNull(), "label", _bad_label_number()),
            (~line.t.between(T_MIN, now + AHEAD_S), "time", line.t.cast("string")),
            (is_sample & ~line.dt.between(DT_MIN_S, DT_MAX_S), "dt", line.dt.cast("string")),
            (is_sample & ~line.seq.between(0, int(COUNTER_MAX)), "number", sf.lit("seq")),
            *((_bad_numbers(name), "number", sf.lit(name)) for name in MAPS),
            (line.c[CPU] > CPU_MAX_S, "number", sf.lit(CPU)),
            *((_has_doubles(line[name]), "duplicate", sf.lit(name)) for name in (*MAPS, "labels")),
        ]
    )


def _first(cases: Iterable[tuple[Column, str | Column, Column | None]]) -> Column:
    chosen: Column | None = None
    for condition, reason, detail in cases:
        text = sf.lit(reason) if isinstance(reason, str) else reason
        verdict = sf.struct(
            text.alias("reason"), (sf.lit(None) if detail is None else detail).cast("string").alias("detail")
        )
        chosen = sf.when(condition, verdict) if chosen is None else chosen.when(condition, verdict)
    assert chosen is not None
    return chosen


def _why_unparsed() -> Column:
    whole = sf.try_parse_json(sf.concat(sf.lit("["), sf.col("text"), sf.lit("]")))
    is_one = (
        sf.try_variant_get(whole, "$[0]", "variant").isNotNull() & sf.try_variant_get(whole, "$[1]", "variant").isNull()
    )
    return (
        sf.when(is_one & ~sf.ltrim("text", sf.lit(" \t\r\n")).startswith("{"), "object")
        .when(sf.col("fault") == "torn", "torn")
        .otherwise("json")
    )


def _texts() -> Column:
    """Return all texts of a line, one under the other. One check of them together is quicker than many checks."""
    return sf.concat_ws("\n", *(sf.coalesce(f"line.{name}", sf.lit("-")) for name in _TEXT_KEYS))


def _may_be_of_wrong_type() -> Column:
    nulls = sf.lit(False)
    for name in MAPS:
        nulls |= sf.coalesce(_has_null(name), sf.lit(False))
    return sf.col("bad").isNotNull() | _texts().rlike(f"(?m){_LOOKS_LIKE_ANOTHER}") | nulls


def _wrong_type() -> Column:
    """Return the first key whose value has the wrong type, or null."""
    line = sf.col("line")
    of_other_type = [
        sf.when(line[name].isNull() & _is_there(name), sf.lit(name))
        for name in ("v", "t", *LABELS, "seq", "dt", *MAPS, "labels")
    ]
    by_parser = sf.when(sf.col("bad").isNotNull(), sf.coalesce(*of_other_type, sf.lit("")))
    no_texts = [sf.when(line[name].rlike(_LOOKS_LIKE_ANOTHER) & ~_is_text(name), sf.lit(name)) for name in _TEXT_KEYS]
    nulls = [sf.when(_has_null(name), sf.lit(name)) for name in MAPS]
    return sf.coalesce(by_parser, *no_texts, *nulls)


def _has_null(name: str) -> Column:
    """Return true if a map has a null value; null if there is no such map.

    The search for a number that is not in the map returns null if the map has a null value.
    """
    values = sf.map_values(sf.col(f"line.{name}"))
    return sf.when(values.isNotNull(), sf.array_contains(values, sf.lit(-1.0)).isNull())


def _is_there(name: str) -> Column:
    return sf.get_json_object("text", f"$.{name}").isNotNull()


def _is_text(name: str) -> Column:
    value = sf.try_variant_get(sf.try_parse_json(sf.col("text")), f"$.{name}", "variant")
    return sf.coalesce(sf.schema_of_variant(value) == "STRING", sf.lit(True))


def _missing(names: Iterable[str]) -> Column:
    return sf.coalesce(*(sf.when(sf.col(f"line.{name}").isNull(), sf.lit(name)) for name in names))


def _has_good_texts() -> Column:
    return _texts().rlike(rf"^{NAME}\n{NAME}(\n{TEXT}){{{len(_TEXT_KEYS) - 2}}}$")


def _bad_text() -> Column:
    names = {name: NAME if name in ("run", "node") else TEXT for name in _TEXT_KEYS}
    return sf.coalesce(
        *(sf.when(~sf.col(f"line.{name}").rlike(f"^{good}$"), sf.lit(name)) for name, good in names.items())
    )


def _bad_label_number() -> Column:
    line = sf.col("line")
    checks = {name: line[name] < 0 for name in ("size", "fanout")}
    checks["loss"] = ~line.loss.between(0, 1)
    checks["rate_bps"] = ~((line.rate_bps > 0) & (line.rate_bps < float("inf")))
    return sf.coalesce(*(sf.when(check, sf.lit(name)) for name, check in checks.items()))


def _bad_numbers(name: str) -> Column:
    values = sf.map_values(sf.col(f"line.{name}"))
    low, high = sf.array_min(values), sf.array_max(values)
    if name in ("c", "drops"):
        return (low < 0) | (high > COUNTER_MAX)
    return (low == float("-inf")) | (high == float("inf"))


def _has_doubles(numbers: Column) -> Column:
    return sf.size(sf.array_distinct(sf.map_keys(numbers))) < sf.size(numbers)
