"""Trains on the way to one peer: queued, paced, cut to what a packet carries, and sealed."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from fjm2.norm import Train

from .fragments import Splitter
from .link.liveness import Liveness
from .link.meter import LinkMeter
from .link.path import Path
from .link_queue import LinkQueue, Parcel
from .peer_stats import PeerStats
from .pieces import is_one_piece, pieces, wire_bytes
from .wire import OVERHEAD_BYTES, Drop

Bytes = NDArray[np.uint8]

Seal = Callable[[Bytes, int, int, int, int, float], Train | None]
"""Type of `Sealer.seal_train`."""


class Outbound:
    """Trains on the way to one peer. It is closed and empty until `open` is called."""

    __slots__ = (
        "_busy",
        "_is_open",
        "_liveness",
        "_meter",
        "_path",
        "_replan",
        "_seal",
        "_splitter",
        "_stats",
        "queue",
    )

    def __init__(
        self,
        queue: LinkQueue,
        path: Path,
        liveness: Liveness,
        meter: LinkMeter,
        stats: PeerStats,
        seal: Seal,
        busy: "dict[Outbound, None]",
        replan: Callable[[float], None],
    ) -> None:
        """`busy` gets this object while trains wait. `replan` is called when a probe is due sooner than before."""
        self.queue = queue
        self._path = path
        self._liveness = liveness
        self._meter = meter
        self._stats = stats
        self._seal = seal
        self._busy = busy
        self._replan = replan
        self._splitter = Splitter()
        self._is_open = False

    def open(self) -> None:
        """Accept trains from now on: the peer is up."""
        self._is_open = True

    def close(self) -> None:
        """Drop and count all trains that wait, and accept no more: the peer is down."""
        self._is_open = False
        self._stats.drops[Drop.NOT_UP] += self.queue.clear()
        self._busy.pop(self, None)

    def offer(
        self,
        kind: int,
        group: int,
        data: Bytes,
        segment_bytes: int,
        now: float,
        source: int,
        is_urgent: bool,
        hop_limit: int,
    ) -> None:
        """Queue a train. Datagrams that cannot be carried are dropped and counted."""
        path = self._path
        if not self._is_open:
            self._stats.drops[Drop.NOT_UP] += -(-data.size // segment_bytes)
            return
        cost = wire_bytes(segment_bytes, path.datagram_bytes, path.ip_bytes)
        if not cost:
            self._stats.drops[Drop.TOO_LONG] += -(-data.size // segment_bytes)
            return
        self.queue.offer(Parcel(data, segment_bytes, kind, group, hop_limit, source, is_urgent, cost))
        self._busy[self] = None
        if self._liveness.note_flow(now):
            self._replan(now)

    def pass_through(
        self, kind: int, group: int, data: Bytes, segment_bytes: int, now: float, hop_limit: int
    ) -> Train | None:
        """Return a train sealed without a copy if it may go at once and in one piece; otherwise None."""
        path = self._path
        if not self._is_open or not is_one_piece(data.size, segment_bytes, path.datagram_bytes):
            return None
        packet_bytes = segment_bytes + OVERHEAD_BYTES + path.ip_bytes
        if not self.queue.pass_by(-(-data.size // segment_bytes) * packet_bytes, packet_bytes, now):
            return None
        if self._liveness.note_flow(now):
            self._replan(now)
        return self._seal(data, segment_bytes, kind, group, hop_limit, now)

    def poll(self, now: float) -> Iterator[Train] | None:
        """Return the sealed trains of the parcel that may go next; None if none may."""
        parcel = self.queue.poll(now)
        if parcel is not None:
            return self._sealed(parcel, now)
        if not self.queue.queued_bytes:
            self._busy.pop(self, None)
            return None
        self._meter.note_limited()
        if self._liveness.note_limited(now):
            self._replan(now)
        return None

    def _sealed(self, parcel: Parcel, now: float) -> Iterator[Train]:
        room_bytes = self._path.datagram_bytes
        is_split = parcel.segment_bytes > room_bytes
        count = 0
        for piece in pieces(parcel, room_bytes, self._splitter):
            train = self._seal(piece.data, piece.segment_bytes, piece.kind, parcel.group, parcel.hop_limit, now)
            if train is None:
                return
            count += 1
            yield train
        if not count:  # the path has become too narrow since the parcel was queued
            self._stats.drops[Drop.TOO_LONG] += parcel.count
        elif is_split:
            self._stats.split += parcel.count
