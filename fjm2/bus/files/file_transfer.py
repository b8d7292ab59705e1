"""Sends a file as the body of a message: in parts, read as they go."""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Awaitable, Callable, Coroutine
from typing import BinaryIO, Final, Protocol

from fjm2.bus.completions import Receipt
from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError, ResourceAllocationError
from fjm2.messages.files.file_message import FileBody, FileProgress
from fjm2.messages.files.parts import cancel_parts, data_parts
from fjm2.messages.frame import Parts
from fjm2.messages.header import FLAGS, HEADER, HEADER_BYTES, IN_PARTS, PERSISTENT, message_id_of

_PART_BYTES: Final = 64 << 10
"""Data in one frame. Other messages of the lane go between them, so this bounds how long they wait."""
_READ_BYTES: Final = 1 << 20
"""Data that is read at once, in a thread: each call costs some time. It is the memory that a transfer takes."""


class FramePublisher(Protocol):
    """The part of `Publication` that transfers use."""

    @property
    def discards(self) -> int:
        """Number of notices of subscribers that discarded messages."""

    def publish(
        self, destination: Destination, priority: int, parts: Parts, flags: int = 0, receipt: Receipt | None = None, /
    ) -> Awaitable[None] | None: ...

    def doubt_since(self, discards: int) -> None:
        """Let the latest message fail if there were more notices than this when it was begun."""

    def receivers(self, destination: Destination) -> frozenset[int]:
        """Return the nodes of the known subscribers to a destination."""

    def fail_for_dead(self, receivers: frozenset[int]) -> None:
        """Let the latest message fail for those of some receivers that died."""


class FileTransfer:
    """One file on its way to the subscribers."""

    def __init__(
        self,
        publication: FramePublisher,
        check_open: Callable[[], None],
        destination: Destination,
        priority: int,
        parts: Parts,
        body: FileBody,
    ) -> None:
        """Publish frames as long as `check_open` does not raise. `parts` is the first frame."""
        self._publication = publication
        self._publish = publication.publish
        self._check_open = check_open
        self._destination = destination
        self._priority = priority
        self._body = body
        self._head = _flagged(parts[0])
        self._message_id = message_id_of(HEADER.unpack_from(parts[0]))
        self._done = 0
        self._discards = publication.discards
        self._receivers = publication.receivers(destination)

    async def run(self, flags: int, receipt: Receipt | None) -> None:
        """Send the file. It counts as sent, and can be confirmed, with its last part.

        Raise JMSError if the file cannot be read, or not be sent. If the caller is cancelled, so is the transfer:
        subscribers delete what they have.
        """
        try:
            file = await asyncio.to_thread(_open, self._body.path)
        except OSError as error:
            raise _unreadable(error) from error
        with contextlib.closing(file):
            await self._wait(self._publish(self._destination, self._priority, (self._head, bytes(self._body))))
            try:
                await self._send_data(file, flags, receipt)
            except asyncio.CancelledError:
                self._cancel("its send was cancelled")
                raise
            except Exception as error:
                self._cancel(str(error))
                raise

    async def _send_data(self, file: BinaryIO, flags: int, receipt: Receipt | None) -> None:
        size = self._body.size
        while True:
            data = await asyncio.to_thread(_read, file, min(_READ_BYTES, size - self._done))
            self._check_open()
            for start in range(0, max(len(data), 1), _PART_BYTES):
                piece = data[start : start + _PART_BYTES]
                parts = data_parts(self._head, self._done, piece)
                self._done += len(piece)
                if self._done == size:
                    waiting = self._publish(self._destination, self._priority, parts, flags, receipt)
                    if flags & PERSISTENT:
                        self._publication.doubt_since(self._discards)
                        self._publication.fail_for_dead(self._receivers)
                else:
                    waiting = self._publish(self._destination, self._priority, parts, flags & ~PERSISTENT)
                await self._wait(waiting)
                self._check_open()
            self._tell()
            if self._done == size:
                return

    def _tell(self) -> None:
        body = self._body
        if body.on_progress is not None:
            body.on_progress(FileProgress(self._message_id, self._destination, body.name, body.size, self._done))

    @staticmethod
    async def _wait(waiting: Awaitable[None] | None) -> None:
        if waiting is not None:
            await waiting

    def _cancel(self, reason: str) -> None:
        """Tell subscribers that no more will come, if that is still possible."""
        with contextlib.suppress(JMSError):
            parts = cancel_parts(self._head, reason)
            waiting = self._publish(self._destination, self._priority, parts)
            if isinstance(waiting, Coroutine):
                waiting.close()


async def run_and_tell(
    transfer: FileTransfer, flags: int, receipt: Receipt, sent: "asyncio.Future[JMSError | None]"
) -> None:
    """Send a file whose outcome is awaited elsewhere, too."""
    error: JMSError | None = None
    try:
        await transfer.run(flags, receipt)
    except JMSError as failure:
        error = failure
        raise
    except BaseException as failure:
        error = JMSError(f"the file was not sent as a whole: {failure!r}")
        raise
    finally:
        if not sent.done():
            sent.set_result(error)


def _flagged(head: bytes) -> bytes:
    """Return the head of a first frame with the flag of frames that come in parts."""
    fields = list(HEADER.unpack_from(head))
    fields[FLAGS] |= IN_PARTS
    return HEADER.pack(*fields) + head[HEADER_BYTES:]


def _open(path: str) -> BinaryIO:
    """Open a regular file. A pipe that has taken its place must not make the thread wait for a writer."""
    file = open(path, "rb", 0, opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "expected a regular file", path)
    return file


def _read(file: BinaryIO, size: int) -> bytes:
    """Return the next bytes of a file. Raise ResourceAllocationError if there are fewer."""
    pieces = []
    while size:
        try:
            piece = file.read(size)
        except OSError as error:
            raise _unreadable(error) from error
        if not piece:
            raise ResourceAllocationError("the file of a message became shorter while it was sent")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _unreadable(error: OSError) -> ResourceAllocationError:
    return ResourceAllocationError(f"cannot read the file of a message: {error}", linked_exception=error)
