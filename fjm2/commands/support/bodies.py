"""Bodies of messages that commands send, and the messages made from them."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import click

from fjm2.jms import BytesMessage, DeliveryMode, Message, MessageProducer, TextMessage

from .streams import read_all, read_lines

STDIN = "-"
NUMBER = "number"
"""Name of the property with the number of a test message."""
_FILLING = "abcdefghijklmnopqrstuvwxyz"
_PAUSE_MIN_S = 0.001
"""Shortest wait. A shorter wait is added to the next one, because timers are no more precise."""
_BEHIND_MAX_S = 0.1
"""Greatest delay that sends catch up with. After a longer delay, the schedule starts over."""


@dataclass(frozen=True, slots=True)
class MessageTemplate:
    """Headers and properties of the messages that a command sends."""

    properties: dict[str, Any]
    jms_type: str | None
    correlation_id: str | None
    priority: int
    time_to_live_s: float | None
    non_persistent: bool
    as_bytes: bool

    def configure(self, producer: MessageProducer) -> None:
        """Set the delivery mode, priority and time to live of a producer."""
        producer.delivery_mode = DeliveryMode.NON_PERSISTENT if self.non_persistent else DeliveryMode.PERSISTENT
        producer.priority = self.priority
        producer.time_to_live = round((self.time_to_live_s or 0) * 1000)

    def message(self, body: bytes) -> Message:
        """Return a message with this body. Raise ClickException if a text message was asked for, but the body is not
        UTF-8."""
        made = self._empty(body)
        self.stamp(made)
        return made

    def stamp(self, message: Message) -> None:
        """Set headers and properties of a message."""
        for name, value in self.properties.items():
            message.set_object_property(name, value)
        message.type = self.jms_type
        message.correlation_id = self.correlation_id

    def _empty(self, body: bytes) -> Message:
        if self.as_bytes:
            return BytesMessage(body)
        try:
            return TextMessage(body.decode())
        except UnicodeDecodeError as error:
            raise click.ClickException(f"a body is not UTF-8 ({error.reason}): send it with --bytes") from None


@dataclass(frozen=True, slots=True)
class Bodies:
    """Bodies of a `pub` command, one per message."""

    text: str | None
    """Text of each message; STDIN for standard input, None for test messages."""
    is_whole: bool
    count: int | None
    size: int

    @property
    def total(self) -> int | None:
        """Number of bodies; None if it is not known."""
        return None if self.is_input and not self.is_whole else self.count or 1

    @property
    def is_input(self) -> bool:
        return self.text == STDIN

    @property
    def is_test(self) -> bool:
        return self.text is None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self.is_input and self.is_whole:
            yield await read_all()
        elif self.is_input:
            async for line in read_lines():
                yield line
        else:
            make = self._numbered() if self.is_test else self._same()
            for number in range(1, (self.count or 1) + 1):
                yield make(number)

    def _same(self) -> Callable[[int], bytes]:
        body = os.fsencode(self.text or "")
        return lambda _: body

    def _numbered(self) -> Callable[[int], bytes]:
        size = self.size
        filling = (_FILLING * (size // len(_FILLING) + 1)).encode()
        return lambda number: (b"%d " % number + filling)[:size]


class Pace:
    """Limits the messages per second. After a short delay, sends catch up; after a longer delay, they do not."""

    def __init__(self, rate: float | None) -> None:
        self._interval_s = 1 / rate if rate else 0.0
        self._now = asyncio.get_running_loop().time
        self._due_at = self._now()

    async def wait(self) -> None:
        """Wait until the next message is due."""
        if not self._interval_s:
            return
        now = self._now()
        self._due_at = max(self._due_at, now - _BEHIND_MAX_S)
        if self._due_at - now > _PAUSE_MIN_S:
            await asyncio.sleep(self._due_at - now)
        self._due_at += self._interval_s
