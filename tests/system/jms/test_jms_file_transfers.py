"""Files between processes: in bounded memory, and when one of the processes is killed."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from buses import uri
from file_programs import child, partial, place, sparse, wait_until_deleted

pytestmark = pytest.mark.calm

SILENT_S = 5.0
"""Silence after which a sender counts as gone."""
BUSY_S = 2.5
"""Delay that a check once a second, and a busy machine, may add."""
RSS_MAX = 250 << 20
"""Memory of a process that sends or receives files: Python with its modules (some 60 MiB), received data that are not
read yet (64 MiB), and the buffers of a lane."""
SMALL = {"window_bytes": "8MiB", "stream_bytes": "8MiB", "stream_bytes_max": "8MiB"}
"""Small buffers of lanes, so that a file stands out."""


def transfer(port: int, tmp_path: Path, size: int) -> None:
    """Send a file to two subscribers, and check memory and content."""
    source = sparse(tmp_path / "source", size)
    with source.open("r+b") as file:
        file.seek(size - 5)
        file.write(b"end\n.")
    with contextlib.ExitStack() as stack:
        folders = [place(tmp_path, name) for name in ("one", "two")]
        subscribers = [
            stack.enter_context(
                child("subscribe", uri(port, files_directory=folder, **SMALL), tmp_path / f"{folder.name}.bin")
            )
            for folder in folders
        ]
        for subscriber in subscribers:
            subscriber.wait_for("ready")
        publisher = stack.enter_context(child("publish", uri(port, **SMALL), source))
        publisher.wait_for("ready")
        for subscriber in subscribers:
            assert subscriber.wait_for("received") == size
            assert subscriber.last("done") == size
            assert subscriber.last("memory") < RSS_MAX
        publisher.wait_for("confirmed")
        assert publisher.last("memory") < RSS_MAX
        for folder in folders:
            found = tmp_path / f"{folder.name}.bin"
            assert found.stat().st_size == size
            with found.open("rb") as file:
                file.seek(size - 5)
                assert file.read() == b"end\n."
            found.unlink()


def test_a_file_larger_than_all_buffers_is_sent_in_bounded_memory(port: int, tmp_path: Path) -> None:
    transfer(port, tmp_path, 300 << 20)


@pytest.mark.nightly
def test_a_file_of_a_gibibyte_is_sent_in_bounded_memory(port: int, tmp_path: Path) -> None:
    transfer(port, tmp_path, 1 << 30)


def test_a_publisher_that_is_killed_in_the_middle_of_a_file_is_reported(port: int, tmp_path: Path) -> None:
    """At 80 Mbit/s the file takes four seconds."""
    folder = place(tmp_path, "received")
    source = sparse(tmp_path / "source", 40 << 20)
    with child("subscribe", uri(port, files_directory=folder), tmp_path / "kept") as subscriber:
        subscriber.wait_for("ready")
        with child("publish", uri(port, rate="80mbit"), source) as publisher:
            publisher.wait_for("ready")
            subscriber.wait_for("done", 10 << 20)
            assert len(partial(folder)) == 1
            publisher.kill()
            killed_at = time.monotonic()
            error = subscriber.wait_for("error")
            assert error.startswith("MessagesLostError: file 'source' of a program")
            assert "its sender is silent" in error
            assert SILENT_S - 1 < time.monotonic() - killed_at < SILENT_S + BUSY_S
            wait_until_deleted(folder)
            assert not (tmp_path / "kept").exists()


def test_a_subscriber_that_is_killed_in_the_middle_of_a_file_is_named_and_others_get_it(
    port: int, tmp_path: Path
) -> None:
    folders = [place(tmp_path, name) for name in ("bad", "good")]
    source = sparse(tmp_path / "source", 40 << 20)
    with contextlib.ExitStack() as stack:
        bad, good = (
            stack.enter_context(child("subscribe", uri(port, files_directory=folder), tmp_path / f"{folder.name}.bin"))
            for folder in folders
        )
        bad_id = bad.wait_for("ready")
        good.wait_for("ready")
        publisher = stack.enter_context(child("publish", uri(port, rate="80mbit", ack_timeout_s=1), source))
        publisher.wait_for("ready")
        bad.wait_for("done", 10 << 20)
        bad.kill()
        assert good.wait_for("received") == 40 << 20
        publisher.wait_for("nodes")
        assert publisher.last("nodes") == [bad_id]
        assert len(partial(folders[0])) == 1  # a killed process cannot clean up
        again = stack.enter_context(child("subscribe", uri(port, files_directory=folders[0]), tmp_path / "again.bin"))
        again.wait_for("ready")
        with child("publish", uri(port), sparse(tmp_path / "small", 1 << 20)) as second:
            second.wait_for("ready")
            again.wait_for("received")
        wait_until_deleted(folders[0])  # the next one did


def test_a_subscriber_that_is_forgotten_before_the_end_of_a_file_is_named(port: int, tmp_path: Path) -> None:
    """Announcements of a killed process expire after 15 s; at 7 Mbit/s the file takes 24."""
    folder = place(tmp_path, "received")
    source = sparse(tmp_path / "source", 20 << 20)
    with child("subscribe", uri(port, files_directory=folder), tmp_path / "kept") as subscriber:
        node_id = subscriber.wait_for("ready")
        # The buffers are small, so that what is in them is sent and confirmed within `confirm_timeout_s`.
        small = dict.fromkeys(SMALL, "1MiB")
        with child("publish", uri(port, rate="7mbit", ack_timeout_s=1, **small), source) as publisher:
            publisher.wait_for("ready")
            subscriber.wait_for("done", 1 << 20)
            subscriber.kill()
            publisher.wait_for("done", 20 << 20)
            publisher.wait_for("nodes", other="confirmed")
            assert publisher.last("nodes") == [node_id], publisher.last("failed")


def test_a_send_that_is_cancelled_is_told_to_the_subscriber(port: int, tmp_path: Path) -> None:
    from fjm2.jms import ConnectionFactory, FileMessage, Topic

    folder = place(tmp_path, "received")
    source = sparse(tmp_path / "source", 40 << 20)

    async def main() -> None:
        async with ConnectionFactory(uri(port, rate="80mbit")).create_context() as context:
            await context.ready()
            began = asyncio.Event()
            producer = context.create_producer()
            message = FileMessage(source, lambda _: began.set())
            sending = asyncio.create_task(producer.send(Topic("files"), message))
            await began.wait()
            await asyncio.sleep(0.5)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending

    with child("subscribe", uri(port, files_directory=folder), tmp_path / "kept") as subscriber:
        subscriber.wait_for("ready")
        asyncio.run(main())
        assert "cancelled by its sender: its send was cancelled" in subscriber.wait_for("error")
        wait_until_deleted(folder)
