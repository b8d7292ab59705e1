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
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from fjm2.base.quantities import counted

from .disk import Disk

_LOCK: Final = "lock"
_TRIES: Final = 5
"""Times that a folder is made: another process may take one without a lock for one that was left behind."""
_KEPT_BYTES: Final = 64 << 20
"""Bytes that stay free on the disk, for everything else."""


class PartialFile:
    """A file that is being received. All methods are for the disk's thread, and none raises."""

    def __init__(self, folder: "FileFolder", size: int) -> None:
        self.path = ""
        self.size = size
        self.written = 0
        self.error: OSError | None = None
        """First failure. Nothing is written after it."""
        self._folder = folder
        self._fd = -1

    def open(self) -> None:
        """Make the file."""
        try:
            self._fd, self.path = self._folder.make(self.size)
        except OSError as error:
            self.error = error

    def write(self, data: memoryview) -> None:
        """Append data."""
        try:
            while data and self.error is None:
                count = os.write(self._fd, data)
                self.written += count
                self._folder.promised_bytes -= count
                data = data[count:]
        except OSError as error:
            self.error = error

    def finish(self) -> None:
        """Close the file. It is an error if somebody has deleted it."""
        if self.error is not None:
            return
        try:
            if not os.fstat(self._fd).st_nlink:
                raise OSError(errno.ENOENT, "somebody has deleted it while it was received")
            self._close()
        except OSError as error:
            self.error = error

    def remove(self) -> None:
        """Close and delete the file, whose room was released."""
        with contextlib.suppress(OSError):
            self._close()
        if self.path:
            with contextlib.suppress(OSError):
                os.unlink(self.path)
        self._folder.note_gone()

    def _close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._folder.promised_bytes -= self.size - self.written
            os.close(fd)


class FileFolder:
    """Makes files in a folder that only this process uses. The folder is made for the first of them."""

    def __init__(self, directory: str | None, bytes_max: int, disk: Disk) -> None:
        """Use `directory`, or else the system's for temporary files. All files together have at most `bytes_max`."""
        self._parent = directory
        self.bytes_max = bytes_max
        self.disk: Final = disk
        self.used_bytes = 0
        """Bytes of the files that are being received, and of those that messages refer to."""
        self.promised_bytes = 0
        """Bytes that are still to be written. Only the disk's thread uses it."""
        self._files_left = 0
        self._lock = threading.Lock()
        """Held while the first and the last of these change."""
        self._folder: Path | None = None
        self._remove_folder: Callable[[], object] = _nothing
        self._number = 0
        self._is_closed = False

    @property
    def parent(self) -> str:
        """Directory of the folder."""
        return self._parent or tempfile.gettempdir()

    def has_room(self, size: int) -> bool:
        """Return True if a file of this size is within the bound."""
        return self.used_bytes + size <= self.bytes_max

    def reserve(self, size: int) -> PartialFile:
        """Return a file that is still to be opened. Raise OSError if it is not within the bound."""
        if self._is_closed:
            raise OSError(errno.ESHUTDOWN, "the bus is closed")
        if not self.has_room(size):
            raise OSError(
                errno.EDQUOT, f"there is no room for {counted(size, 'byte')} more: files_bytes_max={self.bytes_max}"
            )
        with self._lock:
            self.used_bytes += size
            self._files_left += 1
        return PartialFile(self, size)

    def make(self, size: int) -> tuple[int, str]:
        """Make a file, and return its descriptor and path. Raise OSError if there is no room, or no folder."""
        folder = self._open()
        free = shutil.disk_usage(folder).free - self.promised_bytes
        if size + _KEPT_BYTES > free:
            raise OSError(
                errno.ENOSPC,
                f"{folder} has {counted(max(free, 0), 'byte')} left, which is too little for {size} more",
            )
        self._number += 1
        path = str(folder / str(self._number))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.promised_bytes += size
        return fd, path

    def delete(self, path: str, size: int) -> None:
        """Delete a whole file soon. Callable in any thread, and while memory is collected."""
        self.disk.leave(partial(self._delete, path, size))

    def _delete(self, path: str, size: int) -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)
        self.release(size)
        self.note_gone()

    def release(self, size: int) -> None:
        """Let others have the room of a file."""
        with self._lock:
            self.used_bytes -= size

    def note_gone(self) -> None:
        """Note that a file is gone."""
        with self._lock:
            self._files_left -= 1
        self._end_if_last()

    def close(self) -> None:
        """Remove the folder, soon or when the last message with a file is gone."""
        self._is_closed = True
        self.disk.leave(self._end_if_last)

    def _end_if_last(self) -> None:
        if self._is_closed and not self._files_left:
            self._remove_folder()
            self.disk.close()

    def _open(self) -> Path:
        """Return the folder. Make it if there is none: programs that tidy up may have removed it."""
        if self._folder is None or not self._folder.is_dir():
            self._remove_folder()
            root = _own_root(Path(self.parent))
            remove_left_behind(root)
            self._folder, fd = _make_locked(root)
            # It goes with the program, too, if messages live until then.
            self._remove_folder = weakref.finalize(self, _remove_locked, self._folder, fd)
        return self._folder


def _nothing() -> None:
    pass


def _remove_locked(folder: Path, lock_fd: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock_fd)


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
