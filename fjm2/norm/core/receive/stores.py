"""Where the segments of an object are put while it arrives."""

import mmap
import os
import tempfile
from contextlib import suppress
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_PAGE = 4096
_HUGE_FROM = 1 << 22  # from here on numpy asks for them


def lazy_memory(size: int) -> NDArray[np.uint8]:
    """Memory that is taken page by page, as it is written to. A MemoryError if there is not even room for the claim.

    Numpy asks for huge pages where an array is large: then a single segment, of a sender that claims much and sends
    little, would take two megabytes.
    """
    if size < _HUGE_FROM or not hasattr(mmap, "MADV_NOHUGEPAGE"):
        return np.empty(size, np.uint8)
    try:
        # Private, for then the kernel joins neighbours: a process may have so many mappings only.
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes") from error
    with suppress(OSError):  # a kernel that knows no huge pages
        pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, np.uint8)


class Store(Protocol):
    """Bytes that arrive in any order."""

    def write(self, offset: int, rows: NDArray[np.uint8]) -> None:
        """Put rows, which may be strided, one behind the other; an OSError if that fails."""
        ...

    def read(self, offset: int, size: int) -> NDArray[np.uint8]:
        """Bytes that were written before."""
        ...

    def close(self) -> None:
        """Give all up."""
        ...

    def memory_bytes(self, segments: int, segment_bytes: int) -> int:
        """Memory taken once so many segments have come."""
        ...


class MemoryStore:
    """An object in memory. Memory is only taken for pages written to."""

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
        return min(segments * max(segment_bytes, _PAGE), self.data.size)


class FileStore:
    """An object in a temporary file, which is the application's once it is complete."""

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
        """The file is complete, and no longer ours."""
        os.close(self._file)
        self._file = -1
        return self.path

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
            with suppress(OSError):  # somebody has cleaned up
                os.unlink(self.path)

    def memory_bytes(self, segments: int, segment_bytes: int) -> int:  # noqa: ARG002
        return 0
