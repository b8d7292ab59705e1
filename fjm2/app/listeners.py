"""The listeners of an application as they are declared: where their messages come from, and who gets them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fjm2.jms import (
    Destination,
    ExceptionListener,
    IllegalStateError,
    MessageListener,
    Overflow,
    OverflowName,
    Selector,
)
from fjm2.jms.consumer import topic_or_pattern
from fjm2.jms.producer import check_destination
from fjm2.jms.settings import check_bounds

from .handler import Handler

if TYPE_CHECKING:
    from fjm2.jms import JMSContext, MessageConsumer, blocking

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C", "JMSContext", "blocking.JMSContext")


@dataclass(frozen=True, slots=True)
class Listener:
    """A function, and the arguments of `create_consumer` for its consumer."""

    handler: Handler
    destination: Destination
    selector: str | None
    options: dict[str, Any]


class AnyApp(Generic[_C]):
    """Common part of the `App` for asyncio and that for threads: the listeners, and the context while they run."""

    def __init__(self, has_codec: bool) -> None:
        self.exception_listener: ExceptionListener | None = None
        """Function called with each problem that no call can raise. Set it before the start. Without it, problems are
        logged."""
        self._has_codec = has_codec
        self._listeners: list[Listener] = []
        self._consumers: list[MessageConsumer | blocking.MessageConsumer] = []
        self._context: _C | None = None

    def __repr__(self) -> str:
        state = "stopped" if self._context is None else "running"
        return f"<App with {', '.join(one.handler.name for one in self._listeners) or 'no listeners'}, {state}>"

    @property
    def context(self) -> _C:
        """Context of the running application, for `send` and `request`. Listeners have sessions of their own."""
        if self._context is None:
            raise IllegalStateError("the application is not running: call run(), or use it inside its block")
        return self._context

    def _check_stopped(self, call: str) -> None:
        if self._context is not None:
            raise IllegalStateError(f"{call}: the application is running already")

    def listener(
        self,
        destination: str | Destination,
        *,
        selector: str | None = None,
        no_local: bool = False,
        overflow: Overflow | OverflowName | None = None,
        messages_max: int | None = None,
        bytes_max: int | None = None,
        block_s: float | str | None = None,
        last_values: bool = False,
    ) -> Callable[[_F], _F]:
        """Declare the function below as a listener of a destination: `@app.listener("prices", selector="price > 10")`.

        The annotations of its parameters choose what it gets: the message, or its body. If it returns a value and the
        message asks for a reply, the value is sent as the reply. The other arguments are those of `create_consumer`.
        """
        self._check_stopped("listener")
        if callable(destination):
            name = getattr(destination, "__name__", repr(destination))
            raise TypeError(f'listener({name}): expected the name of a topic, as in @app.listener("prices")')
        parsed = topic_or_pattern(destination) if isinstance(destination, str) else check_destination(destination)
        Selector(selector or "")
        bounds = {"overflow": overflow, "messages_max": messages_max, "bytes_max": bytes_max, "block_s": block_s}
        check_bounds(**bounds)
        options = {**bounds, "no_local": no_local, "last_values": last_values}

        def declare(function: _F) -> _F:
            handler = self._check(Handler(function, self._has_codec))
            self._listeners.append(Listener(handler, parsed, selector, options))
            return function

        return declare

    def _check(self, handler: Handler) -> Handler:
        return handler

    def _begin(self, context: _C) -> None:
        context.auto_start = False
        context.exception_listener = self.exception_listener
        self._context = context

    def _attach(self, listener: Listener, context: _C) -> None:
        """Let a listener get messages in a context of its own."""
        context.auto_start = False
        consumer = context.create_consumer(listener.destination, listener.selector, **listener.options)
        consumer.message_listener = self._message_listener(listener.handler, context)
        self._consumers.append(consumer)

    def _message_listener(self, handler: Handler, context: _C) -> MessageListener:
        """Return the message listener that calls a handler, and sends what it returns as the reply."""
        raise NotImplementedError

    def _begin_ending(self) -> None:
        """Let all listeners end after their present messages, while the context of the first is closed."""
        for consumer in self._consumers:
            consumer.message_listener = None

    def _end(self) -> None:
        self._context = None
        self._consumers.clear()
