"""Keepers as real processes on the loopback interface: founding, storing, takeover and return."""

import asyncio
import json
import signal
import socket
from pathlib import Path

import pytest
from keepers import Keepers, Writer, keeping, run_command, start_three, uri_of, writing

pytestmark = pytest.mark.calm

MESSAGES = 500


async def send_all(writer: Writer, count: int) -> float:
    """Send messages, and return the time until all are stored."""
    futures = [writer.send(b"%d" % number) for number in range(count)]
    return await writer.stored(futures[-1])


def exported(directory: Path) -> list[int]:
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


def test_three_keepers_found_a_cell(tmp_path: Path, port: int) -> None:
    with keeping(tmp_path, port) as keepers:
        three = start_three(keepers)
        assert sorted(each.state for each in three) == ["follower", "follower", "serving"]
        assert all(each.end(signal.SIGTERM) == 130 for each in three)


def test_all_of_three_keepers_store(cell_of_three: Keepers) -> None:
    async def write() -> None:
        async with writing(cell_of_three.port) as writer:
            await send_all(writer, MESSAGES)
            await writer.until(lambda: list(writer.answers.values()) == [MESSAGES] * 3)

    three = start_three(cell_of_three)
    asyncio.run(write())
    status = run_command("status", "--json", "--duration", "500ms", FJM2_URI=uri_of(cell_of_three.port))
    told = json.loads(status.stdout)
    assert status.returncode == 0
    assert [each["state"] for each in told["keepers"]] == ["serving", "follower", "follower"]
    assert [(each["messages"], each["lag"]) for each in told["keepers"]] == [(MESSAGES, 0)] * 3
    assert three[0].end(signal.SIGINT) == 130
    assert exported(three[0].directory) == list(range(1, MESSAGES + 1))


def test_two_keepers_go_on_without_the_third_which_catches_up(cell_of_three: Keepers) -> None:
    async def write(keepers: Keepers) -> None:
        async with writing(keepers.port) as writer:
            await send_all(writer, MESSAGES)
            follower = next(each for each in keepers.running if each.state == "follower")
            follower.end(signal.SIGKILL)
            took_s = await send_all(writer, MESSAGES)
            assert took_s < 1.0  # two of three are there, and nobody waits for the third
            writer.answers.clear()
            back = keepers.start(follower.directory.name)
            await writer.until(lambda: list(writer.answers.values()) == [2 * MESSAGES] * 3)
            assert back.state == "follower"

    start_three(cell_of_three)
    asyncio.run(write(cell_of_three))


def test_another_keeper_takes_over_when_the_manager_is_killed(cell_of_three: Keepers) -> None:
    async def write(keepers: Keepers) -> None:
        async with writing(keepers.port) as writer:
            await send_all(writer, MESSAGES)
            manager = keepers.serving[0]
            manager.end(signal.SIGKILL)
            took_s = await asyncio.to_thread(keepers.until, lambda: keepers.serving)
            assert keepers.serving[0] is not manager
            assert took_s < 3.0
            await send_all(writer, MESSAGES)

    start_three(cell_of_three)
    asyncio.run(write(cell_of_three))


@pytest.mark.nightly
def test_a_keeper_that_returns_fetches_from_others_what_it_missed(cell_of_three: Keepers) -> None:
    keepers, port = cell_of_three, cell_of_three.port

    async def write(topics: int) -> None:
        async with writing(port) as writer:
            for number in range(topics):
                writer.publish(b"%d" % number)
            await send_all(writer, MESSAGES)

    start_three(keepers)
    follower = next(each for each in keepers.running if each.state == "follower")
    follower.end(signal.SIGKILL)
    asyncio.run(write(topics=100))
    # The writer is gone, so that only the others have its messages.
    back = keepers.start(follower.directory.name)
    keepers.until(lambda: messages_of(port) == [100 + MESSAGES] * 3)
    assert back.end(signal.SIGINT) == 130
    assert exported(back.directory) == list(range(101, 101 + MESSAGES))


def messages_of(port: int) -> list[int]:
    """Return the number of messages that each keeper has on disk or counted."""
    found = run_command("status", "--json", "--duration", "300ms", FJM2_URI=uri_of(port))
    return [each["messages"] for each in json.loads(found.stdout)["keepers"]]


def test_a_second_process_on_a_directory_ends_or_stands_by(cell_of_one: Keepers) -> None:
    keepers, port = cell_of_one, cell_of_one.port
    one = keepers.start("one", "--replicas", 1)
    keepers.until(lambda: one.state == "serving")
    second = run_command(one.directory, "--uri", uri_of(port))
    assert second.returncode == 3
    assert f"held by pid {one.popen.pid} on {socket.gethostname()}" in second.stderr
    waiting = keepers.start("one", "--replicas", 1, "--stand-by")
    keepers.until(lambda: waiting.said)
    assert f"held by pid {one.popen.pid}" in waiting.said.pop()
    one.end(signal.SIGKILL)
    assert keepers.until(lambda: waiting.state) < 0.3
    keepers.until(lambda: waiting.state == "serving")
