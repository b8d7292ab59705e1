"""Batches of messages that are sent with one call."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from fjm2.bus.publication import BatchPost, Outbox, Post
from fjm2.messages.batches.frame_array import FrameSettings
from fjm2.messages.bytes_message import BytesMessage
from fjm2.messages.destination import Destination
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.files.file_message import FileMessage
from fjm2.messages.foreign import MessageProtocol, adopt, stamp_foreign
from fjm2.messages.header import Kind, delay_section
from fjm2.messages.message import Message, put_property, snapshot
from fjm2.messages.object_codec import ObjectCodec
from fjm2.messages.properties import PropertyColumn, checked_property
from fjm2.messages.text_message import TextMessage
from fjm2.messages.types import encode_text

MakeMessage: TypeAlias = Callable[[Any, ObjectCodec], Message]
"""A function that returns the message to send for a body."""

_BYTES, _TEXT, _MESSAGE = int(Kind.BYTES), int(Kind.TEXT), int(Kind.MESSAGE)
_BYTE_TYPES = frozenset({bytes, bytearray, memoryview})


def frame_batch(
    outbox: Outbox,
    destination: Destination,
    bodies: Iterable[Any],
    properties: Mapping[str, PropertyColumn] | None,
    options: tuple[int, int, int, int],
    make: MakeMessage,
    apply: Callable[[Message], None],
    messages: list[Message] | None = None,
) -> BatchPost:
    """Return the frames of a batch. Nothing has been sent yet.

    `options` are flags, priority, time to live and delivery delay. `apply` sets the producer's properties and headers
    on a message. With a list of `messages`, every body becomes a message, and is added to it.
    """
    from fjm2.messages.batches.property_columns import PropertyColumns, rows_of  # only now: it loads numpy

    bodies = listed(bodies)
    properties = _checked(properties)
    flags, priority, time_to_live, delay = options
    timestamp, expiration = outbox.begin_batch(destination, time_to_live)
    encoded = _encode_bodies(bodies) if messages is None and outbox.frames_bodies else None
    template = Message()
    apply(template)
    kind, sections = _MESSAGE if encoded is None else encoded[0], snapshot(template)[2]
    if delay and encoded is not None:
        sections += delay_section(delay)
    settings = FrameSettings(destination, kind, flags, priority, timestamp, expiration, sections, delay)
    if encoded is not None:
        shared: dict[str, PropertyColumn] = {
            name: template.get_object_property(name) for name in template.property_names()
        }
        return outbox.frame_bodies(settings, encoded[1], PropertyColumns({**shared, **properties}, len(bodies)))
    made = [] if messages is None else messages

    def make_all() -> Iterator[Message]:
        for body, row in zip(bodies, rows_of(properties, len(bodies)), strict=True):
            try:
                message = make(body, outbox.codec)
            except MessageFormatError as error:
                raise type(error)(f"bodies[{len(made)}]: {error}") from error
            if isinstance(message, FileMessage):
                raise MessageFormatError(f"bodies[{len(made)}]: a file cannot be part of a batch: send it by itself")
            apply(message)
            for name, value in row.items():
                put_property(message, name, checked_property(name, value))
            made.append(message)
            yield message

    post = outbox.frame_messages(settings, make_all())
    for body, message in zip(bodies, made, strict=True):
        if body is not message and isinstance(body, MessageProtocol):
            stamp_foreign(body, message)
    return post


def sendable(body: object, codec: ObjectCodec) -> Message:
    """Return the message that a session's producer sends for a body of a batch. Raise MessageFormatError if it is
    neither a text nor bytes nor a message."""
    if isinstance(body, str):
        return TextMessage(body)
    if isinstance(body, bytes | bytearray | memoryview):
        return BytesMessage(body)
    return adopt(body, codec)


def messages_in(post: BatchPost) -> int:
    """Return the number of messages of a batch."""
    return sum(map(len, post[2]))


def posts_of(post: BatchPost) -> Iterator[Post]:
    """Return the messages of a batch one by one."""
    destination, priority, arrays, flags = post
    return ((destination, priority, parts, flags) for frames in arrays for parts in frames.parts())


def listed(bodies: Iterable[Any]) -> list[Any]:
    """Return the bodies as a list. Raise TypeError if they are one body."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping | Message) or not isinstance(bodies, Iterable):
        raise TypeError(f"bodies={bodies!r:.60}: expected a list of bodies; to send one body, use send")
    return list(bodies)


def _checked(properties: Mapping[str, PropertyColumn] | None) -> Mapping[str, PropertyColumn]:
    if properties is not None and not isinstance(properties, Mapping):
        raise MessageFormatError(f"properties={properties!r:.60}: expected a dict of names and values")
    return properties or {}


def _encode_bodies(bodies: list[Any]) -> tuple[int, list[bytes]] | None:
    """Return kind and encoded bodies of messages, if all bodies are texts, or all are bytes."""
    kinds = set(map(type, bodies))
    if kinds == {bytes}:
        return _BYTES, bodies
    if kinds == {str}:
        return _TEXT, list(map(encode_text, bodies))
    return (_BYTES, list(map(bytes, bodies))) if kinds <= _BYTE_TYPES else None
