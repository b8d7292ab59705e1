"""Traffic of messages of all types and sizes: one program sends, others receive and check.

    python jms_traffic.py send|receive|receive-late URI COUNT

The number of a message determines its content. All programs report in lines of JSON, and wait for lines on stdin: the
sender and a late receiver before they begin, receivers before they end. A receiver ends once it has all messages, or
once no more arrive.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from random import Random
from typing import Any

import uvloop

from fjm2.jms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    DeliveryMode,
    MapMessage,
    Message,
    MessageProducer,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    Topic,
)

TOPICS = tuple(Topic(f"traffic.{name}") for name in ("orders", "prices", "weather"))
PRODUCERS = 4
PRIORITIES = (4, 4, 4, 4, 4, 4, 0, 3, 5, 6, 6, 7, 9)
_SIZES = (0, 0, 1, 10, 10, 40, 40, 40, 100, 100, 100, 100, 300, 300, 700, 1_400)
_LARGE_EVERY, _LARGE_SIZES = 500, (8_000, 20_000, 65_536, 100_000, 300_000)
LANE_OF = (0, 0, 0, 0, 0, 1, 1, 2, 2, 2)
_QUIET_S = 30.0
"""Silence after which a receiver regards the remaining messages as lost."""
_SHOWN = 20
_REPORT_EVERY = 1_000
_TURN = 20

_RANDOM = Random(57)
_BYTES = _RANDOM.randbytes(1 << 19)
_TEXT = "".join(_RANDOM.choices("abcdefghijklmnop äöü€𝄞\n", k=1 << 19))


def size_of(number: int) -> int:
    if number % _LARGE_EVERY == 7:
        return _LARGE_SIZES[number // _LARGE_EVERY % len(_LARGE_SIZES)]
    return _SIZES[number * 7 % 16] + number % 13


def priority_of(number: int) -> int:
    return PRIORITIES[number * 5 // PRODUCERS % len(PRIORITIES)]


def topic_of(number: int) -> Topic:
    return TOPICS[number // PRODUCERS % len(TOPICS)]


def _text(number: int) -> str:
    at = number * 31 % 100_000
    return _TEXT[at : at + size_of(number)]


def _bytes(number: int) -> bytes:
    at = number * 31 % 100_000
    return _BYTES[at : at + size_of(number)]


def _items(number: int) -> dict[str, Any]:
    return {"number": number, "half": number / 2, "text": _text(number), "is_even": number % 2 == 0}


def _text_message(number: int) -> Message:
    return TextMessage(_text(number))


def _bytes_message(number: int) -> Message:
    message = BytesMessage()
    message.write_long(number)
    message.write_bytes(_bytes(number))
    return message


def _map_message(number: int) -> Message:
    message = MapMessage()
    for name, value in _items(number).items():
        message.set_object(name, value)
    message.set_bytes("bytes", _bytes(number)[:100])
    return message


def _stream_message(number: int) -> Message:
    message = StreamMessage()
    message.write_long(number)
    message.write_string(_text(number))
    message.write_bytes(_bytes(number)[:100])
    return message


def _object_message(number: int) -> Message:
    return ObjectMessage([number, _text(number), _bytes(number)[:100], {"next": number + 1}])


_MAKERS: tuple[Callable[[int], Message], ...] = (
    _text_message,
    _bytes_message,
    _map_message,
    _stream_message,
    _object_message,
    lambda _: Message(),
)


def make(number: int) -> Message:
    """Return the message with this number."""
    message = _MAKERS[number % len(_MAKERS)](number)
    message.set_int_property("number", number)
    message.set_string_property("text", f"number {number}")
    if number % 3 == 0:
        message.set_double_property("third", number / 3)
        message.correlation_id = f"c{number}"
        message.type = "third"
    if number % 10 == 0:
        message.reply_to = TOPICS[0]
    return message


def body_of(message: Message) -> Any:
    """Return a message's body as a value that can be compared."""
    match message:
        case TextMessage():
            return message.text
        case BytesMessage():
            return message.read_long(), message.read_bytes(message.body_length)
        case MapMessage():
            return dict(message.items())
        case StreamMessage():
            return message.read_long(), message.read_string(), message.read_bytes()
        case ObjectMessage():
            return message.object
        case _:
            return None


def expected_body(number: int) -> Any:
    return (
        lambda: _text(number),
        lambda: (number, _bytes(number) or None),
        lambda: _items(number) | {"bytes": _bytes(number)[:100]},
        lambda: (number, _text(number), _bytes(number)[:100]),
        lambda: [number, _text(number), _bytes(number)[:100], {"next": number + 1}],
        lambda: None,
    )[number % len(_MAKERS)]()


TYPES = (TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage, Message)


