"""Functions that get messages: what their annotations ask for, and how they are called."""

import inspect
import logging
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from fjm2.base.logs import Log
from fjm2.jms import Message, MessageFormatError
from fjm2.jms.consumer import content_of

log = Log("fjm2.app")

_BODIES: Final = frozenset({str, bytes, bool, int, float, dict, Mapping, list, tuple, object})
"""Types of bodies that the default codec of object messages makes."""


class Handler:
    """A function of an application, and the message or body that each of its parameters gets."""

    def __init__(self, function: Callable[..., Any], has_codec: bool) -> None:
        """Raise TypeError if a parameter has no annotation, or one that is not for messages; if there are two for the
        body, or for the message; or if the function is a generator function.

        With `has_codec`, bodies may be of any class.
        """
        self.function = function
        self.name: str = getattr(function, "__qualname__", repr(function))
        self._has_codec = has_codec
        signature = inspect.signature(function)
        required = [one for one in signature.parameters.values() if one.default is one.empty]
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        unexpected = TypeError(
            f"{self.name}{signature}: expected a parameter for the body, as in (body: str), or for the message, as "
            "in (message: TextMessage), or one for each"
        )
        if not required or any(one.kind not in positional for one in required):
            raise unexpected
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{self.name} is a generator function: expected one that returns the reply, or None")
        try:
            hints = get_type_hints(function)
        except (NameError, TypeError) as error:
            raise TypeError(f"{self.name}: cannot read the annotations: {error}") from error
        contents = [self._content(one.name, hints.get(one.name, one.empty)) for one in required]
        if len({is_message for is_message, _ in contents}) < len(contents):
            raise unexpected
        self._contents = [content for _, content in contents]

    def _content(self, parameter: str, annotation: Any) -> tuple[bool, Callable[[Message], Any]]:
        """Return True if a parameter gets the message itself, and the function that takes out of a message what it
        gets."""
        choices = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        kinds = [object if one is Any else one for one in choices if one is not NoneType]
        kind: Any = kinds[0]
        origin = get_origin(kind) or kind
        if len(kinds) != 1 or not isinstance(origin, type) or not self._is_taken(origin):
            raise TypeError(
                f"{self.name}: the parameter {parameter!r} has {_shown(annotation)}: expected Message or one of its "
                "classes for the message; str, bytes, bool, int, float, dict, list, tuple or object for its body; "
                "bodies of other classes need App(codec=...)"
            )
        is_message = issubclass(origin, Message)
        if len(choices) == 1:
            return is_message, lambda message: content_of(message, kind)
        return is_message, lambda message: None if message.get_body(object) is None else content_of(message, kind)

    def _is_taken(self, kind: type) -> bool:
        if kind is inspect.Parameter.empty:
            return False
        return issubclass(kind, Message) or kind in _BODIES or self._has_codec

    def arguments(self, message: Message) -> list[Any]:
        """Return what the function gets. Raise MessageFormatError if the message, or its body, is of another kind."""
        return [content(message) for content in self._contents]

    def unsendable(self, result: object, error: MessageFormatError) -> MessageFormatError:
        """Return the error to report if the function returned something that no message can carry. Another delivery
        would not help."""
        return MessageFormatError(f"{self.name} returned a {type(result).__name__}, and nobody gets a reply: {error}")

    def note_failure(self, message: Message, error: BaseException) -> None:
        """Log an exception that the function raised."""
        log.tell(
            logging.WARNING,
            "handler_failed",
            f"{self.name} raised {type(error).__name__} at delivery {message.delivery_count} of {message.message_id} "
            f"from {message.destination}; it gets the message again, as often as redeliveries_max allows",
            about=self.name,
            error=error,
            handler=self.name,
        )


def _shown(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return "no annotation"
    return f"the annotation {annotation.__name__ if isinstance(annotation, type) else annotation}"
