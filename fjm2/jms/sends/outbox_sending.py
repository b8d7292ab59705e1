"""The sending half of a connection with an outbox."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fjm2.base.logs import Log
from fjm2.base.quantities import counted
from fjm2.bus.gates.gated_publication import Gate
from fjm2.bus.publication import Publication
from fjm2.messages.errors import JMSError
from fjm2.outbox.drive.directory import open_outbox
from fjm2.outbox.drive.disk_outbox import DiskOutbox

from ..settings import ClientSettings
from .outbox_link import OutboxLink
from .outbox_publication import OutboxPublication
from .sending import Sending

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

log = Log("fjm2.jms")

_POLL_S: Final = 0.01


async def open_disk_outbox(settings: ClientSettings) -> DiskOutbox | None:
    """Open the outbox that a connection was given, if any. Raise ConfigError if its directory cannot be used."""
    if settings.outbox is None:
        return None
    opened = await asyncio.to_thread(open_outbox, Path(settings.outbox), settings.outbox_bytes_max)
    return DiskOutbox(opened, settings.confirm_timeout_s)


class OutboxSending(Sending):
    """Publishes the messages of a connection: those that are PERSISTENT by way of its outbox."""

    def __init__(
        self, bus: "Bus", settings: ClientSettings, report: Callable[[JMSError], None], outbox: DiskOutbox
    ) -> None:
        self._directory = settings.outbox
        self._outbox = outbox
        outbox.on_failed = report
        self._link: OutboxLink | None = None
        super().__init__(bus, settings, report)
        self._waiting_in_outbox = lambda: outbox.waiting
        bus.lanes.outboxes.append(self._waiting_in_outbox)
        self._publication = OutboxPublication(bus.publisher, self.confirmation, outbox, settings.confirm_timeout_s)

    @property
    def ledger_owner(self) -> OutboxLink:  # type: ignore[override]
        if self._link is None:
            self._link = OutboxLink(self._outbox, Publication(self._bus.publisher, self.confirmation))
        return self._link

    def use_gate(self, gate: Gate) -> None:
        """Leave the gate to requests: messages pass the outbox, whatever is known of keepers."""

    def expect_cell(self) -> None:
        """Go on: the outbox holds messages back."""

    def expect_none(self) -> None:
        """Go on: the outbox waits for a cell."""

    async def settled(self) -> None:
        """Wait until keepers have everything, if there are any."""
        while self._outbox.waiting and self.ledger_owner.has_keepers:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        """Send nothing more. What is not stored stays in the outbox."""
        await self.ledger_owner.close()
        await super().close()
        self._bus.lanes.outboxes.remove(self._waiting_in_outbox)
        waiting = self._outbox.waiting
        await self._outbox.close()
        if waiting:
            log.tell(
                logging.WARNING,
                "outbox_waiting",
                f"{counted(waiting, 'message')} stay in the outbox {self._directory}: the next connection with it "
                "sends them",
                (self._directory, waiting),
                messages=waiting,
            )
