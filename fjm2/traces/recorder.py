"""Recorder of traces. It samples counters in a thread of its own, so that a slow disk delays nothing but the trace."""

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self
from weakref import WeakSet

from fjm2.base.errors import ConfigError
from fjm2.base.logs import Log
from fjm2.base.readings import Counted, Reading, watchers

from . import lines
from .labels import Labels
from .process import CPU, RSS, cpu_and_memory
from .series import Sample, Series
from .writer import BYTES_MAX, TraceWriter

INTERVAL_S: Final = 0.1
INTERVAL_MIN_S: Final = 0.001
INTERVAL_MAX_S: Final = 3600.0
_RETRY_S: Final = 1.0
"""Pause after the disk refused to take lines."""
_ENDED_MAX: Final = 1000
"""Greatest number of closed objects whose last samples wait for the disk."""
_CLOSE_S: Final = 5.0
"""Longest time that `close` waits for a disk that hangs."""

log = Log("fjm2.record")


class HasCounted(Protocol):
    """An object that refers to the object with its counters, as a connection refers to its bus."""

    @property
    def counted(self) -> Counted:
        """The object that has the counters."""
        ...


class _Entry:
    """An attached object with counters, and its series by the names of its sources."""

    def __init__(self, thing: Counted, now: float) -> None:
        self.thing = thing
        self.read_at = now
        self.series: dict[str, Series] = {}
        self.last: tuple[Sequence[Reading], float] | None = None
        """Last readings of the object, and their time; None until it is detached."""


_Due = tuple[_Entry, Series, Reading, list[Sample]]


