"""Where on a bus the ends meet, and what they say to each other beside the messages that are measured.

The publisher says START when its receivers are there, TOTAL when it has sent all, and END when all have confirmed that.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from enum import Enum
from typing import Any

import click

from fjm2.jms import (
    Connection,
    ConnectionFactory,
    ConsumerFullError,
    Message,
    MessageProducer,
    MessagesDroppedError,
    MessagesLostError,
    Topic,
)

DATA, BACK, CONTROL = Topic("fjm2-bench.data"), Topic("fjm2-bench.back"), Topic("fjm2-bench.control")
_POLL_S = 0.01
_COMPLAINTS_MAX = 10
_COUNT = "messages"

# What it has to say in the end stands in the results.
logging.getLogger("fjm2.jms").addHandler(logging.NullHandler())


class Word(Enum):
    """What is said."""

    START = "start"
    TOTAL = "total"
    END = "end"


def encode(word: Word, messages: int = 0) -> Message:
    message = Message()
    message.type = word.value
    message.set_long_property(_COUNT, messages)
    return message


def decode(message: Message) -> tuple[Word, int] | None:
    """None for what others say."""
    try:
        return Word(message.type), message.get_long_property(_COUNT)
    except ValueError:
        return None


async def wait_for(count: int, connection: Connection, topic: Topic, tell: Callable[[int], None]) -> int:
    """Wait for so many subscribers; `tell` is told how many are there."""
    while (found := connection.subscribers(topic)) < count:
        tell(found)
        await asyncio.sleep(_POLL_S)
    return found


def lane_statistics(connection: Connection) -> dict[str, Any]:
    """The counters of what messages of ordinary priority travel in."""
    return asdict(connection.statistics().bus.lanes[0])


@asynccontextmanager
async def connect(uri: str, on_loss: Callable[[], None] = lambda: None, **options: Any) -> AsyncIterator[Connection]:
    """A connection that tells what goes wrong, unless it is given up: then nobody wants to know what is unfinished."""
    complaints = _Complaints(on_loss)
    async with ConnectionFactory(uri, **options).create_connection() as connection:
        connection.exception_listener = complaints
        try:
            yield connection
        except asyncio.CancelledError:
            complaints.is_muted = True
            raise


class _Complaints:
    """An exception listener: tells the first few, and counts what was lost."""

    def __init__(self, on_loss: Callable[[], None]) -> None:
        self.is_muted = False
        self._on_loss = on_loss
        self._told = 0

    def __call__(self, error: Exception) -> None:
        if isinstance(error, MessagesLostError | MessagesDroppedError):
            self._on_loss()
        if self.is_muted or isinstance(error, ConsumerFullError):
            return  # a full consumer is how a publisher is held back
        self._told += 1
        if self._told <= _COMPLAINTS_MAX:
            click.echo(f"{type(error).__name__}: {error}", err=True)


async def say(control: MessageProducer, word: Word, messages: int = 0) -> None:
    await control.send(encode(word, messages), CONTROL)
