"""Places of the simulated network (`sim`), and the links between them."""

import math
from collections.abc import Callable, Collection, Iterator
from random import Random
from typing import Final

from fjm2.norm.core.train import Train

from .faults import Faults
from .segments import segment_at, without_segments

QUEUE_BYTES: Final = 1 << 20
"""Bytes that may wait for a link of limited rate, as in a switch. Segments that do not fit are lost."""


class Place:
    """A point where links meet. A train that arrives by one link goes on by all others."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Name of the place, for people to read."""
        self.links: list[Link] = []
        """Links that begin here."""
        self.group = self
        """Another place of the same tree, or this one. Following `group` leads to the one that represents the tree."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Router(Place):
    """A place without a node. A segment lost on the way to a router is lost for all nodes behind it."""


class Link:
    """Connection from one place to the next, in one direction. A train arrives as one train, without the segments lost.

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
        """Place where the link ends."""
        self.back = self
        """Link between the same places in the other direction."""
        self.delay_s = delay_s
        """Seconds that each segment takes."""
        self.jitter_s = 0.0
        """Maximum number of seconds that a segment may take in addition to the delay."""
        self.rate_bps = math.inf
        """Rate of the link in bits per second; infinity for no limit."""
        self.queue_bytes = QUEUE_BYTES
        """Bytes that may wait for the link."""
        self.is_cut = False
        """True while the link loses everything."""
        self.is_plain = True
        """True if all segments come through, after the same delay."""
        self.segments_lost = 0
        """Segments lost because of `lose` or `cut`."""
        self.segments_dropped = 0
        """Segments lost because the queue was full."""
        self._random = random
        self._faults = Faults(random)
        self._free_at = -math.inf
        """Time at which the link will have sent everything in its queue."""
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

        A `burst` above 1 is the mean number of segments lost in a row. `segments` are numbers of DATA messages on
        this link, counted from 0 from now on.
        """
        self._faults.lose(fraction, burst, segments, where)
        return self._changed()

    def duplicate(self, fraction: float) -> "Link":
        """Deliver a fraction of all segments twice, the second time after their train."""
        self._faults.duplicate(fraction)
        return self._changed()

    def reorder(self, fraction: float, by_s: float) -> "Link":
        """Delay a fraction of all segments by up to `by_s` seconds, so that later ones overtake them."""
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
        """Set the delay, the jitter, the rate and the length of the queue. None leaves a value as it is.

        Each train takes up to `jitter_s` seconds more than the delay. The order of trains is kept.
        """
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
        """Yield the time of arrival and the content of each part of a train that arrives at the other end.

        If nothing happens to the train, the only part is `train` itself.
        """
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
        """Return the part of a train that finds room in the queue, or None. The link is then busy until `_free_at`."""
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
