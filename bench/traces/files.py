"""What there is to read: a folder's files, how much of each is new, and how that is shared out among tasks.

A file is known by its path, without `.gz`, and its first bytes: recorders never rename one, and when an operator
compresses it, what has been read of it counts. A file of lines is read up to its last newline, as it may grow; what is
behind that is read when it ends in a newline, or when nobody has written to the file for a while.
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

from .lines import TO_ITS_END, Split, encode_splits, is_capture, is_packed, open_file

TASK_BYTES: Final = 64 << 20
"""About so much for one task. A larger file is shared by several."""
PACKED_RATIO: Final = 8
"""So much larger a file is when unpacked, as a guess."""
SETTLE_S: Final = 10.0
_TAIL_BYTES: Final = 1 << 16
_HEAD_BYTES: Final = 256
"""Of a line's length: its time is among them."""
_ENDINGS: Final = (".jsonl", ".pcap", ".pcapng")


class Known(NamedTuple):
    """What has been read of a file."""

    end: int
    """How far, in bytes of what is unpacked."""
    head_bytes: int = 0
    """Of so many first bytes there is a check, which tells it from a later file of its name."""
    head_check: int = 0

    def is_same(self, other: "Known") -> bool:
        """Whether both are of the same file."""
        return self[1:] == other[1:]


Done = Mapping[str, Sequence[int]]
"""Files by name, each a `Known` as JSON leaves it."""
NOTHING: Final = Known(0)


@dataclass(slots=True)
class Found:
    """What is new."""

    splits: list[Split] = field(default_factory=list)
    done: dict[str, Known] = field(default_factory=dict)
    """For the files with something new: what will have been read of them."""
    bytes: int = 0
    left: bool = False
    """Whether there is more than was asked for."""
    pending: list[str] = field(default_factory=list)
    """Files of which something is left for later, as they may still be written to."""
    shrunk: list[str] = field(default_factory=list)
    """Files that are shorter than what was read of them."""


def find(folder: str | os.PathLike[str], done: Done, settle_s: float, bytes_max: int | None = None) -> Found:
    """What is new below a folder (or in a file); about `bytes_max` of it, if that is given, but always something."""
    found = Found()
    for path in _paths(Path(folder).absolute()):
        if bytes_max is not None and found.bytes >= bytes_max:
            found.left = True
            break
        try:
            _find_in(path, done, settle_s, found)
        except FileNotFoundError:
            continue  # compressed or deleted in the meantime
    return found


def tasks(splits: Iterable[Split]) -> list[str]:
    """Splits, together or alone, so that each task has about the same to do."""
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


def _paths(folder: Path) -> list[str]:
    """All traces, sorted. Where a file is there twice, once compressed, the one that is not."""
    if folder.is_file():
        return [str(folder)]
    files = {str(path) for path in _walk(folder) if _name(path).endswith(_ENDINGS)}
    return sorted(file for file in files if not (is_packed(file) and _name(file) in files))


def _walk(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        yield from (os.path.join(parent, name) for name in names if not name.startswith((".", "_")))


def _name(path: str) -> str:
    return path.removesuffix(".gz")


def _find_in(path: str, done: Done, settle_s: float, found: Found) -> None:
    name, status = _name(path), os.stat(path)
    known = Known(*done[name]) if name in done else NOTHING
    if known.end >= TO_ITS_END or not status.st_size:
        return
    if known.end != status.st_size and _head_check(path, known.head_bytes) != known.head_check:
        known = NOTHING
    start = known.end
    is_settled = not settle_s or time.time() - status.st_mtime >= settle_s  # a clock may have been put back
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
    """Of a file's first bytes; of one that cannot be unpacked, as if it had none."""
    if count:
        with suppress(EOFError, zlib.error, gzip.BadGzipFile), open_file(path) as file:
            return zlib.crc32(file.read(count))
    return 0


def _last_line_end(path: str, start: int, size: int) -> int:
    """Behind the last newline, or `start`."""
    with open(path, "rb") as file:
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
    for file in (split.file, f"{split.file}.gz"):  # it may have been compressed, or removed, since it was found
        with suppress(OSError):
            return os.path.getsize(file) * (PACKED_RATIO if is_packed(file) else 1)
    return 0
