"""Files that arrive in parts: put together on disk, bounded, and deleted when they cannot become whole."""

import gc
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from effort import examples
from file_frames import CONTENT, DiskAtOnce, FileBench, Sent, file_of
from hypothesis import given, settings
from hypothesis import strategies as st
from routing import OTHER, SENDER, STREAM, TOPIC, Subscriber, message

from fjm2.bus.files.file_folder import FileFolder
from fjm2.bus.files.incoming_files import FILES_MAX
from fjm2.bus.losses.kinds import Loss
from fjm2.jms import FileMessage, FileProgress, MessageFormatError, Topic
from fjm2.messages.files.parts import data_parts, encode_begin, safe_name
from fjm2.messages.frame import FrameReader
from fjm2.messages.header import (
    FILE,
    FLAGS,
    FRAME_BYTES,
    HEADER,
    HEADER_BYTES,
    IN_PARTS,
    KIND,
    NAME_BYTES,
    PROPERTY_BYTES,
)
from fjm2.messages.message import open_message

# Whole files.


def test_a_file_is_delivered_when_it_is_whole_and_not_before(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    *parts, last = sent.parts()
    bench.take([message("before"), sent.begin, *parts, message("between")])
    assert subscriber.texts == ["before", "between"]
    bench.take([last, message("after")])
    assert len(subscriber.received) == 4
    found = file_of(subscriber, 2)
    assert (found.name, found.size) == ("a.bin", len(CONTENT))
    assert found.path is not None
    assert found.path.read_bytes() == CONTENT
    assert found.get_body(Path) == found.path
    with found.open() as file:
        assert file.read() == CONTENT
    assert subscriber.gaps == [False] * 4
    assert not bench.reports
    assert not subscriber.losses


@pytest.mark.parametrize("content", [b"", b"x", CONTENT])
def test_files_of_any_size(tmp_path: Path, content: bytes) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    sent = Sent(content)
    bench.take([sent.begin, *sent.parts()])
    path = file_of(subscriber).path
    assert path is not None
    assert path.read_bytes() == content


@settings(max_examples=examples(50))
@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=4),
    step=st.integers(50, 1500),
    seed=st.integers(0, 1 << 32),
)
def test_files_may_be_interleaved_and_runs_cut_anywhere(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], step: int, seed: int
) -> None:
    drawn = random.Random(seed)
    subscriber = Subscriber()
    bench = FileBench(tmp_path_factory.mktemp("files"), subscriber)
    contents = [bytes([index]) * size for index, size in enumerate(sizes)]
    waiting = [[sent.begin, *sent.parts(step)] for sent in map(Sent, contents)]
    stream = b""
    while any(waiting):
        frames = drawn.choice([frames for frames in waiting if frames])
        stream += frames.pop(0)
    marks: tuple[int, ...] = (0,)
    while stream:
        cut = drawn.randint(1, min(len(stream), 2000))
        bench.take([stream[:cut]], marks=marks)
        stream, marks = stream[cut:], ()
    found = [file_of(subscriber, index).path for index in range(len(sizes))]
    assert sorted(path.read_bytes() for path in found if path is not None) == sorted(contents)
    assert not bench.reports


def test_a_selector_decides_by_the_first_frame_and_what_nobody_wants_is_not_stored(tmp_path: Path) -> None:
    wanted, unwanted = Subscriber(), Subscriber(selector="JMSPriority = 9")
    bench = FileBench(tmp_path, wanted, unwanted)
    sent = Sent()
    bench.take([sent.begin, *sent.parts()])
    assert (len(wanted.received), len(unwanted.received)) == (1, 0)
    bench.router.remove(wanted)
    wanted.received.clear()
    gc.collect()
    other, elsewhere = Sent(), Sent(destination=Topic("elsewhere"))
    bench.take([other.begin, elsewhere.begin, *other.parts(), *elsewhere.parts()])
    assert not bench.on_disk()
    assert not bench.reports


