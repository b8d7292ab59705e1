"""Sources of the bytes of DATA and FILE objects, which are read when they are sent or repaired."""

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class Source(Protocol):
    """Source of bytes that can be read at any offset, any number of times."""

    size: int
    """Number of bytes."""
    memory_bytes: int
    """Number of bytes that are held in memory."""

    def read(self, offset: int, rows: NDArray[np.uint8]) -> None:
        """Fill rows, which may be strided, with the bytes from `offset` on. Raise OSError if reading fails."""
        ...

    def close(self) -> None:
        """Release files and memory. Closing twice is harmless."""
        ...


class MemorySource:
    """Source that reads from memory. The bytes are not copied."""

    __slots__ = ("_data", "memory_bytes", "size")

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self.size = self.memory_bytes = self._data.size
        """Number of bytes; `memory_bytes` is the same, as all are in memory."""

    def read(self, offset: int, rows: NDArray[np.uint8]) -> None:
        """Fill rows, which may be strided, with the bytes from `offset` on."""
        rows[:] = self._data[offset : offset + rows.size].reshape(rows.shape)

    def close(self) -> None:
        """Release the memory. Closing twice is harmless."""
        self._data = np.empty(0, np.uint8)


class FileSource:
    """Source that reads from a file while it is sent. Its size is that of the file when the source was made."""

    __slots__ = ("_file", "_scratch", "memory_bytes", "size")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file: int | None = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self.size = os.fstat(self._file).st_size
        """Number of bytes."""
        self.memory_bytes = 0
        """Number of bytes held in memory: always 0."""
        self._scratch = np.empty(0, np.uint8)

    def read(self, offset: int, rows: NDArray[np.uint8]) -> None:
        """Fill rows, which may be strided, with the bytes from `offset` on. Raise OSError if reading fails."""
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
        """Close the file. Closing twice is harmless."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
