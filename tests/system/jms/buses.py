"""Buses on the loopback interface for tests. Each has one connection, and subscribers that keep what they receive."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.confirmation import Confirmation
from fjm2.bus.losses.kinds import Loss
from fjm2.bus.publication import Publication
from fjm2.bus.reports import (
    BusReport,
)
from fjm2.bus.router import Received
from fjm2.jms import TextMessage, Topic
from fjm2.jms.selector import Selector
from fjm2.messages.frame import FrameWriter, seal
from fjm2.messages.header import Header, Transaction
from fjm2.messages.message import open_message
from fjm2.uri import BusConfig

GROUP = "239.192.57.98"
DEADLINE_S = 10.0
TOPIC, OTHER_TOPIC = Topic("prices.eu"), Topic("weather")


class Subscriber:
    """A subscriber that keeps the received messages. It is full when it has `most` of them."""

    def __init__(self, destination: Topic = TOPIC) -> None:
        self.destination = destination
        self.selector: Selector | None = None
        self.left_out: int | None = None
        self.most = 1 << 30
        self.received: list[Received] = []
        self.losses: list[Loss] = []

    @property
    def is_full(self) -> bool:
        return len(self.received) >= self.most

    def deliver(self, received: Received) -> None:
        self.received.append(received)

    def miss(self, _: Header, loss: Loss) -> None:
        self.losses.append(loss)

    @property
    def texts(self) -> list[str]:
        return [str(open_message(each.head, each.body, each.header).get_body(str)) for each in self.received]

    async def until(self, count: int) -> list[str]:
        await soon(lambda: len(self.received) >= count, lambda: f"{len(self.received)} of {count}")
        return self.texts


class Node:
    """A bus with one connection, and the reports of the bus."""

    def __init__(self, bus: Bus, connection: int) -> None:
        self.bus = bus
        self.reports: list[BusReport] = []
        self.connection = connection
        self.writer = FrameWriter(connection)
        self.publication = Publication(bus.publisher, Confirmation(bus, lambda _: None))
        self._subscribers: list[Subscriber] = []
        bus.add_listener(self.reports.append)

    def subscribe(self, destination: Topic = TOPIC) -> Subscriber:
        subscriber = Subscriber(destination)
        self._subscribers.append(subscriber)
        self.bus.router.add(subscriber)
        self.announce()
        return subscriber

    def announce(self, client_id: str | None = None) -> None:
        self.bus.announce(self.connection, client_id, {each.destination.frame_hash for each in self._subscribers})

    async def publish(
        self, text: str, priority: int = 4, destination: Topic = TOPIC, transaction: Transaction | None = None
    ) -> None:
        parts = self.writer.write(TextMessage(text), destination, 0, priority, 0)
        if transaction is not None:
            parts = seal(parts, transaction)
        waiting = self.publication.publish(destination, priority, parts)
        if waiting is not None:
            await waiting

    def all(self, kind: type[BusReport]) -> list[Any]:
        return [report for report in self.reports if isinstance(report, kind)]


async def soon(is_true: Callable[[], object], told: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        if time.monotonic() > deadline:
            pytest.fail(f"did not happen: {told()}")
        await asyncio.sleep(0.005)


def uri(port: int, **settings: object) -> str:
    settings = {"interface": "127.0.0.1", "ttl": 0, "grtt_s": 0.002} | settings
    return f"fjm2://{GROUP}:{port}?{'&'.join(f'{name}={value}' for name, value in settings.items())}"


_connections = iter(range(1000, 1 << 30))


@contextlib.asynccontextmanager
async def node(port: int, **settings: object) -> AsyncIterator[Node]:
    """Open a bus with its own node.

    Buses in one event loop are separate only if their settings differ.
    """
    connection = next(_connections)
    config = BusConfig.from_uri(uri(port, **{"inactivity_s": 50 + connection % 1000} | settings), BUS_DEFAULTS)
    bus = await Bus.open(config)
    made = Node(bus, connection)
    made.announce()
    try:
        yield made
    finally:
        bus.withdraw(connection)
        began = time.monotonic()
        await bus.close()
        assert time.monotonic() - began < 2.2


def on(*loops: str) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Return a decorator that runs a coroutine function as a test on each of these loops: `asyncio`, `uvloop`.

    Errors in callbacks fail the test.
    """

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @pytest.mark.parametrize("loop", loops)
        def run(loop: str, port: int) -> None:
            run_on(loop, test(port))

        return run

    return decorate


def run_on(loop: str, main: Coroutine[Any, Any, None]) -> None:
    troubles: list[dict[str, Any]] = []
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        runner.run(main)
    assert not troubles


async def flood(sending: Node, count: int, size: int = 1000) -> None:
    for number in range(count):
        await sending.publish(f"{number:0{size}}")
