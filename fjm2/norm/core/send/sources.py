"""Where the bytes of a DATA or FILE object come from when they are sent, and sent again."""

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Source(Protocol):
    """Bytes that can be read at any place, any number of times."""

    size: int
    """In bytes."""
    memory_bytes: int
    """What of them is held in memory."""

    def read(self, offset: int, rows: NDArray[np.uint8]) -> None:
        """Fill rows, which may be strided, with consecutive bytes; an OSError if they can't be had."""
        ...

    def close(self) -> None:
        """Give up what is held open; twice is as good as once."""
        ...


class MemorySource:
    """Bytes in memory, not copied."""

    __slots__ = ("_data", "memory_bytes", "size")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self.size = self.memory_bytes = self._data.size
        """In bytes; all of them are in memory, which is what `memory_bytes` says."""

    def read(self, offset: int, rows: NDArray[np.uint8]) -> None:
        """Fill rows, which may be strided, with consecutive bytes."""
        rows[:] = self._data[offset : offset + rows.size].reshape(rows.shape)

    def close(self) -> None:
        """Give up what is held; twice does no harm."""
        self._data = np.empty(0, np.uint8)


class FileSource:
    """A file, read as it is sent. Its size is what it was at the beginning."""

    __slots__ = ("_file", "_scratch", "memory_bytes", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: int | None = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self.size = os.fstat(self._file).st_size
        """In bytes."""
        self.memory_bytes = 0
        """None of them is held in memory."""
        self._scratch = np.empty(0, np.uint8)

    def read(self, offset: int, rows: NDArray[np.uint8]) -> None:
        """Fill rows, which may be strided, with consecutive bytes; an OSError if they can't be had."""
        if self._file is None:
            raise OSError("file closed")
        if self._scratch.size < rows.size:
            self._scratch = np.empty(rows.size, np.uint8)
        scratch = self._scratch[: rows.size]
        count = os.preadv(self._file, [scratch.data], offset)
        if count < rows.size:
            raise OSError(f"file shorter than its {self.size} bytes")
        rows[:] = scratch.reshape(rows.shape)

    def close(self) -> None:
        """Close the file; twice does no harm."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
