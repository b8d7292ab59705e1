"""Events for pages: a snapshot, then changes once a tick, in the same bytes for all pages."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from time import time

from ..registry.nodes import Node
from .feed import entry

TICK_S = 1.0
"""Time between two events with changes."""
_QUIET_TICKS_MAX = 5
"""Ticks without changes after which an event is sent anyway, so that a page knows that it is connected."""
_BEHIND_TICKS_MAX = 8
"""Ticks by which a slow page may be behind. A page that is further behind gets a new snapshot."""


def _shown(node: Node) -> dict[str, object]:
    meter = node.meter
    return entry(node) | {
        "is_forwarder": node.is_forwarder,
        "rates": meter.rates._asdict(),
        "links": [link._asdict() for link in meter.links],
    }


def _event(name: str, content: dict[str, object]) -> bytes:
    return _head(name, content) + _stamp()


def _head(name: str, content: dict[str, object]) -> bytes:
    """Return a server-sent event up to its send time, which `_stamp` appends."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text[:-1]}".encode()


def _stamp() -> bytes:
    return f',"now":{time():.3f}}}\n\n'.encode()


class Live:
    """Stream of changes of the nodes for every open page."""

    def __init__(self, nodes: Iterable[Node], find: Callable[[str], Node | None], about: dict[str, object]) -> None:
        self._nodes = nodes
        self._find = find
        self._about = about
        self._changed: set[str] = set()
        self._quiet_ticks = 0
        self._ticks: dict[int, bytes] = {}
        self._tick = 0
        self._kept_snapshot: bytes | None = None
        """Snapshot without its time. It is valid until the next tick, and kept while any page is open."""
        self._next: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_closed = False
        self.watching = 0

    def note(self, node_id: str) -> None:
        """Note that a node came, changed or left."""
        if self.watching:
            self._changed.add(node_id)

    def tick(self) -> None:
        """Send the changes since the last tick to all pages."""
        if not self.watching:
            return
        self._quiet_ticks += 1
        if not self._changed and self._quiet_ticks < _QUIET_TICKS_MAX:
            return
        self._quiet_ticks = 0
        ids, self._changed = self._changed, set()
        found = {node_id: self._find(node_id) for node_id in ids}
        event = _event(
            "changes",
            {
                "nodes": [_shown(node) for node in found.values() if node is not None],
                "removed": [node_id for node_id, node in found.items() if node is None],
            },
        )
        self._tick += 1
        self._kept_snapshot = None
        self._ticks[self._tick] = event
        self._ticks.pop(self._tick - _BEHIND_TICKS_MAX, None)
        self._wake()

    def _wake(self) -> None:
        self._next.set_result(None)
        self._next = asyncio.get_running_loop().create_future()

    def recheck(self) -> None:
        """Have all streams check whether they may go on."""
        self._wake()

    def close(self) -> None:
        """End every stream."""
        if not self._is_closed:
            self._is_closed = True
            self._wake()

    async def events(self, may_go_on: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events, whole or in parts, until the service stops or `may_go_on` returns False."""
        self.watching += 1
        try:
            at = self._tick
            for part in self._snapshot():
                yield part
            while not self._is_closed:
                if at == self._tick:
                    await asyncio.wait((self._next,))
                    if not may_go_on():
                        return
                elif at + 1 in self._ticks:
                    at += 1
                    yield self._ticks[at]
                else:
                    at = self._tick
                    for part in self._snapshot():
                        yield part
        finally:
            self.watching -= 1
            if not self.watching:
                self._changed.clear()
                self._ticks.clear()
                self._kept_snapshot = None

    def _snapshot(self) -> tuple[bytes, bytes]:
        """Return a snapshot in two parts. The first, long part is made once a tick, and is the same for all pages."""
        if self._kept_snapshot is None:
            nodes = [_shown(node) for node in self._nodes]
            self._kept_snapshot = _head("snapshot", {"about": self._about, "nodes": nodes})
        return self._kept_snapshot, _stamp()
