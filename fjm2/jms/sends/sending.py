"""The sending half of a connection, which its sessions share."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from fjm2.base.loop import call_not_before
from fjm2.bus.confirmation import Confirmation
from fjm2.bus.gates.gated_publication import Gate, GatedPublication
from fjm2.bus.gates.start_gate import StartGate
from fjm2.bus.publication import Outbox, Publication
from fjm2.messages.destination import Destination
from fjm2.messages.errors import IllegalStateError, JMSError
from fjm2.messages.frame import FrameWriter

from ..settings import ClientSettings
from .cell_client import CellClient
from .keepers_known import not_serving

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

    from .cell_driver import CellDriver, LedgerOwner

_POLL_S: Final = 0.01
"""Interval at which `settled` looks."""


class Sending:
    """Publishes the messages of a connection.

    At first they pass a gate that holds back what keepers may have to store. When it is known that there are none,
    messages pass no gate any more. When a cell is heard, they pass its gate for ever.
    """

    ledger_owner: "LedgerOwner | None" = None

    def __init__(
        self, bus: "Bus", settings: ClientSettings, report: Callable[[JMSError], None], gate: Gate | None = None
    ) -> None:
        """With `gate`, all messages pass that one, and no keeper is listened to."""
        from fjm2.bus.ledgers.ledger_room import LedgerRoom  # only now: it loads the NORM engine

        self.confirmation = Confirmation(bus, report)
        self.confirm_timeout_s = settings.confirm_timeout_s
        self._bus = bus
        self._codec = settings.codec
        self._loop = asyncio.get_running_loop()
        self._start = StartGate(LedgerRoom.bytes_max_of(bus.config.sender.stream_bytes))
        self._gated = GatedPublication(bus.publisher, self.confirmation, gate or self._start, self.confirm_timeout_s)
        self._publication: Publication = self._gated
        self._outboxes: WeakSet[Outbox] = WeakSet()
        self._cell = CellClient.of(bus)
        self._giving_up: asyncio.TimerHandle | None = None
        if gate is None:
            self._cell.join(self)
        else:
            bus.lanes.keep_all()  # it may number messages for keepers

    @property
    def is_gated(self) -> bool:
        """True if messages pass a gate."""
        return self._publication.is_gated

    # For the client of the cell.

    def use_gate(self, gate: Gate) -> None:
        """Pass all messages through the gate of a cell from now on, those that are held first."""
        self._stop_giving_up()
        self._gated.use(gate)
        self._use(self._gated)

    def expect_cell(self) -> None:
        """Hold messages back until a cell serves, for as long as its keepers may be silent."""
        self._start.shut()
        self._use(self._gated)
        if self._giving_up is None:
            self._give_up()

    def expect_none(self) -> None:
        """Publish everything without a gate."""
        self._stop_giving_up()
        self._start.open()
        self._use(Publication(self._bus.publisher, self.confirmation))

    def _use(self, publication: Publication) -> None:
        if publication is not self._publication:
            publication.transactions = self._publication.transactions
            self._publication = publication
            for outbox in self._outboxes:
                outbox.use(publication)

    def _give_up(self) -> None:
        """Let everything fail that has waited too long for a cell."""
        now = self._loop.time()
        oldest = self._gated.give_up(
            now - self.confirm_timeout_s, lambda: not_serving(self._bus, self.confirm_timeout_s)
        )
        at = (now if oldest is None else oldest) + self.confirm_timeout_s
        self._giving_up = call_not_before(self._loop, at, self._give_up)

    def _stop_giving_up(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    # For sessions.

    def new_outbox(
        self, writer: FrameWriter, check_destination: Callable[[Destination], None], is_transacted: bool
    ) -> Outbox:
        """Return the sending half of a new session."""
        outbox = Outbox(
            self._publication, writer, self._codec, check_destination, self.confirm_timeout_s, is_transacted
        )
        self._outboxes.add(outbox)
        return outbox

    async def heard_cell(self) -> "CellDriver | None":
        """Wait for a cell, and return its driver. Return None if there is no sign of one, or none serves in time."""
        return await self._cell.heard(self.confirm_timeout_s)

    async def ready(self) -> None:
        """Wait until it is known which topics keepers store, if any keeper was heard."""
        await self._cell.ready()

    async def settled(self) -> None:
        """Wait until no message waits any more because it is not known if keepers store it."""
        while self._start.is_waiting and self._gated.is_holding:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """Wait for nothing more: what is not stored or confirmed yet fails."""
        self._stop_giving_up()
        self._cell.leave(self)
        self._gated.give_up(self._loop.time(), _closed)
        await self.confirmation.close()


def _closed() -> JMSError:
    return IllegalStateError("the connection was closed before a keeper was heard: the message was not sent")
