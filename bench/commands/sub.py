"""`fjm2-bench sub`."""

import asyncio

import click

from fjm2.commands.common import run
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

from . import hello
from .options import json_option, layer_option, open_session, size_option, timeout_option, uri_option
from .results import Reception, print_ready, print_result

_LINGER_S = 3.0
"""So long a subscriber that has all it was to get answers the publisher, if that does not end."""

_COMPLAINTS_MAX = 10


@click.command()
@layer_option
@uri_option
@size_option(1024)
@click.option("--count", type=click.IntRange(min=1), help="How many messages have to come.  [default: those sent]")
@timeout_option(60.0)
@click.option("--no-verify", is_flag=True, help="Do not look into messages: measure the transport alone.")
@json_option
def sub(
    layer: str,  # noqa: ARG001
    uri: BusConfig,
    size: int,
    count: int | None,
    timeout_s: float,
    no_verify: bool,
    as_json: bool,
) -> None:
    """Receive what `fjm2-bench pub` sends, check each message, and end when the publisher does.

    The exit code is 0 if the publisher's end was seen and every message came once, and whole.

    \b
    Example: fjm2-bench sub --uri 'fjm2://239.192.57.40:5740?interface=eth0' --size 1024 --timeout 60
    """
    subscriber = Subscriber(Reception("fjm2", size, is_verified=not no_verify), count)
    run(_sub(uri, subscriber, timeout_s, as_json))


async def _sub(bus: BusConfig, subscriber: "Subscriber", timeout_s: float, as_json: bool) -> int:
    async with open_session(bus) as session:
        print_ready(as_json)
        try:
            async with asyncio.timeout(timeout_s) as deadline:
                await subscriber.receive(session, deadline)
        except TimeoutError:
            pass
    result = subscriber.reception.result()
    print_result(result, as_json)
    return 0 if result.is_lossless else 1


class Subscriber:
    """Takes the events of a session, and what the first publisher heard of sends."""

    def __init__(self, reception: Reception, count: int | None) -> None:
        self.reception = reception
        self._count = count
        reception.total = count
        self._answered = asyncio.Event()
        self._publisher: int | None = None
        self._stream: int | None = None
        self._position = 0
        """In the stream, of the next byte."""
        self._is_over = False
        self._is_lingering = False
        self._complaints = 0

    async def receive(self, session: Session, deadline: asyncio.Timeout) -> None:
        """Until the publisher has ended."""
        announcer = asyncio.create_task(hello.announce(session, self._answered))
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
        at = asyncio.get_running_loop().time() + _LINGER_S
        deadline.reschedule(min(at, deadline.when() or at))

    def _take(self, event: Event, node_id: int) -> None:
        match event:
            case StreamReceived():
                self._take_run(event)
            case ObjectCompleted() if event.data is not None and self._is_publisher(event.sender_id):
                self.reception.take_object(event.data)
                self._look_for_end()
            case CommandReceived(sender_id, content):
                said = hello.decode(content)
                if said is not None:
                    self._hear(sender_id, said, node_id)
            case StreamLost() if not self.reception.is_ended:
                lost = f"bytes {event.start} to {event.end}" if event.end > event.start else "the rest"
                self._complain(f"lost {lost} of the stream: {event.reason.value}")
            case ObjectLost():
                self._complain(f"lost object {event.object_id}: {event.reason.value}")
            case ObjectsMissed():
                self._complain(f"missed {event.count} objects")
            case SenderVanished(sender_id) if sender_id == self._publisher:
                self._is_over = True
            case NodeIdCollided(address):
                click.echo(f"warning: {address[0]} uses our node id, too", err=True)
            case _:
                pass

    def _complain(self, text: str) -> None:
        """A few times; the counters tell the whole of it."""
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
        self._look_for_end()

    def _is_publisher(self, sender_id: int) -> bool:
        """Whoever sends first. From then on nobody needs to know that we are here."""
        if self._publisher is None:
            self._publisher = sender_id
        if sender_id != self._publisher:
            return False
        self._answered.set()
        return True

    def _hear(self, sender_id: int, said: hello.Hello, node_id: int) -> None:
        if said.word is hello.Word.WELCOME and said.node_id == node_id and self._publisher in (None, sender_id):
            self._publisher = sender_id
            if said.messages == 0:
                self.reception.begin(0)
            self._answered.set()
        elif said.word is hello.Word.END and sender_id == self._publisher:
            self.reception.is_ended = True
            self.reception.total = said.messages if self._count is None else self._count
            self._look_for_end()

    def _look_for_end(self) -> None:
        self._is_over = self._is_over or (self.reception.is_ended and self.reception.is_complete)
