"""What waits for a link: paced to its rate, bounded, and shared fairly among those who send.

A token bucket says how much may go. Each sender has a queue of its own, and they take turns: who has had more than its
share in one makes up for it in the next (deficit round robin). Feedback goes first, but may not take more than every
other turn. When there is no room, whoever has most waiting loses its tail.
"""

import math
from collections import Counter, deque
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fjm2.base.token_bucket import UNLIMITED, TokenBucket

from .wire import Drop

NEVER = math.inf
BURST_S = 0.004
"""How long the gateway may sleep through and then catch up on; more than this never goes at once."""
QUANTUM_S = 0.001
"""At a limited rate a turn takes about so long, and a train is no longer."""
_BURST_DATAGRAMS = 2
TURN_BYTES_MAX = 1 << 17
"""Without a limit a turn takes any train whole."""
QUEUE_S = 0.25
"""What waits longer is asked for again before it arrives, or is old news. Senders' windows need some of it."""
QUEUE_BYTES_MIN = 256 << 10
QUEUE_S_MAX = 2.0
"""A slow link has no room for that many: senders give up a receiver of which nothing comes for longer, and then nobody
holds them back."""
QUEUE_BYTES_LEAST = 12_000
"""Some datagrams may wait, however slow the link is."""
QUEUE_BYTES_MAX = 8 << 20
_URGENT_SHARE = 0.25
"""Of the queue's bytes feedback may have so many."""
SENDERS_MAX = 256
_SHARED_SENDERS = 16
"""When there are more senders than there may be, the others share so many queues."""


