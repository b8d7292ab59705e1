"""Keepers in the process of a test: real cells with real journals on simulated disks, each on a bus of its own.

Publishers meet them over `lo`. What keepers only say to each other, decisions and fetched frames, is passed by calls.
Cells are founded in a moment, in a time of their own that ends when they join their bus.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from random import Random

from fjm2.base.errors import NormError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.bus.bus import Bus
from fjm2.bus.lane import LANE_OF_PRIORITY
from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import Event, Outgoing, Replay, SendCommand, SendEntry, SendStored, TableChanged
from fjm2.cell.wire.kinds import Kind
from fjm2.cell.wire.records import Record, Subscription, TableRecord
from fjm2.cell.wire.requests import Place
from fjm2.cell.wire.stored import STORED_TYPE
from fjm2.keeper.keeper import keeper_config
from fjm2.keeper.storage import JournalStorage, member_of, remember
from fjm2.messages.batches.frame_run import Frames
from fjm2.messages.destination import KIND_FLAGS, QUEUE_FLAG, Destination, TopicPattern
from fjm2.messages.frame import FrameReader
from fjm2.messages.header import DESTINATION_HASH, FLAGS, PRIORITY
from fjm2.messages.ledgers.ledger_number import is_intact, ledger_number_of
from fjm2.norm.events import AckReceived, AckRequested
from fjm2.store.config import StoreConfig
from fjm2.store.opening import open_journal
from fjm2.store.sim_disk import SimDisk

GROUP = "239.192.57.40"
_FOUNDING_S = 20.0
"""Time of its own in which a cell is founded, and begins to serve."""
_STEP_S = 0.01
_AGAIN_S = 1.0
"""Time after which something is proposed again: a manager that was paused has stepped down."""
_SYNC_S = 0.001
"""Time that a disk takes."""
_READ_BYTES = 1 << 30
_DSCP_STEP = 8
"""Step of the settings by which buses of one process are told apart."""


def uri(port: int, dscp: int = 0) -> str:
    return f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms&dscp={dscp}"


class LocalStore:
    """A journal on a simulated disk, which a test can stop."""

    def __init__(self, number: int, config: StoreConfig) -> None:
        self.disk = SimDisk(number)
        self.journal = open_journal(self.disk, config, Random(number))
        self.is_stopped = False

    def write(self) -> bool:
        """Bring everything that waits to the disk. Return True if there was something."""
        before = self.journal.lsn
        if self.journal.wants_checkpoint:
            self.journal.start_checkpoint()
        while not self.is_stopped and (write := self.journal.poll_write()) is not None:
            write.perform(self.disk)
            self.journal.handle_synced(write)
        return self.journal.lsn != before

    def frames(self, ledger: Ledger, first: int = 1, last: int = 1 << 60) -> list[tuple[int, bytes]]:
        """Return the frames of a ledger on disk, with their sequences."""
        found: list[tuple[int, bytes]] = []
        at: int | None = first
        while at is not None:
            read = self.journal.read(ledger, RangeSet([(first, last + 1)]), _READ_BYTES, at)
            pairs = zip(read.sequences.tolist(), read.fetch(self.disk), strict=True)
            found += [(sequence, data) for sequence, data in pairs if data is not None]
            at = read.resume_at
        return found

    @property
    def ledgers(self) -> list[Ledger]:
        """Ledgers of writers that the disk knows, in order."""
        return sorted(ledger for ledger in self.journal.ledgers() if ledger.lane < 3)

    def bodies(self) -> list[bytes]:
        """Return the bodies of all messages on disk, by ledger and sequence."""
        data = b"".join(frame for ledger in self.ledgers for _, frame in self.frames(ledger))
        return [buffer[body:end] for buffer, _, body, end, _ in FrameReader().feed(data, (0,))]


class LocalKeeper:
    """A keeper that a test can make deaf and mute, and whose disk it can stop."""

    is_full = False

    def __init__(self, peers: "list[LocalKeeper]", number: int, store: LocalStore) -> None:
        self.peers = peers
        self.number = number
        self.store = store
        self.is_cut_off = False
        """True while nothing comes or goes."""
        self.tells_unasked = True
        """False if STORED reaches writers only when they ask."""
        self.requests = 0
        """Requests for STORED that came."""
        self.bus: Bus | None = None
        self.node_id = 0
        self.is_joined = False
        """True while the keeper hears and speaks on its bus."""
        self.cell: Cell
        self.now = 0.0
        """Time of its own, until it joins the bus."""
        self.stored_hashes: frozenset[int] = frozenset()
        self._producers: dict[int, set[int]] = {}
        """Producers by the nodes that they were heard from."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_syncing = False

    async def begin(self, port: int, now: float, members_wanted: int) -> None:
        """Begin at a time, with a bus that nothing comes from yet."""
        self.bus = await Bus.open(keeper_config(uri(port, _DSCP_STEP * self.number)))
        self.node_id = self.bus.node_id
        self.now = now
        journal = self.store.journal
        self.cell = Cell(
            member_of(journal),
            self.node_id,
            1 << 127,
            JournalStorage(journal, journal.append),
            Random(self.number),
            now,
            members_wanted=members_wanted,
            remembered=remember(journal, self.store.disk),
        )

    def join(self) -> None:
        """Hear and speak on the bus from now on."""
        self.is_joined = True
        signals = self._opened.lanes.signals
        for kind in Kind:
            signals.hear_commands(kind, lambda node, content: self._receive(content, node))
        signals.hear_acks(STORED_TYPE, self._hear_stored)
        signals.hear_requests(STORED_TYPE, self._hear_request)
        self._opened.router.add_tap(self)
        self.settle()

    def announce(self, *, has_cell: bool = True) -> None:
        """Say that a keeper is there, even before it hears and speaks of anything else."""
        everything = frozenset((TopicPattern(">").frame_hash,))
        self._opened.announce(self.number, f"keeper-{self.number}", everything, is_keeper=True, has_cell=has_cell)

    @property
    def _opened(self) -> Bus:
        assert self.bus is not None
        return self.bus

    async def leave(self) -> None:
        """End the process: nothing is said any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.is_cut_off, self.is_joined = True, False
        if self.bus is not None:
            bus, self.bus = self.bus, None
            await bus.close()

    # Input.

    def _time(self) -> float:
        return asyncio.get_running_loop().time() if self.is_joined else self.now

    def call(self, act: Callable[[Cell], object]) -> None:
        """Do something with the cell."""
        act(self.cell)
        self.settle()

    def _receive(self, content: bytes, node: int) -> None:
        if not self.is_cut_off:
            self.call(lambda cell: cell.receive(content, node, self._time()))

    def _hear_stored(self, _: int, ack: AckReceived) -> None:
        self._receive(ack.content, ack.node_id)

    def _hear_request(self, request: AckRequested) -> None:
        self.requests += 1
        if self.is_cut_off:
            return
        tells_unasked, self.tells_unasked = self.tells_unasked, True
        for producer_id in self._producers.get(request.sender_id, ()):
            self.call(lambda cell: cell.receive_stored_request(producer_id, request.sender_id))  # noqa: B023
        self.tells_unasked = tells_unasked

    def take_run(self, sender_id: int, frames: Frames) -> None:
        """Take the frames of a run. Implements `RunTap`."""
        if self.is_cut_off:
            return
        for buffer, start, _, end, header in frames:
            number = ledger_number_of(buffer, header, start)
            if number is None:
                continue
            assert is_intact(buffer, header, start)
            ledger = Ledger(number.producer_id, number.producer_epoch, LANE_OF_PRIORITY[header[PRIORITY]])
            self._producers.setdefault(sender_id, set()).add(number.producer_id)
            is_queue = header[FLAGS] & KIND_FLAGS == QUEUE_FLAG
            if is_queue or header[DESTINATION_HASH] in self.stored_hashes:
                self.cell.receive_frames(ledger, number.sequence, [buffer[start:end]], sender_id, self._time())
            else:
                self.cell.receive_counted(ledger, number.sequence, 1, sender_id, self._time())
        self.settle()

    # Output.

    def settle(self) -> None:
        """Do all that the cell wants."""
        while (event := self.cell.poll_event()) is not None:
            self._handle(event)
        while (message := self.cell.poll_message()) is not None:
            if not self.is_cut_off:
                self._send(message)
        if not self.is_joined:
            return
        loop = asyncio.get_running_loop()
        if not self._is_syncing:
            self._is_syncing = True
            loop.call_later(_SYNC_S, self._sync)
        if self._timer is not None:
            self._timer.cancel()
        at = self.cell.poll_timeout()
        self._timer = None if at == float("inf") else loop.call_at(at, self._expire)

    def _expire(self) -> None:
        if self.is_joined:
            self.call(lambda cell: cell.handle_timeout(self._time()))

    def _sync(self) -> None:
        self._is_syncing = False
        if self.is_joined and self.write():
            self.settle()

    def write(self) -> bool:
        """Bring everything that waits to the disk. Return True if there was something."""
        if not self.store.write():
            return False
        self.cell.handle_synced(self.store.journal.lsn, self._time())
        return True

    def resume_disk(self) -> None:
        """Let the disk go on."""
        self.store.is_stopped = False
        self.write()
        self.settle()

    def _handle(self, event: Event) -> None:
        match event:
            case TableChanged(version):
                self.stored_hashes = frozenset(self.cell.replica.table.hashes())
                self.cell.handle_table_ready(version)
            case Replay(to_node, ranges):
                target = next((peer for peer in self.peers if peer.node_id == to_node), None)
                for each in ranges if target is not None and not self.is_cut_off else ():
                    for sequence, frame in self.store.frames(each.ledger, each.first, each.last):
                        assert target is not None
                        target.cell.receive_frames(each.ledger, sequence, [frame], 0, self._time(), is_fetched=True)
            case _:
                pass

    def _send(self, message: Outgoing) -> None:
        match message:
            case SendCommand(command):
                if not self.is_joined:
                    self._tell_all(lambda peer: peer.cell.receive(command.encode(), self.node_id, peer.now))
                    return
                with suppress(NormError):
                    self._opened.lanes.session.send_command(command.encode())
            case SendStored(to_node, stored):
                peer = next((peer for peer in self.peers if peer.node_id == to_node), None)
                if peer is not None:
                    if not peer.is_cut_off:
                        peer.cell.receive(stored.encode(), self.node_id, self._time())
                        peer.settle_soon()
                elif self.is_joined and self.tells_unasked:
                    with suppress(NormError):
                        self._opened.lanes.session.send_ack(to_node, STORED_TYPE, stored.encode())
            case SendEntry(epoch, index, data):
                self._tell_all(lambda peer: peer.cell.receive_entry(epoch, index, data, self._time()))

    def _tell_all(self, act: Callable[["LocalKeeper"], None]) -> None:
        for peer in self.peers:
            if peer is not self and not peer.is_cut_off:
                act(peer)
                peer.settle_soon()

    def settle_soon(self) -> None:
        """Do what the cell wants a moment later."""
        if self.is_joined:
            asyncio.get_running_loop().call_soon(self.settle)


class LocalCell:
    """The keepers of one cell."""

    def __init__(self, size: int, store: StoreConfig) -> None:
        self.keepers: list[LocalKeeper] = []
        self.keepers += [LocalKeeper(self.keepers, one, LocalStore(one, store)) for one in range(1, size + 1)]
        self._version = 0
        self._served: LocalKeeper | None = None

    @property
    def manager(self) -> LocalKeeper:
        """The keeper that serves, or the last one that did: one that was paused steps down, and is elected again."""
        serving = (keeper for keeper in self.keepers if not keeper.is_cut_off and keeper.cell.is_serving)
        self._served = next(serving, self._served)
        assert self._served is not None
        return self._served

    @property
    def is_serving(self) -> bool:
        """True if a keeper serves."""
        return any(not keeper.is_cut_off and keeper.cell.is_serving for keeper in self.keepers)

    async def found(self, port: int) -> None:
        """Found the cell, in a time of its own that ends now."""
        now = asyncio.get_running_loop().time() - _FOUNDING_S
        for keeper in self.keepers:
            await keeper.begin(port, now, len(self.keepers))
        end = asyncio.get_running_loop().time()
        while now < end:
            now += _STEP_S
            for keeper in self.keepers:
                keeper.now = now
                if keeper.cell.poll_timeout() <= now:
                    keeper.cell.handle_timeout(now)
                keeper.settle()
                keeper.write()
                keeper.settle()
        assert self.is_serving

    def decide(self, *records: Record) -> None:
        """Decide something, if a keeper serves."""
        self.manager.call(lambda cell: cell.propose(records, asyncio.get_running_loop().time()))

    async def subscribe(self, *destinations: Destination) -> None:
        """Add durable subscriptions, and wait until that is decided."""
        for destination in destinations:
            self._version += 1
            place = Place(destination.kind_flags, destination.name)
            subscription = Subscription(1, place, "client", f"name {self._version}", "")
            record = TableRecord(self._version, True, subscription, ())
            again_at = 0.0
            while not self.is_serving or self.manager.cell.replica.table.version != self._version:
                if self.is_serving and time.monotonic() >= again_at:
                    again_at = time.monotonic() + _AGAIN_S
                    self.decide(record)
                    for keeper in self.keepers:
                        if not keeper.is_joined:
                            keeper.write()
                            keeper.settle()
                await asyncio.sleep(_STEP_S)

    def join(self) -> None:
        """Let the keepers speak on the bus."""
        for keeper in self.keepers:
            keeper.join()

    async def close(self) -> None:
        """End all processes."""
        for keeper in self.keepers:
            await keeper.leave()


@asynccontextmanager
async def serving(
    port: int, size: int = 1, *, store: StoreConfig | None = None, joins: bool = True
) -> AsyncIterator[LocalCell]:
    """Found a cell on the bus of a port."""
    cell = LocalCell(size, store or StoreConfig(segment_bytes=1 << 20, store_bytes_max=64 << 20))
    try:
        await cell.found(port)
        if joins:
            cell.join()
        yield cell
    finally:
        await cell.close()
