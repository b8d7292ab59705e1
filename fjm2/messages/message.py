"""The message of JMS: headers, properties and, in subclasses, a body.

Seams for what lies above (producers, sessions, routers); users have no need of them:

- `snapshot(message)` gives the encoded parts of a message as it is now. They are kept until the message changes, so
  sending it again encodes nothing.
- `frame.FrameWriter` takes it, and stamps the message: it fills the headers that a send sets, and wipes what the client
  had put there.
- `open_message(head, body, header, ...)` makes a received message of a frame's two parts; nothing is decoded before it
  is asked for. They are bytes and never change, so a redelivery is made in the same way again, with a higher
  `delivery_count`, whatever has become of the first copy.
- `acknowledge` of `open_message` is the callable behind `message.acknowledge()`.
- `put_property(message, name, value)` sets a property whether the message is read-only or not: what the receiving side
  knows, such as JMS_FJM2_Gap (of those that begin with JMS, only the client's own are sent on), or what a JMSProducer
  adds to a message that it sends on.
"""

import builtins
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast, overload

from fjm2.base.done import DONE

from .client_headers import ClientHeaders
from .delivery import DEFAULT_DELIVERY_MODE, DEFAULT_PRIORITY, DeliveryMode
from .destination import Destination, destination_from
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
    read_short,
    read_string,
    to_stored_boolean,
    to_stored_bytes,
    to_stored_double,
    to_stored_int,
    to_stored_property,
    to_stored_string,
)

_T = TypeVar("_T")
_Acknowledge = Callable[[], Awaitable[None]]


