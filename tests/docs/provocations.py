"""Mistakes that users make, each with the call that makes it. test_error_texts.py prints what they are told."""

import asyncio
import errno
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest import mock

from click.testing import CliRunner
from fjm2bench.cli import main as bench_main

from fjm2.commands import main as fjm2_main
from fjm2.doctor import look
from fjm2.jms import (
    BytesMessage,
    ConnectionFactory,
    JMSContext,
    MapMessage,
    ObjectMessage,
    Queue,
    QueueRequestor,
    SessionMode,
    StreamMessage,
    TextMessage,
    Topic,
    TopicPattern,
    TopicRequestor,
)
from fjm2.metrics import MetricsServer
from fjm2.norm import Session
from fjm2.norm.net import interfaces
from fjm2.record import TraceRecorder
from fjm2.uri import BusConfig
from fjm2admin.cli import main as fjm2admin_main
from fjm2d.cli import main as fjm2d_main

Call = Callable[[], object]
AsyncCall = Callable[[JMSContext], Awaitable[object]]

URIS = [
    "http://239.192.57.40",
    "fjm2://ff12::1:5740",
    "fjm2://myhost",
    "fjm2://:99999",
    "fjm2://?rate=fast",
    "fjm2://?rate=5bit",
    "fjm2://?rate=1mbit&rate_bps=2mbit",
    "fjm2://?rat=1mbit",
    "fjm2://?colour=red",
    "fjm2://?ttl",
    "fjm2://?ttl=256",
    "fjm2://?ttl=0&ttl=1",
    "fjm2://?cc=maybe",
    "fjm2://?fec=turbo",
    "fjm2://?parity_segments=4",
    "fjm2://?window_bytes=1k",
    "fjm2://?segment_bytes=16mbit",
    "fjm2://?grtt_s=soon",
    "fjm2://?grtt_min_s=1",
    "fjm2://?inactivity_s=0",
    "fjm2://?file_directory=/no/such/place",
]

CALLS: dict[str, Call] = {
    "Topic('')": lambda: Topic(""),
    "Topic(5)": lambda: Topic(5),  # type: ignore[arg-type]
    "Topic('x' * 70_000)": lambda: Topic("x" * 70_000),
    "ConnectionFactory(overflow='wait')": lambda: ConnectionFactory("fjm2://", overflow="wait"),
    "ConnectionFactory(messages_max=0)": lambda: ConnectionFactory("fjm2://", messages_max=0),
    "ConnectionFactory(redeliveries_max=-1)": lambda: ConnectionFactory("fjm2://", redeliveries_max=-1),
    "ConnectionFactory(close_timeout_s=0)": lambda: ConnectionFactory("fjm2://", close_timeout_s=0),
    "ConnectionFactory(rate='fast')": lambda: ConnectionFactory("fjm2://", rate="fast"),
    "ConnectionFactory(rate=[1])": lambda: ConnectionFactory("fjm2://", rate=[1]),
    "ConnectionFactory('http://bus')": lambda: ConnectionFactory("http://bus"),
    "ConnectionFactory('fjm2://?ttl=x')": lambda: ConnectionFactory("fjm2://?ttl=x"),
    "create_connection().create_session()": lambda: ConnectionFactory("fjm2://").create_connection().create_session(),
    "create_context(7)": lambda: ConnectionFactory("fjm2://").create_context(7),
    "create_topic_connection()": lambda: ConnectionFactory("fjm2://").create_topic_connection(),
    "create_xa_connection()": lambda: ConnectionFactory("fjm2://").create_xa_connection(),
    "message.reply_to = 'replies'": lambda: setattr(TextMessage(), "reply_to", "replies"),
    "TextMessage(5)": lambda: TextMessage(5),  # type: ignore[arg-type]
    "TextMessage('\\ud800')": lambda: TextMessage("\ud800"),
    "message.set_int_property('price', 1 << 40)": lambda: TextMessage().set_int_property("price", 1 << 40),
    "message.set_int_property('unit price', 1)": lambda: TextMessage().set_int_property("unit price", 1),
    "message.set_int_property('JMSPrice', 1)": lambda: TextMessage().set_int_property("JMSPrice", 1),
    "message.set_object_property('p', [1])": lambda: TextMessage().set_object_property("p", [1]),  # type: ignore[arg-type]
    "message.get_int_property('missing')": lambda: TextMessage().get_int_property("missing"),
    "message.get_int_property('text')": lambda: with_property("text", "abc").get_int_property("text"),
    "message.get_boolean_property('number')": lambda: with_property("number", 5).get_boolean_property("number"),
    "TextMessage('a').get_body(bytes)": lambda: TextMessage("a").get_body(bytes),
    "MapMessage().set_object('m', {1})": lambda: MapMessage().set_object("m", {1}),
    "MapMessage().set_int('', 1)": lambda: MapMessage().set_int("", 1),
    "ObjectMessage({1})": lambda: ObjectMessage({1}),
    "BytesMessage().read_int()": lambda: BytesMessage().read_int(),
    "BytesMessage() at its end": lambda: read(BytesMessage()).read_int(),
    "BytesMessage().write_object(None)": lambda: BytesMessage().write_object(None),
    "StreamMessage() at its end": lambda: read(StreamMessage()).read_object(),
    "StreamMessage().get_body(list)": lambda: StreamMessage().get_body(list),
    "MetricsServer('here')": lambda: MetricsServer("here"),
    "TraceRecorder('/proc/traces')": lambda: TraceRecorder("/proc/traces"),
    "TraceRecorder(interval_s=0)": lambda: TraceRecorder("/tmp", interval_s=0),
    "Session('myhost', 5740)": lambda: Session("myhost", 5740),
    "without a network": lambda: without_network(),
    "look(BusConfig(interface='eth9'))": lambda: look(BusConfig(interface="eth9")).problem and _raise_problem(),
}

