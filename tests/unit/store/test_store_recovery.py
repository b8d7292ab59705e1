"""Tests of recovery, row by row: torn tails, damage, lost identities, and what only the kernel has."""

import errno
from random import Random

import pytest
from lives import SMALL, checkpoint, drain, frames_of

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.store.config import Need, StoreConfig
from fjm2.store.format.batches import BatchHead, seal_batch
from fjm2.store.format.checksums import PREFERRED
from fjm2.store.journal import Journal
from fjm2.store.opening import DamagedStoreError, mark_failed, open_journal
from fjm2.store.runs import Run
from fjm2.store.sim_disk import PowerCutError, SimDisk
from fjm2.store.writes import BatchWrite, SegmentWrite, Write

LEDGER = Ledger(5, 0, 1)
KEEPER = bytes(range(16))


def opened(disk: SimDisk, config: StoreConfig = SMALL, **options: bool) -> Journal:
    return open_journal(disk, config, Random(disk.calls), **options)


def store(count: int, size: int = 600) -> tuple[SimDisk, Journal, list[BatchWrite]]:
    """Return a store with batches of one frame each, and the writes that wrote them."""
    disk = SimDisk(1)
    journal = open_journal(disk, SMALL, Random(1), keeper_id=KEEPER)
    writes = [write for n in range(1, count + 1) if (write := commit(journal, disk, n, size)) is not None]
    return disk, journal, writes


def commit(journal: Journal, disk: SimDisk, sequence: int, size: int = 600) -> BatchWrite | None:
    """Commit one frame, and return the write."""
    found = None
    assert journal.append([Run.of(LEDGER, sequence, [frame(sequence, size)])], Need.URGENT) is not None
    while (write := journal.poll_write()) is not None:
        found = write if isinstance(write, BatchWrite) else found
        write.perform(disk)
        journal.handle_synced(write)
    return found


def interrupt(write: Write, disk: SimDisk) -> None:
    """Perform a write that does not come to its end."""
    try:
        write.perform(disk)
    except (PowerCutError, OSError):
        return
    raise AssertionError("the write came to its end")


def frame(sequence: int, size: int = 600) -> bytes:
    return Random(sequence).randbytes(size)


def image(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.content(name) for name in disk.names()}


def expect_damage(disk: SimDisk, text: str) -> DamagedStoreError:
    """Expect that opening refuses, says where, and changes nothing."""
    disk.kill()
    before, calls = image(disk), disk.calls
    with pytest.raises(DamagedStoreError, match=text) as refusal:
        opened(disk)
    assert image(disk) == before
    assert disk.calls == calls
    return refusal.value


# Torn tails.


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("count", [3, 6])
def test_a_torn_tail_is_cut_off(seed: int, count: int) -> None:
    """The sixth batch is the first of a segment."""
    disk = SimDisk(seed)
    journal = open_journal(disk, SMALL, Random(1), keeper_id=KEEPER)
    incarnation = journal.identity.incarnation
    for n in range(1, count):
        commit(journal, disk, n, 1100)
    journal.append([Run.of(LEDGER, count, [frame(count, 1100)])])
    write = journal.poll_write()
    while not isinstance(write, BatchWrite):
        assert write is not None
        write.perform(disk)
        journal.handle_synced(write)
        write = journal.poll_write()
    assert (write.new_use is not None) == (count == 6)
    # The last sync does not return.
    disk.cut_at = disk.calls + (4 if count == 6 else 2)
    interrupt(write, disk)
    disk.power_cut()
    journal = opened(disk)
    found = frames_of(journal, disk, LEDGER)
    assert found.keys() in (set(range(1, count)), set(range(1, count + 1)))
    assert journal.identity.incarnation == incarnation
    commit(journal, disk, count + 1, 100)
    disk.power_cut()
    journal = opened(disk)
    assert frames_of(journal, disk, LEDGER) == {**found, count + 1: frame(count + 1, 100)}


