"""A command's session on a bus, and the errors that are reported there."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import click

from fjm2.base.quantities import counted
from fjm2.bus.bus import Bus
from fjm2.bus.config import BusConfig
from fjm2.bus.losses.names import listed
from fjm2.bus.problems import ADVICE
from fjm2.bus.waiting.outages import End
from fjm2.jms import BusError, ConnectionFactory, MessagesDroppedError, MessagesLostError, Session, UnconfirmedError

from .common import cut_off_text


def say(text: str) -> None:
    """Print a line to standard error. Standard output is for messages."""
    click.echo(text, err=True)


_CLOSE_S = 2.0  # seconds for which a command still tries to deliver messages after Ctrl-C
_SENT_INTERVAL_S = 0.005  # no event tells of each segment; shows a rate of a tenth of a second well enough


class BusLink:
    """A session on a bus. Errors are printed when they occur, and counted.

    A subscriber that does not confirm is printed once, and once more if it confirms again.
    """

    session: Session

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.losses = 0
        self.is_unconfirmed = False
        self.has_waited = False
        """True if the time that `confirmed` may take is used up."""
        self.confirms_all = False
        """True if `confirmed` will be called, so that every subscriber that was given up is printed as not having
        confirmed."""
        self._told: set[int] = set()
        """Nodes that did not confirm, as was printed."""
        bus.outages.add_listener(self._note_end)

    def handle_error(self, error: Exception) -> None:
        """Count and print an error. Used as exception listener."""
        match error:
            case MessagesLostError() | MessagesDroppedError():
                self.losses += 1
                say(f"lost: {error}")
            case UnconfirmedError():
                self._handle_unconfirmed(error)
            case BusError(error_code="sends_refused"):
                say(f"warning: {error}; {ADVICE['sends_refused']}")
            case BusError(error_code="subscriber_evicted") if self.confirms_all:
                pass
            case _:
                say(f"warning: {error}")

    def _handle_unconfirmed(self, error: UnconfirmedError) -> None:
        self.is_unconfirmed = True
        nodes = error.unacknowledged_nodes
        is_summary = error.until is not None  # the beginning was printed, and `_note_end` prints the end
        if is_summary or self.has_waited or (nodes and nodes <= self._told):
            return
        self._told |= nodes
        say(f"not confirmed: {error}")

    def has_failed(self, subscribers: int) -> bool:
        """Return True if a subscriber did not confirm, or if none can have got what was sent last. The latter is
        printed, with the reason."""
        is_confirmed = subscribers and self.confirms_all and not self.is_unconfirmed
        if not is_confirmed and (reason := self.cut_off()):
            say(reason)
            return True
        return self.is_unconfirmed

    def cut_off(self) -> str | None:
        """Return why what was sent last did not leave this host, or None if it did."""
        is_down = any(lane.is_down for lane in self.bus.statistics().lanes.values())
        return cut_off_text(is_down, self.bus.lanes.refusal)

    def _note_end(self, node_id: int, end: End) -> None:
        if node_id in self._told and end is End.BACK:
            self._told.discard(node_id)
            say(f"confirms again: {self.bus.presence.names.of(node_id)}")

    async def sent(self) -> None:
        """Wait until everything has been sent once, or until there is no progress any more."""
        with contextlib.suppress(TimeoutError):
            async with self.bus.close_deadline(_CLOSE_S).wait():
                while any(lane.unsent_bytes for lane in self.bus.lanes.with_streams):  # noqa: ASYNC110
                    await asyncio.sleep(_SENT_INTERVAL_S)

    async def confirmed(self, timeout_s: float) -> None:
        """Wait until all known subscribers have confirmed everything. If they have not within `timeout_s`, print
        that."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.bus.flushed()
                missing = await self.bus.confirmed()
        except TimeoutError:
            self.handle_error(UnconfirmedError(f"subscribers did not confirm everything within {timeout_s:g} s"))
            self.has_waited = True
            return
        if missing:
            self.is_unconfirmed = True
        if new := missing - self._told:
            text = f"{counted(len(new), 'subscriber')} did not confirm everything"
            self.handle_error(UnconfirmedError(f"{text}: {listed(self.bus.presence.names.all_of(new))}", new))


@contextlib.asynccontextmanager
async def open_bus_link(uri: str, client_id: str | None, **settings: Any) -> AsyncIterator[BusLink]:
    """Open a session on a bus.

    Closing it waits for sent messages to arrive, as long as there is progress. After Ctrl-C it waits for two seconds,
    and not at all if `confirmed` waited in vain.
    """
    # The link prints everything that this logger warns of.
    logging.getLogger("fjm2.jms").setLevel(logging.ERROR)
    factory = ConnectionFactory(uri, client_id=client_id, **settings)
    bus = await Bus.open(BusConfig.from_uri(factory.uri))
    link = BusLink(bus)
    limit_s: float | None = None
    try:
        async with factory.create_connection() as connection:
            connection.exception_listener = link.handle_error
            link.session = connection.create_session()
            connection.start()
            yield link
            if link.has_waited:
                limit_s = 0.0
                await connection.close(limit_s)
    except asyncio.CancelledError:
        limit_s = _CLOSE_S
        raise
    finally:
        not_confirmed = await bus.close(bus.close_deadline(_CLOSE_S, limit_s))
        if not_confirmed is not None and not link.is_unconfirmed:
            link.handle_error(UnconfirmedError(str(not_confirmed)))
