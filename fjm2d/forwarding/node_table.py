"""Locations of the nodes of a group: each node is on the LAN, or behind a peer.

A node stays on the side where it is first heard for as long as it is heard there: the same node id from the other side
is a loop, or a node with a duplicate id. On the LAN a node likewise stays at its address: another gateway of this LAN
multicasts datagrams with the ids of far nodes, and with the ids of near nodes if the datagrams have looped.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from fjm2.norm import Address

NODES_MAX: Final = 16_384
"""Maximum number of nodes of a group, of both sides: a few megabytes, and more nodes than a multicast group can
sensibly have."""
HOLD_S: Final = 10.0
"""Time that a node must be silent before it is accepted on the other side."""
MOVE_S: Final = 2.0
"""Time that a node must be silent before it is accepted at another address of the LAN. A datagram in a loop comes back
sooner."""
FORGET_S: Final = 120.0
"""Silence after which a node is forgotten. NORM senders may be silent for 30 s, and still get NACKs after that."""
_SWEEP_S: Final = 1.0
"""Least time between two searches for silent nodes in a full table, because each costs a pass over it."""


class _Node:
    """Location of a node: an address of the LAN, or a peer."""

    __slots__ = ("address", "heard_at", "peer")

    def __init__(self, address: Address | None, peer: int, heard_at: float) -> None:
        self.address = address
        self.peer = peer
        self.heard_at = heard_at


class NodeTable:
    """The nodes of one group, in a table of bounded size.

    A flood of new nodes neither displaces nodes that are heard, nor fills more than its own side: half of the table is
    for the LAN, half for all peers. A peer gets another place only while it has fewer than are free, so that some are
    always left for the others.
    """

    def __init__(self, nodes_max: int = NODES_MAX) -> None:
        self._nodes: dict[int, _Node] = {}
        self._side_max = nodes_max // 2
        self._on_lan = self._behind_peers = 0
        self._behind: Counter[int] = Counter()
        self._swept_at = float("-inf")
        self.refused = 0
        """Number of times that there was no room for a node."""

    def __len__(self) -> int:
        return len(self._nodes)

    def note_lan(self, node: int, address: Address, now: float) -> bool:
        """Record a node that multicast on the LAN. Return False if it is known to be elsewhere."""
        known = self._nodes.get(node)
        if known is None:
            self._add(node, _Node(address, 0, now), now)
            return True
        if known.address != address:
            if now - known.heard_at < (HOLD_S if known.address is None else MOVE_S):
                return False
            self._move(node, _Node(address, 0, now), now)
        known.heard_at = now
        return True

    def note_receiver(self, node: int, address: Address, now: float) -> bool:
        """Record a node of the LAN that sent to us by unicast. Return False if it is known to be behind a peer.

        Unicast cannot loop, and may come from another port than the node's multicast.
        """
        known = self._nodes.get(node)
        if known is None:
            return True
        if known.address == address:
            known.heard_at = now
        return known.address is not None or now - known.heard_at >= HOLD_S

    def note_wan(self, node: int, peer: int, now: float, may_move: Callable[[int, int], bool]) -> bool:
        """Record a node heard behind a peer. Return False if it is known to be elsewhere.

        `may_move` returns True if a node may move from one peer to another at once.
        """
        known = self._nodes.get(node)
        if known is None:
            self._add(node, _Node(None, peer, now), now)
            return True
        if known.address is not None or known.peer != peer:
            is_elsewhere = known.address is not None or not may_move(known.peer, peer)
            if is_elsewhere and now - known.heard_at < HOLD_S:
                return False
            self._move(node, _Node(None, peer, now), now)
        known.heard_at = now
        return True

    def address_of(self, node: int) -> Address | None:
        """Return a node's address on the LAN; None if it is not known to be there."""
        known = self._nodes.get(node)
        return None if known is None else known.address

    def peer_of(self, node: int) -> int | None:
        """Return the peer that a node is behind; None if it is not known to be behind any."""
        known = self._nodes.get(node)
        return None if known is None or known.address is not None else known.peer

    def forget_at(self, addresses: frozenset[Address]) -> None:
        """Forget nodes at these addresses, which are those of other gateways."""
        self._forget([node for node, known in self._nodes.items() if known.address in addresses])

    def forget_behind(self, peers: frozenset[int]) -> None:
        """Forget nodes behind these peers, which are on this LAN themselves."""
        self._forget([node for node, known in self._nodes.items() if known.address is None and known.peer in peers])

    def counts(self) -> tuple[int, int]:
        """Return the number of nodes on the LAN, and behind peers."""
        return self._on_lan, self._behind_peers

    def expire(self, now: float) -> None:
        """Forget nodes that have long been silent."""
        self._sweep(now, FORGET_S)

    def _add(self, node: int, found: _Node, now: float) -> None:
        if self._is_full(found) and now - self._swept_at >= _SWEEP_S:
            self._swept_at = now
            self._sweep(now, HOLD_S)
        if self._is_full(found):
            self.refused += 1
            return
        self._nodes[node] = found
        self._count(found, 1)

    def _move(self, node: int, found: _Node, now: float) -> None:
        """Record the new location, if there is room on that side."""
        self._forget((node,))
        self._add(node, found, now)

    def _is_full(self, found: _Node) -> bool:
        if found.address is not None:
            return self._on_lan >= self._side_max
        return self._behind[found.peer] >= self._side_max - self._behind_peers

    def _count(self, known: _Node, by: int) -> None:
        if known.address is None:
            self._behind_peers += by
            self._behind[known.peer] += by
            if not self._behind[known.peer]:
                del self._behind[known.peer]
        else:
            self._on_lan += by

    def _sweep(self, now: float, silent_s: float) -> None:
        self._forget([node for node, known in self._nodes.items() if now - known.heard_at >= silent_s])

    def _forget(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self._count(self._nodes.pop(node), -1)
