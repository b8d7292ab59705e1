"""Consumers, which deliver messages by `receive`, in a loop, or to a listener."""

import builtins
from collections.abc import Awaitable, Callable
from functools import wraps
from types import TracebackType, UnionType
from typing import Any, Self, TypeVar, cast, get_origin, overload

from fjm2.base.functions import FixedAttributes, check_callback, check_progress_listener, check_type, type_text
from fjm2.base.quantities import counted, shortened
from fjm2.bus.inbox import Inbox, MessageListener
from fjm2.bus.statistics import ConsumerStatistics
from fjm2.messages.destination import Destination, Topic, TopicPattern, has_wildcards
from fjm2.messages.errors import JMSError, MessageFormatError
from fjm2.messages.files.file_message import ProgressListener
from fjm2.messages.message import Message

from .batches.incoming import MESSAGES_MAX, Batches
from .dispatcher import Dispatcher
from .listener_task import ThreadListener

_T = TypeVar("_T")
_SELECTOR_CHARACTERS_MAX = 60
"""Length to which `repr` cuts a selector."""
_M = TypeVar("_M", bound=Message)


def topic_or_pattern(name: str) -> Topic | TopicPattern:
    """Return the topic of a name or, if the name has wildcards, the pattern."""
    return TopicPattern(name) if has_wildcards(name) else Topic(name)


def content_of(message: Message, kind: type[_T]) -> _T:
    """Return a message if `kind` is its class or a base of it, or the body of the message if `kind` is its type.

    Raise MessageFormatError if the message, or its body, is of another kind.
    """
    if issubclass(get_origin(kind) or kind, Message):
        if isinstance(message, kind):
            return message
        raise MessageFormatError(f"{message!r}: expected a {kind.__name__}")
    body = message.get_body(kind)
    if body is None and kind is not object:
        raise MessageFormatError(f"{message!r} has no body: expected {type_text(kind)}")
    return cast(_T, body)


def timeout_of(value: object) -> float:
    """Return a timeout that was given in place of a class. Raise TypeError or ValueError if it is something else."""
    if isinstance(value, int | float):
        check_timeout(value)
        return value
    raise TypeError(
        f"receive({_shown(value)}): expected a class of messages, such as TextMessage, or a timeout in seconds; to get "
        "bodies, use receive_body(str) of a context's consumer"
    )


def check_receive(kind: object, timeout: object) -> None:
    """Raise TypeError or ValueError unless a timeout is a number of seconds from 0 on, and given behind the class."""
    if isinstance(timeout, type) or isinstance(kind, int | float):
        raise TypeError(
            f"receive({_shown(kind)}, {_shown(timeout)}): expected a class of messages, and then a timeout, as in "
            "receive(TextMessage, 5)"
        )
    check_timeout(timeout)


def check_timeout(value: object) -> None:
    """Raise TypeError or ValueError unless a timeout is None, or a number of seconds from 0 on."""
    if value is None:
        return
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"timeout={value!r}: expected seconds, or None to wait for ever")
    if not value >= 0:  # also not NaN
        raise ValueError(f"timeout={value!r}: expected 0 or more seconds, or None to wait for ever")


def _shown(value: object) -> str:
    return value.__name__ if isinstance(value, type) else repr(value)


def body_of(message: Message, kind: type[_T]) -> _T:
    """Return the body of a message. Raise MessageFormatError if it has none, or one of another type."""
    body = message.get_body(kind)
    if body is None:
        raise MessageFormatError(f"{message!r} has no body")
    return body


def typed_listener(
    kind: type[_T], listener: Callable[[_T], Any], report: Callable[[JMSError], None]
) -> Callable[[Message], Any]:
    """Return a message listener that passes on what `content_of` returns, and reports messages of other kinds."""

    check_type(kind)
    if listener is None:
        raise TypeError("listener=None: expected a function; message_listener = None ends listening")
    check_callback("listener", listener)

    @wraps(listener)
    def listen(message: Message) -> Any:
        try:
            content = content_of(message, kind)
        except MessageFormatError as error:  # another delivery would not help
            report(error)
            return None
        return listener(content)

    return listen


