"""A keeper: the bus, the store and the cell, driven on asyncio.

The cell gets everything that comes in: frames by a tap, commands and acknowledgements by kind, and what is on disk.
After each turn the driver sends what the cell wants sent, and has the store commit.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from random import SystemRandom
from typing import Final

from fjm2.base.errors import JournalError
from fjm2.base.logs import Log
from fjm2.base.loop import call_not_before
from fjm2.base.quantities import counted
from fjm2.base.readings import Reading, register_counted, unregister_counted
from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.config import BusConfig
from fjm2.bus.ledgers.replay_listener import ReplayListener
from fjm2.cell.cell import Cell
from fjm2.cell.configuration import bus_key
from fjm2.cell.outgoing import (
    CellConflict,
    CellJoined,
    Event,
    LossFound,
    Outgoing,
    ReplacementWaits,
    SendCommand,
    State,
    StateChanged,
    TableChanged,
)
from fjm2.cell.wire.commands import Fetch
from fjm2.cell.wire.last_values import VALUES_QUERY
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.messages.batches.frame_run import Frames
from fjm2.messages.frame import Frame
from fjm2.norm import Sync
from fjm2.store.drive.committer import Committer
from fjm2.store.journal import Journal

from .cell_signals import CellSignals
from .counts import KEEPER_COUNTERS, KEEPER_INSTRUMENTS, KeeperCounts, KeeperStatistics
from .intake import FrameIntake
from .replay import ReplaySender
from .service_driver import ServiceDriver
from .status import KeeperStatus, StatusFlag
from .storage import JournalStorage, member_of
from .store_directory import OpenStore

log = Log("fjm2.keeper")

_WAITING_BYTES_MAX: Final = 8 << 20
"""Bytes that wait for the disk before a keeper takes nothing more from the network: a tenth of a second of a disk that
writes 80 MB/s, which is less than the interval of heartbeats. They wait as well."""
_GATHERED_BYTES_MAX: Final = 1 << 20
"""Bytes of frames that wait for the end of a commit before they are looked at."""
_RETRY_S: Final = 1.0
"""Interval at which a full disk is asked for room again."""
_NAME_DIGITS: Final = 8
"""Digits of a keeper's id in the client id under which others see it."""


def keeper_config(uri: str) -> BusConfig:
    """Return the settings of a keeper's bus. Of each stream it wants what is to be kept, from as far back as its sender
    can repair it."""
    config = BusConfig.from_uri(uri, BUS_DEFAULTS)
    return replace(config, receiver=replace(config.receiver, sync=Sync.KEPT))


