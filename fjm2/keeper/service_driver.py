"""The keeper's side of the service to clients: it tells the cell what frames are, and does what the cell asks of it."""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterable
from time import time_ns
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.bus.ledgers.destinations import REQUESTS
from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import Event, Released, Replay, RequestWanted, TableChanged
from fjm2.cell.service.inbox import LEDGER_REQUESTS_MAX
from fjm2.cell.wire.last_values import ValuesPage
from fjm2.cell.wire.ranges import DECISION_LANE, Spans
from fjm2.messages.frame import FrameReader
from fjm2.messages.header import DESTINATION_HASH
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal

from .kept_frames import KeptFrames, portions, read_kept
from .last_values.last_values import LastValues
from .last_values.value_table import Value
from .replay import ReplaySender

_REQUESTS_BYTES: Final = 256 << 10
"""Bytes of a ledger that are read to find requests. A client's messages lie between them."""
_STEP_S: Final = 0.01
"""Time between two steps of a long list of last values, which take about as long."""
_REQUESTS_SPAN: Final = 4 * LEDGER_REQUESTS_MAX


class _Either:
    """A container of what is in one of two. Implements `Container`."""

    def __init__(self, first: Container[Ledger], second: Container[Ledger]) -> None:
        self._first, self._second = first, second

    def __contains__(self, ledger: object) -> bool:
        return ledger in self._first or ledger in self._second


