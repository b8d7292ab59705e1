"""The demo's publisher. It sends numbered messages as fast as the subscribers can receive them."""

import asyncio
import sys
from typing import Any

from process import orders, report, run, say

from fjm2.jms import BytesMessage, Connection, ConnectionFactory, Message, MessageProducer, TextMessage, Topic

SYMBOLS = ("ABC", "FJM", "NRL", "XYZ")
SAMPLES = 4
BATCH = 50
CONFIRM_S = 20.0
"""Longest wait for confirmations. It is long enough for three subscribers on a busy machine."""


class Publisher:
    def __init__(self, connection: Connection, topic: Topic, size: int) -> None:
        self.producer: MessageProducer = connection.create_session().create_producer(topic)
        self.connection = connection
        self.body = bytes(size)
        self.messages = 0
        self.is_running = False

    async def send(self, message: Message) -> None:
        symbol = SYMBOLS[self.messages % len(SYMBOLS)]
        self.messages += 1
        message.set_string_property("symbol", symbol)
        message.set_int_property("number", self.messages)
        await self.producer.send(message)

    async def show(self) -> None:
        """Send a few messages with readable text, one every 0.3 s."""
        for number in range(SAMPLES):
            await self.send(TextMessage(f"{SYMBOLS[number]} costs {17 + number * 0.25:.2f}"))
            await asyncio.sleep(0.3)

    async def flood(self) -> None:
        while self.is_running:
            for _ in range(BATCH):
                message = BytesMessage()
                message.write_bytes(self.body)
                await self.send(message)
            await asyncio.sleep(0)

    async def end(self) -> None:
        last = Message()
        last.type = "end"
        last.set_int_property("total", self.messages)
        await self.producer.send_async(last)  # returns when all subscribers have it

    def figures(self) -> dict[str, Any]:
        lane = self.connection.statistics().bus.lanes[0]
        return {
            "messages": self.messages,
            "requests": lane.nacks_received,
            "repairs": lane.repair_segments_sent,
        }


async def publish(uri: str, topic: Topic, size: int) -> None:
    factory = ConnectionFactory(uri, confirm_timeout_s=CONFIRM_S)
    async with factory.create_connection() as connection:
        publisher = Publisher(connection, topic, size)
        await connection.ready()
        say(ready=True, subscribers=connection.subscribers(topic))
        reader = await orders()
        reporter = asyncio.create_task(report(publisher.figures))
        flood = None
        while order := (await reader.readline()).decode().strip():
            match order:
                case "show":
                    await publisher.show()
                case "flood":
                    publisher.is_running = True
                    flood = asyncio.create_task(publisher.flood())
                case "end":
                    publisher.is_running = False
                    if flood is not None:
                        await flood
                    await publisher.end()
                    break
        publisher.is_running = False
        reporter.cancel()
        say(**publisher.figures(), ended=True)


if __name__ == "__main__":
    run(publish(sys.argv[1], Topic(sys.argv[2]), int(sys.argv[3])))
