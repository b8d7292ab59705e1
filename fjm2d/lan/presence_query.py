"""Asks the JMS connections of the LAN to announce themselves, for peers that have not heard them yet."""

from collections.abc import Mapping
from typing import Final

from fjm2.bus.presence import Announcement
from fjm2.bus.presence import Flag as PresenceFlag

from ..forwarding.headers import application
from .groups import LanGroup

_QUERY_S: Final = 1.0
"""Ask at most this often: every connection of the LAN answers each query."""
_CONTENT_BYTES_MAX: Final = 1024
"""Room for the announcement, which holds no topics and so is far shorter."""


class PresenceQuery:
    """Asks when it was requested, at most once in `_QUERY_S`."""

    __slots__ = ("_asked_at", "_groups", "_is_wanted", "_node_id", "_sequence")

    def __init__(self, node_id: int, groups: Mapping[int, LanGroup]) -> None:
        """`node_id` is the NORM source of the query."""
        self._node_id = node_id
        self._groups = groups
        self._is_wanted = True
        self._asked_at = float("-inf")
        self._sequence = 0

    def request(self) -> None:
        """Ask as soon as that is allowed."""
        self._is_wanted = True

    def poll(self, now: float) -> None:
        """Ask if it was requested."""
        if not self._is_wanted or now - self._asked_at < _QUERY_S:
            return
        self._is_wanted = False
        self._asked_at = now
        # A goodbye that asks: it makes connections answer, and leaves no entry for a connection that is none.
        flags = PresenceFlag.ASKS | PresenceFlag.GOODBYE
        content = Announcement(self._node_id, flags=flags).encode(_CONTENT_BYTES_MAX)
        for group in self._groups.values():
            group.send_bytes(application(self._node_id, self._sequence, content))
        self._sequence += 1
