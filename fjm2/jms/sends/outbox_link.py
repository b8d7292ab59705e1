"""The way of messages from an outbox to the keepers: `OutboxLink` publishes them, and hears how far they are stored."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable
from time import time_ns
from typing import TYPE_CHECKING, Final

from fjm2.base.errors import NormError
from fjm2.base.ledger import Ledger
from fjm2.base.loop import call_not_before
from fjm2.bus.lane import LANE_COUNT, LANE_OF_PRIORITY
from fjm2.bus.ledgers.destinations import REQUESTS
from fjm2.bus.publication import Publication
from fjm2.cell.client.outgoing import Confirmed, GaveUp, LedgerClosed, LedgerFinal, Reason
from fjm2.cell.wire.requests import End, encode_request
from fjm2.messages.destination import Destination, destination_from
from fjm2.messages.errors import JMSError
from fjm2.messages.frame import FrameWriter, Parts, body_place
from fjm2.messages.header import FLAGS, HEADER, HEADER_BYTES, NAME_BYTES, PERSISTENT, PRIORITY, Kind
from fjm2.messages.ledgers.ledger_number import LEDGER_SECTION_BYTES, with_ledger_number
from fjm2.outbox.drive.disk_outbox import DiskOutbox
from fjm2.outbox.outbox_lane import AskFinal, LaneState, OutboxLane

if TYPE_CHECKING:
    from .cell_driver import CellDriver, NumberedListener

_STREAK: Final = 64
"""Messages that are published at a time, so that others have their turn."""
_PRIORITIES: Final = [LANE_OF_PRIORITY.index(lane) for lane in range(LANE_COUNT)]
"""Priority of the requests of each lane."""
Event = Confirmed | GaveUp | LedgerClosed | LedgerFinal


class OutboxLink:
    """Sends what an outbox has, as soon as a cell is there. Implements `LedgerOwner`."""

    def __init__(self, outbox: DiskOutbox, publication: Publication) -> None:
        """Messages are published by `publication`, which has no gate."""
        self.on_numbered: NumberedListener | None = None
        self._outbox = outbox
        self._core = outbox.core
        self._publication = publication
        self._loop = asyncio.get_running_loop()
        self._driver: CellDriver | None = None
        self._requests = FrameWriter(self.producer_id)
        self._flying: dict[int, deque[tuple[int, int]]] = {lane: deque() for lane in self._core.lanes}
        """Numbers and sizes of messages of each lane that were sent, and are not stored."""
        self._last: dict[Ledger, int] = {}
        """Last sequence that was sent of each ledger that waits."""
        self._rested_at = dict.fromkeys(self._core.lanes, 0)
        self._pumps: dict[int, asyncio.Task[None]] = {}
        self._wakes = {lane: asyncio.Event() for lane in self._core.lanes}
        self._timer: asyncio.TimerHandle | None = None
        outbox.on_settled = self._go_on

    @property
    def producer_id(self) -> int:
        """Id of the outbox in the names of its ledgers."""
        return self._core.store.producer_id

    @property
    def has_keepers(self) -> bool:
        """True if keepers are heard."""
        return self._driver is not None and self._driver.has_live_keepers

    async def close(self) -> None:
        """Send nothing more."""
        self._outbox.on_settled = lambda: None
        if self._timer is not None:
            self._timer.cancel()
        for pump in self._pumps.values():
            pump.cancel()
        await asyncio.gather(*self._pumps.values(), return_exceptions=True)
        if self._driver is not None:
            self._driver.room.remove_waiter(self._wake_all)
            for lane in self._core.lanes:
                self._land(lane, None)
            self._driver = None

    # News of the cell.

    def handle_cell(self, driver: "CellDriver") -> None:
        """Note that a cell was heard, or that another one has taken its place."""
        if self._driver is None:
            self._driver = driver
            driver.room.add_waiter(self._wake_all)
            self._pumps = {lane: self._loop.create_task(self._pump(state)) for lane, state in self._core.lanes.items()}
        self._core.handle_cell()
        self._outbox.settle()

    def handle_event(self, event: Event) -> None:
        """Take news of a ledger."""
        driver, ledger = self._driver, event.ledger
        if driver is None:
            return
        match event:
            case Confirmed():
                self._core.handle_stored(ledger, event.through)
            case GaveUp(reason=Reason.SILENT) if ledger in self._last:
                driver.note_waiting(ledger, self._last[ledger])  # they may have it, or get it when they are back
            case GaveUp() | LedgerClosed():
                self._core.handle_lost(ledger)
                self._forget(ledger)
            case LedgerFinal():
                self._core.handle_final(ledger, event.through, self._loop.time())
        self._outbox.settle()

    def rest(self) -> None:
        """End the ledgers that got no message since the last call, and are stored."""
        for number, lane in self._core.lanes.items():
            ledger = lane.ledger
            if lane.sent == self._rested_at[number] and lane.rest():
                self._forget(ledger)
            self._rested_at[number] = lane.sent

    def _forget(self, ledger: Ledger) -> None:
        self._last.pop(ledger, None)
        if self._driver is not None:
            self._driver.end_ledger(ledger)

    # Consequences.

    def _go_on(self) -> None:
        """Do what is due after something has changed."""
        if self._driver is None:
            return
        while (ask := self._core.poll_ask()) is not None:
            with contextlib.suppress(NormError, OSError):  # the lane may be closing; the request is repeated
                self._ask(self._driver, ask)
        for number, lane in self._core.lanes.items():
            self._land(number, lane)
            if lane.next_place() is not None:
                self._wakes[number].set()
        self._arm()

    def _land(self, number: int, lane: OutboxLane | None) -> None:
        """Give back the room of messages that are stored, or whose ledger has ended."""
        flying = self._flying[number]
        is_open = lane is not None and lane.state is LaneState.OPEN
        before = len(flying)
        while flying and not (lane is not None and is_open and flying[0][0] > lane.released):
            size = flying.popleft()[1]
            if self._driver is not None:
                self._driver.room.used[number] -= size
        if len(flying) < before and self._driver is not None:
            self._driver.room.note_freed()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at = self._core.poll_timeout()
        if at < float("inf"):
            self._timer = call_not_before(self._loop, at, self._expire)

    def _expire(self) -> None:
        self._core.handle_timeout(self._loop.time())
        self._outbox.settle()

    def _ask(self, driver: "CellDriver", ask: AskFinal) -> None:
        """Ask the cell to close a ledger."""
        body = encode_request(End(0, ask.ended.producer_epoch))
        priority = _PRIORITIES[ask.ledger.lane]
        now_ms = time_ns() // 1_000_000
        parts = self._requests.write_body(int(Kind.BYTES), b"", body, REQUESTS, PERSISTENT, priority, now_ms)
        driver.wait_for_final(ask.ended)
        numbered = with_ledger_number(parts, self.producer_id, ask.ledger.producer_epoch, 1)
        driver.send_numbered(ask.ledger.lane, numbered)
        self._note_waiting(driver, ask.ledger, 1)
        if self.on_numbered is not None:
            self.on_numbered(REQUESTS, ask.ledger, 1, [b"".join(numbered)])

    def _note_waiting(self, driver: "CellDriver", ledger: Ledger, through: int) -> None:
        self._last[ledger] = through
        driver.note_waiting(ledger, through)

    def _wake_all(self) -> None:
        for wake in self._wakes.values():
            wake.set()

    # Messages.

    async def _pump(self, lane: OutboxLane) -> None:
        """Send the messages of a lane, as long as there is a bus."""
        wake = self._wakes[lane.lane]
        while True:
            await wake.wait()
            wake.clear()
            try:
                while await self._send_some(lane):  # noqa: ASYNC110 - others have their turn
                    await asyncio.sleep(0)
            except JMSError as error:
                self._outbox.fail(error)
                return

    async def _send_some(self, lane: OutboxLane) -> bool:
        """Send the next messages of a lane. Return False if there are none, or no room for them."""
        driver, place = self._driver, lane.next_place()
        if driver is None or place is None:
            return False
        driver.let_keepers_hear(lane.lane)
        first = number = place[0]
        sequence = place[1]
        waiting: Awaitable[None] | None = None
        while waiting is None and number <= lane.durable and number - first < _STREAK:
            frame = self._core.held(lane.lane, number)
            if frame is None and number == first:
                await self._outbox.read(lane.lane, number)
                return True
            size = 0 if frame is None else len(frame) + LEDGER_SECTION_BYTES
            if frame is None or not driver.room.has(lane.lane, size):
                break
            waiting = self._send(lane.ledger, sequence, frame)
            driver.room.used[lane.lane] += size
            self._flying[lane.lane].append((number, size))
            lane.note_sent(1)
            number, sequence = number + 1, sequence + 1
        if number > first:
            self._note_waiting(driver, lane.ledger, sequence - 1)
        if waiting is not None:
            await waiting
        return number > first

    def _send(self, ledger: Ledger, sequence: int, frame: bytes) -> Awaitable[None] | None:
        """Number a message and publish it. If an awaitable is returned, await it before sending more."""
        destination, parts = _opened(frame)
        numbered = with_ledger_number(parts, self.producer_id, ledger.producer_epoch, sequence)
        waiting = self._publication.publish(destination, parts[0][PRIORITY], numbered, PERSISTENT)
        if self.on_numbered is not None:
            self.on_numbered(destination, ledger, sequence, [b"".join(numbered)])
        return waiting


def _opened(frame: bytes) -> tuple[Destination, Parts]:
    """Return destination and parts of a frame."""
    header = HEADER.unpack_from(frame)
    name = frame[HEADER_BYTES : HEADER_BYTES + header[NAME_BYTES]]
    at = body_place(header)
    return destination_from(header[FLAGS], name), (frame[:at], frame[at:])