def fault_of(message: Message) -> str | None:
    """Return a description of what is wrong with a received message, or None if nothing is wrong.

    The received message is compared with the message that `make` returns for the same number.
    """
    number = message.get_int_property("number")
    is_third = number % 3 == 0
    wanted = {
        "type": TYPES[number % len(TYPES)],
        "body": expected_body(number),
        "properties": {"number": number, "text": f"number {number}"} | ({"third": number / 3} if is_third else {}),
        "destination": topic_of(number),
        "priority": priority_of(number),
        "headers": (f"c{number}", "third") if is_third else (None, None),
        "reply_to": TOPICS[0] if number % 10 == 0 else None,
    }
    found = {
        "type": type(message),
        "body": body_of(message),
        "properties": {name: value for name, value in message.properties.items() if not name.startswith("JMS")},
        "destination": message.destination,
        "priority": message.priority,
        "headers": (message.correlation_id, message.type),
        "reply_to": message.reply_to,
    }
    wrong = [name for name in wanted if found[name] != wanted[name]]
    if message.property_exists("JMS_FJM2_Gap"):
        wrong.append("gap")
    return f"{number}: {', '.join(wrong)} ({found[wrong[0]]!r:.200})" if wrong else None


Order = tuple[int, str, int]
"""Producer, topic and priority of a message.

Messages that agree in all three are delivered in order. A message of higher priority may overtake others.
"""


def order_of(number: int) -> Order:
    return number % PRODUCERS, topic_of(number).name, priority_of(number)


class Checker:
    """A counter of received messages, which also notes their faults."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.faults: list[str] = []
        self.types: Counter[str] = Counter()
        self.seen = bytearray(count)
        self.received = 0
        self.heard_at = time.monotonic()
        self._first: dict[Order, int] = {}
        self._last: dict[Order, int] = {}

    def take(self, message: Message) -> None:
        self.heard_at = time.monotonic()
        number = message.get_int_property("number")
        fault = fault_of(message)
        if fault is not None:
            self._note(fault)
        if self.seen[number]:
            self._note(f"{number}: twice")
        self.seen[number] = 1
        self.received += 1
        self.types[type(message).__name__] += 1
        order = order_of(number)
        self._first.setdefault(order, number)
        if self._last.get(order, -1) >= number:
            self._note(f"{number}: behind {self._last[order]}")
        self._last[order] = number

    def _note(self, fault: str) -> None:
        if len(self.faults) < _SHOWN:
            self.faults.append(fault)

    @property
    def is_whole(self) -> bool:
        """True if all messages that follow the first received one have arrived."""
        return self.received == self.count or (bool(self.received) and not self.missing())

    def missing(self) -> list[int]:
        """Return the numbers of some missing messages.

        A message counts as missing if an earlier message of the same order has arrived.
        """
        absent = (number for number in range(self.count) if not self.seen[number])
        never = self.count
        return list(islice((one for one in absent if one > self._first.get(order_of(one), never)), _SHOWN))

    def result(self) -> dict[str, Any]:
        return {
            "received": self.received,
            "faults": self.faults,
            "missing": self.missing(),
            "types": self.types,
            "orders": len(self._first),
        }


def say(**report: object) -> None:
    print(json.dumps(report), flush=True)


async def _line() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def send(connection: Connection, count: int, errors: list[str]) -> None:
    """Send all messages, from several producers that take turns."""
    sessions = [connection.create_session() for _ in range(PRODUCERS)]
    bus = connection._core.endpoint.bus  # type: ignore[union-attr]
    await bus.ready()
    say(ready=True)
    await _line()
    began = time.monotonic()
    await asyncio.gather(
        *(_produce(session.create_producer(), range(place, count, PRODUCERS)) for place, session in enumerate(sessions))
    )
    sent_s = time.monotonic() - began
    while await bus.confirmed():
        pass
    confirmed_s = time.monotonic() - began
    lanes = asdict(bus.statistics())["lanes"]
    say(confirmed={"sent_s": sent_s, "confirmed_s": confirmed_s, "errors": errors, "lanes": lanes})


async def _produce(producer: MessageProducer, numbers: range) -> None:
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    for number in numbers:
        await producer.send(make(number), topic_of(number), priority=priority_of(number))
        if number // PRODUCERS % _TURN == 0:
            await asyncio.sleep(0)  # let other producers run
        if number % _REPORT_EVERY == 0:
            say(sending=number)


async def receive(connection: Connection, count: int, errors: list[str]) -> None:
    """Receive messages on all topics, and check them."""
    checker = Checker(count)
    session = connection.create_session()
    for topic in TOPICS:
        consumer = session.create_consumer(topic)
        consumer.message_listener = checker.take
    await consumer.ready()
    say(ready=True)
    await _line()
    while not checker.is_whole and time.monotonic() - checker.heard_at < _QUIET_S:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    say(result=checker.result() | {"errors": errors})


async def main(role: str, uri: str, count: int) -> None:
    if role == "receive-late":
        say(waiting=True)
        sys.stdin.readline()
    errors: list[str] = []
    async with ConnectionFactory(uri).create_connection() as connection:
        connection.exception_listener = lambda error: errors.append(f"{type(error).__name__}: {error}")
        connection.start()
        await (send if role == "send" else receive)(connection, count, errors)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
