"""Receivers as their answers show them: the repairs they request, and the time they take to confirm."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final

from fjm2.norm.core.wire import Extension, Position, Status, StatusFlag

RECEIVERS_MAX: Final = 4096
"""Greatest number of receivers that are remembered. It bounds the memory that forged node ids can take."""
_SENDERS_MAX: Final = 64
"""Greatest number of senders that may wait for one receiver. It bounds the memory that forged node ids can take."""
_ASKING_MAX_S: Final = 5.0
"""Time after its last request at which a sender counts as waiting no longer. Requests follow each other in GRTTs."""
_IN_VAIN_MIN_S: Final = 1.0
"""Shortest time for which a sender must have asked a receiver to count as having given up on it. After a shorter time,
the receiver probably answered, and the answer was lost on the way here. A receiver that was never heard may answer by
unicast."""
_FEW_NODES_MAX: Final = 8
"""Number of nodes that a sender asks together and that all confirm to the group. Of more, most confirm to it alone."""
_PRIVATE_REQUESTS_MAX: Final = 2
"""Requests for one position that a node of a crowd may have answered to the sender alone. Later answers are heard."""
FORGOTTEN_S: Final = 60.0
"""Time of silence after which a receiver is forgotten."""


@dataclass(slots=True)
class _Awaited:
    """A position that a receiver is asked to confirm."""

    position: Position
    first_at: float
    last_at: float
    is_crowd: bool
    """True if it was last asked together with many others."""
    requests: int = 1

    @property
    def may_be_confirmed(self) -> bool:
        """True if the receiver may have confirmed to the sender alone, which is not heard here."""
        return self.is_crowd and self.requests <= _PRIVATE_REQUESTS_MAX


@dataclass(slots=True)
class Receiver:
    """One receiving node."""

    node_id: int
    nacks: int = 0
    requests: int = 0
    """Number of repairs requested. One request may cover a range of segments."""
    acks: int = 0
    heard_at: float = 0.0
    confirm_s: float | None = None
    """Longest time that a confirmation took since the last `settle`, in seconds. If there was no confirmation, the time
    of the last one."""
    given_up_at: dict[int, float] = field(default_factory=dict)
    """Time at which each sender that gave up on this receiver last asked it, by the sender's node id."""
    is_full: bool = False
    """True if the last answer says that the application takes nothing at the moment."""
    _is_interval_confirmed: bool = False
    """True if `confirm_s` was measured since the last `settle`."""
    _awaited: dict[int, _Awaited] = field(default_factory=dict)
    """Positions that senders wait for this receiver to confirm, by the sender's node id."""

    def awaited_s(self, now: float) -> float | None:
        """Return the longest time that a sender has been waiting for a confirmation, in seconds; None if no sender
        waits."""
        waits = (
            now - one.first_at
            for one in self._awaited.values()
            if now - one.last_at < _ASKING_MAX_S and not one.may_be_confirmed
        )
        return max(waits, default=None)

    def ask(self, sender_id: int, position: Position, is_crowd: bool, now: float) -> None:
        """Note that a sender asks the receiver to confirm everything up to a position, perhaps as one of a crowd."""
        awaited = self._awaited.get(sender_id)
        if awaited is not None and awaited.position == position:
            awaited.last_at, awaited.is_crowd = now, is_crowd
            awaited.requests += 1
        elif awaited is not None or len(self._awaited) < _SENDERS_MAX:
            self._awaited[sender_id] = _Awaited(position, now, now, is_crowd)

    def confirm(self, sender_id: int, position: Position, now: float) -> None:
        """Note that the receiver confirmed a position to a sender."""
        self.given_up_at.pop(sender_id, None)
        awaited = self._awaited.get(sender_id)
        if awaited is None or awaited.position != position:
            return
        del self._awaited[sender_id]
        took = now - awaited.first_at
        self.confirm_s = max(took, self.confirm_s or 0.0) if self._is_interval_confirmed else took
        self._is_interval_confirmed = True

    def settle(self, now: float) -> None:
        """End an interval of reports, and note the senders that have given up on this receiver."""
        self._is_interval_confirmed = False
        for sender_id in [one for one, awaited in self._awaited.items() if now - awaited.last_at >= _ASKING_MAX_S]:
            awaited = self._awaited.pop(sender_id)
            is_vain = self.acks > 0 and awaited.last_at - awaited.first_at >= _IN_VAIN_MIN_S
            if is_vain and not awaited.may_be_confirmed and len(self.given_up_at) < _SENDERS_MAX:
                self.given_up_at[sender_id] = awaited.last_at


class Answers:
    """All receivers that answered, or were asked to confirm."""

    def __init__(self) -> None:
        self._receivers: dict[int, Receiver] = {}

    @property
    def receivers(self) -> list[Receiver]:
        return list(self._receivers.values())

    def note_asked(self, sender_id: int, position: Position, nodes: tuple[int, ...], now: float) -> None:
        """Note that a sender asked nodes to confirm a position."""
        for node_id in nodes:
            receiver = self._receiver(node_id, now)
            if receiver is not None:
                receiver.ask(sender_id, position, len(nodes) > _FEW_NODES_MAX, now)

    def note_confirmed(self, sender_id: int, node_id: int, position: Position | None, now: float) -> None:
        """Note a confirmation by a receiver. If a position is given, everything up to it has arrived."""
        receiver = self._receiver(node_id, now)
        if receiver is not None:
            receiver.acks += 1
            receiver.heard_at = now
            if position is not None:
                receiver.confirm(sender_id, position, now)

    def note_missing(self, node_id: int, requests: int, now: float) -> None:
        """Note a NACK of a receiver, with the number of repairs that it requests."""
        receiver = self._receiver(node_id, now)
        if receiver is not None:
            receiver.nacks += 1
            receiver.requests += requests
            receiver.heard_at = now

    def note_status(self, node_id: int, extensions: tuple[Extension, ...]) -> None:
        """Note what the extensions of an answer say about the receiver."""
        receiver = self._receivers.get(node_id)
        status = next((each for each in extensions if isinstance(each, Status)), None)
        if receiver is not None and status is not None:
            receiver.is_full = bool(status.flags & StatusFlag.FULL)

    def forget(self, present: Set[int], now: float) -> None:
        """Forget receivers that have been silent for long, unless they are nodes of members of the bus."""
        for receiver in self.receivers:
            is_quiet = now - receiver.heard_at > FORGOTTEN_S and receiver.awaited_s(now) is None
            if is_quiet and receiver.node_id not in present:
                del self._receivers[receiver.node_id]

    def settle(self, now: float) -> None:
        """End an interval of reports for all receivers."""
        for receiver in self._receivers.values():
            receiver.settle(now)

    def _receiver(self, node_id: int, now: float) -> Receiver | None:
        receiver = self._receivers.get(node_id)
        if receiver is None and len(self._receivers) < RECEIVERS_MAX:
            receiver = self._receivers[node_id] = Receiver(node_id, heard_at=now)
        return receiver
