"""Checksums of all that is on disk: CRC-32C, or CRC-32 of zlib where the package `crc32c` is not installed."""

import zlib
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module

from ..disk import Buffer

Crc = Callable[[Buffer, int], int]

try:
    _crc32c: Crc | None = import_module("crc32c").crc32c
except ImportError:  # where no wheel of crc32c fits
    _crc32c = None


class Checksum(IntEnum):
    """Algorithm of a checksum. The fourth character of a magic number on disk names it."""

    CRC32C = 1
    ZLIB = 2

    @property
    def function(self) -> Crc | None:
        """Function that continues a checksum over more bytes. None for CRC-32C where `crc32c` is not installed."""
        return _crc32c if self is Checksum.CRC32C else zlib.crc32

    def magic(self, name: bytes) -> bytes:
        """Return the magic number of a structure with this checksum: three letters and the digit."""
        return name + b"%d" % self


PREFERRED = Checksum.ZLIB if _crc32c is None else Checksum.CRC32C
"""Algorithm for all that is written: CRC-32C is five times as fast."""


def algorithm_of(magic: bytes, name: bytes) -> Checksum | None:
    """Return the algorithm that a magic number names, or None if it is not the magic number of this structure."""
    for algorithm in Checksum:
        if magic == algorithm.magic(name):
            return algorithm
    return None
