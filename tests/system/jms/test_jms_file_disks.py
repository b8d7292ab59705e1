"""Files that are received on disks with troubles: full, read-only, hung, or tidied up by somebody else."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from buses import uri
from file_programs import Child, child, place, sparse, wait_until_deleted

pytestmark = [
    pytest.mark.calm,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("fsfreeze") is None, reason="mounts need root, and util-linux"
    ),
]

SIZE = 40 << 20
"""At 80 Mbit/s the file takes four seconds."""
DISK_BYTES = 200 << 20


def command(*arguments: object) -> None:
    done = subprocess.run([str(one) for one in arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{arguments[0]}: {done.stderr}")


@contextlib.contextmanager
def mounted(tmp_path: Path, *arguments: object) -> Iterator[Path]:
    folder = place(tmp_path, "disk")
    command("mount", *arguments, folder)
    try:
        yield folder
    finally:
        subprocess.run(("umount", "--lazy", folder), check=True)


@contextlib.contextmanager
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path, "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "fjm2-test") as folder:
        yield folder


@contextlib.contextmanager
def receiving(port: int, folder: Path, role: str = "subscribe") -> Iterator[Child]:
    with child(role, uri(port, files_directory=folder), folder.parent / "kept") as made:
        made.wait_for("ready")
        yield made


@contextlib.contextmanager
def sending(port: int, tmp_path: Path, rate: str = "80mbit") -> Iterator[Child]:
    with child("publish", uri(port, rate=rate), sparse(tmp_path / "source", SIZE)) as made:
        made.wait_for("ready")
        yield made


def test_a_disk_that_hangs_stops_the_file_and_not_the_program(port: int, tmp_path: Path) -> None:
    image = sparse(tmp_path / "image", 128 << 20)
    command("mkfs.ext4", "-q", image)
    with (
        mounted(tmp_path, "-o", "loop", image) as folder,
        receiving(port, folder, "beat") as subscriber,
        sending(port, tmp_path) as publisher,
    ):
        subscriber.wait_for("done", 10 << 20)
        command("fsfreeze", "--freeze", folder)
        try:
            at = subscriber.last("beat")
            subscriber.wait_for("beat", at + 20)
            assert subscriber.last("done") < SIZE
        finally:
            command("fsfreeze", "--unfreeze", folder)
        assert subscriber.wait_for("received") == SIZE
        publisher.wait_for("confirmed")
        assert not any("error" in report for report in subscriber.reports)


def test_a_disk_that_gets_full_is_told_to_both(port: int, tmp_path: Path) -> None:
    with (
        small_disk(tmp_path) as folder,
        receiving(port, folder) as subscriber,
        sending(port, tmp_path) as publisher,
    ):
        subscriber.wait_for("done", 10 << 20)
        with contextlib.suppress(OSError), (folder / "hog").open("wb") as hog:
            while True:
                hog.write(bytes(1 << 20))
        assert "it could not be written: [Errno 28] No space left on device" in subscriber.wait_for("error")
        assert "did not confirm" in publisher.wait_for("failed")
        wait_until_deleted(folder, folder / "hog")


def test_files_are_counted_against_the_disk_before_they_are_written(port: int, tmp_path: Path) -> None:
    """Each of two files fits, and both do not."""
    with small_disk(tmp_path) as folder, receiving(port, folder) as subscriber:
        (folder / "hog").write_bytes(bytes(DISK_BYTES - (64 << 20) - SIZE * 3 // 2))
        with sending(port, tmp_path) as first:
            subscriber.wait_for("done", 1)
            with sending(port, tmp_path) as second:
                assert "which is too little for" in subscriber.wait_for("error")
                second.wait_for("failed")
            assert subscriber.wait_for("received") == SIZE
            first.wait_for("confirmed")


def test_a_disk_that_is_read_only_is_told_to_both(port: int, tmp_path: Path) -> None:
    with small_disk(tmp_path) as folder, receiving(port, folder) as subscriber:
        command("mount", "-o", "remount,ro", folder)
        with sending(port, tmp_path) as publisher:
            assert "Read-only file system" in subscriber.wait_for("error")
            assert "did not confirm" in publisher.wait_for("failed")


def test_a_folder_that_somebody_removes_costs_the_files_in_it_and_no_others(port: int, tmp_path: Path) -> None:
    folder = place(tmp_path, "received")
    with receiving(port, folder) as subscriber:
        with sending(port, tmp_path) as publisher:
            subscriber.wait_for("done", 10 << 20)
            shutil.rmtree(folder / f"fjm2-files-{os.geteuid()}")
            assert "somebody has deleted it" in subscriber.wait_for("error")
            assert (
                "did not confirm" in (told := publisher.wait_for("failed", other="error")) or "lost 1 message" in told
            )
        with sending(port, tmp_path, "1gbit") as publisher:
            assert subscriber.wait_for("received") == SIZE
            publisher.wait_for("confirmed")
