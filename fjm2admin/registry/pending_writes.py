"""Changes that wait to be written to the file in one batch."""

from dataclasses import dataclass, field

from .measures import Point
from .nodes import Registry
from .store import Seen

_POINTS_MAX = 100_000
"""Maximum number of slots of history that wait while the file cannot be written: some 10 MB of memory."""


@dataclass(slots=True)
class PendingWrites:
    """Changes since the last batch that was written."""

    seen: set[str] = field(default_factory=set)
    """Ids of the nodes that were heard."""
    used: dict[str, float] = field(default_factory=dict)
    """Wall-clock time of each token's last use, by the token's id."""
    points: list[tuple[str, Point]] = field(default_factory=list)
    """Completed slots of history, with the ids of their nodes."""

    def add_point(self, node_id: str, point: Point) -> None:
        """Keep a slot of history, unless too many wait already."""
        if len(self.points) < _POINTS_MAX:
            self.points.append((node_id, point))

    def take(self) -> "PendingWrites":
        """Return all waiting writes, and forget them."""
        taken = PendingWrites(self.seen, self.used, self.points)
        self.seen, self.used, self.points = set(), {}, []
        return taken

    def put_back(self, failed: "PendingWrites") -> None:
        """Keep a batch that could not be written, for the next one. The times of tokens' uses are forgotten."""
        self.seen |= failed.seen
        self.points = (failed.points + self.points)[:_POINTS_MAX]

    def seen_nodes(self, nodes: Registry) -> list[Seen]:
        """Return time and address of the last request of each node in `seen` that still exists."""
        found = map(nodes.find, self.seen)
        return [Seen(node.last_seen, node.address, node.id) for node in found if node is not None]

    def uses(self) -> list[tuple[float, str]]:
        """Return pairs of the time of a token's last use and the token's id."""
        return [(at, token_id) for token_id, at in self.used.items()]
