"""A command's place on a bus, and what goes wrong there."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import click

from fjm2.bus.bus import Bus
from fjm2.bus.closing import CloseDeadline
from fjm2.bus.config import BusConfig
from fjm2.jms import ConnectionFactory, MessagesDroppedError, MessagesLostError, Session, UnconfirmedError


def say(text: str) -> None:
    """On standard error: standard output is for messages."""
    click.echo(text, err=True)


_CLOSE_S = 2.0


class Link:
    """A session on a bus. Trouble is told as it comes, and counted."""

    session: Session

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.losses = 0
        self.is_unconfirmed = False

    def take(self, error: Exception) -> None:
        """For the exception listener."""
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
        """Wait until all subscribers that are known have everything; say so if they do not in this time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.bus.flushed()
                missing = await self.bus.confirmed()
        except TimeoutError:
            self.take(UnconfirmedError(f"subscribers did not confirm everything within {timeout_s:g} s"))
            return
        if missing:
            self.take(UnconfirmedError(f"{people(len(missing), 'subscriber')} did not confirm everything"))


@contextlib.asynccontextmanager
async def open_link(uri: str, client_id: str | None, **settings: Any) -> AsyncIterator[Link]:
    """Closing it sees that what was sent arrives, as long as anything goes on; after Ctrl-C, for two seconds."""
    # All that it warns of is told by the link.
    logging.getLogger("fjm2.jms").setLevel(logging.ERROR)
    factory = ConnectionFactory(uri, client_id=client_id, **settings)
    bus = await Bus.open(BusConfig.from_uri(factory.uri))
    link = Link(bus)
    limit_s: float | None = None
    try:
        async with factory.create_connection() as connection:
            connection.exception_listener = link.take
            link.session = connection.create_session()
            connection.start()
            yield link
    except asyncio.CancelledError:
        limit_s = _CLOSE_S
        raise
    finally:
        not_confirmed = await bus.close(CloseDeadline(bus, _CLOSE_S, limit_s))
        if not_confirmed is not None and not link.is_unconfirmed:
            link.take(UnconfirmedError(str(not_confirmed)))


def people(count: int, noun: str) -> str:
    """As in "1 message" and "2 messages"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("ply") else f"{count:,} {noun}s"
