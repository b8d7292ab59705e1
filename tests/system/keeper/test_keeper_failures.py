"""Keepers that cannot go on: each reason has an exit code and one line that says what to do."""

import asyncio
import json
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from keepers import STORE_BYTES, KeeperProcess, Keepers, keeping, run_command, uri_of, writing

from fjm2.jms import ConnectionFactory, SessionMode, Topic
from fjm2.keeper.store_directory import config_of, open_store
from fjm2.store.format.checksums import PREFERRED, checksum_of

pytestmark = pytest.mark.calm


def founded(directory: Path) -> Path:
    """Found a store, as a keeper does that has not heard anybody yet."""
    open_store(directory, config_of(STORE_BYTES)).disk.shut()
    return directory


def ended(directory: Path, port: int, *options: object) -> tuple[int, str]:
    """Run a keeper that ends at once. Return its exit status, and its only line."""
    found = run_command(directory, "--uri", uri_of(port), "--store-bytes", STORE_BYTES, *options)
    assert not found.stdout
    assert found.stderr.startswith("Error: ")
    assert found.stderr.count("\n") == 1
    return found.returncode, found.stderr


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def damage(keepers: Keepers) -> Path:
    """Have three messages stored, and damage the second one. Return the segment."""

    async def write() -> None:
        async with writing(keepers.port) as writer:
            for number in range(3):
                await writer.stored(writer.send(b"%d" % number * 1000))

    one = keepers.start("one", "--replicas", 1)
    keepers.until(lambda: one.state == "serving")
    asyncio.run(write())
    one.end(signal.SIGKILL)
    segment = next(path for path in sorted(one.directory.glob("segment-*")) if b"1111" in path.read_bytes())
    flip(segment, segment.read_bytes().index(b"1111"))
    return segment


def make_newer(directory: Path) -> Path:
    """Mark a store as one that a newer version wrote."""
    identity = bytearray((directory / "identity").read_bytes())
    identity[8:12] = (99).to_bytes(4, "big")
    identity[4:8] = checksum_of(PREFERRED, [bytes(identity[8:])]).to_bytes(4, "big")
    (directory / "identity").write_bytes(identity)
    return directory


def test_a_damaged_store_is_refused(cell_of_one: Keepers) -> None:
    segment = damage(cell_of_one)
    code, said = ended(segment.parent, cell_of_one.port)
    assert code == 4
    assert segment.name in said
    assert "fjm2 keep check DIRECTORY --accept-loss" in said
    checked = run_command("check", segment.parent)
    assert checked.returncode == 1
    assert segment.name in checked.stdout
    assert run_command("export", segment.parent).returncode == 4


def test_a_cell_of_one_goes_on_when_the_loss_is_accepted(cell_of_one: Keepers) -> None:
    segment = damage(cell_of_one)
    accepted = run_command("check", segment.parent, "--accept-loss")
    assert accepted.returncode == 1
    assert "the loss is accepted" in accepted.stderr
    assert run_command("check", segment.parent).returncode == 0
    back = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: back.state == "serving")
    assert back.end(signal.SIGINT) == 130
    left = run_command("export", segment.parent)
    assert left.returncode == 0
    assert [json.loads(line)["sequence"] for line in left.stdout.splitlines()] == [1, 3]


def test_a_durable_consumer_gets_all_that_is_left_when_the_loss_is_accepted(cell_of_one: Keepers) -> None:
    """Message 2 of 8 is lost: those behind it come all the same, and again after another start."""
    texts = [f"{number}: " + 500 * "x" for number in range(8)]

    async def use(*sent: str) -> list[str]:
        factory = ConnectionFactory(uri_of(cell_of_one.port), client_id="desk")
        async with factory.create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
            consumer = await context.create_durable_consumer(Topic("orders"), "all")
            if sent:
                await consumer.close()
                for text in sent:
                    await context.send(Topic("orders"), text)
                return []
            found: list[str] = []
            while len(found) < len(texts) and (text := await consumer.receive_body(str, timeout=10)) is not None:
                found.append(text)
                if text == texts[-1]:
                    break
            return found

    def start() -> KeeperProcess:
        keeper = cell_of_one.start("one", "--replicas", 1)
        cell_of_one.until(lambda: keeper.state == "serving")
        return keeper

    one = start()
    asyncio.run(use(*texts))
    assert one.end(signal.SIGINT) == 130
    segment = next(path for path in sorted(one.directory.glob("segment-*")) if b"2: x" in path.read_bytes())
    flip(segment, segment.read_bytes().index(b"2: x"))
    accepted = run_command("check", one.directory, "--accept-loss")
    assert accepted.returncode == 1
    assert "1 message cannot be found" in accepted.stderr
    for warnings in (1, 0):
        one = start()
        assert asyncio.run(use()) == [*texts[:2], *texts[3:]]
        assert one.end(signal.SIGINT) == 130
        assert ["loss_accepted" in line for line in one.said].count(True) == warnings


