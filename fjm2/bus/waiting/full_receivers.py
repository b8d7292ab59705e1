"""Receivers of other processes that are full, and hold our senders up: each is reported once, and once at its end."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from fjm2.bus.losses.names import PeerName
from fjm2.bus.reports import BusReport, SubscriberFull, SubscriberReady

REPORTED_AFTER_S: Final = 1.0
"""Time for which a receiver holds us up before it is reported."""
ENDS_AFTER_S: Final = 3.0
"""Time for which a receiver must not be full before that is reported. A slow one is full most of the time."""


@dataclass(slots=True)
class _Episode:
    """A time in which a receiver is full again and again."""

    began_at: float
    lanes: set[int] = field(default_factory=set)
    """Numbers of the lanes that it holds up now."""
    full_s: float = 0.0
    """Time for which it was full before `full_since`."""
    full_since: float = 0.0
    """Time at which it became full, if `lanes` is not empty."""
    room_at: float = 0.0
    """Time at which it stopped being full, if `lanes` is empty."""
    is_reported: bool = False

    def full_s_until(self, now: float) -> float:
        return self.full_s + (now - self.full_since if self.lanes else 0.0)


class FullReceivers:
    """Receivers that flow control waits for, and whose application takes nothing at the moment."""

    def __init__(self, name_of: Callable[[int], PeerName], report: Callable[[BusReport], None]) -> None:
        self._name_of = name_of
        self._report = report
        self._episodes: dict[int, _Episode] = {}

    @property
    def count(self) -> int:
        """Number of receivers that are full now."""
        return sum(bool(episode.lanes) for episode in self._episodes.values())

    def note_full(self, lane: int, node_id: int, now: float) -> None:
        """Note that a receiver holds a lane up."""
        episode = self._episodes.get(node_id)
        if episode is None:
            episode = self._episodes[node_id] = _Episode(now)
        if not episode.lanes:
            episode.full_since = now
        episode.lanes.add(lane)

    def note_ready(self, lane: int, node_id: int, now: float) -> None:
        """Note that a receiver no longer holds a lane up."""
        episode = self._episodes.get(node_id)
        if episode is not None and lane in episode.lanes:
            full_s = episode.full_s_until(now)
            episode.lanes.discard(lane)
            if not episode.lanes:
                episode.full_s, episode.room_at = full_s, now

    def note_gone(self, node_id: int, now: float) -> None:
        """Note that nobody waits for a receiver any more: it has left, or was given up."""
        episode = self._episodes.pop(node_id, None)
        if episode is not None and episode.is_reported:
            self._end(node_id, episode, now, is_gone=True)

    def tick(self, full: Collection[tuple[int, int]], now: float) -> None:
        """Report what is due. `full` has the lane and node of all receivers that are full. Call this every second."""
        for node_id, episode in list(self._episodes.items()):
            for lane in [lane for lane in episode.lanes if (lane, node_id) not in full]:
                self.note_ready(lane, node_id, now)
            if not episode.is_reported and episode.full_s_until(now) >= REPORTED_AFTER_S:
                episode.is_reported = True
                self._report(SubscriberFull(node_id, self._name_of(node_id), episode.full_s_until(now)))
            if not episode.lanes and now - episode.room_at >= ENDS_AFTER_S:
                del self._episodes[node_id]
                if episode.is_reported:
                    self._end(node_id, episode, episode.room_at, is_gone=False)

    def _end(self, node_id: int, episode: _Episode, now: float, is_gone: bool) -> None:
        full_s, within_s = episode.full_s_until(now), now - episode.began_at
        self._report(SubscriberReady(node_id, self._name_of(node_id), full_s, within_s, is_gone))
