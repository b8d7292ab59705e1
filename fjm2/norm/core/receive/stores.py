"""Storage of an object's bytes while it is being received."""

import mmap
import os
import tempfile
from contextlib import suppress
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_PAGE_BYTES = 4096
"""Least memory in bytes that one write takes: the kernel allocates whole pages."""
_HUGE_MIN_BYTES = 1 << 22
"""Size of an array in bytes from which numpy asks the kernel for huge pages."""


def lazy_memory(size: int) -> NDArray[np.uint8]:
    """Return memory that is allocated page by page when written. Raise MemoryError if it cannot even be reserved.

    Numpy asks for huge pages for large arrays. A single segment of a sender that claims much and sends little would
    then take two megabytes.
    """
    if size < _HUGE_MIN_BYTES or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.empty(size, np.uint8)
    try:
        # Private, so that the kernel merges neighbours: the number of mappings of a process is limited.
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes") from error
    with suppress(OSError):  # the kernel does not support huge pages
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.uint8)


class Store(Protocol):
    """Storage for bytes that arrive in any order."""

    def write(self, offset: int, rows: NDArray[np.uint8]) -> None:
        """Write rows, which may be strided, one after the other from `offset` on. Raise OSError if that fails."""
        ...

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        """Return `size` bytes from `offset` on, which were written before."""
        ...

    def close(self) -> None:
        """Release files and memory."""
        ...

    def memory_bytes(self, segments: int, segment_bytes: int) -> int:
        """Return the memory in bytes that a number of segments takes."""
        ...


class MemoryStore:
    """Store that holds an object in memory. Only pages that were written take memory."""

    __slots__ = ("data",)

    def __init__(self, size: int) -> None:
        self.data = lazy_memory(size)

    def write(self, offset: int, rows: NDArray[np.uint8]) -> None:
        self.data[offset : offset + rows.size].reshape(rows.shape)[:] = rows

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        return self.data[offset : offset + size]

    def close(self) -> None:
        self.data = np.empty(0, np.uint8)

    def memory_bytes(self, segments: int, segment_bytes: int) -> int:
        return min(segments * max(segment_bytes, _PAGE_BYTES), self.data.size)


class FileStore:
    """Store that holds an object in a temporary file. The file belongs to the application once it is complete."""

    __slots__ = ("_file", "path")

    def __init__(self, directory: str) -> None:
        self._file, self.path = tempfile.mkstemp(prefix=".fjm2-", suffix=".part", dir=directory)

    def write(self, offset: int, rows: NDArray[np.uint8]) -> None:
        data = rows.tobytes()
        if os.pwrite(self._file, data, offset) != len(data):
            raise OSError("disk full")

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        return np.frombuffer(os.pread(self._file, size, offset).ljust(size, b"\0"), np.uint8)

    def hand_over(self) -> str:
        """Close the complete file, and return its path. The file belongs to the caller from then on."""
        os.close(self._file)
        self._file = -1
        return self.path

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with suppress(OSError):  # someone else has removed it
                os.unlink(self.path)

    def memory_bytes(self, segments: int, segment_bytes: int) -> int:  # noqa: ARG002
        return 0
