"""Tracing with OpenTelemetry, where one trace spans publishers and subscribers. Needs the extra `fjm2[otel]`.

`ConnectionFactory(telemetry=True)` makes a span of each send, and of each call of a message listener. The context of
the send travels with the message, in the properties `traceparent` and `tracestate` of W3C's Trace Context. Programs
that receive messages in a loop get the context from `context_of(message)`.
"""

import re
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, Final

from fjm2.base.version import __version__

from .base.missing_extras import lack_of
from .messages.destination import TEMPORARY_FLAG, Destination
from .messages.errors import MessageFormatError
from .messages.message import Message

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError(lack_of(error, "telemetry", "otel"), name=error.name) from error

__all__ = ["TRACE_PARENT", "TRACE_STATE", "Telemetry", "context_of"]

TRACE_PARENT: Final = "traceparent"
"""Name of the message property that identifies the span of the send. Selectors can use it like any other."""
TRACE_STATE: Final = "tracestate"
"""Name of the message property with vendors' data of the trace."""

_PROPAGATOR = TraceContextTextMapPropagator()
_TEXT_CHARACTERS_MAX: Final = 512  # what implementations must at least propagate (W3C Trace Context, 3.3.1.5)
_MEMBER = r" *[a-z0-9][a-z0-9_*/@-]{0,240}=[!-+\--<>-~ ]{1,256}"
_STATE = re.compile(rf"{_MEMBER}(?:,{_MEMBER}){{0,31}}")
"""Pattern of a valid `tracestate`. Invalid values are ignored, because the propagator would log each of them."""


def context_of(message: Message) -> Context:
    """Return the context that a message was sent in, to be used as a parent of spans. The context is empty if the
    message has none."""
    carrier = {}
    for name in (TRACE_PARENT, TRACE_STATE):
        value = _text_of(message, name)
        if value is not None and (name == TRACE_PARENT or _STATE.fullmatch(value)):
            carrier[name] = value
    return _PROPAGATOR.extract(carrier)


def _text_of(message: Message, name: str) -> str | None:
    try:
        value = message.get_object_property(name)
    except MessageFormatError:  # properties that cannot be read
        return None
    return value if isinstance(value, str) and len(value) <= _TEXT_CHARACTERS_MAX else None


class Telemetry:
    """Makes the OpenTelemetry spans of a connection."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Use `provider`, or the program's global provider if it is None."""
        self._tracer = trace.get_tracer("fjm2", __version__, provider)

    def sent(self, message: Message, destination: Destination, size: int) -> dict[str, str]:
        """Make the span of a send that happens now. Return the message properties that tell receivers about the
        span."""
        span = self._start("send", SpanKind.PRODUCER, message, destination, size, None)
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(span))
        span.end()
        return carrier

    def listening(self, listener: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that calls a message listener in a span, which follows the span of the send and records
        exceptions."""

        def listen(message: Message) -> Any:
            destination = message.destination
            assert destination is not None  # it was received from there
            span = self._start("process", SpanKind.CONSUMER, message, destination, None, context_of(message))
            try:
                with trace.use_span(span):
                    result = listener(message)
            except BaseException:
                span.end()
                raise
            if isawaitable(result):
                return _finish(result, span)
            span.end()
            return result

        return listen

    def _start(
        self,
        operation: str,
        kind: SpanKind,
        message: Message,
        destination: Destination,
        size: int | None,
        context: Context | None,
    ) -> Span:
        is_temporary = bool(destination.kind_flags & TEMPORARY_FLAG)
        attributes: dict[str, str | int | bool] = {
            "messaging.system": "fjm2",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": destination.name,
        }
        if is_temporary:  # temporary names would make too many different names of spans
            attributes["messaging.destination.temporary"] = True
        if size is not None:
            attributes["messaging.message.body.size"] = size
        if message.message_id is not None:
            attributes["messaging.message.id"] = message.message_id
        name = "(temporary)" if is_temporary else destination.name
        return self._tracer.start_span(f"{operation} {name}", context, kind, attributes)


async def _finish(result: Awaitable[Any], span: Span) -> Any:
    with trace.use_span(span, end_on_exit=True):
        return await result
