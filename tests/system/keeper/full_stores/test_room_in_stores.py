"""Full stores, as processes: senders are told in time, and go on by themselves as soon as there is room."""

import asyncio
import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keepers import STORE_BYTES, Keepers, keeping, uri_of

from fjm2.jms import ConnectionFactory, JMSContext, ResourceAllocationError, SessionMode, Topic

pytestmark = pytest.mark.calm

TOPIC, NAME = Topic("room"), "name"
BODY = bytes(60_000)
TIMEOUT_S = 10.0
"""Time for which sends wait: as long as it takes to restart a keeper, or to consume all that a store has, with a lot to
spare."""
SOON_S = 3.0
"""Longest time in which sends go on once there is room. A disk is asked for room once a second."""
DISK_BYTES = STORE_BYTES + (2 << 20)
"""Size of a disk that is full before a large store is."""
LARGE_STORE_BYTES = 4 * STORE_BYTES


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with a small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "fjm2-test", folder)
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no tmpfs can be mounted")
    try:
        yield folder
    finally:
        subprocess.run(("umount", "--lazy", folder), check=True)


def resize(disk: Path, times: int) -> None:
    """Make a disk so many times as large as it was at first."""
    subprocess.run(("mount", "-o", f"remount,size={times * DISK_BYTES}", disk), check=True)


@pytest.fixture(params=["a store of few bytes", "a small disk"])
def small_cell(request: pytest.FixtureRequest, founded_one: Path, tmp_path: Path, port: int) -> Iterator[Keepers]:
    """Yield a cell of one that is running, and whose store is soon full: by its limit, or by that of its disk."""
    is_disk = request.param == "a small disk"
    folder = request.getfixturevalue("disk") if is_disk else tmp_path / "cell"
    shutil.copytree(founded_one, folder, dirs_exist_ok=True)
    with keeping(folder, port) as keepers:
        keepers.start("one", "--store-bytes", LARGE_STORE_BYTES if is_disk else STORE_BYTES)
        keepers.until(lambda: keepers.serving)
        yield keepers


def factory(port: int, **options: Any) -> ConnectionFactory:
    return ConnectionFactory(uri_of(port), confirm_timeout_s=TIMEOUT_S, **options)


@contextlib.asynccontextmanager
async def subscribed(port: int) -> AsyncIterator[Any]:
    """Yield a context, and its durable consumer."""
    async with factory(port, client_id="desk").create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
        yield context, await context.create_durable_consumer(TOPIC, NAME)


async def fill(context: JMSContext) -> int:
    """Send until the store is full. Return the number of messages that are stored."""
    for number in range(1000):
        began = time.monotonic()
        (refusal,) = await asyncio.gather(context.send(TOPIC, BODY), return_exceptions=True)
        if refusal is not None:
            assert isinstance(refusal, ResourceAllocationError)
            assert refusal.error_code == "store_full"
            assert time.monotonic() - began < TIMEOUT_S + SOON_S
            return number
    raise AssertionError("the store does not fill up")


async def took(call: Awaitable[None]) -> float:
    """Wait for a call, and return the time that this took."""
    began = time.monotonic()
    await asyncio.wait_for(call, TIMEOUT_S + SOON_S)
    return time.monotonic() - began


async def wait_for_room(port: int) -> None:
    """Have sends wait while the store is full, and consume. They end well, and so do later ones."""
    async with subscribed(port):
        pass
    async with factory(port).create_context() as context:
        stored = await fill(context)
        waiting = [asyncio.create_task(context.send(TOPIC, BODY)) for _ in range(3)]
        await asyncio.sleep(1.0)
        assert not any(send.done() for send in waiting)
        async with subscribed(port) as (reader, consumer):
            for _ in range(stored):
                assert await consumer.receive(timeout=TIMEOUT_S)
            await reader.acknowledge()
            for send in waiting:
                assert await took(send) < SOON_S
            assert await took(context.send(TOPIC, BODY)) < SOON_S


