"""The cost of a message in the journal: append, commit and read, and opening a store in which many messages wait."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from statistics import median

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.store.config import StoreConfig
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.journal import Journal
from fjm2.store.opening import open_journal
from fjm2.store.runs import Run

SIZES = (64, 1024)
_RUN_MESSAGES = 50
"""Messages of one run: a train of small ones."""
_COMMIT_RUNS = 20
"""Runs of one commit: a thousand messages, which take some milliseconds to come."""
_COMMITS = 40
"""One measurement is of 40,000 messages."""
_READ_BYTES = 1 << 20
_CONFIG = StoreConfig(segment_bytes=16 << 20, store_bytes_max=1 << 30)
_LEDGER = Ledger(1, 0, 1)
_STEPS = (
    "append",
    "commit, event loop's part",
    "commit, thread's part, disk included",
    "read",
    "open, from batches",
    "open, from a checkpoint",
)


@dataclass(frozen=True, slots=True)
class StoreCost:
    """Cost of one step, in microseconds per message."""

    size: int
    """Bytes of a message."""
    step: str
    us: float


def run(repeat: int = 5) -> list[StoreCost]:
    """Return the medians of `repeat` measurements, for each size of a message. The store is in the temporary folder."""
    costs = []
    for size in SIZES:
        taken = [_measure(size) for _ in range(repeat)]
        costs += [StoreCost(size, step, median(times[step] for times in taken)) for step in _STEPS]
    return costs


class _Clock:
    """Adds up the time of steps."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(_STEPS, 0.0)

    @contextmanager
    def step(self, step: str) -> Iterator[None]:
        """Add the time of a block to a step."""
        began = time.perf_counter()
        yield
        self.seconds[step] += time.perf_counter() - began


def _measure(size: int) -> dict[str, float]:
    clock, random = _Clock(), Random(1)
    count = _COMMITS * _COMMIT_RUNS * _RUN_MESSAGES
    with tempfile.TemporaryDirectory(prefix="fjm2-bench-") as directory:
        with OsDisk(directory) as disk:
            journal = open_journal(disk, _CONFIG, random)
            frames = [random.randbytes(size) for _ in range(_RUN_MESSAGES)]
            for commit in range(_COMMITS):
                first = 1 + commit * _COMMIT_RUNS * _RUN_MESSAGES
                with clock.step(_STEPS[0]):
                    _append(journal, first, frames)
                _commit(journal, disk, clock)
            with clock.step(_STEPS[3]):
                _read(journal, disk, count)
        with OsDisk(directory) as disk:
            with clock.step(_STEPS[4]):
                journal = open_journal(disk, _CONFIG, random)
            journal.start_checkpoint()
            _commit(journal, disk, _Clock())
        with OsDisk(directory) as disk, clock.step(_STEPS[5]):
            open_journal(disk, _CONFIG, random)
    return {step: seconds / count * 1e6 for step, seconds in clock.seconds.items()}


def _append(journal: Journal, first: int, frames: list[bytes]) -> None:
    for number in range(_COMMIT_RUNS):
        journal.append([Run.of(_LEDGER, first + number * _RUN_MESSAGES, frames)])


def _commit(journal: Journal, disk: OsDisk, clock: _Clock) -> None:
    while True:
        with clock.step(_STEPS[1]):
            write = journal.poll_write()
        if write is None:
            return
        with clock.step(_STEPS[2]):
            write.perform(disk)
        with clock.step(_STEPS[1]):
            journal.handle_synced(write)


def _read(journal: Journal, disk: OsDisk, count: int) -> None:
    wanted, at = RangeSet([(1, count + 1)]), 1
    while True:
        read = journal.read(_LEDGER, wanted, _READ_BYTES, at)
        read.fetch(disk)
        if read.resume_at is None:
            return
        at = read.resume_at
