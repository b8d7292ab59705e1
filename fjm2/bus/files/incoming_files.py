"""Files that are being received: put together on disk, and delivered when they are whole.

Only files that a subscription here wants are stored. A file that cannot become whole is deleted, reported like lost
messages, and told to its sender. Nothing that comes from the network raises an exception.

The disk works in a thread. Its memory is bounded: `is_full` asks for a pause while much waits to be written. What
follows the last part of a file has to wait until the file is whole on disk, so that messages stay in order.
"""

import errno
import logging
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

from fjm2.base.logs import Log
from fjm2.base.quantities import repr_of
from fjm2.bus.losses.kinds import Loss
from fjm2.bus.reports import BusReport, FileDropped
from fjm2.messages.destination import destination_from
from fjm2.messages.files.file_message import FileProgress, make_body
from fjm2.messages.files.parts import BEGIN, CANCEL, Part, decode_part, decode_text, safe_name
from fjm2.messages.files.stored_file import StoredFile
from fjm2.messages.frame import Frame, body_place
from fjm2.messages.header import CONNECTION_ID, FLAGS, HEADER_BYTES, NAME_BYTES, NUMBER, Header, message_id_of

from .file_folder import FileFolder, PartialFile

log = Log("fjm2.jms")

FILES_MAX: Final = 256
"""Files that are received at a time. FJM2 sends one at a time for each call of `send`."""
_IDLE_S: Final = 10.0
"""Time without a part after which a file may be given up for another, if there are too many."""
DOUBTFUL_S: Final = 5.0
"""Time after the last part for which a file is kept if its sender is silent, or bytes of it were lost."""
_STALLED_S: Final = 600.0
"""Time after the last part for which any file is kept. Slow links take a while for a part."""
_WAITING_BYTES_MAX: Final = 8 << 20
"""Bytes that may wait for the disk before senders have to. That keeps a disk busy until more comes from the network."""
_HUNG_S: Final = 60
"""Time for which senders wait for a disk that does nothing: as long as for a consumer, by default."""
_SLOW_S: Final = 5
"""Time without progress after which a disk that holds senders up is logged."""
_CLOSE_S: Final = 2.0
"""Longest wait for the disk when a bus closes. The next process removes what is left."""
_PROGRESS_INTERVAL_S: Final = 0.1
"""Shortest time between two calls of a progress listener."""


class FileSender(Protocol):
    """A lane that sends files, as the router knows it."""

    @property
    def node_id(self) -> int: ...


class FileSubscription(Protocol):
    """A receiver of messages. It may have `on_progress`, a progress listener."""

    def miss(self, header: Header, loss: Loss, /) -> None:
        """Note that it does not get a message that it wants."""


class Deliver(Protocol):
    """Delivers a message to those of the subscriptions that still exist."""

    def __call__(
        self, head: bytes, body: bytes, header: Header, sender: Any, subscriptions: Iterable[Any], /
    ) -> None: ...


class _Incoming:
    """One file that is being received."""

    __slots__ = (
        "changed_at",
        "file",
        "has_gap",
        "head",
        "header",
        "is_received",
        "name",
        "received",
        "sender",
        "subscriptions",
        "told_at",
    )

    def __init__(
        self,
        file: PartialFile,
        name: str,
        head: bytes,
        header: Header,
        sender: FileSender,
        subscriptions: dict[FileSubscription, None],
        now: float,
    ) -> None:
        self.file = file
        self.received = 0
        """Bytes that were received. The disk may not have them yet."""
        self.is_received = False
        """True if all of it was received."""
        self.name = name
        self.head = head
        """First frame, without its body."""
        self.header = header
        self.sender = sender
        self.subscriptions = subscriptions
        self.has_gap = False
        self.changed_at = now
        self.told_at = now
        """Time of the last call of progress listeners."""

    def progress(self) -> FileProgress:
        name = self.head[HEADER_BYTES : HEADER_BYTES + self.header[NAME_BYTES]]
        destination = destination_from(self.header[FLAGS], name)
        return FileProgress(
            message_id_of(self.header), destination, safe_name(self.name), self.file.size, self.file.written
        )


