"""A program on a bus that writes down what it sends, receives and is told, for tests that harm it.

    python agent.py URI LOG NAME ROLE [SETTING=VALUE ...]

It obeys commands on stdin: `begin` lets a publisher send, `pause` stops that, `file` sends a file between messages, and
`close` ends the program. The log has one JSON object a line, each written by one system call, so that a killed program
leaves whole lines. A publisher writes down what it is about to send before it sends it: nothing that arrives is missing
from its log.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from fjm2.jms import BytesMessage, Connection, ConnectionFactory, DeliveryMode, FileMessage, Session, Topic

TOPICS = ("faults.a", "faults.b")
FILES = "faults.files"
"""Topic of files."""
PRIORITIES = (4, 5, 9)
"""One priority for each lane."""
_TICK_S = 0.005
_NOTE_S = 0.02
_LULL_S = 0.05
"""Time without a message that a subscriber writes down."""


@dataclass
class Settings:
    """Behaviour of an agent."""

    size: int = 200
    """Bytes in a body."""
    per_s: float = 2000.0
    """Messages that a publisher sends in a second."""
    persistent: int = 0
    transaction: int = 0
    """Rounds of messages in a transaction, a message for each topic and priority a round; 0 sends without
    transactions."""
    file_bytes: int = 0
    """Bytes in a file. A subscriber with any receives files."""
    work_ms: float = 0.0
    """Time that a listener takes for each message."""
    overflow: str = "block"
    messages_max: int = 100_000
    unread: int = 0
    """1 for a subscriber that never reads."""
    close_timeout_s: float = 2.0
    """Time without progress after which a close gives up. The default is that of connections."""

    @classmethod
    def of(cls, texts: list[str]) -> Self:
        """Read settings from words such as `size=100`."""
        types = {each.name: type(each.default) for each in fields(cls)}
        pairs = (text.split("=", 1) for text in texts)
        return cls(**{name: types[name](value) for name, value in pairs})


class Starvation:
    """Time for which this thread was ready to run, and the machine ran others."""

    def __init__(self) -> None:
        self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def seconds(self) -> float:
        """Return that time since the thread began."""
        return int(os.pread(self._file, 100, 0).split()[1]) * 1e-9


class Log:
    """A file of JSON lines."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def add(self, **entry: object) -> None:
        os.write(self._file, (json.dumps({"at": time.monotonic(), **entry}) + "\n").encode())


class Publisher:
    """Sends numbered messages in turn to all topics, on all lanes. Each topic and lane has numbers of its own."""

    def __init__(self, connection: Connection, name: str, settings: Settings, log: Log) -> None:
        self._session = connection.create_session(transacted=bool(settings.transaction))
        self._producer = self._session.create_producer(None)
        self._producer.delivery_mode = DeliveryMode.PERSISTENT if settings.persistent else DeliveryMode.NON_PERSISTENT
        self._name, self._settings, self._log = name, settings, log
        self._numbers = dict.fromkeys([(topic, priority) for topic in TOPICS for priority in PRIORITIES], 0)
        self.may_send = asyncio.Event()
        self.is_resting = asyncio.Event()
        """Set while no send is under way."""
        self._starvation = Starvation()
        self._files = 0
        self.sending_files: set[asyncio.Task[None]] = set()

    async def ready(self) -> None:
        pass

    async def run(self) -> None:
        due = 0.0
        while True:
            await self.may_send.wait()
            due = min(due + self._settings.per_s * _TICK_S, self._settings.per_s * 10 * _TICK_S)
            rounds = self._settings.transaction or int(due / len(self._numbers))
            due = max(due - rounds * len(self._numbers), 0.0)
            if rounds:
                self.is_resting.clear()
                await self._send(rounds)
                if self._settings.transaction:
                    self._log.add(event="commit")
                    await self._session.commit()
                    self._log.add(event="committed")
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
                began, starved_s = time.monotonic(), self._starvation.seconds()
                await self._producer.send(message, Topic(topic), priority=priority)
                if (held_s := time.monotonic() - began) > 0.1:
                    self._log.add(event="held", seconds=held_s, starved_s=self._starvation.seconds() - starved_s)
                self._numbers[topic, priority] = number + 1

    def begin_file(self, log: Path) -> None:
        """Send a file without waiting for it, so that messages go between its parts. It is made beside the log."""
        self._files += 1
        task = asyncio.create_task(self._send_file(log.with_suffix(f".{self._files}"), self._files))
        self.sending_files.add(task)
        task.add_done_callback(self.sending_files.discard)

    async def _send_file(self, path: Path, number: int) -> None:
        with path.open("wb") as file:
            file.write(number.to_bytes(8, "big") * (self._settings.file_bytes // 8))
        message = FileMessage(path)
        message.set_string_property("sender", self._name)
        message.set_int_property("number", number)
        self._log.add(event="file", sender=self._name, number=number)
        await self._producer.send(message, Topic(FILES))

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
        if settings.file_bytes:
            self.consumers.append(self._sessions[0].create_consumer(Topic(FILES)))
            self.consumers[-1].message_listener = self._take_file
        self._latest_at = float("inf")

    def _take_file(self, message: FileMessage) -> None:
        sender, number = message.get_string_property("sender"), message.get_int_property("number")
        with message.open() as file:
            is_whole = file.read() == number.to_bytes(8, "big") * (message.size // 8)
        if not is_whole:
            self._log.add(event="fault", text=f"file {number} of {sender}: altered")
        self._log.add(event="file", sender=sender, number=number)

    async def ready(self) -> None:
        for consumer in self.consumers:
            await consumer.ready()

    def _take(self, topic: str, message: BytesMessage) -> None:
        now = time.monotonic()
        if now - self._latest_at > _LULL_S:
            self._log.add(event="lull", seconds=now - self._latest_at)
        self._latest_at = now
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
        "is_summary": getattr(error, "until", None) is not None and nodes is not None,
    }


async def main(uri: str, path: str, name: str, role: str, *texts: str) -> None:
    settings, log = Settings.of(list(texts)), Log(path)
    factory = ConnectionFactory(uri, client_id=name, close_timeout_s=settings.close_timeout_s)
    connection = await factory.create_connection()
    connection.exception_listener = lambda error: log.add(event="told", **describe(error))
    agent = Publisher(connection, name, settings, log) if role == "publish" else Subscriber(connection, settings, log)
    connection.start()
    await agent.ready()
    bus = connection._core.endpoint.bus  # type: ignore[union-attr]
    takes_files = role == "subscribe" and bool(settings.file_bytes)
    is_unread = bool(settings.unread)
    log.add(event="ready", role=role, node_id=bus.node_id, is_unread=is_unread, takes_files=takes_files)
    print("ready", flush=True)
    task = asyncio.create_task(agent.run())
    task.add_done_callback(lambda done: done.cancelled() or log.add(event="failed", text=repr(done.exception())))
    loop = asyncio.get_running_loop()
    while (line := (await loop.run_in_executor(None, sys.stdin.readline)).strip()) not in ("close", ""):
        if isinstance(agent, Publisher):
            if line == "begin":
                agent.may_send.set()
            elif line == "file":
                agent.begin_file(Path(path))
            elif line == "pause":
                agent.may_send.clear()
                await agent.is_resting.wait()
                await asyncio.gather(*agent.sending_files)
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