SELECTORS = [
    "price >",
    "price > 10 AND",
    "price = = 5",
    "(price > 5",
    "price > 5)",
    "price BETWEEN 1",
    "name LIKE 5",
    "name = NULL",
    "name IN ()",
    "NOT 5",
    "price > 'a'",
    "JMSDestinations = 'a' AND 5",
    "price > 99999999999999999999",
    "name = 'abc",
    "price ? 5",
]

A_PATTERN: Any = TopicPattern("a.*")

ASYNC_CALLS: dict[str, AsyncCall] = {
    "send('prices', 'ABC')": lambda context: context.create_producer().send("prices", "ABC"),  # type: ignore[arg-type]
    "send('topic://prices', 'ABC')": lambda context: context.create_producer().send("topic://prices", "ABC"),  # type: ignore[arg-type]
    "send(None, 'ABC')": lambda context: context.create_producer().send(None, "ABC"),  # type: ignore[arg-type]
    "send(Queue('orders'), 'ABC')": lambda context: context.create_producer().send(Queue("orders"), "ABC"),
    "send(Topic('t'), {1, 2})": lambda context: context.create_producer().send(Topic("t"), {1, 2}),
    "create_consumer('prices')": lambda context: call(context.create_consumer, "prices"),
    "create_consumer(Queue('orders'))": lambda context: call(context.create_consumer, Queue("orders")),
    "create_shared_consumer(Topic('t'), '')": lambda context: context.create_shared_consumer(Topic("t"), ""),
    "create_durable_consumer(Topic('t'), 'n')": lambda context: context.create_durable_consumer(Topic("t"), "n"),
    "create_shared_consumer(TopicPattern('a.*'), 'n')": lambda context: context.create_shared_consumer(A_PATTERN, "n"),
    "create_browser(Queue('orders'))": lambda context: call(context.create_browser, Queue("orders")),
    "create_browser(Topic('t'))": lambda context: call(context.create_browser, Topic("t")),
    "create_browser(create_temporary_queue())": lambda context: browse_temporary(context),
    "unsubscribe('n')": lambda context: context.unsubscribe("n"),
    "priority = 10": lambda context: call(context.create_producer().set_priority, 10),
    "time_to_live = 0.5": lambda context: call(context.create_producer().set_time_to_live, 0.5),
    "delivery_mode = 3": lambda context: call(context.create_producer().set_delivery_mode, 3),
    "delivery_delay = 0.5": lambda context: call(context.create_producer().set_delivery_delay, 0.5),
    "client_id = 'late'": lambda context: late_client_id(context),
    "commit()": lambda context: context.commit(),
    "two receives in a context": lambda context: two_receives(context),
    "receive beside a listener": lambda context: receive_beside_listener(context),
    "request_many() without bounds": lambda context: context.request_many(Topic("t"), TextMessage()),
    "consume another's temporary topic": lambda context: anothers_temporary(context),
    "a deleted temporary topic": lambda context: deleted_temporary(context),
    "delete a topic with consumers": lambda context: delete_with_consumers(context),
    "a closed consumer": lambda context: closed_consumer(context),
    "listen to a closed consumer": lambda context: closed_listener(context),
    "a transaction in a transaction": lambda _: in_session(nested_transaction, SessionMode.SESSION_TRANSACTED),
    "a closed context": lambda context: closed_context(context),
    "QueueRequestor(Queue('orders'))": lambda _: in_session(lambda s: QueueRequestor(s, Queue("orders"))),
    "TopicRequestor('service')": lambda _: in_session(lambda s: TopicRequestor(s, "service")),  # type: ignore[arg-type]
    "create_producer(t).send(m, other)": lambda _: in_session(
        lambda s: s.create_producer(Topic("t")).send(TextMessage(), Topic("other"))
    ),
    "recover in a transaction": lambda _: in_session(lambda s: s.recover(), SessionMode.SESSION_TRANSACTED),
}

