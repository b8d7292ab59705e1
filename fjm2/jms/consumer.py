"""Consumers, which deliver messages by `receive`, in a loop, or to a listener."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar

from fjm2.bus.inbox import Inbox, MessageListener
from fjm2.bus.statistics import ConsumerStatistics
from fjm2.messages.destination import Destination
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.message import Message

from .dispatcher import Dispatcher

_T = TypeVar("_T")


class MessageConsumer:
    """Receives messages from a destination. `async for message in consumer` ends when the consumer is closed."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        inbox: Inbox,
        no_local: bool,
        ready: Callable[[], Awaitable[None]],
        leave: Callable[[Inbox], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._inbox = inbox
        self._no_local = no_local
        self._ready = ready
        self._leave = leave

    @property
    def destination(self) -> Destination:
        """Destination that the consumer receives from."""
        return self._inbox.destination

    @property
    def no_local(self) -> bool:
        """True if the consumer gets no messages that its own connection sends."""
        return self._no_local

    @property
    def message_selector(self) -> str | None:
        """Selector that messages have to match; None if there is none."""
        return None if self._inbox.selector is None else self._inbox.selector.text

    @property
    def message_listener(self) -> MessageListener | None:
        """Function or coroutine function called with each message, in the task of the session."""
        return self._inbox.listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._dispatcher.check_open()
        self._dispatcher.listen(self._inbox, listener)

    def statistics(self) -> ConsumerStatistics:
        """Return counters since the consumer was created, and its present state."""
        return self._inbox.statistics()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.destination}{', closed' if self._inbox.is_closed else ''}>"

    async def ready(self) -> None:
        """Wait until the known senders know of this consumer, and it has caught up with them."""
        await self._ready()

    async def receive(self, timeout: float | None = None) -> Message | None:  # noqa: ASYNC109
        """Return the next message, or None after `timeout` seconds, or if the consumer is closed."""
        delivery = await self._dispatcher.receive(self._inbox, timeout)
        if delivery is None:
            return None
        message = self._dispatcher.opener.open(delivery)
        self._dispatcher.deliveries.consume(delivery)
        return message

    async def receive_no_wait(self) -> Message | None:
        """Return the next message, or None if there is none."""
        return await self.receive(0)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._dispatcher.deliveries.acknowledge_looped(self._inbox)
        if self._inbox.is_closed:
            raise StopAsyncIteration
        delivery = await self._dispatcher.receive(self._inbox, None)
        if delivery is None:
            raise StopAsyncIteration
        message = self._dispatcher.opener.open(delivery)
        self._dispatcher.deliveries.consume_in_loop(delivery)
        return message

    async def close(self) -> None:
        """End the subscription. A waiting receive returns None. The consumer's own listener may call this."""
        if not self._inbox.is_closed:
            await self._dispatcher.close_inbox(self._inbox)
            self._leave(self._inbox)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class JMSConsumer(MessageConsumer):
    """Consumer of a context. It can return bodies instead of messages."""

    async def receive_body(self, type: type[_T], timeout: float | None = None) -> _T | None:  # noqa: A002, ASYNC109
        """Return the body of the next message. Raise MessageFormatError if the message has no body, or one of another
        type.

        In AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE mode, the next call gets that message again.
        """
        delivery = await self._dispatcher.receive(self._inbox, timeout)
        if delivery is None:
            return None
        message = self._dispatcher.opener.open(delivery)
        try:
            body = message.get_body(type)
            if body is None:
                raise MessageFormatError(f"{message!r} has no body")
        except MessageFormatError:
            self._dispatcher.deliveries.refuse(delivery)
            raise
        self._dispatcher.deliveries.consume(delivery)
        return body

    async def receive_body_no_wait(self, type: type[_T]) -> _T | None:  # noqa: A002
        """Return the body of the next message, or None if there is none."""
        return await self.receive_body(type, 0)
