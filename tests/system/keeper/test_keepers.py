"""Keepers as real processes on the loopback interface: founding, storing, takeover and return."""

import asyncio
import json
import signal
from pathlib import Path

import pytest
from keepers import Keepers, Writer, found_three, keeping, run_command, uri_of, writing

pytestmark = pytest.mark.calm

MESSAGES = 500


async def send_all(writer: Writer, count: int) -> float:
    """Send messages, and return the time until all are stored."""
    futures = [writer.send(b"%d" % number) for number in range(count)]
    return await writer.stored(futures[-1])


def exported(directory: Path) -> list[str]:
    found = run_command("export", directory)
    assert found.returncode == 0, found.stderr
    return [json.loads(line)["sequence"] for line in found.stdout.splitlines()]


def test_a_cell_of_one_stores_what_a_writer_sends(tmp_path: Path, port: int) -> None:
    async def write() -> None:
        async with writing(port) as writer:
            await send_all(writer, MESSAGES)

    with keeping(tmp_path, port) as keepers:
        one = keepers.start("one", "--replicas", 1)
        keepers.until(lambda: one.state == "serving")
        asyncio.run(write())
        assert one.end(signal.SIGINT) == 130
        assert not one.said
    assert exported(tmp_path / "one") == list(range(1, MESSAGES + 1))


def test_three_keepers_found_a_cell_and_all_of_them_store(tmp_path: Path, port: int) -> None:
    async def write() -> None:
        async with writing(port) as writer:
            await send_all(writer, MESSAGES)
            await writer.until(lambda: list(writer.answers.values()) == [MESSAGES] * 3)

    with keeping(tmp_path, port) as keepers:
        three = found_three(keepers)
        assert sorted(each.state for each in three) == ["follower", "follower", "serving"]
        asyncio.run(write())
        status = run_command("status", "--json", FJM2_URI=uri_of(port))
        told = json.loads(status.stdout)
        assert status.returncode == 0
        assert [each["state"] for each in told["keepers"]] == ["serving", "follower", "follower"]
        assert [each["messages"] for each in told["keepers"]] == [MESSAGES] * 3
        for each in three:
            assert each.end(signal.SIGTERM) == 130
    for name in "abc":
        assert exported(tmp_path / name) == list(range(1, MESSAGES + 1))
