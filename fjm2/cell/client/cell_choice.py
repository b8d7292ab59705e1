"""Choice of the heartbeats to believe: an open bus has forged ones, and after a mistake two cells."""

from enum import Enum, auto
from typing import Final

from ..configuration import NUMBERS_OF_AN_EPOCH
from ..election import is_plausible
from ..wire.commands import Heartbeat, HeartbeatFlag, HeartbeatMember, MemberFlag

LOST_S: Final = 10.0
"""Time in which nothing was believed, after which anything is that a manager may send: three takeovers."""
LEAP_MAX: Final = 1 << 20
"""Furthest that a table may be ahead to be believed: a change a second for twelve days. A forged version that nobody
reaches would keep sends waiting for ever."""


class Drop(Enum):
    """Reasons for which messages are dropped."""

    MALFORMED = auto()
    NOT_SERVING = auto()
    """The heartbeat of a manager that is not ready yet."""
    IMPLAUSIBLE = auto()
    """No manager sends such a heartbeat."""
    STALE = auto()
    """It is older than what was heard, or its table is."""
    FOREIGN = auto()
    """It belongs to another cell."""
    UNASKED = auto()
    """A part of a table that is not the newest one."""


class Heard(Enum):
    """Heartbeats that are believed."""

    FIRST = auto()
    """No cell was known before."""
    SAME = auto()
    """It is of the known cell."""
    OTHER = auto()
    """Another cell takes the place of the known one, or the known one has lost what it said."""


class CellChoice:
    """The cell that serves the bus, by its newest heartbeat."""

    def __init__(self) -> None:
        self.heartbeat: Heartbeat | None = None
        """Newest heartbeat that was believed."""
        self.manager_node = 0
        """Node that sent it."""
        self._manager = b""
        """Keeper that sent it."""
        self._heard_at = 0.0

    def hear(self, heartbeat: Heartbeat, source: int, now: float) -> Heard | Drop:
        """Take a heartbeat from a node. Return the reason if it is not believed."""
        if not heartbeat.flags & HeartbeatFlag.SERVING:
            return Drop.NOT_SERVING
        manager = _manager_of(heartbeat, source)
        if manager is None:
            return Drop.IMPLAUSIBLE
        heard = self._compare(heartbeat, manager, now)
        if isinstance(heard, Heard):
            self.heartbeat, self._manager, self.manager_node, self._heard_at = heartbeat, manager, source, now
        return heard

    def _compare(self, heartbeat: Heartbeat, manager: bytes, now: float) -> Heard | Drop:
        known = self.heartbeat
        if known is None:
            return Heard.FIRST if is_plausible(heartbeat.epoch, 0) else Drop.IMPLAUSIBLE
        refusal = self._refusal(known, heartbeat, manager)
        if refusal is None:
            return Heard.SAME if heartbeat.cell_id == known.cell_id else Heard.OTHER
        # The known one is not repeated: it was forged, or its cell is gone.
        is_lost = now - self._heard_at >= LOST_S and is_plausible(heartbeat.epoch, 0)
        return Heard.OTHER if is_lost else refusal

    def _refusal(self, known: Heartbeat, heartbeat: Heartbeat, manager: bytes) -> Drop | None:
        """Return the reason to go on believing the known heartbeat instead of another one, or None."""
        if heartbeat.cell_id != known.cell_id:
            if not is_plausible(heartbeat.epoch, 0):
                return Drop.IMPLAUSIBLE
            return None if _rank(heartbeat) < _rank(known) else Drop.FOREIGN
        if (heartbeat.epoch, heartbeat.number) <= (known.epoch, known.number):
            return Drop.STALE
        if heartbeat.table_version < known.table_version:
            return Drop.STALE  # a table never goes back
        if heartbeat.table_version > known.table_version + LEAP_MAX:
            return Drop.IMPLAUSIBLE
        if heartbeat.epoch == known.epoch:
            return Drop.IMPLAUSIBLE if manager != self._manager else None  # an epoch has one manager
        return None if is_plausible(heartbeat.epoch, known.epoch) else Drop.IMPLAUSIBLE


def _manager_of(heartbeat: Heartbeat, source: int) -> bytes | None:
    """Return the keeper that sent a heartbeat. Return None if no manager sends such a one: it names itself, and members
    of a configuration that is no newer than its epoch."""
    members = heartbeat.members
    is_sound = (
        heartbeat.cell_id > 0
        and heartbeat.epoch > 0
        and heartbeat.number > 0
        and 0 < heartbeat.configuration < (heartbeat.epoch + 1) * NUMBERS_OF_AN_EPOCH
        and len({member.keeper_id for member in members}) == len(members)
    )
    senders = [member.keeper_id for member in members if _is_live_at(member, source)]
    return senders[0] if is_sound and len(senders) == 1 else None


def _is_live_at(member: HeartbeatMember, node_id: int) -> bool:
    return node_id > 0 and member.node_id == node_id and bool(member.flags & MemberFlag.LIVE)


def _rank(heartbeat: Heartbeat) -> tuple[int, int]:
    """Return a key of which the smaller one wins: more members, then the lower id. Keepers decide alike."""
    return -len(heartbeat.members), heartbeat.cell_id
