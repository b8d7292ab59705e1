"""Messages of foreign classes. Any object that looks like a message can be sent, as a copy."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, runtime_checkable

from .bytes_message import BytesMessage
from .destination import Destination
from .errors import MessageEOFError, MessageFormatError
from .map_message import MapMessage
from .message import Message
from .object_codec import SAFE_CODEC, ObjectCodec
from .object_message import ObjectMessage
from .properties import travels
from .stream_message import StreamMessage
from .text_message import TextMessage


@runtime_checkable
class MessageProtocol(Protocol):
    """The members of a message that `send` needs at least. Further members tell the kind of the body: see `adopt`."""

    correlation_id: Any
    """Correlation id: text, bytes or None."""
    reply_to: Any
    """Destination for replies. A `Destination` of FJM2 is kept; anything else is left out."""
    type: Any
    """JMSType of the message: text or None."""

    def property_names(self) -> Iterable[str]:
        """Return the names of all properties."""

    def get_object_property(self, name: str) -> Any:
        """Return the property with this name."""


STAMPED = (
    "destination",
    "delivery_mode",
    "message_id",
    "timestamp",
    "expiration",
    "delivery_time",
    "priority",
)
"""Headers that a send sets."""


def adopt(message: object, codec: ObjectCodec = SAFE_CODEC) -> Message:
    """Return the message itself or, if its class is foreign, a copy of its kind, client headers, properties and body.

    Raise MessageFormatError if the object is not a message.
    """
    if isinstance(message, Message):
        return message
    if isinstance(message, type) and issubclass(message, Message):
        raise MessageFormatError(f"{message.__name__} is a class: expected a message, as {message.__name__}(...) makes")
    if not isinstance(message, MessageProtocol):
        raise MessageFormatError(f"{type(message).__name__} is not a message: expected a Message, as TextMessage(text)")
    copy = _copy_body(message, codec)
    copy.correlation_id = message.correlation_id
    copy.reply_to = message.reply_to if isinstance(message.reply_to, Destination) else None
    copy.type = message.type
    for name in message.property_names():
        if travels(name):
            copy.set_object_property(name, message.get_object_property(name))
    return copy


def stamp_foreign(message: object, sent: Message) -> None:
    """Copy the headers that a send has set from `sent`, the copy that was sent, to the foreign message."""
    for name in STAMPED:
        setattr(message, name, getattr(sent, name))


def _copy_body(message: Any, codec: ObjectCodec) -> Message:
    for member, copy in _COPIERS:
        if hasattr(type(message), member) or member in getattr(message, "__dict__", ()):
            return copy(message, codec)
    return Message()


def _copy_text(message: Any, _: ObjectCodec) -> Message:
    return TextMessage(message.text)


def _copy_object(message: Any, codec: ObjectCodec) -> Message:
    return ObjectMessage(message.object, codec)


def _copy_map(message: Any, _: ObjectCodec) -> Message:
    copy = MapMessage()
    for name in message.map_names():
        copy.set_object(name, message.get_object(name))
    return copy


def _copy_bytes(message: Any, _: ObjectCodec) -> Message:
    copy = BytesMessage()
    message.reset()
    copy.write_bytes(message.read_bytes() or b"")
    return copy


def _copy_stream(message: Any, _: ObjectCodec) -> Message:
    copy = StreamMessage()
    message.reset()
    while True:
        try:
            copy.write_object(message.read_object())
        except MessageEOFError:
            return copy


# For each kind of message, a member that no other kind has, and the function that copies its body.
_COPIERS: tuple[tuple[str, Callable[[Any, ObjectCodec], Message]], ...] = (
    ("text", _copy_text),
    ("object", _copy_object),
    ("map_names", _copy_map),
    ("body_length", _copy_bytes),
    ("read_object", _copy_stream),
)