class IncomingFiles:
    """All files that are being received."""

    def __init__(
        self,
        folder: FileFolder,
        report: Callable[[BusReport], None],
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._folder = folder
        self._disk = folder.disk
        self._report = report
        self._clock = clock
        self._files: dict[tuple[int, int], _Incoming] = {}
        """Files by connection id and message number, those that were begun first first."""
        self.is_full = False
        """True while nothing more should be taken from the network, because much waits for the disk."""
        self.on_stored: Callable[[Any], None] = lambda _: None
        """Called with a sender whose file is on disk, or was dropped, if `take` has asked to wait for that, and with
        None when `is_full` ends."""
        self._idle_s = 0
        """Calls of `expire`, one a second, in which the disk had done nothing, although there was something to do. Time
        for which this process was stopped does not count."""
        self._jobs_done = 0
        """Jobs that the disk had done at the last call."""
        self._is_hung = False
        """True if the disk has not done anything for so long that nobody waits for it any more."""

    def __len__(self) -> int:
        return len(self._files)

    def take(
        self,
        frame: Frame,
        wanting: Callable[[], Iterable[FileSubscription]],
        sender: FileSender,
        deliver: Deliver,
    ) -> bool:
        """Take a frame of a file. `wanting` returns the subscriptions that want its message.

        Return True if the sender's next frames have to wait until `on_stored` is called.
        """
        buffer, start, _, _, header = frame
        part = decode_part(buffer, start, header)
        if part is None:
            return False
        key = header[CONNECTION_ID], header[NUMBER]
        if part.form == BEGIN:
            if key not in self._files:
                self._begin(key, frame, part, dict.fromkeys(wanting()), sender)
            return False
        incoming = self._files.get(key)
        if incoming is None or incoming.sender is not sender or incoming.is_received:
            return False
        if part.form == CANCEL:
            reason = f"cancelled by its sender: {decode_text(buffer, part)}"
            self._drop(key, reason, is_cancelled=True)
        elif part.number != incoming.received or part.end - part.start > incoming.file.size - part.number:
            self._drop(key, "parts of it are lost")
        else:
            self._write(key, incoming, memoryview(buffer)[part.start : part.end], deliver)
        return self._files.get(key) is incoming and incoming.is_received

    def _begin(
        self,
        key: tuple[int, int],
        frame: Frame,
        part: Part,
        subscriptions: dict[FileSubscription, None],
        sender: FileSender,
    ) -> None:
        if not subscriptions:
            return
        buffer, start, _, _, header = frame
        name = decode_text(buffer, part)
        head = buffer[start : start + body_place(header)]
        now = self._clock()
        try:
            file = self._reserve(part.number, now)
        except OSError as error:
            for one in subscriptions:
                one.miss(header, Loss.FILE)
            self._tell(header, sender, name, part.number, 0, str(error))
            return
        incoming = self._files[key] = _Incoming(file, name, head, header, sender, subscriptions, now)
        self._do(file.open, partial(self._note_written, key, incoming))

    def _write(self, key: tuple[int, int], incoming: _Incoming, data: memoryview, deliver: Deliver) -> None:
        file = incoming.file
        incoming.received += len(data)
        incoming.changed_at = self._clock()
        incoming.has_gap = False
        incoming.is_received = incoming.received == file.size
        self._do(partial(file.write, data), partial(self._note_written, key, incoming), len(data))
        if incoming.is_received:
            self._do(file.finish, partial(self._finish, key, incoming, deliver))

    def _note_written(self, key: tuple[int, int], incoming: _Incoming) -> None:
        """Note that the disk has more of a file, or has failed."""
        if self._files.get(key) is not incoming:
            return
        file = incoming.file
        if file.error is not None:
            is_begun = file.path != ""
            self._drop(key, f"it could not be written: {file.error}" if is_begun else str(file.error))
            return
        now = self._clock()
        if incoming.subscriptions and now - incoming.told_at >= _PROGRESS_INTERVAL_S and file.written < file.size:
            incoming.told_at = now
            self._tell_progress(incoming)

    def _finish(self, key: tuple[int, int], incoming: _Incoming, deliver: Deliver) -> None:
        """Deliver a file that is whole."""
        if self._files.get(key) is not incoming:
            return
        file = incoming.file
        if file.error is not None:
            self._drop(key, f"it could not be written: {file.error}")
            return
        self._tell_progress(incoming)
        del self._files[key]
        stored = StoredFile(file.path, file.size, safe_name(incoming.name), self._folder.delete)
        stored.consumers = len(incoming.subscriptions)
        body = make_body(stored, file.size, safe_name(incoming.name))
        deliver(incoming.head, body, incoming.header, incoming.sender, incoming.subscriptions)
        self.on_stored(incoming.sender)

    def _do(self, work: Callable[[], object], after: Callable[[], None], size: int = 0) -> None:
        """Have the disk do some work. Ask for a pause if it has much to do."""
        self._disk.do(work, partial(self._note_done, after), size)
        if not self.is_full and self._disk.waiting_bytes >= _WAITING_BYTES_MAX and not self._is_hung:
            self.is_full = True

    def _note_done(self, after: Callable[[], None]) -> None:
        self._is_hung = False
        after()
        if self.is_full and self._disk.waiting_bytes * 2 <= _WAITING_BYTES_MAX:
            self.is_full = False
            self.on_stored(None)

    @staticmethod
    def _tell_progress(incoming: _Incoming) -> None:
        listeners = [getattr(one, "on_progress", None) for one in incoming.subscriptions]
        for listener in filter(None, listeners):
            try:
                listener(incoming.progress())
            except Exception as error:
                text = f"a progress listener raised {repr_of(error)}, and nobody is told: catch in it what it can raise"
                log.tell(logging.ERROR, "callback_failed", text, about=("on_progress", type(error)), error=error)

    def _reserve(self, size: int, now: float) -> PartialFile:
        """Reserve room for a file. Files that wait for long give way: otherwise, names alone could take all room."""
        if not self._has_room(size):
            self._make_room(size, now)
        if len(self._files) >= FILES_MAX:
            raise OSError(f"{FILES_MAX} files are being received already")
        if self._is_hung:
            raise OSError(errno.EIO, f"the disk of {self._folder.parent} does not answer")
        return self._folder.reserve(size)

    def _has_room(self, size: int) -> bool:
        return len(self._files) < FILES_MAX and self._folder.has_room(size)

    def _make_room(self, size: int, now: float) -> None:
        """Give up files that have waited for a while, as many as it takes. If all are too few, give up none: nobody can
        clear the folder by the claim of a huge size."""
        waiting = [
            (each.changed_at, key)
            for key, each in self._files.items()
            if now - each.changed_at >= _IDLE_S and not each.is_received
        ]
        if not self._folder.has_room(size - sum(self._files[key].file.size for _, key in waiting)):
            return
        for _, key in sorted(waiting):
            if self._has_room(size):
                return
            self._drop(key, "its parts did not come, and others were waiting")

    def _drop(self, key: tuple[int, int], text: str, is_cancelled: bool = False) -> None:
        """Delete a file, and report it. Its sender is told, unless it cancelled the file itself."""
        incoming = self._files[key]
        written = incoming.file.written
        for one in incoming.subscriptions:
            one.miss(incoming.header, Loss.FILE)
        size, name = incoming.file.size, incoming.name
        self._tell(incoming.header, incoming.sender, name, size, written, text, is_cancelled)
        self._remove(key)

    def _remove(self, key: tuple[int, int]) -> None:
        """Delete a file."""
        incoming = self._files.pop(key)
        self._folder.release(incoming.file.size)
        self._do(incoming.file.remove, _nothing)
        if incoming.is_received:
            self.on_stored(incoming.sender)

    def _tell(
        self,
        header: Header,
        sender: FileSender,
        name: str,
        size: int,
        written: int,
        text: str,
        is_cancelled: bool = False,
    ) -> None:
        name, connection_id = safe_name(name), header[CONNECTION_ID]
        self._report(FileDropped(sender.node_id, connection_id, name, size, written, text, is_cancelled))

    def forget(self, subscription: FileSubscription) -> None:
        """Do not deliver to a subscription any more. A file that nobody else wants is deleted."""
        for key, incoming in list(self._files.items()):
            if subscription not in incoming.subscriptions:
                continue
            del incoming.subscriptions[subscription]
            if not incoming.subscriptions:
                self._remove(key)

    def note_gap(self, sender_id: int) -> None:
        """Note that bytes of a sender are lost, and perhaps the rest of its files."""
        for incoming in self._files.values():
            if incoming.sender.node_id == sender_id:
                incoming.has_gap = True

    def note_gone(self, sender_id: int) -> None:
        """Give up the files of a sender that is gone."""
        for key, incoming in list(self._files.items()):
            if incoming.sender.node_id == sender_id and not incoming.is_received:
                self._drop(key, "its sender is gone")

    def postpone(self, seconds: float) -> None:
        """Let all files wait for longer, because this process did not listen for so many seconds."""
        for incoming in self._files.values():
            incoming.changed_at += seconds

    def expire(self, now: float, is_silent: Callable[[int], bool]) -> None:
        """Give up files that will not become whole. Call this every second or so."""
        self._watch_disk()
        for key, incoming in list(self._files.items()):
            if incoming.is_received:
                continue
            waited_s = now - incoming.changed_at
            if waited_s >= DOUBTFUL_S and incoming.has_gap:
                self._drop(key, "parts of it are lost")
            elif waited_s >= DOUBTFUL_S and is_silent(incoming.sender.node_id):
                self._drop(key, "its sender is silent, and may be gone")
            elif waited_s >= _STALLED_S:
                self._drop(key, "the rest did not come")

    def _watch_disk(self) -> None:
        """Log that the disk is slow. If it does nothing at all for too long, give up all files that wait for it."""
        if self._disk.jobs_done != self._jobs_done or not self._disk.waiting_bytes:
            self._jobs_done, self._idle_s = self._disk.jobs_done, 0
            return
        self._idle_s += 1
        if self._idle_s == _SLOW_S:
            text = f"the disk of {self._folder.parent} has done nothing for {_SLOW_S} s: files, and their senders, wait"
            log.tell(logging.WARNING, "disk_slow", text, about=self._folder.parent)
        if self._idle_s == _HUNG_S:
            self._is_hung = True
            for key in list(self._files):
                self._drop(key, f"the disk has done nothing for {_HUNG_S} s")
            if self.is_full:
                self.is_full = False
                self.on_stored(None)

    def close(self) -> None:
        """Delete everything that is not whole."""
        for incoming in self._files.values():
            self._folder.release(incoming.file.size)
            self._disk.leave(incoming.file.remove)
        self._files.clear()
        self._folder.close()

    async def closed(self) -> None:
        """Wait until everything is deleted that no message refers to, but not for long."""
        await self._disk.finished(_CLOSE_S)


def _nothing() -> None:
    pass
