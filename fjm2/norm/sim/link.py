"""Links of the simulated network (`sim`): what they lose, double, delay and hold up, always alike for the same seed."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random
from typing import Protocol

import numpy as np

from fjm2.base.errors import ConfigError
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import MessageType

QUEUE_BYTES = 1 << 20
"""What waits before a link of limited rate; more is lost, as in a switch."""


class Place:
    """Where links meet. What comes by one of them goes on by all others."""

    def __init__(self, name: str) -> None:
        self.name = name
        """For people."""
        self.links: list[Link] = []
        """The ways out."""
        self.group = self
        """Leads, perhaps over others, to one place that stands for all that this one has a way to."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Router(Place):
    """A place where nobody listens. What is lost on the way to it is lost for all behind it."""


class Loss(Protocol):
    """A way of losing segments."""

    def among(self, train: Train) -> Sequence[int]:
        """Which of a train's segments are lost: their places in it, ascending."""
        ...


class RandomLoss:
    """Each segment for itself. Lossless stretches are drawn as such, so that they cost nothing."""

    __slots__ = ("_left", "_random", "_scale")

    def __init__(self, random: Random, fraction: float) -> None:
        self._random = random
        self._scale = math.log1p(-fraction) if fraction < 1 else -math.inf
        self._left = self._stretch()

    def among(self, train: Train) -> Sequence[int]:
        at, count = self._left, train.count
        if at >= count:
            self._left = at - count
            return ()
        lost: list[int] = []
        while at < count:
            lost.append(at)
            at += 1 + self._stretch()
        self._left = at - count
        return lost

    def _stretch(self) -> int:
        """Segments that come through before the next one is lost."""
        return int(math.log(1.0 - self._random.random()) / self._scale)


class BurstLoss:
    """Gilbert's model: good times in which all comes through, and bad ones in which nothing does."""

    __slots__ = ("_is_bad", "_left", "_means", "_random")

    def __init__(self, random: Random, fraction: float, burst: float) -> None:
        self._random = random
        self._means = (burst * (1 - fraction) / fraction, burst)
        self._is_bad = False
        self._left = self._stretch()

    def among(self, train: Train) -> Sequence[int]:
        lost: list[int] = []
        at, count = 0, train.count
        while at < count:
            step = min(self._left, count - at)
            if self._is_bad:
                lost.extend(range(at, at + step))
            at += step
            self._left -= step
            if not self._left:
                self._is_bad = not self._is_bad
                self._left = self._stretch()
        return lost

    def _stretch(self) -> int:
        """Segments in a row that fare alike: a geometric distribution with the state's mean, 1 at least."""
        mean = self._means[self._is_bad]
        if mean <= 1:
            return 1
        return 1 + int(math.log(1.0 - self._random.random()) / math.log1p(-1 / mean))


class ScriptedLoss:
    """Certain DATA, counted from 0 as they come along this link; other messages are neither counted nor lost."""

    __slots__ = ("_count", "_segments")

    def __init__(self, segments: Collection[int]) -> None:
        self._segments = segments
        self._count = 0

    def among(self, train: Train) -> Sequence[int]:
        kinds = train.data[:: train.segment_bytes] & 0x0F
        places = np.flatnonzero(kinds == MessageType.DATA).tolist()
        first = self._count
        self._count += len(places)
        return [place for number, place in enumerate(places, first) if number in self._segments]


class ChosenLoss:
    """Those datagrams that a function says yes to."""

    __slots__ = ("_where",)

    def __init__(self, where: Callable[[bytes], bool]) -> None:
        self._where = where

    def among(self, train: Train) -> Sequence[int]:
        return [place for place in range(train.count) if self._where(segment(train, place).data.tobytes())]


