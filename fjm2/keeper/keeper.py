"""A keeper: the bus, the store and the cell, driven on asyncio.

What comes in goes to the cell: frames by a tap, commands and acknowledgements by kind, and what is on disk. After each
turn the driver sends what the cell wants sent, and has the store commit.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import SystemRandom
from typing import Final

import numpy as np

from fjm2.base.errors import FJM2Error, JournalError
from fjm2.base.logs import Log
from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.config import BusConfig
from fjm2.cell.cell import Cell
from fjm2.cell.configuration import bus_key
from fjm2.cell.ledger_table import Span
from fjm2.cell.outgoing import (
    CellConflict,
    CellJoined,
    Event,
    Outgoing,
    Replay,
    SendCommand,
    SendEntry,
    SendStored,
    State,
    StateChanged,
    TableChanged,
)
from fjm2.cell.wire.commands import Fetch, Kind
from fjm2.cell.wire.stored import STORED_TYPE
from fjm2.messages.destination import TopicPattern, hash_of
from fjm2.messages.frame import Frame, FrameWriter
from fjm2.norm import Sync
from fjm2.norm.events import AckReceived, AckRequested
from fjm2.store.drive.committer import Committer

from .counts import KeeperCounts
from .decisions import DECISIONS, PRIORITY, entry_frame
from .intake import FrameIntake
from .long_stored import PART_TYPE, StoredJoiner, StoredSplitter
from .replay import ReplayListener, ReplaySender
from .status import STATUS_TYPE, KeeperStatus, StatusFlag
from .storage import JournalStorage, member_of
from .store_directory import OpenStore

log = Log("fjm2.keeper")

_WRITERS_MAX: Final = 4096
"""Most nodes of writers that are remembered."""
_STATUS_INTERVAL_S: Final = 0.1
"""Shortest interval between two answers to those who ask for the status."""
_NAME_DIGITS: Final = 8
"""Digits of a keeper's id in the client id under which others see it."""


def keeper_config(uri: str) -> BusConfig:
    """Return the settings of a keeper's bus. It wants each stream from as far back as its sender can repair it."""
    config = BusConfig.from_uri(uri, BUS_DEFAULTS)
    return replace(config, receiver=replace(config.receiver, sync=Sync.STREAM))


