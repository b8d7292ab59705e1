"""Positions of symbols: FEC payload ids, whose parts depend on the FEC Encoding ID, and repair requests for them."""

import struct
from dataclasses import dataclass
from typing import NamedTuple

from fjm2.base.errors import WireError

from .codes import FecId, RepairForm


@dataclass(frozen=True, slots=True)
class PayloadIdFormat:
    """Format of a FEC payload id: block, symbol and, for FEC Encoding ID 129, the length of the block."""

    size: int
    """Length of a payload id in bytes."""
    block_bits: int
    symbol_bits: int
    length_bits: int = 0

    def pack(self, block: int, symbol: int, length: int = 0) -> int:
        """Return a payload id as one number. Parts that are out of range wrap: the FLUSH of an empty object uses -1."""
        length &= (1 << self.length_bits) - 1  # most formats have no such field
        block &= (1 << self.block_bits) - 1
        symbol &= (1 << self.symbol_bits) - 1
        return (block << self.length_bits | length) << self.symbol_bits | symbol

    def block(self, payload_id: int) -> int:
        """Return the block number in a payload id."""
        return payload_id >> (self.symbol_bits + self.length_bits)

    def symbol(self, payload_id: int) -> int:
        """Return the symbol id in a payload id."""
        return payload_id & ((1 << self.symbol_bits) - 1)

    def length(self, payload_id: int) -> int:
        """Return the number of source symbols of the block, or 0 if the format does not tell."""
        return payload_id >> self.symbol_bits & ((1 << self.length_bits) - 1)


_FORMATS: dict[tuple[int, int], PayloadIdFormat] = {
    (FecId.COMPACT_NO_CODE, 8): PayloadIdFormat(4, 16, 16),
    (FecId.REED_SOLOMON_M, 8): PayloadIdFormat(4, 24, 8),
    (FecId.REED_SOLOMON_M, 16): PayloadIdFormat(4, 16, 16),
    (FecId.REED_SOLOMON_8, 8): PayloadIdFormat(4, 24, 8),
    (FecId.SMALL_BLOCK_SYSTEMATIC, 8): PayloadIdFormat(8, 32, 16, length_bits=16),
}
PAYLOAD_ID_CODE: dict[int, str] = {
    FecId.COMPACT_NO_CODE: "I",
    FecId.REED_SOLOMON_M: "I",
    FecId.REED_SOLOMON_8: "I",
    FecId.SMALL_BLOCK_SYSTEMATIC: "Q",
}
"""Struct code of a payload id by FEC Encoding ID. Other ids are not supported."""


def payload_id_format(fec_id: int, field_bits: int = 8) -> PayloadIdFormat:
    """Return the payload id format of a FEC Encoding ID. Raise KeyError if it is unknown.

    `field_bits` matters only for FEC Encoding ID 2.
    """
    return _FORMATS[fec_id, field_bits]


class Position(NamedTuple):
    """A position in a sender's objects. Only a `PayloadIdFormat` can tell block from symbol in the payload id."""

    fec_id: int
    object_id: int
    payload_id: int

    def encode(self) -> bytes:
        """Return the bytes of the position in repair requests and acknowledgements."""
        return _ITEM[self.fec_id].pack(self.fec_id, 0, self.object_id, self.payload_id)


_ITEM: dict[int, struct.Struct] = {fec_id: struct.Struct(">BBH" + code) for fec_id, code in PAYLOAD_ID_CODE.items()}


def decode_position(data: bytes, offset: int, end: int) -> Position:
    """Return the position at an offset. Raise WireError if it does not end before `end`."""
    return _decode_positions(data, offset, offset + item_bytes(data, offset, end))[0]


def item_bytes(data: bytes, offset: int, end: int) -> int:
    """Return the length of the position at an offset.

    Raise WireError if its FEC id is unknown, or if the bytes before `end` do not hold the whole position.
    """
    form = _ITEM.get(data[offset]) if offset < end else None
    if form is None:
        what = f"unknown FEC id {data[offset]}" if offset < end else "position missing"
        raise WireError(what, offset)
    if offset + form.size > end:
        raise WireError("position cut short", offset)
    return form.size


def _decode_positions(data: bytes, offset: int, end: int) -> tuple[Position, ...]:
    """Return all positions between two offsets. Their FEC ids may differ, although no sender uses two."""
    form = _ITEM[data[offset]]
    if (end - offset) % form.size == 0:
        items = tuple(
            Position(fec_id, object_id, payload_id)
            for fec_id, _, object_id, payload_id in form.iter_unpack(data[offset:end])
        )
        if all(item.fec_id == items[0].fec_id for item in items):
            return items
    mixed: list[Position] = []
    while offset < end:
        size = item_bytes(data, offset, end)
        fec_id, _, object_id, payload_id = _ITEM[data[offset]].unpack_from(data, offset)
        mixed.append(Position(fec_id, object_id, payload_id))
        offset += size
    return tuple(mixed)


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """A request of a receiver: single items, ranges (pairs of first and last), or numbers of erasures."""

    form: int
    flags: int
    items: tuple[Position, ...]

    def encode(self) -> bytes:
        """Return the bytes on the wire."""
        content = b"".join(item.encode() for item in self.items)
        return _REQUEST.pack(self.form, self.flags, len(content)) + content


_REQUEST = struct.Struct(">BBH")
REQUEST_HEADER_BYTES = _REQUEST.size


def decode_requests(data: bytes, offset: int) -> tuple[RepairRequest, ...]:
    """Return the repair requests in a message, from an offset to its end. Raise WireError if they are malformed."""
    requests: list[RepairRequest] = []
    end = len(data)
    while offset < end:
        if offset + _REQUEST.size > end:
            raise WireError("repair request cut short", offset)
        form, flags, length = _REQUEST.unpack_from(data, offset)
        if form not in _FORMS:
            raise WireError(f"unknown repair request form {form}", offset)
        start = offset + _REQUEST.size
        if start + length > end:
            raise WireError(f"repair request of {length} bytes runs past the message", offset + 2)
        if length:
            item_bytes(data, start, start + length)
        items = _decode_positions(data, start, start + length) if length else ()
        if form == RepairForm.RANGES and len(items) % 2:
            raise WireError("range without an end", start)
        requests.append(RepairRequest(form, flags, items))
        offset = start + length
    return tuple(requests)


_FORMS = frozenset(RepairForm)
