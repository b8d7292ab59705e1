"""JMS over NORM: the names of Jakarta Messaging in Python spelling."""

from .bytes_message import BytesMessage
from .connection import Connection
from .consumer import JMSConsumer, MessageConsumer
from .context import JMSContext
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
from .factory import ConnectionFactory
from .foreign import MessageProtocol
from .jms_producer import JMSProducer
from .map_message import MapMessage
from .message import (
    DEFAULT_DELIVERY_DELAY,
    DEFAULT_DELIVERY_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_TIME_TO_LIVE,
    DeliveryMode,
    Message,
)
from .metadata import ConnectionMetaData
from .object_codec import ObjectCodec, PickleCodec, SafeCodec
from .object_message import ObjectMessage
from .outbox import CompletionListener
from .producer import MessageProducer
from .reports import (
    BusError,
    ConsumerFullError,
    ListenerError,
    MessagesDroppedError,
    MessagesLostError,
    UnconfirmedError,
)
from .requestor import QueueRequestor, TopicRequestor
from .selector import Selector
from .session import Session
from .settings import Overflow, SessionMode
from .stream_message import StreamMessage
from .text_message import TextMessage
from .types import Byte, Char, Double, Float, Int, Long, Short

__all__ = [
    "DEFAULT_DELIVERY_DELAY",
    "DEFAULT_DELIVERY_MODE",
    "DEFAULT_PRIORITY",
    "DEFAULT_TIME_TO_LIVE",
    "BusError",
    "Byte",
    "BytesMessage",
    "Char",
    "CompletionListener",
    "Connection",
    "ConnectionFactory",
    "ConnectionMetaData",
    "ConsumerFullError",
    "DeliveryMode",
    "Destination",
    "Double",
    "Float",
    "IllegalStateError",
    "Int",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSConsumer",
    "JMSContext",
    "JMSError",
    "JMSProducer",
    "JMSRuntimeError",
    "JMSSecurityError",
    "ListenerError",
    "Long",
    "MapMessage",
    "Message",
    "MessageConsumer",
    "MessageEOFError",
    "MessageFormatError",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "MessageProducer",
    "MessageProtocol",
    "MessagesDroppedError",
    "MessagesLostError",
    "NullValueError",
    "NumberFormatError",
    "ObjectCodec",
    "ObjectMessage",
    "Overflow",
    "PickleCodec",
    "Queue",
    "QueueRequestor",
    "ResourceAllocationError",
    "SafeCodec",
    "Selector",
    "Session",
    "SessionMode",
    "Short",
    "StreamMessage",
    "TemporaryQueue",
    "TemporaryTopic",
    "TextMessage",
    "Topic",
    "TopicRequestor",
    "TransactionInProgressError",
    "TransactionRolledBackError",
    "UnconfirmedError",
]
