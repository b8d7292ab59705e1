"""Sealing of all datagrams for one peer, with the keys of its current epoch."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fjm2.norm import Address, Train

from ..kinds import Kind
from .crypto.epochs import Epochs
from .link.path import Path
from .peer_stats import PeerStats
from .session import CounterExhausted, Session
from .wire import GROUP_NONE, OVERHEAD_BYTES


class Sealer:
    """Sealing of trains and probes for one peer. It counts the sealed datagrams as sent."""

    __slots__ = ("_epochs", "_on_exhausted", "_path", "_stats")

    def __init__(self, epochs: Epochs, path: Path, stats: PeerStats, on_exhausted: Callable[[float], None]) -> None:
        """`on_exhausted` is called, with the time, when the current keys have no counters left."""
        self._epochs = epochs
        self._path = path
        self._stats = stats
        self._on_exhausted = on_exhausted

    @property
    def session(self) -> Session | None:
        """The session to send with; None if there is none, or no address to send to."""
        epoch = self._epochs.current
        return None if epoch is None or self._path.address is None else epoch.session

    def seal_train(
        self, data: NDArray[np.uint8], segment_bytes: int, kind: int, group: int, hop_limit: int, now: float
    ) -> Train | None:
        """Seal a train that one send can take. Return None if there is no session any more.

        The result is borrowed until the next train is sealed.
        """
        epoch, address = self._epochs.current, self._path.address
        if epoch is None or address is None:
            return None
        session = epoch.session
        before = session.sent
        try:
            sealed = session.seal_train(data, segment_bytes, kind, group, hop_limit)
        except CounterExhausted:
            self._on_exhausted(now)
            return None
        self._stats.note_sent(session.sent - before, sealed.size)
        return Train(sealed, min(segment_bytes + OVERHEAD_BYTES, sealed.size), address)

    def seal_probe(self, content: bytes, now: float) -> tuple[Address, bytes] | None:
        """Return a sealed probe with its destination; None if there is no session. The result is not borrowed."""
        epoch, address = self._epochs.current, self._path.address
        if epoch is None or address is None:
            return None
        try:
            sealed = bytes(epoch.session.seal_one(content, Kind.PROBE, GROUP_NONE, 0))
        except CounterExhausted:
            self._on_exhausted(now)
            return None
        self._stats.note_sent(1, len(sealed))
        return address, sealed
