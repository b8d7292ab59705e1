"""Scaling of the pipeline: generated traces of some sizes, ingested and aggregated with bounded memory.

It measures times, peak memory and the exponent of growth. DuckDB, which reads the same files in its own way, checks the
figures.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fjm2.base.quantities import counted

from .generate import Generated, generate
from .schema import AHEAD_S, COUNTER_MAX, T_MIN

POLL_S: Final = 0.1
"""Time between two measurements of memory. A quick command would end before the second if it were longer."""


@dataclass(frozen=True, slots=True)
class Step:
    """The cost of a command."""

    seconds: float
    peak_bytes: int
    """Peak resident memory of all processes of the command together."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """The result for traces of one size."""

    lines: int
    raw_bytes: int
    ingest: Step
    aggregate: Step
    differences: list[str] | None
    """Differences from DuckDB's figures. None if they were not compared."""

    @property
    def seconds(self) -> float:
        return self.ingest.seconds + self.aggregate.seconds


def scale(
    folder: Path, rows: int, broken: float, memory: str, master: str, verify: bool, tell: Callable[[str], None]
) -> Scaled:
    """Generate lines below a folder, run the pipeline on them, compare the figures, and remove all files."""
    traces, warehouse = folder / f"traces-{rows}", folder / f"warehouse-{rows}"
    try:
        tell(f"generate {counted(rows, 'line')}")
        made = generate(traces, rows, broken)
        where = ["--memory", memory, "--master", master, "--quiet"]
        tell("ingest")
        ingested = measured(["ingest", str(traces), str(warehouse), "--settle", "0", *where])
        tell(f"  {ingested.seconds:.1f} s; aggregate")
        aggregated = measured(["aggregate", str(warehouse), *where])
        tell(f"  {aggregated.seconds:.1f} s")
        found = None
        if verify:
            tell("compare with DuckDB")
            found = differences(traces, warehouse, made, memory)
        return Scaled(rows + made.results, made.bytes, ingested, aggregated, found)
    finally:
        shutil.rmtree(traces, ignore_errors=True)
        shutil.rmtree(warehouse, ignore_errors=True)


def exponent(sizes: Sequence[Scaled]) -> float:
    """Return the exponent of growth from the smallest to the largest size. 1 is linear."""
    first, last = min(sizes, key=lambda one: one.lines), max(sizes, key=lambda one: one.lines)
    return math.log(last.seconds / first.seconds) / math.log(last.lines / first.lines)


def _lost(warehouse: Path, made: Generated) -> Iterator[str]:
    """Yield a text for each number of lines that differs between the generator and the batch."""
    batch = json.loads((warehouse / "_state" / "batches" / "batch-000001.json").read_text())
    expected = {"rows": made.good, "results": made.results, "bad": made.bad.total()}
    for table, count in expected.items():
        if batch["counts"].get(table, 0) != count:
            yield f"{table}: {counted(batch['counts'].get(table, 0), 'line')}, {count:,} written"
    for reason, count in made.bad.items():
        if batch["reasons"].get(reason, 0) != count:
            yield f"bad, {reason}: {counted(batch['reasons'].get(reason, 0), 'line')}, {count:,} written"


def measured(arguments: list[str]) -> Step:
    """Run a command of `fjm2-bench traces` in a process of its own. Raise CalledProcessError if it fails."""
    begun = time.monotonic()
    command = [sys.executable, "-m", "fjm2bench", "traces", *arguments]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        peak = 0
        try:
            while process.poll() is None:
                peak = max(peak, _resident_bytes(process.pid))
                time.sleep(POLL_S)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            log.seek(0)
            sys.stderr.buffer.write(log.read())
            raise subprocess.CalledProcessError(process.returncode, command)
    return Step(time.monotonic() - begun, peak)


def _resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants. Shared memory counts once for each process."""
    children: dict[int, list[int]] = {}
    resident = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        resident[int(entry.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    total, wanted = 0, [pid]
    while wanted:
        one = wanted.pop()
        total += resident.get(one, 0)
        wanted += children.get(one, [])
    return total


_GOOD: Final = f"""
    json_type(line) = 'OBJECT'
    AND json_type(line, '$.v') = 'UBIGINT' AND line->>'$.v' = '1' AND line->>'$.kind' = 'sample'
    AND json_type(line, '$.run') = 'VARCHAR' AND regexp_full_match(line->>'$.run', '[A-Za-z0-9._:+-]{{1,128}}')
    AND json_type(line, '$.source') = 'VARCHAR' AND json_type(line, '$.seq') = 'UBIGINT'
    AND coalesce(json_type(line, '$.fanout'), 'NULL') IN ('UBIGINT', 'NULL')
    AND json_type(line, '$.t') IN ('DOUBLE', 'UBIGINT')
    AND TRY_CAST(line->>'$.t' AS DOUBLE) BETWEEN {T_MIN} AND $now + {AHEAD_S}
    AND json_type(line, '$.dt') IN ('DOUBLE', 'UBIGINT') AND TRY_CAST(line->>'$.dt' AS DOUBLE) BETWEEN 1e-6 AND 86400
    AND list_min(TRY_CAST(line->'$.c.*' AS DOUBLE[])) >= 0
    AND list_max(TRY_CAST(line->'$.c.*' AS DOUBLE[])) <= {COUNTER_MAX}
    AND coalesce(TRY_CAST(line->>'$.g.grtt_s' AS DOUBLE), 0) < 1e300
    AND len(list_distinct(json_keys(line, '$.c'))) = len(json_keys(line, '$.c'))
