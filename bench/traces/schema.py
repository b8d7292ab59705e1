"""What a trace's line holds, and what becomes of it: names, types and bounds. Nothing here needs Spark."""

from typing import Final

VERSION: Final = 1
LINE_BYTES_MAX: Final = 64 << 10
"""Longer lines are put aside, and only their beginning is kept."""
COUNTER_MAX: Final = float(1 << 53)
"""Whole numbers are exact up to here, whoever reads them."""
T_MIN: Final = 1_577_836_800.0
"""2020-01-01: a clock that tells less was never set."""
AHEAD_S: Final = 86_400.0
"""How far a line may be ahead of the clock of who reads it."""
DT_MIN_S: Final = 1e-6
DT_MAX_S: Final = 86_400.0
CPU_MAX_S: Final = 1e9

NAME: Final = r"[A-Za-z0-9._:+-]{1,128}"
"""What `run` and `node` look like."""
TEXT: Final = r"\P{Cntrl}{1,128}"
"""And the other labels."""

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
"""What every line says of where it comes from."""
REQUIRED_LABELS: Final = ("run", "node", "system", "layer", "role", "source")

COUNTERS: Final = (
    "datagrams_sent",
    "bytes_sent",
    "datagrams_received",
    "bytes_received",
    "objects_sent",
    "objects_received",
    "objects_lost",
    "payload_bytes_sent",
    "payload_bytes_received",
    "segments_sent",
    "duplicate_segments_received",
    "segments_decoded",
    "nacks_sent",
    "nacks_suppressed",
    "nacks_received",
    "acks_sent",
    "acks_received",
    "repair_segments_sent",
    "parity_segments_sent",
    "flushes_sent",
    "squelches_sent",
    "probes_sent",
    "window_waits",
    "messages_sent",
    "messages_received",
    "messages_lost",
    "bytes_lost",
)
"""Whole numbers, each a column of its own. Others stay in the map `more`."""
CPU: Final = "cpu_s"
"""The one counter that is no whole number."""
GAUGES: Final = ("grtt_s", "rtt_s", "loss_sent", "queue_bytes", "paced_bps", "rss_bytes")
"""Likewise; others stay in the map `more_gauges`."""

MAPS: Final = ("c", "g", "drops", "r")
"""Keys of a line that are objects of numbers."""
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
"""A line as Spark parses it."""

SPLITS_TYPE: Final = "splits string"
"""What a task reads, as JSON: see `lines.Split`."""
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
"""Why a line is bad."""
