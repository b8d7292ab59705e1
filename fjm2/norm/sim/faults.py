"""Faults of links in the simulated network: losses, duplicates and delays, which are the same for the same seed."""

import math
from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Protocol

import numpy as np

from fjm2.base.errors import ConfigError
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import MessageType

from .segments import segment_at, without_segments


class Loss(Protocol):
    """Interface of the ways in which a link loses segments."""

    def among(self, train: Train) -> Sequence[int]:
        """Return the places, in a train, of the segments that are lost, in ascending order."""
        ...


class RandomLoss:
    """Loses each segment with the same probability. For speed, it draws the number of segments until the next loss."""

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
        """Draw the number of segments that come through before the next one is lost."""
        return int(math.log(1.0 - self._random.random()) / self._scale)


class BurstLoss:
    """Loses segments in bursts, by Gilbert's model: in good times everything comes through, in bad times nothing."""

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
        """Draw the number of segments until the state changes: geometric with the state's mean, at least 1."""
        mean = self._means[self._is_bad]
        if mean <= 1:
            return 1
        return 1 + int(math.log(1.0 - self._random.random()) / math.log1p(-1 / mean))


class ScriptedLoss:
    """Loses the DATA messages with given numbers, counted from 0. Other messages are neither counted nor lost."""

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
    """Loses the datagrams for which a function returns True."""

    __slots__ = ("_where",)

    def __init__(self, where: Callable[[bytes], bool]) -> None:
        self._where = where

    def among(self, train: Train) -> Sequence[int]:
        return [place for place in range(train.count) if self._where(segment_at(train, place).data.tobytes())]


class Faults:
    """Everything that goes wrong on one link, except for a full queue."""

    __slots__ = ("_doubled", "_held_up", "_held_up_s", "_losses", "_random")

    def __init__(self, random: Random) -> None:
        self._random = random
        self._losses: list[Loss] = []
        self._doubled: RandomLoss | None = None
        self._held_up: RandomLoss | None = None
        self._held_up_s = 0.0

    def __bool__(self) -> bool:
        """Return True if any fault is set."""
        return bool(self._losses) or self._doubled is not None or self._held_up is not None

    def lose(
        self,
        fraction: float,
        burst: float,
        segments: Collection[int] | None,
        where: Callable[[bytes], bool] | None,
    ) -> None:
        """Add losses; see `Link.lose`."""
        _check_fraction(fraction)
        if fraction and burst > 1 and fraction < 1:
            self._losses.append(BurstLoss(self._random, fraction, burst))
        elif fraction:
            self._losses.append(RandomLoss(self._random, fraction))
        if segments is not None:
            self._losses.append(ScriptedLoss(segments))
        if where is not None:
            self._losses.append(ChosenLoss(where))

    def duplicate(self, fraction: float) -> None:
        """Duplicate a fraction of all segments from now on."""
        _check_fraction(fraction)
        self._doubled = RandomLoss(self._random, fraction) if fraction else None

    def reorder(self, fraction: float, by_s: float) -> None:
        """Delay a fraction of all segments from now on, each by a random time of at most `by_s` seconds."""
        _check_fraction(fraction)
        self._held_up = RandomLoss(self._random, fraction) if fraction else None
        self._held_up_s = by_s

    def clear(self) -> None:
        """Remove all faults."""
        self._losses.clear()
        self._doubled = self._held_up = None

    def survivors(self, train: Train) -> Train | None:
        """Return the part of a train that is not lost, or None if the whole train is lost."""
        left: Train | None = train
        for loss in self._losses:
            lost = loss.among(left) if left is not None else ()
            if lost and left is not None:
                left = without_segments(left, lost)
        return left

    def doubled(self, train: Train) -> Sequence[int]:
        """Return the places, in a train, of the segments that are duplicated."""
        return self._doubled.among(train) if self._doubled is not None else ()

    def held_up(self, train: Train) -> Sequence[int]:
        """Return the places, in a train, of the segments that are delayed."""
        return self._held_up.among(train) if self._held_up is not None else ()

    def draw_hold_up_s(self) -> float:
        """Draw the time in seconds by which one segment is delayed."""
        return self._random.uniform(0.0, self._held_up_s)


def _check_fraction(value: float) -> None:
    if not 0 <= value <= 1:
        raise ConfigError(f"fraction={value}: expected 0 to 1")