"""
_SAMPLES: Final = f"""
    CREATE TEMP TABLE samples AS
    SELECT line->>'$.run' AS run, line->>'$.node' AS node, line->>'$.role' AS role,
        TRY_CAST(line->>'$.seq' AS BIGINT) AS seq,
        round(TRY_CAST(line->>'$.t' AS DOUBLE) * 1e6)::BIGINT // 60000000 AS minute,
        round(TRY_CAST(line->>'$.dt' AS DOUBLE) * 1e6)::BIGINT AS us,
        coalesce(TRY_CAST(line->>'$.c.payload_bytes_received' AS BIGINT), 0) AS bytes,
        coalesce(TRY_CAST(line->>'$.c.nacks_sent' AS BIGINT), 0) AS nacks,
        coalesce(TRY_CAST(line->>'$.c.nacks_suppressed' AS BIGINT), 0) AS suppressed,
        round(TRY_CAST(line->>'$.c.cpu_s' AS DOUBLE) * 1e6)::BIGINT AS cpu_us,
        round(TRY_CAST(line->>'$.g.grtt_s' AS DOUBLE) * 1e6)::BIGINT AS grtt_us
    FROM (
        SELECT CASE WHEN json_valid(text) THEN text END AS line
        FROM read_csv($files, columns = {{'text': 'VARCHAR'}}, header = false, delim = '\x01', quote = '', escape = '',
        ignore_errors = true, max_line_size = 16777216, auto_detect = false)
    )
    WHERE {_GOOD}
"""
_BY_RUN: Final = """
    WITH rates AS (
        SELECT *, round(bytes * 8e6 / us)::BIGINT AS bps,
            (10 ** greatest(0, len((round(bytes * 8e6 / us)::BIGINT)::VARCHAR) - 4))::BIGINT AS unit FROM samples
    ), runs AS (
        SELECT run, count(*) AS lines, sum(nacks) AS nacks_sent, sum(suppressed) AS nacks_suppressed,
            sum(cpu_us) / 1e6 AS cpu_s, sum(grtt_us) / 1e6 / count(grtt_us) AS grtt_s,
            sum(bytes) FILTER (role = 'sub') AS bytes, sum(us) FILTER (role = 'sub') / 1e6 AS seconds,
            quantile_cont((bps + unit // 2) // unit * unit, [0.05, 0.5, 0.95])
                FILTER (role = 'sub' AND bytes > 0) AS percentiles
        FROM rates GROUP BY run
    ), missing AS (
        SELECT run, sum(gaps) AS gaps
        FROM (SELECT run, node, max(seq) + 1 - count(*) AS gaps FROM samples GROUP BY run, node) GROUP BY run
    )
    SELECT runs.* EXCLUDE percentiles, gaps, bytes * 8 / seconds AS throughput_bps, percentiles[1] AS throughput_p5_bps,
        percentiles[2] AS throughput_p50_bps, percentiles[3] AS throughput_p95_bps FROM runs JOIN missing USING (run)
"""
_BY_MINUTE: Final = """
    SELECT run, node, minute, count(*) AS lines, max(seq) - min(seq) + 1 - count(*) AS gaps, sum(us) / 1e6 AS seconds,
        sum(bytes) AS payload_bytes_received, sum(nacks) AS nacks_sent, sum(suppressed) AS nacks_suppressed,
        sum(cpu_us) / 1e6 AS cpu_s, max(grtt_us) / 1e6 AS grtt_s_max
    FROM samples GROUP BY run, node, minute
"""
_COMPARED: Final = (
    ("by_run", _BY_RUN, "*", ("run",)),
    ("by_minute", _BY_MINUTE, "* REPLACE (epoch_us(minute) // 60000000 AS minute)", ("run", "node", "minute")),
)
"""Tables to compare: the name, DuckDB's query, how to read the table so that both are alike, and the keys of rows."""


def differences(traces: Path, warehouse: Path, made: Generated, memory: str) -> list[str]:
    """Return the differences of the warehouse from what the generator wrote and from what DuckDB computes."""
    return [*_lost(warehouse, made), *_otherwise(traces, warehouse, memory)]


def _otherwise(traces: Path, warehouse: Path, memory: str) -> Iterator[str]:
    import duckdb

    with tempfile.TemporaryDirectory(dir=warehouse) as spill, duckdb.connect() as db:
        db.execute(f"SET memory_limit = '{memory.upper()}B'; SET temp_directory = '{spill}'; SET threads = 2")
        files = [str(path) for path in sorted(traces.rglob("*.jsonl*"))]
        db.execute(_SAMPLES, {"files": files, "now": time.time()})
        for name, query, columns, keys in _COMPARED:
            expected = _by_keys(db.execute(query), keys)
            kept = f"SELECT {columns} FROM read_parquet('{warehouse}/aggregates/{name}/**/*.parquet')"
            yield from _differing(name, expected, _by_keys(db.execute(kept), keys))


_Rows = dict[tuple[Any, ...], dict[str, Any]]


def _by_keys(query: Any, keys: Sequence[str]) -> _Rows:
    names = [column[0] for column in query.description]
    rows = (dict(zip(names, row, strict=True)) for row in query.fetchall())
    return {tuple(row[key] for key in keys): row for row in rows}


def _differing(name: str, expected: _Rows, found: _Rows) -> Iterator[str]:
    if expected.keys() != found.keys():
        yield f"{name}: {counted(len(found), 'row')}, DuckDB finds {len(expected):,}"
        return
    for key, row in expected.items():
        for column, value in row.items():
            if not _is_close(found[key][column], value):
                where = " ".join(map(str, key))
                yield f"{name}, {where}: {column} is {found[key][column]}, DuckDB finds {value}"


def _is_close(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return one == other or math.isclose(float(one), float(other), rel_tol=1e-9)
