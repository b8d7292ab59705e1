"""Header extensions, which follow the fixed part of a header (RFC 5740, 4.1; FEC object information by RFC 5052)."""

import struct
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fjm2.base.errors import WireError

from .codes import FecId


class Extension(Protocol):
    """Interface of header extensions."""

    def encode(self) -> bytes:
        """Return the bytes on the wire. Their number is a multiple of 4."""
        ...


_FTI_NO_CODE = struct.Struct(">BBHIHHI")
_FTI_REED_SOLOMON_M = struct.Struct(">BBHIBBHHH")
_FTI_REED_SOLOMON_8 = struct.Struct(">BBHIHBB")
_FTI_SMALL_BLOCK = struct.Struct(">BBHIHHHH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fti:
    """EXT_FTI: size and partition of an object. Its form depends on the FEC Encoding ID."""

    HET: ClassVar[int] = 64

    fec_id: int
    object_bytes: int
    """Size of the object in bytes, 48 bits. For a stream, size of the sender's buffer."""
    segment_bytes: int
    block_segments: int
    """Maximum number of source symbols in a block."""
    parity_segments: int = 0
    """Number of parity symbols of a block, as in libnorm. RFC 5510 has the number of all symbols in this field."""
    field_bits: int = 8
    """FEC Encoding ID 2 only: bits of an element of the finite field."""
    group: int = 1
    """FEC Encoding ID 2 only: symbols per packet."""
    instance: int = 0
    """FEC Encoding ID 129 only: FEC Instance ID."""

    def encode(self) -> bytes:
        high, low = self.object_bytes >> 32, self.object_bytes & 0xFFFFFFFF
        head = (self.HET, _FTI_WORDS[self.fec_id], high, low)
        match self.fec_id:
            case FecId.COMPACT_NO_CODE:
                return _FTI_NO_CODE.pack(*head, 0, self.segment_bytes, self.block_segments)
            case FecId.REED_SOLOMON_M:
                sizes = (self.segment_bytes, self.block_segments, self.parity_segments)
                return _FTI_REED_SOLOMON_M.pack(*head, self.field_bits, self.group, *sizes)
            case FecId.REED_SOLOMON_8:
                sizes = (self.segment_bytes, self.block_segments, self.parity_segments)
                return _FTI_REED_SOLOMON_8.pack(*head, *sizes)
            case _:
                sizes = (self.segment_bytes, self.block_segments, self.parity_segments)
                return _FTI_SMALL_BLOCK.pack(*head, self.instance, *sizes)

    @classmethod
    def decode(cls, data: bytes, offset: int, words: int, fec_id: int) -> "Fti":
        """Decode the extension at `offset`, which lies within the header. Raise WireError if its length is wrong."""
        if words != _FTI_WORDS[fec_id]:
            expected = _FTI_WORDS[fec_id]
            raise WireError(f"EXT_FTI of {words} words, expected {expected} for FEC id {fec_id}", offset + 1)
        parity, field_bits, group, instance = 0, 8, 1, 0
        match fec_id:
            case FecId.COMPACT_NO_CODE:
                _, _, high, low, _, segment, block = _FTI_NO_CODE.unpack_from(data, offset)
            case FecId.REED_SOLOMON_M:
                _, _, high, low, field_bits, group, segment, block, parity = _FTI_REED_SOLOMON_M.unpack_from(
                    data, offset
                )
            case FecId.REED_SOLOMON_8:
                _, _, high, low, segment, block, parity = _FTI_REED_SOLOMON_8.unpack_from(data, offset)
            case _:
                _, _, high, low, instance, segment, block, parity = _FTI_SMALL_BLOCK.unpack_from(data, offset)
        return cls(
            fec_id=fec_id,
            object_bytes=high << 32 | low,
            segment_bytes=segment,
            block_segments=block,
            parity_segments=parity,
            field_bits=field_bits,
            group=group,
            instance=instance,
        )


_FTI_WORDS: dict[int, int] = {
    FecId.COMPACT_NO_CODE: 4,
    FecId.REED_SOLOMON_M: 4,
    FecId.REED_SOLOMON_8: 3,
    FecId.SMALL_BLOCK_SYSTEMATIC: 4,
}

_CC = struct.Struct(">BBHBBHHH")


@dataclass(frozen=True, slots=True, kw_only=True)
class CcFeedback:
    """EXT_CC: round-trip time, loss and rate of a receiver."""

    HET: ClassVar[int] = 3

    cc_sequence: int
    flags: int
    rtt_q: int
    loss_q: int
    """Code of the loss fraction, 32 bits: the RFC's 16, then 16 that libnorm adds and the RFC reserves."""
    rate_q: int

    def encode(self) -> bytes:
        loss_high, loss_low = self.loss_q >> 16, self.loss_q & 0xFFFF
        return _CC.pack(self.HET, 3, self.cc_sequence, self.flags, self.rtt_q, loss_high, self.rate_q, loss_low)

    @classmethod
    def decode(cls, data: bytes, offset: int, words: int) -> "CcFeedback":
        if words != 3:
            raise WireError(f"EXT_CC of {words} words, expected 3", offset + 1)
        _, _, sequence, flags, rtt_q, loss_high, rate_q, loss_low = _CC.unpack_from(data, offset)
        return cls(cc_sequence=sequence, flags=flags, rtt_q=rtt_q, loss_q=loss_high << 16 | loss_low, rate_q=rate_q)


_RATE = struct.Struct(">BBH")


_STATUS = struct.Struct(">BBHI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """EXT_STATUS, an extension of FJM2: what a receiver says of itself in NACK and ACK. Other programs skip it."""

    HET: ClassVar[int] = 102

    flags: int
    """`StatusFlag`s. Others are reserved: receivers send 0, and senders ignore them."""
    progress: int
    """Bytes of objects that were new when they arrived from this sender, modulo 2**32."""

    def encode(self) -> bytes:
        return _STATUS.pack(self.HET, 2, self.flags, self.progress)

    @classmethod
    def decode(cls, data: bytes, offset: int, words: int) -> "Status":
        """Decode the extension at `offset`, which lies within the header. Raise WireError if its length is wrong."""
        if words != 2:
            raise WireError(f"EXT_STATUS of {words} words, expected 2", offset + 1)
        _, _, flags, progress = _STATUS.unpack_from(data, offset)
        return cls(flags=flags, progress=progress)


@dataclass(frozen=True, slots=True)
class Rate:
    """EXT_RATE: the sender's rate, in a CMD(CC). Receivers of libnorm answer a probe only if it has this extension."""

    HET: ClassVar[int] = 128

    rate_q: int

    def encode(self) -> bytes:
        return _RATE.pack(self.HET, 0, self.rate_q)


@dataclass(frozen=True, slots=True)
class Passing:
    """EXT_PASSING, an extension of FJM2: nothing is to be kept of the stream that a CMD(FLUSH) is about. Other programs
    skip it."""

    HET: ClassVar[int] = 230

    def encode(self) -> bytes:
        return bytes((self.HET, 0, 0, 0))


@dataclass(frozen=True, slots=True)
class Auth:
    """EXT_AUTH (RFC 6584). It is recognized, but not checked."""

    HET: ClassVar[int] = 1

    scheme: int
    """Authentication scheme id (ASID), 4 bits. The nodes of a group agree on its meaning by other means than NORM."""
    content: bytes
    """Everything after the first two bytes of the extension, including the scheme."""

    def encode(self) -> bytes:
        return Unknown(self.HET, self.content).encode()


@dataclass(frozen=True, slots=True)
class Unknown:
    """An unknown extension, which receivers skip (RFC 5740)."""

    het: int
    content: bytes
    """Everything after the extension's type, and after its length if it has a length field."""

    def encode(self) -> bytes:
        if self.het >= FIXED_LENGTH_HET_MIN:
            if len(self.content) != 3:
                raise WireError(f"extension {self.het} with {len(self.content)} bytes, expected 3", 0)
            return bytes((self.het,)) + self.content
        words, rest = divmod(len(self.content) + 2, 4)
        if rest:
            raise WireError(f"extension {self.het} with {len(self.content)} bytes: not whole words", 0)
        return bytes((self.het, words)) + self.content


FIXED_LENGTH_HET_MIN = 128
"""Lowest extension type of those whose extensions have one word and no length field."""


def decode_extensions(data: bytes, start: int, end: int, fec_id: int | None) -> tuple[Extension, ...]:
    """Decode the extensions between two offsets of a message. `fec_id` is None if the message has no FEC id."""
    found: list[Extension] = []
    offset = start
    while offset < end:
        het = data[offset]
        words = 1 if het >= FIXED_LENGTH_HET_MIN else data[offset + 1]
        if words == 0:
            raise WireError(f"extension {het} of length 0", offset + 1)
        after = offset + 4 * words
        if after > end:
            raise WireError(f"extension {het} of {words} words runs past the header", offset + 1)
        found.append(_decode_one(data, offset, words, het, fec_id))
        offset = after
    return tuple(found)


def _decode_one(data: bytes, offset: int, words: int, het: int, fec_id: int | None) -> Extension:
    if het == Fti.HET and fec_id is not None:
        return Fti.decode(data, offset, words, fec_id)
    if het == Status.HET:
        return Status.decode(data, offset, words)
    if het == CcFeedback.HET:
        return CcFeedback.decode(data, offset, words)
    if het == Rate.HET:
        return Rate(_RATE.unpack_from(data, offset)[2])
    if het == Passing.HET:
        return Passing()
    body = data[offset + (1 if het >= FIXED_LENGTH_HET_MIN else 2) : offset + 4 * words]
    if het == Auth.HET:
        return Auth(body[0] >> 4, body)
    return Unknown(het, body)
