"""What BytesMessage and StreamMessage share: a body that is first written, then read from its start."""

from typing import cast

from .errors import MessageNotReadableError, MessageNotWriteableError
from .message import UNREAD, Message


class SequentialMessage(Message):
    """Write-only when new, read-only once received or `reset`.

    While it is written the body is bytes as long as there was one write, and then a bytearray. While it is read it is
    bytes.
    """

    __slots__ = ()
    _new_body = b""

    def reset(self) -> None:
        """End writing; reading begins at the start."""
        self._encode_body()
        self._is_body_read_only = True
        self._position = 0

    def _readable(self) -> bytes:
        if not self._is_body_read_only:
            raise MessageNotReadableError("this body is being written: reset() makes it readable")
        if self._body is UNREAD:
            self._body = self._encoded_body
        return cast(bytes, self._body)

    def _write(self, data: bytes) -> None:
        if self._is_body_read_only:
            raise MessageNotWriteableError("this body is read-only until it is cleared")
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
        if self._body is UNREAD:
            self._body = self._encoded_body
        elif type(self._body) is bytearray:
            self._body = bytes(self._body)
        return cast(bytes, self._body)
