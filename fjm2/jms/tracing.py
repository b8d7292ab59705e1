"""Frames that carry the trace context of their send, for connections with telemetry."""

import contextlib
from typing import Final

from fjm2.messages.destination import Destination
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.frame import FrameWriter, Parts, with_properties
from fjm2.messages.message import Message
from fjm2.messages.properties import decode_properties, encode_properties
from fjm2.telemetry import TRACE_PARENT, TRACE_STATE, Telemetry

_NAMES: Final = (TRACE_PARENT, TRACE_STATE)
_MARKS: Final = tuple(name.encode() for name in _NAMES)


class TracingWriter(FrameWriter):
    """Writes frames with a trace context, and records a span for each. The message itself is not changed: if it is sent
    again, it gets another context."""

    __slots__ = ("_telemetry",)
    writes_bodies = False

    def __init__(self, connection_id: int, telemetry: Telemetry) -> None:
        super().__init__(connection_id)
        self._telemetry = telemetry

    def write(
        self,
        message: Message,
        destination: Destination,
        flags: int,
        priority: int,
        timestamp: int,
        expiration: int = 0,
        delivery_delay: int = 0,
    ) -> Parts:
        """Return a frame as `FrameWriter.write` does, with the trace context among its properties."""
        parts = super().write(message, destination, flags, priority, timestamp, expiration, delivery_delay)
        context = self._telemetry.sent(message, destination, len(parts[1]))
        return with_properties(parts, lambda encoded: _replaced(encoded, context)) if context else parts


def _replaced(encoded: bytes, context: dict[str, str]) -> bytes:
    """Return encoded properties with this context in place of any other."""
    if any(mark in encoded for mark in _MARKS):
        with contextlib.suppress(MessageFormatError):  # unreadable ones stay: the first of two equal names counts
            others = decode_properties(encoded, 0, len(encoded))
            encoded = encode_properties({name: value for name, value in others.items() if name not in _NAMES})
    return encode_properties(context) + encoded
