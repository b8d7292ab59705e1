"""Which peers want what: from the presence of JMS connections on each LAN, told from gateway to gateway.

A gateway tells its peers which groups it carries, and which of them somebody on its LAN wants. It says so whenever that
changes, and every second. Nothing is sent to who has not said so.

A status, big-endian: u8 version, 1 · u8 flags (1: it forwards for its LAN) · u16 number of groups · for each group
u16 hash, u8 flags (1: wanted).
"""

import struct
from dataclasses import dataclass
from typing import Final

from fjm2.bus.presence import Flag, PresenceTable, decode

STATUS_S: Final = 1.0
"""A status is sent so often."""
STATUS_VALID_S: Final = 5.0
HINT_S: Final = 3.0
"""An announcement of a subscriber that has come from a peer counts for so long as wish of the peer's: its status may
have got lost, or come later."""
_VERSION: Final = 1
_FORWARDS: Final = 1
_WANTED: Final = 1
_HEAD = struct.Struct("!BBH")
_GROUP = struct.Struct("!HB")
_GROUPS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Status:
    """What a gateway tells its peers of its LAN."""

    is_forwarder: bool
    groups: frozenset[int]
    """Those it carries, by hash."""
    wanted: frozenset[int]

    def encode(self) -> bytes:
        head = _HEAD.pack(_VERSION, _FORWARDS * self.is_forwarder, len(self.groups))
        return head + b"".join(_GROUP.pack(group, _WANTED * (group in self.wanted)) for group in sorted(self.groups))

    @classmethod
    def decode(cls, content: bytes) -> "Status | None":
        """None for what is no status."""
        if len(content) < _HEAD.size:
            return None
        version, flags, count = _HEAD.unpack_from(content)
        if version != _VERSION or count > _GROUPS_MAX or len(content) != _HEAD.size + count * _GROUP.size:
            return None
        groups = dict(_GROUP.iter_unpack(content[_HEAD.size :]))
        wanted = frozenset(group for group, of in groups.items() if of & _WANTED)
        return cls(bool(flags & _FORWARDS), frozenset(groups), wanted)


class LanInterest:
    """Who on the LAN wants a group."""

    def __init__(self, is_always: bool) -> None:
        self.is_always = is_always
        self._presence = PresenceTable()
        self._is_wanted = self._was_full = False

    @property
    def is_wanted(self) -> bool:
        return self.is_always or self._is_wanted

    @property
    def connections(self) -> int:
        """JMS connections that are known."""
        return len(self._presence)

    def note(self, node: int, content: bytes, now: float) -> bool:
        """What a node has announced. Whether the group is wanted since then, or no longer."""
        announcement = decode(content)
        if announcement is None:
            return False
        is_changed = self._presence.update(node, announcement, now)
        if not is_changed and self._presence.is_full == self._was_full:
            return False
        return self._look()

    def expire(self, now: float) -> bool:
        """Forget who is silent; the same."""
        return self._presence.expire(now) and self._look()

    def _look(self) -> bool:
        """Where there is no room for all, somebody who is not known may want it."""
        before = self._is_wanted
        self._was_full = self._presence.is_full
        self._is_wanted = self._was_full or any(peer.wants_all or peer.topics for peer in self._presence.peers)
        return self._is_wanted != before


def is_wish(content: bytes) -> bool:
    """Whether an announcement is that of a subscriber."""
    announcement = decode(content)
    return announcement is not None and bool(announcement.topics or announcement.flags & Flag.WANTS_ALL)


class PeerInterest:
    """What peers have said they want."""

    def __init__(self) -> None:
        self._heard: dict[int, tuple[Status, float]] = {}
        self._hints: dict[tuple[int, int], float] = {}

    def note(self, peer: int, status: Status, now: float) -> bool:
        """A status has come. Whether it says anything new."""
        before = self._heard.get(peer)
        self._heard[peer] = status, now + STATUS_VALID_S
        return before is None or before[0] != status

    def hint(self, peer: int, group: int, now: float) -> bool:
        """Somebody behind it wants a group. Whether that is news."""
        is_known = (peer, group) in self._hints
        self._hints[peer, group] = now + HINT_S
        return not is_known

    def forget(self, peer: int) -> None:
        """It is gone."""
        self._heard.pop(peer, None)
        self._hints = {key: until for key, until in self._hints.items() if key[0] != peer}

    def expire(self, now: float) -> bool:
        """Forget what was said too long ago. Whether that is anything."""
        before = len(self._heard) + len(self._hints)
        self._heard = {peer: heard for peer, heard in self._heard.items() if heard[1] > now}
        self._hints = {key: until for key, until in self._hints.items() if until > now}
        return len(self._heard) + len(self._hints) < before

    def forwards(self, peer: int) -> bool:
        """Whether it forwards for its LAN, as it says."""
        heard = self._heard.get(peer)
        return heard is not None and heard[0].is_forwarder

    def serves(self, peer: int, group: int) -> bool:
        """Whether it forwards this group to its LAN."""
        heard = self._heard.get(peer)
        return heard is not None and heard[0].is_forwarder and group in heard[0].groups

    def wants(self, peer: int, group: int) -> bool:
        """Whether it does, and somebody there wants it."""
        if not self.serves(peer, group):
            return False
        return group in self._heard[peer][0].wanted or (peer, group) in self._hints

    def status_of(self, peer: int) -> Status | None:
        heard = self._heard.get(peer)
        return None if heard is None else heard[0]
