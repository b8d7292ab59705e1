"""The file system of the power cuts keeps what was synced, and forgets what was not."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("require_fuse")]

SEEDS = 20
"""Power cuts after which something that was not synced is gone at least once, and there at least once."""


@pytest.fixture
def mount(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    from cell_stage import forgetful

    with forgetful(tmp_path / "mount", request.node.name) as mount:
        yield mount


@pytest.fixture
def folder(mount: Path) -> Path:
    return mount / "a"


def cut(mount: Path) -> None:
    os.setxattr(mount, "user.cut", b"")


def write(path: Path, content: bytes, *, synced: bool = True, named: bool = True) -> None:
    """Write a file. It may be left unsynced, or its name."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(descriptor, content, 0)
        if synced:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    if named:
        sync_names(path.parent)


def sync_names(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def names_in(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name != "lock"]


def test_what_was_synced_survives_each_power_cut(mount: Path, folder: Path) -> None:
    for number in range(SEEDS):
        write(folder / f"{number}", b"%d" % number * 1000)
        cut(mount)
    assert [(folder / f"{number}").read_bytes() for number in range(SEEDS)] == [
        b"%d" % number * 1000 for number in range(SEEDS)
    ]


def test_what_was_not_synced_is_forgotten_at_times_and_at_times_in_part(mount: Path, folder: Path) -> None:
    found = set()
    for number in range(SEEDS):
        path = folder / f"{number}"
        write(path, b"old" * 1024)
        write(path, b"new" * 1024, synced=False)
        assert path.read_bytes() == b"new" * 1024
        cut(mount)
        content = path.read_bytes()
        found |= {b"old" in content, (b"new" in content) + 2}
    assert found == {False, True, 2, 3}


def test_a_name_that_was_not_synced_is_forgotten_at_times(mount: Path, folder: Path) -> None:
    for number in range(SEEDS):
        write(folder / f"{number}", b"content", named=False)
        cut(mount)
    assert 0 < len(names_in(folder)) < SEEDS


def test_a_rename_that_was_not_synced_is_undone_at_times(mount: Path, folder: Path) -> None:
    found = set()
    for _ in range(SEEDS):
        write(folder / "old", b"content")
        (folder / "old").rename(folder / "new")
        cut(mount)
        found |= set(names_in(folder))
        for name in names_in(folder):
            (folder / name).unlink()
        sync_names(folder)
    assert found == {"old", "new"}


def test_a_sync_that_does_nothing_is_found_out(mount: Path, folder: Path, eatmydata: str) -> None:
    """Syncs of a program under eatmydata do not reach the disk. This is how the power cuts are seen to fail."""
    program = (
        "import os, sys\n"
        "file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "os.pwrite(file, b'content', 0)\n"
        "os.fdatasync(file)\n"
        "os.fsync(os.open(os.path.dirname(sys.argv[1]), os.O_RDONLY))\n"
    )
    for number in range(SEEDS):
        subprocess.run([eatmydata, sys.executable, "-c", program, str(folder / f"{number}")], check=True)
        cut(mount)
    assert len(names_in(folder)) < SEEDS
    subprocess.run([sys.executable, "-c", program, str(folder / "synced")], check=True)
    cut(mount)
    assert "synced" in names_in(folder)


def test_a_file_that_was_open_when_the_power_went_is_useless(mount: Path, folder: Path) -> None:
    write(folder / "file", b"content")
    with (folder / "file").open("r+b", buffering=0) as file:
        cut(mount)
        with pytest.raises(OSError, match="Input/output error") as caught:
            file.write(b"more")
    assert caught.value.errno == errno.EIO


def test_a_full_disk_takes_no_more(mount: Path, folder: Path) -> None:
    os.setxattr(mount, "user.room", b"4096")
    write(folder / "file", bytes(4096))
    with pytest.raises(OSError, match="No space left") as caught:
        write(folder / "other", b"1")
    assert caught.value.errno == errno.ENOSPC
    write(folder / "file", b"changed in place")
    os.setxattr(mount, "user.room", b"8192")
    write(folder / "other", b"1")
    assert (folder / "other").read_bytes() == b"1"


def test_each_folder_is_a_disk_of_its_own(mount: Path) -> None:
    assert sorted(os.listdir(mount)) == ["a", "b", "c"]
    write(mount / "a" / "file", b"a")
    assert names_in(mount / "b") == []
    with pytest.raises(OSError, match="cross-device"):
        (mount / "a" / "file").rename(mount / "b" / "file")
