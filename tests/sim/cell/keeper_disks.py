"""The disk of one keeper: a journal on a simulated disk, which is killed, cut off, filled, broken and lost."""

import errno
from contextlib import suppress
from random import Random

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.replica import Remembered
from fjm2.cell.wire.fields import Member
from fjm2.keeper.storage import JournalStorage, member_of, remember
from fjm2.store.config import StoreConfig
from fjm2.store.journal import Journal
from fjm2.store.opening import mark_failed, open_journal
from fjm2.store.sim_disk import PowerCutError, SimDisk
from fjm2.store.writes import Write

CONFIG = StoreConfig(segment_bytes=8 << 10, store_bytes_max=1 << 30, checkpoint_batches=60, batch_bytes=2 << 10)
"""Small segments and frequent checkpoints, so that a life of seconds sees many of them."""
_CAPACITY = 1 << 40
_CALLS_MAX = 3
"""Calls of one piece of work, at most: power goes in the middle of any of them."""


class KeeperDisk:
    """The store of one keeper through all its lives."""

    def __init__(self, keeper_id: bytes, random: Random) -> None:
        self._keeper_id = keeper_id
        self._random = random
        self.config = CONFIG
        self._write: Write | None = None
        self._is_bad = False
        self.is_failing = False
        """True if the next sync will fail, so that the next life is another keeper."""
        self.disk = SimDisk(random.getrandbits(32))
        self.member: Member | None = None
        """The keeper in the incarnation of its store; None if the next life is another one."""

    def open(self) -> Remembered:
        """Start a life. Return what is there."""
        self.journal: Journal = open_journal(self.disk, self.config, self._random, keeper_id=self._keeper_id)
        self.storage = JournalStorage(self.journal, self.journal.append)
        self.member = member_of(self.journal)
        self._write = None
        return remember(self.journal, self.disk)

    def begin(self) -> bool:
        """Begin the next piece of work. Return False if there is none, or one is under way."""
        if self._write is None:
            if self.journal.wants_checkpoint:
                self.journal.start_checkpoint()
            self._write = self.journal.poll_write()
            return self._write is not None
        return False

    def complete(self) -> bool:
        """Do the work that was begun. Return False if the disk failed, which ends the process."""
        write, self._write = self._write, None
        assert write is not None
        try:
            write.perform(self.disk)
        except OSError as error:
            self.journal.handle_failed(error)
            with suppress(OSError):
                mark_failed(self.disk)
            self.member = None
            return False
        self.journal.handle_synced(write)
        return True

    def kill(self) -> None:
        """End the process, perhaps in the middle of its work. The kernel keeps what it was given."""
        self._interrupt()
        self.disk.kill()

    def cut_power(self) -> None:
        """Lose what was not synced, in part. Work that was begun is torn."""
        self._interrupt()
        self.disk.power_cut()

    def _interrupt(self) -> None:
        write, self._write = self._write, None
        if write is not None:
            self.disk.cut_at = self.disk.calls + self._random.randint(1, _CALLS_MAX)
            with suppress(PowerCutError, OSError):
                write.perform(self.disk)
            self.disk.cut_at = None

    def lose(self) -> None:
        """Lose everything but the keeper's id."""
        self.disk = SimDisk(self._random.getrandbits(32))
        self.member = None
        self._write = None
        self._is_bad = self.is_failing = False

    def fail_next_sync(self) -> None:
        """Let the next sync of a batch fail."""

        def fail(call: str, name: str) -> int:
            if call != "fdatasync" or not name.startswith("segment"):
                return 0
            self.disk.fail = lambda _call, _name: 0
            self.is_failing = False
            return errno.EIO

        self._is_bad = self.is_failing = True
        self.disk.fail = fail

    def fill(self) -> None:
        """Let others take the rest of the disk."""
        self._is_bad = True
        self.disk.capacity = sum(len(self.disk.content(name)) for name in self.disk.names())

    @property
    def is_bad(self) -> bool:
        """True while the disk is full, or has just failed."""
        return self._is_bad

    def mend(self) -> None:
        """Let others give room back, and let no sync fail."""
        self.disk.capacity = _CAPACITY
        self.disk.fail = lambda _call, _name: 0
        self._is_bad = self.is_failing = False

    def frames(self, ledger: Ledger, first: int, last: int) -> list[tuple[int, bytes]]:
        """Return the frames of a range that are on disk."""
        found: list[tuple[int, bytes]] = []
        at: int | None = first
        while at is not None:
            read = self.journal.read(ledger, RangeSet([(first, last + 1)]), 1 << 20, at)
            for sequence, frame in zip(read.sequences.tolist(), read.fetch(self.disk), strict=True):
                assert frame is not None, f"{sequence} of {ledger} cannot be read"
                found.append((sequence, frame))
            at = read.resume_at
        return found
