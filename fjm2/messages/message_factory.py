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
        """A message without a body."""
        self._check_usable()
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """A message whose body is text."""
        self._check_usable()
        return TextMessage(text)

    def create_bytes_message(self) -> BytesMessage:
        """A message whose body is bytes, to be written."""
        self._check_usable()
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        """A message whose body is a mapping, to be filled."""
        self._check_usable()
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """A message whose body is a row of values, to be written."""
        self._check_usable()
        return StreamMessage()

    def create_object_message(self, object: object = None) -> ObjectMessage:  # noqa: A002
        """A message whose body is an object, made into bytes as the connection's codec says."""
        return ObjectMessage(object, self._check_usable())

    def create_topic(self, name: str) -> Topic:
        """The topic of this name. Nothing is made anywhere."""
        self._check_usable()
        return Topic(name)

    def create_queue(self, name: str) -> Queue:
        """The queue of this name. Nothing is made anywhere."""
        self._check_usable()
        return Queue(name)
