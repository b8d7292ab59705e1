"""The producer of a context: options, headers and properties in a call chain, and bodies of any kind."""

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, Self, TypeVar

from fjm2.bus.completions import CompletionListener, check_listener
from fjm2.bus.publication import BatchPost, Outbox, Post
from fjm2.messages.bytes_message import BytesMessage
from fjm2.messages.delivery import DeliveryMode
from fjm2.messages.destination import Destination
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.files.file_message import FileMessage
from fjm2.messages.foreign import MessageProtocol, adopt, stamp_foreign
from fjm2.messages.header import RETAINED_SEND, Kind
from fjm2.messages.map_message import MapMessage, encode_items
from fjm2.messages.message import PLAIN_CLASSES, Message, put_property
from fjm2.messages.object_codec import ObjectCodec
from fjm2.messages.object_message import ObjectMessage
from fjm2.messages.properties import PropertyColumn, checked_property, encode_given
from fjm2.messages.text_message import TextMessage
from fjm2.messages.types import PropertyValue, encode_text

from .batches.outgoing import frame_batch, listed, messages_in, posts_of
from .last_values.need import Need, need_of, need_of_all
from .last_values.retaining import Retain, Retaining
from .producer import MessageOptions, SendOptions, check_delivery_delay, check_delivery_mode, check_destination, delayed

_F = TypeVar("_F", bound=Callable[..., Any])


def named(name: str) -> Callable[[_F], _F]:
    """Name a coroutine function after the public method that returns its coroutines. Python's warning about a forgotten
    `await` shows this name."""

    def name_it(function: _F) -> _F:
        function.__qualname__ = name
        return function

    return name_it


_NEVER_FOREIGN = frozenset({str, bytes, bytearray, memoryview, dict, list, tuple, type(None), int, float, bool})
"""Types of bodies that are certainly no messages. To compare an object with a protocol takes longer than to send
it."""


def is_foreign(body: object) -> bool:
    """Return True if a body is a message of a foreign class."""
    return type(body) not in _NEVER_FOREIGN and not isinstance(body, Message) and isinstance(body, MessageProtocol)


_MAKERS: dict[type, Callable[[Any], Message]] = {
    str: TextMessage,
    bytes: BytesMessage,
    type(None): lambda _: Message(),
}
"""Functions that return the message to send, for the most frequent types. To compare a body with one class after the
other takes longer."""


def message_of(body: object, codec: ObjectCodec) -> Message:
    """Return the message to send: `body` if it is a message, a copy of a foreign message, or a new message of the kind
    that fits."""
    make = _MAKERS.get(type(body))
    if make is not None:
        return make(body)
    if isinstance(body, Message):
        return body
    if isinstance(body, str):
        return TextMessage(body)
    if is_foreign(body):
        return adopt(body, codec)
    if isinstance(body, bytes | bytearray | memoryview):
        return BytesMessage(body)
    if isinstance(body, Mapping):
        return _mapping_message(body, codec)
    if isinstance(body, os.PathLike):
        return FileMessage(body)
    return ObjectMessage(body, codec)


_type_of = type  # `type` is an option of a send
_ENCODERS: Final[dict[type, tuple[int, Callable[[Any], bytes] | None]]] = {
    bytes: (int(Kind.BYTES), None),
    bytearray: (int(Kind.BYTES), bytes),
    str: (int(Kind.TEXT), encode_text),
    dict: (int(Kind.MAP), encode_items),
    type(None): (int(Kind.MESSAGE), lambda _: b""),
}
"""Kinds of the messages that bodies are sent as, and functions that encode the bodies, for the most frequent types. To
make a message first takes as long as the rest of a send. Bytes need no function. A function raises MessageFormatError
or ValueError if a message must be made."""


def _mapping_message(body: Mapping[Any, Any], codec: ObjectCodec) -> Message:
    """Return a map message or, for keys or values that it cannot have, an object message with a dict."""
    try:
        return MapMessage(body)
    except (MessageFormatError, ValueError):
        return ObjectMessage(body if type(body) is dict else dict(body), codec)


