"""Tests of the journal: what it confirms, gives back, refuses and reuses."""

import errno
from dataclasses import replace
from random import Random

import pytest
from lives import ALL, KIB, SMALL, checkpoint, drain, frames_of

from fjm2.base.errors import ConfigError, JournalError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.store.config import Need, StoreConfig
from fjm2.store.errors import NoRoomError
from fjm2.store.journal import Journal
from fjm2.store.opening import open_journal
from fjm2.store.runs import Run
from fjm2.store.sim_disk import SimDisk
from fjm2.store.writes import BatchWrite, SegmentWrite

LEDGER = Ledger(7, 1, 2)
TIGHT = replace(SMALL, store_bytes_max=7 * SMALL.segment_bytes, checkpoint_bytes=1 << 30)


def opened(disk: SimDisk, config: StoreConfig = SMALL) -> Journal:
    return open_journal(disk, config, Random(1))


def fill(journal: Journal, disk: SimDisk, size: int = 1000, need: Need = Need.MESSAGE) -> int:
    """Append frames one by one until there is no room, and return the sequence after the last."""
    known = journal.known(LEDGER)
    sequence = known.last + 1 if known else 1
    while journal.append([Run.of(LEDGER, sequence, [bytes(size)])], need) is not None:
        sequence += 1
        drain(journal, disk)
        assert sequence < 10_000
    return sequence


def test_runs_count_when_they_are_synced_and_not_before() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    lsn = journal.append([Run.of(LEDGER, 1, [b"a", b"bc"])])
    assert (lsn, journal.lsn, journal.waiting_frames(LEDGER)) == (1, 0, 0)
    write = journal.poll_write()
    assert isinstance(write, BatchWrite)
    assert journal.poll_write() is None
    assert journal.append([Run.of(LEDGER, 3, [b"later"])]) == 2
    write.perform(disk)
    assert journal.lsn == 0
    assert not journal.known(LEDGER)
    assert journal.handle_synced(write) == 1
    assert frames_of(journal, disk, LEDGER) == {1: b"a", 2: b"bc"}
    drain(journal, disk)
    assert frames_of(journal, disk, LEDGER) == {1: b"a", 2: b"bc", 3: b"later"}


def test_what_comes_during_a_commit_shares_the_next_one() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    journal.append([Run.of(LEDGER, 1, [b"x"])])
    write = journal.poll_write()
    assert write is not None
    lsns = {journal.append([Run.of(LEDGER, n, [b"x"])]) for n in range(2, 30)}
    assert lsns == {2}
    write.perform(disk)
    journal.handle_synced(write)
    disk.log.clear()
    drain(journal, disk)
    assert disk.log.count(("fdatasync", "segment-0")) == 1


def test_a_write_of_another_poll_is_refused() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    journal.append([Run.of(LEDGER, 1, [b"x"])])
    write = journal.poll_write()
    assert write is not None
    journal.handle_synced(write)
    with pytest.raises(ValueError, match="not the one that poll_write returned last"):
        journal.handle_synced(write)


def test_a_sequence_is_stored_once_also_after_its_release() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    for frame in (b"first", b"second"):
        journal.append([Run.of(LEDGER, 5, [frame])])
        drain(journal, disk)
    assert frames_of(journal, disk, LEDGER) == {5: b"second"}
    journal.release(LEDGER, RangeSet([(5, 6)]))
    journal.append([Run.of(LEDGER, 4, [b"four", b"five", b"six"])])
    drain(journal, disk)
    assert frames_of(journal, disk, LEDGER) == {4: b"four", 6: b"six"}
    journal.forget(LEDGER, [(5, 6)])
    journal.append([Run.of(LEDGER, 5, [b"again"])])
    drain(journal, disk)
    assert frames_of(journal, disk, LEDGER) == {4: b"four", 5: b"again", 6: b"six"}


def test_a_read_costs_what_it_returns_and_says_where_to_go_on() -> None:
    disk = SimDisk(1)
    journal = opened(disk, StoreConfig(segment_bytes=1 << 20, store_bytes_max=40 << 20))
    for first in range(1, 100_001, 10_000):
        journal.append([Run.of(LEDGER, first, [b"%09d" % n for n in range(first, first + 10_000)])])
        drain(journal, disk)
    read = journal.read(LEDGER, ALL, 90)
    assert read.sequences.tolist() == list(range(1, 11))
    assert read.resume_at == 11
    read = journal.read(LEDGER, RangeSet([(3, 5), (50_000, 50_002), (99_999, 200_000)]), 1 << 20, 4)
    assert read.resume_at is None
    assert read.fetch(disk) == [b"%09d" % n for n in (4, 50_000, 50_001, 99_999, 100_000)]
    assert len(frames_of(journal, disk, LEDGER, 64 * KIB)) == 100_000


