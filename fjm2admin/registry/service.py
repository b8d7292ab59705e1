"""The service itself: what may be done by whom, kept in memory, written behind, and aged once in a while.

The file is the authority on which nodes and tokens there are, so that commands can change it while the service runs;
everything is answered from memory.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic, time

from fjm2.base.logs import Log

from ..advert import Advertiser, Target
from ..config import AdminConfig
from ..errors import Refusal, StoreError
from ..web.feed import ListFeed
from ..web.limits import Seats
from ..web.live import TICK_S, Live
from .measures import LinkSample, Point
from .nodes import Node, Profile, Registry, Silences, State
from .store import TIERS, Seen, Store, StoredNode
from .tokens import Scope, Token, TokenBook
from .writer import Writer

log = Log("fjm2admin.nodes")

_THIN_OUT_S = 60.0
_IDLE_WRITE_S = 60.0
"""So often the file is written to where nothing happens: it tells how long nodes have been silent."""
_LOOK_AGAIN_S = 0.2
"""The file is asked about tokens that are not known no more often."""
_POINTS_MAX = 100_000
"""So many slots of history wait for a file that cannot be written."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request."""

    token: Token
    address: str


@dataclass(frozen=True, slots=True)
class Measured:
    """A sample of a node's links."""

    uptime_s: float
    links: Sequence[LinkSample]
    is_forwarder: bool | None = None


