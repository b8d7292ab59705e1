"""Choice of the receivers that each lane's flow control waits for: the known subscribers to the lane's topics, and
keepers.

A receiver whose topics are unknown is waited for once it answers. A receiver known to want other topics is not.
"""

import asyncio
from collections.abc import Callable

from fjm2.norm import Flow
from fjm2.norm.events import ReceiverFull, ReceiverReady

from .lane import Lane, Lanes
from .presence import PresenceTable
from .reports import BusReport
from .waiting.full_receivers import FullReceivers

_UPDATE_AFTER_S = 0.02
"""Delay of an update after a change of presence. All changes within this time share one update."""
_DISTRUST_S = 60.0
"""Time after the eviction of a receiver in which newcomers are waited for only once they answer. Announcements may be
forged, and a forged receiver could stop the sender until it is evicted."""


class AwaitedReceivers:
    """Tells the flow control of all lanes which receivers to wait for."""

    def __init__(
        self,
        lanes: Lanes,
        presence: PresenceTable,
        flow: Flow,
        on_updated: Callable[[], None],
        report: Callable[[BusReport], None],
    ) -> None:
        """Call `on_updated` after each update that `update_soon` scheduled."""
        self.full = FullReceivers(presence.names.of, report)
        """Receivers that are full, and that all lanes wait for."""
        self._lanes = lanes
        self._presence = presence
        self._flow = flow
        self._on_updated = on_updated
        self._loop = asyncio.get_running_loop()
        self._distrust_until = 0.0
        self._update_handle: asyncio.TimerHandle | None = None
        lanes.on_kept = self.update

    def subscribers_of(self, lane: Lane) -> frozenset[int]:
        """Return the ids of the nodes that are known to subscribe to what a lane sends."""
        if lane.wants_all:
            return frozenset(peer.node_id for peer in self._presence.peers if not peer.is_keeper)
        return self._presence.subscriber_nodes(lane.topics)

    def _wanting(self, lane: Lane) -> frozenset[int]:
        """Return the ids of the nodes that are known to want what a lane sends: subscribers, and keepers if they may
        have to keep it."""
        if not lane.is_kept:
            return self.subscribers_of(lane)
        if lane.wants_all:
            return frozenset(peer.node_id for peer in self._presence.peers)
        return self._presence.receivers(lane.topics)

    def update_soon(self) -> None:
        """Schedule an update for a moment later, unless one is scheduled already."""
        if self._update_handle is None and self._lanes.is_open:
            self._update_handle = self._loop.call_later(_UPDATE_AFTER_S, self._update_now)

    def _update_now(self) -> None:
        self._update_handle = None
        self.update()
        self._on_updated()

    def update(self) -> None:
        """Tell flow control which receivers to wait for: known subscribers and keepers, and all that answer,
        unless known to want other topics."""
        known = frozenset(peer.node_id for peer in self._presence.peers)
        for lane in self._lanes.with_streams:
            wanting = self._wanting(lane)
            lane.evicted &= known & lane.session.evicted_receivers
            for node in lane.confirmed_upto.keys() - known:
                del lane.confirmed_upto[node]
            named = wanting - lane.evicted - lane.session.stalled_receivers
            if self._loop.time() < self._distrust_until:
                named &= lane.named | lane.session.receivers
            joined = lane.session.receivers - lane.named - (known - wanting)
            lane.named = named
            lane.session.set_receivers(named | joined, known - wanting)

    def note_announced(self, node_id: int) -> None:
        """Wait for an evicted receiver again: it has announced itself. Only `flow=named` relies on announcements.

        One that made no progress must show some before.
        """
        if self._flow is Flow.NAMED:
            for lane in self._lanes.all:
                lane.evicted.discard(node_id)

    def note_evicted(self, lane: Lane, node_id: int) -> None:
        """Stop waiting for a receiver that was silent for too long."""
        lane.evicted.add(node_id)
        self.full.note_gone(node_id, self._loop.time())
        if self._flow is Flow.MIN:
            self._distrust_until = self._loop.time() + _DISTRUST_S
        self.update_soon()

    def note_full(self, lane: Lane, event: ReceiverFull | ReceiverReady) -> None:
        """Note that a receiver is full, or that it is full no longer."""
        note = self.full.note_full if isinstance(event, ReceiverFull) else self.full.note_ready
        note(lane.number, event.node_id, self._loop.time())

    def tick(self) -> None:
        """Report receivers that have been full for a while. Call this every second."""
        lanes = self._lanes.with_streams
        full = {(lane.number, node_id) for lane in lanes for node_id in lane.session.full_receivers}
        self.full.tick(full, self._loop.time())

    def forget(self, node_id: int) -> None:
        """Stop waiting for a receiver that has left."""
        self.full.note_gone(node_id, self._loop.time())
        for lane in self._lanes.with_streams:
            lane.session.forget_receiver(node_id)

    def close(self) -> None:
        if self._update_handle is not None:
            self._update_handle.cancel()
