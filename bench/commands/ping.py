"""`fjm2-bench ping` and `fjm2-bench echo`: round-trip times."""

import asyncio
import time

import click

from fjm2.commands.common import run
from fjm2.norm import OutgoingStream, Session
from fjm2.norm.events import CommandReceived, CommandSent, SenderVanished, StreamReceived
from fjm2.uri import BusConfig

from ..workload import Maker
from . import hello
from .options import (
    TimedOutError,
    json_option,
    layer_option,
    open_session,
    size_option,
    timeout_option,
    uri_option,
)
from .results import EchoResult, ping_result, print_ready, print_result

_FAREWELL_S = 2.0

count_option = click.option(
    "--count", default=5000, show_default=True, type=click.IntRange(min=1), help="Round trips that are measured."
)
warm_up_option = click.option(
    "--warm-up", default=500, show_default=True, type=click.IntRange(min=0), help="Round trips before those."
)


@click.command()
@layer_option
@uri_option
@size_option(64)
@count_option
@warm_up_option
@timeout_option(60.0)
@json_option
def ping(
    layer: str,  # noqa: ARG001
    uri: BusConfig,
    size: int,
    count: int,
    warm_up: int,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Send a message, wait for `fjm2-bench echo` to send it back, and so on: p50, p99 and p99.9.

    \b
    Example: fjm2-bench ping --uri 'fjm2://239.192.57.40:5740?interface=eth0' --size 64 --count 10000
    """
    run(_ping(uri, size, count, warm_up, timeout_s, as_json))


@click.command()
@layer_option
@uri_option
@timeout_option(60.0, "End after so many seconds in any case.")
@json_option
def echo(
    layer: str,  # noqa: ARG001
    uri: BusConfig,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Send back what `fjm2-bench ping` sends, until it ends.

    \b
    Example: fjm2-bench echo --uri 'fjm2://239.192.57.40:5740?interface=eth0'
    """
    run(_echo(uri, timeout_s, as_json))


async def _ping(bus: BusConfig, size: int, count: int, warm_up: int, timeout_s: float, as_json: bool) -> int:
    pinger = Pinger(size)
    try:
        async with asyncio.timeout(timeout_s), open_session(bus) as session:
            times = await pinger.measure(session, warm_up + count)
    except TimeoutError:
        raise TimedOutError(f"{pinger.doing}: not done within {timeout_s:g} s") from None
    print_result(ping_result("fjm2", size, times[warm_up:]), as_json)
    return 0


class Pinger:
    """One end of the round trips."""

    def __init__(self, size: int) -> None:
        self.doing = "waiting for an echo"
        self._maker = Maker(size)

    async def measure(self, session: Session, count: int) -> list[int]:
        """Nanoseconds of each round trip."""
        partner = await self._find_echo(session)
        stream = await session.open_stream()
        times = []
        for number in range(count):
            self.doing = f"waiting for message {number} to come back"
            message = bytes(self._maker.batch(1))
            start = time.perf_counter_ns()
            await stream.write(message)
            back = b""
            while len(back) < len(message):
                event = await anext(session)
                if isinstance(event, StreamReceived) and event.sender_id == partner:
                    back += event.data
                elif isinstance(event, SenderVanished) and event.sender_id == partner:
                    raise TimedOutError(f"the echo has gone: {event.reason.value}")
            times.append(time.perf_counter_ns() - start)
            if back != message:
                raise TimedOutError(f"message {number} came back as another")
        await self._say_goodbye(session, count)
        return times

    async def _find_echo(self, session: Session) -> int:
        async for event in session:
            said = hello.decode(event.content) if isinstance(event, CommandReceived) else None
            if said is not None and said.word is hello.Word.HERE:
                session.send_command(hello.Hello(hello.Word.WELCOME, said.node_id).encode())
                return said.node_id
        raise TimedOutError("the session was closed")

    async def _say_goodbye(self, session: Session, count: int) -> None:
        session.send_command(hello.Hello(hello.Word.END, 0, count).encode(), is_robust=True)
        try:
            async with asyncio.timeout(_FAREWELL_S):
                while not isinstance(await anext(session), CommandSent):
                    pass
        except TimeoutError:
            pass


async def _echo(bus: BusConfig, timeout_s: float, as_json: bool) -> int:
    echoer = Echoer()
    async with open_session(bus) as session:
        print_ready(as_json)
        try:
            async with asyncio.timeout(timeout_s):
                await echoer.serve(session)
        except TimeoutError:
            pass
    print_result(EchoResult(system="fjm2", messages=echoer.messages), as_json)
    return 0 if echoer.is_ended else 1


class Echoer:
    """The other end."""

    def __init__(self) -> None:
        self.messages = 0
        self.is_ended = False
        self._partner: int | None = None
        self._answered = asyncio.Event()

    async def serve(self, session: Session) -> None:
        """Until the partner ends."""
        announcer = asyncio.create_task(hello.announce(session, self._answered))
        try:
            stream = await session.open_stream()
            async for event in session:
                match event:
                    case StreamReceived(sender_id) if self._partner in (None, sender_id):
                        self._find(sender_id)  # what it says may come later than what it sends
                        await self._send_back(stream, event)
                    case CommandReceived(sender_id, content):
                        self._hear(sender_id, hello.decode(content), session.node_id)
                    case SenderVanished(sender_id) if sender_id == self._partner:
                        return
                    case _:
                        pass
                if self.is_ended:
                    return
        finally:
            announcer.cancel()

    def _find(self, sender_id: int) -> None:
        self._partner = sender_id
        self._answered.set()

    async def _send_back(self, stream: OutgoingStream, event: StreamReceived) -> None:
        await stream.write(event.data, is_start=bool(event.marks))
        self.messages += len(event.marks)

    def _hear(self, sender_id: int, said: hello.Hello | None, node_id: int) -> None:
        if said is None:
            return
        if said.word is hello.Word.WELCOME and said.node_id == node_id and self._partner is None:
            self._find(sender_id)
        elif said.word is hello.Word.END and sender_id == self._partner:
            self.is_ended = True
