"""The sessions that there are with one peer: the one of today, the one before, and the one that may be next."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..session import Session
from ..workspace import Workspace
from .handshake import Agreed

NEVER = math.inf
REKEY_DATAGRAMS = 1 << 32
OVERLAP_S = 5.0
"""So long after a new epoch has begun, what is still under way of the old one is accepted."""
_LIFETIME = 1.5
"""In times between renewals: the end of keys that could not be renewed."""
_RESPONDER = 1.08
"""In the same: the side that answered the last handshake leaves the next one to the other a little longer."""

_Owner = TypeVar("_Owner")


@dataclass(slots=True)
class Epoch:
    """A session and its time."""

    session: Session
    began_at: float
    is_ours: bool
    """Whether we began the handshake."""
    ends_at: float


class Epochs(Generic[_Owner]):
    """Their indexes stand in a table of the endpoint's for as long as they are accepted."""

    __slots__ = ("_indexes", "_owner", "_rekey_s", "_workspace", "current", "next", "previous")

    def __init__(self, owner: _Owner, indexes: dict[int, _Owner], workspace: Workspace, rekey_s: float) -> None:
        self._owner = owner
        self._indexes = indexes
        self._workspace = workspace
        self._rekey_s = rekey_s
        self.current: Epoch | None = None
        """What we send with."""
        self.previous: Epoch | None = None
        self.next: Epoch | None = None
        """Answered by us, and not used by the other side yet."""

    def find(self, index: int) -> Epoch | None:
        """Whose index it is."""
        for epoch in (self.current, self.next, self.previous):
            if epoch is not None and epoch.session.index == index:
                return epoch
        return None

    def answered(self, agreed: Agreed, now: float) -> None:
        """We have answered a handshake."""
        self._drop(self.next)
        self.next = self._begin(agreed, now, is_ours=False)

    def completed(self, agreed: Agreed, now: float) -> None:
        """A handshake of ours has been answered: that is what is sent with from now on."""
        self._drop(self.next)
        self.next = None
        self._adopt(self._begin(agreed, now, is_ours=True), now)

    def confirmed(self, now: float) -> None:
        """The other side uses the next epoch: so do we."""
        if self.next is not None:
            epoch, self.next = self.next, None
            self._adopt(epoch, now)

    def expire(self, now: float) -> bool:
        """Forget keys whose time is over. Whether those of today were among them."""
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
        """Forget all keys."""
        for epoch in self._all():
            self._drop(epoch)
        self.current = self.previous = self.next = None

    def rekey_at(self) -> float:
        """When to renew the keys of today."""
        epoch = self.current
        if epoch is None:
            return NEVER
        if max(epoch.session.sent, epoch.session.newest) >= REKEY_DATAGRAMS:
            return -NEVER
        return epoch.began_at + self._rekey_s * (1.0 if epoch.is_ours else _RESPONDER)

    def end_at(self) -> float:
        """When the first of them ends."""
        return min((epoch.ends_at for epoch in self._all()), default=NEVER)

    def _all(self) -> Iterator[Epoch]:
        return (epoch for epoch in (self.current, self.next, self.previous) if epoch is not None)

    def _begin(self, agreed: Agreed, now: float, *, is_ours: bool) -> Epoch:
        keys = agreed.send_key, agreed.receive_key
        session = Session(*keys, agreed.index, agreed.remote_index, self._workspace)
        self._indexes[agreed.index] = self._owner
        return Epoch(session, now, is_ours, now + self._rekey_s * _LIFETIME)

    def _adopt(self, epoch: Epoch, now: float) -> None:
        self._drop(self.previous)
        self.previous, self.current = self.current, epoch
        if self.previous is not None:
            self.previous.ends_at = min(self.previous.ends_at, now + OVERLAP_S)

    def _drop(self, epoch: Epoch | None) -> None:
        if epoch is not None:
            self._indexes.pop(epoch.session.index, None)
