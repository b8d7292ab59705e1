"""The list of nodes for gateways, made once for each change and kept ready. One wake-up serves all waiting requests."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import time

from ..registry.nodes import Node, State

_SOON_S = 0.05
"""Delay after a change, so that changes that come together make one list."""
_WAITER_S = 0.001
"""Rough time to answer one waiting request. The more requests wait, the longer is the time between two lists."""
_SPACING_S = (0.1, 1.0)
"""Least time between two lists: if no request waits, and if very many wait."""
_ANSWER_SHARE = 3
"""Least time between two lists, as a multiple of the time that answering with the last list took. It leaves time for
other work."""
_COMPRESSION_LEVEL = 4
"""Level of gzip: higher ones take much longer for a list that is hardly smaller."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The list of nodes at one version, encoded for answers."""

    version: int
    body: bytes
    compressed: bytes

    @property
    def etag(self) -> str:
        """ETag of the list: its version in quotes."""
        return f'"{self.version}"'


def entry(node: Node) -> dict[str, object]:
    """Return a node as other gateways and pages see it."""
    profile = node.profile
    return {
        "id": profile.id,
        "name": profile.name,
        "public_key": profile.public_key,
        "endpoints": profile.endpoints,
        "groups": profile.groups,
        "lan": profile.lan,
        "version": profile.version,
        "state": node.state.value,
        "last_seen": round(node.last_seen, 3),
    }


def _entries(nodes: Iterable[Node]) -> list[dict[str, object]]:
    return [entry(node) for node in nodes if node.state is not State.GONE]


def make_snapshot(version: int, entries: Iterable[dict[str, object]]) -> Snapshot:
    """Encode a list entry by entry: one long call in a thread would block the event loop."""
    texts = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in entries)
    body = f'{{"version":{version},"nodes":[{",".join(texts)}]}}'.encode()
    return Snapshot(version, body, gzip.compress(body, _COMPRESSION_LEVEL, mtime=0))


class ListFeed:
    """The current list, and a wake-up for requests that wait for the next one."""

    def __init__(self, nodes: Iterable[Node], last_version: int, published: Callable[[int], None]) -> None:
        self._nodes = nodes
        self._published = published
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._making: asyncio.Task[None] | None = None
        self._is_behind = False
        """True if nodes have changed since the list that is being made."""
        self._published_at = self._answered_at = self._loop.time() - _SPACING_S[1]
        self._is_closed = False
        self.waiters = 0
        # Later than the stored version: a list published just before a kill may have a version that was not stored.
        self.snapshot = make_snapshot(_version_after(last_version), _entries(nodes))

    def changed(self) -> None:
        """Schedule a new list, because nodes have changed."""
        self._is_behind = True
        if self._timer is None and self._making is None and not self._is_closed:
            least, most = _SPACING_S
            # On a busy host, answering all may take longer than the spacing. Leave most of the time for other work.
            answering_s = self._answered_at - self._published_at
            spacing = max(min(most, least + _WAITER_S * self.waiters), _ANSWER_SHARE * answering_s)
            at = max(self._loop.time() + _SOON_S, self._published_at + spacing)
            self._timer = self._loop.call_at(at, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._published_at = self._loop.time()
        self._is_behind = False
        self._making = self._loop.create_task(self._publish(_entries(self._nodes)))

    async def _publish(self, entries: list[dict[str, object]]) -> None:
        version = _version_after(self.snapshot.version)
        try:
            self.snapshot = await self._loop.run_in_executor(None, make_snapshot, version, entries)
        finally:
            self._making = None
        if self._is_closed:
            return
        self._wake()
        self._published(version)
        if self._is_behind:
            self.changed()

    def _wake(self) -> None:
        self._next.set_result(None)
        self._next = self._loop.create_future()

    async def wait(self, seconds: float, or_until: "asyncio.Future[None]") -> None:
        """Wait until a new list is published, `or_until` is done, or the time is over."""
        if self._is_closed:
            return
        published = self._next
        self.waiters += 1
        try:
            await asyncio.wait((published, or_until), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waiters -= 1
        if published.done():
            self._answered_at = self._loop.time()

    def close(self) -> None:
        """Release all waiting requests, and make no more lists."""
        if not self._is_closed:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._wake()


def _version_after(version: int) -> int:
    """Return a later version, even if the clock was set back or a version was never stored."""
    return max(version + 1, int(time() * 1000))
