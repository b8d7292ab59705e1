"""The JMS message: headers, properties and, in subclasses, a body.

Functions for the layers above (producers, sessions, routers). Applications do not need them:

- `snapshot(message)` returns the encoded parts of a message as it is now. They are kept until the message changes, so
  that sending it again encodes nothing.
- `stamp(message, ...)` sets the headers of a send, in place of those that the client set. `FrameWriter` calls both.
- `open_message(head, body, header, ...)` makes a received message from the two parts of a frame, and decodes nothing
  until it is asked for. Both parts are immutable bytes, so a redelivery is made from them again, with a higher
  `delivery_count`, whatever the application did to the first copy.
- `put_property(message, name, value)` sets a property even if the message is read-only. Receivers add such properties,
  which are not sent on, for example JMS_FJM2_Gap. A JMSProducer adds some to messages that it forwards.
"""

import builtins
from collections.abc import Awaitable, Callable
from enum import Enum
from types import UnionType
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast, overload

from fjm2.base.done import DONE
from fjm2.base.functions import classes_of, type_text
from fjm2.base.quantities import shortened

from .client_headers import ClientHeaders
from .delivery import DEFAULT_DELIVERY_MODE, DEFAULT_PRIORITY, DeliveryMode
from .destination import Destination, TopicPattern, destination_from, not_a_destination, not_sendable
from .errors import InvalidDestinationError, MessageFormatError, MessageNotWriteableError
from .header import (
    EXPIRATION,
    FLAGS,
    HEADER_BYTES,
    KIND,
    NAME_BYTES,
    NO_TIMESTAMP,
    PERSISTENT,
    PRIORITY,
    PROPERTY_BYTES,
    SECTION_BYTES,
    TIMESTAMP,
    Header,
    Kind,
    Section,
    decode_delay,
    message_id_of,
    sections_of,
)
from .properties import (
    DELIVERY_COUNT,
    Properties,
    check_name,
    decode_properties,
    encode_properties,
    known_names,
    preview,
    stored_property,
    stored_text,
    travels,
)
from .types import (
    INT_MAX,
    INT_MIN,
    Byte,
    Float,
    Long,
    PropertyValue,
    Short,
    encode_text,
    read_boolean,
    read_byte,
    read_double,
    read_float,
    read_int,
    read_long,
    read_property,
    read_short,
    read_string,
    to_stored_boolean,
    to_stored_bytes,
    to_stored_double,
    to_stored_int,
    to_stored_string,
)

_SHOWN_CHARACTERS_MAX: Final = 60
"""Length of an excerpt in `repr`, so that a message fits a line of a log."""

_T = TypeVar("_T")
_Acknowledge = Callable[[], Awaitable[None]]


class _Stamped(Generic[_T]):
    """A header that the send or the receiver sets. A value that the client sets is visible only until the next send."""

    def __init__(self, read: Callable[["Message"], _T]) -> None:
        self._read = read
        self.__doc__ = read.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, message: None, owner: type) -> Self: ...
    @overload
    def __get__(self, message: "Message", owner: type) -> _T: ...
    def __get__(self, message: "Message | None", owner: type) -> Self | _T:
        if message is None:
            return self
        local = message._local
        if local is not None and self._name in local:
            return cast(_T, local[self._name])
        return self._read(message)

    def __set__(self, message: "Message", value: _T) -> None:
        if message._local is None:
            message._local = {}
        message._local[self._name] = value


