"""Names for people: peers by client id and host, and where the docs say what to do."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, TypeVar

from fjm2.base.quantities import node_text

_T = TypeVar("_T")

_NODES_MAX: Final = 8192
"""Nodes whose names are remembered: the connections that presence accepts, and as many that have left."""
_CONNECTIONS_MAX: Final = 16
"""Connections of one node that are remembered. Nearly all programs have one or two."""
_SHOWN_MAX: Final = 5
"""Names in one sentence. More are only counted."""
_CHARACTERS_MAX: Final = 60
"""Characters of a client id in a sentence. An announcement may have 255 bytes of anything."""
# project: begin (make project)
PAGE: Final = "https://example.org/fjm2/docs/troubleshooting.md"
# project: end
"""Page that problems point to. Its address works without a clone: pip installs no docs."""


class Remedy(Enum):
    """Sections of the page that say what to do about a problem. The value is the section's anchor."""

    LOST = "messages-are-lost"
    UNCONFIRMED = "a-subscriber-did-not-confirm"
    FULL = "it-hangs-or-holds-others-up"

    def after(self, text: str) -> str:
        """Return a text with the address of the section."""
        return f"{text}; see {PAGE}#{self.value}"


def clock_text(at: float) -> str:
    """Return a time, in seconds since the epoch, as the clock shows it here."""
    return datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S")


def listed(names: Iterable[object], shown_max: int = _SHOWN_MAX) -> str:
    """Return names as in a sentence: "a", "a and b", or "a, b and 7 more"."""
    texts = [str(name) for name in names]
    if len(texts) > shown_max:
        texts[shown_max:] = [f"{len(texts) - shown_max:,} more"]
    *first, last = texts or [""]
    return f"{', '.join(first)} and {last}" if first else last


@dataclass(frozen=True, slots=True)
class PeerName:
    """A node as people know it. As text: `'desk-7' at 10.0.0.13`, or as much of that as is known."""

    node_id: int
    client_ids: tuple[str, ...] = ()
    """Client ids of its connections that have one, as last announced."""
    host: str | None = None
    """Address of its host; None if it was never heard. Behind a gateway, this is the gateway's address."""
    is_keeper: bool = False
    """True for a keeper, which has no messages of its own."""

    def __str__(self) -> str:
        place = "" if self.host is None else f" at {self.host}"
        if self.client_ids:
            return f"{listed(_quoted(client_id) for client_id in self.client_ids)}{place}"
        node = f"node {node_text(self.node_id)}"
        return node if self.host is None else f"a program without client id{place} ({node})"


def _quoted(client_id: str) -> str:
    short = client_id if len(client_id) <= _CHARACTERS_MAX else f"{client_id[:_CHARACTERS_MAX]}..."
    return repr(short)


class _Node:
    __slots__ = ("client_ids", "host", "is_keeper")

    def __init__(self, host: str | None) -> None:
        self.client_ids: dict[int, str | None] = {}
        """Client ids by connection id."""
        self.host = host
        self.is_keeper = False
        """True if it announced keepers, and nothing else."""


class PeerNames:
    """Names of nodes, also of those that have left: problems are told after that. Remembers a bounded number."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[int, _Node] = OrderedDict()
        """Nodes that announced a connection."""
        self._hosts: OrderedDict[int, str] = OrderedDict()
        """Hosts of nodes that did not. Kept apart, so that a flood of strangers does not displace the others."""

    def __len__(self) -> int:
        return len(self._nodes) + len(self._hosts)

    def of(self, node_id: int) -> PeerName:
        """Return the name of a node, known or not."""
        node = self._nodes.get(node_id)
        if node is None:
            return PeerName(node_id, host=self._hosts.get(node_id))
        return PeerName(node_id, tuple(name for name in node.client_ids.values() if name), node.host, node.is_keeper)

    def all_of(self, node_ids: Iterable[int]) -> tuple[PeerName, ...]:
        """Return the names of nodes, those with client ids first."""
        names = map(self.of, node_ids)
        return tuple(sorted(names, key=lambda name: (not name.client_ids, name.client_ids, name.node_id)))

    def note_host(self, node_id: int, host: str) -> None:
        """Note the address that a node sends from."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.host = host
        else:
            _put(self._hosts, node_id, host)

    def note_client(
        self,
        node_id: int,
        connection_id: int,
        client_id: str | None,
        lanes: Iterable[int] = (),
        *,
        is_keeper: bool = False,
    ) -> None:
        """Note a connection that a node announced, and the nodes that send its lanes. It may have no client id."""
        self._note_client(node_id, connection_id, client_id, is_keeper)
        host = self.of(node_id).host
        for lane in lanes:
            # Lanes are sent from one host, so nobody can give his own name to a sender elsewhere.
            if lane not in (0, node_id) and self.of(lane).host in (None, host):
                self._note_client(lane, connection_id, client_id, is_keeper)

    def _note_client(self, node_id: int, connection_id: int, client_id: str | None, is_keeper: bool) -> None:
        node = self._nodes.get(node_id) or _Node(self._hosts.pop(node_id, None))
        _put(self._nodes, node_id, node)
        node.is_keeper = is_keeper and (node.is_keeper or not node.client_ids)
        node.client_ids[connection_id] = client_id
        if len(node.client_ids) > _CONNECTIONS_MAX:
            del node.client_ids[next(iter(node.client_ids))]

    def note_left(self, node_ids: Iterable[int], connection_id: int) -> None:
        """Note that a connection of these nodes was closed. A node's last one stays its name."""
        for node_id in node_ids:
            node = self._nodes.get(node_id)
            if node is not None and len(node.client_ids) > 1:
                node.client_ids.pop(connection_id, None)


def _put(bounded: "OrderedDict[int, _T]", node_id: int, value: _T) -> None:
    """Add or renew an entry. The one that was renewed longest ago gives way."""
    bounded[node_id] = value
    bounded.move_to_end(node_id)
    if len(bounded) > _NODES_MAX:
        bounded.popitem(last=False)
