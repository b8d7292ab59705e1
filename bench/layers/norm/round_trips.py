"""Round trips over NORM sessions."""

import asyncio
import contextlib
import time

from fjm2.norm import OutgoingStream, Session
from fjm2.norm.events import CommandReceived, CommandSent, SenderVanished, StreamReceived
from fjm2.uri import BusConfig

from ...workload.messages import Maker
from ...workload.results import TimedOutError
from ..base import Ready
from . import handshake
from .session import open_session

_FAREWELL_S = 2.0
"""Longest wait for END to be sent. END is a robust command, which is sent several times."""


class Pinger:
    """The measuring end of round trips."""

    def __init__(self, uri: str, size: int) -> None:
        self.doing = "waiting for an echo"
        self._uri = uri
        self._maker = Maker(size)

    async def measure(self, count: int) -> list[int]:
        async with open_session(BusConfig.from_uri(self._uri)) as session:
            return await self._measure(session, count)

    async def _measure(self, session: Session, count: int) -> list[int]:
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
            said = handshake.decode(event.content) if isinstance(event, CommandReceived) else None
            if said is not None and said.word is handshake.Word.HERE:
                session.send_command(handshake.Hello(handshake.Word.WELCOME, said.node_id).encode())
                return said.node_id
        raise TimedOutError("the session was closed")

    async def _say_goodbye(self, session: Session, count: int) -> None:
        session.send_command(handshake.Hello(handshake.Word.END, 0, count).encode(), is_robust=True)
        try:
            async with asyncio.timeout(_FAREWELL_S):
                while not isinstance(await anext(session), CommandSent):
                    pass
        except TimeoutError:
            pass


class Echoer:
    """The echoing end of round trips: it sends messages back."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.messages = 0
        self.is_ended = False
        self._partner: int | None = None
        self._answered = asyncio.Event()

    async def serve(self, ready: Ready, timeout_s: float) -> None:
        async with open_session(BusConfig.from_uri(self._uri)) as session:
            ready()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._serve(session)

    async def _serve(self, session: Session) -> None:
        announcer = asyncio.create_task(handshake.announce(session, self._answered))
        try:
            stream = await session.open_stream()
            async for event in session:
                match event:
                    case StreamReceived(sender_id) if self._partner in (None, sender_id):
                        self._find(sender_id)  # the partner's WELCOME may arrive after its messages
                        await self._send_back(stream, event)
                    case CommandReceived(sender_id, content):
                        self._hear(sender_id, handshake.decode(content), session.node_id)
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

    def _hear(self, sender_id: int, said: handshake.Hello | None, node_id: int) -> None:
        if said is None:
            return
        if said.word is handshake.Word.WELCOME and said.node_id == node_id and self._partner is None:
            self._find(sender_id)
        elif said.word is handshake.Word.END and sender_id == self._partner:
            self.is_ended = True
