"""A keeper's store on a simulated disk, which syncs when the test says so."""

from random import Random

from fjm2.cell.replica import Remembered
from fjm2.keeper.storage import JournalStorage, remember
from fjm2.store.config import StoreConfig
from fjm2.store.journal import Journal
from fjm2.store.opening import open_journal
from fjm2.store.sim_disk import SimDisk

SMALL = StoreConfig(segment_bytes=8 << 10, store_bytes_max=64 << 10)


class Store:
    """A journal with its disk."""

    def __init__(self, seed: int = 1, config: StoreConfig = SMALL) -> None:
        self.disk = SimDisk(seed)
        self.config = config
        self._random = Random(seed)
        self._open()

    def _open(self) -> None:
        self.journal: Journal = open_journal(self.disk, self.config, self._random)
        self.storage = JournalStorage(self.journal, self.journal.append)

    def sync(self) -> None:
        """Perform everything that waits."""
        while (write := self.journal.poll_write()) is not None:
            write.perform(self.disk)
            self.journal.handle_synced(write)

    def checkpoint(self, state: bytes = b"") -> None:
        """Write a checkpoint."""
        assert self.journal.start_checkpoint(state)
        self.sync()

    def disk_bytes(self) -> int:
        """Return the bytes that all files have."""
        return sum(len(self.disk.content(name)) for name in self.disk.names())

    def remember(self) -> Remembered:
        return remember(self.journal, self.disk)

    def kill(self) -> None:
        """End the process, and start it again."""
        self.disk.kill()
        self._open()

    def power_cut(self) -> None:
        """Cut the power, and start again."""
        self.disk.power_cut()
        self._open()
