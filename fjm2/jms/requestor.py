"""Requests, and the replies to them."""

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Final, NoReturn, Self, cast

from fjm2.messages.destination import Destination, Topic, not_a_destination
from fjm2.messages.errors import IllegalStateError, InvalidDestinationError, MessageFormatError
from fjm2.messages.foreign import stamp_foreign
from fjm2.messages.message import Message
from fjm2.messages.types import shown

from .consumer import MessageConsumer, check_timeout
from .jms_producer import JMSProducer, is_foreign, message_of
from .metadata import refuse
from .producer import MessageOptions, check_destination
from .session import Session, core_of

REQUEST_TIMEOUT_S: Final = 30.0
"""Default time for which `request` of a context waits: longer than most services take, and shorter than a person's
patience."""


def reply_options(request: Message, options: MessageOptions) -> tuple[Destination, MessageOptions]:
    """Return where the reply to a request goes, and its options with the correlation id that the requester expects.

    Raise InvalidDestinationError if the request names no destination for replies.
    """
    if not isinstance(request, Message):
        raise TypeError(
            f"request={shown(request)}: expected the message to reply to; a receive that times out returns None"
        )
    if request.reply_to is None:
        raise InvalidDestinationError(
            f"{request!r} has no reply_to: its sender expects no reply. Send requests with `request`, or set reply_to"
        )
    if options.get("correlation_id") is None:
        options = {**options, "correlation_id": request.message_id or request.correlation_id}
    return request.reply_to, options


def _is_reply(message: Message, ids: Collection[str | None]) -> bool:
    """Return True if a message is a reply: its correlation id is one of `ids`. Anybody may send anything to a temporary
    topic."""
    try:
        return message.correlation_id in ids
    except MessageFormatError:
        return False


class TopicRequestor:
    """Sends requests to a topic, one at a time, and returns the first reply to each. It needs a session of its own.

    Start the connection first. `close` closes the session as well.
    """

    def __init__(self, session: Session, topic: Topic) -> None:
        if session.transacted:
            raise IllegalStateError(
                "a request in a transaction would be sent only by the commit: expected a session that is not transacted"
            )
        if not isinstance(topic, Topic):
            raise not_a_destination(topic, Topic)
        self._session = session
        self._producer = session.create_producer(topic)
        self._reply_to = session.create_temporary_topic()
        self._replies = session.create_consumer(self._reply_to)

    async def request(self, message: Message, timeout: float | None = None) -> Message | None:  # noqa: ASYNC109
        """Send the message with a reply-to, and return the reply, or None after `timeout` seconds.

        Late replies to earlier requests are skipped if their correlation id tells them apart.
        """
        check_timeout(timeout)
        message.reply_to = self._reply_to
        await self._producer.send(message)
        try:
            async with asyncio.timeout(timeout):
                while (reply := await self._replies.receive()) is not None:
                    if _is_reply(reply, (None, message.message_id, message.correlation_id)):
                        return reply
        except TimeoutError:
            pass
        return None

    async def close(self) -> None:
        """Close the session, and delete the topic for replies."""
        await self._replies.close()
        await self._reply_to.delete()
        await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class QueueRequestor:
    """Class of JMS that this release does not offer. Its constructor raises ResourceAllocationError."""

    def __init__(self, session: Session, queue: Destination) -> NoReturn:  # noqa: ARG002
        refuse("queues", check_destination(queue))


class Replies:
    """Requests of a context, any number at a time. The correlation ids of replies tell to which request they belong."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._codec = core_of(session).endpoint.settings.codec
        self._reply_to = session.create_temporary_topic()
        self._waiting: dict[str, asyncio.Queue[Message]] = {}
        self._consumer: MessageConsumer = session.create_consumer(self._reply_to)
        self._consumer.message_listener = self._handle
        self._producer = JMSProducer(core_of(session).outbox, core_of(session).retaining)

    async def request(
        self, dest: Destination, body: object, timeout_s: float | None, count: int | None, options: MessageOptions
    ) -> list[Message]:
        """Send a request. Return `count` replies, or as many as arrive within `timeout_s`."""
        check_timeout(timeout_s)
        message = message_of(body, self._codec)
        sending = self._producer.send(dest, message, **options, reply_to=self._reply_to)
        if is_foreign(body):
            stamp_foreign(body, message)
        keys = {key for key in (message.message_id, message.correlation_id) if key is not None}
        arrived: asyncio.Queue[Message] = asyncio.Queue()
        self._waiting.update(dict.fromkeys(keys, arrived))  # before the send: it may wait, and the reply be quick
        replies: list[Message] = []
        try:
            async with asyncio.timeout(timeout_s):
                await sending
                while count is None or len(replies) < count:
                    replies.append(await arrived.get())
        except TimeoutError:
            pass
        finally:
            for key in keys:
                self._waiting.pop(key, None)
        return replies

    def _handle(self, reply: Message) -> None:
        if _is_reply(reply, self._waiting):
            self._waiting[cast(str, reply.correlation_id)].put_nowait(reply)

    async def close(self) -> None:
        await self._session.close()
