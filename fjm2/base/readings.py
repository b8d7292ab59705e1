"""Readings of counters, and a register of all objects in this process that have counters.

Sessions, buses and gateways register when they open. Recorders of traces and Prometheus find them here.
`fjm2/__init__.py` sets `on_registered` to `fjm2.environment.observe`, which starts what the environment asks for.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol
from weakref import WeakSet

DIRECTORY_VARIABLE = "FJM2_TRACE_DIR"
METRICS_VARIABLE = "FJM2_METRICS"


class Reading(NamedTuple):
    """The counters of one source at one moment."""

    source: str
    """Name of the source within the process: `session`, `lane0`, `link:PEER`."""
    counters: Mapping[str, float]
    """Counts since the source opened, by name."""
    gauges: Mapping[str, float | None]
    """Current values, by name. None and infinity mean unknown."""
    drops: Mapping[str, int]
    """Datagrams dropped since the source opened, by reason."""
    link: str | None = None
    """Id of the gateway's peer, if the source is a link."""


class Counted(Protocol):
    """An object with counters. Its counters may be read in another thread than the one that counts."""

    @property
    def system(self) -> str:
        """Name of the system that is measured, such as "fjm2-jms"."""

    @property
    def layer(self) -> str:
        """Layer whose events are counted: `jms` or `norm`."""

    @property
    def role(self) -> str:
        """Role of the process in its run, such as "node"."""

    def readings(self) -> Sequence[Reading]:
        """Return the current reading of each source."""


class Watcher(Protocol):
    """An observer of counters, such as a recorder of traces."""

    def attach(self, thing: Counted) -> None: ...
    def detach(self, thing: Counted) -> None: ...


watchers: WeakSet[Watcher] = WeakSet()
"""Observers whose `detach` is called when an object with counters closes."""

on_registered: Callable[[Counted], None] | None = None
"""Function that is called with each object that registers; None until `fjm2` is imported."""

_registered: WeakSet[Counted] = WeakSet()


def register_counted(thing: Counted) -> None:
    """Register an object with counters, so that observers find it. Call it when the object opens.

    Never raises, unless `on_registered` does.
    """
    with contextlib.suppress(TypeError):  # not hashable, or no weak references: metrics leave it out
        _registered.add(thing)
    if on_registered is not None:
        on_registered(thing)


def unregister_counted(thing: Counted) -> None:
    """Tell observers that an object has closed."""
    with contextlib.suppress(TypeError):
        _registered.discard(thing)
    for watcher in list(watchers):
        watcher.detach(thing)


def registered() -> list[Counted]:
    """Return all registered objects. Safe to call from any thread."""
    while True:
        try:
            return list(_registered)
        except RuntimeError:  # another thread registered something meanwhile
            continue
