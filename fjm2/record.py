"""Traces: counters of sessions, connections and gateways, sampled and appended to files of JSON lines."""

from fjm2.traces import (
    Counted,
    HasCounted,
    Labels,
    Reading,
    TraceRecorder,
    TraceWriter,
)

__all__ = [
    "Counted",
    "HasCounted",
    "Labels",
    "Reading",
    "TraceRecorder",
    "TraceWriter",
]
