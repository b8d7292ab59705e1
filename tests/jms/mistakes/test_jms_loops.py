"""Calls in another event loop than that of the connection raise, and leave the connection as it was. Threads may use
connections of the blocking API, which the tests of all calls cover."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeAlias

import pytest
from adapter import QUIET_S, WAIT_S

from fjm2.jms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateError,
    JMSConsumer,
    JMSContext,
    JMSProducer,
    Message,
    MessageConsumer,
    MessageProducer,
    Queue,
    Session,
    SessionMode,
    TemporaryTopic,
    TextMessage,
    Topic,
    TopicRequestor,
)

TOPIC, OTHER = Topic("fjm2.loops"), Topic("fjm2.loops.other")
REFUSED = "a connection can only be used in the event loop that opened it; threads use fjm2.jms.blocking"


class Opened:
    """One object of each kind, opened in the home loop."""

    def __init__(self, port: int) -> None:
        self._factory = ConnectionFactory(f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms")

    async def open(self) -> None:
        self.connection = await self._factory.create_connection()
        await self.connection.start()
        self.session = self.connection.create_session(SessionMode.CLIENT_ACKNOWLEDGE)
        self.transacted = self.connection.create_session(SessionMode.SESSION_TRANSACTED)
        self.producer = self.session.create_producer(TOPIC)
        self.consumer = self.session.create_consumer(TOPIC)
        self.context = await self._factory.create_context()
        self.sender = self.context.create_producer()
        self.reader = self.context.create_consumer(TOPIC)
        self.requestor = TopicRequestor(self.connection.create_session(), OTHER)
        self.topic = self.context.create_temporary_topic()
        self.queue = self.context.create_temporary_queue()
        await self.context.send(TOPIC, "first")  # from now on it has a producer
        received = await self.consumer.receive(timeout=WAIT_S)
        assert received is not None
        received.reply_to = None
        self.received: Message = received
        await self.reader.receive(timeout=WAIT_S)

    async def still_works(self) -> None:
        """Send a message, and receive it. Nothing else comes."""
        await self.producer.send(TextMessage("after"))
        assert await self.reader.receive_body(str, timeout=WAIT_S) == "after"
        got = await self.consumer.receive(TextMessage, timeout=WAIT_S)
        assert got is not None
        assert got.text == "after"
        await got.acknowledge()
        assert await self.reader.receive(timeout=QUIET_S) is None

    async def close(self) -> None:
        for one in (self.context, self.connection):
            await one.close()


Call: TypeAlias = Callable[[Opened], object]
NOT_HERE: dict[str, Call] = {
    "Connection.close": lambda o: o.connection.close(),
    "Connection.create_session": lambda o: o.connection.create_session(),
    "Connection.ready": lambda o: o.connection.ready(),
    "Connection.start": lambda o: o.connection.start(),
    "Connection.stop": lambda o: o.connection.stop(),
    "Connection.subscribers": lambda o: o.connection.subscribers(TOPIC),
    "Connection.exception_listener": lambda o: setattr(o.connection, "exception_listener", print),
    "Session.close": lambda o: o.session.close(),
    "Session.commit": lambda o: o.transacted.commit(),
    "Session.create_browser": lambda o: o.session.create_browser(Queue("q")),
    "Session.create_consumer": lambda o: o.session.create_consumer(TOPIC),
    "Session.create_durable_consumer": lambda o: o.session.create_durable_consumer(TOPIC, "n"),
    "Session.create_durable_subscriber": lambda o: o.session.create_durable_subscriber(TOPIC, "n"),
    "Session.create_producer": lambda o: o.session.create_producer(TOPIC),
    "Session.create_shared_consumer": lambda o: o.session.create_shared_consumer(TOPIC, "n"),
    "Session.create_shared_durable_consumer": lambda o: o.session.create_shared_durable_consumer(TOPIC, "n"),
    "Session.create_temporary_queue": lambda o: o.session.create_temporary_queue(),
    "Session.create_temporary_topic": lambda o: o.session.create_temporary_topic(),
    "Session.recover": lambda o: o.session.recover(),
    "Session.rollback": lambda o: o.transacted.rollback(),
    "Session.transaction": lambda o: o.transacted.transaction().__aenter__(),
    "Session.unsubscribe": lambda o: o.session.unsubscribe("n"),
    "MessageProducer.close": lambda o: o.producer.close(),
    "MessageProducer.send": lambda o: o.producer.send(TextMessage("no")),
    "MessageProducer.send not persistent": lambda o: o.producer.send(
        TextMessage("no"), delivery_mode=DeliveryMode.NON_PERSISTENT
    ),
    "MessageProducer.send_async": lambda o: o.producer.send_async(TextMessage("no")),
    "MessageProducer.send_many": lambda o: o.producer.send_many([b"no"]),
    "MessageConsumer.batches": lambda o: o.consumer.batches(),
    "MessageConsumer.close": lambda o: o.consumer.close(),
    "MessageConsumer.listen": lambda o: o.consumer.listen(str, print),
    "MessageConsumer.message_listener": lambda o: setattr(o.consumer, "message_listener", print),
    "MessageConsumer.ready": lambda o: o.consumer.ready(),
    "MessageConsumer.receive": lambda o: o.consumer.receive(),
    "MessageConsumer.receive_no_wait": lambda o: o.consumer.receive_no_wait(),
    "MessageConsumer.__anext__": lambda o: o.consumer.__anext__(),
    "Message.acknowledge": lambda o: o.received.acknowledge(),
    "JMSContext.acknowledge": lambda o: o.context.acknowledge(),
    "JMSContext.close": lambda o: o.context.close(),
    "JMSContext.commit": lambda o: o.context.commit(),
    "JMSContext.create_browser": lambda o: o.context.create_browser(Queue("q")),
    "JMSContext.create_consumer": lambda o: o.context.create_consumer(TOPIC),
    "JMSContext.create_context": lambda o: o.context.create_context(),
    "JMSContext.create_durable_consumer": lambda o: o.context.create_durable_consumer(TOPIC, "n"),
    "JMSContext.create_producer": lambda o: o.context.create_producer(),
    "JMSContext.create_shared_consumer": lambda o: o.context.create_shared_consumer(TOPIC, "n"),
    "JMSContext.create_shared_durable_consumer": lambda o: o.context.create_shared_durable_consumer(TOPIC, "n"),
    "JMSContext.create_temporary_queue": lambda o: o.context.create_temporary_queue(),
    "JMSContext.create_temporary_topic": lambda o: o.context.create_temporary_topic(),
    "JMSContext.ready": lambda o: o.context.ready(),
    "JMSContext.recover": lambda o: o.context.recover(),
    "JMSContext.reply": lambda o: o.context.reply(request(), "no"),
    "JMSContext.request": lambda o: o.context.request(OTHER, "no", timeout=QUIET_S),
    "JMSContext.request_many": lambda o: o.context.request_many(OTHER, "no", timeout=QUIET_S),
    "JMSContext.rollback": lambda o: o.context.rollback(),
    "JMSContext.send": lambda o: o.context.send(TOPIC, "no"),
    "JMSContext.send of a message": lambda o: o.context.send(TOPIC, TextMessage("no")),
    "JMSContext.start": lambda o: o.context.start(),
    "JMSContext.stop": lambda o: o.context.stop(),
    "JMSContext.subscribers": lambda o: o.context.subscribers(TOPIC),
    "JMSContext.transaction": lambda o: o.context.transaction(),
    "JMSContext.unsubscribe": lambda o: o.context.unsubscribe("n"),
    "JMSProducer.send": lambda o: o.sender.send(TOPIC, "no"),
    "JMSProducer.send_many": lambda o: o.sender.send_many(TOPIC, ["no"]),
    "JMSConsumer.receive_body": lambda o: o.reader.receive_body(str),
    "JMSConsumer.receive_body_no_wait": lambda o: o.reader.receive_body_no_wait(str),
    "TopicRequestor.close": lambda o: o.requestor.close(),
    "TopicRequestor.request": lambda o: o.requestor.request(TextMessage("no"), timeout=QUIET_S),
    "TemporaryTopic.delete": lambda o: o.topic.delete(),
    "TemporaryQueue.delete": lambda o: o.queue.delete(),
}
"""Calls that belong to the event loop of the connection."""
ANYWHERE = ("statistics", "property_exists", "property_names", "clear_properties")
"""Beginnings of the names of methods that only look, make a message, set an option, or refuse what is not offered."""
BEGINNINGS = ("get_", "set_", "create_message", "create_queue", "create_topic")
CLASSES = (
    Connection,
    Session,
    MessageProducer,
    MessageConsumer,
    JMSContext,
    JMSProducer,
    JMSConsumer,
    TopicRequestor,
    TemporaryTopic,
)


def request() -> Message:
    message = TextMessage("request")
    message.reply_to = TOPIC
    return message


@pytest.fixture
def home() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def opened(home: asyncio.AbstractEventLoop, port: int) -> Iterator[Opened]:
    made = Opened(port)
    home.run_until_complete(made.open())
    yield made
    home.run_until_complete(made.close())


def in_another_loop(_: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in another event loop of this thread."""
    asyncio.run(call)


