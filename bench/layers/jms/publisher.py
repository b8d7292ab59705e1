"""The publisher of the JMS layer, which sends bytes messages."""

import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from fjm2.base.quantities import counted
from fjm2.jms import BytesMessage, DeliveryMode, MessageProducer, UnconfirmedError

from ...workload.messages import PERIOD, Maker, property_values
from ...workload.results import PubResult, StopWatch, pub_result
from ..base import PubOptions
from .rendezvous import CONTROL, DATA, Word, connect, encode, lane_statistics, say, wait_for

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
        async with connect(self._options.uri, confirm_timeout_s=_CONFIRM_S, **rate) as connection:
            session = connection.create_session()
            producer, control = session.create_producer(DATA), session.create_producer()
            producer.delivery_mode = DeliveryMode.NON_PERSISTENT
            receivers = await wait_for(self._options.receivers, connection, DATA, self._tell)
            await say(control, Word.START)
            watch = StopWatch()
            self.doing = "sending"
            await self._send(producer)
            self.doing = "waiting for the receivers to confirm"
            not_acked = await self._confirm(control)
            statistics = lane_statistics(connection)
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
            await say(control, Word.END, self._maker.next_number)
            self.doing = "closing"
        return result

    def _tell(self, count: int) -> None:
        self.doing = f"waiting for {counted(self._options.receivers, 'receiver')}, {count} are there"

    async def _send(self, producer: MessageProducer) -> None:
        until = math.inf if self._options.seconds is None else time.perf_counter() + self._options.seconds
        left = 1 << 62 if self._options.count is None else self._options.count
        message, send = BytesMessage(), producer.send
        columns: list[tuple[Callable[[str, Any], None], str, Sequence[Any]]] = [
            (message.set_int_property if isinstance(values[0], int) else message.set_string_property, name, values)
            for name, values in property_values(self._options.properties).items()
        ]
        digits = itertools.cycle(range(PERIOD))
        for bodies in self._maker.messages(left, has_views=False):
            # `zip` takes from the bodies first, so that no digit is lost at the end of a list.
            for body, digit in zip(bodies, digits, strict=False):
                message.clear_body()
                message.write_bytes(body)
                for set_property, name, values in columns:
                    set_property(name, values[digit])
                await send(message)
            if time.perf_counter() >= until:
                return

    async def _confirm(self, control: MessageProducer) -> list[str]:
        """Send the number of messages and wait until the receivers have them all. Return the receivers that did not
        confirm.
        """
        try:
            await control.send_async(encode(Word.TOTAL, self._maker.next_number), CONTROL)
        except UnconfirmedError as error:
            return sorted(map(str, error.unacknowledged_nodes)) or [str(error)]
        return []
