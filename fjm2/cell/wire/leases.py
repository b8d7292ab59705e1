"""The NORM_ACK of type 17, by which a client tells the manager which of its sessions live."""

import struct
from typing import Final

from .fields import check_count

LEASES_TYPE: Final = 17
"""Type of the NORM_ACK."""
LEASES_MAX: Final = 170
"""Most sessions in one: as many as a datagram of 1,400 bytes holds."""


def encode_leases(sessions: tuple[int, ...]) -> bytes:
    """Return the content of a NORM_ACK that renews the leases of sessions."""
    check_count("sessions", len(sessions), 1, LEASES_MAX)
    try:
        return struct.pack(f">{len(sessions)}Q", *sessions)
    except struct.error as error:
        raise ValueError(f"sessions={sessions}: expected numbers below 2**64 ({error})") from None


def decode_leases(content: bytes) -> tuple[int, ...] | None:
    """Return the sessions that `content` names, or None if it is malformed."""
    count, odd = divmod(len(content), 8)
    if odd or not 1 <= count <= LEASES_MAX:
        return None
    return struct.unpack(f">{count}Q", content)
