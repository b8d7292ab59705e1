"""Functions that pass messages from a sender to a receiver without a network."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fjm2.jms import Destination, Message, Topic
from fjm2.messages.frame import Frame, FrameReader, FrameWriter
from fjm2.messages.header import PERSISTENT
from fjm2.messages.message import open_message

TOPIC = Topic("prices.eu")
NOW = 1_700_000_000_123
CONNECTION = 0x0123456789ABCDEF
M = TypeVar("M", bound=Message)


def encode(message: Message, destination: Destination = TOPIC, writer: FrameWriter | None = None, **how: int) -> bytes:
    """Return the frame of a message."""
    writer = writer or FrameWriter(CONNECTION)
    return b"".join(
        writer.write(message, destination, how.pop("flags", PERSISTENT), how.pop("priority", 4), NOW, **how)
    )


def read_one(frame: bytes) -> Frame:
    """Return the only frame in a buffer."""
    (only,) = FrameReader().feed(frame, (0,))
    return only


def opened(frame: Frame, delivery_count: int = 1, acknowledge: Callable[[], Awaitable[None]] | None = None) -> Message:
    buffer, start, body, end, header = frame
    return open_message(buffer[start:body], buffer[body:end], header, delivery_count, acknowledge)


def receive(frame: bytes, delivery_count: int = 1) -> Message:
    return opened(read_one(frame), delivery_count)


def passed(message: M, **how: int) -> M:
    """Return a message as its receiver gets it."""
    received = receive(encode(message, **how))
    assert type(received) is type(message)
    return received