class TraceRecorder:
    """Recorder of the counters of all objects attached to it, until it is closed or the program ends."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        labels: Labels | None = None,
        *,
        interval_s: float = INTERVAL_S,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """Check the settings. Raise ConfigError if the directory is not writable, or a limit is out of range.

        The labels of the environment are the default. When the node's files exceed `bytes_max`, the oldest are removed.
        """
        check_interval("interval_s", interval_s)
        if bytes_max < 1:
            raise ConfigError(f"bytes_max={bytes_max}: expected 1 or more")
        self.interval_s = interval_s
        """Seconds that a sample covers while counters change."""
        self._writer = TraceWriter(directory, labels or Labels.from_environment(), bytes_max=bytes_max)
        self._writer.check_directory()
        self._begin()
        _recorders.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        """Lock of the entries and names. It is never held while waiting for the disk."""
        self._entries: list[_Entry] = []
        self._names: set[str] = set()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._retry_at = 0.0
        self._cpu_series: Series | None = None
        """The series that also has processor time and memory of the process, or None."""
        self._cpu_told = time.process_time()

    def attach(self, thing: Counted | HasCounted) -> None:
        """Record a session, a connection, a context or another object with counters from now on.

        Attaching an object twice does no harm. Raises ConfigError if the recorder is closed.
        """
        counted: Counted = getattr(thing, "counted", thing)  # type: ignore[arg-type]
        now = time.monotonic()
        readings = counted.readings()
        with self._lock:
            if self._is_closing:
                raise ConfigError("the recorder is closed")
            if any(entry.thing is counted and entry.last is None for entry in self._entries):
                return
            entry = _Entry(counted, now)
            for reading in readings:
                self._series_of(entry, reading).begin_with(reading)
            self._entries.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="fjm2-record", daemon=True)
                self._thread.start()
                _close_with_a_child()
        watchers.add(self)
        self._wake.set()

    def detach(self, thing: Counted | HasCounted) -> None:
        """Stop recording an object. Its counts so far are still written. An object that closes is detached, too."""
        counted: Counted = getattr(thing, "counted", thing)  # type: ignore[arg-type]
        with self._lock:
            for entry in self._entries:
                if entry.thing is counted and entry.last is None:
                    entry.last = (_readings_of(counted) or (), time.monotonic())

    def close(self) -> None:
        """Write the last samples and stop. Calling it twice does no harm."""
        with self._lock:
            self._is_closing = True
            thread = self._thread
        self._wake.set()
        if thread is not None:
            thread.join(_CLOSE_S)
        else:
            self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """File that lines are being appended to."""
        return self._writer.path

    @property
    def lines_refused(self) -> int:
        """Number of lines that the disk did not take when they were due. Their counts are in later lines, if any
        follow."""
        return self._writer.lines_refused

    def _run(self) -> None:
        next_at = time.monotonic() + self.interval_s
        while not self._is_closing:
            has_entries = bool(self._entries)
            self._wake.wait(max(next_at - time.monotonic(), 0.0) if has_entries else None)
            if self._wake.is_set():
                self._wake.clear()
                if not has_entries:
                    next_at = time.monotonic() + self.interval_s
            now = time.monotonic()
            if now >= next_at:
                next_at += self.interval_s
                if next_at <= now:  # late: missed samples are not made up for
                    next_at = now + self.interval_s
                self._try_sample(now)
        self._try_sample(time.monotonic(), is_last=True)
        self._writer.close()

    def _try_sample(self, now: float, is_last: bool = False) -> None:
        """Take a sample. A failure leaves a gap in the trace, and does not reach the program."""
        try:
            self._sample(now, is_last)
        except Exception as error:
            text = f"a sample of a trace failed: {error!r}; the trace has a gap, the program runs on: please report it"
            log.tell(logging.WARNING, "sample_failed", text, about=type(error).__name__, error=error)

    def _sample(self, now: float, is_last: bool) -> None:
        if (now < self._retry_at and not is_last) or not self._entries:
            return
        if not self._writer.open():
            self._retry_at = now + _RETRY_S
            return
        offset = time.time() - time.monotonic()
        with self._lock:
            due = self._due(now, is_last)
        batch = [line for entry, series, _, samples in due for line in self._lines(entry, series, samples, offset)]
        written = self._writer.append(batch) if batch else 0
        if written < len(batch):
            self._retry_at = now + _RETRY_S
        with self._lock:
            self._commit(due, written)
            self._forget_ended()

    def _due(self, now: float, is_last: bool) -> list[_Due]:
        due: list[_Due] = []
        process = cpu_and_memory()
        for entry in self._entries:
            if entry.last is not None:
                readings, at = entry.last
            else:
                found = _readings_of(entry.thing)
                if found is None:
                    continue
                readings, at = found, now
            for reading in readings:
                series = self._series_of(entry, reading)
                full = self._with_process(series, reading, process)
                due.append((entry, series, full, series.due(full, at, is_last or entry.last is not None)))
            entry.read_at = at
            self._forget_missing(entry, readings)
        return due

    def _series_of(self, entry: _Entry, reading: Reading) -> Series:
        """Return the series of a reading. A new series begins at the last sample of its object, as the source appeared
        after that."""
        series = entry.series.get(reading.source)
        if series is None:
            name, number = reading.source, 1
            while name in self._names:
                number += 1
                name = f"{reading.source}-{number}"
            self._names.add(name)
            series = entry.series[reading.source] = Series(name, reading.link, entry.read_at)
            if self._cpu_series is None:
                self._tell_process_by(series)
        return series

    def _tell_process_by(self, series: Series) -> None:
        self._cpu_series = series
        series.begin_counter(CPU, self._cpu_told)

    def _with_process(self, series: Series, reading: Reading, process: tuple[float, int | None]) -> Reading:
        if series is not self._cpu_series:
            return reading
        cpu_s, rss_bytes = process
        counters = {**reading.counters, CPU: cpu_s}
        return reading._replace(counters=counters, gauges={**reading.gauges, RSS: rss_bytes})

    def _lines(self, entry: _Entry, series: Series, samples: Sequence[Sample], offset: float) -> list[bytes]:
        first = self._writer.next_seq(series.name)
        labels, thing = self._writer.labels, entry.thing
        said = {
            "system": labels.system or thing.system,
            "layer": labels.layer or thing.layer,
            "role": labels.role or thing.role,
            "link": series.link,
        }
        return [
            lines.encode(
                lines.sample(
                    labels,
                    series.name,
                    first + number,
                    one.end - one.start,
                    _rounded(one.counters),
                    one.gauges,
                    one.drops,
                    one.end + offset,
                    **said,
                )
            )
            for number, one in enumerate(samples)
        ]

    def _commit(self, due: Sequence[_Due], written: int) -> None:
        for entry, series, reading, samples in due:
            done = min(written, len(samples))
            written -= done
            series.commit(reading, samples, done)
            if done:
                self._writer.note_seq(series.name, self._writer.next_seq(series.name) + done - 1)
            if series is self._cpu_series:
                self._cpu_told = series.told(CPU)
            if entry.last is not None and done == len(samples):
                entry.series.pop(reading.source, None)
                self._forget(series)

    def _forget(self, series: Series) -> None:
        self._names.discard(series.name)
        if series is self._cpu_series:
            others = (one for entry in self._entries for one in entry.series.values() if one is not series)
            self._cpu_series = None
            for other in others:
                self._tell_process_by(other)
                break

    def _forget_missing(self, entry: _Entry, readings: Sequence[Reading]) -> None:
        """Forget the series of sources that are gone, such as a peer that was removed from the configuration."""
        if len(readings) < len(entry.series):
            for source in entry.series.keys() - {reading.source for reading in readings}:
                self._forget(entry.series.pop(source))

    def _forget_ended(self) -> None:
        """Forget detached objects whose samples are all written. If too many remain, also forget the oldest."""
        ended = [entry for entry in self._entries if entry.last is not None]
        surplus = max(len(ended) - _ENDED_MAX, 0)
        for number, entry in enumerate(ended):
            if number < surplus or not self._is_unwritten(entry):
                for series in entry.series.values():
                    self._forget(series)
                self._entries.remove(entry)

    @staticmethod
    def _is_unwritten(entry: _Entry) -> bool:
        assert entry.last is not None
        return any(reading.source in entry.series for reading in entry.last[0])

    def _after_fork(self) -> None:
        """Start over in a forked child, because the attached objects and the file belong to the parent."""
        labels = self._writer.labels
        self._writer.close()
        self._writer.labels = labels.of_process(f"{os.getpid()}")
        self._begin()


def check_interval(name: str, interval_s: float) -> None:
    """Raise ConfigError, with the name of the setting, if an interval between samples is out of range."""
    if not isinstance(interval_s, int | float) or not INTERVAL_MIN_S <= interval_s <= INTERVAL_MAX_S:
        raise ConfigError(f"{name}={interval_s!r}: expected {INTERVAL_MIN_S} to {INTERVAL_MAX_S:.0f} seconds")


def _readings_of(thing: Counted) -> Sequence[Reading] | None:
    """Return the readings of an object, or None if another thread changed a container of counters meanwhile."""
    try:
        return thing.readings()
    except RuntimeError:
        return None


def _rounded(counters: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in counters.items()}


_recorders: WeakSet[TraceRecorder] = WeakSet()


def _close_all() -> None:
    for recorder in list(_recorders):
        recorder.close()


def _close_with_a_child() -> None:
    """Close recorders at the end of a child of `multiprocessing`, which does not run `atexit` functions."""
    multiprocessing = sys.modules.get("multiprocessing")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_all, exitpriority=0)


def _fork_all() -> None:
    for recorder in list(_recorders):
        recorder._after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_fork_all)
