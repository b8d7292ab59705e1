"""Headers that the client sets before a send: correlation id, reply-to and type. They are sent in optional sections."""

from typing import Self

from .destination import Destination
from .header import Section, decode_destination, destination_section, make_section
from .types import decode_text, encode_text


class ClientHeaders:
    """The headers that the client sets. They can be encoded as sections, and decoded from them."""

    __slots__ = ("correlation", "reply_to", "type")

    def __init__(self) -> None:
        self.correlation: str | bytes | None = None
        self.reply_to: Destination | None = None
        self.type: str | None = None

    @property
    def correlation_text(self) -> str | None:
        if isinstance(self.correlation, bytes):
            try:
                return self.correlation.decode()
            except UnicodeDecodeError:
                return None
        return self.correlation

    def encode(self) -> bytes:
        parts = []
        if isinstance(self.correlation, str):
            parts.append(make_section(Section.CORRELATION_ID, encode_text(self.correlation)))
        elif self.correlation is not None:
            parts.append(make_section(Section.CORRELATION_BYTES, self.correlation))
        if self.reply_to is not None:
            parts.append(destination_section(self.reply_to))
        if self.type is not None:
            parts.append(make_section(Section.TYPE, encode_text(self.type)))
        return b"".join(parts)

    @classmethod
    def decode(cls, sections: dict[int, bytes]) -> Self:
        headers = cls()
        if Section.CORRELATION_ID in sections:
            headers.correlation = decode_text(sections[Section.CORRELATION_ID])
        else:
            headers.correlation = sections.get(Section.CORRELATION_BYTES)
        if Section.REPLY_TO in sections:
            headers.reply_to = decode_destination(sections[Section.REPLY_TO])
        if Section.TYPE in sections:
            headers.type = decode_text(sections[Section.TYPE])
        return headers
