"""JMS over NORM: the names of Jakarta Messaging in Python spelling."""

from .bytes_message import BytesMessage
from .destination import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from .errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JMSRuntimeError,
    JMSSecurityError,
    MessageEOFError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
    NullValueError,
    NumberFormatError,
    ResourceAllocationError,
    TransactionInProgressError,
    TransactionRolledBackError,
)
from .foreign import MessageProtocol
from .map_message import MapMessage
from .message import (
    DEFAULT_DELIVERY_DELAY,
    DEFAULT_DELIVERY_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_TIME_TO_LIVE,
    DeliveryMode,
    Message,
)
from .object_codec import ObjectCodec, PickleCodec, SafeCodec
from .object_message import ObjectMessage
from .selector import Selector
from .stream_message import StreamMessage
from .text_message import TextMessage
from .types import Byte, Char, Double, Float, Int, Long, Short

__all__ = [
    "DEFAULT_DELIVERY_DELAY",
    "DEFAULT_DELIVERY_MODE",
    "DEFAULT_PRIORITY",
    "DEFAULT_TIME_TO_LIVE",
    "Byte",
    "BytesMessage",
    "Char",
    "DeliveryMode",
    "Destination",
    "Double",
    "Float",
    "IllegalStateError",
    "Int",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSError",
    "JMSRuntimeError",
    "JMSSecurityError",
    "Long",
    "MapMessage",
    "Message",
    "MessageEOFError",
    "MessageFormatError",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "MessageProtocol",
    "NullValueError",
    "NumberFormatError",
    "ObjectCodec",
    "ObjectMessage",
    "PickleCodec",
    "Queue",
    "ResourceAllocationError",
    "SafeCodec",
    "Selector",
    "Short",
    "StreamMessage",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Topic",
    "TransactionInProgressError",
    "TransactionRolledBackError",
]
