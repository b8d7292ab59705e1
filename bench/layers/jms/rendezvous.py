"""The topics of a run, and the control messages between its ends.

The publisher says START when its receivers are there, TOTAL when it has sent all messages, and END when all receivers
have confirmed them.
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
    ConnectionFactory,
    ConsumerFullError,
    DeliveryMode,
    JMSContext,
    JMSProducer,
    Message,
    MessagesDroppedError,
    MessagesLostError,
    Topic,
)

DATA, BACK, CONTROL = Topic("fjm2-bench.data"), Topic("fjm2-bench.back"), Topic("fjm2-bench.control")
_POLL_S = 0.01
"""Time between two counts of the subscribers."""
_COMPLAINTS_MAX = 10
"""Maximum number of errors of a connection that are printed."""
_COUNT = "messages"

# The results contain all that the logs would tell.
logging.getLogger("fjm2.jms").addHandler(logging.NullHandler())


class Word(Enum):
    """Kinds of control messages."""

    START = "start"
    TOTAL = "total"
    END = "end"


def encode(word: Word, messages: int = 0) -> Message:
    message = Message()
    message.type = word.value
    message.set_long_property(_COUNT, messages)
    return message


def decode(message: Message) -> tuple[Word, int] | None:
    """Decode a control message. Return None for other messages."""
    try:
        return Word(message.type), message.get_long_property(_COUNT)
    except ValueError:
        return None


async def wait_for(count: int, context: JMSContext, topic: Topic, tell: Callable[[int], None]) -> int:
    """Wait for `count` subscribers and return their number. `tell` is called with the number so far."""
    while (found := context.subscribers(topic)) < count:
        tell(found)
        await asyncio.sleep(_POLL_S)
    return found


def lane_statistics(context: JMSContext) -> dict[str, Any]:
    """Return the counters of the lane that messages of ordinary priority use."""
    return asdict(context.statistics().bus.lanes[0])


@asynccontextmanager
async def connect(uri: str, on_loss: Callable[[], None] = lambda: None, **options: Any) -> AsyncIterator[JMSContext]:
    """Open a context that prints its errors, except after cancellation: unfinished messages are no error then."""
    complaints = _Complaints(on_loss)
    async with ConnectionFactory(uri, **options).create_context() as context:
        context.exception_listener = complaints
        try:
            yield context
        except asyncio.CancelledError:
            complaints.is_muted = True
            raise


class _Complaints:
    """Exception listener that prints the first few errors and reports losses."""

    def __init__(self, on_loss: Callable[[], None]) -> None:
        self.is_muted = False
        self._on_loss = on_loss
        self._told = 0

    def __call__(self, error: Exception) -> None:
        if isinstance(error, MessagesLostError | MessagesDroppedError):
            self._on_loss()
        if self.is_muted or isinstance(error, ConsumerFullError):
            return  # a full consumer only holds the publisher back
        self._told += 1
        if self._told <= _COMPLAINTS_MAX:
            click.echo(f"{type(error).__name__}: {error}", err=True)


async def say(context: JMSContext, word: Word, messages: int = 0) -> None:
    await context.send(CONTROL, encode(word, messages))


def data_producer(context: JMSContext) -> JMSProducer:
    """Return a producer of messages that nobody confirms, as those of the other systems."""
    return context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
