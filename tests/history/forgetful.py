"""A file system that forgets what was not synced, so that tests can cut the power of real processes.

    python forgetful.py MOUNT SEED NAME...

It mounts a folder with one folder for each name. Each is a `SimDisk`, which models what Linux promises and no more: a
write survives a power cut if the file was synced afterwards, a name if its folder was. Extended attributes of the mount
are its switches: setting `user.cut` cuts the power of all folders, and setting `user.room` bounds each to that many
bytes. It prints `ready` when it is mounted, and unmounts when its stdin ends. Needs root, /dev/fuse and libfuse3.
"""

import errno
import os
import stat
import subprocess
import sys
import threading
import time
from random import Random
from typing import Any

import mfusepy

from fjm2.store.sim_disk import SimDisk

CUT, ROOM = "user.cut", "user.room"
"""Extended attributes of the mount that switch something when they are set."""
LOCK = "lock"
"""A file that a keeper locks and never syncs. It is no part of the simulated disk."""
_FOLDER_MODE, _FILE_MODE = stat.S_IFDIR | 0o700, stat.S_IFREG | 0o600
_ZEROS_BYTES = 1 << 20
_BLOCK_BYTES = 512


class _Folder:
    """A simulated disk, and the lock file beside it."""

    def __init__(self, seed: str) -> None:
        self.disk = SimDisk(Random(seed).randrange(1 << 63))
        self.lock = bytearray()

    def size(self, name: str) -> int:
        if name == LOCK:
            return len(self.lock)
        if name not in self.disk.names():
            raise mfusepy.FuseOSError(errno.ENOENT)
        file = self.disk.open(name)
        try:
            return self.disk.size(file)
        finally:
            self.disk.close(file)

    def resize(self, file: int, length: int) -> None:
        """Append zeros to a file. Nothing but the lock is ever made shorter."""
        size = self.disk.size(file)
        if length < size:
            raise mfusepy.FuseOSError(errno.EOPNOTSUPP)
        for offset in range(size, length, _ZEROS_BYTES):
            self.disk.pwritev(file, [bytes(min(_ZEROS_BYTES, length - offset))], offset)


