"""Queue of a link: paced to its rate, bounded, and shared fairly among the senders.

A token bucket says how much may go. Each sender has its own queue, and the queues take turns: a sender that got more
than its share in one turn gets less in the next (deficit round robin). Feedback goes first, but gets at most every
other turn. When there is no room, the sender with the most data waiting loses the end of its queue.
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
"""Longest pause that the gateway may make up for afterwards. It bounds the bytes that go at once."""
QUANTUM_S = 0.001
"""Length of a turn at a limited rate, and of a train: short, so that other senders do not wait long."""
_BURST_DATAGRAMS = 2
"""Least burst, in datagrams, for links so slow that a datagram takes longer than `BURST_S`."""
TURN_BYTES_MAX = 1 << 17
"""Bytes of a turn on a link without a limit: more than any train."""
QUEUE_S = 0.25
"""Bound of the queue, in time at the link's rate. Data that waits longer is outdated, or NACKed again before it
arrives. With a much lower bound, the senders' windows do not fill the link."""
QUEUE_BYTES_MIN = 256 << 10
"""Bound of the queue where `QUEUE_S` gives less, as far as `QUEUE_S_MAX` allows: a few senders' bursts."""
QUEUE_S_MAX = 2.0
"""Longest time in which the link must carry `QUEUE_BYTES_MIN`. Senders give up a receiver that is silent for longer,
and then no receiver holds them back."""
QUEUE_BYTES_LEAST = 12_000
"""Bound of the queue on the slowest links: eight full datagrams."""
QUEUE_BYTES_MAX = 8 << 20
"""Bound of the queue on the fastest links, unless configured: memory for each peer."""
_URGENT_SHARE = 0.25
"""Part of the queue that feedback may fill. Feedback is small and soon outdated."""
SENDERS_MAX = 256
"""Maximum number of senders with a queue of their own. A queue costs memory, and anyone on the LAN can invent senders.
"""
_SHARED_SENDERS = 16
"""Queues that the senders beyond `SENDERS_MAX` share."""


