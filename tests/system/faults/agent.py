"""A program on a bus that writes down what it sends, receives and is told, for tests that harm it.

    python agent.py URI LOG NAME ROLE [SETTING=VALUE ...]

It obeys commands on stdin: `begin` lets a publisher send, `pause` stops that, and `close` ends the program. The log
has one JSON object a line, each written by one system call, so that a killed program leaves whole lines. A publisher
writes down what it is about to send before it sends it: nothing that arrives is missing from its log.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, fields
from typing import Any, Self

from fjm2.jms import BytesMessage, Connection, ConnectionFactory, DeliveryMode, Session, Topic

TOPICS = ("faults.a", "faults.b")
PRIORITIES = (4, 5, 9)
"""One priority for each lane."""
_TICK_S = 0.005
_NOTE_S = 0.02


@dataclass
class Settings:
    """Behaviour of an agent."""

    size: int = 200
    """Bytes in a body."""
    per_s: float = 2000.0
    """Messages that a publisher sends in a second."""
    persistent: int = 0
    work_ms: float = 0.0
    """Time that a listener takes for each message."""
    overflow: str = "block"
    messages_max: int = 100_000
    unread: int = 0
    """1 for a subscriber that never reads."""

    @classmethod
    def of(cls, texts: list[str]) -> Self:
        """Read settings from words such as `size=100`."""
        types = {each.name: type(each.default) for each in fields(cls)}
        pairs = (text.split("=", 1) for text in texts)
        return cls(**{name: types[name](value) for name, value in pairs})


class Log:
    """A file of JSON lines."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, **entry: object) -> None:
        os.write(self._file, (json.dumps({"at": time.monotonic(), **entry}) + "\n").encode())


class Publisher:
    """Sends numbered messages in turn to all topics, on all lanes. Each topic and lane has numbers of its own."""

    def __init__(self, connection: Connection, name: str, settings: Settings, log: Log) -> None:
        self._producer = connection.create_session().create_producer(None)
        self._producer.delivery_mode = DeliveryMode.PERSISTENT if settings.persistent else DeliveryMode.NON_PERSISTENT
        self._name, self._settings, self._log = name, settings, log
        self._numbers = dict.fromkeys([(topic, priority) for topic in TOPICS for priority in PRIORITIES], 0)
        self.may_send = asyncio.Event()
        self.is_resting = asyncio.Event()
        """Set while no send is under way."""

    async def ready(self) -> None:
        pass

    async def run(self) -> None:
        due = 0.0
        while True:
            await self.may_send.wait()
            due = min(due + self._settings.per_s * _TICK_S, self._settings.per_s * 10 * _TICK_S)
            rounds = int(due / len(self._numbers))
            due -= rounds * len(self._numbers)
            if rounds:
                self.is_resting.clear()
                await self._send(rounds)
            self.is_resting.set()
            await asyncio.sleep(_TICK_S)

    async def _send(self, rounds: int) -> None:
        first = next(iter(self._numbers.values()))
        self._log.add(event="send", first=first, count=rounds)
        for number in range(first, first + rounds):
            for topic, priority in self._numbers:
                message = BytesMessage()
                message.write_bytes(number.to_bytes(8, "big") * (self._settings.size // 8))
                message.set_string_property("sender", self._name)
                message.set_int_property("number", number)
                began = time.monotonic()
                await self._producer.send(message, Topic(topic), priority=priority)
                if (held_s := time.monotonic() - began) > 0.1:
                    self._log.add(event="held", seconds=held_s)
                self._numbers[topic, priority] = number + 1

    def close(self) -> None:
        self._log.add(event="sent", count=next(iter(self._numbers.values())))


class Subscriber:
    """Receives from all topics, and writes down ranges of numbers."""

    def __init__(self, connection: Connection, settings: Settings, log: Log) -> None:
        self._settings, self._log = settings, log
        self._open: dict[tuple[str, str, int], list[Any]] = {}
        self._sessions: list[Session] = []
        self.consumers = []
        for topic in TOPICS:
            session = connection.create_session()
            consumer = session.create_consumer(
                Topic(topic), overflow=settings.overflow, messages_max=settings.messages_max
            )
            self._sessions.append(session)
            self.consumers.append(consumer)
            if not settings.unread:
                consumer.message_listener = lambda message, topic=topic: self._take(topic, message)

    async def ready(self) -> None:
        for consumer in self.consumers:
            await consumer.ready()

    def _take(self, topic: str, message: BytesMessage) -> None:
        number = message.get_int_property("number")
        body = message.read_bytes(message.body_length) or b""
        sender = message.get_string_property("sender") or ""
        if body != number.to_bytes(8, "big") * (len(body) // 8):
            self._log.add(event="fault", text=f"{sender} {number}: altered")
        key = (sender, topic, message.priority)
        has_gap = message.property_exists("JMS_FJM2_Gap")
        range_ = self._open.get(key)
        if range_ is not None and range_[1] == number and not has_gap:
            range_[1] = number + 1
        else:
            self._note(key)
            self._open[key] = [number, number + 1, has_gap]
        if self._settings.work_ms:
            time.sleep(self._settings.work_ms / 1000)

    def _note(self, key: tuple[str, str, int]) -> None:
        range_ = self._open.pop(key, None)
        if range_ is not None:
            sender, topic, priority = key
            first, end, has_gap = range_
            self._log.add(event="got", sender=sender, topic=topic, priority=priority, first=first, end=end, gap=has_gap)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_NOTE_S)
            self.close()

    def close(self) -> None:
        for key in list(self._open):
            self._note(key)


def describe(error: Exception) -> dict[str, object]:
    """Return what the application can know of a problem."""
    nodes = getattr(error, "unacknowledged_nodes", None)
    return {
        "kind": type(error).__name__,
        "code": getattr(error, "error_code", None),
        "text": str(error),
        "nodes": sorted(nodes) if nodes else [],
    }


async def main(uri: str, path: str, name: str, role: str, *texts: str) -> None:
    settings, log = Settings.of(list(texts)), Log(path)
    connection = await ConnectionFactory(uri, client_id=name).create_connection()
    connection.exception_listener = lambda error: log.add(event="told", **describe(error))
    agent = Publisher(connection, name, settings, log) if role == "publish" else Subscriber(connection, settings, log)
    connection.start()
    await agent.ready()
    bus = connection._core.endpoint.bus  # type: ignore[union-attr]
    log.add(event="ready", name=name, role=role, node_id=bus.node_id, is_unread=bool(settings.unread))
    print("ready", flush=True)
    task = asyncio.create_task(agent.run())
    task.add_done_callback(lambda done: done.cancelled() or log.add(event="failed", text=repr(done.exception())))
    loop = asyncio.get_running_loop()
    while (line := (await loop.run_in_executor(None, sys.stdin.readline)).strip()) not in ("close", ""):
        if isinstance(agent, Publisher):
            agent.may_send.set() if line == "begin" else agent.may_send.clear()
            if line == "pause":
                await agent.is_resting.wait()
        print(line, flush=True)
    began = time.monotonic()
    log.add(event="closing")
    await connection.close()
    task.cancel()
    await asyncio.wait([task])
    agent.close()
    log.add(event="closed", seconds=time.monotonic() - began)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
