"""Names of the numbers that RFC 5740 defines."""

from enum import IntEnum, IntFlag

VERSION = 1
"""Version of NORM that every message carries."""
NODE_NONE = 0x00000000
"""Node id that stands for no node."""
NODE_ANY = 0xFFFFFFFF
"""Node id that stands for any node."""


class MessageType(IntEnum):
    """Type of a NORM message."""

    INFO = 1
    DATA = 2
    CMD = 3
    NACK = 4
    ACK = 5
    REPORT = 6


class Flavor(IntEnum):
    """Flavor of a CMD (RFC 5740, 4.2.3)."""

    FLUSH = 1
    EOT = 2
    SQUELCH = 3
    CC = 4
    REPAIR_ADV = 5
    ACK_REQ = 6
    APPLICATION = 7


class ObjectFlag(IntFlag):
    """Flags of INFO and DATA."""

    REPAIR = 0x01
    EXPLICIT = 0x02
    INFO = 0x04
    UNRELIABLE = 0x08
    FILE = 0x10
    STREAM = 0x20
    SYN = 0x40  # libnorm only, for its socket layer
    PASSING = 0x80  # FJM2 only: see `kept.py`


class RepairForm(IntEnum):
    """Form of a repair request, which tells how to read its items."""

    ITEMS = 1
    RANGES = 2
    ERASURES = 3


class RepairFlag(IntFlag):
    """Parts that a repair request asks for."""

    SEGMENT = 0x01
    BLOCK = 0x02
    INFO = 0x04
    OBJECT = 0x08


class AckType(IntEnum):
    """Types of ACK that NORM defines. 16 to 255 are for applications."""

    CC = 1
    FLUSH = 2


APPLICATION_ACK_MIN = 16
"""Lowest type of ACK that applications define (RFC 5740, 4.2.3). The highest is 255."""
APPLICATION_ACK_MAX = 255


class CcFlag(IntFlag):
    """Flags of a receiver in congestion control."""

    CLR = 0x01
    PLR = 0x02
    RTT = 0x04
    START = 0x08
    LEAVE = 0x10
    LIMIT = 0x20  # libnorm only


class StatusFlag(IntFlag):
    """Flags of a receiver in an EXT_STATUS, an extension of FJM2."""

    FULL = 0x0001
    """Its application takes nothing at the moment. What arrives is dropped, and requested again later."""


class FecId(IntEnum):
    """FEC Encoding IDs that are supported here."""

    COMPACT_NO_CODE = 0
    REED_SOLOMON_M = 2
    REED_SOLOMON_8 = 5
    SMALL_BLOCK_SYSTEMATIC = 129


REPAIR_ADV_LIMIT = 0x01
"""Flag of a REPAIR_ADV that does not hold all requests."""
