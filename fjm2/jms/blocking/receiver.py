"""Receiving by a thread, which asks the event loop only when its run of messages is used up."""

import builtins
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar, cast

from fjm2.bus.inbox import Delivery
from fjm2.bus.statistics import ConsumerStatistics
from fjm2.jms import consumer as aio_consumer
from fjm2.jms.consumer import body_of, content_of, parts_of, timeout_of
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.message import Message

from .loop_thread import LOOP, call, run

_T = TypeVar("_T")


class Receiver:
    """The messages of one consumer, for the thread that receives them."""

    def __init__(self, inner: aio_consumer.MessageConsumer) -> None:
        self._inner = inner
        self._dispatcher, self._inbox = parts_of(inner)
        self._run = run(self._dispatcher.add_run, self._inbox, LOOP.loop.call_soon_threadsafe)
        self._open = self._dispatcher.opener.open

    def receive(self, type: Any, timeout: float | None) -> Message | None:  # noqa: A002
        """Return the next message; see `MessageConsumer.receive`."""
        if type is not None and not (isinstance(type, builtins.type) and issubclass(type, Message)):
            type, timeout = None, timeout_of(type)  # noqa: A001 - receive(5)
        delivery = self._next(timeout)
        if delivery is None:
            return None
        message = self._open(delivery)
        if type is not None:
            self._use(delivery, content_of, message, cast("builtins.type[object]", type))
        self._run.consume(delivery)
        return message

    def receive_body(self, type: type[_T], timeout: float | None) -> _T | None:  # noqa: A002
        """Return the body of the next message; see `JMSConsumer.receive_body`."""
        delivery = self._next(timeout)
        if delivery is None:
            return None
        body = self._use(delivery, body_of, self._open(delivery), type)
        self._run.consume(delivery)
        return body

    def receive_in_loop(self) -> Message | None:
        """Return the next message for a loop; None when the consumer is closed."""
        delivery = self._run.take()
        while delivery is None and call(self._find_in_loop()):
            delivery = self._run.take()
        if delivery is None:
            return None
        message = self._open(delivery)
        self._run.consume_in_loop(delivery)
        return message

    def statistics(self) -> ConsumerStatistics:
        """Return the statistics of the consumer. Called in the loop."""
        self._run.take_back()
        return self._inner.statistics()

    def _next(self, timeout_s: float | None) -> Delivery | None:
        delivery = self._run.take()
        if delivery is None:
            begin = monotonic()
            is_found = call(self._dispatcher.receive_run(self._inbox, timeout_s))
            # A stop or a recover in another thread takes the message back if it comes before `take`.
            while is_found and (delivery := self._run.take()) is None:
                left_s = None if timeout_s is None else max(timeout_s - (monotonic() - begin), 0)
                is_found = call(self._find_again(left_s))
        return delivery

    async def _find_in_loop(self) -> bool:
        self._dispatcher.deliveries.acknowledge_looped(self._inbox)
        return await self._find_again(None)

    async def _find_again(self, timeout_s: float | None) -> bool:
        return not self._inbox.is_closed and await self._dispatcher.receive_run(self._inbox, timeout_s)

    def _use(self, delivery: Delivery, read: Callable[[Message, type[_T]], _T], message: Message, kind: type[_T]) -> _T:
        """Return what `read` returns. If it raises, the message is refused."""
        try:
            return read(message, kind)
        except MessageFormatError:
            self._run.refuse(delivery)
            raise
