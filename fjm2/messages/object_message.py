"""A message whose body is a Python object."""

import builtins
from typing import Final

from fjm2.base.quantities import counted, shortened

from .header import FLAGS, NULL_BODY, Kind
from .message import UNREAD, Message
from .object_codec import SAFE_CODEC, ObjectCodec, ObjectFormat, PickleCodec, SafeCodec

_PREVIEW_CHARACTERS_MAX: Final = 60
"""Characters of the object that `repr` shows."""
_PREVIEW_BYTES_MAX: Final = 4096
"""Longest encoded object that is decoded for `repr`. Of a longer one, only the size is shown."""


class ObjectMessage(Message):
    """A message whose body is a Python object. The object is encoded when it is set, so that later changes to it are
    not sent.

    Each access to `object` decodes a new object. The connection sets `codec` on messages that it creates or receives.
    """

    __slots__ = ("codec",)
    _kind = Kind.OBJECT
    """Kind of the message: its body is an object."""

    codec: ObjectCodec

    # `_body` is the encoded object; None is the null body.

    def __init__(self, object: object = None, codec: ObjectCodec = SAFE_CODEC) -> None:  # noqa: A002
        super().__init__()
        self.codec = codec
        self.object = object

    def _prepare(self) -> None:
        self.codec = SAFE_CODEC

    @property
    def object(self) -> builtins.object:
        """The object, or None. Reading it raises MessageFormatError if it cannot be decoded, and JMSSecurityError if
        the codec refuses it."""
        encoded = self._encode_body()
        return None if encoded is None else self.codec.decode(encoded)

    @object.setter  # noqa: A003
    def object(self, value: builtins.object) -> None:
        self._check_body_writeable()
        self._body = None if value is None else self.codec.encode(value)

    def _get_body(self) -> builtins.object:
        return self.object

    def _preview(self) -> str:
        encoded = self._encode_body()
        if encoded is None:
            return "no object"
        # Decoding anything else, such as a pickle, would run code.
        is_plain = type(self.codec) in (SafeCodec, PickleCodec) and encoded[:1] == bytes((ObjectFormat.SAFE,))
        if not is_plain or len(encoded) > _PREVIEW_BYTES_MAX:
            return f"an object of {counted(len(encoded), 'byte')}"
        return shortened(repr(SAFE_CODEC.decode(encoded)), _PREVIEW_CHARACTERS_MAX)

    def _load_body(self) -> None:
        self._encode_body()

    def _encode_body(self) -> bytes | None:
        if self._body is UNREAD and self._header is not None:
            self._body = None if self._header[FLAGS] & NULL_BODY else self._encoded_body
        body: bytes | None = self._body
        return body