class Forgetful(mfusepy.Operations):
    """The calls of the kernel, passed on to simulated disks. Handles of files are numbers over all disks."""

    use_ns = True

    def __init__(self, seed: str, names: list[str]) -> None:
        self._folders = {name: _Folder(f"{seed} {name}") for name in names}
        self._handles: dict[int, tuple[_Folder, int]] = {}
        """Folder and its own number of each open file; 0 for the lock."""
        self._next_handle = 0

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:  # noqa: ARG002
        if path != "/" or name not in (CUT, ROOM):
            raise mfusepy.FuseOSError(errno.ENOTSUP)
        for folder in self._folders.values():
            if name == ROOM:
                folder.disk.capacity = int(value)
            else:
                folder.disk.power_cut()
                folder.disk.log.clear()
        if name == CUT:
            self._handles.clear()
        return 0

    def init_with_config(self, conn_info: Any, config_3: Any) -> None:  # noqa: ARG002
        """Have the kernel keep nothing: after a cut, its copies would be wrong."""
        config_3.direct_io = config_3.hard_remove = 1
        config_3.entry_timeout = config_3.negative_timeout = config_3.attr_timeout = 0.0
        print("ready", flush=True)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        now_ns = time.time_ns()
        common = {"st_uid": os.geteuid(), "st_gid": os.getegid(), "st_mtime": now_ns, "st_ctime": now_ns}
        if fh is None and path.count("/") == 1:
            if path != "/" and path[1:] not in self._folders:
                raise mfusepy.FuseOSError(errno.ENOENT)
            return common | {"st_mode": _FOLDER_MODE, "st_nlink": 2}
        if fh is None:
            folder, name = self._place(path)
            size = folder.size(name)
        else:
            folder, file = self._open_file(fh)
            size = folder.disk.size(file) if file else len(folder.lock)
        return common | {
            "st_mode": _FILE_MODE,
            "st_nlink": 1,
            "st_size": size,
            "st_blocks": -(-size // _BLOCK_BYTES),
        }

    def readdir(self, path: str, fh: int) -> list[str]:  # noqa: ARG002
        if path == "/":
            return [".", "..", *self._folders]
        return [".", "..", LOCK, *self._folders[path[1:]].disk.names()]

    def create(self, path: str, mode: int, fi: Any = None) -> int:  # noqa: ARG002
        return self.open(path, os.O_CREAT)

    def open(self, path: str, flags: int) -> int:
        folder, name = self._place(path)
        if not flags & os.O_CREAT:
            folder.size(name)
        self._next_handle += 1
        self._handles[self._next_handle] = folder, 0 if name == LOCK else folder.disk.open(name)
        return self._next_handle

    def release(self, path: str, fh: int) -> int:  # noqa: ARG002
        folder, file = self._handles.pop(fh, (None, 0))
        if folder is not None and file:
            folder.disk.close(file)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:  # noqa: ARG002
        folder, file = self._open_file(fh)
        return folder.disk.pread(file, size, offset) if file else bytes(folder.lock[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:  # noqa: ARG002
        folder, file = self._open_file(fh)
        if file:
            return folder.disk.pwritev(file, [data], offset)
        folder.lock[offset : offset + len(data)] = data
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        folder, name = self._place(path)
        if name == LOCK:
            folder.lock[:] = folder.lock[:length].ljust(length, b"\0")
        elif fh is not None:
            folder.resize(self._open_file(fh)[1], length)
        else:
            file = folder.disk.open(name)
            try:
                folder.resize(file, length)
            finally:
                folder.disk.close(file)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:  # noqa: ARG002
        folder, file = self._open_file(fh)
        if file:
            folder.disk.fdatasync(file)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:  # noqa: ARG002
        self._folders[path[1:]].disk.sync_directory()
        return 0

    def rename(self, old: str, new: str) -> int:
        (folder, old_name), (new_folder, new_name) = self._place(old), self._place(new)
        if folder is not new_folder or LOCK in (old_name, new_name):
            raise mfusepy.FuseOSError(errno.EXDEV)
        folder.size(old_name)
        folder.disk.rename(old_name, new_name)
        return 0

    def unlink(self, path: str) -> int:
        folder, name = self._place(path)
        if name == LOCK:
            raise mfusepy.FuseOSError(errno.EPERM)
        folder.disk.unlink(name)
        return 0

    def chmod(self, path: str, mode: int) -> int:  # noqa: ARG002
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:  # noqa: ARG002
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:  # noqa: ARG002
        return 0

    def _place(self, path: str) -> tuple[_Folder, str]:
        _, folder, *names = path.split("/")
        if folder not in self._folders or len(names) != 1:
            raise mfusepy.FuseOSError(errno.ENOENT)
        return self._folders[folder], names[0]

    def _open_file(self, fh: int) -> tuple[_Folder, int]:
        """Return folder and number of an open file. A file that was open when the power went has neither."""
        found = self._handles.get(fh)
        if found is None:
            raise mfusepy.FuseOSError(errno.EIO)
        return found


def _unmount_at_the_end(mount: str) -> None:
    """Wait until stdin ends, and unmount. Whoever started the program has ended then, or wants this.

    The program ends at once: a process of another mount namespace may have a copy of the mount for long.
    """
    sys.stdin.read()
    os._exit(subprocess.run(["umount", "--lazy", mount]).returncode)


def main(mount: str, seed: str, *names: str) -> None:
    threading.Thread(target=_unmount_at_the_end, args=(mount,), daemon=True).start()
    # Without threads, so that calls come one after the other.
    mfusepy.FUSE(Forgetful(seed, list(names)), mount, foreground=True, nothreads=True, fsname="forgetful")


if __name__ == "__main__":
    main(*sys.argv[1:])