def _mapping_of(properties: Mapping[str, PropertyValue]) -> Mapping[str, PropertyValue]:
    """Return the properties of a send. Raise MessageFormatError if they are not a mapping."""
    if not hasattr(properties, "items"):
        raise MessageFormatError(f"properties={properties!r:.60}: expected a dict of names and values")
    return properties


def _put_properties(message: Message, properties: Mapping[str, PropertyValue]) -> None:
    """Check properties and set them on a message. This includes received messages, whose own properties are
    read-only."""
    for name, value in _mapping_of(properties).items():
        put_property(message, name, checked_property(name, value))


class MessageDefaults(SendOptions):
    """Headers and properties that override those of every message sent."""

    __slots__ = ("_has_defaults", "_is_correlation_text", "_template")

    def __init__(self) -> None:
        super().__init__()
        self._template = Message()
        self._is_correlation_text = True
        """False if the correlation id was set as bytes."""
        self._has_defaults = False
        """False as long as no header or property was ever set: most producers never have any to apply."""

    def _note_default(self) -> None:
        self._note_setter()
        self._has_defaults = True

    def _apply_defaults(self, message: Message) -> None:
        """Override headers and properties of a message."""
        template = self._template
        for name in template.property_names():
            put_property(message, name, template.get_object_property(name))
        if template.correlation_id_bytes is not None:
            if self._is_correlation_text:
                message.correlation_id = template.correlation_id
            else:
                message.correlation_id_bytes = template.correlation_id_bytes
        if template.type is not None:
            message.type = template.type
        if template.reply_to is not None:
            message.reply_to = template.reply_to

    @property
    def correlation_id(self) -> str | None:
        """Correlation id that replaces the one of every message sent, unless it is None."""
        return self._template.correlation_id

    @correlation_id.setter
    def correlation_id(self, value: str | None) -> None:
        self._note_default()
        self._template.correlation_id = value
        self._is_correlation_text = True

    def set_correlation_id(self, value: str | None) -> Self:
        """Set `correlation_id`, and return the producer."""
        self.correlation_id = value
        return self

    @property
    def correlation_id_bytes(self) -> bytes | None:
        """The correlation id as bytes. Setting it replaces `correlation_id`, and the reverse."""
        return self._template.correlation_id_bytes

    @correlation_id_bytes.setter
    def correlation_id_bytes(self, value: bytes | None) -> None:
        self._note_default()
        self._template.correlation_id_bytes = value
        self._is_correlation_text = False

    def set_correlation_id_bytes(self, value: bytes | None) -> Self:
        """Set `correlation_id_bytes`, and return the producer."""
        self.correlation_id_bytes = value
        return self

    @property
    def type(self) -> str | None:
        """JMSType that replaces the one of every message sent, unless it is None."""
        return self._template.type

    @type.setter  # noqa: A003
    def type(self, value: str | None) -> None:
        self._note_default()
        self._template.type = value

    def set_type(self, value: str | None) -> Self:
        """Set `type`, and return the producer."""
        self.type = value
        return self

    @property
    def reply_to(self) -> Destination | None:
        """Destination for replies to every message sent. With None, each message keeps its own `reply_to`."""
        return self._template.reply_to

    @reply_to.setter
    def reply_to(self, value: Destination | None) -> None:
        self._note_default()
        self._template.reply_to = value

    def set_reply_to(self, value: Destination | None) -> Self:
        """Set `reply_to`, and return the producer."""
        self.reply_to = value
        return self

    def set_property(self, name: str, value: PropertyValue) -> Self:
        """Set a property with the type of its value. `fjm2.jms.Byte` and its siblings force a type."""
        self._note_default()
        self._template.set_object_property(name, value)
        return self

    def clear_properties(self) -> Self:
        """Stop setting properties on messages."""
        self._note_default()
        self._template.clear_properties()
        return self

    def property_names(self) -> set[str]:
        """Return the names of the properties that every message sent gets."""
        return self._template.property_names()

    def property_exists(self, name: str) -> bool:
        """Return True if every message sent gets this property."""
        return self._template.property_exists(name)

    def get_boolean_property(self, name: str) -> bool:
        """Return the property as a boolean, converted as `Message.get_boolean_property` does."""
        return self._template.get_boolean_property(name)

    def get_byte_property(self, name: str) -> int:
        """Return the property as a byte, converted as `Message.get_byte_property` does."""
        return self._template.get_byte_property(name)

    def get_short_property(self, name: str) -> int:
        """Return the property as a short, converted as `Message.get_short_property` does."""
        return self._template.get_short_property(name)

    def get_int_property(self, name: str) -> int:
        """Return the property as an int, converted as `Message.get_int_property` does."""
        return self._template.get_int_property(name)

    def get_long_property(self, name: str) -> int:
        """Return the property as a long, converted as `Message.get_long_property` does."""
        return self._template.get_long_property(name)

    def get_float_property(self, name: str) -> float:
        """Return the property as a float, converted as `Message.get_float_property` does."""
        return self._template.get_float_property(name)

    def get_double_property(self, name: str) -> float:
        """Return the property as a double, converted as `Message.get_double_property` does."""
        return self._template.get_double_property(name)

    def get_string_property(self, name: str) -> str | None:
        """Return the property as a string, converted as `Message.get_string_property` does."""
        return self._template.get_string_property(name)

    def get_object_property(self, name: str) -> PropertyValue:
        """Return the property with the type that it was set with, or None if there is none."""
        return self._template.get_object_property(name)


