"""Positive acknowledgement: a place in the data that listed nodes are to confirm (RFC 5740, 5.5.3)."""

from dataclasses import dataclass, field

from fjm2.norm.core.events import WatermarkCompleted
from fjm2.norm.core.wire import Position


@dataclass(slots=True)
class Watermark:
    """One place and who has still to confirm it."""

    number: int
    position: Position
    object_id: int
    index: int
    """The last source segment that is to be confirmed."""
    tries_left: dict[int, int]
    """Node to how often it may still be asked."""
    acked: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)

    def ask(self, most: int) -> tuple[int, ...]:
        """The nodes to be listed this time; those asked often enough before have failed."""
        for node in [node for node, left in self.tries_left.items() if left == 0]:
            self.failed.add(node)
            del self.tries_left[node]
        nodes = tuple(self.tries_left)[:most]
        for node in nodes:
            self.tries_left[node] -= 1
        return nodes

    def confirm(self, node: int, position: Position) -> bool:
        """Whether this is an answer that was waited for."""
        if position != self.position or node not in self.tries_left:
            return False
        del self.tries_left[node]
        self.acked.add(node)
        return True

    def renew(self, tries: int) -> None:
        """Count anew, as data before the mark have been sent again."""
        self.tries_left = dict.fromkeys(self.tries_left, tries)

    def fail(self, nodes: set[int]) -> None:
        """Ask these no more."""
        self.failed |= nodes
        for node in nodes:
            self.tries_left.pop(node, None)

    def excuse(self, node: int) -> None:
        """It has left, and owes nothing."""
        self.tries_left.pop(node, None)

    @property
    def is_done(self) -> bool:
        return not self.tries_left

    def event(self) -> WatermarkCompleted:
        return WatermarkCompleted(self.number, frozenset(self.acked), frozenset(self.failed))
