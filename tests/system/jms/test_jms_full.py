"""Real subscribers that are full: one that is slow, which is waited for, and one that is never read, which is not."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from fjm2.jms import BusError, BytesMessage, ConnectionFactory, Topic

pytestmark = pytest.mark.calm

TOPIC = Topic("full")
BODY_BYTES = 32 << 10
SENDING_S = 15.0
BLOCK_S = 3.0
BUSY_S = 2.0
"""Delay that a busy machine may add."""
ACCEPTED_BYTES = 73 << 20
"""More than a subscriber holds, and less than that and a send buffer."""
DEADLINE_S = 90.0

SLOW = """
import json, sys, time
from fjm2.jms import Topic
from fjm2.jms.blocking import ConnectionFactory

connection = ConnectionFactory(sys.argv[1], client_id="slow-desk").create_connection()
errors = []
connection.exception_listener = errors.append
consumer = connection.create_session().create_consumer(Topic("full"), messages_max=200)
connection.start()
consumer.ready()
print("ready", flush=True)
received, wrong = 0, []
while True:
    message = consumer.receive(30)
    if message is None or message.property_exists("end"):
        break
    if message.get_int_property("n") != received or message.property_exists("JMS_FJM2_Gap"):
        wrong.append(message.get_int_property("n"))
    received += 1
    time.sleep(0.002)
statistics = consumer.statistics()
print(json.dumps({"received": received, "wrong": wrong[:10], "errors": [str(error) for error in errors],
                  "times_full": statistics.times_full, "dropped": statistics.messages_dropped}), flush=True)
connection.close()
"""

UNREAD = """
import json, sys, time
from fjm2.jms import Topic
from fjm2.jms.blocking import ConnectionFactory

connection = ConnectionFactory(sys.argv[1], client_id="idle-desk").create_connection()
errors = []
connection.exception_listener = errors.append
consumer = connection.create_session().create_consumer(Topic("full"), messages_max=200, block_s=sys.argv[2])
connection.start()
consumer.ready()
print("ready", flush=True)
sys.stdin.readline()
statistics = consumer.statistics()
print(json.dumps({"errors": [f"{type(error).__name__}: {error}" for error in errors], "held": statistics.messages_held,
                  "dropped": statistics.messages_dropped}), flush=True)
connection.close()
"""


class Program:
    """A subscriber in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, script: str, *arguments: str) -> "Program":
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-c", script, *arguments]
        program = cls(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe))
        assert await program.line() == "ready"
        return program

    async def line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            return (await self._process.stdout.readline()).decode().strip()

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class Publisher:
    """A connection that sends as fast as it may."""

    def __init__(self, connection: Any) -> None:
        self.errors: list[Exception] = []
        self.has_ended = asyncio.Event()
        """Set when no subscriber holds the connection back any more."""
        connection.exception_listener = self._note
        self._producer = connection.create_session().create_producer(TOPIC)
        self._body = bytes(BODY_BYTES)
        self.sent = 0
        self.waits: list[float] = []
        """Times that single sends took, in seconds."""

    def _note(self, error: Exception) -> None:
        self.errors.append(error)
        if isinstance(error, BusError) and error.error_code == "subscriber_ready":
            self.has_ended.set()

    async def send(self) -> None:
        message = BytesMessage()
        message.set_int_property("n", self.sent)
        message.write_bytes(self._body)
        began = time.monotonic()
        await self._producer.send(message)
        self.waits.append(time.monotonic() - began)
        self.sent += 1

    async def send_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self.send()

    async def send_end(self) -> None:
        message = BytesMessage()
        message.set_boolean_property("end", True)
        await self._producer.send(message)

    def codes(self) -> list[str | None]:
        return [error.error_code if isinstance(error, BusError) else type(error).__name__ for error in self.errors]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.1)


def uri(port: int, **settings: object) -> str:
    return f"fjm2://239.192.57.98:{port}?interface=127.0.0.1&ttl=0" + "".join(f"&{k}={v}" for k, v in settings.items())


