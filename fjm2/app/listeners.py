"""The listeners of an application as they are declared: where their messages come from, and who gets them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fjm2.jms import Destination, ExceptionListener, IllegalStateError, Overflow, Selector, Topic, TopicPattern
from fjm2.jms.producer import check_destination

from .handler import Handler

_F = TypeVar("_F", bound=Callable[..., Any])
_C = TypeVar("_C")


@dataclass(frozen=True, slots=True)
class Listener:
    """A function, and the arguments of `create_consumer` for its consumer."""

    handler: Handler
    destination: Destination
    selector: str | None
    options: dict[str, Any]


def destination_of(name: str | Destination) -> Destination:
    """Return the destination itself or, of a name, the topic; of a name with wildcards, the pattern."""
    if not isinstance(name, str):
        return check_destination(name)
    return TopicPattern(name) if "*" in name or ">" in name else Topic(name)


class AnyApp(Generic[_C]):
    """Common part of the `App` for asyncio and that for threads: the listeners, and the context while they run."""

    def __init__(self, uri: str, has_codec: bool) -> None:
        self.exception_listener: ExceptionListener | None = None
        """Function called with each problem that no call can raise. Set it before the start. Without it, problems are
        logged."""
        self._uri = uri
        self._has_codec = has_codec
        self._listeners: list[Listener] = []
        self._context: _C | None = None

    def __repr__(self) -> str:
        state = "stopped" if self._context is None else "running"
        return f"<App with {', '.join(one.handler.name for one in self._listeners) or 'no listeners'}, {state}>"

    @property
    def context(self) -> _C:
        """Context of the running application, for `send` and `request`. Listeners have sessions of their own."""
        if self._context is None:
            raise IllegalStateError(f"the application on {self._uri} is not running: call run(), or enter it by `with`")
        return self._context

    def _check_stopped(self, call: str) -> None:
        if self._context is not None:
            raise IllegalStateError(f"{call}: the application on {self._uri} is running already")

    def listener(
        self,
        destination: str | Destination,
        *,
        selector: str | None = None,
        no_local: bool = False,
        overflow: Overflow | str | None = None,
        messages_max: int | None = None,
        bytes_max: int | None = None,
    ) -> Callable[[_F], _F]:
        """Declare the function below as a listener of a destination: `@app.listener("prices", selector="price > 10")`.

        The annotations of its parameters choose what it gets: the message, or its body. If it returns a value and the
        message asks for a reply, the value is sent as the reply. The other arguments are those of `create_consumer`.
        """
        self._check_stopped("listener")
        parsed = destination_of(destination)
        Selector(selector or "")
        options = {"overflow": overflow, "messages_max": messages_max, "bytes_max": bytes_max, "no_local": no_local}

        def declare(function: _F) -> _F:
            handler = self._check(Handler(function, self._has_codec))
            self._listeners.append(Listener(handler, parsed, selector, options))
            return function

        return declare

    def _check(self, handler: Handler) -> Handler:
        return handler
