"""Connections that announce themselves on a bus, and the labels that people know them by."""

from collections.abc import Iterator, Set
from typing import Final, NamedTuple

from fjm2.bus.presence import Announcement, Flag, Peer, PresenceTable

FORMER_NODES_MAX: Final = 8192
"""Greatest number of nodes whose labels are kept after their connections left. It bounds the memory that forged
goodbyes can take."""


class _Known(NamedTuple):
    """A connection that has announced itself."""

    since: float
    label: str
    nodes: tuple[int, ...]
    """Node that receives for the connection, and nodes that send its lanes."""


class Connections:
    """Connections that are present, and the labels of nodes whose connections have left."""

    def __init__(self) -> None:
        self.presence = PresenceTable()
        """The connections that announce themselves."""
        self._known: dict[int, _Known] = {}
        """Connections that are present, by connection id."""
        self._former_labels: dict[int, str] = {}
        """Labels of connections that have left, by node id."""
        self._departed: set[int] = set()
        """Ids of connections that have left since the last `expire`."""

    def __iter__(self) -> Iterator[Peer]:
        return iter(self.presence.peers)

    def update(self, node_id: int, announcement: Announcement, now: float) -> None:
        """Handle an announcement, by which a connection is present or says goodbye."""
        connection_id, refused = announcement.connection_id, self.presence.stats.announcements_refused
        self.presence.update(node_id, announcement, now)
        if self.presence.stats.announcements_refused > refused:
            return
        known = self._known.get(connection_id)
        if not announcement.flags & Flag.GOODBYE:
            since = now if known is None else known.since
            nodes = (node_id, *filter(None, announcement.lanes))
            self._known[connection_id] = _Known(since, announcement.client_id or f"{connection_id:016x}", nodes)
        elif known is not None:
            self._forget(connection_id)

    def expire(self, now: float) -> set[int]:
        """Forget connections whose announcements have expired. Return the ids of all that left since the last call."""
        self.presence.expire(now)
        for connection_id in self._known.keys() - {peer.connection_id for peer in self.presence.peers}:
            self._forget(connection_id)
        departed, self._departed = self._departed, set()
        return departed

    def _forget(self, connection_id: int) -> None:
        """Remove a connection. Its nodes keep its label for as long as they are shown."""
        known = self._known.pop(connection_id)
        self._departed.add(connection_id)
        if len(self._former_labels) < FORMER_NODES_MAX:
            self._former_labels |= dict.fromkeys(known.nodes, known.label)

    def keep_former_labels(self, nodes: Set[int]) -> None:
        """Drop the labels of connections that left, except for these nodes."""
        self._former_labels = {node: label for node, label in self._former_labels.items() if node in nodes}

    def label_of(self, connection_id: int) -> str:
        """Return the client id of a connection, or its connection id in hexadecimal if it has none."""
        known = self._known.get(connection_id)
        return f"{connection_id:016x}" if known is None else known.label

    def former_label(self, node_id: int) -> str | None:
        """Return the label of the connection that a node belonged to before the connection left, or None."""
        return self._former_labels.get(node_id)

    def since(self, connection_id: int) -> float | None:
        """Return the time at which the first announcement of a connection was heard, or None."""
        known = self._known.get(connection_id)
        return None if known is None else known.since

    def member_nodes(self) -> set[int]:
        """Return the nodes of all connections: those that receive, and those that send lanes."""
        return {node for peer in self.presence.peers for node in (peer.node_id, *peer.lanes)}