class AnyJMSProducer(MessageDefaults):
    """Common part of the `JMSProducer` for asyncio and that for threads, which wait for room in different ways."""

    __slots__ = ("_async_listener", "_frame_body", "_frames_bodies", "_outbox", "_retaining")

    def __init__(self, outbox: Outbox, retaining: Retaining) -> None:
        super().__init__()
        self._outbox = outbox
        self._retaining = retaining
        self._async_listener: CompletionListener | None = None
        self._frame_body = outbox.frame_body
        self._frames_bodies = outbox.frames_bodies
        """False if sends need messages, for example because a listener is to get them."""

    def __repr__(self) -> str:
        return f"<JMSProducer to any destination{self._state()}{', closed' if self._outbox.is_closed else ''}>"

    @named("JMSContext.send")  # which passes what the caller passes: errors name it
    def _frame(
        self,
        dest: Destination,
        body: Any = None,
        properties: Mapping[str, PropertyValue] | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        delivery_delay: int | None = None,
        correlation_id: str | None = None,
        reply_to: Destination | None = None,
        type: str | None = None,  # noqa: A002
        retain: Retain = False,
    ) -> tuple[Post, Message | None]:
        """Return the frame to send, and the message that it is made from. Nothing has been sent yet.

        A body without headers of its own is framed without a message, unless a listener is to get the message.
        """
        destination = dest if isinstance(dest, Destination) else check_destination(dest)
        delay = self._delivery_delay if delivery_delay is None else check_delivery_delay(delivery_delay)
        flags, level, lifetime = self._flags, self._priority, self._time_to_live
        if delivery_mode is not None or priority is not None or time_to_live is not None:
            flags, level, lifetime = self._chosen(delivery_mode, priority, time_to_live)
        if (
            (encoder := _ENCODERS.get(_type_of(body))) is not None
            and self._frames_bodies
            and not self._has_defaults
            and correlation_id is None
            and reply_to is None
            and type is None
            and not delay
        ):
            kind, encode = encoder
            try:
                encoded = body if encode is None else encode(body)
            except (MessageFormatError, ValueError):
                pass  # another kind of message may take it; otherwise making the message tells what is wrong
            else:
                given = b""
                if properties is not None:
                    given = encode_given(properties if _type_of(properties) is dict else _mapping_of(properties))
                post = self._frame_body(kind, given, encoded, destination, flags, level, lifetime)
                return (post if retain is False else self._retaining.post(post, retain)), None
        message = body if _type_of(body) in PLAIN_CLASSES else message_of(body, self._outbox.codec)
        if self._has_defaults:
            self._apply_defaults(message)
        if properties is not None:
            _put_properties(message, properties)
        if correlation_id is not None:
            message.correlation_id = correlation_id
        if reply_to is not None:
            message.reply_to = reply_to
        if type is not None:
            message.type = type
        flags = delayed(message, flags, lifetime, delay)
        post = self._outbox.frame(message, destination, flags, level, lifetime, delay)
        if body is not message and is_foreign(body):
            stamp_foreign(body, message)
        return (post if retain is False else self._retaining.post(post, retain)), message

    def _frame_many(
        self,
        dest: Destination,
        bodies: Iterable[Any],
        properties: Mapping[str, PropertyColumn] | None,
        delivery_mode: int | None,
        priority: int | None,
        time_to_live: int | None,
        retain: Retain,
    ) -> tuple[BatchPost, list[Message] | None]:
        """Return the frames of a batch and, for the listener of asynchronous sends, its messages. Nothing has been sent
        yet."""
        messages: list[Message] | None = None if self._async_listener is None else []
        flags, level, lifetime = self._chosen(delivery_mode, priority, time_to_live)
        delay = self._delivery_delay
        options = delayed(None, flags, lifetime, delay), level, lifetime, delay
        apply, destination = self._apply_defaults, check_destination(dest)
        post = frame_batch(self._outbox, destination, bodies, properties, options, message_of, apply, messages)
        return (post if retain is False else self._retaining.batch(post, retain)), messages

    def set_disable_message_id(self, value: bool) -> Self:
        """Set `disable_message_id`, and return the producer."""
        self.disable_message_id = value
        return self

    def set_disable_message_timestamp(self, value: bool) -> Self:
        """Set `disable_message_timestamp`, and return the producer."""
        self.disable_message_timestamp = value
        return self

    def set_delivery_mode(self, value: int) -> Self:
        """Set `delivery_mode`, and return the producer."""
        self.delivery_mode = DeliveryMode(check_delivery_mode(value) + 1)
        return self

    def set_priority(self, value: int) -> Self:
        """Set `priority`, and return the producer."""
        self.priority = value
        return self

    def set_time_to_live(self, value: int) -> Self:
        """Set `time_to_live`, in milliseconds, and return the producer."""
        self.time_to_live = value
        return self

    def set_delivery_delay(self, value: int) -> Self:
        """Set `delivery_delay`, and return the producer."""
        self.delivery_delay = value
        return self

    @property
    def async_listener(self) -> CompletionListener | None:
        """Listener for the outcomes of sends. If it is set, sends are asynchronous."""
        return self._async_listener

    @async_listener.setter
    def async_listener(self, listener: CompletionListener | None) -> None:
        check_listener("async_listener", listener)
        self._async_listener = listener
        self._frames_bodies = self._outbox.frames_bodies and listener is None

    def set_async(self, value: CompletionListener | None) -> Self:
        """Set `async_listener`, and return the producer."""
        self.async_listener = value
        return self