def test_a_file_whose_properties_a_selector_cannot_read_is_missed(tmp_path: Path) -> None:
    subscriber = Subscriber(selector="size > 1")
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    fields, malformed = list(HEADER.unpack_from(sent.begin)), b"\0\4size\xff"
    fields[PROPERTY_BYTES] = len(malformed)
    fields[FRAME_BYTES] += len(malformed)
    name_end = HEADER_BYTES + fields[NAME_BYTES]
    bench.take([HEADER.pack(*fields) + sent.begin[HEADER_BYTES:name_end] + malformed + sent.begin[name_end:]])
    assert subscriber.losses == [Loss.UNSELECTABLE]
    assert bench.router.stats.frames_malformed == 1
    assert not bench.on_disk()


def test_own_files_reach_own_subscriptions(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    for frame in (sent.begin, *sent.parts()):
        bench.router.publish(TOPIC, (frame, b""))
    assert file_of(subscriber).size == len(CONTENT)


def test_progress_is_told_and_a_listener_that_raises_stops_nothing(tmp_path: Path) -> None:
    class Watching(Subscriber):
        told: list[FileProgress]

        def on_progress(self, progress: FileProgress) -> None:
            self.told.append(progress)
            raise RuntimeError("not nice")

    subscriber = Watching()
    subscriber.told = []
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    bench.take([sent.begin])
    for part in sent.parts():
        bench.now += 0.2
        bench.take([part])
    assert [progress.done for progress in subscriber.told] == [*range(1000, len(CONTENT), 1000), len(CONTENT)]
    assert subscriber.told[0].message_id == file_of(subscriber).message_id
    assert [progress.is_complete for progress in subscriber.told] == [False] * 10 + [True]
    assert subscriber.told[0].destination == TOPIC


# The life of a received file.


def test_a_received_file_goes_with_its_message_unless_it_is_saved(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path / "files", subscriber)
    (tmp_path / "files").mkdir()
    (tmp_path / "kept").mkdir()
    for _ in range(2):
        sent = Sent()
        bench.take([sent.begin, *sent.parts()])
    kept = file_of(subscriber)
    assert kept.save(tmp_path / "kept") == tmp_path / "kept" / "a.bin"
    assert kept.path == tmp_path / "kept" / "a.bin"
    assert bench.folder.used_bytes == len(CONTENT)
    assert len(bench.on_disk()) == 1
    subscriber.received.clear()
    del kept
    gc.collect()
    assert not bench.on_disk()
    assert bench.folder.used_bytes == 0
    assert (tmp_path / "kept" / "a.bin").read_bytes() == CONTENT


def test_consumers_that_share_a_file_save_copies(tmp_path: Path) -> None:
    one, two = Subscriber(), Subscriber()
    bench = FileBench(tmp_path, one, two)
    sent = Sent()
    bench.take([sent.begin, *sent.parts()])
    first = file_of(one).save(tmp_path / "first")
    first.write_bytes(b"changed")
    assert file_of(two).save(tmp_path / "second").read_bytes() == CONTENT
    longest = tmp_path / ("漢" * 85)
    assert file_of(two).save(longest).read_bytes() == CONTENT


def test_a_save_that_fails_leaves_the_target_as_it_was(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    bench.take([sent.begin, *sent.parts()])
    with pytest.raises(OSError, match="No such file"):
        file_of(subscriber).save(tmp_path / "none" / "here")
    assert file_of(subscriber).size == len(CONTENT)


def test_the_folder_goes_with_the_last_file(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    bench.take([sent.begin, *sent.parts()])
    bench.files.close()
    (root,) = tmp_path.iterdir()
    assert len(list(root.iterdir())) == 1
    subscriber.received.clear()
    gc.collect()
    assert not list(root.iterdir())
    bench.take([Sent().begin])  # events may still come while the bus closes
    assert not list(root.iterdir())
    assert "the bus is closed" in bench.dropped[0]


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    program = (
        "import os, sys, time\n"
        "from fjm2.bus.files.file_folder import FileFolder\n"
        "file = FileFolder(sys.argv[1], 1 << 20, None).reserve(100)\n"
        "file.open()\n"
        "file.write(memoryview(b'x' * 50))\n"
        "print('made', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "made\n"
        (root,) = tmp_path.iterdir()
        living = FileFolder(str(tmp_path), 1 << 20, DiskAtOnce())
        living.reserve(1).open()
        assert len(list(root.iterdir())) == 2  # that of a process that lives stays
        killed.kill()
        killed.wait()
    last = FileFolder(str(tmp_path), 1 << 20, DiskAtOnce())
    last.reserve(1).open()
    assert len(list(root.iterdir())) == 2
    assert root.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    root = tmp_path / f"fjm2-files-{os.geteuid()}"
    root.mkdir(mode=0o755)
    root.chmod(0o755)
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    bench.take([sent.begin, *sent.parts()])
    assert "only this user may enter" in bench.dropped[0]


# Files that cannot become whole.


def parts_lost(bench: FileBench, sent: Sent) -> None:
    bench.take([sent.begin, sent.part(0, 1000), sent.part(2000, 3000)])


def cancelled(bench: FileBench, sent: Sent) -> None:
    bench.take([sent.begin, sent.part(0, 1000), sent.cancel()])


def too_long(bench: FileBench, sent: Sent) -> None:
    bench.take([sent.begin, b"".join(data_parts(sent.head, 0, bytes(20_000)))])


def gone(bench: FileBench, sent: Sent) -> None:
    bench.take([sent.begin, sent.part(0, 1000)])
    bench.router.forget(SENDER)


def silent(bench: FileBench, sent: Sent) -> None:
    bench.take([sent.begin, sent.part(0, 1000)])
    bench.now += 4.9
    bench.router.check(lambda _: True)
    assert not bench.reports
    bench.now += 0.1
    bench.router.check(lambda _: True)


def gap(bench: FileBench, sent: Sent) -> None:
    bench.take([sent.begin, sent.part(0, 1000)])
    bench.router.note_gap(SENDER, STREAM)
    bench.now += 5
    bench.router.check()


def stalled(bench: FileBench, sent: Sent) -> None:
    bench.take([sent.begin, sent.part(0, 1000)])
    bench.now += 599
    bench.router.check()
    assert not bench.reports
    bench.now += 1
    bench.router.check()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (parts_lost, "parts of it are lost"),
        (cancelled, "cancelled by its sender: no more"),
        (too_long, "parts of it are lost"),
        (gone, "its sender is gone"),
        (silent, "its sender is silent, and may be gone"),
        (gap, "parts of it are lost"),
        (stalled, "the rest did not come"),
    ],
)
def test_a_file_that_cannot_become_whole_is_deleted_and_reported(tmp_path: Path, harm, reason: str) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    harm(bench, sent)
    assert bench.dropped == [reason]
    assert not bench.on_disk()
    assert (len(bench.files), bench.folder.used_bytes) == (0, 0)
    assert bench.cancelled == [harm is cancelled]
    assert subscriber.losses == [Loss.FILE]
    bench.take([*sent.parts()])  # it is over
    assert not subscriber.received


def test_a_full_disk_is_reported_before_and_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    huge = Sent(size=1 << 60)
    bench.take([huge.begin])
    assert "there is no room" in bench.dropped[0]
    bench.folder.bytes_max = 1 << 62
    huge = Sent(size=1 << 60)
    bench.take([huge.begin])
    assert "bytes left" in bench.dropped[1]

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    sent = Sent()
    bench.take([sent.begin, sent.part(0, 1000)])
    monkeypatch.setattr(os, "write", full)
    bench.take([sent.part(1000, 2000)])
    monkeypatch.undo()
    assert bench.dropped[2] == "it could not be written: [Errno 28] No space left on device"
    assert bench.cancelled == [False] * 3
    assert subscriber.losses == [Loss.FILE] * 3
    assert not bench.on_disk()


def test_names_alone_take_neither_all_room_nor_all_places(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber, bytes_max=1 << 20)
    for _ in range(FILES_MAX):
        bench.take([Sent(size=4000).begin], sender=OTHER)
    sent = Sent()
    bench.take([sent.begin, *sent.parts()])
    assert "being received already" in bench.dropped[0]
    bench.now += 10
    sent = Sent()
    bench.take([sent.begin, *sent.parts()])
    assert subscriber.received
    hoarder = Sent(size=(1 << 20) - 20_000)
    bench.now += 10
    bench.take([hoarder.begin], sender=OTHER)
    bench.now += 10
    sent = Sent(bytes(100_000))
    bench.take([sent.begin, *sent.parts()])
    assert len(subscriber.received) == 2
    assert len(bench.files) <= FILES_MAX


def test_a_claim_of_a_huge_size_costs_others_nothing(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber, bytes_max=1 << 20)
    slow, later = Sent(), Sent()
    bench.take([slow.begin, slow.part(0, 5000)])
    bench.now += 11
    bench.take([later.begin])
    bench.take([Sent(size=1 << 50).begin], sender=OTHER)
    assert len(bench.dropped) == 1
    assert "there is no room" in bench.dropped[0]
    bench.take([slow.part(5000, len(CONTENT)), *later.parts()])
    assert len(subscriber.received) == 2


def test_another_sender_cannot_write_into_a_file(tmp_path: Path) -> None:
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    sent = Sent()
    bench.take([sent.begin])
    bench.take([b"".join(data_parts(sent.head, 0, b"xxxxx")), sent.cancel()], sender=OTHER)
    bench.take(sent.parts())
    path = file_of(subscriber).path
    assert path is not None
    assert path.read_bytes() == CONTENT


def test_a_frame_that_claims_a_path_gets_none(tmp_path: Path) -> None:
    """A message with a file is made from what this process wrote, and never from what a frame says."""
    subscriber = Subscriber()
    bench = FileBench(tmp_path, subscriber)
    fields = list(HEADER.unpack_from(message("x")[0]))
    for kind, flags in ((FILE, 0), (FILE, IN_PARTS), (2, IN_PARTS)):
        fields[KIND], fields[FLAGS] = kind, flags
        bench.take([HEADER.pack(*fields) + message("x")[0][HEADER_BYTES:] + message("x")[1]])
    assert all(received.header[KIND] != FILE for received in subscriber.received)
    forged = open_message(b"", encode_begin(5, "/etc/passwd"), (1, FILE, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    assert isinstance(forged, FileMessage)
    assert (forged.path, forged.name, forged.size) == (None, "passwd", 5)
    with pytest.raises(MessageFormatError):
        forged.save(tmp_path / "x")
    with pytest.raises(MessageFormatError):
        forged.open()


@given(st.binary(max_size=200), st.booleans())
@settings(max_examples=examples(200))
def test_any_bytes_in_a_file_frame_raise_nothing(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, has_flag: bool
) -> None:
    bench = FileBench(tmp_path_factory.getbasetemp(), Subscriber(), bytes_max=1000)
    head, _ = message("x")
    fields = list(HEADER.unpack_from(head))
    fields[KIND], fields[FLAGS] = FILE, IN_PARTS if has_flag else 0
    fields[4] = len(head) + len(content)
    bench.take([HEADER.pack(*fields) + head[HEADER_BYTES:] + content])
    bench.files.close()


def test_older_readers_drop_frames_of_files_one_by_one() -> None:
    """Their length is plausible, so that what follows is read."""
    reader = FrameReader()
    sent = Sent()
    fields = list(HEADER.unpack_from(sent.begin))
    fields[KIND] = 7  # as unknown to this reader as the kind of files to an older one
    unknown = HEADER.pack(*fields) + sent.begin[HEADER_BYTES:]
    frames = reader.feed(unknown + b"".join(message("next")), (0,))
    assert len(frames) == 1


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("a.bin", "a.bin"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\system.ini", "system.ini"),
        ("..", "file"),
        (".", "file"),
        ("", "file"),
        ("a/", "file"),
        (".hidden", ".hidden"),
        ("x" * 5000, "x" * 200),
        ("ü" * 500, "ü" * 100),
        ("a\0b", "a_b"),
    ],
)
def test_names_are_safe_in_a_folder(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(st.text(max_size=300))
def test_any_name_is_safe(name: str) -> None:
    safe = safe_name(name)
    assert safe not in ("", ".", "..")
    assert "/" not in safe
    assert "\0" not in safe
    assert len(safe.encode("utf-8", "replace")) <= 200


def test_many_parts_cost_little(tmp_path: Path) -> None:
    bench = FileBench(tmp_path, Subscriber())
    sent = Sent(bytes(8 << 20))
    frames = [sent.begin, *sent.parts(1 << 16)]
    began = time.process_time()
    for frame in frames:
        bench.take([frame])
    assert time.process_time() - began < 5
    assert not bench.reports