def test_a_read_of_what_the_disk_does_not_give_or_what_was_reused_gives_none() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    journal.append([Run.of(LEDGER, 1, [b"x" * 7000])])
    drain(journal, disk)
    journal.append([Run.of(LEDGER, 2, [b"y" * 7000])])
    drain(journal, disk)
    read = journal.read(LEDGER, ALL, 1 << 20)
    disk.fail = lambda call, name: errno.EIO if (call, name) == ("pread", "segment-0") else 0
    assert read.fetch(disk) == [None, b"y" * 7000]
    disk.fail = lambda _call, _name: 0
    journal.release(LEDGER, [(1, 2)])
    checkpoint(journal, disk)
    checkpoint(journal, disk)
    assert read.fetch(disk) == [None, b"y" * 7000]


def test_a_full_store_refuses_as_a_value_and_keeps_three_segments_for_what_makes_room() -> None:
    disk = SimDisk(1)
    journal = opened(disk, TIGHT)
    fill(journal, disk)
    assert journal.is_full
    for need, segments in ((Need.FETCHED, 1), (Need.URGENT, 2)):
        before = journal.use.live
        fill(journal, disk, need=need)
        assert journal.use.live - before == segments * 5 * 1000, "a segment has room for five batches of 1536 bytes"
    assert journal.use.used <= TIGHT.store_bytes_max
    assert sum(len(disk.content(name)) for name in disk.names() if name.startswith("segment")) <= TIGHT.store_bytes_max


def test_a_full_store_has_room_again_after_releases_and_two_checkpoints() -> None:
    disk = SimDisk(1)
    journal = opened(disk, TIGHT)
    for _ in range(5):
        end = fill(journal, disk)
        assert journal.is_full
        journal.release(LEDGER, [(1, end)])
        for _ in range(2):
            assert journal.wants_checkpoint
            assert journal.is_full
            checkpoint(journal, disk)
        assert not journal.is_full
    assert len([name for name in disk.names() if name.startswith("segment")]) <= 7


def test_a_segment_is_not_reused_while_a_checkpoint_on_disk_needs_it() -> None:
    """The newest checkpoint is damaged, and the one before it still finds all its frames."""
    disk = SimDisk(1)
    journal = opened(disk, TIGHT)
    end = fill(journal, disk)
    checkpoint(journal, disk, b"older")
    journal.release(LEDGER, [(1, end)])
    checkpoint(journal, disk, b"newer")
    fill(journal, disk)
    disk.flip("checkpoint-2", 100)
    disk.kill()
    journal = opened(disk, TIGHT)
    assert journal.state == b"older"
    assert journal.recovered is not None
    assert [damage.file for damage in journal.recovered.notes] == ["checkpoint-2"]
    assert frames_of(journal, disk, LEDGER).keys() >= set(range(1, end))


def test_a_long_batch_gets_a_file_of_its_own_that_is_deleted_when_dead() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    long = Random(2).randbytes(3 * SMALL.segment_bytes)
    journal.append([Run.of(LEDGER, 1, [b"before"])])
    drain(journal, disk)
    journal.append([Run.of(LEDGER, 2, [long])])
    drain(journal, disk)
    journal.append([Run.of(LEDGER, 3, [b"after"])])
    drain(journal, disk)
    disk.power_cut()
    journal = opened(disk)
    assert frames_of(journal, disk, LEDGER) == {1: b"before", 2: long, 3: b"after"}
    journal.release(LEDGER, [(2, 3)])
    checkpoint(journal, disk)
    assert any(len(disk.content(name)) > len(long) for name in disk.names())
    checkpoint(journal, disk)
    assert not any(len(disk.content(name)) > len(long) for name in disk.names())
    disk.power_cut()
    assert frames_of(opened(disk), disk, LEDGER) == {1: b"before", 3: b"after"}


def test_nearly_dead_segments_are_compacted() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    frames = {n: Random(n).randbytes(900) for n in range(1, 81)}
    for n, frame in frames.items():
        journal.append([Run.of(LEDGER, n, [frame])])
        drain(journal, disk)
    kept = {n: frame for n, frame in frames.items() if n % 8 == 0}
    for n in frames.keys() - kept.keys():
        journal.release(LEDGER, [(n, n + 1)])
    drain(journal, disk)
    checkpoint(journal, disk)
    checkpoint(journal, disk)
    assert frames_of(journal, disk, LEDGER) == kept
    assert len(journal.contents.live) <= 4
    disk.power_cut()
    assert frames_of(opened(disk), disk, LEDGER) == kept


