"""What counts, and who looks: sessions, buses and gateways say here that they are open, so that others can read them.

`fjm2.environment` sets `on_opened`, and starts what the environment asks for.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol
from weakref import WeakSet

DIRECTORY_VARIABLE = "FJM2_TRACE_DIR"
METRICS_VARIABLE = "FJM2_METRICS"


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
    def system(self) -> str:
        """What is measured, as in "fjm2-jms"."""

    @property
    def layer(self) -> str:
        """`jms` or `norm`."""

    @property
    def role(self) -> str:
        """What it does in its run, as in "node"."""

    def readings(self) -> Sequence[Reading]:
        """What its sources say now."""


class Watcher(Protocol):
    """Who looks at the counters of something."""

    def attach(self, thing: Counted) -> None: ...
    def detach(self, thing: Counted) -> None: ...


watchers: WeakSet[Watcher] = WeakSet()
"""All that want to be told what closes."""

on_opened: Callable[[Counted], None] | None = None
"""Called with everything that opens."""

_open: WeakSet[Counted] = WeakSet()


def opened(thing: Counted) -> None:
    """It counts from now on. Never raises: who records may fail, but not who is recorded."""
    with contextlib.suppress(TypeError):  # what cannot be told from others, or be forgotten, has no metrics
        _open.add(thing)
    if on_opened is not None:
        on_opened(thing)


def closed(thing: Counted) -> None:
    """It counts no more."""
    with contextlib.suppress(TypeError):
        _open.discard(thing)
    for watcher in list(watchers):
        watcher.detach(thing)


def open_things() -> list[Counted]:
    """All that count at present. Any thread may ask."""
    while True:
        try:
            return list(_open)
        except RuntimeError:  # another thread opens something just now
            continue
