"""The folder of a bus for files that are being received. Memory and disk are bounded, and nothing stays behind.

Each bus has a folder of its own, with a lock that it holds. A folder whose lock is free belongs to a process that was
killed: whoever makes a folder next to it removes it.
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import threading
from pathlib import Path
from typing import Final

from fjm2.base.quantities import counted

_LOCK: Final = "lock"
_TRIES: Final = 5
"""Times that a folder is made: another process may take one without a lock for one that was left behind."""
_KEPT_BYTES: Final = 64 << 20
"""Bytes that stay free on the disk, for everything else."""


class PartialFile:
    """A file that is being received."""

    def __init__(self, path: str, size: int) -> None:
        self.path = path
        self.size = size
        self.written = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, data: memoryview) -> None:
        """Append data. Raise OSError if the disk does not take it."""
        while data:
            count = os.write(self._fd, data)
            self.written += count
            data = data[count:]

    def close(self) -> None:
        """Close the file. Calling this twice does no harm."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Close and delete the file."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)


class FileFolder:
    """Makes files in a folder that only this process uses. The folder is made for the first of them."""

    def __init__(self, directory: str | None, bytes_max: int) -> None:
        """Use `directory`, or else the system's for temporary files. All files together have at most `bytes_max`."""
        self._parent = directory
        self.bytes_max = bytes_max
        self.used_bytes = 0
        """Bytes of the files that are being received, and of those that messages refer to."""
        self._files_left = 0
        self._lock = threading.Lock()
        """Held while the two above change: messages may be forgotten in any thread."""
        self._folder: Path | None = None
        self._lock_fd = -1
        self._number = 0
        self._is_closed = False

    def has_room(self, size: int) -> bool:
        """Return True if a file of this size is within the bound."""
        return self.used_bytes + size <= self.bytes_max

    def create(self, size: int) -> PartialFile:
        """Make a file. Raise OSError if there is no room for it, or the folder cannot be used."""
        if not self.has_room(size):
            raise OSError(
                errno.EDQUOT, f"there is no room for {counted(size, 'byte')} more: files_bytes_max={self.bytes_max}"
            )
        folder = self._open()
        free = shutil.disk_usage(folder).free
        if size + _KEPT_BYTES > free:
            raise OSError(
                errno.ENOSPC, f"{folder} has {counted(free, 'byte')} left, which is too little for {size} more"
            )
        self._number += 1
        made = PartialFile(str(folder / f"{self._number}"), size)
        with self._lock:
            self.used_bytes += size
            self._files_left += 1
        return made

    def forget(self, size: int) -> None:
        """Note that a file of this size is gone."""
        with self._lock:
            self.used_bytes -= size
            self._files_left -= 1
            is_last = self._is_closed and not self._files_left
        if is_last:
            self._remove()

    def close(self) -> None:
        """Remove the folder, now or when the last message with a file is gone."""
        with self._lock:
            self._is_closed = True
            is_last = not self._files_left
        if is_last:
            self._remove()

    def _remove(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(self._lock_fd)

    def _open(self) -> Path:
        if self._folder is None:
            root = _own_root(Path(self._parent or tempfile.gettempdir()))
            remove_left_behind(root)
            self._folder, self._lock_fd = _make_locked(root)
        return self._folder


def _own_root(parent: Path) -> Path:
    """Return the folder of this user, which nobody else may enter."""
    root = parent / f"fjm2-files-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(root, 0o700)
    found = os.lstat(root)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise OSError(errno.EPERM, f"{root} is not a folder that only this user may enter")
    return root


def _make_locked(root: Path) -> tuple[Path, int]:
    """Return a new folder, and the descriptor that holds its lock."""
    for _ in range(_TRIES):
        folder = root / f"{os.getpid()}-{secrets.token_hex(8)}"
        os.mkdir(folder, 0o700)
        with contextlib.suppress(OSError):
            fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _lock(fd)
                os.stat(folder / _LOCK)  # gone if another process took it for one that was left behind
                return folder, fd
            except OSError:
                os.close(fd)
    raise OSError(errno.EAGAIN, f"no folder could be made in {root}")


def _lock(fd: int) -> None:
    """Lock a file. Raise OSError if another process holds the lock."""
    import fcntl  # not at the top: Windows has no such module, and says why there is no bus when one is opened

    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_left_behind(root: Path) -> None:
    """Remove the folders of processes that are gone."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(root)):
            with contextlib.suppress(OSError):
                try:
                    fd = os.open(Path(entry.path) / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                except FileNotFoundError:
                    os.rmdir(entry.path)  # if it is empty; its process, if it lives, makes another
                    continue
                try:
                    _lock(fd)
                    shutil.rmtree(entry.path, ignore_errors=True)
                finally:
                    os.close(fd)
