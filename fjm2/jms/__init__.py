"""JMS over NORM: the names of Jakarta Messaging in Python spelling."""

from fjm2.bus.completions import CompletionListener
from fjm2.bus.errors import (
    BusError,
    ConsumerFullError,
    ListenerError,
    MessagesDroppedError,
    MessagesExpiredError,
    MessagesLostError,
    UnconfirmedError,
)
from fjm2.bus.inbox import MessageListener, Overflow
from fjm2.bus.statistics import (
    BusStatistics,
    ConnectionStatistics,
    ConsumerStatistics,
    ProducerStatistics,
    SessionStatistics,
)
from fjm2.messages.bytes_message import BytesMessage
from fjm2.messages.delivery import (
    DEFAULT_DELIVERY_DELAY,
    DEFAULT_DELIVERY_MODE,
    DEFAULT_PRIORITY,
    DEFAULT_TIME_TO_LIVE,
    DeliveryMode,
)
from fjm2.messages.destination import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic, TopicPattern
from fjm2.messages.errors import (
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
    NoReplyError,
    NullValueError,
    NumberFormatError,
    ResourceAllocationError,
    TransactionInProgressError,
    TransactionRolledBackError,
)
from fjm2.messages.files.file_message import FileMessage, FileProgress, ProgressListener
from fjm2.messages.foreign import MessageProtocol
from fjm2.messages.map_message import MapMessage
from fjm2.messages.message import Message
from fjm2.messages.object_codec import ObjectCodec, PickleCodec, SafeCodec
from fjm2.messages.object_message import ObjectMessage
from fjm2.messages.properties import Properties, PropertyColumn
from fjm2.messages.selector import Selector
from fjm2.messages.stream_message import StreamMessage
from fjm2.messages.text_message import TextMessage
from fjm2.messages.types import Byte, Char, Double, Float, Int, Long, PropertyValue, Short

from .batches.incoming import Batch, Batches
from .connection import Connection, ExceptionListener
from .consumer import JMSConsumer, MessageConsumer
from .context import JMSContext
from .factory import ConnectionFactory
from .jms_producer import JMSProducer
from .metadata import ConnectionMetaData
from .producer import MessageOptions, MessageProducer
from .requestor import QueueRequestor, TopicRequestor
from .session import Session
from .settings import ConnectionOptions, OverflowName, SessionMode

__all__ = [
    "DEFAULT_DELIVERY_DELAY",
    "DEFAULT_DELIVERY_MODE",
    "DEFAULT_PRIORITY",
    "DEFAULT_TIME_TO_LIVE",
    "Batch",
    "Batches",
    "BusError",
    "BusStatistics",
    "Byte",
    "BytesMessage",
    "Char",
    "CompletionListener",
    "Connection",
    "ConnectionFactory",
    "ConnectionMetaData",
    "ConnectionOptions",
    "ConnectionStatistics",
    "ConsumerFullError",
    "ConsumerStatistics",
    "DeliveryMode",
    "Destination",
    "Double",
    "ExceptionListener",
    "FileMessage",
    "FileProgress",
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
    "MessageOptions",
    "MessageProducer",
    "MessageProtocol",
    "MessagesDroppedError",
    "MessagesExpiredError",
    "MessagesLostError",
    "NoReplyError",
    "NullValueError",
    "NumberFormatError",
    "ObjectCodec",
    "ObjectMessage",
    "Overflow",
    "OverflowName",
    "PickleCodec",
    "ProducerStatistics",
    "ProgressListener",
    "Properties",
    "PropertyColumn",
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
    "TopicPattern",
    "TopicRequestor",
    "TransactionInProgressError",
    "TransactionRolledBackError",
    "UnconfirmedError",
]
