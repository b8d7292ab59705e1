"""Schema of trace lines and of the tables made from them: names, types and bounds. This module does not need Spark."""

from typing import Final

from fjm2.base.instruments import columns
from fjm2.bus.statistics import BUS_INSTRUMENTS
from fjm2.norm.net.statistics import SESSION_INSTRUMENTS
from fjm2.traces.process import CPU as PROCESS_CPU
from fjm2.traces.process import PROCESS_INSTRUMENTS
from fjm2d.instruments import GATEWAY_INSTRUMENTS, LAN_INSTRUMENTS, LINK_INSTRUMENTS

VERSION: Final = 1
LINE_BYTES_MAX: Final = 64 << 10
"""Length of the longest line. Of a longer line only the beginning is kept, in the table of bad lines."""
COUNTER_MAX: Final = float(1 << 53)
"""Largest count: up to here a double holds every whole number exactly."""
T_MIN: Final = 1_577_836_800.0
"""Earliest Unix time, 2020-01-01: a clock that shows less was never set."""
AHEAD_S: Final = 86_400.0
"""Seconds that a line may be ahead of the reader's clock."""
DT_MIN_S: Final = 1e-6
DT_MAX_S: Final = 86_400.0
CPU_MAX_S: Final = 1e9

NAME: Final = r"[A-Za-z0-9._:+-]{1,128}"
"""Pattern of `run` and `node`."""
TEXT: Final = r"\P{Cntrl}{1,128}"
"""Pattern of the other labels that are texts."""

LABELS: Final = {
    "run": "string",
    "node": "string",
    "system": "string",
    "layer": "string",
    "role": "string",
    "scenario": "string",
    "size": "bigint",
    "fanout": "bigint",
    "loss": "double",
    "rate_bps": "double",
    "link": "string",
    "source": "string",
}
"""Labels of every line, with their types in Spark."""
RECEIVERS: Final = ("sub", "echo")
"""Roles whose throughput is what they receive."""
SENDERS: Final = ("pub", "ping")
"""Roles whose throughput is what they send."""
CAPTURE: Final = "capture"
"""Role of captures: they know datagrams, and the payload only as far as it was captured."""
REQUIRED_LABELS: Final = ("run", "node", "system", "layer", "role", "source")

INSTRUMENTS: Final = (
    *SESSION_INSTRUMENTS,
    *BUS_INSTRUMENTS,
    *LINK_INSTRUMENTS,
    *LAN_INSTRUMENTS,
    *GATEWAY_INSTRUMENTS,
    *PROCESS_INSTRUMENTS,
)
CPU: Final = PROCESS_CPU
"""The only counter that is not a whole number."""
COUNTERS: Final = tuple(name for name in columns(INSTRUMENTS, "counter") if name != CPU)
"""Counters with a column of their own, as whole numbers. Others are in the map `more`."""
GAUGES: Final = columns(INSTRUMENTS, "gauge")
"""Gauges with a column of their own. Others are in the map `more_gauges`."""

MAPS: Final = ("c", "g", "drops", "r")
"""Keys of a line whose values are objects of numbers."""
LINE_TYPE: Final = ",".join(
    [
        "v:bigint",
        "kind:string",
        "t:double",
        *(f"{name}:{kind}" for name, kind in LABELS.items()),
        "seq:bigint",
        "dt:double",
        *(f"{name}:map<string,double>" for name in MAPS),
        "labels:map<string,string>",
    ]
)
"""Type of a line as Spark parses it."""

SPLITS_TYPE: Final = "splits string"
"""Input of a task, as JSON: see `lines.Split`."""
LINES_TYPE: Final = "file string, offset bigint, text string, fault string"

SAMPLE_COLUMNS: Final = (
    "t",
    *LABELS,
    "seq",
    "dt",
    *COUNTERS,
    CPU,
    *GAUGES,
    "drops",
    "more",
    "more_gauges",
    "file",
    "offset",
)
RESULT_COLUMNS: Final = ("t", *LABELS, "r", "labels", "file", "offset")
BAD_COLUMNS: Final = ("reason", "detail", "text", "file", "offset")
TABLES: Final = {"rows": SAMPLE_COLUMNS, "results": RESULT_COLUMNS, "bad": BAD_COLUMNS}

REASONS: Final = {
    "unreadable": "the file, or the rest of it, cannot be read",
    "no_norm": "a capture without NORM traffic",
    "oversize": "a line of more than 64 KiB",
    "utf8": "no UTF-8",
    "empty": "a line without anything",
    "torn": "the last line of a file, broken off",
    "json": "no JSON, or more than one value",
    "object": "JSON, but no object",
    "version": "a version that is not known",
    "kind": "neither a sample nor a result",
    "missing": "a key is missing, or null",
    "type": "a key's value is of another type",
    "label": "a label out of range, or of characters that are not allowed",
    "time": "before 2020, or in the future",
    "dt": "a sample that covers no time, or more than a day",
    "number": "a negative or too large count, or a number that is not finite",
    "duplicate": "a name that comes twice",
}
"""Reasons why a line is bad, and what they mean."""
