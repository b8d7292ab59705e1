"""The list of nodes as gateways get it: made once a change, kept ready, and one wake-up for all who wait."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import time

from ..registry.nodes import Node, State

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


def _entries(nodes: Iterable[Node]) -> list[dict[str, object]]:
    return [entry(node) for node in nodes if node.state is not State.GONE]


def _snapshot(version: int, entries: Iterable[dict[str, object]]) -> Snapshot:
    """One entry after another: made in a thread, it leaves the loop its turns."""
    texts = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in entries)
    body = f'{{"version":{version},"nodes":[{",".join(texts)}]}}'.encode()
    return Snapshot(version, body, gzip.compress(body, _COMPRESSION, mtime=0))


class ListFeed:
    """The current list, and those who wait for the next one."""

    def __init__(self, nodes: Iterable[Node], last_version: int, published: Callable[[int], None]) -> None:
        self._nodes = nodes
        self._published = published
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._making: asyncio.Task[None] | None = None
        self._is_behind = False
        """Whether the list has changed since the one that is being made."""
        self._published_at = self._told_at = self._loop.time() - _SPACING_S[1]
        self._is_closed = False
        self.waiters = 0
        # Another one than the last: what was published just before a kill may not have been stored as published.
        self.snapshot = _snapshot(_version_after(last_version), _entries(nodes))

    def changed(self) -> None:
        """The list is no longer what it was."""
        self._is_behind = True
        if self._timer is None and self._making is None and not self._is_closed:
            least, most = _SPACING_S
            # On a busy host, telling everyone may take longer than that: most of the time is left for the rest.
            telling_s = self._told_at - self._published_at
            spacing = max(min(most, least + _WAITER_S * self.waiters), _TELLING_SHARE * telling_s)
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
            self.snapshot = await self._loop.run_in_executor(None, _snapshot, version, entries)
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
