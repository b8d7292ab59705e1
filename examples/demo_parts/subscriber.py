"""The demo's subscriber. It checks that every message arrives once and in order."""

import asyncio
import sys
from typing import Any

import lossy
from process import orders, report, run, say

from fjm2.jms import ConnectionFactory, Message, TextMessage, Topic


class Subscriber:
    def __init__(self, step: int) -> None:
        self.step = step
        """Difference between the numbers of two consecutive messages that this subscriber should receive."""
        self.messages = self.repeated = self.missed = 0
        self.last = 1 - step
        self.total: int | None = None
        self.ended = asyncio.Event()
        self.troubles: list[str] = []

    def take(self, message: Message) -> None:
        if message.type == "end":
            self.total = message.get_int_property("total")
            self.ended.set()
            return
        number = message.get_int_property("number")
        if number <= self.last:
            self.repeated += 1
        elif number != self.last + self.step:
            self.missed += 1
        self.last = max(self.last, number)
        self.messages += 1
        if isinstance(message, TextMessage):
            say(sample=message.text)

    def figures(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "repeated": self.repeated,
            "missed": self.missed,
            "lost": lossy.LossySocket.lost,
            "troubles": self.troubles,
        }


async def follow_orders(subscriber: Subscriber) -> None:
    """Read loss probabilities from standard input, one per line, and apply each. Stop when the input ends."""
    reader = await orders()
    while order := (await reader.readline()).decode().strip():
        lossy.LossySocket.probability = float(order)
    subscriber.ended.set()


async def subscribe(uri: str, topic: Topic, selector: str, step: int) -> None:
    lossy.install()
    subscriber = Subscriber(step)
    async with ConnectionFactory(uri).create_connection() as connection:
        connection.exception_listener = lambda error: subscriber.troubles.append(str(error))
        wanted = f"({selector}) OR JMSType = 'end'" if selector else None
        consumer = connection.create_session().create_consumer(topic, wanted)
        consumer.message_listener = subscriber.take
        connection.start()
        await consumer.ready()
        say(ready=True)
        tasks = [asyncio.create_task(report(subscriber.figures)), asyncio.create_task(follow_orders(subscriber))]
        await subscriber.ended.wait()
        for task in tasks:
            task.cancel()
    say(**subscriber.figures(), total=subscriber.total, ended=True)


if __name__ == "__main__":
    run(subscribe(sys.argv[1], Topic(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
