"""The sending half of a connection, which its sessions share."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from fjm2.bus.confirmation import Confirmation
from fjm2.bus.gates.gated_publication import Gate, GatedPublication
from fjm2.bus.publication import Outbox, Publication
from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError
from fjm2.messages.frame import FrameWriter

from ..settings import ClientSettings
from .cell_client import CellClient

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

    from .cell_driver import CellDriver


CELL_HEARD_S: Final = 0.5
"""Time after the opening of a connection by which it has heard a cell, if there is one: three heartbeats."""


class Sending:
    """Publishes the messages of a connection, through a gate as soon as keepers are heard."""

    def __init__(
        self, bus: "Bus", settings: ClientSettings, report: Callable[[JMSError], None], gate: Gate | None = None
    ) -> None:
        """With `gate`, all messages pass that one, and no keeper is listened to."""
        self.confirmation = Confirmation(bus, report)
        self.confirm_timeout_s = settings.confirm_timeout_s
        self._publisher = bus.publisher
        self._codec = settings.codec
        self._publication = Publication(bus.publisher, self.confirmation)
        self._outboxes: WeakSet[Outbox] = WeakSet()
        self._cell = CellClient.of(bus)
        self._opened_at = asyncio.get_running_loop().time()
        if gate is None:
            self._cell.join(self)
        else:
            self.use_gate(gate)

    @property
    def is_gated(self) -> bool:
        """True if messages pass a gate."""
        return self._publication.is_gated

    def use_gate(self, gate: Gate) -> None:
        """Pass all messages through a gate from now on."""
        self._publication = GatedPublication(
            self._publisher, self.confirmation, gate, self.confirm_timeout_s, self._publication.transactions
        )
        for outbox in self._outboxes:
            outbox.use(self._publication)

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
        """Wait for a cell, and return its driver. Return None if none was heard by half a second after the opening."""
        return await self._cell.heard(self._opened_at + CELL_HEARD_S)

    async def ready(self) -> None:
        """Wait until it is known which topics keepers store, if any keeper was heard."""
        await self._cell.ready()

    async def close(self) -> None:
        """Wait for nothing more: what is not stored or confirmed yet fails."""
        self._cell.leave(self)
        await self.confirmation.close()
