"""Lives of a store on a simulated disk, held against a naive model of what was confirmed."""

import errno
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.store.config import Need, StoreConfig
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal
from fjm2.store.opening import mark_failed, open_journal
from fjm2.store.runs import Run
from fjm2.store.sim_disk import PowerCutError, SimDisk

KIB = 1 << 10
SMALL = StoreConfig(
    segment_bytes=8 * KIB,
    store_bytes_max=24 * 8 * KIB,
    checkpoint_bytes=32 * KIB,
    batch_bytes=2 * KIB,
    compact_segments=3,
)
LEDGERS = [Ledger(1, 0, 0), Ledger(1, 0, 2), Ledger(2**64 - 1, 2**32 - 1, 255)]
ALL = RangeSet([(1, 1 << 64)])


def drain(journal: Journal, disk: Disk, limit: int = 10_000) -> None:
    """Perform everything that there is to do."""
    for _ in range(limit):
        write = journal.poll_write()
        if write is None:
            return
        write.perform(disk)
        journal.handle_synced(write)
    raise AssertionError(f"more than {limit} writes")


def frames_of(journal: Journal, disk: Disk, ledger: Ledger, bytes_max: int = 4 * KIB) -> dict[int, bytes | None]:
    """Return all live frames of a ledger, read in small portions."""
    found: dict[int, bytes | None] = {}
    at: int | None = 1
    while at is not None:
        read = journal.read(ledger, ALL, bytes_max, at)
        found.update(zip(read.sequences.tolist(), read.fetch(disk), strict=True))
        at = read.resume_at
    return found


def checkpoint(journal: Journal, disk: Disk, state: bytes = b"") -> None:
    """Write a checkpoint, and everything else that there is to do."""
    assert journal.start_checkpoint(state)
    drain(journal, disk)


Key = tuple[Ledger, int]


@dataclass
class Model:
    """Everything that was appended, by what is known about it."""

    appended: dict[Key, bytes] = field(default_factory=dict)
    confirmed: dict[Key, bytes] = field(default_factory=dict)
    released: set[Key] = field(default_factory=set)
    """Frames that were released. They may come back, unless a checkpoint has them."""
    gone: set[Key] = field(default_factory=set)
    """Frames that were released before a checkpoint that is on disk."""
    counted: set[Key] = field(default_factory=set)
    epoch: int = 0
    states: list[bytes] = field(default_factory=list)
    """States given to checkpoints."""
    state_on_disk: int = -1
    """Number of the newest state that is on disk for sure."""


