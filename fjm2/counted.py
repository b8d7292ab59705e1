"""What counts, and who looks: sessions, buses and gateways say here that they are open, so that traces can be recorded.

It knows nobody. Where the environment's FJM2_TRACE_DIR asks for traces, the first that opens brings in the recorder.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import NamedTuple, Protocol
from weakref import WeakSet

DIRECTORY_VARIABLE = "FJM2_TRACE_DIR"

logger = logging.getLogger("fjm2.record")


class Reading(NamedTuple):
    """What one source of counters says at a moment."""

    source: str
    """Which counters of the process: `session`, `lane0`, `link:PEER`."""
    counters: Mapping[str, float]
    """By name, since the beginning."""
    gauges: Mapping[str, float | None]
    """None, and what is infinite, counts as unknown."""
    drops: Mapping[str, int]
    """By reason, since the beginning."""
    link: str | None = None
    """A gateway's peer."""


class Counted(Protocol):
    """Something with counters. They are read in another thread than that which counts."""

    @property
    def system(self) -> str: ...
    @property
    def layer(self) -> str: ...
    @property
    def role(self) -> str: ...
    def readings(self) -> Sequence[Reading]: ...


class Watcher(Protocol):
    """Who looks at the counters of something."""

    def attach(self, thing: Counted) -> None: ...
    def detach(self, thing: Counted) -> None: ...


watchers: WeakSet[Watcher] = WeakSet()
"""All that want to be told what closes."""


def opened(thing: Counted) -> None:
    """It counts from now on. Never raises: who records may fail, but not who is recorded."""
    if os.environ.get(DIRECTORY_VARIABLE):
        try:
            import_module("fjm2.record.environment").attach(thing)
        except Exception as error:
            logger.warning("no traces are recorded: %r", error)


def closed(thing: Counted) -> None:
    """It counts no more."""
    for watcher in list(watchers):
        watcher.detach(thing)
