"""The list of nodes as gateways get it: made once a change, kept ready, and one wake-up for all who wait."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import time

from .nodes import Node, State

_SOON_S = 0.05
_WAITER_S = 0.001
_SPACING_S = (0.1, 1.0)
"""Changes that come close together are told together, the more so the more are to be told."""
_TELLING_SHARE = 3
_COMPRESSION = 4


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The list at one version."""

    version: int
    body: bytes
    compressed: bytes

    @property
    def etag(self) -> str:
        return f'"{self.version}"'


def entry(node: Node) -> dict[str, object]:
    """A node as others see it."""
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


def _snapshot(version: int, nodes: Iterable[Node]) -> Snapshot:
    entries = [entry(node) for node in nodes if node.state is not State.GONE]
    text = json.dumps({"version": version, "nodes": entries}, ensure_ascii=False, separators=(",", ":"))
    body = text.encode()
    return Snapshot(version, body, gzip.compress(body, _COMPRESSION, mtime=0))


class ListFeed:
    """The current list, and those who wait for the next one."""

    def __init__(self, nodes: Iterable[Node], version: int, published: Callable[[int], None]) -> None:
        self._nodes = nodes
        self._published = published
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._published_at = self._told_at = self._loop.time() - _SPACING_S[1]
        self._is_closed = False
        self.waiters = 0
        self.snapshot = _snapshot(version or _version_after(0), nodes)

    def changed(self) -> None:
        """The list is no longer what it was."""
        if self._timer is None and not self._is_closed:
            least, most = _SPACING_S
            # On a busy host, telling everyone may take longer than that: most of the time is left for the rest.
            telling_s = self._told_at - self._published_at
            spacing = max(min(most, least + _WAITER_S * self.waiters), _TELLING_SHARE * telling_s)
            at = max(self._loop.time() + _SOON_S, self._published_at + spacing)
            self._timer = self._loop.call_at(at, self._publish)

    def _publish(self) -> None:
        self._timer = None
        self._published_at = self._loop.time()
        self.snapshot = _snapshot(_version_after(self.snapshot.version), self._nodes)
        self._wake()
        self._published(self.snapshot.version)

    def _wake(self) -> None:
        self._next.set_result(None)
        self._next = self._loop.create_future()

    async def wait(self, seconds: float, or_until: "asyncio.Future[None]") -> None:
        """Until the next list, for no longer than so, or until something else happens."""
        if self._is_closed:
            return
        told = self._next
        self.waiters += 1
        try:
            await asyncio.wait((told, or_until), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waiters -= 1
        if told.done():
            self._told_at = self._loop.time()

    def close(self) -> None:
        """Nobody waits any more."""
        if not self._is_closed:
            self._is_closed = True
            if self._timer is not None:
                self._timer.cancel()
            self._wake()


def _version_after(version: int) -> int:
    """Later than this one, also where the clock was set back or a version was never stored."""
    return max(version + 1, int(time() * 1000))
