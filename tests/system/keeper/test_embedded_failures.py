"""Directories that no keeper inside a program can use: each raises ConfigError, and is left as it was."""

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from keepers import STORE_BYTES, Keepers, uri_of
from test_keeper_failures import damage, founded, make_newer

from fjm2.errors import ConfigError
from fjm2.jms import ConnectionFactory, blocking

pytestmark = pytest.mark.calm

Refused = Callable[[Path], str]


def connect(directory: Path, port: int) -> None:
    async def use() -> None:
        await ConnectionFactory(uri_of(port), keep=directory).create_connection()

    asyncio.run(use())


def connect_blocking(directory: Path, port: int) -> None:
    blocking.ConnectionFactory(uri_of(port), keep=directory).create_connection()


@pytest.fixture(params=[connect, connect_blocking], ids=["asyncio", "blocking"])
def refused(request: pytest.FixtureRequest, port: int) -> Refused:
    """Return a function that opens a connection, and returns the text of its error."""

    def text_of(directory: Path) -> str:
        before = contents(directory)
        with pytest.raises(ConfigError) as caught:
            request.param(directory, port)
        assert contents(directory) == before
        text = str(caught.value)
        assert text.startswith(f"keep={directory}")
        return text

    return text_of


def contents(directory: Path) -> dict[str, bytes]:
    """Return what the files of a directory hold, but for the lock, which names its last holder."""
    found = [path for path in directory.glob("*") if path.name != "lock"]
    return {path.name: path.read_bytes() for path in found}


def test_damage_is_told_with_its_place_and_the_command_that_helps(cell_of_one: Keepers, refused: Refused) -> None:
    segment = damage(cell_of_one)
    text = refused(segment.parent)
    assert segment.name in text
    assert f"fjm2 keep check {segment.parent} --accept-loss" in text


def test_a_store_of_a_newer_format_is_refused(tmp_path: Path, refused: Refused) -> None:
    assert "use a newer FJM2" in refused(make_newer(founded(tmp_path / "one")))


def test_a_truncated_store_is_refused(cell_of_one: Keepers, refused: Refused) -> None:
    segment = damage(cell_of_one)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 100)
    assert segment.name in refused(segment.parent)


def test_a_directory_that_others_may_change_is_refused(tmp_path: Path, refused: Refused) -> None:
    directory = founded(tmp_path / "one")
    directory.chmod(0o777)
    assert "chmod go-w" in refused(directory)


def test_a_file_is_no_directory(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "file"
    path.write_text("not a store")
    assert "expected a directory" in refused(path)
    assert path.read_text() == "not a store"


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Yield a store on a file system that cannot be written."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={4 * STORE_BYTES}", "fjm2-test", disk)
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no tmpfs can be mounted")
    try:
        founded(disk / "one")
        subprocess.run(("mount", "-o", "remount,ro", disk), check=True)
        yield disk
    finally:
        subprocess.run(("umount", "--lazy", disk), check=True)


def test_a_disk_that_cannot_be_written_is_refused(read_only: Path, refused: Refused) -> None:
    assert "Read-only file system" in refused(read_only / "one")
    assert "Read-only file system" in refused(read_only / "new")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"keep": ""}, "keep='': expected a directory"),
        ({"keep": b"store"}, "keep=b'store': expected a directory, as in keep='store'"),
        ({"keep": "store", "replicas": 2}, "replicas=2: expected 1, 3 or 5"),
        ({"keep": "store", "replicas": True}, "replicas=True: expected 1, 3 or 5"),
        ({"replicas": 3}, "replicas=3: expected keep=DIRECTORY with it"),
    ],
)
@pytest.mark.parametrize("factory", [ConnectionFactory, blocking.ConnectionFactory])
def test_wrong_settings_are_refused_at_once(factory: type, options: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        factory("fjm2://", **options)
    assert text in str(caught.value)
