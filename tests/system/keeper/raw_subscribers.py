"""A client of a cell that speaks the formats of the wire by hand: requests, decisions, pages and replayed frames."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random

from keepers import DEADLINE_S, Writer, writing

from fjm2.base.ledger import Ledger
from fjm2.bus.ledgers.destinations import DECISIONS, REQUESTS
from fjm2.bus.ledgers.replay_listener import ReplayListener
from fjm2.cell.service.reader import DecisionReader
from fjm2.cell.service.reasons import Reason
from fjm2.cell.wire.catch_up import CatchUpPage, CatchUpQuery
from fjm2.cell.wire.commands import Heartbeat, MemberFlag, decode_command
from fjm2.cell.wire.kinds import Kind
from fjm2.cell.wire.leases import LEASES_TYPE, encode_leases
from fjm2.cell.wire.ranges import Range
from fjm2.cell.wire.records import ApplyRecord
from fjm2.cell.wire.requests import (
    Ack,
    Open,
    Place,
    Request,
    Subscribe,
    SubscriptionFlag,
    encode_request,
)
from fjm2.messages.batches.frame_run import Frames
from fjm2.messages.destination import Topic
from fjm2.messages.frame import Frame
from fjm2.messages.ledgers.run_columns import columns_of

_RENEW_S = 0.5
_ASK_S = 0.3
_FIRST = Ledger(0, 0, 0)


class RawSubscriber:
    """One session with durable consumers."""

    def __init__(self, writer: Writer, client_id: str) -> None:
        self.writer, self.client_id = writer, client_id
        self.session = Random().getrandbits(64)
        self.reader = DecisionReader()
        self.verdicts: dict[int, int] = {}
        """Reason of each request that was decided, by its sequence."""
        self.heartbeat: Heartbeat | None = None
        self.manager_node = 0
        """Node that sent the heartbeat. Only the manager counts leases."""
        self.frames: dict[tuple[Ledger, int], bytes] = {}
        """Bodies of the frames that were replayed."""
        self._pages: asyncio.Queue[CatchUpPage] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._bus = writer.bus
        self._listener = ReplayListener(self._bus.config, self._take_replayed, lambda: True)
        writer.on_heartbeat = self._hear_heartbeat
        self._bus.lanes.signals.hear_commands(int(Kind.CATCH_UP_PAGE), self._hear_page)
        self._bus.router.add_tap(self)
        self._task = asyncio.ensure_future(self._turn())

    # Hearing

    def _hear_heartbeat(self, node_id: int, heartbeat: Heartbeat) -> None:
        self.heartbeat, self.manager_node = heartbeat, node_id
        self.reader.receive_heartbeat(heartbeat)
        self._read()

    is_full = False

    def take_run(self, _: int, frames: Frames) -> None:
        for columns in columns_of(frames):
            for place in range(len(columns)):
                if columns.headers["destination_hash"][place] == DECISIONS.frame_hash:
                    section = columns.sections[place]
                    epoch, index = int(section["producer_epoch"]), int(section["sequence"])
                    self.reader.receive_entry(epoch, index, columns.body(place))
        self._read()

    def _read(self) -> None:
        for entry in self.reader.read():
            for record in entry.records:
                if isinstance(record, ApplyRecord) and record.ledger == self.writer.ledger:
                    self.verdicts.update((each.sequence, each.reason) for each in record.verdicts)

    def _hear_page(self, _: int, content: bytes) -> None:
        page = decode_command(content)
        assert isinstance(page, CatchUpPage)
        if page.session == self.session:
            self._pages.put_nowait(page)

    def _take_replayed(self, _: int, frames: list[Frame]) -> None:
        for columns in columns_of(frames):
            assert columns.intact().all()
            for place in range(len(columns)):
                section = columns.sections[place]
                ledger = Ledger(int(section["producer_id"]), int(section["producer_epoch"]), self.writer.ledger.lane)
                self.frames[ledger, int(section["sequence"])] = columns.body(place)

    async def _turn(self) -> None:
        """Renew the lease, and fetch decisions that are missing."""
        while True:
            if self.heartbeat is not None:
                content = encode_leases((self.session,))
                with contextlib.suppress(Exception):
                    self._bus.lanes.session.send_ack(self.manager_node, LEASES_TYPE, content)
                fetch = self.reader.poll_fetch(self._bus.node_id, self._loop.time())
                if fetch is not None:
                    self._bus.lanes.session.send_command(fetch.encode())
            await asyncio.sleep(_RENEW_S / 5)

    # Asking

    @property
    def nodes(self) -> list[int]:
        """Nodes of the keepers that live."""
        assert self.heartbeat is not None
        return [each.node_id for each in self.heartbeat.members if each.flags & MemberFlag.LIVE]

    async def until(self, is_true: Callable[[], object], timeout_s: float = DEADLINE_S) -> None:
        ends_at = self._loop.time() + timeout_s
        while not is_true():
            assert self._loop.time() < ends_at, (self.verdicts, self.reader.index, self.heartbeat)
            await asyncio.sleep(0.01)

    async def request(self, request: Request) -> tuple[int, int]:
        """Send a request until it is decided. Return its sequence and the reason."""
        for _ in range(4):
            stored = self.writer.send(encode_request(request), REQUESTS)
            sequence = self.writer.gate.newest(self.writer.ledger.lane).sequence
            await self.writer.stored(stored)
            with contextlib.suppress(AssertionError):
                await self.until(lambda number=sequence: number in self.verdicts, 3.0)  # type: ignore[misc]
                return sequence, self.verdicts[sequence]
        raise AssertionError(f"{request} is not decided: {self.verdicts}")

    async def open(self) -> None:
        await self.until(lambda: self.heartbeat is not None and self.reader.index)
        assert (await self.request(Open(self.session, 1, self.client_id)))[1] == Reason.GRANTED

    async def subscribe(self, topic: Topic, name: str = "news") -> int:
        """Return the number of a new durable consumer."""
        place = Place(0, topic.name)
        request = Subscribe(self.session, int(SubscriptionFlag.DURABLE), 256, place, name, "")
        sequence, reason = await self.request(request)
        assert reason == Reason.GRANTED, Reason(reason)
        return sequence & 0xFFFF_FFFF

    async def acknowledge(self, consumer: int, ledger: Ledger, first: int, last: int) -> Reason:
        ranges = (Range(ledger, first, last - first + 1, consumer),)
        return Reason((await self.request(Ack(self.session, ranges)))[1])

    async def page(self, keeper_node: int, consumer: int, ledger: Ledger, first: int, *, is_exact: bool) -> CatchUpPage:
        """Ask a keeper until it answers."""
        assert self.heartbeat is not None
        query = CatchUpQuery(
            is_exact=is_exact,
            reply_to=self._bus.node_id,
            keeper_node=keeper_node,
            consumer=consumer,
            cell_id=self.heartbeat.cell_id,
            session=self.session,
            ledger=ledger,
            first=first,
        )
        ends_at = self._loop.time() + DEADLINE_S
        while self._loop.time() < ends_at:
            self._listener.listen()
            self._bus.lanes.session.send_command(query.encode())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ASK_S):
                    return await self._pages.get()
        raise AssertionError(f"no answer to {query}")

    async def catch_up(self, consumer: int, through: int, keeper_node: int | None = None) -> dict[int, bytes]:
        """Return the bodies of all messages of the first ledger that has some, by sequence, page by page."""
        node = self.nodes[0] if keeper_node is None else keeper_node
        hint = await self.page(node, consumer, _FIRST, 1, is_exact=False)
        page = await self.page(node, consumer, hint.ledger, 1, is_exact=True)
        found: dict[int, bytes] = {}
        ends_at = self._loop.time() + 4 * DEADLINE_S
        while True:
            assert self._loop.time() < ends_at, f"{len(found)} messages, at {page}"
            wanted = [number for first, last in page.spans for number in range(first, last + 1)]
            with contextlib.suppress(AssertionError):
                await self.until(lambda: all((page.ledger, number) in self.frames for number in wanted), 1.0)  # noqa: B023
            missing = [number for number in wanted if (page.ledger, number) not in self.frames]
            found.update((number, self.frames[page.ledger, number]) for number in wanted if number not in missing)
            first = missing[0] if missing else page.through + 1
            if first > through:
                return found
            page = await self.page(node, consumer, page.ledger, first, is_exact=True)

    async def close(self) -> None:
        self._task.cancel()
        self._bus.router.remove_tap(self)
        await self._listener.close()


@contextlib.asynccontextmanager
async def subscribing(port: int, client_id: str = "client") -> AsyncIterator[RawSubscriber]:
    """Yield a client with an open session."""
    async with writing(port) as writer:
        subscriber = RawSubscriber(writer, client_id)
        try:
            await subscriber.open()
            yield subscriber
        finally:
            await subscriber.close()
