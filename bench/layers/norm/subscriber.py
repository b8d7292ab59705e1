"""The subscriber of the NORM layer, on a NORM session."""

import asyncio
import contextlib

import click

from fjm2.base.quantities import counted
from fjm2.norm import Session
from fjm2.norm.events import (
    CommandReceived,
    Event,
    NodeIdCollided,
    ObjectCompleted,
    ObjectLost,
    ObjectsMissed,
    SenderVanished,
    StreamLost,
    StreamReceived,
)
from fjm2.uri import BusConfig

from ...workload.reception import Reception
from ..base import LINGER_S, Ready, SubOptions
from . import handshake
from .session import open_session

_COMPLAINTS_MAX = 10
"""Maximum number of losses that are printed."""


class Subscriber:
    """Subscriber that takes the messages of the first publisher that it hears."""

    def __init__(self, system: str, options: SubOptions) -> None:
        self.reception = Reception(system, options.size, is_verified=options.is_verified)
        self.reception.total = self._count = options.count
        self._options = options
        self._answered = asyncio.Event()
        self._publisher: int | None = None
        self._stream: int | None = None
        self._position = 0
        """Position of the next byte in the stream."""
        self._is_over = False
        self._is_lingering = False
        self._complaints = 0

    async def receive(self, ready: Ready) -> None:
        async with open_session(BusConfig.from_uri(self._options.uri)) as session:
            ready()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.timeout_s) as deadline:
                    await self._take_all(session, deadline)

    async def _take_all(self, session: Session, deadline: asyncio.Timeout) -> None:
        announcer = asyncio.create_task(handshake.announce(session, self._answered))
        try:
            async for event in session:
                self._take(event, session.node_id)
                if self._is_over:
                    return
                if self._count is not None and not self._is_lingering and self.reception.is_complete:
                    self._is_lingering = True
                    self._end_within(deadline)
        finally:
            announcer.cancel()

    def _end_within(self, deadline: asyncio.Timeout) -> None:
        at = asyncio.get_running_loop().time() + LINGER_S
        deadline.reschedule(min(at, deadline.when() or at))

    def _take(self, event: Event, node_id: int) -> None:
        match event:
            case StreamReceived():
                self._take_run(event)
            case ObjectCompleted() if event.data is not None and self._is_publisher(event.sender_id):
                self.reception.take_object(event.data)
                self._check_end()
            case CommandReceived(sender_id, content):
                said = handshake.decode(content)
                if said is not None:
                    self._hear(sender_id, said, node_id)
            case StreamLost() if not self.reception.is_ended:
                lost = f"bytes {event.start} to {event.end}" if event.end > event.start else "the rest"
                self._complain(f"lost {lost} of the stream: {event.reason.value}")
            case ObjectLost():
                self._complain(f"lost object {event.object_id}: {event.reason.value}")
            case ObjectsMissed():
                self._complain(f"missed {counted(event.count, 'object')}")
            case SenderVanished(sender_id) if sender_id == self._publisher:
                self._is_over = True
            case NodeIdCollided(address):
                click.echo(f"warning: {address[0]} also uses our node id", err=True)
            case _:
                pass

    def _complain(self, text: str) -> None:
        """Print a loss, unless `_COMPLAINTS_MAX` were printed before. The result counts all losses."""
        self._complaints += 1
        if self._complaints <= _COMPLAINTS_MAX:
            click.echo(text, err=True)

    def _take_run(self, event: StreamReceived) -> None:
        if not self._is_publisher(event.sender_id):
            return
        if self._stream is None:
            self._stream = event.object_id
        if event.object_id != self._stream:
            return
        if event.start != self._position:
            self.reception.skip_to(event.start)
        self._position = event.start + len(event.data)
        self.reception.take(event.data)
        self._check_end()

    def _is_publisher(self, sender_id: int) -> bool:
        """Return True for the publisher, which is the first sender. From its first data on, subscribers need not
        announce themselves.
        """
        if self._publisher is None:
            self._publisher = sender_id
        if sender_id != self._publisher:
            return False
        self._answered.set()
        return True

    def _hear(self, sender_id: int, said: handshake.Hello, node_id: int) -> None:
        if said.word is handshake.Word.WELCOME and said.node_id == node_id and self._publisher in (None, sender_id):
            self._publisher = sender_id
            if said.messages == 0:
                self.reception.begin(0)
            self._answered.set()
        elif said.word is handshake.Word.END and sender_id == self._publisher:
            self.reception.is_ended = True
            self.reception.total = said.messages if self._count is None else self._count
            self._check_end()

    def _check_end(self) -> None:
        self._is_over = self._is_over or (self.reception.is_ended and self.reception.is_complete)
