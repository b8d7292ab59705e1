"""A program that publishes to a topic with a durable subscription, or consumes from it, and writes down what it does.

    python cell_agent.py URI LOG NAME ROLE [SETTING=VALUE ...]

It obeys commands on stdin, and repeats each when it has done so: `begin` lets a publisher send, `pause` stops that and
waits for the outcome of each send, and `close` ends the program. `durable_history.py` describes the log. Each line is
written by one system call before the program goes on, so that a killed program leaves whole lines.
"""

import asyncio
import contextlib
import random
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "system" / "faults"))

from agent import Log, Settings, describe

from fjm2.jms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    JMSError,
    Message,
    Session,
    SessionMode,
    Topic,
    TransactionRolledBackError,
)

TOPIC = "history"
SUBSCRIPTION = "all"
PRIORITIES = (4, 9)
"""One priority for each lane of a publisher."""
_TICK_S = 0.005
_IN_FLIGHT_MAX = 256
"""Sends of one publisher whose outcome is unknown."""
_IDLE_S = 0.05
"""Time without a message after which a consumer acknowledges."""
_RETRY_S = 0.2
_FILLER = random.Random(0).randbytes(4096)
_CHECKSUM_BYTES = 4
_MODES = {
    "auto": SessionMode.AUTO_ACKNOWLEDGE,
    "client": SessionMode.CLIENT_ACKNOWLEDGE,
    "transacted": SessionMode.SESSION_TRANSACTED,
}


@dataclass
class CellSettings(Settings):
    """Behaviour of an agent."""

    per_s: float = 200.0
    """Messages that a publisher sends in a second."""
    mode: str = "client"
    """How a consumer acknowledges: `auto`, `client` or `transacted`."""
    batch: int = 20
    """Messages that a consumer acknowledges at once."""


def body_of(producer: str, lane: int, number: int) -> bytes:
    """Return a body that no other message has, with its checksum."""
    head = f"{producer} {lane} {number} ".encode()
    content = head + _FILLER[number % 977 : number % 977 + number * 7919 % 2000]
    return zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "big") + content


def message_in(body: bytes) -> tuple[str, int, int, bool]:
    """Return producer, lane and number of a body, and True if it is whole."""
    try:
        producer, lane, number, _ = body[_CHECKSUM_BYTES:].split(b" ", 3)
        message = producer.decode(), int(lane), int(number)
    except ValueError:
        return "", 0, 0, False
    return *message, body == body_of(*message)


class Publisher:
    """Sends numbered messages in turn on its lanes. Several sends are under way at a time."""

    def __init__(self, connection: Connection, name: str, settings: CellSettings, log: Log) -> None:
        self._session = connection.create_session()
        self._producer = self._session.create_producer(Topic(TOPIC))
        self._name, self._settings, self._log = name, settings, log
        self._number = 0
        self._in_flight: set[asyncio.Task[None]] = set()
        self.may_send = asyncio.Event()

    async def run(self) -> None:
        due = 0.0
        while True:
            await self.may_send.wait()
            due = min(due + self._settings.per_s * _TICK_S, self._settings.per_s)
            while due >= len(PRIORITIES) and len(self._in_flight) < _IN_FLIGHT_MAX:
                self._number += 1
                for lane in PRIORITIES:
                    self._send(lane, self._number)
                due -= len(PRIORITIES)
            await asyncio.sleep(_TICK_S)

    def _send(self, lane: int, number: int) -> None:
        message = BytesMessage()
        message.write_bytes(body_of(self._name, lane, number))
        self._log.add(event="send", lane=lane, number=number)
        try:
            outcome = self._producer.send_async(message, priority=lane)
        except JMSError as error:
            self._fail(lane, number, error)
            return
        task = asyncio.create_task(self._complete(outcome, lane, number))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _complete(self, outcome: Awaitable[None], lane: int, number: int) -> None:
        try:
            await outcome
        except JMSError as error:
            self._fail(lane, number, error)
        else:
            self._log.add(event="sent", lane=lane, number=number)

    def _fail(self, lane: int, number: int, error: JMSError) -> None:
        # A full store is no proof: one keeper may have had room, and the others fetch the message from it later.
        in_doubt = getattr(error, "in_doubt", error.error_code == "store_full")
        self._log.add(event="failed", lane=lane, number=number, in_doubt=in_doubt, **describe(error))

    async def rest(self) -> None:
        """Stop to send, and wait for all outcomes."""
        self.may_send.clear()
        while self._in_flight:
            await asyncio.wait(self._in_flight)


