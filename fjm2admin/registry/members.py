"""Members of the list: changes of nodes, made alike in memory, in the file and in the announcements.

The file changes in the same order as memory, because the writer works in the order of its requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic, time

from fjm2.base.logs import Log

from ..errors import StoreError
from .announcements import Announcements
from .measures import LinkSample
from .nodes import Node, Profile, Registry, State
from .pending_writes import PendingWrites
from .store import Store, StoredNode
from .writer import Writer

log = Log("fjm2admin.nodes")


@dataclass(frozen=True, slots=True)
class Measured:
    """A sample of a node's links."""

    uptime_s: float
    links: Sequence[LinkSample]
    is_forwarder: bool | None = None


class Members:
    """The nodes of the list, kept alike in memory, in the file and in all announcements."""

    def __init__(self, nodes: Registry, writer: Writer, announcements: Announcements, pending: PendingWrites) -> None:
        self._nodes = nodes
        self._writer = writer
        self._announcements = announcements
        self._pending = pending

    async def restore(self) -> None:
        """Read the nodes from the file. The time since the file was last written does not count as silence."""
        now, saved_at = monotonic(), await self._writer.run(Store.saved_at)
        for stored in await self._writer.run(Store.nodes):
            self._nodes.put(_restored(stored, now - max(0.0, saved_at - stored.last_seen)))
        self._nodes.expire(now)

    async def add(self, node: Node, instead_of: list[Node]) -> None:
        """Add a node, in place of others: in memory at once, then in the file. If that fails, undo it and raise."""
        self._nodes.put(node)
        stored = _stored(node)
        try:
            await self._writer.run(lambda store: store.save_node(stored))
        except StoreError:
            self._nodes.remove(node.id)
            for other in instead_of:
                self._nodes.put(other)
            raise
        for other in instead_of:
            self._announcements.live.note(other.id)
        self._announcements.note_change(node)

    async def move(self, node: Node, endpoints: tuple[str, ...]) -> None:
        """Change a node's endpoints. If the file cannot be written, undo it and raise."""
        before = node.profile
        node.profile = replace(before, endpoints=endpoints)
        stored = _stored(node)
        try:
            await self._writer.run(lambda store: store.save_node(stored))
        except StoreError:
            node.profile = before
            raise
        self._announcements.note_change(node)

    async def remove(self, nodes: list[Node], event: str) -> None:
        """Remove nodes: from memory at once, then from the file. If that fails, undo it and raise."""
        ids = [node.id for node in nodes]
        for node_id in ids:
            self.drop(node_id, event)
        try:
            await self._writer.run(lambda store: store.remove_nodes(ids))
        except StoreError:
            for node in nodes:
                if not self._nodes.conflicting(node.profile):
                    self._nodes.put(node)
            raise

    def drop(self, node_id: str, event: str) -> None:
        """Remove a node from memory only."""
        node = self._nodes.remove(node_id)
        if node is not None:
            log.info(event, node=node_id, name=node.profile.name)
            self._announcements.note_change(node)

    def note_heard(self, node: Node, address: str) -> None:
        """Note that a node is alive, and where its request came from."""
        node.heard_at, node.last_seen = monotonic(), time()
        self._pending.seen.add(node.id)
        if node.address != address:
            node.address = address  # only advertisements depend on it
            self._announcements.note_move()
        if node.state is not State.LIVE:
            node.state = State.LIVE
            self._announcements.note_change(node)
        self._announcements.live.note(node.id)

    def note_measured(self, node: Node, measured: Measured, at: float) -> None:
        """Add a sample of a node's links, made at the wall-clock time `at`."""
        node.is_forwarder = measured.is_forwarder
        done = node.meter.add(measured.uptime_s, measured.links, at)
        if done is not None:
            self._pending.add_point(node.id, done)

    async def expire(self) -> None:
        """Update the states of nodes by how long they have been silent. Remove those silent for too long."""
        changed, forgotten = self._nodes.expire(monotonic())
        for node in changed:
            log.info(node.state.value, node=node.id, name=node.profile.name)
            node.meter.clear()
            self._announcements.note_change(node)
        if forgotten:
            await self.remove(forgotten, "forgotten")

    def close_slots(self, now: float) -> None:
        """Complete the slots of history whose time is over."""
        for node in self._nodes:
            done = node.meter.close(now)
            if done is not None:
                self._pending.add_point(node.id, done)

    @staticmethod
    def made(profile: Profile, token_id: str, address: str, before: Node | None) -> Node:
        """Return a node that registers now. It keeps the time of registration and the rates of the node `before`."""
        wall = time()
        registered_at = before.registered_at if before else wall
        node = Node(profile, token_id, address, registered_at, wall, monotonic())
        if before is not None:
            node.meter = before.meter
        return node


def _restored(stored: StoredNode, heard_at: float) -> Node:
    return Node(stored.profile, stored.token_id, stored.address, stored.registered_at, stored.last_seen, heard_at)


def _stored(node: Node) -> StoredNode:
    return StoredNode(node.profile, node.token_id, node.address, node.registered_at, node.last_seen)
