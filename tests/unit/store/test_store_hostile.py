"""Tests of directories full of anything: nothing but ConfigError escapes, and memory stays small."""

import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from lives import SMALL, Lives, drain, frames_of

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.store.inspection import check, export
from fjm2.store.opening import open_journal
from fjm2.store.runs import Run
from fjm2.store.sim_disk import SimDisk

NAMES = ("identity", "segment-0", "segment-1", "checkpoint-1", "checkpoint-2", "failed", "lost+found", "segment-x")
LEDGER = Ledger(1, 1, 1)


def try_everything(disk: SimDisk) -> None:
    """Open, check and export the store. Where it opens, it has to work."""
    for attempt in (lambda: list(check(disk)), lambda: list(export(disk, accept_loss=True))):
        with suppress(ConfigError):
            attempt()
        disk.kill()
    for accept_loss in (False, True):
        try:
            journal = open_journal(disk, SMALL, Random(1), accept_loss=accept_loss)
        except ConfigError:
            disk.kill()
            continue
        for ledger in journal.ledgers():
            frames_of(journal, disk, ledger)
        journal.append([Run.of(LEDGER, (1 << 60) + 1, [b"x"])])
        drain(journal, disk)
        disk.kill()


@pytest.mark.parametrize("seed", range(40))
def test_random_files(seed: int) -> None:
    random = Random(seed)
    disk = SimDisk(seed)
    for name in random.sample(NAMES, random.randint(1, len(NAMES))):
        content = bytearray(random.randbytes(random.choice((0, 3, 100, 8192, 20_000))))
        magic = random.choice((b"", b"FJB1", b"FJS1", b"FJC1", b"FJI1", b"FJB2"))
        content[: len(magic)] = magic
        disk.put(name, bytes(content))
    try_everything(disk)


@pytest.mark.parametrize("seed", range(40))
def test_a_store_with_bytes_changed_anywhere(seed: int) -> None:
    store = Lives(seed)
    store.open_and_live(80)
    store.disk.kill()
    random = Random(seed)
    for _ in range(random.randint(1, 8)):
        name = random.choice(store.disk.names())
        content = bytearray(store.disk.content(name))
        if not content:
            continue
        if random.random() < 0.1:
            store.disk.remove(name)
            continue
        choice = random.random()
        at = random.randrange(min(len(content), random.choice((64, 600, 1 << 20))))
        if choice < 0.6:
            content[at : at + 8] = random.choice((random.randbytes(8), bytes(8), b"\xff" * 8))
        elif choice < 0.8:
            del content[at:]
        else:
            content += bytes(random.choice((1, 512, 100_000)))
        store.disk.put(name, bytes(content[: 1 << 20]))
    try_everything(store.disk)


@pytest.mark.parametrize("seed", range(20))
def test_flipped_bits_are_never_served(seed: int) -> None:
    """Opened with the loss accepted, every frame is as it was appended: batches with flipped bits are left out."""
    store = Lives(seed)
    store.open_and_live(60)
    random = Random(seed)
    store.disk.kill()
    segments = [name for name in store.disk.names() if name.startswith("segment") and not name.endswith("tmp")]
    checkpoints = [name for name in store.disk.names() if name.startswith("checkpoint")]
    for name in checkpoints:
        store.disk.remove(name)
    for _ in range(4):
        name = random.choice(segments)
        store.disk.flip(name, random.randrange(len(store.disk.content(name))), random.randrange(8))
    try:
        journal = open_journal(store.disk, SMALL, Random(1), accept_loss=True)
    except ConfigError as error:
        raise AssertionError from error
    for ledger in journal.ledgers():
        for sequence, frame in frames_of(journal, store.disk, ledger).items():
            assert frame == store.model.appended[ledger, sequence]


def test_lengths_on_disk_cost_no_memory() -> None:
    """Heads that promise 4 GiB, in files that are short."""
    disk = SimDisk(1)
    journal = open_journal(disk, SMALL, Random(1))
    journal.append([Run.of(LEDGER, 1, [b"x"])])
    drain(journal, disk)
    for name in ("segment-0", "checkpoint-1"):
        content = bytearray(disk.content(name)) if name in disk.names() else bytearray(b"FJC1".ljust(5000, b"\xff"))
        content[516:520] = b"\xff\xff\xfe\x00"
        disk.put(name, bytes(content))
    disk.kill()
    tracemalloc.start()
    try_everything(disk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
