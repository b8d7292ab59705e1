"""Frames of a message whose body is a file (docs/frames.md).

All frames of the message have its kind, its number and the flag IN_PARTS. Their bodies begin with a form and a number:

    u8 form · u64 number · rest

    0 begin: the size of the file · its name. Only this frame has properties and sections
    1 data: the place in the file · bytes
    2 cancel: 0 · the reason, as text
"""

import struct
from typing import Final, NamedTuple

from fjm2.messages.errors import MessageFormatError
from fjm2.messages.header import (
    FILE,
    FRAME_BYTES,
    HEADER,
    HEADER_BYTES,
    KIND,
    NAME_BYTES,
    PROPERTY_BYTES,
    SECTION_BYTES,
    Header,
)

BEGIN: Final = 0
DATA: Final = 1
CANCEL: Final = 2

_PART = struct.Struct("!BQ")
NAME_BYTES_MAX: Final = 1024
"""Longest name of a file: four times what file systems take, for names that are not UTF-8 there."""
_REASON_BYTES_MAX: Final = 1024


class Part(NamedTuple):
    """The body of a frame of a file."""

    form: int
    number: int
    """Size of the file, or place of the data in it."""
    start: int
    """Index in the buffer where the rest begins."""
    end: int


def encode_begin(size: int, name: str) -> bytes:
    """Return the body of a first frame."""
    return _PART.pack(BEGIN, size) + name.encode("utf-8", "replace")[:NAME_BYTES_MAX]


def decode_begin(body: bytes) -> tuple[str, int]:
    """Return name and size of the file in the body of a first frame. Raise MessageFormatError if it is malformed."""
    if len(body) < _PART.size or body[0] != BEGIN:
        raise MessageFormatError("a malformed file")
    part = Part(body[0], int.from_bytes(body[1 : _PART.size]), _PART.size, len(body))
    return safe_name(decode_text(body, part)), part.number


def data_parts(first: bytes, place: int, data: bytes) -> tuple[bytes, bytes]:
    """Return head and body of a frame of data. `first` is the head of the first frame."""
    return _head(first, _PART.size + len(data)), _PART.pack(DATA, place) + data


def cancel_parts(first: bytes, reason: str) -> tuple[bytes, bytes]:
    """Return head and body of the frame that ends a transfer before its end."""
    text = reason.encode("utf-8", "replace")[:_REASON_BYTES_MAX]
    return _head(first, _PART.size + len(text)), _PART.pack(CANCEL, 0) + text


def _head(first: bytes, body_bytes: int) -> bytes:
    fields = list(HEADER.unpack_from(first))
    name_end = HEADER_BYTES + fields[NAME_BYTES]
    fields[FRAME_BYTES] = name_end + body_bytes
    fields[PROPERTY_BYTES] = fields[SECTION_BYTES] = 0
    return HEADER.pack(*fields) + first[HEADER_BYTES:name_end]


def decode_part(buffer: bytes, start: int, header: Header) -> Part | None:
    """Return the body of a frame that begins at `start`, or None if it is malformed."""
    at = start + HEADER_BYTES + header[NAME_BYTES] + header[PROPERTY_BYTES] + header[SECTION_BYTES]
    end = start + header[FRAME_BYTES]
    if at + _PART.size > end:
        return None
    form, number = _PART.unpack_from(buffer, at)
    if form > CANCEL:
        return None
    return Part(form, number, at + _PART.size, end)


def is_begin(body: bytes) -> bool:
    """Return True for the body of a first frame."""
    return body[:1] == bytes((BEGIN,))


def is_later_part(buffer: bytes, start: int, header: Header) -> bool:
    """Return True if a frame belongs to a file, and is not its first."""
    if header[KIND] != FILE:
        return False
    part = decode_part(buffer, start, header)
    return part is None or part.form != BEGIN


def decode_text(buffer: bytes, part: Part) -> str:
    """Return the name of a first frame, or the reason of a cancelled transfer, without control characters."""
    end = min(part.end, part.start + NAME_BYTES_MAX)
    text = buffer[part.start : end].decode("utf-8", "replace")
    return "".join(character if character.isprintable() else "_" for character in text)


def safe_name(name: str) -> str:
    """Return a name that can stand in a folder and nowhere else, whatever its sender called the file."""
    base = name.replace("\\", "/").rpartition("/")[2].replace("\0", "_").strip()
    while len(base.encode("utf-8", "replace")) > _FOLDER_NAME_BYTES_MAX:
        base = base[:-1]
    return base if base.strip(".") else "file"


_FOLDER_NAME_BYTES_MAX: Final = 200
"""Longest name in a folder: file systems take 255 bytes, and a program may add something to it."""