def test_compaction_copies_nothing_out_of_a_damaged_segment() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    for n in range(1, 81):
        journal.append([Run.of(LEDGER, n, [b"%03d" % n * 300])])
        drain(journal, disk)
    place = next(iter(journal.contents.ledgers[LEDGER].entries(8, 9))).places[0].tolist()
    disk.flip(f"segment-{place[0]}", place[1] + 5)
    for n in range(1, 81):
        if n % 8:
            journal.release(LEDGER, [(n, n + 1)])
    drain(journal, disk)
    assert [damage.file for damage in journal.damages] == [f"segment-{place[0]}"]
    assert next(iter(journal.contents.ledgers[LEDGER].entries(8, 9))).places[0].tolist() == place


@pytest.mark.parametrize("segments", range(4))
def test_a_new_store_that_would_be_full_from_the_start_is_not_begun(segments: int) -> None:
    disk = SimDisk(1, capacity=segments * SMALL.segment_bytes + 2 * KIB)
    for _ in range(2):
        with pytest.raises(NoRoomError, match=f"expected {4 * SMALL.segment_bytes} free bytes"):
            opened(disk)
        assert not [name for name in disk.names() if name.startswith("segment")]
    disk.capacity = 5 * SMALL.segment_bytes
    journal = opened(disk)
    assert not journal.is_full
    assert fill(journal, disk) > 1


def test_a_full_disk_refuses_and_the_reserve_still_fits() -> None:
    disk = SimDisk(1, capacity=6 * SMALL.segment_bytes + 4 * KIB)
    journal = opened(disk)
    end = fill(journal, disk)
    assert journal.is_full
    for n in range(8):
        assert journal.append([Run.of(Ledger(9, 0, 255), n + 1, [bytes(1000)])], Need.URGENT) is not None
        drain(journal, disk)
    journal.release(LEDGER, [(1, end)])
    for _ in range(3):
        if journal.wants_checkpoint:
            checkpoint(journal, disk)
    assert not journal.is_full
    assert fill(journal, disk) > end


def test_a_disk_on_which_others_made_room_is_used_again() -> None:
    disk = SimDisk(1, capacity=6 * SMALL.segment_bytes + 4 * KIB)
    journal = opened(disk)
    end = fill(journal, disk)
    disk.capacity *= 4
    assert fill(journal, disk) == end
    journal.retry()
    drain(journal, disk)
    assert fill(journal, disk) > end + 20


def test_a_batch_that_is_longer_than_a_segment_is_taken_when_a_full_disk_has_room_again() -> None:
    """There are enough segments for all others, so that nobody else asks the disk."""
    disk = SimDisk(1, capacity=12 * SMALL.segment_bytes)
    journal = opened(disk)
    end = fill(journal, disk)
    journal.release(LEDGER, [(1, end)])
    for _ in range(9):
        if journal.wants_checkpoint:
            checkpoint(journal, disk)
    long = Run.of(Ledger(9, 0, 255), 1, [bytes(2 * SMALL.segment_bytes)])
    assert journal.append([long], Need.URGENT) is None
    disk.capacity *= 4
    for _ in range(3):
        if journal.is_full:
            journal.retry()
        drain(journal, disk)
    assert journal.append([long], Need.URGENT) is not None
    assert not journal.is_full


def test_a_disk_that_is_asked_again_in_vain_promises_nothing_of_the_reserve() -> None:
    """Frames that were promised a segment that is never made would take the place of requests and decisions."""
    disk = SimDisk(1, capacity=6 * SMALL.segment_bytes + 4 * KIB)
    journal = opened(disk)
    end = fill(journal, disk)
    for _ in range(20):
        journal.retry()
        assert journal.append([Run.of(LEDGER, end, [bytes(700)])]) is None
        drain(journal, disk)
    assert journal.is_full
    # The reserve is all there.
    taken = 0
    while journal.append([Run.of(LEDGER, end + taken, [bytes(2000)])], Need.URGENT) is not None:
        drain(journal, disk)
        taken += 1
    assert taken * 2000 > SMALL.segment_bytes


def test_a_checkpoint_on_a_full_disk_makes_its_own_room() -> None:
    disk = SimDisk(1, capacity=6 * SMALL.segment_bytes + 2 * KIB)
    journal = opened(disk)
    fill(journal, disk, size=10)
    for n in range(6):
        assert journal.error is None
        if not journal.start_checkpoint(bytes(n)):
            break
        drain(journal, disk)
        journal.release(LEDGER, [(1, 1 << 40)])
    disk.power_cut()
    assert opened(disk).lsn == journal.lsn


