"""Directories of outboxes and of keepers are not taken for each other."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fjm2.base.errors import ConfigError
from fjm2.commands import main
from fjm2.keeper.storage import JournalStorage
from fjm2.keeper.store_directory import config_of, open_store
from fjm2.outbox.drive.directory import open_outbox
from fjm2.outbox.drive.disk_outbox import DiskOutbox
from fjm2.store.drive.committer import Committer

BYTES = 8 << 20


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


async def outbox_in(directory: Path) -> None:
    """Leave an outbox with a message."""
    outbox = DiskOutbox(open_outbox(directory, BYTES), 1.0)
    await outbox.accept(0, b"frame")
    await outbox.close()


async def store_in(directory: Path) -> None:
    """Leave the store of a keeper that has promised."""
    store = open_store(directory, config_of(BYTES))
    committer = Committer(store.journal, store.disk, on_synced=lambda _: None, on_failed=lambda _: None)
    JournalStorage(store.journal, committer.append).store_promise(7, 1, bytes(16))
    await committer.close()
    store.disk.shut()


@pytest.mark.parametrize("lives", [1, 2])
def test_a_keeper_refuses_an_outbox(tmp_path: Path, lives: int) -> None:
    for _ in range(lives):
        asyncio.run(outbox_in(tmp_path))
    before = content(tmp_path)
    with pytest.raises(ConfigError) as told:
        open_store(tmp_path, config_of(BYTES))
    assert str(told.value) == (
        f"{tmp_path}: this directory is the outbox of a publisher: expected the store of a keeper, or an empty "
        "directory; nothing was changed. Name another directory"
    )
    assert content(tmp_path) == before
    open_outbox(tmp_path, BYTES).disk.shut()


def test_an_outbox_refuses_the_store_of_a_keeper(tmp_path: Path) -> None:
    asyncio.run(store_in(tmp_path))
    before = content(tmp_path)
    with pytest.raises(ConfigError) as told:
        open_outbox(tmp_path, BYTES)
    assert str(told.value) == (
        f"outbox={tmp_path}: this directory is the store of a keeper: expected the outbox of a publisher, or an empty "
        "directory; nothing was changed. Name another directory"
    )
    assert content(tmp_path) == before
    open_store(tmp_path, config_of(BYTES)).disk.shut()


@pytest.mark.parametrize("words", [["keep"], ["keep", "adopt"]])
def test_the_commands_of_keepers_refuse_an_outbox(tmp_path: Path, words: list[str]) -> None:
    asyncio.run(outbox_in(tmp_path))
    options: dict[str, Any] = {"env": {"FJM2_URI": "fjm2://239.192.57.40:34599?interface=127.0.0.1&ttl=0"}}
    done = CliRunner().invoke(main, [*words, str(tmp_path)], **options)
    assert done.exit_code == 1
    assert f"Error: {tmp_path}: this directory is the outbox of a publisher" in done.output


def test_an_empty_directory_is_for_either(tmp_path: Path) -> None:
    open_outbox(tmp_path, BYTES).disk.shut()
    open_store(tmp_path, config_of(BYTES)).disk.shut()
    open_outbox(tmp_path, BYTES).disk.shut()
