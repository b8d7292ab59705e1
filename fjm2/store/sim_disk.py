"""A simulated disk that forgets, tears, reorders, flips bits, fails and fills up, by seed.

It models what Linux promises and no more. What was written and not synced survives a power cut sector by sector, in any
mixture. Files that were created, renamed or removed are so for sure only when the directory is synced. After a sync
that failed, pages count as clean: reads show them, further syncs skip them, and a power cut forgets them.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from .disk import SECTOR_BYTES, Buffer


class PowerCutError(Exception):
    """The power went in the middle of a call. `power_cut` turns it on again."""


@dataclass(slots=True, eq=False)
class _File:
    medium: bytearray = field(default_factory=bytearray)
    """Content that survives."""
    cached: bytearray = field(default_factory=bytearray)
    """Content that reads show."""
    unsynced: dict[int, list[bytes]] = field(default_factory=dict)
    """Versions of sectors written since the last sync, oldest first, by number of the sector."""


_Names = dict[str, _File]


class SimDisk:
    """A directory in memory. Implements `Disk`."""

    def __init__(self, seed: int, capacity: int = 1 << 40) -> None:
        self._random = Random(seed)
        self.capacity = capacity
        """Bytes that all files may have."""
        self.calls = 0
        """Calls that changed something or synced."""
        self.cut_at: int | None = None
        """Number of the call in whose middle the power goes."""
        self.fail: Callable[[str, str], int] = lambda _call, _name: 0
        """Decides whether a call on a file fails: the error number, or 0. A test replaces it."""
        self.log: list[tuple[str, str]] = []
        """Calls that changed something or synced, with the names of their files."""
        self._names: _Names = {}
        self._durable_names: _Names = {}
        self._directory_changes: list[Callable[[_Names], None]] = []
        self._open: dict[int, tuple[str, _File]] = {}
        self._next_file = 3

    def names(self) -> list[str]:
        """Return the names of all files."""
        return sorted(self._names)

    def open(self, name: str, size: int = 0) -> int:
        """Open or create a file."""
        if name not in self._names:
            self._count("create", name)
            file = _File()
            self._extend(file, size)
            self._change(lambda names: names.update({name: file}))
        self._next_file += 1
        self._open[self._next_file] = name, self._names[name]
        return self._next_file

    def close(self, file: int) -> None:
        """Close a file."""
        self._get(file)
        del self._open[file]

    def size(self, file: int) -> int:
        """Return the length of a file."""
        return len(self._get(file)[1].cached)

    def pread(self, file: int, size: int, offset: int) -> bytes:
        """Return bytes of a file."""
        name, found = self._get(file)
        self._fail("pread", name)
        return bytes(found.cached[offset : offset + size])

    def pwritev(self, file: int, parts: Sequence[Buffer], offset: int) -> int:
        """Write parts into a file."""
        name, found = self._get(file)
        data = b"".join(bytes(part) for part in parts)
        is_cut = self._count("pwritev", name, cuts=False)
        end = offset + len(data)
        if end > len(found.cached):
            self._extend(found, end - len(found.cached))
        found.cached[offset:end] = data
        for sector in range(offset // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
            version = bytes(found.cached[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
            found.unsynced.setdefault(sector, []).append(version)
        if is_cut:
            raise PowerCutError
        return len(data)

    def fdatasync(self, file: int) -> None:
        """Bring a file's content to the medium."""
        name, found = self._get(file)
        try:
            self._count("fdatasync", name)
        except OSError:
            # Some pages were written and the others not, and all are clean from now on.
            self._forget_some(found)
            raise
        found.medium[:] = found.medium.ljust(len(found.cached), b"\0")
        for sector, versions in found.unsynced.items():
            _put(found.medium, sector, versions[-1])
        found.unsynced.clear()

    def rename(self, old: str, new: str) -> None:
        """Rename a file."""
        self._count("rename", new)

        def change(names: _Names) -> None:
            if old in names:
                names[new] = names.pop(old)

        self._open.update({n: (new, file) for n, (name, file) in self._open.items() if name == old})
        self._change(change)

    def unlink(self, name: str) -> None:
        """Remove a file."""
        if name not in self._names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        self._count("unlink", name)

        def change(names: _Names) -> None:
            names.pop(name, None)

        self._change(change)

    def sync_directory(self) -> None:
        """Bring the names of files to the medium."""
        self._count("sync_directory", ".")
        self._directory_changes.clear()
        self._durable_names = dict(self._names)

    def power_cut(self) -> None:
        """Cut the power and turn it on: what was not synced survives in part, by seed."""
        self.cut_at = None
        self._open.clear()
        # Often all or nothing survives; a mixture is the third case.
        chance = self._random.choice((0.0, 1.0, self._random.random()))
        for change in self._directory_changes:
            if self._random.random() < chance:
                change(self._durable_names)
        self._directory_changes.clear()
        self._names = dict(self._durable_names)
        for file in self._names.values():
            self._forget_some(file, chance)
            file.cached = bytearray(file.medium)

    def kill(self) -> None:
        """End the process: files are closed, and the kernel keeps what it was given."""
        self.cut_at = None
        self._open.clear()

    def flip(self, name: str, offset: int, bit: int = 0) -> None:
        """Flip a bit on the medium."""
        file = self._names[name]
        for content in (file.medium, file.cached):
            content[offset] ^= 1 << bit

    def content(self, name: str) -> bytes:
        """Return the content of a file."""
        return bytes(self._names[name].cached)

    def put(self, name: str, content: bytes) -> None:
        """Put a file onto the medium."""
        self._names[name] = self._durable_names[name] = _File(bytearray(content), bytearray(content))

    def remove(self, name: str) -> None:
        """Take a file off the medium."""
        del self._names[name], self._durable_names[name]

    def _get(self, file: int) -> tuple[str, _File]:
        if file not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._open[file]

    def _fail(self, call: str, name: str) -> None:
        number = self.fail(call, name)
        if number:
            raise OSError(number, os.strerror(number), name)

    def _count(self, call: str, name: str, cuts: bool = True) -> bool:
        """Count a call. Return True if the power goes in it, or let it go before the call does anything."""
        self.calls += 1
        self.log.append((call, name))
        is_cut = self.calls == self.cut_at
        if is_cut and cuts:
            raise PowerCutError
        self._fail(call, name)
        return is_cut

    def _extend(self, file: _File, by: int) -> None:
        if by + sum(len(other.cached) for other in self._names.values()) > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file.cached.extend(bytes(by))

    def _change(self, change: Callable[[_Names], None]) -> None:
        change(self._names)
        self._directory_changes.append(change)

    def _forget_some(self, file: _File, chance: float = 0.5) -> None:
        """Bring some of the unsynced sectors to the medium, each in any of its versions, and forget the others."""
        for sector in sorted(file.unsynced):
            if self._random.random() < chance:
                _put(file.medium, sector, self._random.choice(file.unsynced[sector]))
        file.unsynced.clear()


def _put(content: bytearray, sector: int, data: bytes) -> None:
    start = sector * SECTOR_BYTES
    if len(content) < start + len(data):
        content.extend(bytes(start + len(data) - len(content)))
    content[start : start + len(data)] = data
