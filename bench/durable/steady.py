"""Steady traffic of FJM2: a publisher of a fixed rate and a durable subscriber, which sample how far they are."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable
from typing import Final, cast

from fjm2.jms import BytesMessage, ConnectionFactory, Message, SessionMode, Topic

from ..workload.messages import Maker
from ..workload.reception import Reception
from .roles import ACKNOWLEDGE_EVERY, SUBSCRIPTION, TOPIC, RoleOptions, tell, word

_FLYING_MAX: Final = 4096
"""Messages that the publisher sends before one of them is confirmed."""
_TICK_S: Final = 0.01
_SAMPLE_S: Final = 0.1
_QUIET_S: Final = 2.0
"""Time without a message after which a subscriber that was told to end has everything."""


class Samples:
    """A count over time."""

    def __init__(self) -> None:
        self.count = 0
        self._told: list[tuple[int, int]] = []
        self._task = asyncio.ensure_future(self._go_on())

    async def _go_on(self) -> None:
        while True:
            self.note()
            await asyncio.sleep(_SAMPLE_S)

    def note(self) -> None:
        """Note the count of now."""
        self._told.append((time.monotonic_ns(), self.count))

    def end(self) -> list[tuple[int, int]]:
        """Return times, and the count at each."""
        self._task.cancel()
        self.note()
        return self._told


async def publish_steadily(uri: str, options: RoleOptions) -> None:
    """Send messages at a rate until told to end. Tell how many were confirmed at each time."""
    maker, flying = Maker(options.size), deque[Awaitable[None]]()
    async with ConnectionFactory(uri).create_connection() as connection:
        await connection.ready()
        producer = connection.create_session().create_producer(Topic(TOPIC))
        tell(warm=True)
        await word()
        ending, samples = asyncio.ensure_future(word()), Samples()
        began, sent = time.monotonic(), 0
        while not ending.done():
            while sent < int((time.monotonic() - began) * options.per_s) and len(flying) < _FLYING_MAX:
                message = BytesMessage()
                message.write_bytes(maker.batch(1))
                flying.append(producer.send_async(message))
                sent += 1
            samples.count += await _landed(flying, len(flying) >= _FLYING_MAX)
            await asyncio.sleep(_TICK_S)
        while flying:
            samples.count += await _landed(flying, True)
        tell(samples=samples.end(), messages=sent)
        await word()


async def _landed(flying: deque[Awaitable[None]], must_wait: bool) -> int:
    """Take out the messages that are confirmed, and return their number. Wait for the oldest one if asked to."""
    count = 0
    while flying and (must_wait or cast("asyncio.Future[None]", flying[0]).done()):
        await flying.popleft()
        count, must_wait = count + 1, False
    return count


async def follow(system: str, uri: str, options: RoleOptions) -> None:
    """Check and acknowledge all messages until told to end. Tell how many had come at each time."""
    name = f"{SUBSCRIPTION}{options.number}"
    reception = Reception(system, options.size, is_verified=True)
    reception.begin(0)
    async with ConnectionFactory(uri, client_id=name).create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
        consumer = await context.create_durable_consumer(Topic(TOPIC), name)
        samples = Samples()

        async def take(message: Message) -> None:
            reception.take_many([cast(bytes, message.get_body(bytes))])
            samples.count += 1
            if samples.count % ACKNOWLEDGE_EVERY == 0:
                await message.acknowledge()

        consumer.message_listener = take
        tell(ready=True)
        await word()
        before = -1
        while before < samples.count:
            before = samples.count
            await asyncio.sleep(_QUIET_S)
        reception.total = samples.count
        found = reception.result()
        checked = {name: getattr(found, name) for name in ("messages", "lost", "duplicated", "out_of_order", "corrupt")}
        tell(samples=samples.end(), **checked)
        await word()


def rate_of(samples: list[tuple[int, int]], began_ns: float, ended_ns: float) -> float:
    """Return the messages a second between two times."""
    return (_count_at(samples, ended_ns) - _count_at(samples, began_ns)) * 1e9 / (ended_ns - began_ns)


def worst_second(samples: list[tuple[int, int]], began_ns: int, ended_ns: int) -> float:
    """Return the least rate of a whole second between two times."""
    last_ns = max(ended_ns - 10**9, began_ns)
    return min(rate_of(samples, at, at + 1e9) for at in range(began_ns, last_ns + 1, 10**8))


def _count_at(samples: list[tuple[int, int]], at_ns: float) -> float:
    """Return the count at a time: between two samples in proportion."""
    before = samples[0]
    for sample in samples:
        if sample[0] > at_ns:
            part = max(at_ns - before[0], 0) / max(sample[0] - before[0], 1)
            return before[1] + part * (sample[1] - before[1])
        before = sample
    return before[1]