class Service:
    """Lives in one event loop, between `start` and `close`."""

    def __init__(self, config: AdminConfig, store: Store, advertise_from: socket.socket | None) -> None:
        self.config = config
        self._writer = Writer(store)
        self.advertiser = (
            None if advertise_from is None else Advertiser(advertise_from, lambda: self.feed.snapshot.version)
        )
        self.tokens = TokenBook()
        self.nodes = Registry(
            Silences(config.stale_s, config.gone_s, config.forget_s), config.nodes_max, config.nodes_per_token
        )
        self.feed: ListFeed
        self.live: Live
        self.waits = Seats(config.waits_max, config.waits_per_token)
        self.streams = Seats(config.streams_max, config.streams_per_token)
        self._seen: set[str] = set()
        self._used: dict[str, float] = {}
        self._points: list[tuple[str, Point]] = []
        self._file_state = 0
        self._saved_at = 0.0
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._is_moved = False
        """Whether requests of some node come from another address since the advertiser was told of them."""
        self._fault: str | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # Beginning and end

    async def start(self) -> None:
        """Read the file, and begin to age what is in it."""
        self._file_state = await self._writer.run(Store.changes_by_others)
        self.tokens.replace(await self._writer.run(Store.tokens))
        # Nobody could be heard while the service was away: silence stood still.
        now, saved_at = monotonic(), await self._writer.run(Store.saved_at)
        for stored in await self._writer.run(Store.nodes):
            self.nodes.put(_restored(stored, now - max(0.0, saved_at - stored.last_seen)))
        self.nodes.expire(now)
        version = await self._writer.run(Store.list_version)
        self.feed = ListFeed(self.nodes, version, self._published)
        self.live = Live(self.nodes, self.nodes.find, {"stale_s": self.config.stale_s, "gone_s": self.config.gone_s})
        if self.advertiser is not None:
            self.advertiser.open()
        self._learn_addresses()
        for every_s, work in (
            (min(TICK_S, self.config.stale_s / 4), self._age),
            (TICK_S, self._write_behind),
            (_THIN_OUT_S, self._thin_out),
            (self.config.advert_every_s, self._advertise),
        ):
            self._tasks.append(asyncio.create_task(_repeat(every_s, work)))
        log.info("started", nodes=len(self.nodes), tokens=len(self.tokens))

    def end_waits(self) -> None:
        """Let everyone go who waits for something, so that the server can stop."""
        self.feed.close()
        self.live.close()

    async def close(self) -> None:
        """Write what has not been written."""
        self.end_waits()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._write_behind()
        await self._writer.close()
        if self.advertiser is not None:
            self.advertiser.close()

    @property
    def fault(self) -> str | None:
        """Why the service cannot do its work; None if it can."""
        return self._fault

    @property
    def advert_port(self) -> int:
        return self.config.advert_port if self.advertiser is not None else 0

    def list_age_s(self) -> float:
        """Since the list changed."""
        return max(0.0, time() - self.feed.snapshot.version / 1000)

    # What gateways do

    async def register(self, caller: Caller, profile: Profile) -> Node:
        """Put a node on the list. Refuses names and keys of others."""
        self._check_name(caller.token, profile.name)
        others = self.nodes.standing_in_the_way(profile)
        for other in others:
            self._check_owner(caller.token, other, profile)
        self.nodes.check_room(caller.token.id, others)
        same = next((other for other in others if other.id == profile.id), None)
        if same is not None and (same.profile, same.token_id) == (profile, caller.token.id):
            self._heard(same, caller.address)
            return same
        node = self._made(caller, profile, same)
        await self._put(node, others)
        log.info("registered", node=node.id, name=profile.name)
        return node

    async def _put(self, node: Node, instead_of: list[Node]) -> None:
        """Into memory at once, and into the file; if that fails it was never there.

        The writer works in the order in which it is asked, so memory and file change in the same order.
        """
        self.nodes.put(node)
        stored = _stored(node)
        try:
            await self._writer.run(lambda store: store.save_node(stored))
        except StoreError:
            self.nodes.remove(node.id)
            for other in instead_of:
                self.nodes.put(other)
            raise
        for other in instead_of:
            self.live.note(other.id)
        self._changed(node)

    def _made(self, caller: Caller, profile: Profile, before: Node | None) -> Node:
        wall = time()
        registered_at = before.registered_at if before else wall
        node = Node(profile, caller.token.id, caller.address, registered_at, wall, monotonic())
        if before is not None:
            node.meter = before.meter
        return node

    def _check_name(self, token: Token, name: str) -> None:
        if token.scope is not Scope.GATEWAY:
            raise Refusal(403, "wrong_scope", f"a token of scope {token.scope} cannot register; it takes scope gateway")
        if token.node is not None and token.node != name:
            raise Refusal(403, "wrong_node", f"this token is for the node {token.node!r} only")
        if token.node is None and self.tokens.is_for_one(name):
            named = self.nodes.named(name)
            if named is None or named.token_id != token.id:
                raise Refusal(409, "taken", f"there is a token for just the node {name!r}: use that one")

    def _check_owner(self, token: Token, other: Node, profile: Profile) -> None:
        """A node may be replaced by its own token, or, once that is revoked, by one made for just this node."""
        if other.id == profile.id and other.profile.public_key != profile.public_key:
            raise Refusal(409, "id_taken", "another key has the same id: make a new key with fjm2d keygen")
        is_heir = token.node == other.profile.name and not self.tokens.is_live(other.token_id)
        if other.token_id == token.id or is_heir:
            return
        what = "name" if other.profile.name == profile.name else "public key"
        raise Refusal(409, "taken", f"the {what} is registered with another token: remove that node first")

    async def heartbeat(
        self, caller: Caller, node_id: str, endpoints: tuple[str, ...] | None, measured: Measured | None
    ) -> None:
        """A node is alive, perhaps elsewhere."""
        node = self._own(caller, node_id)
        if endpoints is not None and endpoints != node.profile.endpoints:
            await self._move(node, endpoints)
        self._heard(node, caller.address)
        if measured is not None:
            self._measured(node, measured, time())

    async def _move(self, node: Node, endpoints: tuple[str, ...]) -> None:
        before = node.profile
        node.profile = replace(before, endpoints=endpoints)
        stored = _stored(node)
        try:
            await self._writer.run(lambda store: store.save_node(stored))
        except StoreError:
            node.profile = before
            raise
        self._changed(node)

    async def upload(self, caller: Caller, node_id: str, samples: Sequence[Measured]) -> None:
        """Samples of the past; the last is of now."""
        node = self._own(caller, node_id)
        self._heard(node, caller.address)
        now = time()
        for sample in samples:
            age_s = min(max(0.0, samples[-1].uptime_s - sample.uptime_s), TIERS[0].kept_s)
            self._measured(node, sample, now - age_s)

    async def remove(self, caller: Caller, node_id: str) -> None:
        """Take a node off the list: by its own token, or one of scope admin."""
        node = self.find(node_id)
        if caller.token.scope is not Scope.ADMIN:
            self._check_speaks_for(caller, node)
        await self._remove([node], "removed")

    def find(self, node_id: str) -> Node:
        node = self.nodes.find(node_id)
        if node is None:
            raise Refusal(404, "no_such_node", f"no node has the id {node_id}; it may have to register again")
        return node

    def _own(self, caller: Caller, node_id: str) -> Node:
        node = self.find(node_id)
        self._check_speaks_for(caller, node)
        return node

    def _check_speaks_for(self, caller: Caller, node: Node) -> None:
        if caller.token.scope is not Scope.GATEWAY or node.token_id != caller.token.id:
            raise Refusal(403, "not_yours", "only the token that registered the node may do this")

    async def history(self, node_id: str, minutes: int) -> tuple[int, list[Point]]:
        """Length of a slot, and the slots of the last minutes."""
        node = self.find(node_id)
        tier = next((tier for tier in TIERS if minutes * 60 <= tier.kept_s), TIERS[-1])
        since = int(time()) - minutes * 60
        points = await self._writer.run(lambda store: store.history(node_id, tier, since))
        current = node.meter.current()
        if current is not None and tier is TIERS[0]:
            points = [point for point in points if point.at < current.at] + [current]
        return tier.step_s, points

    async def token_of(self, text: str) -> Token | None:
        """The live token that this is the text of. It may have been made a moment ago: then only the file knows it."""
        token = self.tokens.find(text)
        if token is None and self.tokens.is_well_formed(text):
            await self._look_again()
            token = self.tokens.find(text)
        if token is not None:
            self._used[token.id] = time()
        return token

    async def _look_again(self) -> None:
        """Take over what the file has now. All who ask within a while share one look: strangers cause no load."""
        asked_at = monotonic()
        async with self._looking:
            if self._looked_at >= asked_at:
                return
            await asyncio.sleep(max(0.0, self._looked_at + _LOOK_AGAIN_S - asked_at))
            self._looked_at = monotonic()
            with contextlib.suppress(StoreError):
                await self._follow_file()

    # What follows from it

    def _heard(self, node: Node, address: str) -> None:
        node.heard_at, node.last_seen = monotonic(), time()
        self._seen.add(node.id)
        if node.address != address:
            node.address = address  # which only advertisements go by
            self._is_moved = True
        if node.state is not State.LIVE:
            node.state = State.LIVE
            self._changed(node)
        self.live.note(node.id)

    def _measured(self, node: Node, measured: Measured, at: float) -> None:
        node.is_forwarder = measured.is_forwarder
        done = node.meter.take(measured.uptime_s, measured.links, at)
        if done is not None:
            self._keep(node.id, done)

    def _keep(self, node_id: str, point: Point) -> None:
        if len(self._points) < _POINTS_MAX:
            self._points.append((node_id, point))

    def _changed(self, node: Node) -> None:
        self.feed.changed()
        self.live.note(node.id)

    async def _remove(self, nodes: list[Node], event: str) -> None:
        """From memory at once, and from the file."""
        ids = [node.id for node in nodes]
        for node_id in ids:
            self._dropped(node_id, event)
        try:
            await self._writer.run(lambda store: store.remove_nodes(ids))
        except StoreError:
            for node in nodes:
                if not self.nodes.standing_in_the_way(node.profile):
                    self.nodes.put(node)
            raise

    def _dropped(self, node_id: str, event: str) -> None:
        node = self.nodes.remove(node_id)
        if node is not None:
            log.info(event, node=node_id, name=node.profile.name)
            self._changed(node)

    def _published(self, version: int) -> None:
        log.debug("list_published", version=version, nodes=len(self.nodes))
        if self.advertiser is not None:
            self._learn_addresses()
            self.advertiser.advertise()

    def _learn_addresses(self) -> None:
        self._is_moved = False
        if self.advertiser is None:
            return
        targets = []
        for node in self.nodes:
            token = self.tokens.of(node.token_id)
            if node.state is not State.GONE and token is not None and token.is_live:
                targets += [Target(address, token.advert_key) for address in node.advert_addresses()]
        self.advertiser.know(targets)

    # What is done every so often

    async def _age(self) -> None:
        changed, forgotten = self.nodes.expire(monotonic())
        for node in changed:
            log.info(node.state.value, node=node.id, name=node.profile.name)
            node.meter.clear()
            self._changed(node)
        if forgotten:
            await self._remove(forgotten, "forgotten")
        if self._is_moved:
            self._learn_addresses()
        self.live.tick()

    async def _write_behind(self) -> None:
        """Write what has gathered, and read what others have changed."""
        now = time()
        for node in self.nodes:
            done = node.meter.close(now)
            if done is not None:
                self._keep(node.id, done)
        ids, self._seen = self._seen, set()
        points, self._points = self._points, []
        used, self._used = self._used, {}
        seen = [Seen(node.last_seen, node.address, node.id) for node in map(self.nodes.find, ids) if node is not None]
        uses = [(at, token_id) for token_id, at in used.items()]
        version = self.feed.snapshot.version
        is_idle = not (seen or points or uses) and now < self._saved_at + _IDLE_WRITE_S
        try:
            if not is_idle:
                await self._writer.run(lambda store: store.save_batch(seen, points, uses, version, now))
                self._saved_at = now
            await self._follow_file()
        except StoreError as error:
            self._seen |= ids
            self._points = (points + self._points)[:_POINTS_MAX]
            self._note_fault(str(error))
        else:
            self._note_fault(None)

    def _note_fault(self, fault: str | None) -> None:
        if fault != self._fault:
            self._fault = fault
            if fault:
                log.error("store_failed", error=fault)
            else:
                log.info("store_works_again")

    async def _follow_file(self) -> None:
        """Take over what commands have changed in the file."""
        state = await self._writer.run(Store.changes_by_others)
        if state == self._file_state:
            return
        self.tokens.replace(await self._writer.run(Store.tokens))
        # In this order: what is in memory by now is in the file by then.
        known = self.nodes.ids()
        for node_id in known - await self._writer.run(Store.node_ids):
            self._dropped(node_id, "removed")
        self._learn_addresses()
        self._file_state = state
        self.live.recheck()

    async def _thin_out(self) -> None:
        now = time()
        with contextlib.suppress(StoreError):
            await self._writer.run(lambda store: store.thin_out(now))

    async def _advertise(self) -> None:
        if self.advertiser is not None:
            self.advertiser.advertise()


async def _repeat(every_s: float, work: Callable[[], Awaitable[None]]) -> None:
    """Run for good. A fault of one turn is told, and is not the end of it."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception as error:
            log.failure("task_failed", error, task=getattr(work, "__name__", ""))


def _restored(stored: StoredNode, heard_at: float) -> Node:
    return Node(stored.profile, stored.token_id, stored.address, stored.registered_at, stored.last_seen, heard_at)


def _stored(node: Node) -> StoredNode:
    return StoredNode(node.profile, node.token_id, node.address, node.registered_at, node.last_seen)