COMMANDS = [
    "fjm2 pub prices 1 --uri fjm2://?rate=fast",
    "fjm2 pub prices 1 --time-to-live soon",
    "fjm2 pub prices 1 --priority 10",
    "fjm2 pub prices 1 -p price",
    "fjm2 pub prices 1 -p price:int=much",
    "fjm2 pub prices 1 -p price:number=1",
    "fjm2 pub prices",
    "fjm2 pub prices 1 --size 5",
    "fjm2 pub 'prices.*' 1",
    "fjm2 sub prices --selector 'price >'",
    "fjm2 sub prices --timeout 0",
    "fjm2 sub prices --uri fjm2://?interface=eth9&ttl=0",
    "fjm2 request prices x --timeout -1",
    "fjm2 reply prices",
    "fjm2 reply prices --command frobnicate",
    "fjm2 tail",
    "fjm2 top",
    "fjm2 top --interval 5ms",
    "fjm2 trace show /no/such/place",
    "fjm2 doctor --watch 5min",
    "fjm2 norm send --group 239.1.1.1 --port 5740",
    "fjm2d run --config /no/such/fjm2d.toml",
    "fjm2d keygen /no/such/place/key",
    "fjm2admin nodes --data /no/such/file",
    "fjm2admin token create --name ' paris' --data /tmp/none.sqlite",
    "fjm2-bench pub --layer jms",
    "fjm2-bench run",
    "fjm2-bench run --quick --only lan",
]
PROGRAMS = {"fjm2": fjm2_main, "fjm2d": fjm2d_main, "fjm2admin": fjm2admin_main, "fjm2-bench": bench_main}

_BUS = "fjm2://239.192.57.98:5798?interface=127.0.0.1&ttl=0"


def with_property(name: str, value: str | int) -> TextMessage:
    message = TextMessage()
    message.set_object_property(name, value)
    return message


def read(message: Any) -> Any:
    message.reset()
    return message


def without_network() -> None:
    lo = interfaces.Interface("lo", 1, ("127.0.0.1",), ("::1",), is_loopback=True)
    unreachable = OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))
    with (
        mock.patch.object(interfaces, "list_interfaces", return_value=(lo,)),
        mock.patch.object(interfaces, "_route", mock.Mock(side_effect=unreachable)),
    ):
        interfaces.find_interface(None, 2, "239.192.57.40")


def _raise_problem() -> None:
    interfaces.find_interface("eth9", 2, "239.192.57.40")


