"""Formats messages for people and programs: bodies, headers, JSON."""

import base64
import itertools
import json
import math
import os
import sys
from datetime import UTC, datetime
from typing import Any, Protocol

from fjm2.base.errors import FJM2Error
from fjm2.base.quantities import one_line
from fjm2.jms import (
    Byte,
    BytesMessage,
    Char,
    FileMessage,
    Float,
    Long,
    MapMessage,
    Message,
    MessageEOFError,
    MessageFormatError,
    ObjectMessage,
    Short,
    StreamMessage,
    TextMessage,
)


class Formatter(Protocol):
    """A function that formats messages. `path` is where the file of a message was saved, if it was."""

    def __call__(self, message: Message, path: str | None = None) -> bytes: ...


_DELIVERY_COUNT = "JMSXDeliveryCount"
"""Message property that is not shown, because a command receives each message once."""
_TYPE_NAMES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    Byte: "byte",
    Short: "short",
    int: "int",
    Long: "long",
    Float: "float",
    float: "double",
    Char: "char",
    str: "string",
    bytes: "bytes",
}
_KINDS = {
    TextMessage: "text",
    BytesMessage: "bytes",
    MapMessage: "map",
    StreamMessage: "stream",
    ObjectMessage: "object",
    FileMessage: "file",
    Message: "message",
}


def formatter_for(as_json: bool, with_headers: bool, no_newline: bool) -> Formatter:
    """Return the function that formats messages. It raises FJM2Error for a message that cannot be read."""
    if as_json:
        return _json_line
    end = b"" if no_newline else b"\n"
    visible = _escaped if sys.stdout.isatty() else bytes

    def show(message: Message, path: str | None = None) -> bytes:
        body = visible(body_bytes(message, path)) + end
        return visible(_headers(message)) + b"\n" + body + b"\n" if with_headers else body

    return show


def _escaped(data: bytes) -> bytes:
    """Return data with control characters escaped, because a terminal would obey them."""
    text = data.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text).encode()


def _values(message: StreamMessage) -> list[Any]:
    values = []
    while True:
        try:
            values.append(message.read_object())
        except MessageEOFError:
            message.reset()
            return values


def _body(message: Message, path: str | None = None) -> Any:
    match message:
        case StreamMessage():
            return _values(message)
        case ObjectMessage():
            return message.object
        case FileMessage():
            return {"name": message.name, "size": message.size} | ({"path": path} if path else {})
        case MapMessage():
            return dict(message)
        case BytesMessage():
            return message.get_body(bytes) or b""
        case TextMessage():
            return message.text
        case _:
            return None


def body_bytes(message: Message, path: str | None = None) -> bytes:
    """Return the body of a text or bytes message unchanged, other bodies as JSON."""
    body = _body(message, path)
    if body is None:
        return b""
    if isinstance(message, TextMessage | BytesMessage):
        return body.encode() if isinstance(body, str) else bytes(body)
    return _dumped(_plain(body))


def _plain(value: Any) -> Any:
    """Return a value in a form that JSON supports: bytes in base64, infinities and NaN as texts."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return str(float(value))
        case dict():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case _:
            return value


def _dumped(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False).encode(errors="backslashreplace")
    except ValueError as error:  # an integer of more digits than Python converts
        raise MessageFormatError(str(error)) from None


def _moment(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError):
        return f"{milliseconds} ms"


def _properties(message: Message) -> dict[str, Any]:
    return {name: value for name, value in sorted(message.properties.items()) if name != _DELIVERY_COUNT}


def _correlation(message: Message) -> str | None:
    encoded = message.correlation_id_bytes
    return message.correlation_id if message.correlation_id is not None or encoded is None else repr(encoded)


def _headers(message: Message) -> bytes:
    """Return the headers and properties that are set, a line for each."""
    lines = {
        "Destination": message.destination,
        "MessageID": message.message_id,
        "Timestamp": _moment(message.timestamp) if message.timestamp else None,
        "Expiration": _moment(message.expiration) if message.expiration else None,
        "DeliveryMode": message.delivery_mode.name,
        "Priority": message.priority,
        "Type": message.type,
        "CorrelationID": _correlation(message),
        "ReplyTo": message.reply_to,
    }
    # A line break in a text would look like the end of a line, and what follows like another header.
    told = [f"JMS{name}: {one_line(str(value))}\n" for name, value in lines.items() if value is not None]
    for name, value in _properties(message).items():
        told.append(f"{name}: {_TYPE_NAMES[type(value)]} {_dumped(_plain(value)).decode()}\n")
    return "".join(told).encode(errors="backslashreplace")


def _json_line(message: Message, path: str | None = None) -> bytes:
    return json_line(described(message, path))


def json_line(told: dict[str, Any]) -> bytes:
    """Return an object as a line of JSON. Raise FJM2Error if JSON cannot have one of its values."""
    return _dumped(told) + b"\n"


def described(message: Message, path: str | None = None) -> dict[str, Any]:
    """Return headers, properties and body of a message in a form that JSON supports. Raise FJM2Error if it cannot be
    read. `path` is where the file of the message was saved, if it was."""
    body, properties = _body(message, path), _properties(message)
    told: dict[str, Any] = {
        "destination": str(message.destination),
        "message_id": message.message_id,
        "timestamp": message.timestamp,
        "expiration": message.expiration,
        "delivery_mode": message.delivery_mode.name,
        "priority": message.priority,
        "redelivered": message.redelivered,
        "type": message.type,
        "correlation_id": message.correlation_id,
        "reply_to": None if message.reply_to is None else str(message.reply_to),
        "properties": _plain(properties),
        "property_types": {name: _TYPE_NAMES[type(value)] for name, value in properties.items()},
        "kind": _KINDS[type(message)],
        "body": _plain(body),
    }
    if message.correlation_id is None and message.correlation_id_bytes is not None:
        told["correlation_id_base64"] = _plain(message.correlation_id_bytes)
    if isinstance(message, MapMessage):
        told["body_types"] = {name: _TYPE_NAMES[type(value)] for name, value in body.items()}
    elif isinstance(message, StreamMessage):
        told["body_types"] = [_TYPE_NAMES[type(value)] for value in body]
    return told


def describe_error(error: FJM2Error, message: Message) -> str:
    return f"{message.message_id or 'a message without id'} cannot be read: {error}"


def saving(show: Formatter, folder: str) -> Formatter:
    """Return a formatter that keeps received files in a folder. Nothing there is overwritten."""

    def save(message: Message, path: str | None = None) -> bytes:
        if isinstance(message, FileMessage) and message.path is not None:
            try:
                target = take_path(folder, message.name)
            except OSError as error:
                raise FJM2Error(f"it cannot be saved in {folder}: {error}") from error
            try:
                message.save(target)
            except OSError as error:
                os.unlink(target)
                raise FJM2Error(f"it cannot be saved as {target}: {error}") from error
            path = target
        return show(message, path)

    return save


def take_path(folder: str, name: str) -> str:
    """Make an empty file, and return its path: a name in a folder, with a number before its extension if it is taken.

    Others may do the same at the same time: all subscribers get a file at once.
    """
    stem, extension = os.path.splitext(name)
    numbered = (f"{stem}-{number}{extension}" for number in itertools.count(2))
    for one in itertools.chain((name,), numbered):
        path = os.path.join(folder, one)
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            continue
        return path
    raise AssertionError("numbers never end")
