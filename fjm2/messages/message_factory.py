"""The `create_..._message` methods that sessions and contexts share."""

import os

from .bytes_message import BytesMessage
from .destination import Queue, Topic
from .files.file_message import FileMessage, ProgressListener
from .map_message import MapMessage
from .message import Message
from .object_codec import ObjectCodec
from .object_message import ObjectMessage
from .stream_message import StreamMessage
from .text_message import TextMessage


class MessageFactory:
    """Makes messages and destinations. It does no I/O, so that the asyncio and blocking APIs share it."""

    __slots__ = ()

    def _check_usable(self) -> ObjectCodec:
        """Return the codec of object messages. Raise IllegalStateError if the session or context is closed."""
        raise NotImplementedError

    def create_message(self) -> Message:
        """Return a message without a body."""
        self._check_usable()
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """Return a message whose body is text."""
        self._check_usable()
        return TextMessage(text)

    def create_bytes_message(self) -> BytesMessage:
        """Return a message whose body is bytes, which the caller writes."""
        self._check_usable()
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        """Return a message whose body is a mapping, which the caller fills."""
        self._check_usable()
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """Return a message whose body is a sequence of values, which the caller writes."""
        self._check_usable()
        return StreamMessage()

    def create_object_message(self, object: object = None) -> ObjectMessage:  # noqa: A002
        """Return a message whose body is an object, encoded by the connection's codec."""
        return ObjectMessage(object, self._check_usable())

    def create_file_message(
        self, path: str | os.PathLike[str] | None = None, on_progress: ProgressListener | None = None
    ) -> FileMessage:
        """Return a message whose body is a file of any size. `on_progress` is called while it is sent."""
        self._check_usable()
        return FileMessage(path, on_progress)

    def create_topic(self, name: str) -> Topic:
        """Return the topic with this name. Nothing is created on the network."""
        self._check_usable()
        return Topic(name)

    def create_queue(self, name: str) -> Queue:
        """Return the queue with this name. Nothing is created on the network."""
        self._check_usable()
        return Queue(name)
