"""JMS over NORM: the names of Jakarta Messaging in Python spelling."""

from .bytes_message import BytesMessage
from .connection import Connection, ExceptionListener
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
from .inbox import MessageListener
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
from .properties import Properties
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
from .statistics import (
    BusStatistics,
    ConnectionStatistics,
    ConsumerStatistics,
    ProducerStatistics,
    SessionStatistics,
)
from .stream_message import StreamMessage
from .text_message import TextMessage
from .types import Byte, Char, Double, Float, Int, Long, PropertyValue, Short

__all__ = [
    "DEFAULT_DELIVERY_DELAY",
    "DEFAULT_DELIVERY_MODE",
    "DEFAULT_PRIORITY",
    "DEFAULT_TIME_TO_LIVE",
    "BusError",
    "BusStatistics",
    "Byte",
    "BytesMessage",
    "Char",
    "CompletionListener",
    "Connection",
    "ConnectionFactory",
    "ConnectionMetaData",
    "ConnectionStatistics",
    "ConsumerFullError",
    "ConsumerStatistics",
    "DeliveryMode",
    "Destination",
    "Double",
    "ExceptionListener",
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
    "MessageListener",
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
    "ProducerStatistics",
    "Properties",
    "PropertyValue",
    "Queue",
    "QueueRequestor",
    "ResourceAllocationError",
    "SafeCodec",
    "Selector",
    "Session",
    "SessionMode",
    "SessionStatistics",
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
