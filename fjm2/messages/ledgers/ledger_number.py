"""The last section of a frame that keepers store: its number in a ledger, and a checksum of the frame."""

import struct
import zlib
from typing import Final, NamedTuple

from fjm2.base.checksums import IS_CRC32C_FAST, Checksum, crc32c

from ..frame import FRAME_BYTES_MAX, Parts, body_place, too_large
from ..header import FRAME_BYTES, SECTION_BYTES, Header, Section

SECTION: Final = struct.Struct("!BIQIQ")
"""The section up to its checksum: tag, length, producer id, producer epoch, sequence."""
CHECKSUM: Final = struct.Struct("!I")
LEDGER_SECTION_BYTES: Final = SECTION.size + CHECKSUM.size
"""Bytes that a frame grows by when it gets a number."""
CONTENT_BYTES: Final = LEDGER_SECTION_BYTES - 5
"""Length of the section without tag and length."""
WRITTEN_TAG: Final = int(Section.LEDGER if IS_CRC32C_FAST else Section.LEDGER_ZLIB)
"""Tag of the sections that this program writes."""
CHECKSUMS: Final[dict[int, Checksum]] = {int(Section.LEDGER): crc32c, int(Section.LEDGER_ZLIB): zlib.crc32}
"""Checksums by tag."""
WRITTEN_CHECKSUM: Final = CHECKSUMS[WRITTEN_TAG]

_NAMED: Final = struct.Struct("!BI")
_U32: Final = struct.Struct("!I")
_SIZES: Final = struct.Struct("!I12sI")
"""Length of a frame, what lies behind it in the header, and the length of the sections."""
_FRAME_BYTES_AT: Final = 4
_HASH_AT: Final = 8
_SECTION_BYTES_AT: Final = 20
_CONNECTION_AT: Final = 24
"""Offsets of fields in the fixed header."""


class LedgerNumber(NamedTuple):
    """Place of a frame in its ledger. The ledger's lane is that of the frame's priority."""

    producer_id: int
    """64 bits that name the producer."""
    producer_epoch: int
    """32 bits that count the lives of the producer's outbox; 0 without one."""
    sequence: int
    """Number in the ledger, from 1."""


def with_ledger_number(parts: Parts, producer_id: int, producer_epoch: int, sequence: int) -> Parts:
    """Return the frame with its number and a checksum added. Nothing may be added behind them.

    Raise JMSError if the frame would be too large. (To make a `LedgerNumber` of the arguments would cost a third of
    this function.)
    """
    head, body = parts
    frame_bytes = len(head) + len(body) + LEDGER_SECTION_BYTES
    if frame_bytes > FRAME_BYTES_MAX:
        raise too_large(frame_bytes)
    section_bytes = _U32.unpack_from(head, _SECTION_BYTES_AT)[0] + LEDGER_SECTION_BYTES
    numbered = (
        head[:_FRAME_BYTES_AT]
        + _SIZES.pack(frame_bytes, head[_HASH_AT:_SECTION_BYTES_AT], section_bytes)
        + head[_CONNECTION_AT:]
        + SECTION.pack(WRITTEN_TAG, CONTENT_BYTES, producer_id, producer_epoch, sequence)
    )
    return numbered + CHECKSUM.pack(WRITTEN_CHECKSUM(body, WRITTEN_CHECKSUM(numbered, 0))), body


def ledger_number_of(buffer: bytes, header: Header, start: int = 0) -> LedgerNumber | None:
    """Return the number of a frame in its ledger. Return None if the last section of the frame is not a number."""
    place = _section_place(buffer, header, start)
    return None if place is None else LedgerNumber(*SECTION.unpack_from(buffer, place)[2:])


def is_intact(buffer: bytes, header: Header, start: int = 0) -> bool:
    """Return True if a frame has a number, and the checksum of the frame is right."""
    place = _section_place(buffer, header, start)
    if place is None:
        return False
    checksum, end, view = CHECKSUMS[buffer[place]], place + SECTION.size, memoryview(buffer)
    body, frame_end = end + CHECKSUM.size, start + header[FRAME_BYTES]
    expected: int = CHECKSUM.unpack_from(buffer, end)[0]
    return checksum(view[body:frame_end], checksum(view[start:end], 0)) == expected


def _section_place(buffer: bytes, header: Header, start: int) -> int | None:
    """Return the index at which the section of the number begins. Return None if the frame has none.

    All sections are walked over. Otherwise the end of a text that somebody else chose might pass for a number.
    """
    size = header[SECTION_BYTES]
    end = start + body_place(header)
    last = end - LEDGER_SECTION_BYTES
    if size < LEDGER_SECTION_BYTES or buffer[last] not in CHECKSUMS:
        return None
    at = end - size
    while at < last:
        at += _NAMED.size + _NAMED.unpack_from(buffer, at)[1]
    return last if at == last and _NAMED.unpack_from(buffer, last)[1] == CONTENT_BYTES else None