class Message:
    """A message without a body, and the base of messages with a body.

    All headers can be set at any time. Only correlation id, reply-to and type are sent as set, because a send
    overwrites the others. Properties and body of a received message are read-only until they are cleared.
    """

    __slots__ = (
        "_acknowledge",
        "_are_properties_read_only",
        "_body",
        "_client",
        "_delivery_count",
        "_destination",
        "_encoded_body",
        "_encoded_properties",
        "_head",
        "_header",
        "_is_body_read_only",
        "_local",
        "_position",
        "_properties",
    )

    _kind: ClassVar[Kind] = Kind.MESSAGE
    """Kind of the message, which depends on its body."""
    _kind_code: ClassVar[int] = int(Kind.MESSAGE)  # plain int: reading an Enum member is slow

    _new_body: ClassVar[Any] = None
    """Body of a message that is new or cleared."""

    _head: bytes | None
    """The received frame up to its body; None if the message was not received, or has been sent on."""
    _header: Header | None
    _destination: Destination | None
    _client: ClientHeaders | None
    _local: dict[str, Any] | None
    """Headers that the client set in place of those that the send or the receiver sets."""
    _properties: dict[str, PropertyValue] | None
    _encoded_properties: bytes | None
    _are_properties_read_only: bool
    _body: Any
    """Body as the subclass holds it; UNREAD while only the encoded body is there."""
    _encoded_body: bytes | None
    """Body as received, or as the subclass encoded it; None once the body has changed."""
    _position: int
    """Position in the body up to which a subclass has read."""
    _is_body_read_only: bool
    _delivery_count: int
    _acknowledge: _Acknowledge | None

    def __init__(self) -> None:
        self._head = self._header = self._destination = self._client = self._local = None
        self._properties = self._encoded_properties = self._encoded_body = self._acknowledge = None
        self._are_properties_read_only = self._is_body_read_only = False
        self._position = self._delivery_count = 0
        self._body = self._new_body

    def __init_subclass__(cls) -> None:
        # Only classes of this library define a kind. Subclasses by users are sent as the kind that they derive from.
        if "_kind" in cls.__dict__:
            _CLASSES[cls._kind] = cls
            cls._kind_code = int(cls._kind)
        if cls._kind <= Kind.OBJECT:
            PLAIN_CLASSES.add(cls)

    @_Stamped
    def destination(self) -> Destination | None:
        """Destination that the message was sent to; None before the send."""
        if self._destination is None and self._head is not None and self._header is not None:
            name = self._head[HEADER_BYTES : HEADER_BYTES + self._header[NAME_BYTES]]
            try:
                self._destination = destination_from(self._header[FLAGS], name)
            except InvalidDestinationError as error:
                raise MessageFormatError("the frame names an invalid destination") from error
        return self._destination

    @_Stamped
    def delivery_mode(self) -> DeliveryMode:
        """Delivery mode that the message was sent with, or the default before it is sent."""
        if self._header is None:
            return DEFAULT_DELIVERY_MODE
        return DeliveryMode.PERSISTENT if self._header[FLAGS] & PERSISTENT else DeliveryMode.NON_PERSISTENT

    @_Stamped
    def message_id(self) -> str | None:
        """Unique id of the message, beginning with `ID:`. None before the send, or if the producer disabled message
        ids."""
        return message_id_of(self._header) if self._header is not None else None

    @_Stamped
    def timestamp(self) -> int:
        """Time of the send, in milliseconds since 1970 by the sender's clock; 0 if the producer disabled timestamps."""
        if self._header is None or self._header[FLAGS] & NO_TIMESTAMP:
            return 0
        return self._header[TIMESTAMP]

    @_Stamped
    def expiration(self) -> int:
        """Time at which the message expires, in milliseconds since 1970 by the sender's clock; 0 if it never
        expires."""
        return self._header[EXPIRATION] if self._header is not None else 0

    @_Stamped
    def delivery_time(self) -> int:
        """Time from which the message may be delivered, in milliseconds since 1970 by the sender's clock."""
        return self._header[TIMESTAMP] + self._delay() if self._header is not None else 0

    @_Stamped
    def priority(self) -> int:
        """Priority from 0 to 9."""
        return self._header[PRIORITY] if self._header is not None else DEFAULT_PRIORITY

    @_Stamped
    def redelivered(self) -> bool:
        """True if the message may have been delivered before."""
        return self._delivery_count > 1

    def _delay(self) -> int:
        if self._head is None or self._header is None or not self._header[SECTION_BYTES]:
            return 0
        content = sections_of(self._head, self._header).get(Section.DELIVERY_DELAY)
        return decode_delay(content) if content is not None else 0

    @property
    def delivery_count(self) -> int:
        """Number of deliveries of the message, this one included; 0 if it was not received. Also the property
        JMSXDeliveryCount."""
        return self._delivery_count

    def _read_client(self) -> ClientHeaders:
        client = self._client
        if client is None:
            client = ClientHeaders()
            if self._head is not None and self._header is not None and self._header[SECTION_BYTES]:
                client = ClientHeaders.decode(sections_of(self._head, self._header))
            self._client = client
        return client

    @property
    def correlation_id(self) -> str | None:
        """Text that links this message to another. If it was set as bytes, their text, or None if they are not
        UTF-8."""
        return self._read_client().correlation_text

    @correlation_id.setter
    def correlation_id(self, value: str | None) -> None:
        self._read_client().correlation = stored_text("correlation_id", value)

    @property
    def correlation_id_bytes(self) -> bytes | None:
        """The correlation id as bytes. If it was set as text, the text in UTF-8. Setting one of the two replaces the
        other."""
        correlation = self._read_client().correlation
        return encode_text(correlation) if isinstance(correlation, str) else correlation

    @correlation_id_bytes.setter
    def correlation_id_bytes(self, value: bytes | bytearray | memoryview | None) -> None:
        self._read_client().correlation = None if value is None else to_stored_bytes(value)

    @property
    def reply_to(self) -> Destination | None:
        """Destination where a reply is expected."""
        return self._read_client().reply_to

    @reply_to.setter
    def reply_to(self, value: Destination | None) -> None:
        if value is not None and not isinstance(value, Destination):
            raise not_a_destination(value)
        if isinstance(value, TopicPattern):
            raise not_sendable(value)
        self._read_client().reply_to = value

    @property
    def type(self) -> str | None:
        """Type of message, a name of the application's choice."""
        return self._read_client().type

    @type.setter  # noqa: A003
    def type(self, value: str | None) -> None:
        self._read_client().type = stored_text("type", value)

    jms_type = type  # noqa: A003
    """The same as `type`."""

    @property
    def properties(self) -> Properties:
        """The properties as a mapping. Assigning an item sets a property; single properties cannot be deleted."""
        return Properties(self)

    def _read_properties(self) -> dict[str, PropertyValue]:
        properties = self._properties
        if properties is None:
            properties = {}
            if self._head is not None and self._header is not None:
                at = HEADER_BYTES + self._header[NAME_BYTES]
                properties = decode_properties(self._head, at, at + self._header[PROPERTY_BYTES])
                properties[DELIVERY_COUNT] = self._delivery_count
            self._properties = properties
        return properties

    def property_names(self) -> set[str]:
        """Return the names of all properties."""
        return set(self._read_properties())

    def property_exists(self, name: str) -> bool:
        """Return True if the property is set, even to None."""
        return name in self._read_properties()

    def clear_properties(self) -> None:
        """Remove all properties, and make properties writable, also in a received message. The body stays."""
        self._properties = {}
        self._encoded_properties = None
        self._are_properties_read_only = False

    def get_boolean_property(self, name: str) -> bool:
        """Return the property as a boolean. Raise MessageFormatError if it cannot be converted."""
        return read_property(read_boolean, self._read_properties(), name)

    def get_byte_property(self, name: str) -> int:
        """Return the property as a byte. Raise MessageFormatError if it cannot be converted."""
        return read_property(read_byte, self._read_properties(), name)

    def get_short_property(self, name: str) -> int:
        """Return the property as a short. Raise MessageFormatError if it cannot be converted."""
        return read_property(read_short, self._read_properties(), name)

    def get_int_property(self, name: str) -> int:
        """Return the property as an int. Raise MessageFormatError if it cannot be converted."""
        return read_property(read_int, self._read_properties(), name)

    def get_long_property(self, name: str) -> int:
        """Return the property as a long. Raise MessageFormatError if it cannot be converted."""
        return read_property(read_long, self._read_properties(), name)

    def get_float_property(self, name: str) -> float:
        """Return the property as a float. Raise MessageFormatError if it cannot be converted."""
        return read_property(read_float, self._read_properties(), name)

    def get_double_property(self, name: str) -> float:
        """Return the property as a double. Raise MessageFormatError if it cannot be converted."""
        return read_property(read_double, self._read_properties(), name)

    def get_string_property(self, name: str) -> str | None:
        """Return the property as a string. Raise MessageFormatError if it cannot be converted."""
        return read_property(read_string, self._read_properties(), name)

    def get_object_property(self, name: str) -> PropertyValue:
        """Return the value of the property with the type that it was set with; None if the property does not exist."""
        return self._read_properties().get(name)

    def set_boolean_property(self, name: str, value: bool) -> None:
        """Set a property of type boolean."""
        self._set_property(name, stored_property(name, value, to_stored_boolean))

    def set_byte_property(self, name: str, value: int) -> None:
        """Set a property of type byte."""
        self._set_property(name, stored_property(name, value, Byte))

    def set_short_property(self, name: str, value: int) -> None:
        """Set a property of type short."""
        self._set_property(name, stored_property(name, value, Short))

    def set_int_property(self, name: str, value: int) -> None:
        """Set a property of type int."""
        is_plain = type(value) is int and INT_MIN <= value <= INT_MAX
        self._set_property(name, value if is_plain else stored_property(name, value, to_stored_int))

    def set_long_property(self, name: str, value: int) -> None:
        """Set a property of type long."""
        self._set_property(name, stored_property(name, value, Long))

    def set_float_property(self, name: str, value: float) -> None:
        """Set a property of type float, which keeps 32 bits of the value."""
        self._set_property(name, stored_property(name, value, Float))

    def set_double_property(self, name: str, value: float) -> None:
        """Set a property of type double."""
        self._set_property(name, value if type(value) is float else stored_property(name, value, to_stored_double))

    def set_string_property(self, name: str, value: str | None) -> None:
        """Set a property of type string."""
        is_plain = type(value) is str and value.isascii()
        self._set_property(name, value if is_plain else stored_property(name, value, to_stored_string))

    def set_object_property(self, name: str, value: PropertyValue) -> None:
        """Set a property with the type of the value. An int becomes an int if it fits 32 bits, a long otherwise."""
        self._set_property(name, stored_property(name, value))

    def _set_property(self, name: str, value: PropertyValue) -> None:
        if self._are_properties_read_only:
            raise MessageNotWriteableError("the properties are read-only: call clear_properties() to set them")
        if name not in known_names:
            check_name(name, value)
        if self._properties is None:
            self._read_properties()[name] = value
        else:
            self._properties[name] = value
        self._encoded_properties = None

    def clear_body(self) -> None:
        """Replace the body by the empty body of a new message, and make the body writable. Headers and properties
        stay."""
        self._body = self._new_body
        self._encoded_body = None
        self._position = 0
        self._is_body_read_only = False

    @overload
    def get_body(self, type: builtins.type[_T]) -> _T | None: ...
    @overload
    def get_body(self, type: UnionType) -> Any: ...
    def get_body(self, type: Any) -> Any:  # noqa: A002
        """Return the body if it is of this type, or None if there is none. Otherwise raise MessageFormatError.

        An empty bytes body counts as no body if the type does not fit it. Of a type like `dict[str, int]`, only `dict`
        is checked. A union, such as `str | bytes`, fits if one of its types does; other types raise TypeError.
        """
        body = self._get_body()
        if _is_of(body, type):
            return body
        if self._is_nothing(body):
            return None
        raise MessageFormatError(f"the body of {self!r} is {type_text(body.__class__)}: expected {type_text(type)}")

    def is_body_assignable_to(self, type: builtins.type[Any]) -> bool:  # noqa: A002
        """Return True if `get_body` returns a body of this type. A message without a body fits every type."""
        try:
            body = self._get_body()
        except MessageFormatError:
            return False
        return _is_of(body, type) or self._is_nothing(body)

    def _is_nothing(self, body: object) -> bool:
        """Return True if this body counts as no body."""
        return body is None

    def _get_body(self) -> Any:
        """Return the whole body; None if there is none.

        Raise MessageFormatError if this kind of body cannot be returned whole.
        """
        return None

    def _check_body_writeable(self) -> None:
        if self._is_body_read_only:
            raise MessageNotWriteableError("the body is read-only: call clear_body() to write it")

    def _load_body(self) -> None:
        """Decode the body if it is still encoded, as it was received."""

    def _encode_body(self) -> bytes | None:
        """Return the encoded body; None if the body is null."""
        return b""

    def _prepare(self) -> None:
        """Initialise the slots of a subclass in a received message. Called for STREAM and the kinds after it."""

    def acknowledge(self) -> Awaitable[None]:
        """Acknowledge all messages that the session has delivered so far. This has an effect in CLIENT_ACKNOWLEDGE mode
        only."""
        return DONE if self._acknowledge is None else self._acknowledge()

    def __repr__(self) -> str:
        """Return type, id, destination, properties and the beginning of the body. Nothing in it is long."""
        told = [_name_of(self), shortened(self.message_id or "without id", _SHOWN_CHARACTERS_MAX)]
        try:
            if self.destination is not None:
                told.append(f"to {shortened(str(self.destination), _SHOWN_CHARACTERS_MAX)}")
            if shown := preview(self.properties):
                told.append(f"with {shown}")
            if self._delivery_count > 1:
                told.append(f"delivery {self._delivery_count}")
            body = self._preview()
        except MessageFormatError as error:
            body = f"unreadable: {shortened(str(error), _SHOWN_CHARACTERS_MAX)}"
        return f"<{' '.join(told)}{body and ': '}{body}>"

    def _preview(self) -> str:
        """Return the beginning of the body as text, or an empty text if there is no body. Decode no more of it.

        Raise MessageFormatError if the body is malformed.
        """
        return ""