@dataclass(slots=True, eq=False)
class Parcel:
    """A train on its way to a link, with what is to be said of it there."""

    data: NDArray[np.uint8]
    segment_bytes: int
    kind: int
    group: int
    hop_limit: int
    source: int
    is_urgent: bool
    datagram_bytes: int
    """What a datagram takes of the link, all headers included."""

    @property
    def count(self) -> int:
        """Datagrams."""
        return -(-self.data.size // self.segment_bytes)

    @property
    def cost(self) -> int:
        """Bytes of the link. A last datagram that is shorter counts as the others do."""
        return self.count * self.datagram_bytes

    def first(self, count: int) -> "Parcel":
        """Its first datagrams."""
        return replace(self, data=self.data[: count * self.segment_bytes])

    def without_first(self, count: int) -> "Parcel":
        """All others."""
        return replace(self, data=self.data[count * self.segment_bytes :])


class LinkBucket(TokenBucket):
    """Bytes that may go now. No window of any length sees more than its share of the rate, and one burst."""

    __slots__ = ()

    def __init__(self, rate_bps: float | None) -> None:
        super().__init__(UNLIMITED if rate_bps is None else rate_bps / 8)

    @property
    def bytes_per_s(self) -> float:
        """Rate now; infinite without a limit."""
        return self.per_s

    def set_rate(self, rate_bps: float | None, now: float) -> None:
        """Change the rate from now on."""
        self.refill_for(0, now)
        self.per_s = UNLIMITED if rate_bps is None else rate_bps / 8

    def burst_bytes(self, datagram_bytes: int) -> float:
        """Return the most that goes at once."""
        return max(self.per_s * BURST_S, _BURST_DATAGRAMS * datagram_bytes)

    def turn_bytes(self) -> int:
        """Return the length of the longest train."""
        return TURN_BYTES_MAX if self.per_s == UNLIMITED else min(TURN_BYTES_MAX, int(self.per_s * QUANTUM_S))

    def refill_for(self, datagram_bytes: int, now: float) -> float:
        """Return the bytes that may go now, in datagrams of this size."""
        return self.refill(now, max(self.per_s * BURST_S, _BURST_DATAGRAMS * datagram_bytes))

    def affords(self, size: int, datagram_bytes: int, now: float) -> bool:
        """True if so many bytes may go now, as one train."""
        if self.per_s == UNLIMITED:
            return True
        return size <= max(self.turn_bytes(), datagram_bytes) and size <= self.refill_for(datagram_bytes, now)


class _Flow:
    """What one sender has waiting."""

    __slots__ = ("bytes", "credit", "parcels")

    def __init__(self, credit: int = 0) -> None:
        self.parcels: deque[Parcel] = deque()
        self.bytes = 0
        self.credit = credit
        """Bytes that it may send before its turn is over; below zero what it has had too much."""

    def append(self, parcel: Parcel) -> None:
        self.parcels.append(parcel)
        self.bytes += parcel.cost

    def take(self, count: int) -> Parcel:
        """The first datagrams of the first parcel: `count` of them, or all."""
        parcel = self.parcels[0]
        if count < parcel.count:
            self.parcels[0] = parcel.without_first(count)
            parcel = parcel.first(count)
        else:
            self.parcels.popleft()
        self.bytes -= parcel.cost
        return parcel

    def cut_tail(self, size: int) -> int:
        """Take at least so many bytes off the end, or all. How many datagrams that was."""
        dropped = 0
        while size > 0 and self.parcels:
            parcel = self.parcels.pop()
            self.bytes -= parcel.cost
            gone = min(parcel.count, -(-size // parcel.datagram_bytes))
            dropped += gone
            size -= gone * parcel.datagram_bytes
            if gone < parcel.count:
                self.append(parcel.first(parcel.count - gone))
        return dropped


class LinkQueue:
    """The way out to one peer. All a train costs is a handful of dictionary and queue operations."""

    def __init__(
        self,
        rate_bps: float | None,
        drops: Counter[Drop],
        *,
        queue_bytes: int | None = None,
        shared: LinkBucket | None = None,
    ) -> None:
        """`queue_bytes`: the most that may wait. `shared`: a bucket that other links draw from as well."""
        self.bucket = LinkBucket(rate_bps)
        self._buckets = (self.bucket,) if shared is None else (self.bucket, shared)
        self._drops = drops
        self._most_bytes = QUEUE_BYTES_MAX if queue_bytes is None else queue_bytes
        self._flows: dict[int, _Flow] = {}
        """By sender, those that have something waiting. The first one's turn it is."""
        self._urgent = _Flow()
        self._urgent_run = 0
        """Bytes of feedback that have gone since others had a turn."""
        self.queued_bytes = 0
        """Bytes of the link that wait."""

    @property
    def rate_bps(self) -> float | None:
        """None without a limit."""
        rate = self.bucket.bytes_per_s
        return None if rate == NEVER else 8 * rate

    def set_rate(self, rate_bps: float | None, now: float) -> None:
        """Go at another rate from now on. What waits, waits on."""
        self.bucket.set_rate(rate_bps, now)

    @property
    def bound_bytes(self) -> int:
        """How much may wait."""
        rate = min(bucket.bytes_per_s for bucket in self._buckets)
        least = min(max(rate * QUEUE_S_MAX, QUEUE_BYTES_LEAST), QUEUE_BYTES_MIN)
        return int(min(max(rate * QUEUE_S, least), self._most_bytes))

    def offer(self, parcel: Parcel) -> None:
        """Let it wait. What finds no room is dropped and counted; what waits is not, if only the rate has fallen."""
        bound = self.bound_bytes
        if parcel.is_urgent:
            self._urgent.append(parcel)
            self.queued_bytes += parcel.cost
            self._cut(self._urgent, self._urgent.bytes - int(bound * _URGENT_SHARE), Drop.URGENT_FULL)
        else:
            flow = self._flow_of(parcel)
            flow.append(parcel)
            self.queued_bytes += parcel.cost
        bound = max(bound, self.queued_bytes - parcel.cost)
        while self.queued_bytes > bound:
            fattest = max(self._flows.values(), key=_bytes_of, default=self._urgent)
            self._cut(fattest, self.queued_bytes - bound, Drop.QUEUE_FULL)
            if not fattest.bytes and fattest is not self._urgent:
                self._flows = {source: flow for source, flow in self._flows.items() if flow.bytes}

    def pass_by(self, cost: int, datagram_bytes: int, now: float) -> bool:
        """Whether a train may go at once, as nothing waits before it; then it is paid for."""
        if self.queued_bytes:
            return False
        for bucket in self._buckets:
            if not bucket.affords(cost, datagram_bytes, now):
                return False
        for bucket in self._buckets:
            bucket.spend(cost)
        return True

    def poll(self, now: float) -> Parcel | None:
        """The next train that may go, paid for; None when nothing may, or nothing waits."""
        flow = self._next_flow()
        if flow is None:
            return None
        parcel = flow.parcels[0]
        size = parcel.datagram_bytes
        credit = min(bucket.refill_for(size, now) for bucket in self._buckets)
        wanted = self._wanted(flow)
        # Time is in floating point: what is late by less than a byte is not late.
        if credit < wanted - 1:
            return None
        taken = flow.take(max(1, wanted // size))
        self._pay(flow, taken.cost)
        for bucket in self._buckets:
            bucket.spend(taken.cost)
        return taken

    def ready_at(self, now: float) -> float:
        """When `poll` is next worth a try; NEVER when nothing waits."""
        flow = self._next_flow()
        if flow is None:
            return NEVER
        wanted, size = self._wanted(flow), flow.parcels[0].datagram_bytes
        at = now
        for bucket in self._buckets:
            bucket.refill_for(size, now)
            at = max(at, bucket.ready_at(wanted, now))
        return at

    def waits_for_others(self, now: float) -> bool:
        """Whether what goes next could go now, but for what other links have taken of what is shared."""
        flow = self._next_flow()
        if flow is None:
            return False
        return self.bucket.refill_for(flow.parcels[0].datagram_bytes, now) >= self._wanted(flow) - 1

    def clear(self) -> int:
        """Drop all that waits. How many datagrams it was."""
        flows = (*self._flows.values(), self._urgent)
        count = sum(parcel.count for flow in flows for parcel in flow.parcels)
        self._flows.clear()
        self._urgent = _Flow()
        self.queued_bytes = 0
        return count

    def _flow_of(self, parcel: Parcel) -> _Flow:
        source = parcel.source
        if source not in self._flows and len(self._flows) >= SENDERS_MAX:
            source = -1 - source % _SHARED_SENDERS
        flow = self._flows.get(source)
        if flow is None:
            flow = self._flows[source] = _Flow(self._turn_bytes(parcel.datagram_bytes))
        return flow

    def _turn_bytes(self, datagram_bytes: int) -> int:
        return max(min(bucket.turn_bytes() for bucket in self._buckets), datagram_bytes)

    def _next_flow(self) -> _Flow | None:
        """Whose turn it is."""
        if self._urgent.parcels:
            size = self._urgent.parcels[0].datagram_bytes
            if not self._flows or self._urgent_run < self._turn_bytes(size):
                return self._urgent
        while self._flows:
            source, flow = next(iter(self._flows.items()))
            size = flow.parcels[0].datagram_bytes
            if flow.credit > 0:
                return flow
            # Its turn is over: it goes to the end, with what it may send the next time.
            flow.credit += self._turn_bytes(size)
            self._flows[source] = self._flows.pop(source)
        return None

    def _wanted(self, flow: _Flow) -> int:
        """How many bytes go next: whole datagrams, no more than a turn."""
        parcel = flow.parcels[0]
        size = parcel.datagram_bytes
        return min(parcel.count, self._turn_bytes(size) // size) * size

    def _pay(self, flow: _Flow, cost: int) -> None:
        self.queued_bytes -= cost
        if flow is self._urgent:
            self._urgent_run += cost
            return
        self._urgent_run = 0
        flow.credit -= cost
        if not flow.parcels:
            # Whoever has nothing to send saves nothing up. It is nearly always the first.
            source = next(source for source, other in self._flows.items() if other is flow)
            del self._flows[source]

    def _cut(self, flow: _Flow, size: int, reason: Drop) -> None:
        if size > 0:
            before = flow.bytes
            self._drops[reason] += flow.cut_tail(size)
            self.queued_bytes -= before - flow.bytes


def _bytes_of(flow: _Flow) -> int:
    return flow.bytes
