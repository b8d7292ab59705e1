"""The warehouse: a folder of tables made from traces, with its state. Every change of it is atomic.

    rows/day=D/       samples        results/day=D/   results of runs       bad/day=D/   bad lines
    aggregates/NAME/  figures        _state/          batches that are done; the lock, the journal

New files are written to `_state/staging` first. Then a journal tells where each belongs. From that moment the change
counts as made: after a crash, the next process completes it. Without a journal, staged files are discarded.
"""

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from fjm2.errors import FJM2Error

LAYOUT: Final = 2
_LAYOUT_FILE: Final = "layout.json"
_LINES_RATIO: Final = 8
"""Estimated ratio of the size of lines to that of the Parquet files made of many of them."""
_POLL_S: Final = 0.1
"""Time between two attempts to take a lock that another process holds."""


class WarehouseError(FJM2Error):
    """The warehouse cannot be used, or not in this way."""


@dataclass(frozen=True, slots=True)
class Move:
    """A file to move, or a folder that replaces an older one. Paths are relative to the warehouse."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Change:
    """An atomic change: moves, and new contents of state files."""

    moves: list[Move]
    state: Mapping[str, Any] = field(default_factory=dict)


class Warehouse:
    """A folder that all workers reach by the same path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._state = self.path / "_state"
        self._journal = self._state / "journal.json"
        self._staging = self._state / "staging"

    @contextmanager
    def opened(self, wait_s: float = 0.0) -> Iterator[None]:
        """Lock the warehouse until the context is left.

        Create it if necessary, and complete or discard an unfinished change. Raise WarehouseError if another process
        holds the lock for longer than `wait_s`.
        """
        with self._locked("lock", wait_s):
            self.check()
            if self.read(_LAYOUT_FILE, None) is None:
                write_json(self._state / _LAYOUT_FILE, LAYOUT)
            self._finish()
            yield

    @contextmanager
    def streamed(self) -> Iterator[None]:
        """Keep other streams from the warehouse until the context is left.

        Each batch still has to open the warehouse. Between batches, `aggregate` may open it.
        """
        with self._locked("stream-lock", 0.0):
            yield

    @contextmanager
    def _locked(self, name: str, wait_s: float) -> Iterator[None]:
        """Hold a lock of the kernel, which ends with the process."""
        self._state.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + wait_s
        with (self._state / name).open("a+") as lock:
            while not _take(lock):
                if time.monotonic() >= deadline:
                    raise WarehouseError(f"{self.path} is in use by another ingest, aggregate or stream")
                time.sleep(_POLL_S)
            yield

    def exists(self) -> bool:
        return self._state.is_dir()

    def lines_bytes(self) -> int:
        """Return the estimated size of the lines that the rows and results were made of."""
        files = (file for name in ("rows", "results") for file in (self.path / name).glob("day=*/*.parquet"))
        return _LINES_RATIO * sum(file.stat().st_size for file in files)

    def check(self) -> None:
        """Raise WarehouseError if the warehouse was made by a version with another layout."""
        layout = self.read(_LAYOUT_FILE, LAYOUT)
        if layout != LAYOUT:
            raise WarehouseError(
                f"{self.path} has layout {layout}; this version knows {LAYOUT}: ingest again elsewhere"
            )

    def read(self, name: str, default: Any) -> Any:
        """Return the contents of a state file, or `default` if there is no such file."""
        try:
            return json.loads((self._state / name).read_text())
        except FileNotFoundError:
            return default
        except ValueError as error:
            raise WarehouseError(f"{self._state / name} is damaged: restore it, or ingest again elsewhere") from error

    def apply(self, change: Change) -> None:
        """Make a change. If the process dies before the journal is written, nothing is changed."""
        moves = [[move.source, move.target] for move in change.moves]
        write_json(self._journal, {"moves": moves, "state": change.state})
        self._finish()

    def new_staging(self) -> Path:
        """Return a path to write to, which does not exist yet. The name is new: workers of a killed process may
        still write.
        """
        shutil.rmtree(self._staging, ignore_errors=True)
        return self._staging / uuid.uuid4().hex

    def relative(self, path: Path) -> str:
        """Return a path relative to the warehouse, for a `Move`."""
        return str(path.relative_to(self.path))

    def _finish(self) -> None:
        journal = self.read(self._journal.name, None)
        if journal is not None:
            for source, target in journal["moves"]:
                move(self.path / source, self.path / target)
            for name, value in journal["state"].items():
                write_json(self._state / name, value)
            self._journal.unlink()
        shutil.rmtree(self._staging, ignore_errors=True)


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def move(source: Path, target: Path) -> None:
    """Move a file or folder, unless it has been moved before: then there is no source any more."""
    if not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and target.exists():
        shutil.rmtree(target)
    source.rename(target)


def write_json(path: Path, value: Any) -> None:
    """Write a file atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