class Lives:
    """A store that is killed and cut off again and again, by seed."""

    def __init__(self, seed: int, config: StoreConfig = SMALL) -> None:
        self.random = Random(seed)
        self.disk = SimDisk(seed)
        self.config = config
        self.model = Model()
        self.journal: Journal | None = None
        self._next = dict.fromkeys(LEDGERS, 1)
        self._waiting: list[tuple[int, dict[Key, bytes], set[Key], int]] = []
        self._pending_gone: tuple[int, set[Key]] | None = None

    def open(self) -> None:
        """Open the store, and hold it against the model."""
        self.journal = open_journal(self.disk, self.config, self.random)
        self.verify()

    def open_and_live(self, steps: int) -> None:
        """Open the store, and work for some steps."""
        self.open()
        self.live(steps)

    def live(self, steps: int) -> None:
        """Work for some steps."""
        assert self.journal is not None
        for _ in range(steps):
            choice = self.random.random()
            if choice < 0.45:
                self._append()
            elif choice < 0.6:
                self._release()
            elif choice < 0.65 and self._pending_gone is None:
                self._checkpoint()
            else:
                self._write(self.random.randint(1, 6))

    def _append(self) -> None:
        assert self.journal is not None
        runs, frames, counted, epoch = [], {}, set(), 0
        for _ in range(self.random.randint(1, 3)):
            ledger = self.random.choice(LEDGERS)
            first = self._next[ledger] + self.random.choice((0, 0, 0, 2))
            kind = self.random.random()
            if kind < 0.1:
                count = self.random.randint(1, 9)
                runs.append(Run.counted(ledger, first, count))
                counted |= {(ledger, first + n) for n in range(count)}
            elif kind < 0.15:
                epoch = self.model.epoch + 1 + len(self._waiting)
                runs.append(Run.promise(ledger, epoch, epoch.to_bytes(16, "big")))
                continue
            else:
                sizes = self._sizes()
                count = len(sizes)
                run = [self.random.randbytes(size) for size in sizes]
                runs.append(Run.of(ledger, first, run))
                frames.update({(ledger, first + n): frame for n, frame in enumerate(run)})
            self._next[ledger] = first + count
        lsn = self.journal.append(runs, self.random.choices(list(Need), (80, 10, 0, 10))[0])
        if lsn is not None:
            self.model.appended.update(frames)
            self._waiting.append((lsn, frames, counted, epoch))

    def _sizes(self) -> list[int]:
        if self.random.random() < 0.03:
            return [self.config.segment_bytes + self.random.randint(-2000, 2000)]
        return [self.random.choice((0, 1, 30, 200, 700)) for _ in range(self.random.randint(1, 5))]

    def _release(self) -> None:
        assert self.journal is not None
        live = sorted(self.model.confirmed.keys() - self.model.released)
        for ledger, sequence in self.random.sample(live, min(len(live), self.random.randint(1, 12))):
            self.journal.release(ledger, [(sequence, sequence + 1)])
            self.model.released.add((ledger, sequence))

    def _checkpoint(self) -> None:
        assert self.journal is not None
        state = self.random.randbytes(self.random.choice((0, 5, 3000)))
        if self.journal.start_checkpoint(state):
            self.model.states.append(state)
            self._pending_gone = len(self.model.states) - 1, set(self.model.released)

    def _write(self, count: int) -> None:
        assert self.journal is not None
        for _ in range(count):
            write = self.journal.poll_write()
            if write is None:
                return
            try:
                write.perform(self.disk)
            except OSError as error:
                self.journal.handle_failed(error)
                raise
            self.confirm(self.journal.handle_synced(write))

    def confirm(self, lsn: int) -> None:
        """Take up what the journal says is on disk."""
        assert self.journal is not None
        for waiting in [waiting for waiting in self._waiting if waiting[0] <= lsn]:
            self._waiting.remove(waiting)
            if waiting[0] not in self.journal.refused:
                self.model.confirmed.update(waiting[1])
                self.model.counted |= waiting[2]
                self.model.epoch = max(self.model.epoch, waiting[3])
        if self._pending_gone is not None and self.journal.housekeeping.checkpoint is None:
            self.model.state_on_disk, gone = self._pending_gone
            self.model.gone |= gone
            self._pending_gone = None

    def end(self) -> None:
        """Power cut or kill."""
        self.journal = None
        self._waiting.clear()
        self._pending_gone = None
        if self.random.random() < 0.7:
            self.disk.power_cut()
        else:
            self.disk.kill()

    def verify(self) -> None:
        """Hold what the store gives against the model, and take it for confirmed: a peer may have heard it by now."""
        assert self.journal is not None
        model = self.model
        for ledger in LEDGERS:
            found = frames_of(self.journal, self.disk, ledger)
            for sequence, frame in found.items():
                assert frame == model.appended[ledger, sequence], "torn, or of another message"
                assert (ledger, sequence) not in model.gone, "released, and back after a checkpoint"
            known = self.journal.known(ledger)
            for other, sequence in model.confirmed.keys() - model.released:
                assert other != ledger or sequence in found, f"lost {sequence}"
            for other, sequence in model.confirmed.keys() | model.counted:
                assert other != ledger or sequence in known, f"forgot {sequence}"
            model.confirmed.update({(ledger, sequence): model.appended[ledger, sequence] for sequence in found})
            model.released -= {(ledger, sequence) for sequence in found}
        promised = [self.journal.promised(ledger) for ledger in LEDGERS]
        epochs = [promise[0] for promise in promised if promise is not None]
        assert max(epochs, default=0) >= model.epoch, "a promise is lost"
        model.epoch = max(epochs, default=0)
        state = bytes(self.journal.state)
        assert state in [b"", *model.states][: 1 + len(model.states)]
        if model.state_on_disk >= 0:
            assert state in model.states[model.state_on_disk :], "an older state is back"


def run_lives(seed: int, lives: int, steps: int) -> None:
    """Let a store live several times, with power cuts in work and at opening."""
    store = Lives(seed)
    for _ in range(lives):
        store.disk.cut_at = store.disk.calls + store.random.randint(1, 250)
        try:
            store.open()
            store.live(steps)
        except PowerCutError:
            pass
        store.end()
    store.open()


def fail_syncs(disk: SimDisk, random: Random, chance: float) -> None:
    """Let syncs fail now and then."""

    def fail(call: str, name: str) -> int:
        return errno.EIO if call == "fdatasync" and name.startswith("segment") and random.random() < chance else 0

    disk.fail = fail


def end_by_failure(store: Lives) -> None:
    """Do as the thread that commits does when a write failed."""
    with suppress(OSError):
        mark_failed(store.disk)
    store.end()
