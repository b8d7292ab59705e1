"""Gets the last values for one new consumer."""

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from fjm2.base.ledger import Ledger
from fjm2.bus.lane import LANE_OF_PRIORITY
from fjm2.cell.subscriber.last_values import ValuesReader
from fjm2.cell.wire.last_values import ListedValue, ValuesPage
from fjm2.messages.destination import TopicPattern
from fjm2.messages.errors import JMSError
from fjm2.messages.frame import Frame
from fjm2.messages.header import PRIORITY
from fjm2.messages.last_values.retained import read_retained
from fjm2.messages.ledgers.ledger_number import is_intact, ledger_number_of

from ..durable.refusals import silent_cell
from .hub import ValuesHub
from .inbox import LastValuesInbox

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus
    from fjm2.bus.subscriptions import Subscriptions

    from ..sends.cell_driver import CellDriver

SILENT_S: Final = 15.0
"""Time without an answer of keepers, longer than several takeovers, after which the consumer fails."""
LOOKS_S: Final = (1.0, 4.0)
"""Times to wait for further looks at the lists. A message that was sent just before the consumer came may have been on
no disk at the first look, and is not heard either."""
_WAIT_MAX_S: Final = 1.0
"""Longest time between two looks at what is due."""


class ValuesOwner(Protocol):
    """A connection as its consumers of last values see it."""

    bus: "Bus"
    subscriptions: "Subscriptions"

    async def cell(self, subject: str) -> "CellDriver":
        """Return what deals with the cell, or raise an error about `subject`."""

    async def ready(self) -> None:
        """Wait until others know its subscriptions."""

    def report(self, error: JMSError) -> None:
        """Pass an error to the exception listener."""


class CatchUp:
    """Fills an inbox with last values, and then lets it go on with live messages."""

    def __init__(self, owner: ValuesOwner, hub: ValuesHub, inbox: LastValuesInbox) -> None:
        self._owner, self._hub, self._inbox = owner, hub, inbox
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._arrived: list[tuple[ListedValue, Frame]] = []
        """Values of a portion that has not come as a whole."""
        destination = inbox.destination
        self._reader = ValuesReader(
            hub.node_id,
            hub.next_number,
            destination.name,
            is_pattern=isinstance(destination, TopicPattern),
            is_wanted=inbox.lacks,
        )
        inbox.on_value_room = self._changed.set

    async def run(self) -> None:
        """Get the values, and let live messages follow. An error goes to the inbox, and to its listener's place."""
        inbox, owner = self._inbox, self._owner
        try:
            driver = await owner.cell(f"last values of {inbox.destination}")
            await owner.ready()
            self._hub.add(self)
            await self._read(driver)
            inbox.go_live()
            for wait_s in LOOKS_S:
                await asyncio.sleep(wait_s)
                self._reader.look_again(self._loop.time())
                await self._read(driver)
        except JMSError as error:
            if inbox.is_held:
                self._fail(error)
        finally:
            self._hub.remove(self)
            inbox.learns = False

    def _fail(self, error: JMSError) -> None:
        self._owner.subscriptions.remove(self._inbox)
        self._inbox.fail(error)
        if self._inbox.listener is not None:
            self._owner.report(error)

    async def _read(self, driver: "CellDriver") -> None:
        """Ask until all values have come."""
        reader, inbox = self._reader, self._inbox
        reader.progressed_at = self._loop.time()
        while True:
            heartbeat = driver.heartbeat
            if heartbeat is not None:
                reader.note_cell(heartbeat)
            reader.room, reader.room_bytes = inbox.value_room
            if not reader.room:
                reader.progressed_at = self._loop.time()
            for query in reader.poll_queries(self._loop.time()):
                self._hub.send(query)
            inbox.is_listing = reader.is_listing
            if not reader.is_waiting:
                self._deliver()
            if reader.is_done:
                return
            now = self._loop.time()
            if now - reader.progressed_at > SILENT_S:
                raise silent_cell(f"last values of {inbox.destination}", self._owner.bus.config, SILENT_S)
            self._changed.clear()
            due_at = min(reader.poll_timeout(), now + _WAIT_MAX_S)
            try:
                async with asyncio.timeout_at(due_at):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def hear_page(self, page: ValuesPage) -> None:
        """Take a part of a list."""
        self._reader.receive_page(page, self._loop.time())
        self._changed.set()

    def hear_frame(self, frame: Frame) -> None:
        """Take a message that a keeper sent, if it is one that was asked for."""
        buffer, start, _, _, header = frame
        number = ledger_number_of(buffer, header, start)
        if number is None:
            return
        ledger = Ledger(number.producer_id, number.producer_epoch, LANE_OF_PRIORITY[header[PRIORITY]])
        value = self._reader.find((ledger, number.sequence))
        if value is None:
            return
        found = read_retained(buffer, header, start)
        if found is None or found.identity != value.identity or found.stamp != value.order.stamp:
            return
        if is_intact(buffer, header, start):
            self._reader.take((ledger, number.sequence), self._loop.time())
            self._arrived.append((value, frame))
            if not self._reader.is_waiting:
                self._deliver()
            self._changed.set()

    def _deliver(self) -> None:
        """Pass on what has arrived, the oldest first. Keepers send it by ledger."""
        for value, frame in sorted(self._arrived, key=lambda each: each[0].order):
            self._inbox.take_value(frame, value)
        self._arrived.clear()
