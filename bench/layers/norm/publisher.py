"""The publisher of the NORM layer, on a NORM session."""

import asyncio
import math
import time
from dataclasses import replace

import click

from fjm2.base.quantities import counted
from fjm2.norm import OutgoingStream, Session
from fjm2.norm.events import CommandReceived, CommandSent, NodeIdCollided, ReceiverEvicted
from fjm2.uri import BusConfig

from ...rate import rate_bps
from ...workload.messages import Maker
from ...workload.results import PubResult, StopWatch, pub_result
from ..base import PubOptions
from . import handshake
from .session import open_session

_FAREWELL_S = 3.0
"""Longest wait for END to be sent. END is a robust command, which is sent several times."""


class Publisher:
    """Publisher that waits for receivers, sends messages, and waits until the receivers confirm."""

    def __init__(self, system: str, options: PubOptions) -> None:
        self.doing = "opening a session"
        self._system = system
        self._options = options
        self._maker = Maker(options.size)
        self._stream: OutgoingStream | None = None
        self._nodes: set[int] = set()
        self._came = asyncio.Event()
        self._unsaid = 0
        """Number of commands still to be sent."""
        self._said = asyncio.Event()

    async def publish(self) -> PubResult:
        bus = BusConfig.from_uri(self._options.uri)
        if self._options.rate is not None:
            bus = replace(bus, sender=replace(bus.sender, rate_bps=rate_bps(self._options.rate)))
        async with open_session(bus) as session:
            listener = asyncio.create_task(self._listen(session))
            try:
                return await self._publish(session)
            finally:
                listener.cancel()

    async def _publish(self, session: Session) -> PubResult:
        await self._wait_for_receivers()
        session.set_receivers(self._nodes)
        watch = StopWatch()
        self.doing = "sending"
        if self._options.form == "stream":
            await self._send_stream(session)
        else:
            await self._send_objects(session)
        not_acked = await self._confirm(session)
        result = pub_result(
            system=self._system,
            form=self._options.form,
            size=self._options.size,
            messages=self._maker.next_number,
            watch=watch,
            batch=self._options.batch,
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

    async def _wait_for_receivers(self) -> None:
        while len(self._nodes) < self._options.receivers:
            self.doing = f"waiting for {counted(self._options.receivers, 'receiver')}, {len(self._nodes)} are there"
            self._came.clear()
            await self._came.wait()

    async def _send_stream(self, session: Session) -> None:
        self._stream = await session.open_stream()
        write, batch = self._stream.write, self._options.batch
        until, left = self._limits()
        if batch > 1:
            while left > 0 and time.perf_counter() < until:
                some = min(batch, left)
                await write(self._maker.batch(some))
                left -= some
            return
        for messages in self._maker.messages(left):
            for message in messages:
                await write(message)
            if time.perf_counter() >= until:
                return

    async def _send_objects(self, session: Session) -> None:
        until, left = self._limits()
        while left > 0 and time.perf_counter() < until:
            await session.send_data(self._maker.batch(1))
            left -= 1

    def _limits(self) -> tuple[float, int]:
        """Return the time at which to stop sending, and the number of messages to send."""
        until = math.inf if self._options.seconds is None else time.perf_counter() + self._options.seconds
        return until, 1 << 62 if self._options.count is None else self._options.count

    async def _confirm(self, session: Session) -> list[int]:
        """Wait until the receivers have everything. Return the receivers that did not confirm."""
        self.doing = "waiting for the receivers to confirm"
        nodes = frozenset(self._nodes)
        if nodes:
            return sorted((await session.watermark(nodes)).failed)
        await session.flushed()
        return []

    async def _say_goodbye(self, session: Session) -> None:
        self._say(session, handshake.Hello(handshake.Word.END, 0, self._maker.next_number))
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await self._said.wait()
        except TimeoutError:
            pass

    async def _listen(self, session: Session) -> None:
        """Answer subscribers that announce themselves."""
        async for event in session:
            match event:
                case CommandReceived(_, content):
                    said = handshake.decode(content)
                    if said is not None and said.word is handshake.Word.HERE:
                        self._welcome(session, said.node_id)
                case CommandSent():
                    self._unsaid -= 1
                    if not self._unsaid:
                        self._said.set()
                case ReceiverEvicted(node_id):
                    click.echo(f"receiver {node_id} does not answer any more: no longer waiting for it", err=True)
                case NodeIdCollided(address):
                    click.echo(f"warning: {address[0]} also uses our node id {session.node_id}", err=True)
                case _:
                    pass

    def _welcome(self, session: Session, node_id: int) -> None:
        if node_id not in self._nodes:
            self._nodes.add(node_id)
            if self._maker.next_number:
                session.set_receivers(self._nodes)
            self._came.set()
        self._say(session, handshake.Hello(handshake.Word.WELCOME, node_id, self._maker.next_number))

    def _say(self, session: Session, said: handshake.Hello) -> None:
        self._unsaid += 1
        self._said.clear()
        session.send_command(said.encode(), is_robust=said.word is handshake.Word.END)
