"""The cost of a message by the way that a program sends and receives it, on each event loop.

Sends go to a bus without subscribers, over `lo`. Receives take messages that wait already, which a producer of the same
process has sent. So each surface is measured alone: what the network costs is the same for all.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import fjm2.jms as aio
from fjm2.jms import BytesMessage, DeliveryMode, Message, SessionMode, TextMessage, Topic, blocking

SIZE = 1024
_MESSAGES = 4_000
"""Messages of one measurement: a few hundredths of a second."""
_HELD_MAX = 2 * _MESSAGES
_DATA, _BACK = Topic("fjm2-bench.surfaces.data"), Topic("fjm2-bench.surfaces.back")
_BODY = bytes(SIZE)
_TEXT = "x" * SIZE
_ENTRIES: Mapping[str, Any] = {f"entry{number}": number * 1.5 for number in range(9)} | {"body": _BODY}
_PROPERTIES: Mapping[str, Any] = {"symbol": "ACME", "price": 1.25}
_EMPTY = "context, no body"
_PORT = 5799
_TIMEOUT_S = 30.0

Loop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
Send: TypeAlias = Callable[[], Any]
"""A function that sends one message. For asyncio, it returns an awaitable."""


@dataclass(frozen=True, slots=True)
class SurfaceCost:
    """Cost of a message on one surface, in microseconds of processor time."""

    side: str
    """"send" or "receive"."""
    loop: str
    """"uvloop", "asyncio", or "threads" for the blocking API."""
    surface: str
    us: float
    ratio: float
    """Cost divided by that of the cheapest surface of this side and loop that carries a body."""


def run(repeat: int = 5) -> list[SurfaceCost]:
    """Return the medians of `repeat` measurements of each surface, taken in turns."""
    taken: dict[tuple[str, str, str], list[float]] = {}
    for _ in range(repeat):
        for name, loop in _loops().items():
            with asyncio.Runner(loop_factory=loop) as runner:
                for (side, surface), us in runner.run(_measure_asyncio()).items():
                    taken.setdefault((side, name, surface), []).append(us)
        for (side, surface), us in _measure_threads().items():
            taken.setdefault((side, "threads", surface), []).append(us)
    costs = {key: median(times) for key, times in taken.items()}
    cheapest: dict[tuple[str, str], float] = {}
    for (side, loop_name, surface), us in costs.items():
        if surface == _EMPTY:
            continue
        cheapest[side, loop_name] = min(us, cheapest.get((side, loop_name), us))
    return [
        SurfaceCost(side, loop, surface, us, us / cheapest[side, loop]) for (side, loop, surface), us in costs.items()
    ]


def _loops() -> dict[str, Loop]:
    loops: dict[str, Loop] = {"asyncio": asyncio.new_event_loop}
    try:
        import uvloop
    except ModuleNotFoundError:
        return loops
    return {"uvloop": uvloop.new_event_loop, **loops}


def _uri() -> str:
    return f"fjm2://239.192.57.98:{_PORT}?interface=127.0.0.1&ttl=0&rate=none"


def _us(began: float) -> float:
    return (time.process_time() - began) / _MESSAGES * 1e6


def _bytes_message() -> BytesMessage:
    return BytesMessage(_BODY)


def _with_properties(message: Message) -> Message:
    message.set_string_property("symbol", "ACME")
    message.set_double_property("price", 1.25)
    return message


# asyncio.


async def _measure_asyncio() -> dict[tuple[str, str], float]:
    costs: dict[tuple[str, str], float] = {}
    factory = aio.ConnectionFactory(_uri(), close_timeout_s=2)
    async with factory.create_connection() as connection, factory.create_context() as context:
        for surface, send in _asyncio_sends(connection, context).items():
            gc.collect()  # or one surface would pay for what others left
            began = time.process_time()
            for _ in range(_MESSAGES):
                await send()
            await asyncio.sleep(0)
            costs["send", surface] = _us(began)
        costs["send", "session, send_async, outcomes awaited later"] = await _asynchronously(connection)
        for surface, receive in _ASYNCIO_RECEIVES.items():
            costs["receive", surface] = await receive(connection, context)
    return costs


def _asyncio_sends(connection: aio.Connection, context: aio.JMSContext) -> dict[str, Callable[[], Awaitable[Any]]]:
    session = connection.create_session()
    producer = session.create_producer(_DATA)
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    sender = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    reused = _bytes_message()

    def again() -> Coroutine[Any, Any, None]:
        reused.clear_body()
        reused.write_bytes(_BODY)
        return producer.send(reused)

    return {
        "session, one BytesMessage again and again": again,
        "session, new BytesMessage": lambda: producer.send(_bytes_message()),
        "session, new TextMessage": lambda: producer.send(TextMessage(_TEXT)),
        "session, BytesMessage with two properties": lambda: producer.send(_with_properties(_bytes_message())),
        "context, bytes": lambda: sender.send(_DATA, _BODY),
        "context, str": lambda: sender.send(_DATA, _TEXT),
        "context, dict": lambda: sender.send(_DATA, {"body": _BODY}),
        "context, dict of ten entries": lambda: sender.send(_DATA, _ENTRIES),
        _EMPTY: lambda: sender.send(_DATA),
        "context, a message": lambda: sender.send(_DATA, _bytes_message()),
        "context, bytes with two properties": lambda: sender.send(_DATA, _BODY, properties=_PROPERTIES),
        "context.send, str to a topic named in the call": lambda: context.send(Topic(_DATA.name), _TEXT),
        "context.send, the same with two properties": lambda: context.send(
            Topic(_DATA.name), _TEXT, properties=_PROPERTIES
        ),
    }


async def _asynchronously(connection: aio.Connection) -> float:
    producer = connection.create_session().create_producer(_DATA)
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    gc.collect()
    began = time.process_time()
    outcomes = [producer.send_async(_bytes_message()) for _ in range(_MESSAGES)]
    for outcome in outcomes:
        await outcome
    return _us(began)


async def _fill(connection: aio.Connection) -> None:
    producer = connection.create_session().create_producer(_BACK)
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    message = TextMessage(_TEXT)
    for _ in range(_MESSAGES):
        await producer.send(message)


def _receiving(
    drain: Callable[[aio.JMSConsumer], Awaitable[None]],
) -> Callable[[aio.Connection, aio.JMSContext], Awaitable[float]]:
    async def measure(connection: aio.Connection, first: aio.JMSContext) -> float:
        context = first.create_context(SessionMode.AUTO_ACKNOWLEDGE)
        consumer = context.create_consumer(_BACK, messages_max=_HELD_MAX)
        await _fill(connection)
        gc.collect()
        began = time.process_time()
        await drain(consumer)
        us = _us(began)
        await context.close()
        return us

    return measure


async def _by_receive(consumer: aio.JMSConsumer) -> None:
    for _ in range(_MESSAGES):
        await consumer.receive(timeout=_TIMEOUT_S)


async def _by_receive_body(consumer: aio.JMSConsumer) -> None:
    for _ in range(_MESSAGES):
        await consumer.receive_body(str, _TIMEOUT_S)


async def _by_loop(consumer: aio.JMSConsumer) -> None:
    left = _MESSAGES
    async for _ in consumer:
        left -= 1
        if not left:
            return


async def _by_listener(consumer: aio.JMSConsumer) -> None:
    done = asyncio.Event()
    left = [_MESSAGES]

    def listen(_: Message) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    consumer.message_listener = listen
    await done.wait()


async def _by_coroutine(consumer: aio.JMSConsumer) -> None:
    done = asyncio.Event()
    left = [_MESSAGES]

    async def listen(_: Message) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    consumer.message_listener = listen
    await done.wait()


_ASYNCIO_RECEIVES = {
    "listener": _receiving(_by_listener),
    "listener, a coroutine function": _receiving(_by_coroutine),
    "receive": _receiving(_by_receive),
    "async for": _receiving(_by_loop),
    "receive_body": _receiving(_by_receive_body),
}


# Threads.


def _measure_threads() -> dict[tuple[str, str], float]:
    costs: dict[tuple[str, str], float] = {}
    factory = blocking.ConnectionFactory(_uri(), close_timeout_s=2)
    with factory.create_connection() as connection, factory.create_context() as context:
        for surface, send in _thread_sends(connection, context).items():
            gc.collect()
            began = time.process_time()
            for _ in range(_MESSAGES):
                send()
            connection.statistics()  # behind all that was sent
            costs["send", surface] = _us(began)
        for surface, drain in _THREAD_RECEIVES.items():
            costs["receive", surface] = _drained(connection, context, drain)
    return costs


def _thread_sends(connection: blocking.Connection, context: blocking.JMSContext) -> dict[str, Send]:
    producer = connection.create_session().create_producer(_DATA)
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    sender = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
    return {
        "session, new BytesMessage": lambda: producer.send(_bytes_message()),
        "session, send_async": lambda: producer.send_async(_bytes_message()),
        "context, bytes": lambda: sender.send(_DATA, _BODY),
        "context, str": lambda: sender.send(_DATA, _TEXT),
        "context, bytes with two properties": lambda: sender.send(_DATA, _BODY, properties=_PROPERTIES),
    }


def _drained(
    connection: blocking.Connection, first: blocking.JMSContext, drain: Callable[[blocking.JMSConsumer], None]
) -> float:
    context = first.create_context(SessionMode.AUTO_ACKNOWLEDGE)
    consumer = context.create_consumer(_BACK, messages_max=_HELD_MAX)
    producer = connection.create_session().create_producer(_BACK)
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    message = TextMessage(_TEXT)
    for _ in range(_MESSAGES):
        producer.send(message)
    connection.statistics()
    gc.collect()
    began = time.process_time()
    drain(consumer)
    us = _us(began)
    context.close()
    return us


def _thread_receive(consumer: blocking.JMSConsumer) -> None:
    for _ in range(_MESSAGES):
        consumer.receive(timeout=_TIMEOUT_S)


def _thread_receive_body(consumer: blocking.JMSConsumer) -> None:
    for _ in range(_MESSAGES):
        consumer.receive_body(str, _TIMEOUT_S)


def _thread_loop(consumer: blocking.JMSConsumer) -> None:
    left = _MESSAGES
    for _ in consumer:
        left -= 1
        if not left:
            return


_THREAD_RECEIVES = {"receive": _thread_receive, "for": _thread_loop, "receive_body": _thread_receive_body}