@dataclass(slots=True, eq=False)
class Parcel:
    """A train in the queue, with the fields for its headers."""

    data: NDArray[np.uint8]
    segment_bytes: int
    kind: int
    group: int
    hop_limit: int
    source: int
    is_urgent: bool
    datagram_bytes: int
    """Bytes that one datagram takes on the link, all headers included."""

    @property
    def count(self) -> int:
        """Number of datagrams."""
        return -(-self.data.size // self.segment_bytes)

    @property
    def cost(self) -> int:
        """Bytes that the parcel takes on the link. A shorter last datagram counts like the others."""
        return self.count * self.datagram_bytes

    def first(self, count: int) -> "Parcel":
        """Return a parcel of the first `count` datagrams."""
        return replace(self, data=self.data[: count * self.segment_bytes])

    def without_first(self, count: int) -> "Parcel":
        """Return a parcel of all but the first `count` datagrams."""
        return replace(self, data=self.data[count * self.segment_bytes :])


class LinkBucket(TokenBucket):
    """Token bucket of a link, in bytes. In no period does more go than the rate allows, plus one burst."""

    __slots__ = ()

    def __init__(self, rate_bps: float | None) -> None:
        super().__init__(UNLIMITED if rate_bps is None else rate_bps / 8)

    @property
    def bytes_per_s(self) -> float:
        """Rate of the link in bytes a second; infinite without a limit."""
        return self.per_s

    def set_rate(self, rate_bps: float | None, now: float) -> None:
        """Change the rate from now on."""
        self.refill_for(0, now)
        self.per_s = UNLIMITED if rate_bps is None else rate_bps / 8

    def burst_bytes(self, datagram_bytes: int) -> float:
        """Return the most bytes that may go at once."""
        return max(self.per_s * BURST_S, _BURST_DATAGRAMS * datagram_bytes)

    def turn_bytes(self) -> int:
        """Return the length of a turn in bytes, which is that of the longest train."""
        return TURN_BYTES_MAX if self.per_s == UNLIMITED else min(TURN_BYTES_MAX, int(self.per_s * QUANTUM_S))

    def refill_for(self, datagram_bytes: int, now: float) -> float:
        """Add the credit up to `now`. Return the bytes that may go now, in datagrams of this size."""
        return self.refill(now, max(self.per_s * BURST_S, _BURST_DATAGRAMS * datagram_bytes))

    def affords(self, size: int, datagram_bytes: int, now: float) -> bool:
        """Return True if this many bytes may go now, as one train."""
        if self.per_s == UNLIMITED:
            return True
        return size <= max(self.turn_bytes(), datagram_bytes) and size <= self.refill_for(datagram_bytes, now)


class _Flow:
    """Queue of one sender."""

    __slots__ = ("bytes", "credit", "parcels")

    def __init__(self, credit: int = 0) -> None:
        self.parcels: deque[Parcel] = deque()
        self.bytes = 0
        self.credit = credit
        """Bytes left in this turn; below zero: bytes sent beyond it, which the next turn makes up for."""

    def append(self, parcel: Parcel) -> None:
        self.parcels.append(parcel)
        self.bytes += parcel.cost

    def take(self, count: int) -> Parcel:
        """Remove and return the first `count` datagrams of the first parcel, or all of them."""
        parcel = self.parcels[0]
        if count < parcel.count:
            self.parcels[0] = parcel.without_first(count)
            parcel = parcel.first(count)
        else:
            self.parcels.popleft()
        self.bytes -= parcel.cost
        return parcel

    def cut_tail(self, size: int) -> int:
        """Drop at least this many bytes at the end, or all. Return the number of datagrams dropped."""
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
    """Queue of one link. A train costs a handful of dictionary and deque operations."""

    def __init__(
        self,
        rate_bps: float | None,
        drops: Counter[Drop],
        *,
        queue_bytes: int | None = None,
        shared: LinkBucket | None = None,
    ) -> None:
        """Queue at most `queue_bytes`. `shared` is a bucket that other links draw from as well."""
        self.bucket = LinkBucket(rate_bps)
        self._buckets = (self.bucket,) if shared is None else (self.bucket, shared)
        self._drops = drops
        self._most_bytes = QUEUE_BYTES_MAX if queue_bytes is None else queue_bytes
        self._flows: dict[int, _Flow] = {}
        """Queues that are not empty, by sender. The first queue has the turn."""
        self._urgent = _Flow()
        self._urgent_run = 0
        """Bytes of feedback sent since the last turn of a sender."""
        self.queued_bytes = 0
        """Bytes that the queued parcels will take on the link."""

    @property
    def rate_bps(self) -> float | None:
        """Rate in bits a second; None without a limit."""
        rate = self.bucket.bytes_per_s
        return None if rate == NEVER else 8 * rate

    def set_rate(self, rate_bps: float | None, now: float) -> None:
        """Change the rate. Nothing that waits is dropped."""
        self.bucket.set_rate(rate_bps, now)

    @property
    def bound_bytes(self) -> int:
        """Maximum number of bytes that may wait in the queue."""
        rate = min(bucket.bytes_per_s for bucket in self._buckets)
        least = min(max(rate * QUEUE_S_MAX, QUEUE_BYTES_LEAST), QUEUE_BYTES_MIN)
        return int(min(max(rate * QUEUE_S, least), self._most_bytes))

    def offer(self, parcel: Parcel) -> None:
        """Queue a parcel. Datagrams that find no room are dropped and counted.

        The bound of the queue falls with the rate, so that more may be queued than is allowed now. Even then, a parcel
        that is not urgent displaces no more bytes than it adds.
        """
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
            longest = max(self._flows.values(), key=_bytes_of, default=self._urgent)
            self._cut(longest, self.queued_bytes - bound, Drop.QUEUE_FULL)
            if not longest.bytes and longest is not self._urgent:
                self._flows = {source: flow for source, flow in self._flows.items() if flow.bytes}

    def pass_by(self, cost: int, datagram_bytes: int, now: float) -> bool:
        """Return True if a train may go at once, and pay for it: nothing waits, and the rates allow it."""
        if self.queued_bytes:
            return False
        for bucket in self._buckets:
            if not bucket.affords(cost, datagram_bytes, now):
                return False
        for bucket in self._buckets:
            bucket.spend(cost)
        return True

    def poll(self, now: float) -> Parcel | None:
        """Return the next parcel that may go, and pay for it; None if none may go, or none waits."""
        flow = self._next_flow()
        if flow is None:
            return None
        parcel = flow.parcels[0]
        size = parcel.datagram_bytes
        credit = min(bucket.refill_for(size, now) for bucket in self._buckets)
        wanted = self._wanted(flow)
        # Times are floating-point numbers: tolerate an error of less than a byte.
        if credit < wanted - 1:
            return None
        taken = flow.take(max(1, wanted // size))
        self._pay(flow, taken.cost)
        for bucket in self._buckets:
            bucket.spend(taken.cost)
        return taken

    def ready_at(self, now: float) -> float:
        """Return the time at which to call `poll` again; NEVER if nothing waits."""
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
        """Return True if only the shared bucket keeps the next parcel from going now."""
        flow = self._next_flow()
        if flow is None:
            return False
        return self.bucket.refill_for(flow.parcels[0].datagram_bytes, now) >= self._wanted(flow) - 1

    def clear(self) -> int:
        """Drop all parcels. Return the number of their datagrams."""
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
        """Return the queue whose turn it is; None if all are empty."""
        if self._urgent.parcels:
            size = self._urgent.parcels[0].datagram_bytes
            if not self._flows or self._urgent_run < self._turn_bytes(size):
                return self._urgent
        while self._flows:
            source, flow = next(iter(self._flows.items()))
            size = flow.parcels[0].datagram_bytes
            if flow.credit > 0:
                return flow
            # The sender's turn is over: its queue goes to the end, with credit for the next turn.
            flow.credit += self._turn_bytes(size)
            self._flows[source] = self._flows.pop(source)
        return None

    def _wanted(self, flow: _Flow) -> int:
        """Return the number of bytes that go next: whole datagrams, at most a turn."""
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
            # A sender with nothing to send saves up no credit. Its queue is nearly always the first.
            source = next(source for source, other in self._flows.items() if other is flow)
            del self._flows[source]

    def _cut(self, flow: _Flow, size: int, reason: Drop) -> None:
        if size > 0:
            before = flow.bytes
            self._drops[reason] += flow.cut_tail(size)
            self.queued_bytes -= before - flow.bytes


def _bytes_of(flow: _Flow) -> int:
    return flow.bytes
