"""The publisher of the JMS layer, which sends bodies of bytes with a context."""

import asyncio
import itertools
import math
import time
from typing import Any

import numpy as np

from fjm2.base.quantities import counted
from fjm2.jms import JMSContext, JMSProducer, Message, UnconfirmedError

from ...workload.messages import PERIOD, Maker, property_values
from ...workload.results import PubResult, StopWatch, pub_result
from ..base import PubOptions
from .rendezvous import CONTROL, DATA, Word, connect, data_producer, encode, lane_statistics, say, wait_for

_CONFIRM_S = 3600.0
"""Longest time to wait for confirmations. It is long, because the command has a time limit of its own."""


class Publisher:
    """Publisher that waits for subscribers, sends messages, and waits until the subscribers confirm."""

    def __init__(self, system: str, options: PubOptions) -> None:
        self.doing = "opening a connection"
        self._system = system
        self._options = options
        self._maker = Maker(options.size)

    async def publish(self) -> PubResult:
        rate: dict[str, Any] = {} if self._options.rate is None else {"rate": self._options.rate}
        async with connect(self._options.uri, confirm_timeout_s=_CONFIRM_S, **rate) as context:
            receivers = await wait_for(self._options.receivers, context, DATA, self._tell)
            # A PERSISTENT one would let keepers hear all that follows.
            await data_producer(context).send(CONTROL, encode(Word.START))
            watch = StopWatch()
            self.doing = "sending"
            await self._send(data_producer(context))
            self.doing = "waiting for the receivers to confirm"
            not_acked = await self._confirm(context)
            statistics = lane_statistics(context)
            result = pub_result(
                system=self._system,
                form="message",
                size=self._options.size,
                messages=self._maker.next_number,
                watch=watch,
                properties=self._options.properties,
                receivers=receivers,
                not_acked=not_acked,
                nacks=statistics["nacks_received"],
                repairs=statistics["repair_segments_sent"] + statistics["parity_segments_sent"],
                window_waits=statistics["window_waits"],
            )
            await say(context, Word.END, self._maker.next_number)
            self.doing = "closing"
        return result

    def _tell(self, count: int) -> None:
        self.doing = f"waiting for {counted(self._options.receivers, 'receiver')}, {count} are there"

    async def _send(self, producer: JMSProducer) -> None:
        until = math.inf if self._options.seconds is None else time.perf_counter() + self._options.seconds
        left = 1 << 62 if self._options.count is None else self._options.count
        if self._options.batch > 1:
            await self._send_batches(producer, left, until)
            return
        send, columns = producer.send, property_values(self._options.properties)
        rows = [{name: values[digit] for name, values in columns.items()} or None for digit in range(PERIOD)]
        properties = itertools.cycle(rows)
        for bodies in self._maker.messages(left, has_views=False):
            # `zip` takes from the bodies first, so that no row is lost at the end of a list.
            for body, row in zip(bodies, properties, strict=False):
                await send(DATA, body, properties=row)
            if time.perf_counter() >= until:
                return

    async def _send_batches(self, producer: JMSProducer, left: int, until: float) -> None:
        size, names = self._options.size, property_values(self._options.properties)
        columns = {
            name: np.array(values, np.int32 if type(values[0]) is int else None) for name, values in names.items()
        }
        while left > 0 and time.perf_counter() < until:
            count = min(self._options.batch, left)
            digits = np.arange(self._maker.next_number, self._maker.next_number + count) % PERIOD
            whole = self._maker.batch(count)
            bodies = [whole[start : start + size] for start in range(0, count * size, size)]
            properties: dict[str, Any] = {name: column[digits] for name, column in columns.items()}
            await producer.send_many(DATA, bodies, properties)
            left -= count

    async def _confirm(self, context: JMSContext) -> list[str]:
        """Send the number of messages and wait until the receivers have them all. Return the receivers that did not
        confirm.
        """
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await (
            context.create_producer()
            .set_async(_Outcome(confirmed))
            .send(CONTROL, encode(Word.TOTAL, self._maker.next_number))
        )
        try:
            await confirmed
        except UnconfirmedError as error:
            return sorted(map(str, error.unacknowledged_nodes)) or [str(error)]
        return []


class _Outcome:
    """Completion listener that sets a future."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future

    def on_completion(self, _: Message) -> None:
        self._future.set_result(None)

    def on_exception(self, _: Message, error: Exception) -> None:
        self._future.set_exception(error)
