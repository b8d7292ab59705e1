"""Interest of LANs in groups, learned from the presence of JMS connections and exchanged between gateways.

A gateway tells its peers which groups it carries, and which of these are wanted on its LAN, whenever that changes and
every second. A peer that has not asked for a group gets nothing of it.

A status, big-endian: u8 version, 1 · u8 flags (1: it forwards for its LAN) · u16 number of groups · for each group
u16 hash, u8 flags (1: wanted).
"""

import struct
from dataclasses import dataclass
from typing import Final

from fjm2.bus.presence import Flag, PresenceTable, decode

STATUS_S: Final = 1.0
"""Interval at which a gateway sends its status to each peer."""
STATUS_VALID_S: Final = 5.0
"""Lifetime of a status: four may get lost in a row."""
HINT_S: Final = 3.0
"""Time for which an announcement of a subscriber behind a peer counts as the peer's interest: the peer's own status may
be late, or lost."""
_VERSION: Final = 1
_FORWARDS: Final = 1
_WANTED: Final = 1
_HEAD = struct.Struct("!BBH")
_GROUP = struct.Struct("!HB")
_GROUPS_MAX: Final = 256
"""Maximum number of groups in a status: four times what a gateway may carry, for later versions."""


@dataclass(frozen=True, slots=True)
class Status:
    """A gateway's message to its peers about its LAN."""

    is_forwarder: bool
    groups: frozenset[int]
    """Hashes of the groups that the gateway carries."""
    wanted: frozenset[int]

    def encode(self) -> bytes:
        head = _HEAD.pack(_VERSION, _FORWARDS * self.is_forwarder, len(self.groups))
        return head + b"".join(_GROUP.pack(group, _WANTED * (group in self.wanted)) for group in sorted(self.groups))

    @classmethod
    def decode(cls, content: bytes) -> "Status | None":
        """Decode a status. Return None if it is malformed."""
        if len(content) < _HEAD.size:
            return None
        version, flags, count = _HEAD.unpack_from(content)
        if version != _VERSION or count > _GROUPS_MAX or len(content) != _HEAD.size + count * _GROUP.size:
            return None
        groups = dict(_GROUP.iter_unpack(content[_HEAD.size :]))
        wanted = frozenset(group for group, of in groups.items() if of & _WANTED)
        return cls(bool(flags & _FORWARDS), frozenset(groups), wanted)


class LanInterest:
    """Interest of the LAN in one group."""

    def __init__(self, is_always: bool) -> None:
        self.is_always = is_always
        self._presence = PresenceTable()
        self._is_wanted = self._was_full = False

    @property
    def is_wanted(self) -> bool:
        return self.is_always or self._is_wanted

    @property
    def connections(self) -> int:
        """Number of JMS connections known on the LAN."""
        return len(self._presence)

    def note(self, node: int, content: bytes, now: float) -> bool:
        """Record an announcement. Return True if the group has become wanted, or unwanted."""
        announcement = decode(content)
        if announcement is None:
            return False
        is_changed = self._presence.update(node, announcement, now)
        if not is_changed and self._presence.is_full == self._was_full:
            return False
        return self._update()

    def expire(self, now: float) -> bool:
        """Forget silent connections. Return True if the group has become wanted, or unwanted."""
        return self._presence.expire(now) and self._update()

    def _update(self) -> bool:
        """Find out if the group is wanted, and return True if that has changed.

        A full table counts as interest: a connection that found no room in it may want the group.
        """
        before = self._is_wanted
        self._was_full = self._presence.is_full
        self._is_wanted = self._was_full or any(peer.wants_all or peer.topics for peer in self._presence.peers)
        return self._is_wanted != before


def is_wish(content: bytes) -> bool:
    """Return True if an announcement is that of a subscriber."""
    announcement = decode(content)
    return announcement is not None and bool(announcement.topics or announcement.flags & Flag.WANTS_ALL)


class PeerInterest:
    """Interest of the peers in groups."""

    def __init__(self) -> None:
        self._heard: dict[int, tuple[Status, float]] = {}
        self._hints: dict[tuple[int, int], float] = {}

    def note(self, peer: int, status: Status, now: float) -> bool:
        """Record the status of a peer. Return True if it differs from the last status of that peer."""
        before = self._heard.get(peer)
        self._heard[peer] = status, now + STATUS_VALID_S
        return before is None or before[0] != status

    def hint(self, peer: int, group: int, now: float) -> bool:
        """Record that a subscriber behind a peer wants a group. Return True if that is news."""
        is_known = (peer, group) in self._hints
        self._hints[peer, group] = now + HINT_S
        return not is_known

    def forget(self, peer: int) -> None:
        """Forget a peer that went down."""
        self._heard.pop(peer, None)
        self._hints = {key: until for key, until in self._hints.items() if key[0] != peer}

    def expire(self, now: float) -> bool:
        """Forget statuses and hints that are out of date. Return True if any were forgotten."""
        before = len(self._heard) + len(self._hints)
        self._heard = {peer: heard for peer, heard in self._heard.items() if heard[1] > now}
        self._hints = {key: until for key, until in self._hints.items() if until > now}
        return len(self._heard) + len(self._hints) < before

    def forwards(self, peer: int) -> bool:
        """Return True if a peer says that it forwards for its LAN."""
        heard = self._heard.get(peer)
        return heard is not None and heard[0].is_forwarder

    def serves(self, peer: int, group: int) -> bool:
        """Return True if a peer forwards this group to its LAN."""
        heard = self._heard.get(peer)
        return heard is not None and heard[0].is_forwarder and group in heard[0].groups

    def wants(self, peer: int, group: int) -> bool:
        """Return True if a peer forwards this group, and its LAN wants it."""
        if not self.serves(peer, group):
            return False
        return group in self._heard[peer][0].wanted or (peer, group) in self._hints

    def status_of(self, peer: int) -> Status | None:
        heard = self._heard.get(peer)
        return None if heard is None else heard[0]
