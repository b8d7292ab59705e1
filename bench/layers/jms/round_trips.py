"""Round trips of JMS messages: one end publishes and measures, the other end replies."""

import asyncio
import contextlib
import time

from fjm2.jms import BytesMessage, DeliveryMode, Message, MessageProducer, Session

from ...workload.messages import Maker
from ...workload.results import TimedOutError
from ..base import Ready
from .rendezvous import BACK, CONTROL, DATA, Word, connect, decode, say, wait_for


def _producer(session: Session, is_back: bool) -> MessageProducer:
    producer = session.create_producer(BACK if is_back else DATA)
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    return producer


def _message(body: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(body)
    return message


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
        async with connect(self._uri) as connection:
            session = connection.create_session()
            producer = _producer(session, is_back=False)
            consumer = session.create_consumer(BACK)
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
            connection.start()
            self.doing = "waiting for an echo"
            await wait_for(1, connection, DATA, lambda _: None)
            await consumer.ready()
            await self._send(producer)
            await done
            await say(session.create_producer(), Word.END, count)
        return self._times

    async def _send(self, producer: MessageProducer) -> None:
        self.doing = f"waiting for message {self._maker.next_number} to come back"
        self._expected = self._maker.batch(1)
        self._sent_at = time.perf_counter_ns()
        await producer.send(_message(self._expected))


class Echoer:
    """The echoing end of round trips. Its listener sends the replies."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self.messages = 0
        self.is_ended = False

    async def serve(self, ready: Ready, timeout_s: float) -> None:
        async with connect(self._uri) as connection:
            session = connection.create_session()
            producer = _producer(session, is_back=True)
            ended = asyncio.Event()

            async def answer(message: Message) -> None:
                """Reply with a new message that has the same body."""
                await producer.send(_message(message.get_body(bytes) or b""))
                self.messages += 1

            def hear(message: Message) -> None:
                said = decode(message)
                if said is not None and said[0] is Word.END:
                    self.is_ended = True
                    ended.set()

            consumer = session.create_consumer(DATA)
            consumer.message_listener = answer
            connection.create_session().create_consumer(CONTROL).message_listener = hear
            connection.start()
            await consumer.ready()
            ready()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await ended.wait()