def test_a_long_batch_that_the_disk_has_no_room_for_is_told_and_leaves_no_gap() -> None:
    disk = SimDisk(1, capacity=6 * SMALL.segment_bytes)
    journal = opened(disk)
    lsn = journal.append([Run.of(LEDGER, 1, [bytes(8 * SMALL.segment_bytes)])])
    assert lsn == 1
    assert journal.append([Run.of(LEDGER, 2, [b"next"])]) == 2
    drain(journal, disk)
    assert (journal.lsn, journal.refused) == (2, [1])
    assert frames_of(journal, disk, LEDGER) == {2: b"next"}
    disk.power_cut()
    assert frames_of(opened(disk), disk, LEDGER) == {2: b"next"}


def test_memory_for_what_waits_is_bounded() -> None:
    journal = opened(SimDisk(1), replace(SMALL, pending_bytes_max=5000))
    taken = 0
    while journal.append([Run.of(LEDGER, taken + 1, [bytes(400)])]) is not None:
        taken += 1
    assert taken == 11


def test_a_failed_journal_takes_and_writes_nothing() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    journal.append([Run.of(LEDGER, 1, [b"x"])])
    write = journal.poll_write()
    assert write is not None
    disk.fail = lambda call, _name: errno.EIO if call == "fdatasync" else 0
    with pytest.raises(OSError, match="Input/output error") as failure:
        write.perform(disk)
    journal.handle_failed(failure.value)
    assert journal.poll_write() is None
    with pytest.raises(JournalError, match=r"has failed .*Input/output error.*: expected a restart"):
        journal.append([Run.of(LEDGER, 2, [b"x"])])


def test_batches_take_turns_with_other_work() -> None:
    disk = SimDisk(1)
    journal = opened(disk, replace(SMALL, segment_bytes=4 << 20, store_bytes_max=1 << 30, batch_bytes=1))
    kinds = []
    for n in range(1, 3):
        journal.append([Run.of(LEDGER, n, [bytes(3 << 20)])])
    for n in range(3, 12):
        journal.append([Run.of(LEDGER, n, [b"x"])])
    while (write := journal.poll_write()) is not None:
        kinds.append(type(write))
        write.perform(disk)
        journal.handle_synced(write)
    first = kinds.index(SegmentWrite)
    assert kinds[first : first + 6 : 2] == [SegmentWrite] * 3
    assert kinds[first + 1 : first + 6 : 2] == [BatchWrite] * 3


def test_the_cell_is_written_into_the_identity() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    journal.set_cell(77)
    drain(journal, disk)
    disk.power_cut()
    assert opened(disk).identity == journal.identity


def test_an_identity_that_a_full_disk_refused_is_written_when_there_is_room() -> None:
    disk = SimDisk(1)
    journal = opened(disk)
    disk.capacity = sum(len(disk.content(name)) for name in disk.names())
    journal.set_cell(77)
    drain(journal, disk)
    disk.capacity = 1 << 40
    disk.power_cut()
    assert opened(disk).identity.cell_id == 0
    journal = opened(disk)
    disk.capacity = sum(len(disk.content(name)) for name in disk.names())
    journal.set_cell(77)
    drain(journal, disk)
    disk.capacity = 1 << 40
    journal.retry()
    drain(journal, disk)
    disk.power_cut()
    assert opened(disk).identity.cell_id == 77


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("segment_bytes", 1000),
        ("segment_bytes", 512),
        ("store_bytes_max", 1 << 20),
        ("batch_bytes", 0),
        ("compact_live", 1.0),
    ],
)
def test_settings_are_checked(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{setting}={value}: expected"):
        StoreConfig(**{setting: value})  # type: ignore[arg-type]


def test_wrong_runs_raise_at_the_call() -> None:
    with pytest.raises(ValueError, match=r"sequences 0 \+ 1: expected 1 to"):
        Run.of(LEDGER, 0, [b""])
    with pytest.raises(ValueError, match="keeper_id of 3 bytes: expected 16"):
        Run.promise(LEDGER, 1, b"abc")
    good = Run.of(LEDGER, 1, [b"abc"])
    with pytest.raises(ValueError, match="lengths of 3 bytes: expected 2, as the data have"):
        Run.cut(LEDGER, 1, b"ab", good.lengths)
    assert Run.cut(LEDGER, 1, memoryview(b"abc"), good.lengths).encode()[0] == good.encode()[0]
