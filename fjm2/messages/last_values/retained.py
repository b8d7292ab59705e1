"""Messages that stay at keepers as last values: of their topic, or of their topic and the value of a property.

A message whose body has no bytes removes the value instead.
"""

import struct
from hashlib import blake2b
from threading import Lock
from typing import Final, NamedTuple

from ..destination import KIND_FLAGS
from ..errors import MessageFormatError
from ..frame import FRAME_BYTES_MAX, Parts, body_place, too_large
from ..header import (
    FLAGS,
    FRAME_BYTES,
    HEADER_BYTES,
    MARKS_AT,
    NAME_BYTES,
    NOT_WHOLE,
    PERSISTENT,
    PROPERTY_BYTES,
    RETAINED,
    SECTION_BYTES,
    Header,
    Section,
    make_section,
    sections_of,
)
from ..properties import find_property
from ..types import Long, PropertyValue
from ..values import encode_value

IDENTITY_BYTES: Final = 16
"""Bytes of the name of a value: a hash, so that it takes the same memory however long topic and key are."""
KEY_BYTES_MAX: Final = 1024
"""Length of the longest name of a key."""
AHEAD_MAX_US: Final = 24 * 3600 * 1_000_000
"""Furthest, in microseconds, that the stamps of others pull our own ahead of our clock. A clock that is wrong by more
is a mistake that should not spread."""

_STAMP: Final = struct.Struct("!Q")
_LENGTH: Final = struct.Struct("!I")
_FRAME_BYTES_AT: Final = 4
_SECTION_BYTES_AT: Final = 20
"""Offsets of fields in the fixed header."""


class Retained(NamedTuple):
    """A message that is a last value, as its frame tells."""

    identity: bytes
    """Name of the value: messages with the same topic and key replace each other."""
    topic: str
    stamp: int
    """Time of the send, in microseconds since 1970 by the sender's clock. The greatest one is the newest."""
    is_removal: bool
    """True if the message removes the value."""


class Stamps:
    """Stamps of the retained messages of a process. Each is greater than all before it, and than all that were heard.

    So a program that reads a value and then replaces it does so, though its clock is behind.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0

    def next(self, now_us: int) -> int:
        """Return the stamp of a message that is sent now."""
        with self._lock:
            self._last = max(now_us, self._last + 1)
            return self._last

    def note(self, stamp: int, now_us: int) -> None:
        """Note the stamp of a message of somebody else."""
        with self._lock:
            if self._last < stamp <= now_us + AHEAD_MAX_US:
                self._last = stamp


STAMPS: Final = Stamps()
"""Stamps of this process."""


def retained_section(key: str, stamp: int) -> bytes:
    """Return the section of a message whose key is the value of a property; without a name, the topic has one value."""
    return make_section(Section.RETAINED, _STAMP.pack(stamp) + key.encode())


def retained_parts(parts: Parts, section: bytes) -> Parts:
    """Return the frame of a message as that of a last value. The frame must not have a number in a ledger yet.

    Raise JMSError if the frame would be too large.
    """
    head, body = parts
    frame_bytes = len(head) + len(section) + len(body)
    if frame_bytes > FRAME_BYTES_MAX:
        raise too_large(frame_bytes)
    marked = bytearray(head)
    _LENGTH.pack_into(marked, _FRAME_BYTES_AT, frame_bytes)
    _LENGTH.pack_into(marked, _SECTION_BYTES_AT, _LENGTH.unpack_from(head, _SECTION_BYTES_AT)[0] + len(section))
    marked[MARKS_AT] |= RETAINED
    return bytes(marked + section), body


def key_of(head: bytes, header: Header, key: str, start: int = 0) -> PropertyValue:
    """Return the value of a property, or None if there is none. Raise MessageFormatError if it is malformed."""
    at = start + HEADER_BYTES + header[NAME_BYTES]
    return find_property(head, at, at + header[PROPERTY_BYTES], key)


def is_retained(buffer: bytes, header: Header, start: int = 0) -> bool:
    """Return True if keepers keep a message as a last value: a PERSISTENT one to a topic, in one frame."""
    return bool(buffer[start + MARKS_AT] & RETAINED) and header[FLAGS] & _DECIDING_FLAGS == PERSISTENT


def _encoded_key(value: PropertyValue) -> bytes:
    """Return the value of a key as bytes. Numbers that are equal are one key, whatever their sizes."""
    if isinstance(value, int) and not isinstance(value, bool):
        return encode_value(Long(value))
    return encode_value(float(value) if isinstance(value, float) else value)


_DECIDING_FLAGS: Final = PERSISTENT | KIND_FLAGS | NOT_WHOLE


def read_retained(buffer: bytes, header: Header, start: int = 0) -> Retained | None:
    """Return what a frame tells of its value. Return None if it is no last value, or malformed."""
    if not is_retained(buffer, header, start) or not header[SECTION_BYTES]:
        return None
    name_at = start + HEADER_BYTES
    name = buffer[name_at : name_at + header[NAME_BYTES]]
    try:
        content = sections_of(buffer, header, start).get(Section.RETAINED, b"")
        if not _STAMP.size <= len(content) <= _STAMP.size + KEY_BYTES_MAX:
            return None
        key = content[_STAMP.size :]
        value = _encoded_key(key_of(buffer, header, key.decode(), start)) if key else b""
        topic = name.decode()
    except (MessageFormatError, UnicodeDecodeError):
        return None
    identity = blake2b(digest_size=IDENTITY_BYTES)
    for part in (name, key, value):
        identity.update(_LENGTH.pack(len(part)))
        identity.update(part)
    is_removal = header[FRAME_BYTES] == body_place(header)
    return Retained(identity.digest(), topic, _STAMP.unpack_from(content)[0], is_removal)
