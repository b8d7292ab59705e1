"""The `create_..._message` calls, which sessions and contexts have in common."""

from .bytes_message import BytesMessage
from .destination import Queue, Topic
from .map_message import MapMessage
from .message import Message
from .object_codec import ObjectCodec
from .object_message import ObjectMessage
from .stream_message import StreamMessage
from .text_message import TextMessage


class MessageFactory:
    """They touch memory only, and so are the same whichever way one waits."""

    def _check_usable(self) -> ObjectCodec:
        """IllegalStateError once it is closed; how it makes bytes of objects."""
        raise NotImplementedError

    def create_message(self) -> Message:
        self._check_usable()
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        self._check_usable()
        return TextMessage(text)

    def create_bytes_message(self) -> BytesMessage:
        self._check_usable()
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        self._check_usable()
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        self._check_usable()
        return StreamMessage()

    def create_object_message(self, object: object = None) -> ObjectMessage:  # noqa: A002
        return ObjectMessage(object, self._check_usable())

    def create_topic(self, name: str) -> Topic:
        self._check_usable()
        return Topic(name)

    def create_queue(self, name: str) -> Queue:
        self._check_usable()
        return Queue(name)
