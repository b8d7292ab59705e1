"""Tests of `check` and `export`, which look at a store and change nothing."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from lives import SMALL, Lives, checkpoint, drain, frames_of

from fjm2.base.ledger import Ledger
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.inspection import check, export
from fjm2.store.journal import Journal
from fjm2.store.opening import DamagedStoreError, open_journal
from fjm2.store.runs import Run
from fjm2.store.sim_disk import SimDisk

FIRST, SECOND = Ledger(1, 0, 0), Ledger(2, 0, 0)


@pytest.mark.parametrize("seed", range(10))
def test_a_store_that_nothing_happened_to_has_no_findings(seed: int) -> None:
    store = Lives(seed)
    for _ in range(3):
        store.open_and_live(60)
        store.end()
        calls = store.disk.calls
        assert list(check(store.disk)) == []
        assert store.disk.calls == calls
        store.disk.kill()


@pytest.mark.parametrize("seed", range(5))
def test_every_flipped_bit_in_a_batch_with_live_frames_is_found(seed: int) -> None:
    """Before a checkpoint too, where opening does not look."""
    disk = SimDisk(seed)
    journal = open_journal(disk, SMALL, Random(seed))
    for n in range(1, 21):
        journal.append([Run.of(FIRST, n, [bytes(400)])])
        drain(journal, disk)
    checkpoint(journal, disk)
    places = [place for part in journal.contents.ledgers[FIRST].snapshot() for place in part.places.tolist()]
    for number, offset, length in Random(seed).sample(places, 4):
        name, start = f"segment-{number}", offset // 512 * 512
        disk.flip(name, offset + length // 2)
        disk.kill()
        (damage,) = check(disk)
        assert damage.file == name
        assert damage.offset <= offset < damage.offset + damage.size
        assert (damage.offset, damage.size) == (start, 512)
        disk.flip(name, offset + length // 2)
        disk.kill()
    assert list(check(disk)) == []


def test_the_same_damage_is_told_once() -> None:
    disk = SimDisk(1)
    journal = open_journal(disk, SMALL, Random(1))
    for n in range(1, 10):
        journal.append([Run.of(FIRST, n, [bytes(400)])])
        drain(journal, disk)
    disk.flip("segment-0", 512 + 512 * 3 + 9)
    disk.flip("identity", 1)
    disk.kill()
    assert [str(damage).partition(": batch")[0] for damage in check(disk)] == [
        "identity: 44 bytes at offset 0: missing, or its checksum is wrong",
        "segment-0: 512 bytes at offset 2048",
    ]


def test_export_gives_every_live_message_in_order(tmp_path: Path) -> None:
    with OsDisk(tmp_path) as disk:
        journal = open_journal(disk, replace(SMALL, store_bytes_max=16 << 20), Random(1))
        runs = [Run.of(SECOND, 3, [b"c", b"d"]), Run.of(FIRST, 1, [b"x" * n for n in range(3000)])]
        assert journal.append(runs) == 1
        drain(journal, disk)
        journal.release(FIRST, [(1, 2990)])
        checkpoint(journal, disk)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with OsDisk(tmp_path, read_only=True) as disk:
        found = list(export(disk))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert [(message.ledger, message.sequence) for message in found] == [
        *((FIRST, n) for n in range(2990, 3001)),
        (SECOND, 3),
        (SECOND, 4),
    ]
    assert [message.frame for message in found][-3:] == [b"x" * 2999, b"c", b"d"]


def test_export_of_a_damaged_store_needs_the_loss_accepted() -> None:
    disk = SimDisk(1)
    journal = open_journal(disk, SMALL, Random(1))
    for n in range(1, 4):
        journal.append([Run.of(FIRST, n, [b"%d" % n])])
        drain(journal, disk)
    disk.flip("segment-0", 512 + 512 + 9)
    disk.kill()
    with pytest.raises(DamagedStoreError):
        list(export(disk))
    assert [message.sequence for message in export(disk, accept_loss=True)] == [1, 3]


def written(count: int) -> tuple[SimDisk, Journal]:
    """Return a store with batches of one frame each, all in its first segment."""
    disk = SimDisk(1)
    journal = open_journal(disk, SMALL, Random(1))
    for n in range(1, count + 1):
        journal.append([Run.of(FIRST, n, [bytes(400)])])
        drain(journal, disk)
    return disk, journal


@pytest.mark.parametrize("bad", ["segment-0", "checkpoint-2"])
def test_damage_that_costs_nothing_is_repaired_when_the_store_is_opened(bad: str) -> None:
    disk, journal = written(9)
    checkpoint(journal, disk)
    checkpoint(journal, disk)
    disk.flip(bad, 40)
    disk.kill()
    (damage,) = check(disk)
    assert (damage.file, damage.is_lost) == (bad, False)
    incarnation = journal.identity.incarnation
    journal = open_journal(disk, SMALL, Random(2))
    assert journal.identity.incarnation == incarnation
    disk.kill()
    assert list(check(disk)) == []
    assert sorted(frames_of(open_journal(disk, SMALL, Random(3)), disk, FIRST)) == list(range(1, 10))


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_store_whose_loss_was_accepted_is_good(has_checkpoint: bool) -> None:
    disk, journal = written(9)
    if has_checkpoint:
        checkpoint(journal, disk)
    disk.flip("segment-0", 512 + 512 * 3 + 9)
    disk.kill()
    assert [damage.is_lost for damage in check(disk)] == [True]
    incarnation = journal.identity.incarnation
    journal = open_journal(disk, SMALL, Random(2), accept_loss=True)
    assert journal.identity.incarnation != incarnation
    disk.kill()
    assert list(check(disk)) == []
    assert [message.sequence for message in export(disk)] == [1, 2, 3, 5, 6, 7, 8, 9]
