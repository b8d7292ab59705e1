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
from fjm2.jms import ConnectionFactory, MessagesDroppedError, MessagesLostError, Session, UnconfirmedError


def say(text: str) -> None:
    """Print a line to standard error. Standard output is for messages."""
    click.echo(text, err=True)


_CLOSE_S = 2.0  # seconds for which a command still tries to deliver messages after Ctrl-C


class BusLink:
    """A session on a bus. Errors are printed when they occur, and counted."""

    session: Session

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.losses = 0
        self.is_unconfirmed = False

    def handle_error(self, error: Exception) -> None:
        """Count and print an error. Used as exception listener."""
        match error:
            case MessagesLostError() | MessagesDroppedError():
                self.losses += 1
                say(f"lost: {error}")
            case UnconfirmedError():
                self.is_unconfirmed = True
                say(f"not confirmed: {error}")
            case _:
                say(f"warning: {error}")

    async def confirmed(self, timeout_s: float) -> None:
        """Wait until all known subscribers have confirmed everything. If they have not within `timeout_s`, print
        that."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.bus.flushed()
                missing = await self.bus.confirmed()
        except TimeoutError:
            self.handle_error(UnconfirmedError(f"subscribers did not confirm everything within {timeout_s:g} s"))
            return
        if missing:
            text = f"{counted(len(missing), 'subscriber')} did not confirm everything"
            self.handle_error(UnconfirmedError(f"{text}: {listed(self.bus.presence.names.all_of(missing))}"))


@contextlib.asynccontextmanager
async def open_bus_link(uri: str, client_id: str | None, **settings: Any) -> AsyncIterator[BusLink]:
    """Open a session on a bus.

    Closing it waits for sent messages to arrive, as long as there is progress. After Ctrl-C it waits for two seconds.
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
    except asyncio.CancelledError:
        limit_s = _CLOSE_S
        raise
    finally:
        not_confirmed = await bus.close(bus.close_deadline(_CLOSE_S, limit_s))
        if not_confirmed is not None and not link.is_unconfirmed:
            link.handle_error(UnconfirmedError(str(not_confirmed)))
