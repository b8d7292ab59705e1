"""`fjm2-bench pub`."""

import asyncio
import time
from dataclasses import replace
from urllib.parse import quote

import click

from fjm2.commands.common import run
from fjm2.errors import ConfigError
from fjm2.norm import OutgoingStream, Session
from fjm2.norm.events import CommandReceived, CommandSent, NodeIdCollided, ReceiverEvicted
from fjm2.uri import BusConfig

from ..workload import Maker
from . import hello
from .options import (
    TimedOutError,
    check_how_much,
    how_much_options,
    json_option,
    layer_option,
    object_option,
    open_session,
    size_option,
    timeout_option,
    uri_option,
)
from .results import PubResult, StopWatch, print_result, pub_result

_FAREWELL_S = 3.0
"""Longest wait until the end has been told often enough."""


@click.command()
@layer_option
@uri_option
@size_option(1024)
@how_much_options
@object_option
@click.option("--rate", help="Bits per second, as in 100mbit; 0 for no limit. Instead of the URI's.")
@click.option("--batch", default=1, show_default=True, type=click.IntRange(min=1), help="Messages in one write.")
@click.option(
    "--receivers",
    default=1,
    show_default=True,
    type=click.IntRange(min=0),
    help="Wait for so many before, and for their confirmation after.",
)
@timeout_option(120.0)
@json_option
def pub(
    layer: str,  # noqa: ARG001
    uri: BusConfig,
    size: int,
    count: int | None,
    seconds: float | None,
    form: str,
    rate: str | None,
    batch: int,
    receivers: int,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Publish numbered messages in a tight loop, and end when all receivers have confirmed the last.

    \b
    Example: fjm2-bench pub --uri 'fjm2://239.192.57.40:5740?interface=eth0&flow=min' --size 1024 --seconds 5 --rate 0
    """
    check_how_much(count, seconds)
    if batch > 1 and form == "data":
        raise click.UsageError("--batch is for streams: a DATA object is one message")
    if rate is not None:
        uri = _with_rate(uri, rate)
    publisher = Publisher(size, form, batch, receivers)
    run(_pub(uri, publisher, count, seconds, timeout_s, as_json))


def _with_rate(bus: BusConfig, rate: str) -> BusConfig:
    try:
        rate_bps = BusConfig.from_uri(f"fjm2://?rate={quote(rate)}").sender.rate_bps
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--rate") from error
    return replace(bus, sender=replace(bus.sender, rate_bps=rate_bps))


async def _pub(
    bus: BusConfig, publisher: "Publisher", count: int | None, seconds: float | None, timeout_s: float, as_json: bool
) -> int:
    try:
        async with asyncio.timeout(timeout_s), open_session(bus) as session:
            result = await publisher.publish(session, count, seconds)
    except TimeoutError:
        raise TimedOutError(f"{publisher.doing}: not done within {timeout_s:g} s") from None
    print_result(result, as_json)
    return 1 if result.not_acked else 0


class Publisher:
    """Waits for receivers, sends, and waits for their confirmation."""

    def __init__(self, size: int, form: str, batch: int, receivers: int) -> None:
        self.size = size
        self.form = form
        self.batch = batch
        self.receivers = receivers
        self.doing = ""
        self._maker = Maker(size)
        self._stream: OutgoingStream | None = None
        self._nodes: set[int] = set()
        self._came = asyncio.Event()
        self._unsaid = 0
        """Commands that are still to be sent."""
        self._said = asyncio.Event()

    async def publish(self, session: Session, count: int | None, seconds: float | None) -> PubResult:
        listener = asyncio.create_task(self._listen(session))
        try:
            await self._wait_for_receivers()
            session.set_receivers(self._nodes)
            watch = StopWatch()
            self.doing = "sending"
            if self.form == "stream":
                await self._send_stream(session, count, seconds)
            else:
                await self._send_objects(session, count, seconds)
            not_acked = await self._confirm(session)
            result = pub_result(
                system="fjm2",
                form=self.form,
                size=self.size,
                messages=self._maker.next_number,
                watch=watch,
                batch=self.batch,
                receivers=len(self._nodes),
                not_acked=[str(node) for node in not_acked],
                nacks=session.stats.nacks_received,
                repairs=session.stats.repair_segments_sent + session.stats.parity_segments_sent,
                window_waits=session.stats.window_waits,
            )
            if self._stream is not None:
                await self._stream.close()
            await self._say_goodbye(session)
            return result
        finally:
            listener.cancel()

    async def _wait_for_receivers(self) -> None:
        while len(self._nodes) < self.receivers:
            self.doing = f"waiting for {self.receivers} receivers, {len(self._nodes)} are there"
            self._came.clear()
            await self._came.wait()

    async def _send_stream(self, session: Session, count: int | None, seconds: float | None) -> None:
        self._stream = await session.open_stream()
        write = self._stream.write
        until = None if seconds is None else time.perf_counter() + seconds
        left = count if count is not None else 1 << 62
        if self.batch > 1:
            while left > 0 and (until is None or time.perf_counter() < until):
                some = min(self.batch, left)
                await write(self._maker.batch(some))
                left -= some
            return
        for messages in self._maker.messages(left):
            for message in messages:
                await write(message)
            if until is not None and time.perf_counter() >= until:
                return

    async def _send_objects(self, session: Session, count: int | None, seconds: float | None) -> None:
        until = None if seconds is None else time.perf_counter() + seconds
        left = count if count is not None else 1 << 62
        while left > 0 and (until is None or time.perf_counter() < until):
            await session.send_data(self._maker.batch(1))
            left -= 1

    async def _confirm(self, session: Session) -> list[int]:
        """Wait until all is there. Those who have not confirmed it."""
        self.doing = "waiting for the receivers to confirm"
        nodes = frozenset(self._nodes)
        if nodes:
            return sorted((await session.watermark(nodes)).failed)
        await session.flushed()
        return []

    async def _say_goodbye(self, session: Session) -> None:
        self._say(session, hello.Hello(hello.Word.END, 0, self._maker.next_number))
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await self._said.wait()
        except TimeoutError:
            pass

    async def _listen(self, session: Session) -> None:
        """Answer those who announce themselves."""
        async for event in session:
            match event:
                case CommandReceived(_, content):
                    said = hello.decode(content)
                    if said is not None and said.word is hello.Word.HERE:
                        self._welcome(session, said.node_id)
                case CommandSent():
                    self._unsaid -= 1
                    if not self._unsaid:
                        self._said.set()
                case ReceiverEvicted(node_id):
                    click.echo(f"receiver {node_id} has fallen silent: not waited for any more", err=True)
                case NodeIdCollided(address):
                    click.echo(f"warning: {address[0]} uses our node id {session.node_id}, too", err=True)
                case _:
                    pass

    def _welcome(self, session: Session, node_id: int) -> None:
        if node_id not in self._nodes:
            self._nodes.add(node_id)
            if self._maker.next_number:
                session.set_receivers(self._nodes)
            self._came.set()
        self._say(session, hello.Hello(hello.Word.WELCOME, node_id, self._maker.next_number))

    def _say(self, session: Session, said: hello.Hello) -> None:
        self._unsaid += 1
        self._said.clear()
        session.send_command(said.encode(), is_robust=said.word is hello.Word.END)
