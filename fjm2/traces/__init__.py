"""Traces: the counters of sessions, connections and gateways, sampled and appended to files of JSON lines."""

from fjm2.base.readings import Counted, Reading

from .labels import Labels
from .recorder import HasCounted, TraceRecorder
from .writer import TraceWriter

__all__ = ["Counted", "HasCounted", "Labels", "Reading", "TraceRecorder", "TraceWriter"]