class _Stamped(Generic[_T]):
    """A header that the send or the receiving side sets. What a client sets shows until the next send."""

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
    """A message without body, and the base of those that have one.

    All headers can be set at any time. Before a send only correlation id, reply-to and type are the client's: the
    others are overwritten by it. Properties and body of a received message are read-only until they are cleared.
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
    """What sort of body it has."""
    _kind_code: ClassVar[int] = int(Kind.MESSAGE)  # the Enum itself is slow

    _new_body: ClassVar[Any] = None
    """Of a message that is new, or cleared."""

    _head: bytes | None
    """What it was received as, up to the body; None if it was not, or once it is the client's own again."""
    _header: Header | None
    _destination: Destination | None
    _client: ClientHeaders | None
    _local: dict[str, Any] | None
    """Headers that the client set in place of the stamped ones."""
    _properties: dict[str, PropertyValue] | None
    _encoded_properties: bytes | None
    _are_properties_read_only: bool
    _body: Any
    """The subclass's; UNREAD as long as it is only there as it was received."""
    _encoded_body: bytes | None
    """As it was received, or as the subclass encoded it; None once the body has changed."""
    _position: int
    """How far a subclass has read."""
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
        # A kind of one's own makes a class of this library; subclasses of users are sent as what they derive from.
        if "_kind" in cls.__dict__:
            _CLASSES[cls._kind] = cls
            cls._kind_code = int(cls._kind)

    # Headers that a send sets.

    @_Stamped
    def destination(self) -> Destination | None:
        """Where it was sent to; None before."""
        if self._destination is None and self._head is not None and self._header is not None:
            name = self._head[HEADER_BYTES : HEADER_BYTES + self._header[NAME_BYTES]]
            try:
                self._destination = destination_from(self._header[FLAGS], name)
            except InvalidDestinationError as error:
                raise MessageFormatError("a destination that is none") from error
        return self._destination

    @_Stamped
    def delivery_mode(self) -> DeliveryMode:
        """As the send said."""
        if self._header is None:
            return DEFAULT_DELIVERY_MODE
        return DeliveryMode.PERSISTENT if self._header[FLAGS] & PERSISTENT else DeliveryMode.NON_PERSISTENT

    @_Stamped
    def message_id(self) -> str | None:
        """`ID:` and what makes it unique; None before the send, or if the producer was asked for none."""
        return message_id_of(self._header) if self._header is not None else None

    @_Stamped
    def timestamp(self) -> int:
        """When it was sent, in milliseconds since 1970 by the sender's clock; 0 if the producer was asked for none."""
        if self._header is None or self._header[FLAGS] & NO_TIMESTAMP:
            return 0
        return self._header[TIMESTAMP]

    @_Stamped
    def expiration(self) -> int:
        """When its time to live is over, in milliseconds since 1970 by the sender's clock; 0 means never."""
        return self._header[EXPIRATION] if self._header is not None else 0

    @_Stamped
    def delivery_time(self) -> int:
        """When it may be delivered, in milliseconds since 1970 by the sender's clock."""
        return self._header[TIMESTAMP] + self._delay() if self._header is not None else 0

    @_Stamped
    def priority(self) -> int:
        """From 0 to 9."""
        return self._header[PRIORITY] if self._header is not None else DEFAULT_PRIORITY

    @_Stamped
    def redelivered(self) -> bool:
        """Whether it may have been delivered before."""
        return self._delivery_count > 1

    def _delay(self) -> int:
        if self._head is None or self._header is None or not self._header[SECTION_BYTES]:
            return 0
        content = sections_of(self._head, self._header).get(Section.DELIVERY_DELAY)
        return decode_delay(content) if content is not None else 0

    @property
    def delivery_count(self) -> int:
        """How many times it was delivered, this time included; 0 if it was not received. Also JMSXDeliveryCount."""
        return self._delivery_count

    # Headers of the client.

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
        """What links this message to another. Of an id that was set as bytes: its text, None if it is no UTF-8."""
        return self._read_client().correlation_text

    @correlation_id.setter
    def correlation_id(self, value: str | None) -> None:
        self._read_client().correlation = to_stored_string(value)

    @property
    def correlation_id_bytes(self) -> bytes | None:
        """The same as bytes. Of an id that was set as text: its UTF-8. Setting one of the two replaces the other."""
        correlation = self._read_client().correlation
        return encode_text(correlation) if isinstance(correlation, str) else correlation

    @correlation_id_bytes.setter
    def correlation_id_bytes(self, value: bytes | bytearray | memoryview | None) -> None:
        self._read_client().correlation = None if value is None else to_stored_bytes(value)

    @property
    def reply_to(self) -> Destination | None:
        """Where an answer is expected."""
        return self._read_client().reply_to

    @reply_to.setter
    def reply_to(self, value: Destination | None) -> None:
        if value is not None and not isinstance(value, Destination):
            raise InvalidDestinationError(f"{value!r} is no destination")
        self._read_client().reply_to = value

    @property
    def type(self) -> str | None:
        """What the client calls this sort of message."""
        return self._read_client().type

    @type.setter  # noqa: A003
    def type(self, value: str | None) -> None:
        self._read_client().type = to_stored_string(value)

    jms_type = type  # noqa: A003
    """The same as `type`."""

    # Properties.

    @property
    def properties(self) -> Properties:
        """A view of the properties; what is assigned to a name is set, nothing can be deleted."""
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
        """Names of all properties that were set."""
        return set(self._read_properties())

    def property_exists(self, name: str) -> bool:
        """Whether it was set, be it to None."""
        return name in self._read_properties()

    def clear_properties(self) -> None:
        """Remove all properties; new ones can be set, of a received message too. The body stays."""
        self._properties = {}
        self._encoded_properties = None
        self._are_properties_read_only = False

    def get_boolean_property(self, name: str) -> bool:
        """The property as a boolean. MessageFormatError if it cannot be read as one."""
        return read_boolean(self._read_properties().get(name))

    def get_byte_property(self, name: str) -> int:
        """The property as a byte. MessageFormatError if it cannot be read as one."""
        return read_byte(self._read_properties().get(name))

    def get_short_property(self, name: str) -> int:
        """The property as a short. MessageFormatError if it cannot be read as one."""
        return read_short(self._read_properties().get(name))

    def get_int_property(self, name: str) -> int:
        """The property as an int. MessageFormatError if it cannot be read as one."""
        return read_int(self._read_properties().get(name))

    def get_long_property(self, name: str) -> int:
        """The property as a long. MessageFormatError if it cannot be read as one."""
        return read_long(self._read_properties().get(name))

    def get_float_property(self, name: str) -> float:
        """The property as a float. MessageFormatError if it cannot be read as one."""
        return read_float(self._read_properties().get(name))

    def get_double_property(self, name: str) -> float:
        """The property as a double. MessageFormatError if it cannot be read as one."""
        return read_double(self._read_properties().get(name))

    def get_string_property(self, name: str) -> str | None:
        """The property as a string. MessageFormatError if it cannot be read as one."""
        return read_string(self._read_properties().get(name))

    def get_object_property(self, name: str) -> PropertyValue:
        """The value with the type it was set with; None if there is none."""
        return self._read_properties().get(name)

    def set_boolean_property(self, name: str, value: bool) -> None:
        """Set a property of type boolean."""
        self._set_property(name, to_stored_boolean(value))

    def set_byte_property(self, name: str, value: int) -> None:
        """Set a property of type byte."""
        self._set_property(name, Byte(value))

    def set_short_property(self, name: str, value: int) -> None:
        """Set a property of type short."""
        self._set_property(name, Short(value))

    def set_int_property(self, name: str, value: int) -> None:
        """Set a property of type int."""
        if type(value) is not int or not INT_MIN <= value <= INT_MAX:
            value = to_stored_int(value)
        self._set_property(name, value)

    def set_long_property(self, name: str, value: int) -> None:
        """Set a property of type long."""
        self._set_property(name, Long(value))

    def set_float_property(self, name: str, value: float) -> None:
        """Keeps 32 bits of the value."""
        self._set_property(name, Float(value))

    def set_double_property(self, name: str, value: float) -> None:
        """Set a property of type double."""
        self._set_property(name, to_stored_double(value))

    def set_string_property(self, name: str, value: str | None) -> None:
        """Set a property of type string."""
        self._set_property(name, to_stored_string(value))

    def set_object_property(self, name: str, value: PropertyValue) -> None:
        """Set a value with the type it has; an int is an int if 32 bits hold it, otherwise a long."""
        self._set_property(name, to_stored_property(value))

    def _set_property(self, name: str, value: PropertyValue) -> None:
        if self._are_properties_read_only:
            raise MessageNotWriteableError("the properties of a received message are read-only until they are cleared")
        if name not in known_names:
            check_name(name, value)
        if self._properties is None:
            self._read_properties()[name] = value
        else:
            self._properties[name] = value
        self._encoded_properties = None

    # The body.

    def clear_body(self) -> None:
        """Back to the empty body of a new message, which can be written. Headers and properties stay."""
        self._body = self._new_body
        self._encoded_body = None
        self._position = 0
        self._is_body_read_only = False

    def get_body(self, type: builtins.type[_T]) -> _T | None:  # noqa: A002
        """The body, if it is of this type; None if there is none. MessageFormatError if it is of another type.

        No bytes and a map without items are given as such where the type fits, and count as no body where not.
        """
        body = self._get_body()
        if isinstance(body, type):
            return body
        if self._is_nothing(body):
            return None
        raise MessageFormatError(f"the body of this {_name_of(self)} is no {type.__name__}")

    def is_body_assignable_to(self, type: builtins.type[Any]) -> bool:  # noqa: A002
        """Whether `get_body` would give the body as this type; of a message without body, for every type."""
        try:
            body = self._get_body()
        except MessageFormatError:
            return False
        return isinstance(body, type) or self._is_nothing(body)

    def _is_nothing(self, body: object) -> bool:
        """Whether the message counts as one without body."""
        return body is None

    def _get_body(self) -> object:
        """The whole body; None if there is none, MessageFormatError if this kind does not give it away."""
        return None

    def _check_body_writeable(self) -> None:
        if self._is_body_read_only:
            raise MessageNotWriteableError("this body is read-only until it is cleared")

    def _load_body(self) -> None:
        """Decode what is only there as it was received."""

    def _encode_body(self) -> bytes | None:
        """The body as it travels; None if it is null."""
        return b""

    def _prepare(self) -> None:
        """Fill the slots that a subclass has beside the common ones; of kinds from STREAM on."""

    # Delivery.

    def acknowledge(self) -> Awaitable[None]:
        """Acknowledge all messages that the session has delivered so far. Matters in CLIENT_ACKNOWLEDGE mode only."""
        return DONE if self._acknowledge is None else self._acknowledge()

    def __repr__(self) -> str:
        return f"<{_name_of(self)} {self.message_id}>"


