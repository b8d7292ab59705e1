"""Query that asks the JMS connections of the LAN to announce themselves, for peers that have not heard them yet."""

from collections.abc import Mapping
from typing import Final

from fjm2.bus.presence import Announcement
from fjm2.bus.presence import Flag as PresenceFlag

from ..forwarding.headers import application
from .groups import LanGroup

_QUERY_S: Final = 1.0
"""Least time between two queries: every connection of the LAN answers each query."""
_CONTENT_BYTES_MAX: Final = 1024
"""Room for the announcement, which holds no topics and so is far shorter."""


class PresenceQuery:
    """Query for presence, sent on request and at most once in `_QUERY_S` seconds."""

    __slots__ = ("_asked_at", "_groups", "_is_wanted", "_node_id", "_sequence")

    def __init__(self, node_id: int, groups: Mapping[int, LanGroup]) -> None:
        """`node_id` is the NORM source of the query."""
        self._node_id = node_id
        self._groups = groups
        self._is_wanted = True
        self._asked_at = float("-inf")
        self._sequence = 0

    def request(self) -> None:
        """Request a query. `poll` sends it as soon as that is allowed."""
        self._is_wanted = True

    def poll(self, now: float) -> None:
        """Send the query if it was requested and `_QUERY_S` seconds have passed since the last."""
        if not self._is_wanted or now - self._asked_at < _QUERY_S:
            return
        self._is_wanted = False
        self._asked_at = now
        # ASKS makes connections answer. GOODBYE keeps them from recording the gateway as a connection.
        flags = PresenceFlag.ASKS | PresenceFlag.GOODBYE
        content = Announcement(self._node_id, flags=flags).encode(_CONTENT_BYTES_MAX)
        for group in self._groups.values():
            group.send_bytes(application(self._node_id, self._sequence, content))
        self._sequence += 1