def test_a_batch_in_a_message_is_no_batch_of_the_journal() -> None:
    """A publisher guesses LSN and incarnation, which others know, and puts a batch where a torn tail will be."""
    disk, journal, writes = store(2)
    head = BatchHead(PREFERRED, 0, 0, 0, 9, 12345, journal.identity.incarnation, 0)
    parts: list[bytes] = []
    seal_batch(parts, head)
    forged = b"".join(parts)
    journal.append([Run.of(LEDGER, 3, [bytes(512 - 64 - 36) + forged * 3])])
    write = journal.poll_write()
    assert isinstance(write, BatchWrite)
    write.perform(disk)
    assert forged in disk.content(write.segment.name)[write.offset :: 1]
    # The head of the batch is lost, its middle is not.
    disk.flip(write.segment.name, write.offset)
    disk.kill()
    journal = opened(disk)
    assert (journal.lsn, set(frames_of(journal, disk, LEDGER))) == (2, {1, 2})
    assert writes[0].segment.salt != 12345


def test_an_old_batch_in_a_reused_segment_is_no_good_batch_behind() -> None:
    disk, journal, _ = store(4)
    journal.release(LEDGER, [(1, 100)])
    for n in range(5, 200):
        if journal.wants_checkpoint:
            checkpoint(journal, disk)
        write = commit(journal, disk, n)
        assert write is not None
        journal.release(LEDGER, [(n - 4, n - 3)])
        if n > 150 and write.new_use is not None:
            break
    else:
        raise AssertionError("no segment was begun")
    disk.flip(write.segment.name, write.offset + 40)
    disk.kill()
    assert opened(disk).lsn == write.lsn - 1


# Damage.


def test_damage_before_a_good_batch_is_refused_and_told() -> None:
    disk, _, writes = store(5)
    bad = writes[2]
    disk.flip(bad.segment.name, bad.offset + 100)
    error = expect_damage(
        disk, rf"{bad.segment.name}: 1024 bytes at offset {bad.offset}: batch 3 is bad, and later ones"
    )
    assert [(damage.file, damage.offset, damage.size) for damage in error.damages] == [
        (bad.segment.name, bad.offset, 1024)
    ]


def test_damage_to_the_end_of_a_segment_is_refused() -> None:
    disk, _, writes = store(12)
    first = next(write for write in writes[1:] if write.new_use is not None)
    last = writes[first.lsn - 2]
    assert last.segment is not first.segment
    disk.flip(last.segment.name, last.offset + 1)
    expect_damage(disk, rf"{last.segment.name}: \d+ bytes at offset {last.offset}: batch {last.lsn} is bad")


def test_damage_to_the_first_batch_of_a_segment_is_refused() -> None:
    disk, _, writes = store(12)
    first = next(write for write in writes[1:] if write.new_use is not None)
    disk.flip(first.segment.name, first.offset + 70)
    expect_damage(disk, rf"{first.segment.name}: 1024 bytes at offset 512: batch {first.lsn} is bad")


def test_the_head_of_a_later_segment_proves_that_batches_before_it_were_confirmed() -> None:
    """Both the last batch of a segment and the only one of the next are bad, so that no good batch lies behind."""
    disk, journal, writes = store(1)
    while len(writes) < 2 or writes[-1].new_use is None:
        write = commit(journal, disk, len(writes) + 1)
        assert write is not None
        writes.append(write)
    for bad in writes[-2:]:
        disk.flip(bad.segment.name, bad.offset + 100)
    before = writes[-2]
    expect_damage(disk, rf"{before.segment.name}: \d+ bytes at offset {before.offset}: batch {before.lsn} is bad")
    journal = opened(disk, accept_loss=True)
    assert set(frames_of(journal, disk, LEDGER)) == set(range(1, before.lsn))
    assert journal.lsn >= before.lsn, "a number that was confirmed is given again"