class Keeper:
    """A member of a cell on a bus, or one that waits to become one."""

    def __init__(
        self, bus: Bus, store: OpenStore, *, members_wanted: int, on_state: Callable[[State, int], None]
    ) -> None:
        """Start to keep, on the running event loop. `on_state` gets each state that the keeper enters, and the
        epoch."""
        self.bus = bus
        self.journal = store.journal
        self.counts = KeeperCounts()
        self._disk = store.disk
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self._failed: asyncio.Future[None] = self._loop.create_future()
        self._committer = Committer(
            self.journal, store.disk, on_synced=self._handle_synced, on_failed=self._handle_failed
        )
        config = bus.config
        self.cell: Final = Cell(
            member_of(self.journal),
            bus.node_id,
            bus_key(config.group, config.port),
            JournalStorage(self.journal, self._committer.append),
            SystemRandom(),
            self._loop.time(),
            members_wanted=members_wanted,
            remembered=store.remembered,
        )
        self._intake = FrameIntake(self.cell, self.counts, self._loop.time, self._note_writer)
        self._listener = ReplayListener(config, self._take_fetched, self._take_counted)
        self._replays = ReplaySender(config, self.journal, store.disk, self.counts)
        self._splitter = StoredSplitter(config.sender.segment_bytes)
        self._joiner = StoredJoiner()
        self._writers: OrderedDict[int, int] = OrderedDict()
        """Producer ids by the nodes of their lanes."""
        self._connection_id = SystemRandom().getrandbits(64)
        self._entries = FrameWriter(self._connection_id)
        self._timer: asyncio.TimerHandle | None = None
        self._is_settling = False
        self._status_at = 0.0
        self._join()

    # The bus.

    def _join(self) -> None:
        signals = self.bus.lanes.signals
        for kind in Kind:
            signals.hear_commands(kind, self._hear)
        signals.hear_acks(STORED_TYPE, self._hear_stored)
        signals.hear_acks(PART_TYPE, self._hear_part)
        signals.hear_requests(STORED_TYPE, self._hear_request)
        signals.hear_requests(STATUS_TYPE, self._tell_status)
        self.bus.router.add_tap(self)
        # Others wait for a keeper as for a subscriber to everything, so that what it lacks can still be repaired.
        everything = frozenset((TopicPattern(">").frame_hash,))
        name = self.cell.me.keeper_id.hex()[:_NAME_DIGITS]
        self.bus.announce(self._connection_id, f"keeper-{name}", everything)
        self._expire()

    def _leave(self) -> None:
        signals = self.bus.lanes.signals
        for kind in Kind:
            signals.hear_commands(kind, None)
        signals.hear_acks(STORED_TYPE, None)
        signals.hear_acks(PART_TYPE, None)
        signals.hear_requests(STORED_TYPE, None)
        signals.hear_requests(STATUS_TYPE, None)
        self.bus.router.remove_tap(self)

    def take_run(self, sender_id: int, frames: list[Frame]) -> None:
        """Take the frames of a run of some lane. Implements `RunTap`."""
        self._intake.take_run(sender_id, frames)
        self._settle_soon()

    def _take_fetched(self, source: int, frames: list[Frame]) -> None:
        self._intake.take(source, frames, is_fetched=True)
        self._settle_soon()

    def _take_counted(self, span: Span) -> None:
        ledger, first, end = span
        self.cell.receive_counted(ledger, first, end - first, 0, self._loop.time(), is_fetched=True)
        self._settle_soon()

    def _hear(self, node_id: int, content: bytes) -> None:
        self.cell.receive(content, node_id, self._loop.time())
        self._settle_soon()

    def _hear_stored(self, _: int, event: AckReceived) -> None:
        self._hear(event.node_id, event.content)

    def _hear_part(self, _: int, event: AckReceived) -> None:
        whole = self._joiner.receive(event.node_id, event.content)
        if whole is not None:
            self._hear(event.node_id, whole)

    def _hear_request(self, event: AckRequested) -> None:
        producer_id = self._writers.get(event.sender_id)
        if producer_id is not None:
            self.cell.receive_stored_request(producer_id, event.sender_id)
            self._settle_soon()

    def _note_writer(self, node_id: int, producer_id: int) -> None:
        if self._writers.get(node_id) != producer_id:
            self._writers[node_id] = producer_id
            if len(self._writers) > _WRITERS_MAX:
                self._writers.popitem(last=False)

    # The status.

    def status(self) -> KeeperStatus:
        """Return the present state."""
        cell, use = self.cell, self.journal.use
        replica = cell.replica
        return KeeperStatus(
            state=cell.state,
            flags=StatusFlag.FULL if replica.is_full else 0,
            pid=os.getpid(),
            epoch=cell.epoch,
            configuration=replica.log.membership.number,
            cell_id=cell.cell_id,
            keeper_id=cell.me.keeper_id,
            incarnation=cell.me.incarnation,
            committed=replica.log.committed,
            last_index=replica.log.last_index,
            table_version=replica.table.version,
            durable_lsn=replica.durable_lsn,
            messages=sum(replica.ledgers.progress(ledger).on_disk for ledger in replica.ledgers.open_ledgers),
            store_bytes=use.used,
            allowed_bytes=use.allowed,
            live_bytes=use.live,
            waiting_bytes=use.waiting,
            conflicts=self.counts.conflicts,
            host=socket.gethostname(),
        )

    def _tell_status(self, _: AckRequested) -> None:
        """Answer to all, at most once in a while: anybody may ask as often as they like."""
        now = self._loop.time()
        if now >= self._status_at:
            self._status_at = now + _STATUS_INTERVAL_S
            self._send_command(self.status().encode())

    # The store.

    def _handle_synced(self, lsn: int) -> None:
        self.counts.commits += 1
        self.cell.handle_synced(lsn, self._loop.time())
        self._settle()

    def _handle_failed(self, error: OSError) -> None:
        if not self._failed.done():
            text = f"the store has failed ({error.strerror or error}): expected a disk that writes; look into the "
            failure = JournalError(f"{text}system's log, then start the keeper again")
            self._failed.set_exception(failure)

    async def failed(self) -> None:
        """Wait until the store has failed, and raise JournalError then."""
        await asyncio.shield(self._failed)

    # The cell.

    def _settle_soon(self) -> None:
        """Do what the cell wants once this turn of the loop has brought everything that it brings."""
        if not self._is_settling:
            self._is_settling = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._is_settling = False
        cell = self.cell
        while (event := cell.poll_event()) is not None:
            self._handle_event(event)
        while (message := cell.poll_message()) is not None:
            self._send(message)
        if self._timer is not None:
            self._timer.cancel()
        due_at = cell.poll_timeout()
        self._timer = self._loop.call_at(due_at, self._expire) if due_at < float("inf") else None

    def _expire(self) -> None:
        self.cell.handle_timeout(self._loop.time())
        self._settle()

    def _handle_event(self, event: Event) -> None:
        match event:
            case StateChanged(state, epoch):
                self.counts.takeovers += state is State.SERVING
                log.info("state", state=state.name.lower(), epoch=epoch)
                self._on_state(state, epoch)
            case CellJoined(cell_id):
                self.journal.set_cell(cell_id)
                self._committer.kick()
            case Replay(_, ranges):
                self._replays.send(ranges)
            case TableChanged(version):
                subscriptions = self.cell.replica.table.subscriptions
                hashes = {hash_of(one.destination.kind_flags, one.destination.name.encode()) for one in subscriptions}
                self._intake.topics = np.array(sorted(hashes), np.uint32)
                self.cell.handle_table_ready(version)
            case CellConflict(other, is_stranded):
                self.counts.conflicts += 1
                log.seldom(logging.ERROR, "cell_conflict", other, other=f"{other:016x}", is_stranded=is_stranded)
            case _:
                pass

    def _send(self, message: Outgoing) -> None:
        match message:
            case SendCommand(command):
                if isinstance(command, Fetch):
                    self._listener.expect(command.ranges)
                self._send_command(command.encode())
            case SendStored(node_id, stored):
                for ack_type, content in self._splitter.acks(stored):
                    with self._refusals():
                        is_sent = self.bus.lanes.session.send_ack(node_id, ack_type, content)
                        self.counts.signals_refused += not is_sent
            case SendEntry(epoch, index, data):
                with self._refusals():
                    self._send_entry(epoch, index, data)

    def _send_command(self, content: bytes) -> None:
        with self._refusals():
            self.bus.lanes.session.send_command(content)

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Count what cannot be sent. Everything that the cell sends is sent again, or asked for."""
        try:
            yield
        except FJM2Error as error:
            self.counts.signals_refused += 1
            log.seldom(logging.WARNING, "not_sent", str(error))

    def _send_entry(self, epoch: int, index: int, data: bytes) -> None:
        lane = self.bus.lanes.of_priority[PRIORITY]
        stream = lane.stream or self.bus.publisher.open_lane(lane, DECISIONS)
        stream.append(*entry_frame(self._entries, self.cell.cell_id, epoch, index, data))

    # The end.

    async def close(self) -> None:
        """Leave the bus once everything taken is on disk and told. The bus and the disk stay open."""
        self._leave()
        await self._committer.close()
        if self._timer is not None:
            self._timer.cancel()
        self._settle()
        if self._timer is not None:
            self._timer.cancel()
        self.bus.withdraw(self._connection_id)
        await self._replays.close()
        await self._listener.close()
