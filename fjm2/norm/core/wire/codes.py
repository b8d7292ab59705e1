"""The numbers of RFC 5740 that have a name."""

from enum import IntEnum, IntFlag

VERSION = 1
NODE_NONE = 0x00000000
NODE_ANY = 0xFFFFFFFF


class MessageType(IntEnum):
    INFO = 1
    DATA = 2
    CMD = 3
    NACK = 4
    ACK = 5
    REPORT = 6


class Flavor(IntEnum):
    """What a CMD is about."""

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
    SYN = 0x40  # libnorm's own, of its socket layer


class RepairForm(IntEnum):
    """How the items of a repair request are to be read."""

    ITEMS = 1
    RANGES = 2
    ERASURES = 3


class RepairFlag(IntFlag):
    """What a repair request asks for."""

    SEGMENT = 0x01
    BLOCK = 0x02
    INFO = 0x04
    OBJECT = 0x08


class AckType(IntEnum):
    """The types that have a meaning of their own; 16 to 255 are the application's."""

    CC = 1
    FLUSH = 2


class CcFlag(IntFlag):
    """What congestion control says of a receiver."""

    CLR = 0x01
    PLR = 0x02
    RTT = 0x04
    START = 0x08
    LEAVE = 0x10
    LIMIT = 0x20  # libnorm's own


class FecId(IntEnum):
    """FEC Encoding IDs of the building blocks that NORM uses here."""

    COMPACT_NO_CODE = 0
    REED_SOLOMON_M = 2
    REED_SOLOMON_8 = 5
    SMALL_BLOCK_SYSTEMATIC = 129


REPAIR_ADV_LIMIT = 0x01
