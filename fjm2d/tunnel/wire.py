"""What stands on the wire between gateways; docs/tunnel.md tells it byte by byte."""

import hashlib
import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Final

from ..kinds import Kind

VERSION = 1
HEADER_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES
"""What sealing adds to a datagram."""
COUNTER_BITS = 40
COUNTER_END = 1 << COUNTER_BITS
"""An epoch has fewer datagrams than this: a counter is never used twice."""
HOP_LIMIT_MAX = 3
INDEX_END = 1 << 32
GROUP_NONE = 0
"""The group of what concerns no group."""

_VERSION_SHIFT, _HOP_SHIFT, _KIND_MASK = 6, 4, 0x0F


PART_FLAG = 8
"""In a kind: the content is a part of something longer."""
CARRIED = frozenset({Kind.NORM, Kind.FEEDBACK, Kind.CONTROL})
"""Kinds that come from above the tunnel."""
SEALED: Final = frozenset(CARRIED | {Kind.PROBE, Kind.NORM_PART, Kind.FEEDBACK_PART, Kind.CONTROL_PART})
KINDS = {int(kind): kind for kind in Kind}


class Drop(Enum):
    """Why a datagram was not acted on, or not sent."""

    MALFORMED = "no datagram of this tunnel"
    UNKNOWN_INDEX = "for no session that there is"
    UNKNOWN_PEER = "a handshake of a gateway that is not a peer"
    FORGED = "does not authenticate"
    REPLAYED = "came before"
    TOO_OLD = "older than the replay window"
    EPOCH_OVER = "of a session that has ended"
    HANDSHAKE_FORGED = "a handshake that does not authenticate"
    HANDSHAKE_REPLAYED = "a handshake no newer than one that came before"
    HANDSHAKE_STALE = "a handshake from before this gateway started"
    HANDSHAKE_TOO_SOON = "a handshake right after the one before"
    BAD_CONTENT = "authentic, but makes no sense"
    REASSEMBLY_FULL = "a part that found no room, or lost it to newer ones"
    REASSEMBLY_TIMEOUT = "a part whose others did not come"
    NOT_UP = "to a peer that is not connected"
    QUEUE_FULL = "the link's queue was full"
    URGENT_FULL = "too much feedback for the link's queue"
    TOO_LONG = "too long to be carried, even in parts"


def group_hash(host: str, port: int) -> int:
    """16 bits that stand for a group on the wire; never 0."""
    digest = hashlib.sha256(f"{host}:{port}".encode()).digest()
    return int.from_bytes(digest[:2]) or int.from_bytes(digest[2:4]) or 1


def first_byte(kind: int, hop_limit: int = 0) -> int:
    """Version, hop limit and kind in one."""
    return VERSION << _VERSION_SHIFT | hop_limit << _HOP_SHIFT | kind


def split_first_byte(byte: int) -> tuple[int, int, int]:
    """Version, hop limit and kind."""
    return byte >> _VERSION_SHIFT, byte >> _HOP_SHIFT & HOP_LIMIT_MAX, byte & _KIND_MASK


PREFIX_BYTES = 7
"""What all headers of a sealed train have in common: first byte, group, index."""
_PREFIX = struct.Struct(">BHI")


@dataclass(frozen=True, slots=True)
class Prefix:
    """What all datagrams of a sealed train have in common."""

    kind: int
    hop_limit: int
    group: int
    index: int

    def encode(self) -> bytes:
        return _PREFIX.pack(first_byte(self.kind, self.hop_limit), self.group, self.index)

    @classmethod
    @lru_cache(maxsize=256)  # a link has a handful of them
    def of_number(cls, number: int) -> "Prefix | None":
        """From the seven bytes as one number; None for another version."""
        version, hop_limit, kind = split_first_byte(number >> 48)
        if version != VERSION:
            return None
        return cls(kind, hop_limit, number >> 32 & 0xFFFF, number & 0xFFFFFFFF)


MAC_BYTES = 16
_INITIATION = struct.Struct(">B3xIIQ32s16s12x16s")
_RESPONSE = struct.Struct(">B3xI32s28s16s")
_INITIATION_HEAD_BYTES = 20
INITIATION_BYTES = _INITIATION.size
RESPONSE_BYTES = _RESPONSE.size


@dataclass(frozen=True, slots=True)
class Initiation:
    """The first message of a handshake."""

    sender_id: int
    """The initiator's gateway id."""
    index: int
    """What the initiator wants to find in datagrams of the session."""
    timestamp_ns: int
    ephemeral: bytes
    proof: bytes
    """Nothing, sealed: shows that the initiator has its private key."""
    mac: bytes = bytes(MAC_BYTES)

    def encode(self) -> bytes:
        first = first_byte(Kind.INITIATION)
        return _INITIATION.pack(
            first, self.sender_id, self.index, self.timestamp_ns, self.ephemeral, self.proof, self.mac
        )

    @property
    def head(self) -> bytes:
        """What comes before the ephemeral key: it becomes part of what both sides agree on."""
        return self.encode()[:_INITIATION_HEAD_BYTES]

    @classmethod
    def decode(cls, data: bytes) -> "Initiation | None":
        """None for what is no initiation, byte for byte."""
        if len(data) != INITIATION_BYTES:
            return None
        _, *values = _INITIATION.unpack(data)
        message = cls(*values)
        return message if message.encode() == data else None


@dataclass(frozen=True, slots=True)
class Response:
    """The second message of a handshake, which is shorter than the first."""

    receiver_index: int
    """The initiator's."""
    ephemeral: bytes
    sealed: bytes
    """What the responder wants to find in datagrams of the session, and its time."""
    mac: bytes = bytes(MAC_BYTES)

    def encode(self) -> bytes:
        first = first_byte(Kind.RESPONSE)
        return _RESPONSE.pack(first, self.receiver_index, self.ephemeral, self.sealed, self.mac)

    @classmethod
    def decode(cls, data: bytes) -> "Response | None":
        """None for what is no response, byte for byte."""
        if len(data) != RESPONSE_BYTES:
            return None
        _, *values = _RESPONSE.unpack(data)
        message = cls(*values)
        return message if message.encode() == data else None


_PROBE = struct.Struct(">B3xIQQ")
PROBE_BYTES = _PROBE.size


class ProbeFlag(IntEnum):
    """What a probe is for; bits."""

    ANSWER = 1
    """An answer to a probe; it gets none itself."""
    GOODBYE = 2
    """The sender stops: the session is over. It gets no answer."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Asks whether the other side is there, and reports what has come from it. An answer has the question's number."""

    flags: int
    number: int
    sent: int
    """Sealed datagrams that the sender has sent in this session, up to this one."""
    received: int
    """Authentic ones that it has received in this session."""

    def encode(self, size: int = PROBE_BYTES) -> bytes:
        """`size`: to be padded to."""
        content = _PROBE.pack(self.flags, self.number, self.sent, self.received)
        return content.ljust(size, b"\0")

    @classmethod
    def decode(cls, content: bytes) -> "Probe | None":
        """None for what is too short; padding is ignored."""
        if len(content) < PROBE_BYTES:
            return None
        return cls(*_PROBE.unpack_from(content))
