"""A directory of the operating system, locked while it is in use."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self
from weakref import WeakSet

from fjm2.base.errors import ConfigError

from ..disk import Buffer, byte_count
from ..errors import NoRoomError, StoreInUseError, WrongOwnerError
from ..writes import NO_ROOM

LOCK = "lock"
_PARTS_MAX = 1024
"""Parts of one pwritev on Linux (IOV_MAX)."""
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCK_TEXT_BYTES_MAX = 256
_ROOM_EXPECTED = "expected room for a store; delete other files"


class OsDisk:
    """A directory. Implements `Disk`. It takes one file descriptor for each segment."""

    def __init__(self, directory: str | os.PathLike[str], *, read_only: bool = False) -> None:
        """Lock a directory, and make it first if it is missing. With `read_only` nothing is made or changed.

        Raises StoreInUseError if another process holds the lock, and WrongOwnerError if others own the directory or may
        write to it.
        """
        self._path = Path(directory)
        self._mode = os.O_RDONLY if read_only else os.O_RDWR
        self._is_read_only = read_only
        self._files: dict[int, int] = {}
        self._next_file = 0
        self._lock = -1
        try:
            if not read_only:
                self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoRoomError(f"{self._path}: {error.strerror}: {_ROOM_EXPECTED}") from error
            raise ConfigError(f"{self._path}: {error.strerror}: expected a directory for a store") from error
        try:
            self._check(self._path, os.fstat(self._directory))
            with _locking:
                _open_disks.add(self)
                self._take_lock()
            for name in self.names():
                self._check(self._path / name, os.stat(name, dir_fd=self._directory, follow_symlinks=False))
        except BaseException:
            self.shut()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def shut(self) -> None:
        """Close all files, and give up the lock. Calling it twice is harmless."""
        for descriptor in [*self._files.values(), self._lock, self._directory]:
            if descriptor >= 0:
                os.close(descriptor)
        self._files.clear()
        self._lock = self._directory = -1

    def _check(self, path: Path, found: os.stat_result) -> None:
        if found.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            raise WrongOwnerError(
                f"{path}: belongs to user {found.st_uid}: expected {os.geteuid()}, who runs this program"
            )
        if found.st_mode & _OTHERS_MAY_WRITE:
            mode = stat.S_IMODE(found.st_mode)
            raise WrongOwnerError(f"{path}: mode {mode:o}: expected that only its owner may write; chmod go-w {path}")
        if path != self._path and not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{path}: not a regular file: expected files of a store only")

    def _take_lock(self) -> None:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_RDONLY if self._is_read_only else os.O_RDWR | os.O_CREAT)
        try:
            self._lock = os.open(LOCK, flags, 0o600, dir_fd=self._directory)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            # Nobody has ever written here, so nobody holds the lock.
            return
        except BlockingIOError as error:
            holder = os.pread(self._lock, _LOCK_TEXT_BYTES_MAX, 0).decode("ascii", "replace").strip()
            raise StoreInUseError(
                f"{self._path / LOCK}: held by {holder or 'another process'}: expected a store that nobody has open; "
                "stop that program, or name another directory"
            ) from error
        except OSError as error:
            if error.errno in NO_ROOM:
                raise NoRoomError(f"{self._path / LOCK}: {error.strerror}: {_ROOM_EXPECTED}") from error
            raise ConfigError(f"{self._path / LOCK}: {error.strerror}: expected a file that can be locked") from error
        # A full disk may have no room for the text, which only helps people. The store in it may still be opened.
        if self._is_read_only:
            return
        with contextlib.suppress(OSError):
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"pid {os.getpid()} on {socket.gethostname()}\n".encode("ascii", "replace"), 0)

    def names(self) -> list[str]:
        """Return the names of all files but the lock."""
        return sorted(name for name in os.listdir(self._directory) if name != LOCK)

    def free_bytes(self) -> int:
        """Return the room on the disk for this user."""
        found = os.fstatvfs(self._directory)
        return found.f_bavail * found.f_frsize

    def open(self, name: str, size: int = 0) -> int:
        """Open or create a file."""
        flags = self._mode | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(name, flags, dir_fd=self._directory)
        except FileNotFoundError:
            if self._is_read_only:
                raise
            descriptor = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._directory)
            if size:
                os.ftruncate(descriptor, size)
        # Numbers of our own are never given twice, so that a late reader cannot meet another file.
        self._next_file += 1
        self._files[self._next_file] = descriptor
        return self._next_file

    def close(self, file: int) -> None:
        """Close a file."""
        os.close(self._descriptor(file))
        del self._files[file]

    def size(self, file: int) -> int:
        """Return the length of a file."""
        return os.fstat(self._descriptor(file)).st_size

    def pread(self, file: int, size: int, offset: int) -> bytes:
        """Return bytes of a file."""
        descriptor = self._descriptor(file)
        data = os.pread(descriptor, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]
        done = len(data)
        while done < size and (data := os.pread(descriptor, size - done, offset + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pwritev(self, file: int, parts: Sequence[Buffer], offset: int) -> int:
        """Write parts into a file."""
        descriptor = self._descriptor(file)
        at = offset
        for first in range(0, len(parts), _PARTS_MAX):
            group: list[Buffer] = list(parts[first : first + _PARTS_MAX])
            left = sum(map(byte_count, group))
            while left:
                written = os.pwritev(descriptor, group, at)
                at += written
                left -= written
                if left:
                    group = [b"".join(group)[written:]]
        return at - offset

    def fdatasync(self, file: int) -> None:
        """Bring a file's content to the medium."""
        os.fdatasync(self._descriptor(file))

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        os.rename(old, new, src_dir_fd=self._directory, dst_dir_fd=self._directory)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        os.unlink(name, dir_fd=self._directory)

    def sync_directory(self) -> None:
        """Bring the names of files to the medium."""
        os.fsync(self._directory)

    def _descriptor(self, file: int) -> int:
        descriptor = self._files.get(file)
        if descriptor is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return descriptor


_locking: Final = threading.Lock()
"""Held while a lock is taken. No fork comes in between, whose child would not know that it has the lock."""
_open_disks: Final = WeakSet[OsDisk]()


def _after_fork() -> None:
    """Leave all directories to the parent. A lock is held as long as any process has it open."""
    _locking.release()
    for disk in list(_open_disks):
        disk.shut()


os.register_at_fork(before=_locking.acquire, after_in_parent=_locking.release, after_in_child=_after_fork)
