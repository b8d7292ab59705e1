"""Frames of files, and a router that receives them on disks that tests control."""

from collections.abc import Iterable
from pathlib import Path

from routing import CONNECTION, OWN, SENDER, STREAM, TOPIC, Subscriber

from fjm2.bus.files.disk import Disk, Work
from fjm2.bus.files.file_folder import FileFolder
from fjm2.bus.files.incoming_files import IncomingFiles
from fjm2.bus.reports import BusReport, FileDropped
from fjm2.bus.router import Router
from fjm2.jms import FileMessage, Topic
from fjm2.messages.files.parts import cancel_parts, data_parts, encode_begin
from fjm2.messages.frame import FrameWriter, Parts
from fjm2.messages.header import IN_PARTS
from fjm2.messages.message import open_message
from fjm2.norm.events import StreamReceived


class DiskAtOnce:
    """Does each job at once."""

    waiting_bytes = 0
    jobs_done = 0

    def do(self, work: Work, after: Work = lambda: None, size: int = 0) -> None:
        del size
        work()
        after()

    def leave(self, work: Work) -> None:
        work()

    def close(self) -> None:
        pass

    async def finished(self, timeout_s: float) -> None:
        pass


class SlowDisk(DiskAtOnce):
    """Does jobs when the test says so."""

    def __init__(self) -> None:
        self._jobs: list[tuple[Work, Work, int]] = []

    def do(self, work: Work, after: Work = lambda: None, size: int = 0) -> None:
        self._jobs.append((work, after, size))
        self.waiting_bytes += size + 1

    def work(self, jobs: int = 1 << 30) -> None:
        for _ in range(min(jobs, len(self._jobs))):
            work, after, size = self._jobs.pop(0)
            work()
            self.waiting_bytes -= size + 1
            self.jobs_done += 1
            after()


CONTENT = bytes(range(256)) * 40


class Sent:
    """The frames of a file."""

    def __init__(
        self, content: bytes = CONTENT, name: str = "a.bin", destination: Topic = TOPIC, size: int | None = None
    ) -> None:
        writer = FrameWriter(CONNECTION, Sent.number)
        Sent.number += 1
        self.head, body = writer.write(Named(content, name, size), destination, IN_PARTS, 4, 0)
        self.begin = self.head + body
        self._content = content

    number = 100

    def part(self, start: int, end: int, place: int | None = None) -> bytes:
        piece = self._content[start:end]
        return b"".join(data_parts(self.head, start if place is None else place, piece))

    def parts(self, step: int = 1000) -> list[bytes]:
        return [self.part(start, start + step) for start in range(0, max(len(self._content), 1), step)]

    def cancel(self, reason: str = "no more") -> bytes:
        return b"".join(cancel_parts(self.head, reason))


class Named(FileMessage):
    """A message with the first frame's body of a file that is not there."""

    __slots__ = ("_told",)

    def __init__(self, content: bytes, name: str, size: int | None) -> None:
        super().__init__()
        self._told = encode_begin(len(content) if size is None else size, name)

    def _encode_body(self) -> bytes:  # type: ignore[override]
        return self._told


class FileBench:
    """A router with files in a folder, and a settable clock."""

    def __init__(
        self, folder: Path, *subscribers: Subscriber, bytes_max: int = 1 << 30, disk: Disk | None = None
    ) -> None:
        self.now = 1000.0
        self.resumed = 0
        self.reports: list[BusReport] = []
        self.folder = FileFolder(str(folder), bytes_max, disk or DiskAtOnce())
        self.files = IncomingFiles(self.folder, self.reports.append, lambda: self.now)
        self.router = Router(OWN, self.reports.append, on_resume=self._count, files=self.files, clock=lambda: self.now)
        self._places: dict[int, int] = {}
        for subscriber in subscribers:
            self.router.add(subscriber)

    def _count(self) -> None:
        self.resumed += 1

    def take(self, frames: Iterable[Parts | bytes], sender: int = SENDER, marks: tuple[int, ...] = (0,)) -> None:
        data = b"".join(frame if isinstance(frame, bytes) else b"".join(frame) for frame in frames)
        place = self._places.get(sender, 0)
        self._places[sender] = place + len(data)
        self.router.receive(StreamReceived(sender, STREAM, place, data, marks))

    @property
    def cancelled(self) -> list[bool]:
        return [each.is_cancelled for each in self.reports if isinstance(each, FileDropped)]

    @property
    def dropped(self) -> list[str]:
        return [each.reason for each in self.reports if isinstance(each, FileDropped)]

    def on_disk(self) -> list[str]:
        """Return the paths of all files but locks."""
        parent = Path(self.folder._parent or "")
        return [str(path) for path in parent.rglob("*") if path.is_file() and path.name != "lock"]


def file_of(subscriber: Subscriber, index: int = -1) -> FileMessage:
    received = subscriber.received[index]
    made = open_message(received.head, received.body, received.header)
    assert isinstance(made, FileMessage)
    return made
