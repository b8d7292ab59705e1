"""NORM messages as small typed objects, one datagram at a time (RFC 5740, 4.2 and 4.3).

`decode` returns a message or raises `WireError`, whatever the bytes. `Message.encode` returns the bytes. Trains of DATA
take a faster path, in `data.py`.
"""

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from fjm2.base.errors import WireError

from .codes import VERSION, AckType, Flavor, MessageType
from .extensions import Extension, decode_extensions
from .layout import COMMON, FROM_RECEIVER, FROM_SENDER, OBJECT, struct_of
from .positions import PAYLOAD_ID_CODE, Position, RepairRequest, decode_position, decode_requests

_COMMON = struct_of(COMMON)
_SENDER = struct_of((*COMMON, *FROM_SENDER))
_OBJECT = struct_of((*COMMON, *FROM_SENDER, *OBJECT))
_RECEIVER = struct_of((*COMMON, *FROM_RECEIVER))
_NODE = struct.Struct(">I")
_OBJECT_ID = struct.Struct(">H")
_CC_NODE = struct.Struct(">IBBH")
_PAYLOAD_ID: dict[int, struct.Struct] = {fec_id: struct.Struct(">" + code) for fec_id, code in PAYLOAD_ID_CODE.items()}

HEADER_BYTES_MAX = 4 * 255
"""Length of the longest header in bytes: the length field has 8 bits, and counts words of 4 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Base of all NORM messages."""

    TYPE: ClassVar[MessageType]

    sequence: int = 0
    """Sequence number of the message. NACK and ACK are not numbered, and carry 0, as in libnorm."""
    source_id: int
    """Node id of the node that sends this message."""
    extensions: tuple[Extension, ...] = ()

    def encode(self) -> bytes:
        """Return the datagram. Raise WireError if a field is out of range."""
        try:
            extensions = b"".join(extension.encode() for extension in self.extensions)
            header_bytes = len(self._fixed(0)) + len(extensions)
            if header_bytes > HEADER_BYTES_MAX:
                raise WireError(f"header of {header_bytes} bytes, at most {HEADER_BYTES_MAX}", 1)
            return self._fixed(header_bytes // 4) + extensions + self._content()
        except WireError:
            raise
        except (struct.error, KeyError, ValueError) as error:
            raise WireError(f"cannot encode {self}: {error}", 0) from error

    def _fixed(self, words: int) -> bytes:
        """Return the header without extensions. `words` is the value of its length field."""
        raise TypeError(f"{type(self).__name__} of {words} words: an abstract message has no header")

    def _content(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FromSender(Message):
    """Base of INFO, DATA and CMD, with the fields of a sender: its incarnation, and its estimates of the group."""

    instance_id: int
    grtt_q: int
    backoff: int
    gsize_q: int

    @property
    def _backoff_gsize(self) -> int:
        if not (0 <= self.backoff <= 15 and 0 <= self.gsize_q <= 15):
            raise WireError(f"backoff={self.backoff}, gsize_q={self.gsize_q}: expected 0 to 15", 11)
        return self.backoff << 4 | self.gsize_q


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfObject(FromSender):
    flags: int
    fec_id: int
    object_id: int

    def _fixed(self, words: int) -> bytes:
        return _OBJECT.pack(
            VERSION << 4 | self.TYPE,
            words,
            self.sequence,
            self.source_id,
            self.instance_id,
            self.grtt_q,
            self._backoff_gsize,
            self.flags,
            self.fec_id,
            self.object_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Info(_OfObject):
    """NORM_INFO: the application's description of an object."""

    TYPE = MessageType.INFO

    content: bytes

    def _content(self) -> bytes:
        return self.content

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        """Decode a message whose common header fields are decoded already, and whose header ends at `end`."""
        fec_id = data[13]
        if fec_id not in _PAYLOAD_ID:
            raise WireError(f"unknown FEC id {fec_id}", 13)
        return cls(
            **common,
            flags=data[12],
            fec_id=fec_id,
            object_id=_OBJECT_ID.unpack_from(data, 14)[0],
            extensions=decode_extensions(data, _OBJECT.size, end, fec_id),
            content=data[end:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Data(_OfObject):
    """NORM_DATA: one symbol of an object."""

    TYPE = MessageType.DATA

    payload_id: int
    payload: bytes

    def _fixed(self, words: int) -> bytes:
        # Not super(): a slotted dataclass is a second class, which super() without arguments does not find.
        return _OfObject._fixed(self, words) + _PAYLOAD_ID[self.fec_id].pack(self.payload_id)

    def _content(self) -> bytes:
        return self.payload

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        """Decode a message whose common header fields are decoded already, and whose header ends at `end`."""
        position, start = _decode_position_header(data, end)
        return cls(
            **common,
            flags=data[12],
            fec_id=position.fec_id,
            object_id=position.object_id,
            payload_id=position.payload_id,
            extensions=decode_extensions(data, start, end, position.fec_id),
            payload=data[end:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(FromSender):
    """NORM_CMD of any flavor."""

    TYPE = MessageType.CMD
    FLAVOR: ClassVar[Flavor]

    def _fixed(self, words: int) -> bytes:
        return (
            _SENDER.pack(
                VERSION << 4 | self.TYPE,
                words,
                self.sequence,
                self.source_id,
                self.instance_id,
                self.grtt_q,
                self._backoff_gsize,
            )
            + bytes((self.FLAVOR,))
            + self._rest()
        )

    def _rest(self) -> bytes:
        """Return the header from byte 13 on."""
        return bytes(3)

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:  # noqa: ARG003 - abstract
        """Decode a message whose common header fields are decoded already, and whose header ends at `end`."""
        raise TypeError(f"{cls.__name__}: an abstract message cannot be decoded")


@dataclass(frozen=True, slots=True, kw_only=True)
class _AtPosition(Command):
    position: Position

    def _rest(self) -> bytes:
        fec_id, object_id, payload_id = self.position
        head = bytes((fec_id,)) + _OBJECT_ID.pack(object_id)
        return head + _PAYLOAD_ID[fec_id].pack(payload_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flush(_AtPosition):
    """CMD(FLUSH): everything up to a position has been sent. Nodes that it lists must acknowledge the position."""

    FLAVOR = Flavor.FLUSH

    acking_nodes: tuple[int, ...] = ()

    def _content(self) -> bytes:
        return _encode_all(_NODE, self.acking_nodes)

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        position, start = _decode_position_header(data, end)
        return cls(
            **common,
            position=position,
            extensions=decode_extensions(data, start, end, position.fec_id),
            acking_nodes=_decode_all(_NODE, data, end, "node id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Squelch(_AtPosition):
    """CMD(SQUELCH): data before a position, and the listed objects, cannot be repaired any more."""

    FLAVOR = Flavor.SQUELCH

    invalid_objects: tuple[int, ...] = ()

    def _content(self) -> bytes:
        return _encode_all(_OBJECT_ID, self.invalid_objects)

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        position, start = _decode_position_header(data, end)
        return cls(
            **common,
            position=position,
            extensions=decode_extensions(data, start, end, position.fec_id),
            invalid_objects=_decode_all(_OBJECT_ID, data, end, "object id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfTransmission(Command):
    """CMD(EOT): the sender leaves."""

    FLAVOR = Flavor.EOT

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        return cls(**common, extensions=decode_extensions(data, _COMMAND_BYTES, end, None))


@dataclass(frozen=True, slots=True, kw_only=True)
class CcNode:
    """State of one receiver in a CMD(CC), by which the sender tells it to the whole group."""

    node_id: int
    flags: int
    rtt_q: int
    rate_q: int


_CC_REST = struct.Struct(">BHII")


@dataclass(frozen=True, slots=True, kw_only=True)
class CongestionControl(Command):
    """CMD(CC): the round-trip probe, which is sent with and without congestion control."""

    FLAVOR = Flavor.CC

    reserved: int = 0
    """Reserved bits. The socket layer of libnorm uses bit 0 for its SYN."""
    cc_sequence: int
    send_time_s: int
    send_time_us: int
    nodes: tuple[CcNode, ...] = ()

    def _rest(self) -> bytes:
        return _CC_REST.pack(self.reserved, self.cc_sequence, self.send_time_s, self.send_time_us)

    def _content(self) -> bytes:
        return b"".join(_CC_NODE.pack(n.node_id, n.flags, n.rtt_q, n.rate_q) for n in self.nodes)

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        start = 13 + _CC_REST.size
        _need(end, start)
        reserved, cc_sequence, send_time_s, send_time_us = _CC_REST.unpack_from(data, 13)
        nodes = _decode_rows(_CC_NODE, data, end, "CC node")
        return cls(
            **common,
            extensions=decode_extensions(data, start, end, None),
            reserved=reserved,
            cc_sequence=cc_sequence,
            send_time_s=send_time_s,
            send_time_us=send_time_us,
            nodes=tuple(CcNode(node_id=i, flags=f, rtt_q=t, rate_q=r) for i, f, t, r in nodes),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairAdv(Command):
    """CMD(REPAIR_ADV): the sender's list of requests that arrived by unicast, so that nobody else need send them."""

    FLAVOR = Flavor.REPAIR_ADV

    flags: int = 0
    """Flags of the message: `REPAIR_ADV_LIMIT` if there was no room for all requests."""
    requests: tuple[RepairRequest, ...] = ()

    def _rest(self) -> bytes:
        return bytes((self.flags, 0, 0))

    def _content(self) -> bytes:
        return b"".join(request.encode() for request in self.requests)

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        return cls(
            **common,
            extensions=decode_extensions(data, _COMMAND_BYTES, end, None),
            flags=data[13],
            requests=decode_requests(data, end),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AckRequest(Command):
    """CMD(ACK_REQ): asks nodes for an acknowledgement of a type that the application defines."""

    FLAVOR = Flavor.ACK_REQ

    ack_type: int
    ack_id: int
    acking_nodes: tuple[int, ...] = ()

    def _rest(self) -> bytes:
        return bytes((0, self.ack_type, self.ack_id))

    def _content(self) -> bytes:
        return _encode_all(_NODE, self.acking_nodes)

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        return cls(
            **common,
            extensions=decode_extensions(data, _COMMAND_BYTES, end, None),
            ack_type=data[14],
            ack_id=data[15],
            acking_nodes=_decode_all(_NODE, data, end, "node id"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Application(Command):
    """CMD(APPLICATION): a short message of the application, which is not repaired."""

    FLAVOR = Flavor.APPLICATION

    content: bytes

    def _content(self) -> bytes:
        return self.content

    @classmethod
    def decode_body(cls, data: bytes, common: dict[str, Any], end: int) -> Self:
        extensions = decode_extensions(data, _COMMAND_BYTES, end, None)
        return cls(**common, extensions=extensions, content=data[end:])


@dataclass(frozen=True, slots=True, kw_only=True)
class FromReceiver(Message):
    """Base of NACK and ACK, with the sender that a message is for, and the echo that measures the round trip."""

    sender_id: int
    instance_id: int
    grtt_response_s: int = 0
    """Send time of the last CMD(CC) plus the time since its arrival, in whole seconds; 0 if none has arrived."""
    grtt_response_us: int = 0

    def _fixed(self, words: int) -> bytes:
        ack_type, ack_id = self._ack()
        return _RECEIVER.pack(
            VERSION << 4 | self.TYPE,
            words,
            self.sequence,
            self.source_id,
            self.sender_id,
            self.instance_id,
            ack_type,
            ack_id,
            self.grtt_response_s,
            self.grtt_response_us,
        )

    def _ack(self) -> tuple[int, int]:
        return 0, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nack(FromReceiver):
    """NORM_NACK: requests for repair."""

    TYPE = MessageType.NACK

    requests: tuple[RepairRequest, ...]

    def _content(self) -> bytes:
        return b"".join(request.encode() for request in self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(FromReceiver):
    """NORM_ACK: an answer to a CMD(CC), a watermark, or a CMD(ACK_REQ)."""

    TYPE = MessageType.ACK

    ack_type: int
    ack_id: int = 0
    content: bytes | Position = b""
    """Position of the watermark, or content of the application."""

    def _ack(self) -> tuple[int, int]:
        return self.ack_type, self.ack_id

    def _content(self) -> bytes:
        return self.content.encode() if isinstance(self.content, Position) else self.content


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Message):
    """NORM_REPORT: reserved for experiments, and not read here."""

    TYPE = MessageType.REPORT

    content: bytes

    def _fixed(self, words: int) -> bytes:
        return _COMMON.pack(VERSION << 4 | self.TYPE, words, self.sequence, self.source_id)

    def _content(self) -> bytes:
        return self.content


_COMMAND_BYTES = 16
"""Length of the fixed header of most commands: flavor and three more bytes follow the sender's fields."""
_COMMANDS: dict[int, type[Command]] = {
    command.FLAVOR: command
    for command in (
        Flush,
        EndOfTransmission,
        Squelch,
        CongestionControl,
        RepairAdv,
        AckRequest,
        Application,
    )
}


def decode(data: bytes) -> Message:
    """Return the message in a datagram. Raise WireError, and nothing else, if it is malformed."""
    if len(data) < _COMMON.size:
        raise WireError(f"datagram of {len(data)} bytes, expected {_COMMON.size} at least", 0)
    version_type, words, sequence, source_id = _COMMON.unpack_from(data)
    if version_type >> 4 != VERSION:
        raise WireError(f"NORM version {version_type >> 4}, expected {VERSION}", 0)
    end = 4 * words
    if not _COMMON.size <= end <= len(data):
        raise WireError(f"header of {end} bytes in a message of {len(data)}", 1)
    match version_type & 15:
        case MessageType.DATA:
            return Data.decode_body(data, _decode_sender_header(data, end, sequence, source_id), end)
        case MessageType.NACK | MessageType.ACK as kind:
            return _decode_from_receiver(data, kind, end, sequence, source_id)
        case MessageType.CMD:
            return _decode_command(data, end, sequence, source_id)
        case MessageType.INFO:
            return Info.decode_body(data, _decode_sender_header(data, end, sequence, source_id), end)
        case MessageType.REPORT:
            extensions = decode_extensions(data, _COMMON.size, end, None)
            return Report(sequence=sequence, source_id=source_id, extensions=extensions, content=data[end:])
        case kind:
            raise WireError(f"unknown message type {kind}", 0)


def _decode_sender_header(data: bytes, end: int, sequence: int, source_id: int) -> dict[str, Any]:
    _need(end, _COMMAND_BYTES)  # the shortest header of a message from a sender
    instance_id, grtt_q, backoff_gsize = _SENDER.unpack_from(data)[4:]
    return {
        "sequence": sequence,
        "source_id": source_id,
        "instance_id": instance_id,
        "grtt_q": grtt_q,
        "backoff": backoff_gsize >> 4,
        "gsize_q": backoff_gsize & 15,
    }


def _decode_command(data: bytes, end: int, sequence: int, source_id: int) -> Command:
    common = _decode_sender_header(data, end, sequence, source_id)
    kind = _COMMANDS.get(data[12])
    if kind is None:
        raise WireError(f"unknown CMD flavor {data[12]}", 12)
    return kind.decode_body(data, common, end)


def _decode_from_receiver(data: bytes, kind: int, end: int, sequence: int, source_id: int) -> Nack | Ack:
    _need(end, _RECEIVER.size)
    sender_id, instance_id, ack_type, ack_id, response_s, response_us = _RECEIVER.unpack_from(data)[4:]
    common: dict[str, Any] = {
        "sequence": sequence,
        "source_id": source_id,
        "extensions": decode_extensions(data, _RECEIVER.size, end, None),
        "sender_id": sender_id,
        "instance_id": instance_id,
        "grtt_response_s": response_s,
        "grtt_response_us": response_us,
    }
    if kind == MessageType.NACK:
        return Nack(**common, requests=decode_requests(data, end))
    content: bytes | Position = data[end:]
    if ack_type == AckType.FLUSH:
        content = decode_position(data, end, len(data))
    return Ack(**common, ack_type=ack_type, ack_id=ack_id, content=content)


def _decode_position_header(data: bytes, end: int) -> tuple[Position, int]:
    """Return the position in the header of DATA, FLUSH or SQUELCH, and the offset after it."""
    fec_id = data[13]
    form = _PAYLOAD_ID.get(fec_id)
    if form is None:
        raise WireError(f"unknown FEC id {fec_id}", 13)
    start = 16 + form.size
    _need(end, start)
    return Position(fec_id, _OBJECT_ID.unpack_from(data, 14)[0], form.unpack_from(data, 16)[0]), start


def _need(end: int, size: int) -> None:
    if end < size:
        raise WireError(f"header of {end} bytes, expected {size} at least", 1)


def _encode_all(form: struct.Struct, numbers: tuple[int, ...]) -> bytes:
    return b"".join(form.pack(number) for number in numbers)


def _decode_rows(form: struct.Struct, data: bytes, start: int, what: str) -> list[tuple[Any, ...]]:
    if (len(data) - start) % form.size:
        raise WireError(f"{what} cut short", len(data) - (len(data) - start) % form.size)
    return list(form.iter_unpack(data[start:]))


def _decode_all(form: struct.Struct, data: bytes, start: int, what: str) -> tuple[int, ...]:
    return tuple(row[0] for row in _decode_rows(form, data, start, what))
