"""The notice that a subscriber lost messages of a publisher, as it travels in NORM_CMD(APPLICATION).

Big-endian:

    u8 kind, 7 · u8 flags · u16 number of the notice · u32 node id of the publisher's lane
    u32 messages lost, 0 if unknown · u64 bytes lost, 0 if unknown

Flags: 1 some of the messages were never given to a consumer, so that they must not count as confirmed.
"""

import struct
from dataclasses import dataclass
from typing import Final

from ..signals.signals import NOTICE

_UNDELIVERED: Final = 1
_NOTICE = struct.Struct("!BBHIIQ")
_MESSAGES_MAX = (1 << 32) - 1
_BYTES_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Notice:
    """Messages of one lane that a subscriber lost since its last notice about this lane."""

    number: int
    """Counts the notices of a subscriber, modulo 65536: each is sent twice."""
    sender_id: int
    """Node id of the publisher's lane."""
    lost_messages: int = 0
    """Messages lost as far as they could be counted."""
    lost_bytes: int = 0
    """Bytes lost as far as they could be counted."""
    is_undelivered: bool = False
    """True if some of the messages were never given to a consumer."""

    def encode(self) -> bytes:
        """Return its form on the wire."""
        messages, size = min(self.lost_messages, _MESSAGES_MAX), min(self.lost_bytes, _BYTES_MAX)
        return _NOTICE.pack(
            NOTICE, _UNDELIVERED * self.is_undelivered, self.number & 0xFFFF, self.sender_id, messages, size
        )


def decode(content: bytes) -> Notice | None:
    """Return a notice, or None if `content` is malformed or something else. Later versions may append to it."""
    if len(content) < _NOTICE.size or content[0] != NOTICE:
        return None
    _, flags, number, sender_id, messages, size = _NOTICE.unpack_from(content)
    return Notice(number, sender_id, messages, size, bool(flags & _UNDELIVERED))
