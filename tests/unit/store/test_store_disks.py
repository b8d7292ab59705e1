"""One suite for every disk: the real one in a directory, and the simulated one."""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from lives import SMALL, checkpoint, drain, frames_of

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.store.config import Need
from fjm2.store.disk import Disk, replace_file
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.opening import open_journal
from fjm2.store.runs import Run
from fjm2.store.sim_disk import SimDisk

LEDGER = Ledger(1, 2, 3)
LARGER = replace(SMALL, store_bytes_max=100 * SMALL.segment_bytes)
Again = Callable[[], Disk]


@pytest.fixture(params=["real", "simulated"])
def again(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Again]:
    """Yield a function that gives the disk: each call is the next life of the program that uses it."""
    if request.param == "simulated":
        simulated = SimDisk(1)

        def next_simulated() -> Disk:
            simulated.kill()
            return simulated

        yield next_simulated
        return
    lives: list[OsDisk] = []

    def next_real() -> Disk:
        for disk in lives:
            disk.shut()
        lives.append(OsDisk(tmp_path))
        return lives[-1]

    yield next_real
    for disk in lives:
        disk.shut()


def test_files_are_created_written_and_read(again: Again) -> None:
    disk = again()
    file = disk.open("a", 1000)
    assert (disk.size(file), disk.pread(file, 2000, 0)) == (1000, bytes(1000))
    assert disk.pwritev(file, [b"ab", bytearray(b"cd"), memoryview(b"ef"), b""], 998) == 6
    disk.fdatasync(file)
    assert disk.size(file) == 1004
    assert disk.pread(file, 100, 990) == bytes(8) + b"abcdef"
    assert disk.pread(file, 100, 1004) == b""
    disk.close(file)
    disk = again()
    assert disk.names() == ["a"]
    file = disk.open("a", 5)
    assert disk.size(file) == 1004


def test_many_parts_are_written_by_one_call(again: Again) -> None:
    disk = again()
    parts = [b"%04d" % n for n in range(3000)]
    file = disk.open("a")
    assert disk.pwritev(file, parts, 7) == 12_000
    assert disk.pread(file, 20_000, 0) == bytes(7) + b"".join(parts)


def test_files_are_renamed_and_removed(again: Again) -> None:
    disk = again()
    for name in "abc":
        disk.close(disk.open(name, ord(name)))
    disk.rename("a", "b")
    disk.unlink("c")
    disk.sync_directory()
    disk = again()
    assert disk.names() == ["b"]
    assert disk.size(disk.open("b")) == ord("a")
    with pytest.raises(FileNotFoundError):
        disk.unlink("c")


def test_a_closed_file_is_refused_and_its_number_is_not_given_again(again: Again) -> None:
    disk = again()
    first = disk.open("a", 10)
    disk.close(first)
    assert disk.open("b", 10) != first
    for call in (disk.size, disk.fdatasync, disk.close, lambda file: disk.pread(file, 1, 0)):
        with pytest.raises(OSError) as failure:  # noqa: PT011 - the number tells
            call(first)
        assert failure.value.errno == errno.EBADF


def test_small_files_are_replaced(again: Again) -> None:
    disk = again()
    for content in (b"one", b"three"):
        replace_file(disk, "a", content)
    disk = again()
    assert disk.names() == ["a"]
    assert disk.pread(disk.open("a"), 100, 0) == b"three"


def test_a_journal_lives_on(again: Again) -> None:
    random = Random(1)
    frames: dict[int, bytes] = {}
    for _ in range(4):
        disk = again()
        journal = open_journal(disk, LARGER, random)
        assert frames_of(journal, disk, LEDGER) == frames
        for _ in range(40):
            first = max(frames, default=0) + 1
            run = [random.randbytes(random.randint(0, 500)) for _ in range(3)]
            assert journal.append([Run.of(LEDGER, first, run)], Need.URGENT)
            frames.update(enumerate(run, first))
            drain(journal, disk)
        for sequence in [sequence for sequence in frames if sequence % 10]:
            journal.release(LEDGER, [(sequence, sequence + 1)])
            del frames[sequence]
        checkpoint(journal, disk)


def test_a_locked_directory_says_who_holds_it(tmp_path: Path) -> None:
    with OsDisk(tmp_path):
        for read_only in (False, True):
            with pytest.raises(
                ConfigError, match=rf"lock: held by pid {os.getpid()} on .*: expected a store that nobody"
            ):
                OsDisk(tmp_path, read_only=read_only)
    with OsDisk(tmp_path) as disk:
        assert disk.names() == []
        disk.shut()


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "segment-0").touch(mode=0o600)
    tmp_path.chmod(0o770)
    with pytest.raises(ConfigError, match="mode 770: expected that only its owner may write"):
        OsDisk(tmp_path)
    tmp_path.chmod(0o700)
    (tmp_path / "segment-0").chmod(0o602)
    with pytest.raises(ConfigError, match="segment-0: mode 602"):
        OsDisk(tmp_path)
    (tmp_path / "segment-0").chmod(0o600)
    OsDisk(tmp_path).shut()


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "segment-0").symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match=r"segment-0: (not a regular file|mode 777)"):
        OsDisk(tmp_path)
    with pytest.raises(ConfigError, match="expected a directory for a store"):
        OsDisk(tmp_path / "segment-0")


def test_read_only_makes_and_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file or directory"):
        OsDisk(tmp_path / "missing", read_only=True)
    with OsDisk(tmp_path, read_only=True) as disk:
        with pytest.raises(FileNotFoundError):
            disk.open("a")
        assert os.listdir(tmp_path) == []