def test_a_bad_head_of_a_segment_costs_nothing() -> None:
    disk, _, writes = store(12)
    first = next(write for write in writes[1:] if write.new_use is not None)
    disk.flip(first.segment.name, 20)
    disk.kill()
    journal = opened(disk)
    assert set(frames_of(journal, disk, LEDGER)) == set(range(1, 13))
    assert journal.recovered is not None
    assert [damage.file for damage in journal.recovered.notes] == [first.segment.name]


def test_a_head_that_was_repaired_tells_again_that_a_segment_was_begun() -> None:
    disk, journal, writes = store(1)
    while len(writes) < 2 or writes[-1].new_use is None:
        write = commit(journal, disk, len(writes) + 1)
        assert write is not None
        writes.append(write)
    disk.flip(writes[-1].segment.name, 20)
    disk.kill()
    opened(disk)
    for bad in writes[-2:]:
        disk.flip(bad.segment.name, bad.offset + 100)
    expect_damage(disk, rf"offset {writes[-2].offset}: batch {writes[-2].lsn} is bad")


def test_a_missing_segment_is_refused() -> None:
    disk, _, writes = store(20)
    disk.remove(writes[8].segment.name)
    expect_damage(disk, r"batch \d+ is (bad|missing)")


def test_a_missing_segment_that_a_checkpoint_needs_is_refused() -> None:
    disk, journal, writes = store(12)
    checkpoint(journal, disk)
    disk.remove(writes[0].segment.name)
    expect_damage(disk, rf"{writes[0].segment.name}: 8192 bytes at offset 0: the file is missing")
    lost = {write.lsn for write in writes if write.segment is writes[0].segment}
    journal = opened(disk, accept_loss=True)
    assert frames_of(journal, disk, LEDGER) == {n: frame(n) for n in range(1, 13) if n not in lost}
    for n in sorted(lost):
        commit(journal, disk, n)
    disk.power_cut()
    assert frames_of(opened(disk), disk, LEDGER) == {n: frame(n) for n in range(1, 13)}


def test_sectors_that_the_disk_does_not_give_are_damage_also_at_the_end() -> None:
    disk, _, writes = store(12)
    last = writes[-1]
    disk.fail = lambda call, name: errno.EIO if (call, name) == ("pread", last.segment.name) else 0
    expect_damage(disk, rf"{last.segment.name}: \d+ bytes at offset 0: the disk does not give it: Input/output error")
    journal = opened(disk, accept_loss=True)
    expected = {write.lsn for write in writes if write.segment is not last.segment}
    found = frames_of(journal, disk, LEDGER)
    assert {sequence for sequence, data in found.items() if data is not None} == expected


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "sync_directory"])
def test_a_disk_that_fails_at_opening_is_told(call: str) -> None:
    disk, _, _ = store(2)
    disk.kill()
    disk.fail = lambda name, _file: errno.EIO if name == call else 0
    with pytest.raises(ConfigError, match="Input/output error: expected a disk that can be read and written"):
        opened(disk)
    disk.fail = lambda _call, _name: 0
    disk.kill()
    assert set(frames_of(opened(disk), disk, LEDGER)) == {1, 2}


def test_a_foreign_batch_breaks_the_chain() -> None:
    """The right LSN, salt and incarnation, but written after another history: a copy that was put back."""
    disk, journal, writes = store(3)
    write = writes[-1]
    parts: list[bytes] = [part for run in [Run.of(LEDGER, 4, [b"foreign"])] for part in run.encode()]
    seal_batch(parts, BatchHead(PREFERRED, 0, 0, 99, 4, write.segment.salt, journal.identity.incarnation, 1))
    file = disk.open(write.segment.name)
    disk.pwritev(file, parts, write.offset + write.length)
    disk.fdatasync(file)
    expect_damage(disk, "batch 4 is bad")


