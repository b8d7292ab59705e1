"""Files that are being received: put together on disk, and delivered when they are whole.

Only files that a subscription here wants are stored. A file that cannot become whole is deleted, reported like lost
messages, and told to its sender. Nothing that comes from the network raises an exception.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic
from typing import Any, Final, Protocol

from fjm2.base.logs import Log
from fjm2.bus.losses.kinds import Loss
from fjm2.bus.reports import BusReport, FileDropped
from fjm2.messages.destination import Destination, destination_from
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.files.file_message import FileProgress, make_body
from fjm2.messages.files.parts import BEGIN, CANCEL, Part, decode_part, decode_text, safe_name
from fjm2.messages.files.stored_file import StoredFile
from fjm2.messages.frame import Frame, body_place, is_sent_to, look_up
from fjm2.messages.header import CONNECTION_ID, FLAGS, HEADER_BYTES, NAME_BYTES, NUMBER, Header, message_id_of
from fjm2.messages.selector import Selector

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
_PROGRESS_INTERVAL_S: Final = 0.1
"""Shortest time between two calls of a progress listener."""


class FileSender(Protocol):
    """A lane that sends files, as the router knows it."""

    @property
    def node_id(self) -> int: ...


class FileSubscription(Protocol):
    """A receiver of messages. It may have `on_progress`, a progress listener."""

    @property
    def selector(self) -> Selector | None: ...
    @property
    def left_out(self) -> int | None:
        """Id of a connection whose messages are not wanted."""

    def miss(self, header: Header, loss: Loss, /) -> None:
        """Note that it does not get a message that it wants."""


class FileTarget(Protocol):
    """A destination and its subscriptions."""

    @property
    def destination(self) -> Destination: ...
    @property
    def subscriptions(self) -> Iterable[Any]: ...


class Deliver(Protocol):
    """Delivers a message to those of the subscriptions that still exist."""

    def __call__(
        self, head: bytes, body: bytes, header: Header, sender: Any, subscriptions: Iterable[Any], /
    ) -> None: ...


class _Incoming:
    """One file that is being received."""

    __slots__ = ("changed_at", "file", "has_gap", "head", "header", "name", "sender", "subscriptions", "told_at")

    def __init__(
        self, file: PartialFile, name: str, head: bytes, header: Header, sender: FileSender, now: float
    ) -> None:
        self.file = file
        self.name = name
        self.head = head
        """First frame, without its body."""
        self.header = header
        self.sender = sender
        self.subscriptions: dict[FileSubscription, None] = {}
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
        self._report = report
        self._clock = clock
        self._files: dict[tuple[int, int], _Incoming] = {}
        """Files by connection id and message number, those that were begun first first."""

    def __len__(self) -> int:
        return len(self._files)

    def take(self, frame: Frame, targets: Iterable[FileTarget] | None, sender: FileSender, deliver: Deliver) -> None:
        """Take a frame of a file."""
        buffer, start, _, _, header = frame
        part = decode_part(buffer, start, header)
        if part is None:
            return
        key = header[CONNECTION_ID], header[NUMBER]
        if part.form == BEGIN:
            if targets is not None and key not in self._files:
                self._begin(key, frame, part, targets, sender)
            return
        incoming = self._files.get(key)
        if incoming is None or incoming.sender is not sender:
            return
        if part.form == CANCEL:
            reason = f"cancelled by its sender: {decode_text(buffer, part)}"
            self._drop(key, reason, is_cancelled=True)
        elif part.number != incoming.file.written or part.end - part.start > incoming.file.size - part.number:
            self._drop(key, "parts of it are lost")
        else:
            self._write(key, incoming, memoryview(buffer)[part.start : part.end], deliver)

    def _begin(
        self, key: tuple[int, int], frame: Frame, part: Part, targets: Iterable[FileTarget], sender: FileSender
    ) -> None:
        buffer, start, _, _, header = frame
        wanted = _wanting(targets, buffer, start, header)
        if not wanted:
            return
        name = decode_text(buffer, part)
        head = buffer[start : start + body_place(header)]
        now = self._clock()
        try:
            file = self._create(part.number, now)
        except OSError as error:
            for one in wanted:
                one.miss(header, Loss.FILE)
            self._tell(header, sender, name, part.number, 0, str(error))
            return
        incoming = self._files[key] = _Incoming(file, name, head, header, sender, now)
        incoming.subscriptions = dict.fromkeys(wanted)

    def _write(self, key: tuple[int, int], incoming: _Incoming, data: memoryview, deliver: Deliver) -> None:
        file = incoming.file
        try:
            file.write(data)
        except OSError as error:
            self._drop(key, f"it could not be written: {error}")
            return
        now = incoming.changed_at = self._clock()
        incoming.has_gap = False
        is_whole = file.written == file.size
        if is_whole or now - incoming.told_at >= _PROGRESS_INTERVAL_S:
            incoming.told_at = now
            self._tell_progress(incoming)
        if is_whole:
            del self._files[key]
            file.close()
            stored = StoredFile(file.path, file.size, safe_name(incoming.name), self._folder.forget)
            stored.consumers = len(incoming.subscriptions)
            body = make_body(stored, file.size, safe_name(incoming.name))
            deliver(incoming.head, body, incoming.header, incoming.sender, incoming.subscriptions)

    @staticmethod
    def _tell_progress(incoming: _Incoming) -> None:
        listeners = [getattr(one, "on_progress", None) for one in incoming.subscriptions]
        for listener in filter(None, listeners):
            try:
                listener(incoming.progress())
            except Exception as error:
                text = f"a progress listener raised {error!r}, and nobody is told: catch in it what it can raise"
                log.tell(logging.ERROR, "callback_failed", text, about=("on_progress", type(error)), error=error)

    def _create(self, size: int, now: float) -> PartialFile:
        """Make a file. Files that wait for long give way, so that nobody can take all room with names alone."""
        while len(self._files) >= FILES_MAX or not self._folder.has_room(size):
            if not self._make_room(now):
                break
        if len(self._files) >= FILES_MAX:
            raise OSError(f"{FILES_MAX} files are being received already")
        return self._folder.create(size)

    def _make_room(self, now: float) -> bool:
        """Give up the file that waits longest, if it has waited for a while."""
        key = min(self._files, key=lambda each: self._files[each].changed_at, default=None)
        if key is None or now - self._files[key].changed_at < _IDLE_S:
            return False
        self._drop(key, "its parts did not come, and others were waiting")
        return True

    def _drop(self, key: tuple[int, int], text: str, is_cancelled: bool = False) -> None:
        """Delete a file, and report it. Its sender is told, unless it cancelled the file itself."""
        incoming = self._files.pop(key)
        file = incoming.file
        file.remove()
        self._folder.forget(file.size)
        for one in incoming.subscriptions:
            one.miss(incoming.header, Loss.FILE)
        self._tell(incoming.header, incoming.sender, incoming.name, file.size, file.written, text, is_cancelled)

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
                del self._files[key]
                incoming.file.remove()
                self._folder.forget(incoming.file.size)

    def note_gap(self, sender_id: int) -> None:
        """Note that bytes of a sender are lost, and perhaps the rest of its files."""
        for incoming in self._files.values():
            if incoming.sender.node_id == sender_id:
                incoming.has_gap = True

    def note_gone(self, sender_id: int) -> None:
        """Give up the files of a sender that is gone."""
        for key, incoming in list(self._files.items()):
            if incoming.sender.node_id == sender_id:
                self._drop(key, "its sender is gone")

    def postpone(self, seconds: float) -> None:
        """Let all files wait for longer, because this process did not listen for so many seconds."""
        for incoming in self._files.values():
            incoming.changed_at += seconds

    def expire(self, now: float, is_silent: Callable[[int], bool]) -> None:
        """Give up files that will not become whole. Call this every second or so."""
        for key, incoming in list(self._files.items()):
            waited_s = now - incoming.changed_at
            if waited_s >= DOUBTFUL_S and incoming.has_gap:
                self._drop(key, "parts of it are lost")
            elif waited_s >= DOUBTFUL_S and is_silent(incoming.sender.node_id):
                self._drop(key, "its sender is silent, and may be gone")
            elif waited_s >= _STALLED_S:
                self._drop(key, "the rest did not come")

    def close(self) -> None:
        """Delete everything that is not whole."""
        for incoming in self._files.values():
            incoming.file.remove()
            self._folder.forget(incoming.file.size)
        self._files.clear()
        self._folder.close()


def _wanting(targets: Iterable[FileTarget], buffer: bytes, start: int, header: Header) -> list[FileSubscription]:
    """Return the subscriptions that want a message, which need not be there as a whole."""
    found: list[FileSubscription] = []
    for target in targets:
        if not is_sent_to(buffer, start, header, target.destination):
            continue
        asked = (one for one in target.subscriptions if one.left_out != header[CONNECTION_ID])
        found += (one for one in asked if _selects(one, buffer, start, header))
    return found


def _selects(subscription: FileSubscription, buffer: bytes, start: int, header: Header) -> bool:
    if subscription.selector is None:
        return True
    try:
        return subscription.selector.evaluate(partial(look_up, buffer, start, header))
    except MessageFormatError:
        return False
