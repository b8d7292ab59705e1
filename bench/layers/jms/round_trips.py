"""Round trips of JMS messages: one end publishes and measures, the other end replies."""

import asyncio
import contextlib
import time

from fjm2.jms import JMSProducer, Message

from ...workload.messages import Maker
from ...workload.results import TimedOutError
from ..base import Ready
from .rendezvous import BACK, CONTROL, DATA, Word, connect, data_producer, decode, say, wait_for


class Pinger:
    """The measuring end of round trips. Its listener takes the time and sends the next message."""

    def __init__(self, uri: str, size: int) -> None:
        self.doing = "opening a connection"
        self._uri = uri
        self._maker = Maker(size)
        self._times: list[int] = []
        self._expected = b""
        self._sent_at = 0

    async def measure(self, count: int) -> list[int]:
        async with connect(self._uri) as context:
            producer = data_producer(context)
            consumer = context.create_consumer(BACK)
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def take(message: Message) -> None:
                """Take the time, check the message and send the next one."""
                self._times.append(time.perf_counter_ns() - self._sent_at)
                if message.get_body(bytes) != self._expected and not done.done():
                    done.set_exception(TimedOutError(f"message {len(self._times) - 1} came back as another"))
                elif len(self._times) < count:
                    await self._send(producer)
                elif not done.done():
                    done.set_result(None)

            consumer.message_listener = take
            self.doing = "waiting for an echo"
            await wait_for(1, context, DATA, lambda _: None)
            await consumer.ready()
            await self._send(producer)
            await done
            await say(context, Word.END, count)
        return self._times

    async def _send(self, producer: JMSProducer) -> None:
        self.doing = f"waiting for message {self._maker.next_number} to come back"
        self._expected = self._maker.batch(1)
        self._sent_at = time.perf_counter_ns()
        await producer.send(DATA, self._expected)


class Echoer:
    """The echoing end of round trips. Its listener sends the replies."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.messages = 0
        self.is_ended = False

    async def serve(self, ready: Ready, timeout_s: float) -> None:
        async with connect(self._uri) as context, context.create_context() as control:
            producer = data_producer(context)
            ended = asyncio.Event()

            async def answer(message: Message) -> None:
                """Reply with a new message that has the same body."""
                await producer.send(BACK, message.get_body(bytes) or b"")
                self.messages += 1

            def hear(message: Message) -> None:
                said = decode(message)
                if said is not None and said[0] is Word.END:
                    self.is_ended = True
                    ended.set()

            consumer = context.create_consumer(DATA)
            consumer.message_listener = answer
            control.create_consumer(CONTROL).message_listener = hear
            await consumer.ready()
            ready()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await ended.wait()
