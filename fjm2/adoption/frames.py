"""Frames of an earlier cell, made ready to be sent again."""

import struct
from typing import Final

from fjm2.messages.frame import body_place
from fjm2.messages.header import (
    DELAYED,
    FLAGS,
    HEADER,
    IN_TRANSACTION,
    MARKS_AT,
    REDELIVERED,
    SECTION_BYTES,
)
from fjm2.messages.ledgers.ledger_number import LEDGER_SECTION_BYTES, ledger_number_of

_U32: Final = struct.Struct("!I")
_FRAME_BYTES_AT: Final = 4
_SECTION_BYTES_AT: Final = 20
"""Offsets of fields in the fixed header."""
_OVER: Final = DELAYED | IN_TRANSACTION
"""Flags of what is over: the delivery time has come, and the transaction was committed."""


def adopted_frame(frame: bytes) -> bytes:
    """Return a stored message as it is sent again: without its number in the earlier ledger, and flagged."""
    header = HEADER.unpack_from(frame)
    place = body_place(header)
    cut = 0 if ledger_number_of(frame, header) is None else LEDGER_SECTION_BYTES
    head = bytearray(frame[: place - cut])
    head[FLAGS] &= ~_OVER
    head[MARKS_AT] |= REDELIVERED
    _U32.pack_into(head, _FRAME_BYTES_AT, len(frame) - cut)
    _U32.pack_into(head, _SECTION_BYTES_AT, header[SECTION_BYTES] - cut)
    return bytes(head) + frame[place:]
