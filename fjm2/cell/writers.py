"""The nodes at which writers hear what is stored."""

from collections.abc import Iterable, Iterator
from typing import Final

WRITERS_MAX: Final = 2000
"""Most writers that are told unasked. Others ask."""


class Writers:
    """Nodes of the writers that were heard last, by producer id."""

    def __init__(self) -> None:
        self._nodes: dict[int, int] = {}

    def note(self, producer_id: int, node: int) -> None:
        """Note the node that a writer's frames came from."""
        self._nodes.pop(producer_id, None)
        self._nodes[producer_id] = node
        if len(self._nodes) > WRITERS_MAX:
            del self._nodes[next(iter(self._nodes))]

    def nodes(self, producer_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield the known ones of these writers, with their nodes, in the order of their ids."""
        for producer_id in sorted(producer_ids):
            if producer_id in self._nodes:
                yield producer_id, self._nodes[producer_id]
