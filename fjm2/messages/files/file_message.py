"""A message whose body is a file on disk."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from fjm2.base.functions import check_progress_listener
from fjm2.base.quantities import counted, shortened
from fjm2.messages.destination import Destination
from fjm2.messages.errors import MessageFormatError, ResourceAllocationError
from fjm2.messages.header import Kind
from fjm2.messages.message import UNREAD, Message
from fjm2.messages.types import shown

from .parts import decode_begin, encode_begin, safe_name
from .stored_file import ReceivedPath, StoredFile, copy


@dataclass(frozen=True, slots=True)
class FileProgress:
    """Progress of a file that is being sent or received."""

    message_id: str | None
    """Id of the message; None if its producer disabled message ids."""
    destination: Destination
    """Destination of the message."""
    name: str
    """Name of the file, without folders."""
    size: int
    """Bytes of the whole file."""
    done: int
    """Bytes handed to the network by the sender, or written to disk by the receiver."""

    @property
    def is_complete(self) -> bool:
        """True if nothing is missing."""
        return self.done >= self.size


ProgressListener: TypeAlias = Callable[[FileProgress], object]
"""Called while a file is sent or received, several times a second. It runs in the event loop: it must not wait."""


class FileBody(bytes):
    """The body of a first frame, and the file that it stands for. Bytes from the network are never of this class."""

    source: str | StoredFile
    """Path of a file to send, or a received file, which goes when nothing refers to it any more."""
    size: int
    name: str
    on_progress: ProgressListener | None = None

    @property
    def path(self) -> str:
        """File to read."""
        return self.source if isinstance(self.source, str) else self.source.path

    def held_path(self) -> Path:
        """Return the path. A received file stays as long as anything refers to it."""
        return Path(self.source) if isinstance(self.source, str) else self.source.held_path()


def make_body(source: str | StoredFile, size: int, name: str) -> FileBody:
    """Return the body of a message with a file."""
    body = FileBody(encode_begin(size, name))
    body.source, body.size, body.name = source, size, name
    return body


_SHOWN_CHARACTERS_MAX: Final = 80
"""Longest name in a representation."""


def _path_of(value: str | os.PathLike[str]) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"path={shown(value)}: expected the path of a file, as a str or a Path")
    return value if isinstance(value, ReceivedPath) else Path(value)


class FileMessage(Message):
    """A message whose body is a file of any size.

    It is sent in parts, read and written as they go. A consumer gets the message when all of the file is on its disk.
    A received file is deleted when nothing refers to the message, or to its `path`, any more: `save` keeps it.
    """

    __slots__ = ("_on_progress",)
    _kind = Kind.FILE
    """File body."""

    def __init__(self, path: str | os.PathLike[str] | None = None, on_progress: ProgressListener | None = None) -> None:
        """Send the file at `path`, and call `on_progress` while it is sent."""
        super().__init__()
        check_progress_listener(on_progress)
        self._on_progress = on_progress
        if path is not None:
            self.path = _path_of(path)

    @property
    def path(self) -> Path | None:
        """Path of the file to send, or of the received file, which must not be changed; None if there is none."""
        if self._body is UNREAD:
            return self._encoded_body.held_path() if isinstance(self._encoded_body, FileBody) else None
        path: Path | None = self._body
        return path

    @path.setter
    def path(self, value: str | os.PathLike[str] | None) -> None:
        self._check_body_writeable()
        self._body = None if value is None else _path_of(value)
        self._encoded_body = None

    @property
    def on_progress(self) -> ProgressListener | None:
        """Function called while the file is sent."""
        return self._on_progress

    @on_progress.setter
    def on_progress(self, listener: ProgressListener | None) -> None:
        check_progress_listener(listener)
        self._on_progress = listener

    @property
    def name(self) -> str:
        """Name of the file, without folders: for a received message, the one that the sender's file had.

        It is safe to use in a folder, whatever the sender put there.
        """
        if self._body is UNREAD:
            return self._begin()[0]
        return safe_name(self._own().name)

    @property
    def size(self) -> int:
        """Bytes of the file; of a file to be sent, those that it has now."""
        if self._body is UNREAD:
            return self._begin()[1]
        return _size_of(str(self._own()))

    def open(self) -> BinaryIO:
        """Open the file for reading. Close what is returned."""
        return open(self._received().path if self._body is UNREAD else self._own(), "rb")

    def save(self, to: str | os.PathLike[str]) -> Path:
        """Keep the file at another path, or in a folder under its own name, and return the path.

        What is there is replaced. Within a file system this takes no time, unless several consumers got the file;
        otherwise it is copied: from asyncio, use `await asyncio.to_thread(message.save, path)`.
        """
        target = Path(to)
        if target.is_dir():
            target /= self.name
        source = self._received().source if self._body is UNREAD else str(self._own())
        if isinstance(source, StoredFile):
            source.save(target)
        else:
            copy(source, target)
        return target

    def _own(self) -> Path:
        path: Path | None = self._body
        if path is None:
            raise MessageFormatError("a FileMessage without a file: set its path")
        return path

    def _begin(self) -> tuple[str, int]:
        """Return name and size of a received file, also if the file itself was not received."""
        body = self._encoded_body
        if isinstance(body, FileBody):
            return body.name, body.size
        return decode_begin(body or b"")

    def _received(self) -> FileBody:
        body = self._encoded_body
        if not isinstance(body, FileBody):
            raise MessageFormatError("the file of this message was not received")
        return body

    def _get_body(self) -> Any:
        return self.path

    def _preview(self) -> str:
        if self._body is None:
            return "no file"
        name = f"'{shortened(self.name, _SHOWN_CHARACTERS_MAX)}'"
        try:
            return f"{name} of {counted(self.size, 'byte')}"
        except (ResourceAllocationError, ValueError):  # no file, or no name of one, which only a send refuses
            return name

    def _prepare(self) -> None:
        self._on_progress = None

    def _load_body(self) -> None:
        pass

    def _encode_body(self) -> FileBody:
        if self._body is UNREAD:
            received = self._received()
            body = make_body(received.source, received.size, received.name)
        else:
            own = self._own()
            stored = own.file if isinstance(own, ReceivedPath) else None
            body = make_body(stored or os.path.abspath(own), _size_of(str(own)), safe_name(own.name))
        body.on_progress = self._on_progress
        return body


def _size_of(path: str) -> int:
    """Return the size of a regular file. Raise ResourceAllocationError if it cannot be read."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise ResourceAllocationError(f"cannot read the file of a message: {error}", linked_exception=error) from error
    if not stat.S_ISREG(found.st_mode):
        raise MessageFormatError(f"path={path!r}: expected a regular file")
    return found.st_size