class MessageConsumer(FixedAttributes):
    """Receives messages from a destination. `async for message in consumer` ends when the consumer is closed."""

    __slots__ = ("_dispatcher", "_inbox", "_leave", "_no_local", "_ready")

    def __init__(
        self,
        dispatcher: Dispatcher,
        inbox: Inbox,
        no_local: bool,
        ready: Callable[[], Awaitable[None]],
        leave: Callable[[Inbox], Awaitable[None]],
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
        if not isinstance(listener, ThreadListener):
            check_callback("message_listener", listener)
        self._dispatcher.listen(self._inbox, listener)

    @property
    def on_progress(self) -> ProgressListener | None:
        """Function called while files are received, several times a second. It must not wait."""
        return self._inbox.on_progress

    @on_progress.setter
    def on_progress(self, listener: ProgressListener | None) -> None:
        check_progress_listener(listener)
        self._inbox.on_progress = listener

    def statistics(self) -> ConsumerStatistics:
        """Return counters since the consumer was created, and its present state."""
        return self._inbox.statistics()

    def __repr__(self) -> str:
        inbox, selector = self._inbox, self.message_selector
        state = (
            "" if selector is None else f"where {shortened(selector, _SELECTOR_CHARACTERS_MAX)}",
            "with a listener" if inbox.listener is not None else "",
            f"{counted(inbox.held, 'message')} waiting" if inbox.held else "",
            "full" if inbox.is_full else "",
            "closed" if inbox.is_closed else "",
        )
        return f"<{type(self).__name__} of {self.destination}{''.join(f', {word}' for word in state if word)}>"

    async def ready(self) -> None:
        """Wait until the known senders know of this consumer, and it has caught up with them."""
        await self._ready()

    def listen(self, type: type[_T], listener: Callable[[_T], Any]) -> None:  # noqa: A002
        """Call a function or coroutine function with each message of a class, or with each body of a type.

        With `TextMessage`, the listener gets text messages; with `str`, their texts. A message of another kind goes to
        the exception listener as a MessageFormatError, and counts as delivered.
        """
        self.message_listener = typed_listener(type, listener, self._dispatcher.report)

    @overload
    async def receive(self, *, timeout: float | None = None) -> Message | None: ...  # noqa: ASYNC109
    @overload
    async def receive(self, timeout: float | None, /) -> Message | None: ...  # noqa: ASYNC109
    @overload
    async def receive(self, type: type[_M], timeout: float | None = None) -> _M | None: ...  # noqa: ASYNC109
    async def receive(self, type: Any = None, timeout: float | None = None) -> Message | None:  # noqa: A002, ASYNC109
        """Return the next message, or None after `timeout` seconds, or if the consumer is closed.

        With a class, raise MessageFormatError if the message is of another class. In AUTO_ACKNOWLEDGE and
        DUPS_OK_ACKNOWLEDGE mode, the next call gets that message again. Consumers of one session may receive at the
        same time, each in its own task.
        """
        if timeout is not None:
            check_receive(type, timeout)
        if type is not None and not (isinstance(type, builtins.type) and issubclass(type, Message)):
            type, timeout = None, timeout_of(type)  # noqa: A001 - receive(5)
        delivery = await self._dispatcher.receive(self._inbox, timeout)
        if delivery is None:
            return None
        message = self._dispatcher.opener.open(delivery)
        if type is not None:
            try:
                content_of(message, type)
            except MessageFormatError:
                self._dispatcher.deliveries.refuse(delivery)
                raise
        self._dispatcher.deliveries.consume(delivery)
        return message

    @overload
    async def receive_no_wait(self) -> Message | None: ...
    @overload
    async def receive_no_wait(self, type: type[_M]) -> _M | None: ...
    async def receive_no_wait(self, type: Any = None) -> Message | None:  # noqa: A002
        """Return the next message, as `receive` does, or None if there is none."""
        return cast(Message | None, await self.receive(type, 0))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        self._dispatcher.home.check()
        self._dispatcher.deliveries.acknowledge_looped(self._inbox)
        if self._inbox.is_closed:
            raise StopAsyncIteration
        delivery = await self._dispatcher.receive(self._inbox, None)
        if delivery is None:
            raise StopAsyncIteration
        message = self._dispatcher.opener.open(delivery)
        self._dispatcher.deliveries.consume_in_loop(delivery)
        return message

    def batches(self, max_messages: int = MESSAGES_MAX, max_wait: float = 0.0) -> Batches:
        """Return the messages in batches, for `async for batch in consumer.batches()`.

        A batch has at most `max_messages` messages. The loop waits for the first, and then up to `max_wait` seconds for
        more; with 0, a batch has the messages that wait. In AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE mode, a batch is
        acknowledged when the loop asks for the next one.
        """
        self._dispatcher.check_open()
        return Batches(self._dispatcher, self._inbox, max_messages, max_wait)

    async def close(self) -> None:
        """End the subscription, unless it is durable. A waiting receive returns None. The consumer's own listener may
        call this."""
        if not self._inbox.is_closed:
            self._dispatcher.home.check()
            await self._dispatcher.close_inbox(self._inbox)
            await self._leave(self._inbox)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def parts_of(consumer: MessageConsumer) -> tuple[Dispatcher, Inbox]:
    """Return what a blocking consumer receives by, without a task for each message."""
    return consumer._dispatcher, consumer._inbox


class JMSConsumer(MessageConsumer):
    """Consumer of a context. It can return bodies instead of messages."""

    __slots__ = ()

    @overload
    async def receive_body(self, type: type[_T], timeout: float | None = None) -> _T | None: ...  # noqa: ASYNC109
    @overload
    async def receive_body(self, type: UnionType, timeout: float | None = None) -> Any: ...  # noqa: ASYNC109
    async def receive_body(self, type: Any, timeout: float | None = None) -> Any:  # noqa: A002, ASYNC109
        """Return the body of the next message. Raise MessageFormatError if the message has no body, or one of another
        type.

        In AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE mode, the next call gets that message again.
        """
        check_type(type)
        check_timeout(timeout)
        delivery = await self._dispatcher.receive(self._inbox, timeout)
        if delivery is None:
            return None
        message = self._dispatcher.opener.open(delivery)
        try:
            body = body_of(message, type)
        except MessageFormatError:
            self._dispatcher.deliveries.refuse(delivery)
            raise
        self._dispatcher.deliveries.consume(delivery)
        return body

    @overload
    async def receive_body_no_wait(self, type: type[_T]) -> _T | None: ...
    @overload
    async def receive_body_no_wait(self, type: UnionType) -> Any: ...
    async def receive_body_no_wait(self, type: Any) -> Any:  # noqa: A002
        """Return the body of the next message, or None if there is none."""
        return await self.receive_body(type, 0)