@pytest.mark.parametrize("is_own", [True, False])
def test_a_batch_of_another_incarnation_does_not_count(is_own: bool) -> None:
    disk, journal, writes = store(3)
    write = writes[-1]
    incarnation = journal.identity.incarnation ^ (not is_own)
    parts: list[bytes] = [part for run in [Run.of(LEDGER, 4, [b"next"])] for part in run.encode()]
    seal_batch(parts, BatchHead(PREFERRED, 0, 0, write.checksum, 4, write.segment.salt, incarnation, 1))
    file = disk.open(write.segment.name)
    disk.pwritev(file, parts, write.offset + write.length)
    disk.fdatasync(file)
    disk.kill()
    assert opened(disk).lsn == (4 if is_own else 3)


def test_accepted_loss_goes_on_without_what_is_lost_as_a_new_incarnation() -> None:
    disk, journal, writes = store(20)
    before = journal.identity
    for bad in (writes[2], writes[9], writes[10]):
        disk.flip(bad.segment.name, bad.offset + 100)
    disk.kill()
    journal = opened(disk, accept_loss=True)
    assert frames_of(journal, disk, LEDGER) == {n: frame(n) for n in range(1, 21) if n not in (3, 10, 11)}
    assert journal.identity.keeper_id == before.keeper_id
    assert journal.identity.incarnation != before.incarnation
    assert 3 not in journal.known(LEDGER)
    for n in (3, 10, 11):
        commit(journal, disk, n)
    disk.power_cut()
    journal = opened(disk)
    assert frames_of(journal, disk, LEDGER) == {n: frame(n) for n in range(1, 21)}
    assert journal.lsn == 23


@pytest.mark.parametrize("bad", [{1}, {2}, {1, 2}])
def test_one_bad_checkpoint_costs_nothing_and_two_are_damage(bad: set[int]) -> None:
    disk, journal, _ = store(12)
    checkpoint(journal, disk, b"one")
    for n in range(13, 17):
        commit(journal, disk, n)
    checkpoint(journal, disk, b"two")
    commit(journal, disk, 17)
    for number in bad:
        disk.flip(f"checkpoint-{number}", 40)
    if len(bad) == 2:
        expect_damage(disk, "checkpoint-2: .* its checksum is wrong")
        journal = opened(disk, accept_loss=True)
        assert journal.state == b""
    else:
        disk.kill()
        journal = opened(disk)
        assert journal.state == (b"one" if 2 in bad else b"two")
    assert frames_of(journal, disk, LEDGER) == {n: frame(n) for n in range(1, 18)}
    checkpoint(journal, disk, b"three")
    disk.power_cut()
    assert opened(disk).state == b"three"


# Identity and incarnation.


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_store_without_its_identity_is_refused_and_returns_as_another(is_missing: bool) -> None:
    disk, journal, _ = store(3)
    before = journal.identity
    if is_missing:
        disk.remove("identity")
    else:
        disk.flip("identity", 20)
    expect_damage(disk, "identity: .*missing, or its checksum is wrong")
    journal = opened(disk, accept_loss=True)
    assert set(frames_of(journal, disk, LEDGER)) == {1, 2, 3}
    assert journal.identity.incarnation != before.incarnation
    commit(journal, disk, 4)
    disk.power_cut()
    assert set(frames_of(opened(disk), disk, LEDGER)) == {1, 2, 3, 4}


def test_an_empty_directory_under_a_known_keeper_id_is_a_new_incarnation() -> None:
    disk, journal, _ = store(1)
    other = open_journal(SimDisk(2), SMALL, Random(9), keeper_id=KEEPER)
    assert other.identity.keeper_id == KEEPER
    assert other.identity.incarnation != journal.identity.incarnation
    disk.kill()
    with pytest.raises(ConfigError, match=r"identity: keeper id 0001\w+ at offset 12: expected"):
        open_journal(disk, SMALL, Random(1), keeper_id=bytes(16))


