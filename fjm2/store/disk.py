"""The seam to the disk: what the journal asks of a directory, whether real (`OsDisk`) or simulated (`SimDisk`)."""

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview
"""Bytes that are written as they are. An array of numpy is passed as `memoryview(array)`."""
SECTOR_BYTES = 512
"""Bytes that a disk writes whole or not at all. Batches are padded to it."""


def byte_count(part: Buffer) -> int:
    """Return the length of a buffer in bytes."""
    return part.nbytes if isinstance(part, memoryview) else len(part)


class Disk(Protocol):
    """A directory of files. Every method raises OSError if it fails."""

    def names(self) -> list[str]:
        """Return the names of all files."""

    def open(self, name: str, size: int = 0) -> int:
        """Open a file, and return its number. A file that does not exist is created with `size` zero bytes."""

    def close(self, file: int) -> None:
        """Close a file."""

    def size(self, file: int) -> int:
        """Return the length of a file."""

    def pread(self, file: int, size: int, offset: int) -> bytes:
        """Return up to `size` bytes of a file; fewer only at its end."""

    def pwritev(self, file: int, parts: Sequence[Buffer], offset: int) -> int:
        """Write all parts one behind the other, and return their length."""

    def fdatasync(self, file: int) -> None:
        """Return when everything written to a file is on the medium."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file. A file of the new name is replaced."""

    def unlink(self, name: str) -> None:
        """Remove a file."""

    def sync_directory(self) -> None:
        """Return when all files created, renamed and removed are so on the medium."""


def replace_file(disk: Disk, name: str, content: Buffer) -> None:
    """Write a small file so that after a power cut either the old or the new content is there."""
    temporary = f"{name}.tmp"
    if temporary in disk.names():
        disk.unlink(temporary)
    file = disk.open(temporary)
    try:
        disk.pwritev(file, [content], 0)
        disk.fdatasync(file)
    finally:
        disk.close(file)
    disk.rename(temporary, name)
    disk.sync_directory()


def read_whole(disk: Disk, name: str, bytes_max: int) -> bytes:
    """Return the first `bytes_max` bytes of a file."""
    file = disk.open(name)
    try:
        return disk.pread(file, min(disk.size(file), bytes_max), 0)
    finally:
        disk.close(file)