_CLASSES: dict[int, type[Message]] = {Kind.MESSAGE: Message}
PLAIN_CLASSES: set[type] = {Message}
"""Classes whose messages are one frame each: all but those of files."""
_FIRST_WITH_MORE: Final = int(Kind.STREAM)


class _Unread(Enum):
    BODY = "as it was received"


UNREAD: Final = _Unread.BODY


def _name_of(message: Message) -> str:
    return type(message).__name__


def _is_of(body: object, kind: type[Any]) -> bool:
    try:
        return isinstance(body, kind)
    except TypeError:
        return isinstance(body, classes_of(kind))


def open_message(
    head: bytes,
    body: bytes,
    header: Header,
    delivery_count: int = 1,
    acknowledge: _Acknowledge | None = None,
    destination: Destination | None = None,
) -> Message:
    """Return a received message, made from a frame that is cut where its body begins. The fixed header must be valid.

    Other malformed parts raise MessageFormatError when they are accessed.
    """
    kind = _CLASSES[header[KIND]]
    message = kind.__new__(kind)
    message._head = head
    message._header = header
    message._destination = destination
    message._client = message._local = message._properties = message._encoded_properties = None
    message._are_properties_read_only = message._is_body_read_only = True
    message._body = UNREAD
    message._encoded_body = body
    message._position = 0
    message._delivery_count = delivery_count
    message._acknowledge = acknowledge
    if header[KIND] >= _FIRST_WITH_MORE:
        message._prepare()
    return message


