"""Measurements of nodes: growing counters become rates, and rates become slots of history. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LINKS_KEPT = 64
"""Maximum number of links of a node that are shown: the busiest ones."""
_APART_MIN_S = 1e-3
"""Shortest time between two samples that gives a rate."""
_QUEUE_BYTES_MAX = 2**63 - 1
"""Largest integer that SQLite stores."""
STEP_S = 10
"""Length of the finest slot of history."""


class LinkSample(NamedTuple):
    """Counters of a link since its gateway started, and its latest measurements."""

    peer: str
    bytes_in: int
    bytes_out: int
    drops: Mapping[str, int]
    """Datagrams dropped, by reason."""
    loss: float | None
    rtt_ms: float | None
    queue_bytes: int
    is_up: bool | None = None
    rate_bps: float | None = None
    """Rate that the link is paced to; None without a limit."""


class LinkRates(NamedTuple):
    """Rates of a link between two samples."""

    peer: str
    in_bps: float
    out_bps: float
    drops_per_s: float
    loss: float | None
    rtt_ms: float | None
    queue_bytes: int
    is_up: bool | None
    rate_bps: float | None
    reason: str | None
    """Most frequent reason of drops."""


class Rates(NamedTuple):
    """Totals of a node's links: sums of rates, and the worst loss and round-trip time."""

    in_bps: float = 0.0
    out_bps: float = 0.0
    drops_per_s: float = 0.0
    loss: float | None = None
    rtt_ms: float | None = None
    queue_bytes: int = 0


class Point(NamedTuple):
    """One slot of a node's history: means of the rates, and the worst of the other values."""

    at: int
    in_bps: float
    out_bps: float
    drops_per_s: float
    loss: float | None
    rtt_ms: float | None
    queue_bytes: int


_STILL = Rates()


@dataclass(slots=True)
class Meter:
    """Traffic of a node: current rates, and the slot of history that is being filled."""

    rates: Rates = _STILL
    links: tuple[LinkRates, ...] = ()
    _last: dict[str, LinkSample] = field(default_factory=dict)
    _last_uptime_s: float = -1.0
    _slot: "_Slot | None" = None

    def add(self, uptime_s: float, links: Sequence[LinkSample], at: float) -> Point | None:
        """Add a sample made at the wall-clock time `at`. Return the slot of history that it completes, or None.

        An uptime below that of the last sample means that the gateway restarted: its counters begin anew.
        """
        kept = sorted(links, key=lambda link: link.bytes_in + link.bytes_out, reverse=True)[:LINKS_KEPT]
        took_s = uptime_s - self._last_uptime_s
        before = self._last if self._last_uptime_s >= 0 and took_s >= _APART_MIN_S else {}
        self._last = {link.peer: link for link in kept}
        self._last_uptime_s = uptime_s
        self.links = tuple(_rates(link, before.get(link.peer), took_s) for link in kept)
        self.rates = _sum(self.links)
        return self._note(at)

    def _note(self, at: float) -> Point | None:
        start = int(at) // STEP_S * STEP_S
        done = None
        if self._slot is None or start > self._slot.start:
            done = self.current()
            self._slot = _Slot(start)
        self._slot.add(self.rates)
        return done

    def current(self) -> Point | None:
        """Return the slot that is being filled; None if there is none."""
        return None if self._slot is None else self._slot.point()

    def close(self, now: float) -> Point | None:
        """End the slot that is being filled, and return it, if its time is over; otherwise return None."""
        if self._slot is None or now < self._slot.start + STEP_S:
            return None
        done, self._slot = self._slot.point(), None
        return done

    def clear(self) -> None:
        """Set the rates to 0, as nothing is known of the node any more."""
        self.rates, self.links = _STILL, ()


def _rates(link: LinkSample, before: LinkSample | None, took_s: float) -> LinkRates:
    in_bps = out_bps = drops_per_s = 0.0
    reason = None
    if before is not None and link.bytes_in >= before.bytes_in and link.bytes_out >= before.bytes_out:
        in_bps = 8 * (link.bytes_in - before.bytes_in) / took_s
        out_bps = 8 * (link.bytes_out - before.bytes_out) / took_s
        dropped = {name: max(0, count - before.drops.get(name, 0)) for name, count in link.drops.items()}
        drops_per_s = sum(dropped.values()) / took_s
        reason = max(dropped, key=dropped.__getitem__) if drops_per_s else None
    return LinkRates(
        link.peer,
        in_bps,
        out_bps,
        drops_per_s,
        link.loss,
        link.rtt_ms,
        link.queue_bytes,
        link.is_up,
        link.rate_bps,
        reason,
    )


def _sum(links: Sequence[LinkRates]) -> Rates:
    return Rates(
        sum(link.in_bps for link in links),
        sum(link.out_bps for link in links),
        sum(link.drops_per_s for link in links),
        max((link.loss for link in links if link.loss is not None), default=None),
        max((link.rtt_ms for link in links if link.rtt_ms is not None), default=None),
        min(_QUEUE_BYTES_MAX, sum(link.queue_bytes for link in links)),
    )


class _Slot:
    """Rates of one slot, aggregated."""

    __slots__ = ("_count", "_drops", "_in", "_loss", "_out", "_queue", "_rtt", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self._count = 0
        self._in = self._out = self._drops = 0.0
        self._loss: float | None = None
        self._rtt: float | None = None
        self._queue = 0

    def add(self, rates: Rates) -> None:
        self._count += 1
        self._in += rates.in_bps
        self._out += rates.out_bps
        self._drops += rates.drops_per_s
        self._loss = _larger(self._loss, rates.loss)
        self._rtt = _larger(self._rtt, rates.rtt_ms)
        self._queue = max(self._queue, rates.queue_bytes)

    def point(self) -> Point:
        count = self._count or 1
        return Point(
            self.start,
            self._in / count,
            self._out / count,
            self._drops / count,
            self._loss,
            self._rtt,
            self._queue,
        )


def _larger(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
