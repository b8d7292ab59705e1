"""The sessions with one peer: the current one, the one before, and the one that may come next."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..session import Session
from ..session_owner import SessionOwner
from ..workspace import Workspace
from .handshake import Agreed

NEVER = math.inf
REKEY_DATAGRAMS = 1 << 32
"""Renew the keys after this many datagrams, far below the 2**40 counters of an epoch."""
OVERLAP_S = 5.0
"""Time for which datagrams of the previous epoch are accepted: longer than any datagram is on its way."""
_LIFETIME_INTERVALS = 1.5
"""Lifetime of keys in renewal intervals: half an interval is left for renewals that fail."""
_RESPONDER_INTERVALS = 1.08
"""Renewal interval of the side that answered the last handshake: a little longer, so that not both renew at once."""


@dataclass(slots=True)
class Epoch:
    """A session and its lifetime."""

    session: Session
    began_at: float
    is_ours: bool
    """True if we began the handshake."""
    ends_at: float


class Epochs:
    """The sessions with one peer, which the endpoint finds by their indexes for as long as they are accepted."""

    __slots__ = ("_indexes", "_owner", "_rekey_s", "_workspace", "current", "next", "previous")

    def __init__(
        self, owner: SessionOwner, indexes: dict[int, SessionOwner], workspace: Workspace, rekey_s: float
    ) -> None:
        """`indexes` is the endpoint's table, in which `owner` is entered under each session's index."""
        self._owner = owner
        self._indexes = indexes
        self._workspace = workspace
        self._rekey_s = rekey_s
        self.current: Epoch | None = None
        """The epoch that datagrams are sent with."""
        self.previous: Epoch | None = None
        self.next: Epoch | None = None
        """An epoch whose handshake we answered, and which the peer has not used yet."""

    def find(self, index: int) -> Epoch | None:
        """Return the epoch with a session index."""
        for epoch in (self.current, self.next, self.previous):
            if epoch is not None and epoch.session.index == index:
                return epoch
        return None

    def add_answered(self, agreed: Agreed, now: float) -> None:
        """Keep the session of a handshake that we answered as the next one. It waits until the peer uses it."""
        self._drop(self.next)
        self.next = self._begin(agreed, now, is_ours=False)

    def add_completed(self, agreed: Agreed, now: float) -> None:
        """Make the session of a handshake that the peer answered the current one."""
        self._drop(self.next)
        self.next = None
        self._adopt(self._begin(agreed, now, is_ours=True), now)

    def adopt_next(self, now: float) -> None:
        """Make the next epoch the current one: the peer has begun to use it."""
        if self.next is not None:
            epoch, self.next = self.next, None
            self._adopt(epoch, now)

    def expire(self, now: float) -> bool:
        """Forget epochs that have ended. Return True if the current one was among them."""
        for epoch in self._all():
            if now >= epoch.ends_at:
                self._drop(epoch)
        if self.previous is not None and now >= self.previous.ends_at:
            self.previous = None
        if self.next is not None and now >= self.next.ends_at:
            self.next = None
        if self.current is not None and now >= self.current.ends_at:
            self.current = None
            return True
        return False

    def forget(self) -> None:
        """Forget all epochs."""
        for epoch in self._all():
            self._drop(epoch)
        self.current = self.previous = self.next = None

    def rekey_at(self) -> float:
        """Return the time at which to renew the current keys; infinite if there are none."""
        epoch = self.current
        if epoch is None:
            return NEVER
        if max(epoch.session.sent, epoch.session.newest) >= REKEY_DATAGRAMS:
            return -NEVER
        return epoch.began_at + self._rekey_s * (1.0 if epoch.is_ours else _RESPONDER_INTERVALS)

    def end_at(self) -> float:
        """Return the time at which the first of the epochs ends; infinite if there are none."""
        return min((epoch.ends_at for epoch in self._all()), default=NEVER)

    def _all(self) -> Iterator[Epoch]:
        return (epoch for epoch in (self.current, self.next, self.previous) if epoch is not None)

    def _begin(self, agreed: Agreed, now: float, *, is_ours: bool) -> Epoch:
        keys = agreed.send_key, agreed.receive_key
        session = Session(*keys, agreed.index, agreed.remote_index, self._workspace)
        self._indexes[agreed.index] = self._owner
        return Epoch(session, now, is_ours, now + self._rekey_s * _LIFETIME_INTERVALS)

    def _adopt(self, epoch: Epoch, now: float) -> None:
        self._drop(self.previous)
        self.previous, self.current = self.current, epoch
        if self.previous is not None:
            self.previous.ends_at = min(self.previous.ends_at, now + OVERLAP_S)

    def _drop(self, epoch: Epoch | None) -> None:
        if epoch is not None:
            self._indexes.pop(epoch.session.index, None)