def test_bad_heads_of_segments_cost_nothing_and_are_repaired(cell_of_one: Keepers) -> None:
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    assert one.end(signal.SIGINT) == 130
    segments = sorted(one.directory.glob("segment-*"))
    for segment in segments:
        with segment.open("r+b") as file:
            file.seek(40)
            file.write(bytes([0xA5]) * 240)
    checked = run_command("check", one.directory)
    assert checked.returncode == 0
    assert checked.stdout.count("the head of the segment is bad") == len(segments)
    assert "nothing is lost" in checked.stderr
    back = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: back.state == "serving")
    assert back.end(signal.SIGINT) == 130
    repaired = [line for line in back.said if "store_repaired" in line]
    assert [segment.name in line for segment, line in zip(segments, repaired, strict=True)] == [True] * len(segments)
    assert run_command("check", one.directory).stderr.startswith("nothing is damaged")


def test_a_directory_that_others_may_change_is_refused(tmp_path: Path, port: int) -> None:
    directory = founded(tmp_path / "one")
    directory.chmod(0o777)
    code, said = ended(directory, port)
    assert code == 5
    assert "chmod go-w" in said


def test_a_store_of_a_newer_format_is_refused(tmp_path: Path, port: int) -> None:
    directory = make_newer(founded(tmp_path / "one"))
    code, said = ended(directory, port)
    assert code == 6
    assert "use a newer FJM2" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of a few KiB that is full."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(("mount", "-t", "tmpfs", "-o", "size=64k", "fjm2-test", disk), check=False, stderr=-3)
    if mounted.returncode:
        pytest.skip("no tmpfs can be mounted")
    (disk / "filler").write_bytes(bytes(60 << 10))
    try:
        with (disk / "rest").open("wb") as rest:
            while True:
                rest.write(bytes(4096))
                rest.flush()
    except OSError:
        pass
    try:
        yield disk
    finally:
        subprocess.run(("umount", "--lazy", disk), check=True)


def resized(disk: Path, size: str) -> None:
    subprocess.run(("mount", "-o", f"remount,size={size}", disk), check=True)


@pytest.fixture
def tiny_disk(small_disk: Path) -> Path:
    """Return a file system with room for some segments of a small store, and not for all that it needs."""
    resized(small_disk, "3m")
    return small_disk


def test_a_full_disk_is_told(small_disk: Path, port: int) -> None:
    code, said = ended(small_disk / "one", port)
    assert code == 7
    assert "No space left on device" in said


def test_a_disk_that_is_too_small_for_a_new_store_is_told(tiny_disk: Path, port: int) -> None:
    code, said = ended(tiny_disk / "one", port)
    assert code == 7
    assert "no room for a new store: expected 4194304 free bytes" in said
    assert {path.name for path in (tiny_disk / "one").iterdir()} <= {"identity", "lock"}
    resized(tiny_disk, "8m")
    with keeping(tiny_disk, port) as keepers:
        one = keepers.start("one", "--replicas", 1)
        keepers.until(lambda: one.state == "serving")


def test_a_keeper_whose_disk_fails_ends_with_an_error(cell_of_one: Keepers) -> None:
    async def write(keeper: KeeperProcess) -> None:
        async with writing(cell_of_one.port) as writer:
            await writer.stored(writer.send(b"before"))
            # Every further write fails, and not for lack of room.
            resource.prlimit(keeper.popen.pid, resource.RLIMIT_FSIZE, (0, 0))
            writer.send(b"after")
            await asyncio.to_thread(keeper.wait)

    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    asyncio.run(write(one))
    assert one.popen.returncode == 8
    assert len(one.said) == 1
    assert one.said[0].startswith("Error: the store has failed (File too large): expected a disk that writes")
    back = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: back.state == "serving")
