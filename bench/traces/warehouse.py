"""The folder that holds what was made of traces, and what is known of it. Whoever changes it does so all or nothing.

    rows/day=D/       samples        results/day=D/   results of runs       bad/day=D/   what was put aside
    aggregates/NAME/  figures        _state/          what is done; the lock, the journal

What is new is written to `_state/staging` first. Then a journal says what belongs where: from there on it is done, and
whoever comes next after a crash finishes it. Without a journal, what is staged is rubbish.
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
_POLL_S: Final = 0.1


class WarehouseError(FJM2Error):
    """A warehouse that cannot be used, or not in this way."""


@dataclass(frozen=True, slots=True)
class Move:
    """A file, or a folder that takes the place of an older one. Paths are relative to the warehouse."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Change:
    """What is done at once: moves, and texts of state files (None: deleted)."""

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
        """Alone with it: makes it if need be, and finishes or forgets what was begun before a crash.

        WarehouseError if somebody else has it for longer than `wait_s`.
        """
        with self._locked("lock", wait_s):
            self.check()
            if self.read(_LAYOUT_FILE, None) is None:
                write_json(self._state / _LAYOUT_FILE, LAYOUT)
            self._finish()
            yield

    @contextmanager
    def streamed(self) -> Iterator[None]:
        """Alone in streaming to it. It has to be opened for each batch; between them others may do so."""
        with self._locked("stream-lock", 0.0):
            yield

    @contextmanager
    def _locked(self, name: str, wait_s: float) -> Iterator[None]:
        """The lock is the kernel's, so it ends with the process whatever happens."""
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

    def check(self) -> None:
        """WarehouseError if it was made by a version that keeps things otherwise."""
        layout = self.read(_LAYOUT_FILE, LAYOUT)
        if layout != LAYOUT:
            raise WarehouseError(f"{self.path} has layout {layout}; this version knows {LAYOUT}: ingest anew elsewhere")

    def read(self, name: str, default: Any) -> Any:
        """A state file."""
        try:
            return json.loads((self._state / name).read_text())
        except FileNotFoundError:
            return default
        except ValueError as error:
            raise WarehouseError(f"{self._state / name} is damaged: restore it, or ingest anew elsewhere") from error

    def apply(self, change: Change) -> None:
        """All of it, or, if this process dies before the journal is written, nothing."""
        moves = [[move.source, move.target] for move in change.moves]
        write_json(self._journal, {"moves": moves, "state": change.state})
        self._finish()

    def new_staging(self) -> Path:
        """A place to write to that is not there yet. Its name is new: workers of a killed process may still write."""
        shutil.rmtree(self._staging, ignore_errors=True)
        return self._staging / uuid.uuid4().hex

    def relative(self, path: Path) -> str:
        """As moves want it."""
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
    """Done before, if there is no source any more."""
    if not source.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir() and target.exists():
        shutil.rmtree(target)
    source.rename(target)


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all, and on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