class Link:
    """One way from one place to the next. What comes as a train leaves as a train, with gaps where segments were lost.

    The methods that make it worse give the link back, so that they can be chained.
    """

    __slots__ = (
        "_doubled",
        "_free_at",
        "_held_up",
        "_held_up_s",
        "_last_at",
        "_losses",
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
        """Where it begins."""
        self.end = end
        """Where it leads."""
        self.back = self
        """The other way."""
        self.delay_s = delay_s
        """How long each segment takes."""
        self.jitter_s = 0.0
        """How much longer it may take."""
        self.rate_bps = math.inf
        """Bits per second."""
        self.queue_bytes = QUEUE_BYTES
        """What may wait before it."""
        self.is_cut = False
        """Whether it loses everything."""
        self.is_plain = True
        """Whether all comes through, whole and in the same time."""
        self.segments_lost = 0
        """On purpose, as told."""
        self.segments_dropped = 0
        """By the queue, for want of room."""
        self._random = random
        self._losses: list[Loss] = []
        self._doubled: RandomLoss | None = None
        self._held_up: RandomLoss | None = None
        self._held_up_s = 0.0
        self._free_at = -math.inf
        self._last_at = -math.inf

    def lose(
        self,
        fraction: float = 0.0,
        *,
        burst: float = 1.0,
        segments: Collection[int] | None = None,
        where: Callable[[bytes], bool] | None = None,
    ) -> "Link":
        """Lose segments, besides those lost already: a fraction, certain DATA, or what a function chooses.

        A `burst` above 1 is the mean number of segments lost in a row. `segments` are numbers of DATA as they come
        along this link from now on, the first being 0.
        """
        _check_fraction("fraction", fraction)
        if fraction and burst > 1 and fraction < 1:
            self._losses.append(BurstLoss(self._random, fraction, burst))
        elif fraction:
            self._losses.append(RandomLoss(self._random, fraction))
        if segments is not None:
            self._losses.append(ScriptedLoss(segments))
        if where is not None:
            self._losses.append(ChosenLoss(where))
        return self._changed()

    def duplicate(self, fraction: float) -> "Link":
        """Let a fraction of all segments come twice, the second time behind their train."""
        _check_fraction("fraction", fraction)
        self._doubled = RandomLoss(self._random, fraction) if fraction else None
        return self._changed()

    def reorder(self, fraction: float, by_s: float) -> "Link":
        """Hold a fraction of all segments up for up to `by_s`, so that later ones overtake them."""
        _check_fraction("fraction", fraction)
        self._held_up = RandomLoss(self._random, fraction) if fraction else None
        self._held_up_s = by_s
        return self._changed()

    def shape(
        self,
        *,
        delay_s: float | None = None,
        jitter_s: float | None = None,
        rate_bps: float | None = None,
        queue_bytes: int | None = None,
    ) -> "Link":
        """How long things take: a delay, up to `jitter_s` more (which keeps their order), and a rate with its queue."""
        self.delay_s = self.delay_s if delay_s is None else delay_s
        self.jitter_s = self.jitter_s if jitter_s is None else jitter_s
        self.rate_bps = self.rate_bps if rate_bps is None else rate_bps
        self.queue_bytes = self.queue_bytes if queue_bytes is None else queue_bytes
        return self._changed()

    def cut(self) -> "Link":
        """Lose everything, until it is mended."""
        self.is_cut = True
        return self._changed()

    def mend(self) -> "Link":
        """Lose, double and reorder nothing any more. Delay, jitter and rate stay."""
        self.is_cut = False
        self._losses.clear()
        self._doubled = self._held_up = None
        return self._changed()

    def carry(self, train: Train, now: float) -> Iterator[tuple[float, Train]]:
        """What arrives of a train at the other end, and when. The train itself, where nothing happens to it."""
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
        doubled = self._doubled.among(survivors) if self._doubled is not None else ()
        late = self._held_up.among(survivors) if self._held_up is not None else ()
        punctual = without(survivors, late) if late else survivors
        if punctual is not None:
            yield at, punctual
        for place in doubled:
            yield at, segment(survivors, place)
        for place in late:
            yield at + self._random.uniform(0.0, self._held_up_s), segment(survivors, place)

    def _survivors(self, train: Train) -> Train | None:
        if self.is_cut:
            self.segments_lost += train.count
            return None
        left: Train | None = train
        for loss in self._losses:
            lost = loss.among(left) if left is not None else ()
            if lost and left is not None:
                self.segments_lost += len(lost)
                left = without(left, lost)
        return left

    def _queue(self, train: Train, now: float) -> Train | None:
        """What finds room in the queue; the link is busy with it until `_free_at`."""
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
        is_faulty = self.is_cut or self._losses or self._doubled is not None or self._held_up is not None
        self.is_plain = not is_timed and not is_faulty
        return self


def segment(train: Train, place: int) -> Train:
    """One of a train's datagrams, as a train of its own."""
    start = place * train.segment_bytes
    data = train.data[start : start + train.segment_bytes]
    return Train(data, data.size, train.address)


def without(train: Train, places: Sequence[int]) -> Train | None:
    """A train with some of its segments taken out; None if none is left."""
    is_kept = np.ones(train.count, np.bool_)
    is_kept[list(places)] = False
    if not is_kept.any():
        return None
    size = train.segment_bytes
    full = train.data.size // size
    data = train.data[: full * size].reshape(full, size)[is_kept[:full]].reshape(-1)
    if full < len(is_kept) and is_kept[full]:
        tail = train.data[full * size :]
        data = np.concatenate((data, tail))
        size = size if is_kept[:full].any() else tail.size
    return Train(data, size, train.address)


def _check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"{name}={value}: expected 0 to 1")
