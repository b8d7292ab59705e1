"""Batches of messages that a consumer receives together."""

import math
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final, Self

from fjm2.base.errors import ConfigError
from fjm2.base.quantities import check_count, counted
from fjm2.bus.inbox import Inbox
from fjm2.messages.message import Message
from fjm2.messages.types import shown

from ..deliveries import BatchItem, Opener, RunDelivery, deliveries_of, messages_in
from ..dispatcher import Dispatcher

if TYPE_CHECKING:
    from numpy.typing import NDArray

MESSAGES_MAX: Final = 1000
"""Default of the greatest number of messages of a batch: enough to spread the cost of a step over many messages."""


class Batch:
    """Messages that a consumer received together. They become objects only if the program asks for these."""

    def __init__(self, items: list[BatchItem], opener: Opener) -> None:
        """Use `consumer.batches()` instead."""
        self._items = items
        self._opener = opener
        self._count = messages_in(items)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Batch of {counted(self._count, 'message')}>"

    def bodies(self) -> list[memoryview]:
        """Return the bodies as they were received, without copying them: bytes, or texts in UTF-8. Bodies of other
        kinds are encoded.

        A body keeps the data in memory that it was received with, up to 64 KiB of it: copy bodies that are to be kept.
        """
        bodies: list[memoryview] = []
        for item in self._items:
            if isinstance(item, RunDelivery):
                bodies += item.run.frames.bodies()
            else:
                bodies.append(memoryview(item.received.body))
        return bodies

    def column(self, name: str) -> "NDArray[Any]":
        """Return a property, or a header that selectors know, of all messages.

        The type of the array is that of the values: bool, int8 to int64, float32 or float64. It is object if the values
        are texts, of different types, or missing, which gives None. Raise MessageFormatError if the properties of a
        message are malformed.
        """
        from .columns import column_of  # only now: it loads numpy

        if not isinstance(name, str):
            raise TypeError(f'name={shown(name)}: expected the name of a property or header, such as "price"')
        return column_of(self._items, name)

    def messages(self) -> list[Message]:
        """Return the messages. Each call makes them anew."""
        return [self._opener.open(delivery) for delivery in deliveries_of(self._items)]

    def acknowledge(self) -> Awaitable[None]:
        """Acknowledge all messages that the session has delivered so far, as `Message.acknowledge` does. This has an
        effect in CLIENT_ACKNOWLEDGE mode only."""
        return self._opener.acknowledge_hook()


class Batches:
    """The batches of a consumer. `async for batch in consumer.batches()` ends when the consumer is closed."""

    def __init__(self, dispatcher: Dispatcher, inbox: Inbox, max_messages: int, max_wait: float) -> None:
        """Use `consumer.batches()` instead."""
        check_count("max_messages", max_messages, 1)
        if not isinstance(max_wait, int | float) or not 0 <= max_wait < math.inf:
            raise ConfigError(f"max_wait={max_wait!r}: expected 0 or more seconds")
        self._dispatcher = dispatcher
        self._inbox = inbox
        self._max_messages = max_messages
        self._max_wait = max_wait

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        dispatcher, inbox = self._dispatcher, self._inbox
        dispatcher.home.check()
        dispatcher.deliveries.acknowledge_looped(inbox)
        dispatcher.deliveries.acknowledge_batch(inbox)
        items = [] if inbox.is_closed else await dispatcher.receive_batch(inbox, self._max_messages, self._max_wait)
        if not items:
            raise StopAsyncIteration
        dispatcher.deliveries.consume_batch(inbox, items)
        return Batch(items, dispatcher.opener)
