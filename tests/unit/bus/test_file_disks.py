"""Files that are received on disks that are slow, hang, or lose files."""

import asyncio
import os
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
from file_frames import CONTENT, FileBench, Sent, SlowDisk, file_of
from routing import TOPIC, Subscriber, message

from fjm2.bus.files.disk import DiskThread
from fjm2.bus.files.file_transfer import FileTransfer
from fjm2.jms import FileMessage, ResourceAllocationError, Topic
from fjm2.messages.header import FILE, KIND


def test_messages_behind_a_file_wait_until_it_is_on_disk(tmp_path: Path) -> None:
    subscriber, elsewhere, disk = Subscriber(), Subscriber(Topic("elsewhere")), SlowDisk()
    bench = FileBench(tmp_path, subscriber, elsewhere, disk=disk)
    sent, second = Sent(), Sent()
    bench.take([sent.begin, message("before"), *sent.parts(), message("between"), second.begin, *second.parts()])
    assert subscriber.texts == ["before"]
    assert bench.router.is_blocked
    while not bench.resumed:
        disk.work(1)
    found = [received.header[KIND] == FILE for received in subscriber.received]
    assert found == [False, True, False, True]
    assert not bench.router.is_blocked
    bench.take([message("after")])
    assert len(subscriber.received) == 5


def test_own_messages_behind_an_own_file_wait_too(tmp_path: Path) -> None:
    subscriber, disk = Subscriber(), SlowDisk()
    bench = FileBench(tmp_path, subscriber, disk=disk)
    sent = Sent()
    for frame in (sent.begin, *sent.parts()):
        has_to_wait = bench.router.publish(TOPIC, (frame, b""))
    assert has_to_wait
    assert bench.router.publish(TOPIC, message("after"))
    assert not subscriber.received
    disk.work()
    assert [received.header[KIND] == FILE for received in subscriber.received] == [True, False]
    assert not bench.router.publish(TOPIC, message("more"))


def test_a_disk_that_is_behind_makes_senders_wait(tmp_path: Path) -> None:
    subscriber, disk = Subscriber(), SlowDisk()
    bench = FileBench(tmp_path, subscriber, disk=disk)
    sent = Sent(bytes(20 << 20))
    first, *parts = sent.parts(1 << 20)
    bench.take([sent.begin, first])
    taken = 0
    while not bench.router.is_blocked:
        bench.take([parts.pop(0)])
        taken += 1
    assert 4 < taken < 10
    disk.work(2)
    assert bench.router.is_blocked
    disk.work(4)
    assert not bench.router.is_blocked
    assert bench.resumed == 1
    while parts:
        bench.take([parts.pop(0)])
        disk.work()
    assert file_of(subscriber).size == 20 << 20


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_disk_that_hangs_is_not_waited_for_for_ever(tmp_path: Path, is_whole: bool) -> None:
    subscriber, disk = Subscriber(), SlowDisk()
    bench = FileBench(tmp_path, subscriber, disk=disk)
    sent = Sent(bytes(20 << 20))
    begin, parts = sent.begin, sent.parts(1 << 20)
    bench.take([begin, *(parts if is_whole else parts[:15]), message("after")])
    assert bench.router.is_blocked
    for _ in range(61):
        bench.now += 1
        bench.router.check(unheard_s=1.0)
    assert bench.dropped == ["the disk has done nothing for 60 s"]
    assert not bench.router.is_blocked
    assert subscriber.texts == ["after"]
    refused = Sent()
    bench.take([refused.begin, *refused.parts()])
    assert "does not answer" in bench.dropped[1]
    disk.work()
    assert not bench.on_disk()
    assert bench.folder.used_bytes == 0
    again = Sent()
    bench.take([again.begin, *again.parts()])
    disk.work()
    assert file_of(subscriber).size == len(CONTENT)


def test_a_file_that_is_dropped_while_it_waits_for_the_disk_leaves_nothing(tmp_path: Path) -> None:
    subscriber, disk = Subscriber(), SlowDisk()
    bench = FileBench(tmp_path, subscriber, disk=disk)
    sent = Sent()
    bench.take([sent.begin, sent.part(0, 1000), sent.cancel(), message("next")])
    assert subscriber.texts == ["next"]
    whole = Sent()
    bench.take([whole.begin, *whole.parts(), message("last")])
    bench.router.remove(subscriber)
    assert not bench.router.is_blocked
    disk.work()
    assert not bench.on_disk()
    assert bench.folder.used_bytes == 0


def test_a_folder_that_was_tidied_up_is_made_again(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    for _ in range(2):
        sent = Sent()
        bench.take([sent.begin, *sent.parts()])
        (root,) = tmp_path.iterdir()
        shutil.rmtree(root)
    assert len(subscriber.received) == 2
    sent = Sent()
    bench.take([sent.begin, sent.part(0, 1000)])
    shutil.rmtree(root)
    bench.take([sent.part(1000, len(CONTENT))])
    assert bench.dropped == ["it could not be written: [Errno 2] somebody has deleted it while it was received"]


def test_the_disk_keeps_room_for_files_that_are_not_written_yet(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    bench = FileBench(tmp_path, Subscriber(), bytes_max=1 << 62)
    bench.take([Sent(size=free * 2 // 3).begin])
    assert not bench.dropped
    bench.take([Sent(size=free * 2 // 3).begin])
    assert "which is too little" in bench.dropped[0]


def test_a_thread_does_jobs_in_order_and_ends() -> None:
    async def main() -> None:
        disk, is_done = DiskThread(asyncio.get_running_loop()), asyncio.Event()
        done: list[int] = []
        threads: set[threading.Thread] = set()
        for number in range(100):
            disk.do(lambda: threads.add(threading.current_thread()), partial(done.append, number))
        disk.do(lambda: None, is_done.set)
        await is_done.wait()
        assert done == [*range(100)]
        assert disk.waiting_bytes == 0
        (thread,) = threads
        assert thread is not threading.current_thread()
        disk.close()
        thread.join(10)
        assert not thread.is_alive()

    asyncio.run(main())


def test_a_saved_file_has_the_same_mode_whether_it_is_moved_or_copied(tmp_path: Path) -> None:
    one, two = Subscriber(), Subscriber()
    bench = FileBench(tmp_path / "files", one, two)
    (tmp_path / "files").mkdir()
    sent = Sent()
    bench.take([sent.begin, *sent.parts()])
    copied = file_of(one).save(tmp_path / "copied")
    bench.router.remove(two)
    again = Sent()
    bench.take([again.begin, *again.parts()])
    moved = file_of(one).save(tmp_path / "moved")
    assert copied.stat().st_mode & 0o777 == moved.stat().st_mode & 0o777 == 0o600


def test_a_pipe_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    """Opening a pipe would wait for a writer, maybe for ever."""
    path = tmp_path / "source"
    path.write_bytes(CONTENT)
    body = FileMessage(path)._encode_body()
    path.unlink()
    os.mkfifo(path)
    head, _ = message("x")
    transfer = FileTransfer(Quiet(), lambda: None, TOPIC, 4, (head, b""), body)
    with pytest.raises(ResourceAllocationError, match="expected a regular file"):
        asyncio.run(asyncio.wait_for(transfer.run(0, None), 10))


class Quiet:
    """A publication without a network."""

    discards = 0

    def publish(self, *_: object) -> None:
        raise AssertionError("nothing can be sent")

    def doubt_since(self, discards: int) -> None:
        pass

    def receivers(self, destination: object) -> frozenset[int]:  # noqa: ARG002
        return frozenset()

    def fail_for_dead(self, receivers: frozenset[int]) -> None:
        pass