def snapshot(message: Message) -> tuple[int, bytes, bytes, bytes | None]:
    """Return kind, encoded properties, encoded client headers and encoded body of a message as it is now.

    The encoded body is None if the body is null.
    """
    if message._head is not None:
        _detach(message)
    properties = message._encoded_properties
    if properties is None:
        properties = encode_properties(message._properties) if message._properties else b""
        message._encoded_properties = properties
    client = message._client
    return message._kind_code, properties, b"" if client is None else client.encode(), message._encode_body()


def stamp(message: Message, header: Header, destination: Destination, delivery_time: int | None) -> None:
    """Set the headers that a message is sent with. They replace those that the client has set.

    `delivery_time` is None if it equals the timestamp of the header.
    """
    message._header = header
    message._destination = destination
    message._local = None if delivery_time is None else {"delivery_time": delivery_time}


def _detach(message: Message) -> None:
    """Turn a received message into a message of the client's own, to be sent on."""
    message._load_body()
    message._read_client()
    properties = message._read_properties()
    message._properties = {name: value for name, value in properties.items() if travels(name)}
    message._head = None


def put_property(message: Message, name: str, value: PropertyValue) -> None:
    """Set a property, even if the message is read-only. The value must be as `types.to_stored_property` returns it."""
    message._read_properties()[name] = value
    message._encoded_properties = None
