"""Wire format between gateways, which docs/tunnel.md describes byte by byte."""

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
"""Bytes that sealing adds to a datagram."""
COUNTER_BITS = 40
COUNTER_END = 1 << COUNTER_BITS
"""End of a session's counters, because no counter may be used twice: it is part of the nonce."""
HOP_LIMIT_MAX = 3
INDEX_END = 1 << 32
GROUP_NONE = 0
"""Group field of datagrams that concern no group."""

_VERSION_SHIFT, _HOP_SHIFT, _KIND_MASK = 6, 4, 0x0F


PART_FLAG = 8
"""Bit in a kind that marks the content as a part of a longer datagram."""
CARRIED = frozenset({Kind.NORM, Kind.FEEDBACK, Kind.CONTROL})
"""Kinds that the forwarder sends and receives."""
SEALED: Final = frozenset(CARRIED | {Kind.PROBE, Kind.NORM_PART, Kind.FEEDBACK_PART, Kind.CONTROL_PART})
KINDS = {int(kind): kind for kind in Kind}


class Drop(Enum):
    """Reasons to ignore a received datagram, or not to send one."""

    MALFORMED = "not a tunnel datagram"
    UNKNOWN_INDEX = "its session is unknown"
    UNKNOWN_PEER = "a handshake of a gateway that is not a peer"
    FORGED = "does not authenticate"
    REPLAYED = "received before"
    TOO_OLD = "older than the replay window"
    EPOCH_OVER = "of a session that has ended"
    HANDSHAKE_FORGED = "a handshake that does not authenticate"
    HANDSHAKE_REPLAYED = "a handshake no newer than one received before"
    HANDSHAKE_STALE = "a handshake from before this gateway started"
    HANDSHAKE_TOO_SOON = "a handshake too soon after the one before"
    BAD_CONTENT = "authentic, but malformed"
    REASSEMBLY_FULL = "a part without room, or displaced by newer ones"
    REASSEMBLY_TIMEOUT = "a part whose other parts did not arrive"
    NOT_UP = "for a peer that is not connected"
    QUEUE_FULL = "the link's queue was full"
    URGENT_FULL = "too much feedback for the link's queue"
    TOO_LONG = "too long to be carried, even in parts"


def group_hash(host: str, port: int) -> int:
    """Return the 16-bit hash of a group, which is never 0."""
    digest = hashlib.sha256(f"{host}:{port}".encode()).digest()
    return int.from_bytes(digest[:2]) or int.from_bytes(digest[2:4]) or 1


def first_byte(kind: int, hop_limit: int = 0) -> int:
    """Return version, hop limit and kind in one byte."""
    return VERSION << _VERSION_SHIFT | hop_limit << _HOP_SHIFT | kind


def split_first_byte(byte: int) -> tuple[int, int, int]:
    """Return version, hop limit and kind from the first byte of a datagram."""
    return byte >> _VERSION_SHIFT, byte >> _HOP_SHIFT & HOP_LIMIT_MAX, byte & _KIND_MASK


PREFIX_BYTES = 7
"""Length of the part of the header that all datagrams of a sealed train share: first byte, group, index."""
_PREFIX = struct.Struct(">BHI")


@dataclass(frozen=True, slots=True)
class Prefix:
    """The part of the header that all datagrams of a sealed train share."""

    kind: int
    hop_limit: int
    group: int
    index: int

    def encode(self) -> bytes:
        return _PREFIX.pack(first_byte(self.kind, self.hop_limit), self.group, self.index)

    @classmethod
    @lru_cache(maxsize=256)  # a link uses a handful
    def of_number(cls, number: int) -> "Prefix | None":
        """Decode a prefix from its seven bytes, given as one number. Return None if it has another version."""
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
    """Session index that the initiator expects in datagrams."""
    timestamp_ns: int
    ephemeral: bytes
    proof: bytes
    """An empty content, sealed: proves that the initiator has its private key."""
    mac: bytes = bytes(MAC_BYTES)

    def encode(self) -> bytes:
        first = first_byte(Kind.INITIATION)
        return _INITIATION.pack(
            first, self.sender_id, self.index, self.timestamp_ns, self.ephemeral, self.proof, self.mac
        )

    @property
    def head(self) -> bytes:
        """The bytes before the ephemeral key, which Noise authenticates as part of the prologue."""
        return self.encode()[:_INITIATION_HEAD_BYTES]

    @classmethod
    def decode(cls, data: bytes) -> "Initiation | None":
        """Decode an initiation. Return None unless every byte is as `encode` writes it."""
        if len(data) != INITIATION_BYTES:
            return None
        _, *values = _INITIATION.unpack(data)
        message = cls(*values)
        return message if message.encode() == data else None


@dataclass(frozen=True, slots=True)
class Response:
    """The second message of a handshake, which is shorter than the first."""

    receiver_index: int
    """The initiator's session index."""
    ephemeral: bytes
    sealed: bytes
    """The responder's session index and its time, sealed."""
    mac: bytes = bytes(MAC_BYTES)

    def encode(self) -> bytes:
        first = first_byte(Kind.RESPONSE)
        return _RESPONSE.pack(first, self.receiver_index, self.ephemeral, self.sealed, self.mac)

    @classmethod
    def decode(cls, data: bytes) -> "Response | None":
        """Decode a response. Return None unless every byte is as `encode` writes it."""
        if len(data) != RESPONSE_BYTES:
            return None
        _, *values = _RESPONSE.unpack(data)
        message = cls(*values)
        return message if message.encode() == data else None


_PROBE = struct.Struct(">B3xIQQ")
PROBE_BYTES = _PROBE.size


class ProbeFlag(IntEnum):
    """Purpose of a probe, as bits."""

    ANSWER = 1
    """The probe answers another one. It is not answered itself."""
    GOODBYE = 2
    """The sender ends the session. The probe is not answered."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Content of a probe: a question to the peer, or an answer, which repeats the question's number."""

    flags: int
    number: int
    sent: int
    """Sealed datagrams that the sender has sent in this session, including this one."""
    received: int
    """Authentic datagrams that the sender has received in this session."""

    def encode(self, size: int = PROBE_BYTES) -> bytes:
        """Encode the probe, padded to `size` bytes."""
        content = _PROBE.pack(self.flags, self.number, self.sent, self.received)
        return content.ljust(size, b"\0")

    @classmethod
    def decode(cls, content: bytes) -> "Probe | None":
        """Decode a probe. Return None if it is too short; padding is ignored."""
        if len(content) < PROBE_BYTES:
            return None
        return cls(*_PROBE.unpack_from(content))