class Consumer:
    """Takes messages of a durable subscription, in one session after the other, and acknowledges them."""

    def __init__(self, factory: ConnectionFactory, settings: CellSettings, log: Log) -> None:
        self._factory, self._settings, self._log = factory, settings, log
        self._last: Message | None = None
        """Last message that is not acknowledged."""
        self._count = 0
        """Messages that are not acknowledged."""
        self.is_ready = asyncio.Event()
        self.is_closing = asyncio.Event()

    async def run(self) -> None:
        while not self.is_closing.is_set():
            try:
                async with self._factory.create_connection() as connection:
                    await self._run_session(connection)
            except JMSError as error:
                self._log.add(event="told", **describe(error))
                await asyncio.sleep(_RETRY_S)

    async def _run_session(self, connection: Connection) -> None:
        connection.exception_listener = lambda error: self._log.add(event="told", **describe(error))
        self._last, self._count = None, 0
        session = connection.create_session(_MODES[self._settings.mode])
        consumer = await session.create_durable_consumer(Topic(TOPIC), SUBSCRIPTION)
        self._log.add(event="session", subscription=SUBSCRIPTION, mode=self._settings.mode)
        if self._settings.mode == "auto":
            consumer.message_listener = self._take
        connection.start()
        self.is_ready.set()
        if self._settings.mode == "auto":
            await self.is_closing.wait()
            return
        while not self.is_closing.is_set():
            message = await consumer.receive(timeout=_IDLE_S)
            if message is not None:
                self._note(message)
            if self._count and (message is None or self._count >= self._settings.batch):
                await self._acknowledge(session)
        if self._count:
            await self._acknowledge(session)

    def _take(self, message: Message) -> None:
        """Take a message in a session that acknowledges it afterwards, and before the next one."""
        if self._last is not None:
            self._log.add(event="acknowledged")
        self._note(message)
        self._log.add(event="acknowledge")

    def _note(self, message: Message) -> None:
        assert isinstance(message, BytesMessage)
        producer, lane, number, is_whole = message_in(message.read_bytes(message.body_length) or b"")
        self._log.add(
            event="got", producer=producer, lane=lane, number=number, redelivered=message.redelivered, whole=is_whole
        )
        self._last = message
        self._count += 1

    async def _acknowledge(self, session: Session) -> None:
        assert self._last is not None
        self._count = 0
        self._log.add(event="acknowledge")
        try:
            await (session.commit() if session.transacted else self._last.acknowledge())
        except JMSError as error:
            if isinstance(error, TransactionRolledBackError) or error.error_code == "session_fenced":
                self._log.add(event="unacknowledged")
            raise
        self._log.add(event="acknowledged")


async def publish(factory: ConnectionFactory, name: str, settings: CellSettings, log: Log) -> None:
    """Publish as the commands on stdin say."""
    async with factory.create_connection() as connection:
        connection.exception_listener = lambda error: log.add(event="told", **describe(error))
        publisher = Publisher(connection, name, settings, log)
        async with _running(publisher.run()):
            print("ready", flush=True)
            async for line in commands():
                if line == "begin":
                    publisher.may_send.set()
                elif line == "pause":
                    await publisher.rest()
                print(line, flush=True)


async def consume(factory: ConnectionFactory, settings: CellSettings, log: Log) -> None:
    """Consume until stdin ends or says so."""
    consumer = Consumer(factory, settings, log)
    task = asyncio.create_task(consumer.run())
    await asyncio.wait([task, asyncio.create_task(consumer.is_ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    print("ready", flush=True)
    async for line in commands():
        print(line, flush=True)
    consumer.is_closing.set()
    await task


async def commands() -> AsyncIterator[str]:
    """Yield the lines of stdin until it ends or says `close`."""
    loop = asyncio.get_running_loop()
    while (line := (await loop.run_in_executor(None, sys.stdin.readline)).strip()) not in ("close", ""):
        yield line


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run something beside a block. If it fails, the block fails with it."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()


async def main(uri: str, path: str, name: str, role: str, *texts: str) -> None:
    settings, log = CellSettings.of(list(texts)), Log(path)
    if role == "publish":
        await publish(ConnectionFactory(uri, client_id=name), name, settings, log)
    else:
        await consume(ConnectionFactory(uri, client_id=SUBSCRIPTION), settings, log)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
