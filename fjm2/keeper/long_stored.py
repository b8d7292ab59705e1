"""STOREDs that are longer than a datagram.

One that names no decision log is a sum of statements about ledgers, and is sent as several STOREDs. One that does is a
report to the manager, which counts only as a whole: it travels in parts, NORM_ACKs of type 19. Big-endian: u32 number
of the report, u16 part, u16 parts, bytes.
"""

import struct
from collections import OrderedDict
from dataclasses import replace
from typing import Final

from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.cell.wire.stored import STORED_TYPE, Stored

PART_TYPE: Final = 19
"""Type of the NORM_ACK that is a part of a report."""
_PART: Final = struct.Struct(">IHH")
_PARTS_MAX: Final = 128
"""Most parts of a report: 64 KB in parts of 512 bytes."""
_NODES_MAX: Final = 16
"""Most nodes whose reports are put together at a time: as many as a manager listens to."""
_BYTES_MAX: Final = 1 << 16
_NUMBERS: Final = 1 << 32


class StoredSplitter:
    """Cuts STOREDs to the size of datagrams."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._number = 0

    def acks(self, stored: Stored) -> list[tuple[int, bytes]]:
        """Return types and contents of the acknowledgements to send."""
        content = stored.encode()
        if len(content) <= self._bytes_max:
            return [(STORED_TYPE, content)]
        if (stored.ledgers["lane"] == DECISION_LANE).any():
            return [(PART_TYPE, part) for part in self._parts(content)]
        row_bytes = stored.ledgers.itemsize
        head_bytes = len(content) - row_bytes * len(stored.ledgers)
        rows = max((self._bytes_max - head_bytes) // row_bytes, 1)
        return [
            (STORED_TYPE, replace(stored, ledgers=stored.ledgers[at : at + rows]).encode())
            for at in range(0, len(stored.ledgers), rows)
        ]

    def _parts(self, content: bytes) -> list[bytes]:
        self._number = (self._number + 1) % _NUMBERS
        size = self._bytes_max - _PART.size
        pieces = [content[at : at + size] for at in range(0, len(content), size)]
        return [_PART.pack(self._number, part, len(pieces)) + piece for part, piece in enumerate(pieces)]


class StoredJoiner:
    """Puts reports together. Of each node it keeps the parts of one."""

    def __init__(self) -> None:
        self._reports: OrderedDict[int, tuple[int, list[bytes]]] = OrderedDict()

    def receive(self, node_id: int, content: bytes) -> bytes | None:
        """Take a part. Return the STORED that it completes."""
        if len(content) <= _PART.size:
            return None
        number, part, parts = _PART.unpack_from(content)
        if part >= parts or parts > _PARTS_MAX:
            return None
        known = self._reports.pop(node_id, None)
        if known is None or known[0] != number or len(known[1]) != parts:
            known = number, [b""] * parts
        pieces = known[1]
        pieces[part] = content[_PART.size :]
        if sum(map(len, pieces)) > _BYTES_MAX:
            return None
        if all(pieces):
            return b"".join(pieces)
        self._reports[node_id] = known
        if len(self._reports) > _NODES_MAX:
            self._reports.popitem(last=False)
        return None