@pytest.mark.nightly
def test_a_subscriber_of_2_ms_a_message_loses_nothing_and_is_full_but_never_gone(port: int) -> None:
    async def main() -> None:
        slow = await Program.start(SLOW, uri(port))
        try:
            async with ConnectionFactory(uri(port)).create_connection() as connection:
                publisher = Publisher(connection)
                await connection.ready()
                await publisher.send_for(SENDING_S)
                codes = publisher.codes()
                await publisher.send_end()
                outcome = json.loads(await slow.line())
                assert codes == ["subscriber_full"], publisher.errors
                assert "'slow-desk' at 127.0.0.1 is full" in str(publisher.errors[0])
                async with asyncio.timeout(DEADLINE_S):
                    await publisher.has_ended.wait()
                assert publisher.codes() == ["subscriber_full", "subscriber_ready"], publisher.errors
            assert outcome["received"] == publisher.sent
            assert (outcome["wrong"], outcome["dropped"]) == ([], 0)
            assert outcome["times_full"] > 10
            assert all("take messages faster" in error for error in outcome["errors"])  # on a busy machine
        finally:
            await slow.end()

    asyncio.run(main())


def test_a_subscriber_that_is_never_read_holds_the_others_up_for_block_s_and_no_longer(port: int) -> None:
    async def main() -> None:
        unread = await Program.start(UNREAD, uri(port), f"{BLOCK_S}s")
        reading = await Program.start(SLOW.replace("time.sleep(0.002)", "pass"), uri(port))
        try:
            async with ConnectionFactory(uri(port)).create_connection() as connection:
                publisher = Publisher(connection)
                await connection.ready()
                await publisher.send_for(4 * BLOCK_S)
                await publisher.send_end()
                outcome = json.loads(await reading.line())
                assert (outcome["received"], outcome["wrong"]) == (publisher.sent, [])
                unread.go_on()
                idle = json.loads(await unread.line())
            assert max(publisher.waits) < BLOCK_S + BUSY_S
            assert sum(wait for wait in publisher.waits if wait > 0.5) < BLOCK_S + BUSY_S
            assert any("'idle-desk' at 127.0.0.1 is full" in str(error) for error in publisher.errors)
            told = {"subscriber_full", "subscriber_ready", "lost_after_confirmation"}
            assert "lost_after_confirmation" in publisher.codes()
            assert set(publisher.codes()) <= told, publisher.errors
            full, let_go, *dropped = idle["errors"]
            assert full.startswith("ConsumerFullError: a consumer of topic://full in session 1 of 'idle-desk' (pid ")
            assert "takes none; read it or close it, or let it drop messages" in full
            assert "took no message for 3 s (block_s)" in let_go
            assert all("MessagesDroppedError" in each for each in dropped)
            assert dropped
            assert idle["held"] == 200
            assert idle["dropped"] > 200
        finally:
            await asyncio.gather(unread.end(), reading.end())

    asyncio.run(main())


def test_a_close_leaves_a_full_subscriber_behind_and_the_others_get_everything(port: int) -> None:
    async def main() -> None:
        unread = await Program.start(UNREAD, uri(port), "60s")
        numbers: list[int] = []
        try:
            async with ConnectionFactory(uri(port, inactivity_s=40)).create_connection() as others:
                consumer = others.create_session().create_consumer(TOPIC)
                consumer.message_listener = lambda message: numbers.append(message.get_int_property("n"))
                others.start()
                await consumer.ready()
                async with ConnectionFactory(uri(port, window_bytes="1MiB")).create_connection() as connection:
                    publisher = Publisher(connection)
                    await connection.ready()
                    while publisher.sent * BODY_BYTES < ACCEPTED_BYTES:
                        await publisher.send()
                    await until(lambda: "subscriber_full" in publisher.codes())
                    assert len(numbers) < publisher.sent  # the rest is in the buffer, and may not be sent
                await until(lambda: len(numbers) >= publisher.sent)
            assert numbers == list(range(publisher.sent))
            closed = "closed with 1 subscriber that did not confirm ('idle-desk' at 127.0.0.1"
            assert closed in str(publisher.errors[-1])
        finally:
            await unread.end()

    asyncio.run(main())
