"""History of one consumer that drops, lets messages expire and raises: each gap is flagged, each lost message told."""

import asyncio
import time
from random import Random

import pytest

from fjm2.jms import (
    Connection,
    ConnectionFactory,
    ListenerError,
    Message,
    MessagesDroppedError,
    MessagesExpiredError,
    TextMessage,
    Topic,
)

TOPIC = Topic("history")
SENT = 4_000
PRIORITIES = (3, 4)
LIVES_MS = (0, 0, 1, 5)
"""Some messages expire on their way or while they wait, others never do."""
DEADLINE_S = 20.0


class History:
    """Listener that compares each flag with the numbers of the messages, and now and then raises or is slow."""

    def __init__(self, random: Random) -> None:
        self.heard = 0
        self.wrong: list[str] = []
        self.last = dict.fromkeys(PRIORITIES, -1)
        """Number of the last message of each priority that was delivered."""
        self._given_up: set[int] = set()
        """Priorities of which the last message is given up."""
        self._random = random

    def hear(self, message: Message) -> None:
        priority, number = message.priority, message.get_int_property("n")
        is_first = message.delivery_count == 1
        is_behind_a_gap = number != self.last[priority] + 1 or priority in self._given_up
        if is_first and message.property_exists("JMS_FJM2_Gap") != is_behind_a_gap:
            self.wrong.append(f"{priority}.{number} after {self.last[priority]}")
        self.heard += is_first
        self.last[priority] = number
        self._given_up.discard(priority)
        if self._random.random() < 0.02:
            time.sleep(0.001)
        if not is_first or self._random.random() < 0.01:
            if not is_first:
                self._given_up.add(priority)
            raise ZeroDivisionError


class Publisher:
    def __init__(self, connection: Connection, random: Random) -> None:
        self._producer = connection.create_session().create_producer(TOPIC)
        self._numbers = dict.fromkeys(PRIORITIES, 0)
        self._random = random

    async def send(self, priority: int, life_ms: int) -> None:
        message = TextMessage("history")
        message.set_int_property("n", self._numbers[priority])
        self._numbers[priority] += 1
        self._producer.priority, self._producer.time_to_live = priority, life_ms
        await self._producer.send(message)

    async def run(self, history: History) -> None:
        """Send messages, then one of each priority that does not get lost, and wait for these."""
        for _ in range(SENT):
            await self.send(self._random.choice(PRIORITIES), self._random.choice(LIVES_MS))
        deadline = time.monotonic() + DEADLINE_S
        for priority in PRIORITIES:
            # A full consumer may drop the last one as well, so send more until one arrives.
            sent = 0
            while history.last[priority] < sent or not sent:
                assert time.monotonic() < deadline
                sent = self._numbers[priority]
                await self.send(priority, 0)
                await asyncio.sleep(0.1)

    @property
    def sent(self) -> int:
        return sum(self._numbers.values())


@pytest.mark.calm
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("overflow", ["block", "drop_newest", "drop_oldest"])
def test_every_gap_is_flagged_and_every_lost_message_told(port: int, overflow: str, seed: int) -> None:
    uri = f"fjm2://239.192.57.98:{port}?interface=127.0.0.1&ttl=0&grtt_s=2ms"
    random = Random(seed)

    async def main() -> None:
        errors: list[Exception] = []
        history = History(random)
        receiving = await ConnectionFactory(uri, redeliveries_max=1).create_connection()
        receiving.exception_listener = errors.append
        receiving.start()
        consumer = receiving.create_session().create_consumer(TOPIC, overflow=overflow, messages_max=50)
        consumer.message_listener = history.hear
        await consumer.ready()
        async with ConnectionFactory(uri, dscp=8).create_connection() as sending:
            publisher = Publisher(sending, random)
            await publisher.run(history)
        await receiving.close()
        assert history.wrong == []
        expired = sum(error.count for error in errors if isinstance(error, MessagesExpiredError))
        dropped = sum(error.count for error in errors if isinstance(error, MessagesDroppedError))
        assert history.heard + expired + dropped == publisher.sent
        assert (dropped > 0) == (overflow != "block")
        assert any(isinstance(error, ListenerError) for error in errors)
        assert expired

    asyncio.run(main())
