"""Runs that wait for the disk, gathered to batches."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from .config import StoreConfig
from .format.batches import BATCH_HEAD, padded
from .runs import Run
from .segments import Space

APPEND_BYTES_MAX = 1 << 31
"""Bytes of one append. Offsets and lengths of batches have 32 bits."""


@dataclass(slots=True)
class WaitingBatch:
    """A batch that waits."""

    lsn: int
    runs: list[Run]
    size: int = BATCH_HEAD.size
    """Length without padding."""


class BatchQueue:
    """Batches that wait, the last of which takes further runs."""

    def __init__(self, config: StoreConfig, space: Space, next_lsn: int) -> None:
        self._config, self._space = config, space
        self._next_lsn = next_lsn
        self._waiting: deque[WaitingBatch] = deque()
        self.bytes = 0
        """Bytes that wait."""

    def append(self, runs: Sequence[Run], reserve: int) -> int | None:
        """Put runs into one batch, and return its LSN. None if memory or disk have no room for them."""
        size = sum(run.size for run in runs)
        if size > APPEND_BYTES_MAX:
            raise ValueError(f"{size} bytes in one append: expected {APPEND_BYTES_MAX} at most")
        if self._waiting and self.bytes + size > self._config.pending_bytes_max:
            return None
        last = self._waiting[-1] if self._waiting else None
        if last is not None and self._is_joined(last.size, size):
            if not self._space.has_room(padded(last.size + size), reserve):
                return None
        else:
            if last is not None:
                self._space.plan(padded(last.size))
            if not self._space.has_room(padded(BATCH_HEAD.size + size), reserve):
                self.plan()
                return None
            last = WaitingBatch(self._next_lsn, [])
            self._next_lsn += 1
            self._waiting.append(last)
        last.runs += runs
        last.size += size
        self.bytes += size
        return last.lsn

    def _is_joined(self, last: int, size: int) -> bool:
        return last < self._config.batch_bytes and not self._space.is_big(padded(last + size))

    @property
    def newest_lsn(self) -> int:
        """Number of the last batch that took runs, on disk or not."""
        return self._next_lsn - 1

    @property
    def next_length(self) -> int:
        """Length of the batch that comes next; 0 if none waits."""
        return padded(self._waiting[0].size) if self._waiting else 0

    def pop(self) -> WaitingBatch:
        """Take the batch that comes next."""
        batch = self._waiting.popleft()
        self.bytes -= batch.size - BATCH_HEAD.size
        return batch

    def refuse(self, lsn: int) -> None:
        """Put an empty batch in place of one that the disk had no room for, so that no number is left out."""
        self._waiting.appendleft(WaitingBatch(lsn, []))

    def plan(self) -> None:
        """Plan the room of all batches but the last, which is planned when it takes no more runs."""
        self._space.reset_plan()
        for number in range(len(self._waiting) - 1):
            self._space.plan(padded(self._waiting[number].size))
