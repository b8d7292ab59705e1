"""The subscriber of the JMS layer, which receives bytes messages."""

import asyncio
import contextlib
import time
from typing import cast

import click

from fjm2.base.quantities import counted
from fjm2.jms import Batch, Message, MessageConsumer, Selector

from ...workload.messages import PERIOD, Series, number_of, property_values
from ...workload.reception import Reception, messages_at_once
from ..base import LINGER_S, Ready, SubOptions
from .rendezvous import CONTROL, DATA, Word, connect, decode

_LOOK_S = 0.1
"""Time between two checks whether all messages have arrived."""
_BATCH_MAX = 4096
"""Messages of a batch at most: some trains of small messages."""
_FAREWELL_S = 0.5
"""Time for which the subscriber stays after the end, so that it answers while the publisher closes."""


class Subscriber:
    """Subscriber that receives the messages of the topic, and checks them in batches."""

    def __init__(self, system: str, options: SubOptions) -> None:
        self._properties = property_values(options.properties)
        self._series = self._selected(options.selector)
        self.reception = Reception(system, options.size, is_verified=options.is_verified, series=self._series)
        self.reception.total = options.count
        self.reception.loss_reports = 0
        self._options = options
        self._at_once = messages_at_once(options.size)
        self._gathered: list[bytes] = []
        self._sample: Message | None = None
        """First message of the batch, whose properties are checked."""
        self._came_at = 0.0

    def _selected(self, text: str | None) -> Series:
        """Return the series of messages that a selector accepts."""
        selector = Selector(text or "")
        values = self._properties.items()
        digits = [d for d in range(PERIOD) if selector.matches({name: column[d] for name, column in values})]
        if not digits:
            known = counted(len(values), "property")
            raise click.UsageError(f"--selector lets no message pass that has {known}")
        return Series(digits)

    async def receive(self, ready: Ready) -> None:
        options = self._options
        async with connect(options.uri, self._note_loss) as context, context.create_context() as control:
            control.create_consumer(CONTROL).message_listener = self._hear
            consumer = context.create_consumer(DATA, options.selector)
            feeding = asyncio.create_task(self._feed(consumer))
            await consumer.ready()
            ready()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(options.timeout_s):
                        await self._until_over()
            finally:
                feeding.cancel()
            self._check()

    async def _feed(self, consumer: MessageConsumer) -> None:
        """Receive messages through the chosen API: a listener, `receive`, iteration, or batches."""
        match self._options.api:
            case "listener":
                consumer.message_listener = self._take
            case "receive":
                while (message := await consumer.receive()) is not None:
                    self._take(message)
            case "iterate":
                async for message in consumer:
                    self._take(message)
            case "batches":
                async for batch in consumer.batches(_BATCH_MAX):
                    self._take_batch(batch)

    def _take(self, message: Message) -> None:
        gathered = self._gathered
        if not gathered:
            self._sample = message
        gathered.append(cast(bytes, message.get_body(bytes)))
        if len(gathered) >= self._at_once:
            self._check()

    def _take_batch(self, batch: Batch) -> None:
        bodies = batch.bodies()
        self._came_at = time.monotonic()
        digit = number_of(bodies[0]) % PERIOD
        if any(batch.column(name)[0] != values[digit] for name, values in self._properties.items()):
            self.reception.note_corrupt()
        for first in range(0, len(bodies), self._at_once):
            self.reception.take_many(bodies[first : first + self._at_once])

    def _check(self) -> None:
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        self._came_at = time.monotonic()
        if self._sample is not None and not self._has_properties(self._sample, number_of(gathered[0])):
            self.reception.note_corrupt()
        self.reception.take_many(gathered)

    def _has_properties(self, message: Message, number: int) -> bool:
        digit = number % PERIOD
        return all(message.properties.get(name) == values[digit] for name, values in self._properties.items())

    async def _until_over(self) -> None:
        """Wait until all messages have arrived and the publisher has ended, or until something is missing and
        nothing has arrived for a while.
        """
        self._came_at = time.monotonic()
        while True:
            await asyncio.sleep(_LOOK_S)
            reception = self.reception
            if reception.is_ended:
                self._check()
            is_complete = reception.is_complete
            if reception.is_ended and is_complete:
                await asyncio.sleep(_FAREWELL_S)
                return
            is_due = reception.is_ended or is_complete or reception.loss_reports
            if is_due and time.monotonic() - self._came_at >= LINGER_S:
                return

    def _hear(self, message: Message) -> None:
        said = decode(message)
        if said is None:
            return
        match said:
            case Word.START, _:
                self.reception.begin(0)
            case Word.TOTAL, messages if self._options.count is None:
                self.reception.total = self._series.count(messages)
            case Word.END, _:
                self.reception.is_ended = True

    def _note_loss(self) -> None:
        self.reception.loss_reports = (self.reception.loss_reports or 0) + 1
