"""Which nodes of a group are on the LAN, and which behind which peer.

The side where a node is heard first stands for as long as it is heard there: what comes of it from the other side is a
loop, or somebody who uses its id.
"""

from collections.abc import Callable
from typing import Final

from fjm2.norm import Address

NODES_MAX: Final = 16_384
HOLD_S: Final = 10.0
"""A node that has been silent for so long may appear elsewhere."""
FORGET_S: Final = 120.0
"""NORM's senders may be silent for 30 s, and are asked for repairs after that."""
_SWEEP_S: Final = 1.0


class _Node:
    """Where a node was heard last: at an address of the LAN, or behind a peer."""

    __slots__ = ("address", "heard_at", "peer")

    def __init__(self, address: Address | None, peer: int, heard_at: float) -> None:
        self.address = address
        self.peer = peer
        self.heard_at = heard_at


class NodeTable:
    """The nodes of one group, bounded. A flood of new ones does not push out those who are heard."""

    def __init__(self, nodes_max: int = NODES_MAX) -> None:
        self._nodes: dict[int, _Node] = {}
        self._nodes_max = nodes_max
        self._swept_at = float("-inf")
        self.refused = 0
        """Nodes that there was no room for."""

    def __len__(self) -> int:
        return len(self._nodes)

    def note_lan(self, node: int, address: Address, now: float) -> bool:
        """A node is heard on the LAN. False if it is behind a peer."""
        known = self._nodes.get(node)
        if known is None:
            self._add(node, _Node(address, 0, now), now)
            return True
        if known.address is None and now - known.heard_at < HOLD_S:
            return False
        known.address, known.heard_at = address, now
        return True

    def note_wan(self, node: int, peer: int, now: float, may_move: Callable[[int, int], bool]) -> bool:
        """A node is heard behind a peer. False if it is elsewhere; `may_move` says if from one peer to another."""
        known = self._nodes.get(node)
        if known is None:
            self._add(node, _Node(None, peer, now), now)
            return True
        is_elsewhere = known.address is not None or (known.peer != peer and not may_move(known.peer, peer))
        if is_elsewhere and now - known.heard_at < HOLD_S:
            return False
        known.address, known.peer, known.heard_at = None, peer, now
        return True

    def address_of(self, node: int) -> Address | None:
        """Where on the LAN it is; None if it is not known to be there."""
        known = self._nodes.get(node)
        return None if known is None else known.address

    def peer_of(self, node: int) -> int | None:
        """Behind which peer it is; None if it is not known to be behind any."""
        known = self._nodes.get(node)
        return None if known is None or known.address is not None else known.peer

    def forget_at(self, addresses: frozenset[Address]) -> None:
        """Nobody is at these addresses: they are other gateways'."""
        for node in [node for node, known in self._nodes.items() if known.address in addresses]:
            del self._nodes[node]

    def counts(self) -> tuple[int, int]:
        """Nodes on the LAN, and behind peers."""
        lan = sum(node.address is not None for node in self._nodes.values())
        return lan, len(self._nodes) - lan

    def expire(self, now: float) -> None:
        """Forget who has long been silent."""
        self._sweep(now, FORGET_S)

    def _add(self, node: int, found: _Node, now: float) -> None:
        if len(self._nodes) >= self._nodes_max and now - self._swept_at >= _SWEEP_S:
            self._swept_at = now
            self._sweep(now, HOLD_S)
        if len(self._nodes) >= self._nodes_max:
            self.refused += 1
            return
        self._nodes[node] = found

    def _sweep(self, now: float, silent_s: float) -> None:
        gone = [node for node, known in self._nodes.items() if now - known.heard_at >= silent_s]
        for node in gone:
            del self._nodes[node]
