"""Traces: the counters of sessions, connections and gateways, sampled and appended to files of JSON lines."""

from .labels import Labels
from .recorder import TraceRecorder
from .writer import TraceWriter

__all__ = ["Labels", "TraceRecorder", "TraceWriter"]
