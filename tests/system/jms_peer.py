"""A publisher or a subscriber for tests that kill, stop or disconnect it.

    python jms_peer.py subscribe URI
    python jms_peer.py publish URI BYTES MESSAGES_PER_S [BEGIN]

The program reports in lines of JSON. It obeys commands on stdin: `begin`, `pause`, `cpu`, and `close`, which ends it. A
publisher with the argument BEGIN waits for `begin` before it sends. Every message contains the sender's process id and
a number.
"""

import asyncio
import json
import os
import resource
import sys
import time

from fjm2.jms import BytesMessage, Connection, ConnectionFactory, DeliveryMode, Topic

TOPIC = Topic("faults")
_REPORT_S = 0.05
_TICK_S = 0.01


def say(**report: object) -> None:
    print(json.dumps(report), flush=True)


def body_of(number: int, size: int) -> bytes:
    return bytes([number % 251]) * size


class Subscriber:
    """A subscriber that reports the number of messages from each sender, faults in them, and the number of gaps."""

    def __init__(self, connection: Connection) -> None:
        self._next: dict[str, int] = {}
        self._received: dict[str, int] = {}
        self._gaps = 0
        self._is_news = asyncio.Event()
        self._consumer = connection.create_session().create_consumer(TOPIC)
        self._consumer.message_listener = self._take

    async def begin(self) -> None:
        await self._consumer.ready()

    def _take(self, message: BytesMessage) -> None:
        sender, number = message.get_string_property("sender") or "", message.get_int_property("number")
        body = message.read_bytes(message.body_length)
        if message.body_length != message.get_int_property("size") or body != body_of(number, message.body_length):
            say(fault=f"{sender} {number}: altered")
        has_gap = message.property_exists("JMS_FJM2_Gap")
        self._gaps += has_gap
        expected = self._next.get(sender, number)
        if number < expected or (number > expected and not has_gap):
            say(fault=f"{sender} {number}: expected {expected}")
        self._next[sender] = number + 1
        self._received[sender] = self._received.get(sender, 0) + 1
        self._is_news.set()

    def report(self) -> None:
        say(received=self._received, gaps=self._gaps)

    async def run(self) -> None:
        """Report shortly after new messages have arrived, once for all of them. Without messages, do nothing."""
        while True:
            await self._is_news.wait()
            await asyncio.sleep(_REPORT_S)
            self._is_news.clear()
            self.report()


class Publisher:
    """A publisher with a given rate.

    It reports the number of messages sent, and the longest time for which a send was blocked.
    """

    def __init__(self, connection: Connection, size: int, per_s: float, is_waiting: bool) -> None:
        self._producer = connection.create_session().create_producer(TOPIC)
        self._producer.delivery_mode = DeliveryMode.NON_PERSISTENT
        self._size = size
        self._per_s = per_s
        self._number = 0
        self._held_s = 0.0
        self.may_send = asyncio.Event()
        if not is_waiting:
            self.may_send.set()

    async def begin(self) -> None:
        pass

    async def run(self) -> None:
        while True:
            await self.may_send.wait()
            for _ in range(max(round(self._per_s * _TICK_S), 1)):
                await self._send()
            await asyncio.sleep(_TICK_S)

    async def _send(self) -> None:
        message = BytesMessage()
        message.write_bytes(body_of(self._number, self._size))
        message.set_string_property("sender", str(os.getpid()))
        message.set_int_property("number", self._number)
        message.set_int_property("size", self._size)
        began = time.monotonic()
        await self._producer.send(message)
        self._held_s = max(self._held_s, time.monotonic() - began)
        self._number += 1

    def report(self) -> None:
        say(sent=self._number, held_s=self._held_s)

    async def watch(self) -> None:
        while True:
            await self.may_send.wait()
            self.report()
            await asyncio.sleep(_REPORT_S)


async def obey(peer: Subscriber | Publisher) -> None:
    """Obey commands from stdin until `close`."""
    loop = asyncio.get_running_loop()
    while (line := (await loop.run_in_executor(None, sys.stdin.readline)).strip()) != "close":
        if line == "cpu":
            used = resource.getrusage(resource.RUSAGE_SELF)
            say(cpu_s=used.ru_utime + used.ru_stime)
        elif isinstance(peer, Publisher):
            peer.may_send.set() if line == "begin" else peer.may_send.clear()


async def main(role: str, uri: str, *arguments: str) -> None:
    connection = await ConnectionFactory(uri).create_connection()
    connection.exception_listener = lambda error: say(error=f"{type(error).__name__}: {error}")
    connection.start()
    peer: Subscriber | Publisher
    if role == "subscribe":
        peer = Subscriber(connection)
    else:
        size, per_s, *rest = arguments
        peer = Publisher(connection, int(size), float(per_s), bool(rest))
    await peer.begin()
    say(ready=True, node_id=connection._core.endpoint.bus.node_id)  # type: ignore[union-attr]
    tasks = [asyncio.create_task(peer.run())]
    if isinstance(peer, Publisher):
        tasks.append(asyncio.create_task(peer.watch()))
    for task in tasks:
        task.add_done_callback(_tell_failure)
    await obey(peer)
    began = time.monotonic()
    await connection.close()
    say(closed_s=time.monotonic() - began)
    peer.report()
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _tell_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        say(failed=repr(task.exception()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