class JMSProducer(AnyJMSProducer):
    """Producer of a context. It is cheap, is bound to no destination, and needs no closing.

    Every option can be set as a property, or by `set_...`, which returns the producer.
    """

    __slots__ = ()

    def send(
        self,
        dest: Destination,
        body: Any = None,
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        delivery_delay: int | None = None,
        correlation_id: str | None = None,
        reply_to: Destination | None = None,
        type: str | None = None,  # noqa: A002
        retain: Retain = False,
    ) -> Coroutine[Any, Any, Self]:
        """Send a message, or a body (str, bytes, mapping, path, None, or any other object) as a message of its kind.

        The producer's options, headers and properties override those of the message. The arguments override both, for
        this message alone. The message is sent as it and the producer are at the call, even if the coroutine returned
        is awaited later, or in another task.

        With `retain`, keepers keep the message as a last value; see `MessageProducer.send`.
        """
        post, message = self._frame(
            dest,
            body,
            properties,
            delivery_mode,
            priority,
            time_to_live,
            delivery_delay,
            correlation_id,
            reply_to,
            type,
            retain,
        )
        if retain is not False:
            return self._put_value(post, message, self._async_listener, need_of(body))
        return self._put(post) if self._async_listener is None else self._put_told(post, message, self._async_listener)

    def send_many(
        self,
        dest: Destination,
        bodies: Iterable[Any],
        properties: Mapping[str, PropertyColumn] | None = None,
        *,
        delivery_mode: int | None = None,
        priority: int | None = None,
        time_to_live: int | None = None,
        retain: Retain = False,
    ) -> Coroutine[Any, Any, Self]:
        """Send a message for each body, in order, as `send` does one by one. If all bodies are bytes, or all are texts,
        this takes a fraction of the time.

        A property is one value for all messages, or a list or numpy array with one for each. Nothing is sent if a body
        or a property cannot be.
        """
        if retain is not False:
            bodies = listed(bodies)
        post, messages = self._frame_many(dest, bodies, properties, delivery_mode, priority, time_to_live, retain)
        need = None if retain is False else need_of_all(bodies)
        return self._put_many(post, messages, self._async_listener, need)

    @named("JMSProducer.send_many")
    async def _put_many(
        self, post: BatchPost, messages: list[Message] | None, listener: CompletionListener | None, need: Need | None
    ) -> Self:
        if need is not None:
            await self._retaining.admit(post[0], need)
        if messages is None:
            waiting = self._outbox.put_many(post)
            self._sends.messages += messages_in(post)
            if waiting is not None:
                await self._wait(waiting)
            return self
        for one, message in zip(posts_of(post), messages, strict=True):
            waiting = self._outbox.put_async(one, message, listener, self._outbox.completions.new_outcome())
            self._sends.messages += 1
            if waiting is not None:
                await self._wait(waiting)
        return self

    @named("JMSProducer.send")
    async def _put(self, post: Post) -> Self:
        waiting = self._outbox.put(post)
        self._sends.messages += 1
        if waiting is not None:
            await self._wait(waiting)
        return self

    @named("JMSProducer.send")
    async def _put_value(
        self, post: Post, message: Message | None, listener: CompletionListener | None, need: Need
    ) -> Self:
        await self._retaining.admit(post[0], need)
        return await (self._put(post) if listener is None else self._put_told(post, message, listener))

    @named("JMSProducer.send")
    async def _put_told(self, post: Post, message: Message | None, listener: CompletionListener) -> Self:
        waiting = self._outbox.put_async(post, message, listener, self._outbox.completions.new_outcome())
        self._sends.messages += 1
        if waiting is not None:
            await self._wait(waiting)
        return self


def send_alone(
    producer: JMSProducer, dest: Destination, body: Any, reply_to: Destination | None, options: MessageOptions
) -> Coroutine[Any, Any, None]:
    """Send a message, or a body, for a context: nobody else has the producer."""
    if options or reply_to is not None:
        post, _ = producer._frame(dest, body, reply_to=reply_to, **options)
    else:
        post, _ = producer._frame(dest, body)
    if post[3] & RETAINED_SEND:
        return _sent_value(producer, post, need_of(body))
    return _sent(producer._outbox, post)


@named("JMSContext.send")
async def _sent_value(producer: JMSProducer, post: Post, need: Need) -> None:
    await producer._retaining.admit(post[0], need)
    await _sent(producer._outbox, post)


@named("JMSContext.send")
async def _sent(outbox: Outbox, post: Post) -> None:
    waiting = outbox.put(post)
    if waiting is not None:
        await waiting