def test_a_store_whose_peers_heard_more_is_renewed_and_keeps_all() -> None:
    disk, journal, _ = store(3)
    before = journal.identity
    for n in range(4, 7):
        disk.kill()
        journal = opened(disk, renew=True)
        assert journal.identity.incarnation != before.incarnation
        commit(journal, disk, n)
    disk.power_cut()
    assert set(frames_of(opened(disk), disk, LEDGER)) == set(range(1, 7))
    assert "failed" not in disk.names()


def test_a_failed_sync_makes_the_next_life_a_new_incarnation() -> None:
    disk, journal, _ = store(3)
    before = journal.identity
    mark_failed(disk)
    disk.power_cut()
    journal = opened(disk)
    assert journal.identity.incarnation != before.incarnation
    again = journal.identity
    disk.power_cut()
    assert opened(disk).identity == again


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_that_only_the_kernel_has_is_synced_before_it_counts(seed: int) -> None:
    """The process is killed before the sync, or the sync fails. The next one reads the batch, and a peer hears it."""
    disk = SimDisk(seed)
    journal = open_journal(disk, SMALL, Random(1))
    commit(journal, disk, 1)
    journal.append([Run.of(LEDGER, 2, [frame(2)])])
    write = journal.poll_write()
    assert write is not None
    if seed % 2:
        disk.fail = lambda call, _name: errno.EIO if call == "fdatasync" else 0
    else:
        disk.cut_at = disk.calls + 2
    interrupt(write, disk)
    disk.fail = lambda _call, _name: 0
    disk.kill()
    assert set(frames_of(opened(disk), disk, LEDGER)) == {1, 2}
    disk.power_cut()
    assert set(frames_of(opened(disk), disk, LEDGER)) == {1, 2}


def test_a_directory_entry_that_only_the_kernel_has_is_synced_before_it_counts() -> None:
    """The process is killed before the directory is synced, and the next one puts a batch into the new segment."""
    for seed in range(8):
        disk = SimDisk(seed)

        def cut(call: str, _name: str, disk: SimDisk = disk) -> int:
            if call == "sync_directory" and disk.log[-2] == ("rename", "segment-2"):
                raise PowerCutError
            return 0

        disk.fail = cut
        with pytest.raises(PowerCutError):
            open_journal(disk, SMALL, Random(1))
        disk.fail = lambda _call, _name: 0
        disk.kill()
        journal = opened(disk)
        for n in range(1, 20):
            journal.append([Run.of(LEDGER, n, [frame(n, 2000)])])
        confirmed = 0
        while confirmed < 3 or not any(place[0] == 2 for place in places(journal)):
            write = journal.poll_write()
            assert write is not None
            if isinstance(write, SegmentWrite):
                # Another segment would bring a sync of the directory.
                journal.handle_synced(write)
                continue
            write.perform(disk)
            confirmed = journal.handle_synced(write)
        disk.power_cut()
        assert len(frames_of(opened(disk), disk, LEDGER)) >= confirmed


def places(journal: Journal) -> list[list[int]]:
    return [place for part in journal.contents.ledgers[LEDGER].snapshot() for place in part.places.tolist()]


def test_files_that_were_never_completed_are_removed() -> None:
    disk, journal, _ = store(3)
    for name in ("segment-9.tmp", "checkpoint-4.tmp", "identity.tmp"):
        disk.put(name, b"half")
    disk.kill()
    journal = opened(disk)
    assert not [name for name in disk.names() if name.endswith(".tmp")]
    assert set(frames_of(journal, disk, LEDGER)) == {1, 2, 3}


def test_the_state_of_a_checkpoint_comes_back_with_what_was_written_since() -> None:
    disk, journal, _ = store(3)
    checkpoint(journal, disk, b"state")
    journal.append([Run.promise(LEDGER, 12, KEEPER), Run.counted(LEDGER, 50, 10)])
    drain(journal, disk)
    disk.power_cut()
    journal = opened(disk)
    assert (journal.state, journal.promised(LEDGER)) == (b"state", (12, KEEPER))
    assert list(journal.known(LEDGER)) == [(1, 4), (50, 60)]