def test_sends_go_on_as_soon_as_a_consumer_has_made_room(small_cell: Keepers) -> None:
    asyncio.run(wait_for_room(small_cell.port))


async def acknowledge_all(port: int) -> None:
    """Acknowledge with one call what is stored, and messages for which there was no room."""
    async with subscribed(port) as (reader, consumer), factory(port).create_context() as context:
        stored = await fill(context)
        waiting = [asyncio.create_task(context.send(TOPIC, BODY)) for _ in range(3)]
        for _ in range(stored + 1 + len(waiting)):  # the one that was given up was heard, too
            assert await consumer.receive(timeout=TIMEOUT_S)
        assert await took(reader.acknowledge()) < SOON_S
        for send in waiting:
            assert await took(send) < SOON_S


def test_messages_that_found_no_room_are_acknowledged_with_those_that_did(small_cell: Keepers) -> None:
    """The consumer heard them from their sender. Its acknowledgement is what makes room."""
    asyncio.run(asyncio.wait_for(acknowledge_all(small_cell.port), 60.0))


async def give_up(port: int) -> None:
    """Acknowledge messages that were given up, and that nothing follows."""
    async with subscribed(port) as (reader, consumer), factory(port).create_context() as context:
        for _ in range(await fill(context) + 1):
            assert await consumer.receive(timeout=TIMEOUT_S)
        assert await took(reader.acknowledge()) < SOON_S


def test_messages_that_were_given_up_are_acknowledged_at_once(small_cell: Keepers) -> None:
    asyncio.run(asyncio.wait_for(give_up(small_cell.port), 60.0))


async def restart(keepers: Keepers) -> None:
    """Kill a keeper that has no room for messages, and acknowledge them."""
    port = keepers.port
    async with subscribed(port) as (reader, consumer), factory(port).create_context() as context:
        stored = await fill(context)
        waiting = [asyncio.create_task(context.send(TOPIC, BODY)) for _ in range(3)]
        for _ in range(stored + 1 + len(waiting)):
            assert await consumer.receive(timeout=TIMEOUT_S)
        (full,) = keepers.running
        await asyncio.to_thread(full.end, signal.SIGKILL)
        keepers.start("one", "--store-bytes", STORE_BYTES)
        assert await took(reader.acknowledge()) < SOON_S + TIMEOUT_S
        for send in waiting:
            assert await took(send) < SOON_S


def test_a_keeper_that_is_killed_while_it_is_full_gets_again_what_it_had_no_room_for(cell_of_one: Keepers) -> None:
    """It hears the streams of senders from as far back as these can repair them."""
    cell_of_one.start("one", "--store-bytes", STORE_BYTES)
    cell_of_one.until(lambda: cell_of_one.serving)
    asyncio.run(asyncio.wait_for(restart(cell_of_one), 60.0))


async def wait_for_a_larger_disk(port: int, disk: Path) -> None:
    """Fill a disk, and give it more room while sends wait."""
    async with subscribed(port):
        pass
    async with factory(port).create_context() as context:
        await fill(context)
        # Two stores are full then. These messages fill the third one, too.
        waiting = [asyncio.create_task(context.send(TOPIC, BODY)) for _ in range(100)]
        await asyncio.sleep(3.0)
        await asyncio.to_thread(resize, disk, 8)
        for send in waiting:
            assert await took(send) < SOON_S


def test_followers_find_out_that_others_have_made_room_on_the_disk(founded_three: Path, disk: Path, port: int) -> None:
    """They hear heartbeats all the time, so that nothing else is due. W disks have to store a message."""
    resize(disk, 3)
    shutil.copytree(founded_three, disk, dirs_exist_ok=True)
    with keeping(disk, port) as keepers:
        for name in "abc":
            keepers.start(name, "--store-bytes", LARGE_STORE_BYTES)
        keepers.until(lambda: keepers.serving)
        asyncio.run(wait_for_a_larger_disk(port, disk))
