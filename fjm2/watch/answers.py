"""Receivers as their answers show them: what they ask for again, and how long they take to confirm."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final

from fjm2.norm.core.wire import Position

RECEIVERS_MAX: Final = 4096
_SENDERS_MAX: Final = 64
"""That wait for one receiver."""
_ASKED_S: Final = 5.0
"""A sender that has not asked again for so long waits no more."""
_IN_VAIN_S: Final = 1.0
"""Who has been asked for less has probably answered, and the answer was lost on its way here. And who has never been
heard to answer may do so by unicast."""
FORGOTTEN_S: Final = 60.0
"""A receiver that has said nothing for so long."""


@dataclass(slots=True)
class _Awaited:
    """A place that a receiver is to confirm."""

    position: Position
    first_at: float
    last_at: float


@dataclass(slots=True)
class Receiver:
    """One node."""

    node_id: int
    nacks: int = 0
    requests: int = 0
    """Repairs asked for; one may be of a range of segments."""
    acks: int = 0
    heard_at: float = 0.0
    confirm_s: float | None = None
    """The longest that it took for a confirmation, of those since the last `settle`, or else the last one."""
    given_up_at: dict[int, float] = field(default_factory=dict)
    """When senders asked it for the last time, of those that stopped asking without having been answered."""
    _is_of_now: bool = False
    _awaited: dict[int, _Awaited] = field(default_factory=dict)
    """By the sender that waits."""

    def awaited_s(self, now: float) -> float | None:
        """For how long a sender has been waiting for it, if one is."""
        waits = [now - one.first_at for one in self._awaited.values() if now - one.last_at < _ASKED_S]
        return max(waits, default=None)

    def ask(self, sender_id: int, position: Position, now: float) -> None:
        """A sender wants everything up to a position confirmed."""
        awaited = self._awaited.get(sender_id)
        if awaited is not None and awaited.position == position:
            awaited.last_at = now
        elif awaited is not None or len(self._awaited) < _SENDERS_MAX:
            self._awaited[sender_id] = _Awaited(position, now, now)

    def confirm(self, sender_id: int, position: Position, now: float) -> None:
        """It has done so."""
        self.given_up_at.pop(sender_id, None)
        awaited = self._awaited.get(sender_id)
        if awaited is None or awaited.position != position:
            return
        del self._awaited[sender_id]
        took = now - awaited.first_at
        self.confirm_s = max(took, self.confirm_s or 0.0) if self._is_of_now else took
        self._is_of_now = True

    def settle(self, now: float) -> None:
        """What comes from now on belongs to another interval."""
        self._is_of_now = False
        for sender_id in [one for one, awaited in self._awaited.items() if now - awaited.last_at >= _ASKED_S]:
            awaited = self._awaited.pop(sender_id)
            is_vain = self.acks > 0 and awaited.last_at - awaited.first_at >= _IN_VAIN_S
            if is_vain and len(self.given_up_at) < _SENDERS_MAX:
                self.given_up_at[sender_id] = awaited.last_at


class Answers:
    """All receivers that were heard of."""

    def __init__(self) -> None:
        self._receivers: dict[int, Receiver] = {}

    @property
    def receivers(self) -> list[Receiver]:
        return list(self._receivers.values())

    def note_asked(self, sender_id: int, position: Position, nodes: tuple[int, ...], now: float) -> None:
        """A sender has asked these to confirm a position."""
        for node_id in nodes:
            receiver = self._receiver(node_id, now)
            if receiver is not None:
                receiver.ask(sender_id, position, now)

    def note_confirmed(self, sender_id: int, node_id: int, position: Position | None, now: float) -> None:
        """A receiver has answered; with a position, everything up to it has arrived there."""
        receiver = self._receiver(node_id, now)
        if receiver is not None:
            receiver.acks += 1
            receiver.heard_at = now
            if position is not None:
                receiver.confirm(sender_id, position, now)

    def note_missing(self, node_id: int, requests: int, now: float) -> None:
        """A receiver has asked for repairs."""
        receiver = self._receiver(node_id, now)
        if receiver is not None:
            receiver.nacks += 1
            receiver.requests += requests
            receiver.heard_at = now

    def forget(self, present: Set[int], now: float) -> None:
        """Those that are long gone, and are not among the nodes that are present."""
        for receiver in self.receivers:
            is_quiet = now - receiver.heard_at > FORGOTTEN_S and receiver.awaited_s(now) is None
            if is_quiet and receiver.node_id not in present:
                del self._receivers[receiver.node_id]

    def settle(self, now: float) -> None:
        """Begin a new interval."""
        for receiver in self._receivers.values():
            receiver.settle(now)

    def _receiver(self, node_id: int, now: float) -> Receiver | None:
        receiver = self._receivers.get(node_id)
        if receiver is None and len(self._receivers) < RECEIVERS_MAX:
            receiver = self._receivers[node_id] = Receiver(node_id, heard_at=now)
        return receiver
