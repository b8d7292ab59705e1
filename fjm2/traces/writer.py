"""Files of JSON lines: `DIR/run=RUN/node=NODE.jsonl`, then `node=NODE.1.jsonl` and so on. No file is ever renamed.

Whatever happens to disk or process, a broken line spoils no other line. Each batch is one write to the end of the file,
and a line that broke off is ended with a newline before the next line.
"""

import contextlib
import errno
import json
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from fjm2.base.errors import ConfigError
from fjm2.base.logs import Log
from fjm2.base.quantities import counted

from . import lines
from .labels import Labels

FILE_BYTES: Final = 64 << 20
"""Size of a file at which a new file begins: some hours of one busy node."""
BYTES_MAX: Final = 1 << 30
"""Size of a node's files, all together, that is kept by default."""
_FILES: Final = 16
"""Number of a node's files that are kept. If less than a gigabyte may be kept, the files are smaller."""
_TAIL_BYTES: Final = 1 << 16
"""Size of the end of a file that is searched for the last numbers of all series. It holds some hundred lines."""
_FEW_LINES: Final = 100
"""Number of lines below which a file may lack a line of some series. The file before it is then searched, too."""

log = Log("fjm2.record")


class TraceWriter:
    """Writer of the lines of one node in one run. If the disk fails, the writer raises nothing, but warns and
    counts."""

    def __init__(self, directory: str | os.PathLike[str], labels: Labels, *, bytes_max: int = BYTES_MAX) -> None:
        """Set up the writer, without opening a file yet. When the node's files exceed `bytes_max`, the oldest are
        removed."""
        self.directory = Path(directory)
        """Directory that has the directories of runs."""
        self.labels = labels
        """Labels of all lines. `node` gets a suffix if another process already writes under the same name."""
        self.lines_refused = 0
        """Number of lines that the disk did not take when they were due."""
        self._file_bytes = max(min(FILE_BYTES, bytes_max // _FILES), 1)
        self._files_max = max(bytes_max // self._file_bytes, 2)
        self._descriptor = -1
        self._number = 0
        self._size = 0
        self._is_torn = False
        """True if the file ends within a line."""
        self._next: dict[str, int] = {}
        self._is_failing = False

    def write_sample(
        self,
        source: str,
        seq: int,
        dt: float,
        counters: Mapping[str, float],
        gauges: Mapping[str, float | None] = {},
        drops: Mapping[str, int] = {},
        t: float | None = None,
        **override: Any,
    ) -> bool:
        """Append a sample of the `dt` seconds that end at `t`, which is the present time by default. Return True if it
        was written."""
        self.open()  # this may change the node's name
        t = time.time() if t is None else t
        line = lines.sample(self.labels, source, seq, dt, counters, gauges, drops, t, **override)
        is_written = self.append([lines.encode(line)]) == 1
        if is_written:
            self.note_seq(source, seq)
        return is_written

    def write_result(self, r: Mapping[str, float], labels: Mapping[str, str] = {}, **override: Any) -> bool:
        """Append the result of a run. Keyword arguments override keys of the line. Return True if the line was
        written."""
        self.open()
        return self.append([lines.encode(lines.result(self.labels, r, labels, time.time(), **override))]) == 1

    @property
    def path(self) -> Path:
        """File that lines are being appended to."""
        return self._path_of(self._number)

    def next_seq(self, source: str) -> int:
        """Return the number of the next sample of a series. Numbers continue those of an earlier process of the same
        name."""
        return self._next.get(source, 0)

    def open(self) -> bool:
        """Open the file, unless it is open already. Return False if the disk refuses. A later attempt may succeed."""
        try:
            self._ensure_open()
        except OSError as error:
            self._refuse(error, 0)
            return False
        return True

    def check_directory(self) -> None:
        """Raise ConfigError if the directory is not writable."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"traces to {self.directory}: {error.strerror}") from error
        if not os.access(self.directory, os.W_OK | os.X_OK):
            raise ConfigError(f"traces to {self.directory}: no permission to write there")

    def append(self, batch: Sequence[bytes]) -> int:
        """Append whole lines, which end in newlines. Return the number of lines written, which are the first of the
        batch."""
        try:
            self._ensure_open()
            data = (b"\n" if self._is_torn else b"") + b"".join(batch)
            written = _write(self._descriptor, data)
        except _WriteError as failed:
            return self._note_partial_write(batch, data, failed)
        except OSError as error:
            self._refuse(error, len(batch))
            return 0
        self._size += written
        self._is_torn = False
        self._note_success()
        if self._size >= self._file_bytes:
            self._rotate()
        return len(batch)

    def close(self) -> None:
        """Close the file. Calling it twice does no harm; `append` opens the file again."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note_partial_write(self, batch: Sequence[bytes], data: bytes, failed: "_WriteError") -> int:
        """Return the number of lines written before an error. The last of them may lack its newline, which is written
        later."""
        self._size += failed.written
        if failed.written:
            self._is_torn = data[failed.written - 1 : failed.written] != b"\n"
        done, end = 0, len(data) - sum(map(len, batch))
        for line in batch:
            end += len(line)
            if failed.written < end - 1:
                break
            done += 1
        self._refuse(failed.error, len(batch) - done)
        return done

    def _ensure_open(self) -> None:
        if self._descriptor >= 0:
            if os.fstat(self._descriptor).st_nlink:
                return
            self.close()  # somebody deleted the file
        self._path_of(0).parent.mkdir(parents=True, exist_ok=True)
        given, others = self.labels, 0
        while not self._open_last():
            others += 1
            self.labels = given.of_process(f"{os.getpid()}" if others == 1 else f"{os.getpid()}.{others}")
        self._size = os.fstat(self._descriptor).st_size
        self._go_on()

    def _open_last(self) -> bool:
        """Open the newest of the node's files. Return False if another process appends to it."""
        self._number = max((number + is_packed for number, is_packed, _ in self._files()), default=0)
        descriptor = _open(self.path)
        if not _lock(descriptor):
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def _go_on(self) -> None:
        """Continue the file where an earlier process ended, perhaps within a line."""
        tail = _tail(self.path)
        self._is_torn = bool(tail) and not tail.endswith(b"\n")
        if self._number and tail.count(b"\n") < _FEW_LINES:
            tail = _tail(self._path_of(self._number - 1)) + b"\n" + tail
        for source, seq in _last_seqs(tail, self.labels.node).items():
            self._next[source] = max(self._next.get(source, 0), seq + 1)

    def note_seq(self, source: str, seq: int) -> None:
        """Note the number of a sample that was written."""
        self._next[source] = seq + 1

    def _rotate(self) -> None:
        """Begin a new file. The old file does not change any more."""
        try:
            descriptor = _open(self._path_of(self._number + 1))
        except OSError as error:
            self._refuse(error, 0)
            return
        _lock(descriptor)
        self.close()
        self._number += 1
        self._descriptor, self._size = descriptor, 0
        for number, _, path in self._files():
            if number <= self._number - self._files_max:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path_of(self, number: int) -> Path:
        suffix = f".{number}" if number else ""
        return self.directory / f"run={self.labels.run}" / f"node={self.labels.node}{suffix}.jsonl"

    def _files(self) -> list[tuple[int, bool, Path]]:
        """Return the number of each file of the node, True if it was compressed, and its path."""
        folder = self._path_of(0).parent
        pattern = re.compile(re.escape(f"node={self.labels.node}") + r"(?:\.([1-9][0-9]{0,8}))?\.jsonl(\.gz)?")
        found = ((name, pattern.fullmatch(name)) for name in os.listdir(folder))
        return [(int(match[1] or 0), match[2] is not None, folder / name) for name, match in found if match]

    def _refuse(self, error: OSError, lines: int) -> None:
        self.lines_refused += lines
        self._is_failing = True
        text = f"cannot write traces to {self.path}: {error.strerror or error}; make room; it is retried every second"
        log.tell(logging.WARNING, "disk_refused", text, about=self.path)

    def _note_success(self) -> None:
        if self._is_failing:
            self._is_failing = False
            text = f"traces are written again to {self.path}; late or lost: {counted(self.lines_refused, 'line')}"
            log.tell(logging.WARNING, "disk_works_again", text, about=self.path)


class _WriteError(Exception):
    """A write that broke off after some bytes."""

    def __init__(self, error: OSError, written: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.written = written


def _write(descriptor: int, data: bytes) -> int:
    """Write all data, in one call unless the disk runs full. Return the length of the data."""
    written = 0
    while written < len(data):
        try:
            written += os.write(descriptor, data[written:])
        except OSError as error:
            raise _WriteError(error, written) from error
    return written


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def _lock(descriptor: int) -> bool:
    """Lock a file for this process. Return False if another process appends to it.

    Without support for locks, assume that no other process does.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES)
    except OSError:
        return b""


def _last_seqs(tail: bytes, node: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in tail.splitlines():
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(line, dict) or line.get("node") != node:
            continue
        source, seq = line.get("source"), line.get("seq")
        if isinstance(source, str) and isinstance(seq, int):
            found[source] = max(seq, found.get(source, seq))
    return found