def in_another_thread(home: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in the event loop of another thread, while the home loop runs in this one."""
    home.run_until_complete(asyncio.to_thread(asyncio.run, call))


@pytest.mark.parametrize("run", [in_another_loop, in_another_thread])
def test_calls_in_another_event_loop_are_refused(
    home: asyncio.AbstractEventLoop,
    opened: Opened,
    run: Callable[[asyncio.AbstractEventLoop, Coroutine[Any, Any, None]], None],
) -> None:
    wrong: list[str] = []

    async def refused() -> None:
        for name, call in NOT_HERE.items():
            try:
                async with asyncio.timeout(WAIT_S):
                    found = call(opened)
                    wrong.append(f"{name} returned {await found if isinstance(found, Awaitable) else found!r}")
            except IllegalStateError as error:
                if str(error) != REFUSED:
                    wrong.append(f"{name} said {error}")
            except BaseException as error:
                wrong.append(f"{name} raised {error!r}")

    run(home, refused())
    assert wrong == []
    home.run_until_complete(opened.still_works())


def test_all_methods_are_known_to_these_tests() -> None:
    known = {name.split()[0] for name in NOT_HERE}
    new = {
        f"{owner.__name__}.{name}"
        for owner in CLASSES
        for name, member in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
        and not any(f"{base.__name__}.{name}" in known for base in owner.__mro__)
        and not name.startswith((*ANYWHERE, *BEGINNINGS))
        and not (name.startswith("create_") and name.endswith(("_message", "_connection_consumer")))
    }
    assert new == set(), "test what these calls do in another event loop, or say that they may be used anywhere"


def test_a_loop_that_goes_on_in_another_thread_is_the_same(home: asyncio.AbstractEventLoop, opened: Opened) -> None:
    running = threading.Thread(target=home.run_forever)
    running.start()
    try:
        asyncio.run_coroutine_threadsafe(opened.still_works(), home).result(WAIT_S)
    finally:
        home.call_soon_threadsafe(home.stop)
        running.join()


def test_what_is_closed_can_be_closed_in_another_loop(home: asyncio.AbstractEventLoop, opened: Opened) -> None:
    home.run_until_complete(opened.close())
    consumer, session, producer = opened.consumer, opened.session, opened.producer
    for one in (consumer, session, producer, opened.reader, opened.context, opened.connection):
        asyncio.run(one.close())
