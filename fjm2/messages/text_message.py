"""A message whose body is text."""

from typing import Final, cast

from fjm2.base.quantities import counted

from .header import FLAGS, NULL_BODY, Kind
from .message import UNREAD, Message
from .types import decode_text, to_stored_string

_PREVIEW_CHARACTERS_MAX: Final = 60
_PREVIEW_BYTES_MAX: Final = 4 * _PREVIEW_CHARACTERS_MAX
"""Bytes that hold so many characters, whatever they are. No more of a received text is decoded for `repr`."""


class TextMessage(Message):
    """A message with any Unicode text, or None, which differs from an empty text."""

    __slots__ = ()
    _kind = Kind.TEXT
    """Kind of the message: its body is text."""

    def __init__(self, text: str | None = None) -> None:
        Message.__init__(self)  # `super()` takes a third of the whole call
        if text is not None:
            self._body = text if type(text) is str and text.isascii() else to_stored_string(text)

    @property
    def text(self) -> str | None:
        """Text of the message; None if it has no body."""
        if self._body is UNREAD:
            self._load_body()
        return cast(str | None, self._body)

    @text.setter
    def text(self, value: str | None) -> None:
        self._check_body_writeable()
        self._body = to_stored_string(value)
        self._encoded_body = None

    def _get_body(self) -> str | None:
        return self.text

    def _preview(self) -> str:
        body, encoded = self._body, self._encoded_body
        if body is UNREAD and encoded is not None and len(encoded) > _PREVIEW_BYTES_MAX:
            start = encoded[:_PREVIEW_BYTES_MAX].decode(errors="ignore")
            return f"{start[:_PREVIEW_CHARACTERS_MAX]!r}... of {counted(len(encoded), 'byte')}"
        text = self.text
        if text is None:
            return "no text"
        if len(text) <= _PREVIEW_CHARACTERS_MAX:
            return repr(text)
        return f"{text[:_PREVIEW_CHARACTERS_MAX]!r}... of {counted(len(text), 'character')}"

    def _load_body(self) -> None:
        if self._body is UNREAD and self._encoded_body is not None and self._header is not None:
            self._body = None if self._header[FLAGS] & NULL_BODY else decode_text(self._encoded_body)

    def _encode_body(self) -> bytes | None:
        if self._body is None:
            return None
        if self._encoded_body is None:
            self._encoded_body = self._body.encode()  # it can be: it was checked when it was set
        return self._encoded_body
