"""Values of every type, and functions that make messages with given bodies."""

from typing import Any

from fjm2.jms import (
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)

KINDS = (Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage)


TYPES = ("boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes")


VALUES: dict[str, Any] = {
    "boolean": True,
    "byte": 12,
    "short": -300,
    "char": "x",
    "int": 70_000,
    "long": -5_000_000_000,
    "float": 0.5,
    "double": 0.1,
    "string": "17",
    "bytes": b"\0\xff",
}


READABLE = {
    "boolean": {"boolean", "string"},
    "byte": {"byte", "short", "int", "long", "string"},
    "short": {"short", "int", "long", "string"},
    "char": {"char", "string"},
    "int": {"int", "long", "string"},
    "long": {"long", "string"},
    "float": {"float", "double", "string"},
    "double": {"double", "string"},
    "string": {"boolean", "byte", "short", "int", "long", "float", "double", "string"},
    "bytes": {"bytes"},
}


AS_TEXT = {
    "boolean": "true",
    "byte": "12",
    "short": "-300",
    "char": "x",
    "int": "70000",
    "long": "-5000000000",
    "float": "0.5",
    "double": "0.1",
    "string": "17",
}


JAVA_NAMES = {"string": "String", "bytes": "byte[]"}


FROM_TEXT: dict[str, Any] = {"boolean": False, "string": "17"}


def expected(kind: str, read: str) -> Any:
    if read == "string" and kind != "string":
        return AS_TEXT[kind]
    return FROM_TEXT.get(read, 17) if kind == "string" else VALUES[kind]


def stream_of(*values: Any) -> StreamMessage:
    message = StreamMessage()
    for value in values:
        message.write_object(value)
    return message


def bytes_of(data: bytes) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(data)
    return message
