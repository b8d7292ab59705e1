"""New parts of trace files: which files a folder holds, what is new in each, and how to share it among tasks.

A file is identified by its path, without `.gz`, and by its first bytes: recorders never rename a file, and what was
read of a file still counts after it is compressed. A file of lines is read up to its last newline, as it may grow. The
rest is read when it ends in a newline, or when nobody has written to the file for a while.
"""

import gzip
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from .lines import TO_ITS_END, Split, encode_splits, is_capture, is_packed, open_file, open_here

TASK_BYTES: Final = 64 << 20
"""Approximate size of a task. Larger files are shared by several tasks."""
PACKED_RATIO: Final = 8
"""Estimated ratio of unpacked to packed size."""
SETTLE_S: Final = 10.0
"""Default time without a write after which a file counts as complete."""
_TAIL_BYTES: Final = 1 << 16
"""Block size of the search for the last newline: as long as the longest line."""
_HEAD_BYTES: Final = 256
"""Number of a file's first bytes that are checked: about a line, so that they contain the first line's time."""
_ENDINGS: Final = (".jsonl", ".pcap", ".pcapng")


class Known(NamedTuple):
    """Progress in reading a file, as kept in a warehouse."""

    end: int
    """Number of bytes of the unpacked file that were read."""
    head_bytes: int = 0
    """Number of first bytes in the check, which tells the file from a later one of the same name."""
    head_check: int = 0

    def is_same(self, other: "Known") -> bool:
        """Return True if both describe the same file."""
        return self[1:] == other[1:]


Done = Mapping[str, Sequence[int]]
"""Progress in files, by name. Each value is a `Known` that was read from JSON, and so is a list."""
NOTHING: Final = Known(0)


@dataclass(slots=True)
class Found:
    """New parts of files."""

    splits: list[Split] = field(default_factory=list)
    done: dict[str, Known] = field(default_factory=dict)
    """Progress in each file that has new parts, by name. It is valid once all the parts in `splits` have been read."""
    bytes: int = 0
    left: bool = False
    """True if there are more new parts than were asked for."""
    pending: list[str] = field(default_factory=list)
    """Files with a part that is left for later, as it may still be written to."""
    shrunk: list[str] = field(default_factory=list)
    """Files that are shorter than the part that was read of them."""
    links: list[str] = field(default_factory=list)
    """Symbolic links to files or folders, which are not followed."""


def find(folder: str | os.PathLike[str], done: Done, settle_s: float, bytes_max: int | None = None) -> Found:
    """Find new parts of the files below a folder, or of one file: about `bytes_max` bytes, but at least one part.

    The folder itself may be a symbolic link; those inside are not followed. Otherwise who writes traces could have any
    file read that we may read, and bad lines keep their text.
    """
    found = Found()
    for path in _paths(Path(folder).absolute(), found.links):
        if bytes_max is not None and found.bytes >= bytes_max:
            found.left = True
            break
        try:
            _find_in(path, done, settle_s, found)
        except FileNotFoundError:
            continue  # compressed or deleted meanwhile
    return found


def unpacked_bytes(splits: Iterable[Split]) -> int:
    """Return the estimated size of splits when they are unpacked."""
    return sum(map(_weight, splits))


def tasks(splits: Iterable[Split]) -> list[str]:
    """Group splits into tasks of about the same size."""
    packed: list[list[Split]] = []
    room = 0
    for split in _cut(splits):
        size = _weight(split)
        if size > room or not packed:
            packed.append([])
            room = TASK_BYTES
        packed[-1].append(split)
        room -= size
    return [encode_splits(group) for group in packed]


def _paths(folder: Path, links: list[str]) -> list[str]:
    """Return all trace files, sorted, and note links. Leave out a packed file if it exists unpacked as well."""
    if folder.is_file():
        return [str(folder.resolve())]
    files = set(_walk(folder, links))
    return sorted(file for file in files if not (is_packed(file) and _name(file) in files))


def _walk(folder: Path, links: list[str]) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        links += (path for name in folders if os.path.islink(path := os.path.join(parent, name)))
        for name in names:
            path = os.path.join(parent, name)
            if name.startswith((".", "_")) or not _name(name).endswith(_ENDINGS):
                continue
            if os.path.islink(path):
                links.append(path)
            else:
                yield path


def _name(path: str) -> str:
    return path.removesuffix(".gz")


def _find_in(path: str, done: Done, settle_s: float, found: Found) -> None:
    name, status = _name(path), os.lstat(path)
    known = Known(*done[name]) if name in done else NOTHING
    if known.end >= TO_ITS_END or not status.st_size:
        return
    if known.end != status.st_size and _head_check(path, known.head_bytes) != known.head_check:
        known = NOTHING
    start = known.end
    is_settled = not settle_s or time.time() - status.st_mtime >= settle_s  # a clock may have been set back
    if is_packed(path) or is_capture(path):
        if not is_settled:
            found.pending.append(path)
            return
        end, size = TO_ITS_END, status.st_size
    else:
        if status.st_size < start:
            found.shrunk.append(path)
            return
        end = status.st_size if is_settled else _last_line_end(path, start, status.st_size)
        if end < status.st_size:
            found.pending.append(path)
        if end == start:
            return
        size = end - start
    found.splits.append(Split(path, start, end, end, True))
    if known is NOTHING and end < TO_ITS_END:
        head_bytes = min(end, _HEAD_BYTES)
        known = Known(end, head_bytes, _head_check(path, head_bytes))
    found.done[name] = known._replace(end=end)
    found.bytes += size


def _head_check(path: str, count: int) -> int:
    """Return a check of a file's first bytes; 0 if it cannot be unpacked."""
    if count:
        with suppress(EOFError, zlib.error, gzip.BadGzipFile), open_file(path) as file:
            return zlib.crc32(file.read(count))
    return 0


def _last_line_end(path: str, start: int, size: int) -> int:
    """Return the position after the last newline, or `start` if there is none."""
    with open_here(path) as file:
        end = size
        while end > start:
            begin = max(start, end - _TAIL_BYTES)
            file.seek(begin)
            newline = file.read(end - begin).rfind(b"\n")
            if newline >= 0:
                return begin + newline + 1
            end = begin
    return start


def _cut(splits: Iterable[Split]) -> Iterator[Split]:
    for split in splits:
        if split.end >= TO_ITS_END:
            yield split
            continue
        for start in range(split.start, split.end, TASK_BYTES):
            end = min(start + TASK_BYTES, split.end)
            yield Split(split.file, start, end, split.stop, split.begins_line and start == split.start)


def _weight(split: Split) -> int:
    if split.end < TO_ITS_END:
        return split.end - split.start
    for file in (split.file, f"{split.file}.gz"):  # it may have been compressed or removed meanwhile
        with suppress(OSError):
            return os.path.getsize(file) * (PACKED_RATIO if is_packed(file) else 1)
    return 0
