"""The writers behind each node of a bus: connections of a process share its node, and each has a producer id."""

from typing import Final

PRODUCERS_MAX: Final = 4096
"""Most writers that are remembered. One that is forgotten comes back with its next message."""


class NodeProducers:
    """Producer ids by the node that sends their frames."""

    def __init__(self) -> None:
        self._by_node: dict[int, dict[int, None]] = {}
        self._count = 0

    def note(self, node_id: int, producer_id: int) -> None:
        """Note whose frames a node sends."""
        producers = self._by_node.setdefault(node_id, {})
        if producer_id in producers:
            return
        producers[producer_id] = None
        self._count += 1
        if self._count > PRODUCERS_MAX:
            self._forget_oldest()

    def of(self, node_id: int) -> list[int]:
        """Return the writers whose frames a node sends."""
        return list(self._by_node.get(node_id, ()))

    def _forget_oldest(self) -> None:
        node_id, producers = next(iter(self._by_node.items()))
        del producers[next(iter(producers))]
        self._count -= 1
        if not producers:
            del self._by_node[node_id]