class ServiceDriver:
    """Drives `Cell.clients` with a journal. What takes reading from the disk is done in a thread, in order."""

    def __init__(
        self,
        cell: Cell,
        journal: Journal,
        disk: Disk,
        replays: ReplaySender,
        on_done: Callable[[], None],
        on_failed: Callable[[JournalError], None],
    ) -> None:
        """`on_done` is called when the cell may go on, and `on_failed` when the disk does not give what it had."""
        self._cell, self._journal, self._disk, self._replays = cell, journal, disk, replays
        self._on_done, self._on_failed = on_done, on_failed
        self._wanted: dict[Ledger, int] = {}
        """First request that is wanted of each ledger."""
        self._changes: deque[tuple[TableChanged, int]] = deque()
        """Changes of the table, and the batch that has all frames from before each."""
        self._early: deque[tuple[int, Ledger, Spans]] = deque()
        """Ranges that were released before they were on disk, with the batch that has them."""
        self._synced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._hashes: tuple[int, NDArray[np.uint32]] = (-1, np.empty(0, np.uint32))
        clock = asyncio.get_running_loop().time
        self.values: Final = LastValues(cell, journal, self._release, clock, lambda: time_ns() // 1_000_000)
        """Last values. The ledgers that they are in are not forgotten."""
        self._listing: asyncio.TimerHandle | None = None
        cell.replica.ledgers.pinned = _Either(cell.clients.backlog, self.values)

    @property
    def hashes(self) -> NDArray[np.uint32]:
        """Hashes of the destinations whose frames are kept."""
        table = self._cell.replica.table
        if self._hashes[0] != table.version:
            self._hashes = table.version, np.array(table.hashes(), np.uint32)
        ahead = self._cell.replica.log.hashes_ahead
        return np.append(self._hashes[1], np.array(ahead, np.uint32)) if ahead else self._hashes[1]

    def begin(self, kept: Iterable[KeptFrames], values: Iterable[Value]) -> None:
        """Tell the cell what its store holds, before anything is heard."""
        self.values.begin(values)
        clients = self._cell.clients
        for each in kept:
            for frame_hash in np.intersect1d(each.hashes, self.hashes).tolist():
                for first, times_ms in each.times_to(frame_hash):
                    clients.note_delivery_times(each.ledger, first, times_ms)
                clients.note_ranges(frame_hash, each.ledger, each.ranges_to(frame_hash))
            through = clients.state.through.get(each.ledger, 0)
            for first, end in each.ranges_to(REQUESTS.frame_hash):
                clients.note_requests(each.ledger, first, end - first)
                if end - 1 > through:
                    self._want(each.ledger, max(first, through + 1))

    def handle(self, event: Event) -> None:
        """Do what an event asks for."""
        match event:
            case Replay(_, ranges):
                self._replays.send(ranges)
            case TableChanged():
                self._changes.append((event, self._journal.queue.newest_lsn))
                self._start()
            case RequestWanted(ledger, sequence):
                self._want(ledger, sequence)
            case Released(ledger, ranges):
                self._release(ledger, self.values.without_held(ledger, ranges))
            case _:
                pass

    def handle_synced(self) -> None:
        """Go on with what waited for the disk."""
        self._synced.set()
        self.values.handle_synced()
        while self._early and self._early[0][0] <= self._journal.lsn:
            _, ledger, ranges = self._early.popleft()
            self._journal.release(ledger, ((first, last + 1) for first, last in ranges))

    def answer_values(self, content: bytes, node_id: int) -> ValuesPage | None:
        """Answer a query for last values: return a page, or send messages."""
        page, ranges = self.values.answer(content, node_id)
        if ranges:
            self._replays.send(ranges)
        if page is None:
            self._advance_lists()
        return page

    def _advance_lists(self) -> None:
        """Go on with long lists, a step in each turn of the loop, until there are none."""
        if self._listing is not None:
            self._listing.cancel()
        is_listing = self.values.advance_lists()
        self._listing = asyncio.get_running_loop().call_later(_STEP_S, self._advance_lists) if is_listing else None

    async def close(self) -> None:
        """End what is under way."""
        if self._listing is not None:
            self._listing.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._replays.close()

    def _release(self, ledger: Ledger, ranges: Spans) -> None:
        known = self._journal.known(ledger)
        self._journal.release(ledger, ((first, last + 1) for first, last in ranges))
        if not all(known.covers(first, last + 1) for first, last in ranges):
            self._early.append((self._journal.queue.newest_lsn, ledger, ranges))

    # Reading

    def _want(self, ledger: Ledger, sequence: int) -> None:
        self._wanted[ledger] = min(sequence, self._wanted.get(ledger, sequence))
        self._start()

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.ensure_future(self._read_all())

    async def _read_all(self) -> None:
        try:
            while self._wanted or self._changes:
                if self._wanted:
                    wanted, self._wanted = self._wanted, {}
                    for ledger, sequence in wanted.items():
                        await self._read_requests(ledger, sequence)
                else:
                    event, lsn = self._changes[0]
                    if event.is_added:
                        await self._reread(event, lsn)
                    self._changes.popleft()
                    self._cell.handle_table_ready(event.version)
                self._on_done()
        except JournalError as error:
            self._on_failed(error)
        finally:
            self._task = None

    async def _read_requests(self, ledger: Ledger, first: int) -> None:
        """Tell the cell of the next requests of a ledger."""
        ranges = RangeSet([(first, first + _REQUESTS_SPAN)])
        read = self._journal.read(ledger, ranges, _REQUESTS_BYTES)
        frames = await asyncio.to_thread(read.fetch, self._disk)
        for sequence, frame in zip(read.sequences.tolist(), frames, strict=True):
            if frame is None:
                raise JournalError(f"message {sequence} of {ledger} cannot be read: expected what was stored")
            for buffer, _, body, end, header in FrameReader().feed(frame, (0,)):
                if header[DESTINATION_HASH] == REQUESTS.frame_hash:
                    self._cell.clients.receive_request(ledger, sequence, bytes(buffer[body:end]))

    async def _reread(self, event: TableChanged, lsn: int) -> None:
        """Tell the cell of the messages to a new subscription that came before its table."""
        while self._journal.lsn < lsn:
            self._synced.clear()
            await self._synced.wait()
        starts = dict(event.starts)
        frame_hash = event.subscription.destination.frame_hash
        for ledger in self._journal.ledgers():
            if ledger.lane == DECISION_LANE:
                continue
            for read in portions(self._journal, ledger, starts.get(ledger, 1)):
                kept = await asyncio.to_thread(read_kept, read, self._disk, ledger)
                for first, times_ms in kept.times_to(frame_hash):
                    self._cell.clients.note_delivery_times(ledger, first, times_ms)
                self._cell.clients.note_ranges(frame_hash, ledger, kept.ranges_to(frame_hash))
