"""Checksums of all that is on disk. Each structure names the algorithm of its own, so all can be read everywhere."""

import zlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from fjm2.base.checksums import IS_CRC32C_FAST, Checksum, crc32c

from ..disk import Buffer


class Algorithm(IntEnum):
    """Algorithm of a checksum. The fourth character of a magic number on disk names it."""

    CRC32C = 1
    ZLIB = 2

    @property
    def function(self) -> Checksum:
        """Function that continues a checksum with more bytes."""
        return crc32c if self is Algorithm.CRC32C else zlib.crc32

    def magic(self, name: bytes) -> bytes:
        """Return the magic number of a structure with this checksum: three letters and the digit."""
        return name + b"%d" % self


PREFERRED: Final = Algorithm.CRC32C if IS_CRC32C_FAST else Algorithm.ZLIB
"""Algorithm of all that is written."""


def algorithm_of(magic: bytes, name: bytes) -> Algorithm | None:
    """Return the algorithm that a magic number names, or None if it is not the magic number of this structure."""
    for algorithm in Algorithm:
        if magic == algorithm.magic(name):
            return algorithm
    return None


def checksum_of(algorithm: Algorithm, parts: Iterable[Buffer], start: int = 0) -> int:
    """Return the checksum of parts one behind the other."""
    function = algorithm.function
    for part in parts:
        start = function(part, start)
    return start
