"""Which nodes of a group are on the LAN, and which behind which peer.

The side where a node is heard first stands for as long as it is heard there: what comes of it from the other side is a
loop, or somebody who uses its id. On the LAN the same goes for the address: what another gateway of this LAN multicasts
bears the ids of far nodes, and of near ones if it has come round.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from fjm2.norm import Address

NODES_MAX: Final = 16_384
HOLD_S: Final = 10.0
"""A node that has been silent for so long may appear on the other side."""
MOVE_S: Final = 2.0
"""One that has been silent for so long, at another address of the LAN. What goes round takes less."""
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
    """The nodes of one group, bounded. A flood of new ones does not push out those who are heard, nor fill more than
    its own side: half of the table is the LAN's, half is for all peers. Of that no peer gets more than is then left for
    others, so that there is always some."""

    def __init__(self, nodes_max: int = NODES_MAX) -> None:
        self._nodes: dict[int, _Node] = {}
        self._side_max = nodes_max // 2
        self._on_lan = self._behind_peers = 0
        self._behind: Counter[int] = Counter()
        self._swept_at = float("-inf")
        self.refused = 0
        """Times that there was no room for a node."""

    def __len__(self) -> int:
        return len(self._nodes)

    def note_lan(self, node: int, address: Address, now: float) -> bool:
        """A node has multicast on the LAN. False if it is elsewhere."""
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
        """A node of the LAN has sent to us alone. False if it is behind a peer.

        That goes round nowhere, and need not come from where the node multicasts.
        """
        known = self._nodes.get(node)
        if known is None:
            return True
        if known.address == address:
            known.heard_at = now
        return known.address is not None or now - known.heard_at >= HOLD_S

    def note_wan(self, node: int, peer: int, now: float, may_move: Callable[[int, int], bool]) -> bool:
        """A node is heard behind a peer. False if it is elsewhere; `may_move` says if from one peer to another."""
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
        """Where on the LAN it is; None if it is not known to be there."""
        known = self._nodes.get(node)
        return None if known is None else known.address

    def peer_of(self, node: int) -> int | None:
        """Behind which peer it is; None if it is not known to be behind any."""
        known = self._nodes.get(node)
        return None if known is None or known.address is not None else known.peer

    def forget_at(self, addresses: frozenset[Address]) -> None:
        """Nobody is at these addresses: they are other gateways'."""
        self._forget([node for node, known in self._nodes.items() if known.address in addresses])

    def forget_behind(self, peers: frozenset[int]) -> None:
        """Nobody is behind these: they are on this LAN themselves."""
        self._forget([node for node, known in self._nodes.items() if known.address is None and known.peer in peers])

    def counts(self) -> tuple[int, int]:
        """Nodes on the LAN, and behind peers."""
        return self._on_lan, self._behind_peers

    def expire(self, now: float) -> None:
        """Forget who has long been silent."""
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
        """If there is room where it is now."""
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
