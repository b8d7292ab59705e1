"""Measures a directory as the place of a store: how long a commit takes, and how much the journal writes."""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ledger import Ledger
from fjm2.store.config import StoreConfig
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.journal import Journal
from fjm2.store.opening import open_journal
from fjm2.store.runs import Run

_SEGMENT_BYTES: Final = 16 << 20
"""Length of the segments. A short one is prepared soon, and reused as in a store that runs for long."""
_STORE_BYTES: Final = 16 * _SEGMENT_BYTES
_BATCH_BYTES: Final = 256 << 10
"""Length of batches under load: what comes during one commit of a fast disk."""
_COMMITS_MAX: Final = 20_000
_LEDGER: Final = Ledger(1, 0, 0)


@dataclass(frozen=True, slots=True)
class Measured:
    """Results. Times are in seconds."""

    message_bytes: int
    commits: int
    """Number of commits of one message."""
    commit_p50_s: float
    commit_p99_s: float
    commit_max_s: float
    messages_per_s: float
    """Messages that the journal writes in batches."""
    bytes_per_s: float


def measure(directory: Path, message_bytes: int, duration_s: float) -> Measured:
    """Write a store of its own in an empty directory: half of the time message by message, half in batches."""
    config = StoreConfig(segment_bytes=_SEGMENT_BYTES, store_bytes_max=_STORE_BYTES)
    with OsDisk(directory) as disk:
        writer = _Writer(open_journal(disk, config, Random(1)), disk, bytes(message_bytes))
        alone_s = writer.run(1, duration_s / 2)
        count = max(_BATCH_BYTES // message_bytes, 1)
        batches_s = writer.run(count, duration_s / 2)
    rate = count * len(batches_s) / float(batches_s.sum())
    p50, p99 = (float(value) for value in np.percentile(alone_s, (50, 99)))
    return Measured(message_bytes, len(alone_s), p50, p99, float(alone_s.max()), rate, rate * message_bytes)


class _Writer:
    """Appends messages, and releases them when they are on disk, as if consumers had acknowledged them."""

    def __init__(self, journal: Journal, disk: OsDisk, message: bytes) -> None:
        self._journal, self._disk, self._message = journal, disk, message
        self._sequence = 1

    def run(self, count: int, duration_s: float) -> NDArray[np.float64]:
        """Commit batches of `count` messages. Return how long each took, with all that the store does besides."""
        took: list[float] = []
        ends_at = perf_counter() + duration_s
        while not took or (perf_counter() < ends_at and len(took) < _COMMITS_MAX):
            first = self._sequence
            frames = [self._message] * count
            began = perf_counter()
            lsn = self._journal.append([Run.of(_LEDGER, first, frames)])
            assert lsn is not None  # the segments hold far more than what is not released
            self._perform(lsn)
            took.append(perf_counter() - began)
            self._sequence += count
            self._journal.release(_LEDGER, [(first, self._sequence)])
            if self._journal.wants_checkpoint:
                self._journal.start_checkpoint()
        return np.array(took)

    def _perform(self, lsn: int) -> None:
        while self._journal.lsn < lsn and (write := self._journal.poll_write()) is not None:
            write.perform(self._disk)
            self._journal.handle_synced(write)
