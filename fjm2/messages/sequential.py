"""Common base of BytesMessage and StreamMessage: a body that is written first, then read from its start."""

from .errors import MessageNotReadableError, MessageNotWriteableError
from .message import UNREAD, Message


class SequentialMessage(Message):
    """A message whose body is write-only when new, and read-only once received or `reset`.

    While writing, the body is bytes after the first write, and a bytearray after the second. While reading, it is
    bytes.
    """

    __slots__ = ()
    _new_body = b""

    def reset(self) -> None:
        """Make the body readable, and begin at its start."""
        self._encode_body()
        self._is_body_read_only = True
        self._position = 0

    def _readable(self) -> bytes:
        if not self._is_body_read_only:
            raise MessageNotReadableError("the body is write-only: call reset() to read it")
        if self._body is UNREAD:
            self._body = self._encoded_body
        body: bytes = self._body
        return body

    def _write(self, data: bytes) -> None:
        if self._is_body_read_only:
            raise MessageNotWriteableError("the body is read-only: call clear_body() to write it")
        body = self._body
        if not body:
            self._body = data
            return
        if type(body) is bytes:
            body = self._body = bytearray(body)
        body += data

    def _load_body(self) -> None:
        self._encode_body()

    def _encode_body(self) -> bytes:
        if type(self._body) is not bytes:
            self._body = self._encoded_body if self._body is UNREAD else bytes(self._body)
        body: bytes = self._body
        return body
