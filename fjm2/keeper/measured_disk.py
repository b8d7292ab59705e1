"""The directory of a store, with a look at how long its syncs take."""

from time import perf_counter
from typing import Final

from fjm2.store.drive.os_disk import OsDisk

_RECENT_SYNCS: Final = 32
"""Syncs that a mean of recent ones is about: some of a burst, and not those of yesterday."""


class MeasuredDisk(OsDisk):
    """A directory that measures its syncs. Only one thread syncs at a time, so that nothing is counted twice."""

    syncs = 0
    sync_seconds = 0.0
    sync_longest_s = 0.0
    sync_recent_s = 0.0
    """Mean of the recent syncs."""

    def fdatasync(self, file: int) -> None:
        """Bring a file's content to the medium."""
        began = perf_counter()
        super().fdatasync(file)
        took_s = perf_counter() - began
        self.syncs += 1
        self.sync_seconds += took_s
        self.sync_longest_s = max(self.sync_longest_s, took_s)
        self.sync_recent_s += (took_s - self.sync_recent_s) / min(self.syncs, _RECENT_SYNCS)
