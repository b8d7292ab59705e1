"""CRC-32C for frames and files: by the processor's instruction if the package crc32c is installed, else by tables.

CRC-32C by the instruction costs a half to a fifth of zlib's CRC-32, and by tables more than a hundred times as much. So
a writer that lacks the package uses zlib's CRC-32 instead. It still reads CRC-32C.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Checksum: TypeAlias = Callable[[bytes | bytearray | memoryview, int], int]
"""Function that continues a checksum with more bytes. The checksum of no bytes is 0."""

_POLYNOMIAL: Final = 0x82F63B78
"""Castagnoli's polynomial, lowest bit first (RFC 3720, B.4)."""
_BLOCK_BYTES: Final = 256
"""Bytes that one step of tables takes: their table takes 256 KiB, which stays in a processor's cache."""
_ALL_ONES: Final = 0xFFFFFFFF


@cache
def _byte_table() -> list[int]:
    """Return the remainder of each byte."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


@cache
def _place_tables() -> "NDArray[np.uint32]":
    """Return a row for each place in a block: the remainder of each byte there, with zeros to the block's end."""
    import numpy as np  # only now: it takes a while to load, and only tables need it

    of_byte = np.array(_byte_table(), np.uint32)
    tables = np.empty((_BLOCK_BYTES, 256), np.uint32)
    row = of_byte
    for place in range(_BLOCK_BYTES - 1, -1, -1):
        tables[place] = row
        row = row >> np.uint32(8) ^ of_byte[row & np.uint32(0xFF)]
    return tables


def crc32c_by_tables(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Continue the CRC-32C `value` with `data`."""
    if not memoryview(data).nbytes:
        return value  # nothing of no bytes can be cast
    data = memoryview(data).cast("B")  # an array may have larger items
    table = _byte_table()
    remainder = value ^ _ALL_ONES
    blocks = len(data) // _BLOCK_BYTES
    if blocks:
        import numpy as np

        tables = _place_tables()
        rows = np.frombuffer(data, np.uint8, blocks * _BLOCK_BYTES).reshape(blocks, _BLOCK_BYTES)
        # Remainders are linear, so a block's is that of its bytes, combined with the one before moved past the block.
        of_blocks = [
            int(one)
            for first in range(0, blocks, _BLOCK_BYTES)
            for one in np.bitwise_xor.reduce(
                tables[np.arange(_BLOCK_BYTES), rows[first : first + _BLOCK_BYTES]], axis=1
            ).tolist()
        ]
        first, second, third, fourth = (tables[place].tolist() for place in range(4))
        for one in of_blocks:
            remainder = (
                one
                ^ first[remainder & 0xFF]
                ^ second[remainder >> 8 & 0xFF]
                ^ third[remainder >> 16 & 0xFF]
                ^ fourth[remainder >> 24]
            )
    for byte in data[blocks * _BLOCK_BYTES :]:
        remainder = remainder >> 8 ^ table[(remainder ^ byte) & 0xFF]
    return remainder ^ _ALL_ONES


crc32c: Checksum
"""Continues a CRC-32C with more bytes."""
try:
    from crc32c import crc32c
except ImportError:
    crc32c = crc32c_by_tables

IS_CRC32C_FAST: Final = crc32c is not crc32c_by_tables
"""True if CRC-32C costs less than zlib's CRC-32, so that writers should choose it."""