_CLASSES: dict[int, type[Message]] = {Kind.MESSAGE: Message}
_FIRST_WITH_MORE: Final = int(Kind.STREAM)


class _Unread(Enum):
    BODY = "as it was received"


UNREAD: Final = _Unread.BODY


def _name_of(message: Message) -> str:
    return type(message).__name__


def open_message(
    head: bytes,
    body: bytes,
    header: Header,
    delivery_count: int = 1,
    acknowledge: _Acknowledge | None = None,
    destination: Destination | None = None,
) -> Message:
    """A received message of a frame, cut where its body begins, whose fixed header was checked, as `FrameReader` does.

    What turns out malformed raises MessageFormatError when it is asked for.
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
    """Return kind, properties, client headers and body as they are now, encoded; the body is None if it is null."""
    if message._head is not None:
        _detach(message)
    properties = message._encoded_properties
    if properties is None:
        properties = encode_properties(message._properties) if message._properties else b""
        message._encoded_properties = properties
    client = message._client
    return message._kind_code, properties, b"" if client is None else client.encode(), message._encode_body()


def stamp(message: Message, header: Header, destination: Destination, delivery_time: int | None) -> None:
    """Give a message the headers that it is sent with. They replace those that the client has set.

    `delivery_time` is passed only if it differs from the timestamp of the header.
    """
    message._header = header
    message._destination = destination
    message._local = None if delivery_time is None else {"delivery_time": delivery_time}


def _detach(message: Message) -> None:
    """Make a received message the client's own, since it is to be sent on."""
    message._load_body()
    message._read_client()
    properties = message._read_properties()
    message._properties = {name: value for name, value in properties.items() if travels(name)}
    message._head = None


def put_property(message: Message, name: str, value: PropertyValue) -> None:
    """Set a property without any check, read-only or not; the value as `types.to_stored_property` gives it."""
    message._read_properties()[name] = value
    message._encoded_properties = None
