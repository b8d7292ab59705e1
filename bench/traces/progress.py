"""Progress of a command on standard error: its phase, Spark's tasks, and the time that has passed.

On a terminal one line is rewritten. Elsewhere, as in the log of a service, each phase has a line, and a long phase one
now and then.
"""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

from fjm2.base.quantities import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TERMINAL_S: Final = 0.5
"""Time between two looks at a terminal: often enough to look alive."""
LOG_S: Final = 10.0
"""Time between two lines of a long phase where lines are kept."""
_CLEAR = "\r\x1b[K"
"""Control codes that go to the beginning of the line and clear it."""

Tell = Callable[[str], None]
"""A function that is told of each phase when it begins."""


def untold(_phase: str) -> None:
    """Tell nobody."""


def size_text(size_bytes: int) -> str:
    """Return a size in the unit that suits it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:,.1f} {unit}"
    return f"{size_bytes} B"


class Progress:
    """Progress of a command. Use it as a context, and call it with each phase."""

    def __init__(self, stream: TextIO | None = None, *, every_s: float | None = None) -> None:
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty()
        self._every_s = every_s or (TERMINAL_S if self._is_terminal else LOG_S)
        self._spark: SparkSession | None = None
        self._begun = time.monotonic()
        self._phase = ""
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        with self._lock:
            if self._is_terminal:
                self._write(_CLEAR)

    def __call__(self, phase: str) -> None:
        """Begin a phase."""
        with self._lock:
            self._phase = phase
            self._show("")

    def watch(self, spark: "SparkSession") -> None:
        """Show the tasks of a session from now on."""
        self._spark = spark

    def _watch(self) -> None:
        while not self._is_over.wait(self._every_s):
            tasks = self._tasks()
            with self._lock:
                if self._phase and not self._is_over.is_set():
                    self._show(tasks)

    def _show(self, tasks: str) -> None:
        text = f"{self._phase}{tasks} ({time.monotonic() - self._begun:.0f} s)"
        self._write(f"{_CLEAR}{text}" if self._is_terminal else f"{text}\n")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more
            self._stream.write(text)
            self._stream.flush()

    def _tasks(self) -> str:
        """Return the tasks of the stages that run, or nothing if there are none."""
        if self._spark is None:
            return ""
        done = wanted = 0
        with suppress(Exception):  # the session may end at any time, in many ways
            tracker = self._spark.sparkContext.statusTracker()
            for stage in tracker.getActiveStageIds():
                if (info := tracker.getStageInfo(stage)) is not None:
                    done, wanted = done + info.numCompletedTasks, wanted + info.numTasks
        return f", {done} of {counted(wanted, 'task')}" if wanted > 1 else ""
