"""Places of the simulated network (`sim`), and the links between them."""

import math
from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import Final

from fjm2.norm.core.train import Train

from .faults import Faults
from .segments import segment_at, without_segments

QUEUE_BYTES: Final = 1 << 20
"""Bytes that may wait for a link of limited rate, as in a switch. More is lost."""


class Place:
    """A point where links meet. What comes by one of them goes on by all others."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Name for people."""
        self.links: list[Link] = []
        """Links that begin here."""
        self.group = self
        """Another place of the same tree, or this one. Following it leads to the one place that stands for the tree."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Router(Place):
    """A place without a node. What is lost on the way to it is lost for all nodes after it."""


class Link:
    """One way from one place to the next. A train arrives as one train, with gaps where segments were lost.

    Methods that change the link return it, so that they can be chained.
    """

    __slots__ = (
        "_faults",
        "_free_at",
        "_last_at",
        "_random",
        "back",
        "delay_s",
        "end",
        "is_cut",
        "is_plain",
        "jitter_s",
        "queue_bytes",
        "rate_bps",
        "segments_dropped",
        "segments_lost",
        "start",
    )

    def __init__(self, start: Place, end: Place, random: Random, delay_s: float) -> None:
        self.start = start
        """Place where the link begins."""
        self.end = end
        """Place to which it leads."""
        self.back = self
        """Link for the other direction."""
        self.delay_s = delay_s
        """Time that each segment takes."""
        self.jitter_s = 0.0
        """Time that a segment may take in addition."""
        self.rate_bps = math.inf
        """Bits per second."""
        self.queue_bytes = QUEUE_BYTES
        """Bytes that may wait for the link."""
        self.is_cut = False
        """True if everything is lost."""
        self.is_plain = True
        """True if everything comes through, whole and in the same time."""
        self.segments_lost = 0
        """Segments lost on purpose."""
        self.segments_dropped = 0
        """Segments that found the queue full."""
        self._random = random
        self._faults = Faults(random)
        self._free_at = -math.inf
        """Time when the link has sent what is in its queue."""
        self._last_at = -math.inf
        """Time of the latest arrival, which later trains do not overtake."""

    def lose(
        self,
        fraction: float = 0.0,
        *,
        burst: float = 1.0,
        segments: Collection[int] | None = None,
        where: Callable[[bytes], bool] | None = None,
    ) -> "Link":
        """Lose segments, in addition to those lost already: a fraction, certain DATA, or what a function chooses.

        A `burst` above 1 is the mean number of segments lost in a row. `segments` are numbers of DATA as they come
        along this link from now on, the first being 0.
        """
        self._faults.lose(fraction, burst, segments, where)
        return self._changed()

    def duplicate(self, fraction: float) -> "Link":
        """Deliver a fraction of all segments twice, the second time after their train."""
        self._faults.duplicate(fraction)
        return self._changed()

    def reorder(self, fraction: float, by_s: float) -> "Link":
        """Hold a fraction of all segments up for up to `by_s`, so that later ones overtake them."""
        self._faults.reorder(fraction, by_s)
        return self._changed()

    def shape(
        self,
        *,
        delay_s: float | None = None,
        jitter_s: float | None = None,
        rate_bps: float | None = None,
        queue_bytes: int | None = None,
    ) -> "Link":
        """Set the delay, up to `jitter_s` more (order is kept), the rate, and the bytes that may wait for it."""
        self.delay_s = self.delay_s if delay_s is None else delay_s
        self.jitter_s = self.jitter_s if jitter_s is None else jitter_s
        self.rate_bps = self.rate_bps if rate_bps is None else rate_bps
        self.queue_bytes = self.queue_bytes if queue_bytes is None else queue_bytes
        return self._changed()

    def cut(self) -> "Link":
        """Lose everything until `mend`."""
        self.is_cut = True
        return self._changed()

    def mend(self) -> "Link":
        """Stop losing, doubling and reordering. Delay, jitter and rate stay."""
        self.is_cut = False
        self._faults.clear()
        return self._changed()

    def carry(self, train: Train, now: float) -> Iterator[tuple[float, Train]]:
        """Yield what arrives of a train at the other end, and when. It is the train itself if nothing happens to it."""
        survivors = self._survivors(train)
        if survivors is None:
            return
        if self.rate_bps < math.inf:
            fitting = self._queue(survivors, now)
            if fitting is None:
                return
            survivors, start = fitting, self._free_at
        else:
            start = now
        at = start + self.delay_s
        if self.jitter_s:
            at = max(at + self._random.uniform(0.0, self.jitter_s), self._last_at)
            self._last_at = at
        doubled = self._faults.doubled(survivors)
        late = self._faults.held_up(survivors)
        punctual = without_segments(survivors, late) if late else survivors
        if punctual is not None:
            yield at, punctual
        for place in doubled:
            yield at, segment_at(survivors, place)
        for place in late:
            yield at + self._faults.draw_hold_up_s(), segment_at(survivors, place)

    def _survivors(self, train: Train) -> Train | None:
        left = None if self.is_cut else self._faults.survivors(train)
        if left is not train:
            self.segments_lost += train.count - (0 if left is None else left.count)
        return left

    def _queue(self, train: Train, now: float) -> Train | None:
        """Return what finds room in the queue, or None. The link is busy with it until `_free_at`."""
        bytes_per_s = self.rate_bps / 8
        waiting = max(0.0, self._free_at - now) * bytes_per_s
        fits = int(max(0.0, self.queue_bytes - waiting)) // train.segment_bytes
        count = train.count
        if fits < count:
            self.segments_dropped += count - fits
            if not fits:
                return None
            train = Train(train.data[: fits * train.segment_bytes], train.segment_bytes, train.address)
        self._free_at = max(self._free_at, now) + train.data.size / bytes_per_s
        return train

    def _changed(self) -> "Link":
        is_timed = bool(self.jitter_s) or self.rate_bps < math.inf
        self.is_plain = not is_timed and not self.is_cut and not self._faults
        return self