async def call(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


async def late_client_id(context: JMSContext) -> None:
    context.create_consumer(Topic("fjm2.quiet"))
    context.client_id = "late"


async def two_receives(context: JMSContext) -> None:
    consumer = context.create_consumer(Topic("fjm2.quiet"))
    waiting = asyncio.create_task(consumer.receive(5))
    await asyncio.sleep(0)
    try:
        await consumer.receive(5)
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def receive_beside_listener(context: JMSContext) -> None:
    context.create_consumer(Topic("fjm2.quiet")).message_listener = print
    await context.create_consumer(Topic("fjm2.other")).receive(0)


async def anothers_temporary(context: JMSContext) -> None:
    async with ConnectionFactory(_BUS).create_context() as other:
        context.create_consumer(other.create_temporary_topic())


async def browse_temporary(context: JMSContext) -> None:
    context.create_browser(context.create_temporary_queue())


async def deleted_temporary(context: JMSContext) -> None:
    topic = context.create_temporary_topic()
    await topic.delete()
    context.create_consumer(topic)


async def delete_with_consumers(context: JMSContext) -> None:
    topic = context.create_temporary_topic()
    context.create_consumer(topic)
    await topic.delete()


async def closed_consumer(context: JMSContext) -> None:
    consumer = context.create_consumer(Topic("fjm2.quiet"))
    await consumer.close()
    await consumer.receive(0)


async def closed_listener(context: JMSContext) -> None:
    consumer = context.create_consumer(Topic("fjm2.quiet"))
    await consumer.close()
    consumer.listen(str, print)


async def nested_transaction(session: Any) -> None:
    async with session.transaction(), session.transaction():
        pass


async def closed_context(context: JMSContext) -> None:
    await context.close()
    context.create_producer()


async def in_session(use: Callable[[Any], Any], mode: int = SessionMode.AUTO_ACKNOWLEDGE) -> None:
    async with ConnectionFactory(_BUS).create_connection() as connection:
        done = use(connection.create_session(mode, transacted=mode == SessionMode.SESSION_TRANSACTED))
        if isinstance(done, Awaitable):
            await done


def told() -> Iterator[tuple[str, str]]:
    """Yield each mistake with the text that the user gets."""
    for uri in URIS:
        yield f"BusConfig.from_uri({uri!r})", _error_of(lambda uri=uri: BusConfig.from_uri(uri))  # type: ignore[misc]
    for name, one in CALLS.items():
        yield name, _error_of(one)
    for selector in SELECTORS:
        yield f"Selector({selector!r})", _error_of(lambda selector=selector: _selector(selector))  # type: ignore[misc]
    for name, action in ASYNC_CALLS.items():
        yield name, asyncio.run(_error_in_context(action))
    for line in COMMANDS:
        yield line, _said(line)


def _selector(text: str) -> object:
    from fjm2.jms import Selector

    return Selector(text)


def _error_of(call: Call) -> str:
    try:
        call()
    except Exception as error:
        return _plain(error)
    return "NO ERROR"


async def _error_in_context(action: AsyncCall) -> str:
    async with ConnectionFactory(_BUS).create_context() as context:
        try:
            await action(context)
        except Exception as error:
            return _plain(error)
    return "NO ERROR"


def _plain(error: Exception) -> str:
    return f"{type(error).__name__}: {_stable(str(error))}"


def _said(line: str) -> str:
    import shlex

    program, *arguments = shlex.split(line)
    result = CliRunner(env={"FJM2_URI": "fjm2://?interface=127.0.0.1&ttl=0"}).invoke(PROGRAMS[program], arguments)
    text = result.output.strip().splitlines()
    problem = [one for one in text if not one.startswith(("Usage:", "Try ")) and one.strip()]
    return _stable("\n".join(problem)) if result.exit_code else "NO ERROR"


def _stable(text: str) -> str:
    """Return a text without what differs from run to run, and from host to host."""
    text = re.sub(r"[0-9a-f]{16}-[0-9]+", "CONNECTION-1", text)
    return re.sub(r"there are lo \(127\.0\.0\.1.*", "there are lo (127.0.0.1), ...", text)
