"""The node-list service: the operations of its API, and its periodic work.

The file is the authority on which nodes and tokens there are, so that commands can change it while the service runs.
Requests are answered from memory. Registrations are written to the file at once, measurements in batches.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import time

from fjm2.base.logs import Log

from ..advert import Advertiser
from ..config import AdminConfig
from ..errors import Refusal, StoreError
from ..web.feed import ListFeed
from ..web.limits import ConcurrencyLimit
from ..web.live import TICK_S, Live
from .announcements import Announcements
from .file_follower import FileFollower
from .file_health import CHECK_S, FileHealth
from .measures import Point
from .members import Measured, Members
from .nodes import Node, Profile, Registry, Silences
from .pending_writes import PendingWrites
from .permissions import Permissions
from .store import TIERS, Store
from .tokens import Token, TokenBook
from .writer import Writer

log = Log("fjm2admin.nodes")

_THIN_OUT_S = 60.0
"""Time between two passes over the history: the length of the slots of the second tier."""
_IDLE_WRITE_S = 60.0
"""Time between two writes while nothing happens. The file's time of writing tells how long nodes have been silent."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The token and the address of a request."""

    token: Token
    address: str


class Service:
    """The node-list service. It lives in one event loop, between `start` and `close`."""

    def __init__(self, config: AdminConfig, store: Store, advertise_from: socket.socket | None) -> None:
        self.config = config
        self.tokens = TokenBook()
        self.nodes = Registry(
            Silences(config.stale_s, config.gone_s, config.forget_s), config.nodes_max, config.nodes_per_token
        )
        self.waits = ConcurrencyLimit(config.waits_max, config.waits_per_token)
        self.streams = ConcurrencyLimit(config.streams_max, config.streams_per_token)
        self._writer = Writer(store)
        self._health = FileHealth(self._writer)
        self._pending = PendingWrites()
        self._permissions = Permissions(self.tokens, self.nodes)
        self._announcements = Announcements(self.nodes, self.tokens, advertise_from)
        self._members = Members(self.nodes, self._writer, self._announcements, self._pending)
        self._follower = FileFollower(self._writer, self.tokens, self.nodes, self._members, self._announcements)
        self._saved_at = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Read the file, and begin the periodic work."""
        await self._follower.begin()
        await self._members.restore()
        version = await self._writer.run(Store.list_version)
        self._announcements.open(version, {"stale_s": self.config.stale_s, "gone_s": self.config.gone_s})
        for every_s, work in (
            (min(TICK_S, self.config.stale_s / 4), self._age),
            (TICK_S, self._write_behind),
            (CHECK_S, self._health.check),
            (_THIN_OUT_S, self._thin_out),
            (self.config.advert_every_s, self._advertise),
        ):
            self._tasks.append(asyncio.create_task(_repeat(every_s, work)))
        log.info("started", nodes=len(self.nodes), tokens=len(self.tokens))

    def end_waits(self) -> None:
        """Release all requests that wait for a change, so that the server can stop."""
        self._announcements.end_waits()

    async def close(self) -> None:
        """Stop the periodic work, and write everything that has not been written."""
        self.end_waits()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._write_behind()
        await self._writer.close()
        self._announcements.close()

    @property
    def fault(self) -> str | None:
        """Reason why the service cannot use its file; None if it can."""
        return self._health.fault

    @property
    def feed(self) -> ListFeed:
        """The list as gateways read it. It exists after `start`."""
        return self._announcements.feed

    @property
    def live(self) -> Live:
        """The events for pages. They exist after `start`."""
        return self._announcements.live

    @property
    def advertiser(self) -> Advertiser | None:
        """Sender of advertisements by UDP; None if they are switched off."""
        return self._announcements.advertiser

    @property
    def advert_port(self) -> int:
        """UDP port of advertisements; 0 if they are switched off."""
        return self.config.advert_port if self.advertiser is not None else 0

    def list_age_s(self) -> float:
        """Return the seconds since the list changed."""
        return max(0.0, time() - self.feed.snapshot.version / 1000)

    async def token_of(self, text: str) -> Token | None:
        """Return the live token that has this text, and note its use; None if there is none."""
        token = await self._follower.token_of(text)
        if token is not None:
            self._pending.used[token.id] = time()
        return token

    async def register(self, caller: Caller, profile: Profile) -> Node:
        """Put a node on the list. Raise Refusal for a name or key that another token has registered."""
        token = caller.token
        self._permissions.check_name(token, profile.name)
        others = self.nodes.conflicting(profile)
        for other in others:
            self._permissions.check_replacement(token, other, profile)
        self._permissions.check_look(profile, others)
        self.nodes.check_room(token.id, others)
        same = next((other for other in others if other.id == profile.id), None)
        if same is not None and (same.profile, same.token_id) == (profile, token.id):
            self._members.note_heard(same, caller.address)
            return same
        node = self._members.made(profile, token.id, caller.address, same)
        await self._members.add(node, others)
        log.info("registered", node=node.id, name=profile.name)
        return node

    async def heartbeat(
        self, caller: Caller, node_id: str, endpoints: tuple[str, ...] | None, measured: Measured | None
    ) -> None:
        """Note that a node is alive. Change its endpoints and add its measurements, if these are given."""
        node = self._own(caller, node_id)
        if endpoints is not None and endpoints != node.profile.endpoints:
            await self._members.move(node, endpoints)
        self._members.note_heard(node, caller.address)
        if measured is not None:
            self._members.note_measured(node, measured, time())

    async def upload(self, caller: Caller, node_id: str, samples: Sequence[Measured]) -> None:
        """Add samples of a node's past. The last sample is taken as made now."""
        node = self._own(caller, node_id)
        self._members.note_heard(node, caller.address)
        now = time()
        for sample in samples:
            age_s = min(max(0.0, samples[-1].uptime_s - sample.uptime_s), TIERS[0].kept_s)
            self._members.note_measured(node, sample, now - age_s)

    async def remove(self, caller: Caller, node_id: str) -> None:
        """Take a node off the list. Raise Refusal unless the caller's token is the node's own, or of scope admin."""
        node = self.find(node_id)
        self._permissions.check_removal(caller.token, node)
        await self._members.remove([node], "removed")

    def find(self, node_id: str) -> Node:
        """Return the node with this id. Raise Refusal if there is none."""
        node = self.nodes.find(node_id)
        if node is None:
            raise Refusal(404, "no_such_node", f"no node has the id {node_id}; it may have to register again")
        return node

    def _own(self, caller: Caller, node_id: str) -> Node:
        node = self.find(node_id)
        self._permissions.check_speaks_for(caller.token, node)
        return node

    async def history(self, node_id: str, minutes: int) -> tuple[int, list[Point]]:
        """Return the length of a slot in seconds, and a node's slots of the last `minutes`."""
        node = self.find(node_id)
        tier = next((tier for tier in TIERS if minutes * 60 <= tier.kept_s), TIERS[-1])
        since = int(time()) - minutes * 60
        points = await self._writer.run(lambda store: store.history(node_id, tier, since))
        current = node.meter.current()
        if current is not None and tier is TIERS[0]:
            points = [point for point in points if point.at < current.at] + [current]
        return tier.step_s, points

    async def _age(self) -> None:
        await self._members.expire()
        self._announcements.tick()

    async def _write_behind(self) -> None:
        """Write the changes gathered since the last batch, and adopt the changes of other processes."""
        now = time()
        self._members.close_slots(now)
        batch = self._pending.take()
        seen, uses = batch.seen_nodes(self.nodes), batch.uses()
        version = self.feed.snapshot.version
        is_idle = not (seen or batch.points or uses) and now < self._saved_at + _IDLE_WRITE_S
        try:
            if not is_idle:
                await self._writer.run(lambda store: store.save_batch(seen, batch.points, uses, version, now))
                self._saved_at = now
            await self._follower.follow()
        except StoreError as error:
            self._pending.put_back(batch)
            self._health.note_write(str(error))
        else:
            self._health.note_write(None)

    async def _thin_out(self) -> None:
        now = time()
        with contextlib.suppress(StoreError):
            await self._writer.run(lambda store: store.thin_out(now))

    async def _advertise(self) -> None:
        self._announcements.advertise()


async def _repeat(every_s: float, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` over and over. A failure is logged, and does not end the repetition."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception as error:
            log.failure("task_failed", error, task=getattr(work, "__name__", ""))