class Keeper:
    """A member of a cell on a bus, or one that waits to become one."""

    system, layer, role = "fjm2-keeper", "keeper", "node"
    """Names under which metrics find the keeper."""
    instruments = KEEPER_INSTRUMENTS
    """List of what it counts."""

    def __init__(
        self,
        bus: Bus,
        store: OpenStore,
        *,
        members_wanted: int,
        on_state: Callable[[State, int], None],
        replaces: bytes = b"",
    ) -> None:
        """Start to keep, on the running event loop. `on_state` gets each state that the keeper enters, and the epoch.
        `replaces` is the beginning of the id of a lost member whose place the keeper is to take."""
        self.bus = bus
        self.counts = KeeperCounts()
        self._store = store
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
            wall_offset_s=time.time() - self._loop.time(),
            replaces=replaces,
        )
        self._signals = CellSignals(bus, self.cell, self.counts, self._loop.time)
        self._intake = FrameIntake(
            self.cell,
            self.cell.clients,
            self.counts,
            self._loop.time,
            self._signals.note_writer,
            self.cell.replica.ledgers.is_fenced,
        )
        self._committer.fill = self._fill
        self._intake.knows_table = lambda: self.cell.replica.table.is_current
        self._listener = ReplayListener(config, self._take_fetched, lambda: not self.is_full)
        replays = ReplaySender(config, self.journal, store.disk, self.counts)
        self._service = ServiceDriver(self.cell, self.journal, store.disk, replays, self._advance, self._fail)
        self._intake.topics = lambda: self._service.hashes
        self._intake.note_values = self._service.values.note
        self._timer: tuple[float, asyncio.TimerHandle] | None = None
        """Time at which something is due, and the handle of the call."""
        self._is_settling = False
        self._begin()
        self._join()
        self._retrying = self._loop.call_later(_RETRY_S, self._retry)

    def _begin(self) -> None:
        """Tell the cell what the store holds, before anything is heard."""
        while (event := self.cell.poll_event()) is not None:
            if isinstance(event, TableChanged):
                # The store has what the table asks for, or knows that it lacks it.
                self.cell.handle_table_ready(event.version)
            else:
                self._handle_event(event)
        self._service.begin(self._store.kept, self._store.values)
        self._store.kept.clear()
        self._store.values.clear()

    # The bus.

    def _join(self) -> None:
        self._signals.on_heard, self._signals.on_hearing = self._settle_soon, self._take_decisions
        self._signals.status = lambda: self.status().encode()
        self._signals.join(f"keeper-{self.name}")
        self.bus.lanes.signals.hear_commands(VALUES_QUERY, self._answer_values)
        self.bus.router.add_tap(self)
        register_counted(self)
        self._advance()

    def take_run(self, sender_id: int, frames: Frames) -> None:
        """Gather the frames of a run of some lane until the next commit. Implements `RunTap`."""
        if self._intake.gather(sender_id, frames):
            self._settle_soon()

    def _take_decisions(self) -> None:
        if self._intake.has_decisions:
            self._intake.take_gathered()

    def _fill(self) -> None:
        """Take what was gathered, so that the next commit has it. What there was no room for comes first."""
        if self._intake.refused and not self.journal.is_full:
            self._intake.take_refused()
            self._settle_soon()
        if self._intake.gathered_bytes:
            self._intake.take_gathered()
            self._settle_soon()

    def _answer_values(self, _: int, content: bytes) -> None:
        page = self._service.answer_values(content, self.bus.node_id)
        if page is not None:
            self._signals.send_command(page.encode())

    @property
    def is_full(self) -> bool:
        """True while much waits for the disk."""
        return self.journal.queue.bytes + self._intake.gathered_bytes >= _WAITING_BYTES_MAX

    def _take_fetched(self, source: int, frames: list[Frame]) -> None:
        self._intake.take(source, frames, is_fetched=True)
        self._settle_soon()

    # Counters and status.

    @property
    def journal(self) -> Journal:
        return self._store.journal

    @property
    def name(self) -> str:
        """Beginning of the keeper id, under which others see the keeper."""
        return self.cell.me.keeper_id.hex()[:_NAME_DIGITS]

    def readings(self) -> list[Reading]:
        """Return nothing: traces have the counters of the bus."""
        return []

    def statistics(self) -> KeeperStatistics:
        """Return the counters so far, and the present state."""
        use, cell = self.journal.use, self.cell
        return KeeperStatistics(
            **{one.name: getattr(self.counts, one.name) for one in KEEPER_COUNTERS},
            syncs=self._store.disk.syncs,
            sync_seconds=self._store.disk.sync_seconds,
            sync_longest_s=self._store.disk.sync_longest_s,
            is_serving=cell.is_serving,
            epoch=cell.epoch,
            store_bytes=use.used,
            live_bytes=use.live,
            live_frames=self.journal.contents.frames,
            sessions=len(cell.clients.state.sessions),
            subscriptions=len(cell.replica.table),
            waiting_bytes=use.waiting,
            last_values=len(self._service.values.table),
            values_refused=self._service.values.table.refused,
            drops={reason.name.lower(): count for reason, count in cell.dropped.items()},
            refusals={reason.name.lower(): count for reason, count in cell.replica.ledgers.refused.items()},
        )

    def status(self) -> KeeperStatus:
        """Return the present state."""
        cell, use = self.cell, self.journal.use
        replica = cell.replica
        return KeeperStatus(
            state=cell.state,
            flags=(StatusFlag.FULL if replica.is_full else 0)
            | (StatusFlag.LACKS_ROOM if replica.fetches.lack_room(self._loop.time()) else 0),
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
            free_bytes=self._store.disk.free_bytes(),
            sync_us=round(self._store.disk.sync_recent_s * 1e6),
            conflicts=self.counts.conflicts,
            host=socket.gethostname(),
        )

    # The store.

    def _handle_synced(self, lsn: int) -> None:
        self.counts.commits += 1
        self.cell.handle_synced(lsn, self._loop.time())
        self._service.handle_synced()
        self.bus.router.resume()
        self._settle()

    def _handle_failed(self, error: OSError) -> None:
        self._fail(
            JournalError(
                f"the store has failed ({error.strerror or error}): expected a disk that writes; look into the "
                "system's log, then start the keeper again"
            )
        )

    def _fail(self, failure: JournalError) -> None:
        if not self._failed.done():
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
        self._is_settling = True  # what the commit takes is dealt with below
        if self._intake.gathered_bytes:
            self._committer.kick()
        if self._intake.gathered_bytes >= _GATHERED_BYTES_MAX:
            self._intake.take_gathered()
        self._is_settling = False
        self._service.values.handle_time()
        cell = self.cell
        while (event := cell.poll_event()) is not None:
            self._handle_event(event)
        while (message := cell.poll_message()) is not None:
            self._send(message)
        # Whoever waits until publishers know a subscription waits for keepers too: they publish decisions.
        self.bus.membership.announcer.table_version = cell.replica.table.version
        self._arm(cell.poll_timeout())

    def _arm(self, due_at: float) -> None:
        """Have `_expire` called at a time, or not at all."""
        if self._timer is not None:
            if self._timer[0] == due_at:
                return
            self._timer[1].cancel()
        is_due = due_at < float("inf")
        self._timer = (due_at, call_not_before(self._loop, due_at, self._expire)) if is_due else None

    def _expire(self) -> None:
        self._timer = None
        self._advance()

    def _advance(self) -> None:
        now = self._loop.time()
        self.cell.clients.set_wall_offset(time.time() - now)
        self.cell.handle_timeout(now)
        self._settle()

    def _retry(self) -> None:
        """Ask a full disk for room again: others may have made some, or what was released since the last write makes
        some. A follower has nothing else that is due while it hears heartbeats."""
        self._retrying = self._loop.call_later(_RETRY_S, self._retry)
        if self.journal.is_full:
            self.journal.retry()
        if self.journal.is_full or self._intake.refused:
            self._committer.kick()

    def _handle_event(self, event: Event) -> None:
        match event:
            case StateChanged(state, epoch):
                self.counts.takeovers += state is State.SERVING
                log.info("state", state=state.name.lower(), epoch=epoch)
                self._on_state(state, epoch)
            case CellJoined(cell_id):
                if cell_id != self.journal.identity.cell_id:
                    self.journal.set_cell(cell_id)
                    self._committer.kick()
                self._signals.announce()
            case CellConflict(other, is_stranded):
                self.counts.conflicts += 1
                log.seldom(logging.ERROR, "cell_conflict", other, other=f"{other:016x}", is_stranded=is_stranded)
            case LossFound(frames, ledgers, decisions):
                told = (
                    f"the loss was accepted: {counted(frames, 'message')} of {counted(ledgers, 'sender')} are missing "
                    "among what is left, and nothing tells what was behind it"
                )
                if decisions:
                    told += (
                        f". {counted(decisions, 'decision')} cannot be used without one before that is lost: "
                        "subscriptions and acknowledgements since then are lost, too"
                    )
                log.tell(logging.WARNING, "loss_accepted", told, frames=frames, ledgers=ledgers, decisions=decisions)
            case ReplacementWaits(lost, 1):
                told = f"the keeper {lost.hex()} still answers the manager: stop it, so that it can be replaced"
                log.tell(logging.WARNING, "not_gone", told)
            case ReplacementWaits(lost, count):
                told = (
                    f"{counted(count, 'member')} of the cell begin with {lost.hex()}: expected one, as in keep status"
                )
                log.tell(logging.WARNING, "not_replaced", told)
            case _:
                self._service.handle(event)

    def _send(self, message: Outgoing) -> None:
        fetch = message.command if isinstance(message, SendCommand) else None
        if isinstance(fetch, Fetch) and any(each.ledger.lane != DECISION_LANE for each in fetch.ranges):
            self._listener.listen()  # decisions come again on the bus
        self._signals.send(message)

    # The end.

    async def close(self) -> None:
        """Leave the bus once everything taken is on disk and told. The bus and the disk stay open."""
        unregister_counted(self)
        self._signals.stop_hearing()
        self.bus.lanes.signals.hear_commands(VALUES_QUERY, None)
        self.bus.router.remove_tap(self)
        self._intake.take_gathered()
        self._retrying.cancel()
        await self._committer.close()
        self._settle()
        self._arm(float("inf"))
        self._signals.leave()
        await self._service.close()
        await self._listener.close()
