"""The few NORM header fields that a gateway reads (RFC 5740, sections 4.1 to 4.3), a train at a time."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fjm2.errors import WireError
from fjm2.norm.core.wire import VERSION, Application, Flavor, MessageType, decode

Bytes = NDArray[np.uint8]

COMMON_BYTES: Final = 8
_FEEDBACK_BYTES: Final = 12
_FLAVOR_AT: Final = 12
_TYPES: Final = {VERSION << 4 | kind: kind for kind in MessageType}
# Look these members up once: doing so for every train costs too much.
_NACK, _ACK, _CMD = MessageType.NACK, MessageType.ACK, MessageType.CMD
_COMMAND: Final = VERSION << 4 | MessageType.CMD
_LONG: Final = np.dtype(">u8")
_TYPE_AND_SOURCE: Final = np.uint64(0xFF000000_FFFFFFFF)
"""Mask for the first eight bytes of a message. It keeps type and source, and clears header length and sequence."""


class Head(NamedTuple):
    """Header fields of one datagram."""

    type: MessageType
    source: int
    """Node id of the node that sent the datagram."""
    sender: int | None
    """Node id of the sender that a NACK or ACK is for; None for other messages."""
    is_application: bool
    """True for CMD(APPLICATION)."""

    @property
    def is_feedback(self) -> bool:
        return self.sender is not None


def head_of(data: Bytes) -> Head | None:
    """Return the header fields of the first datagram of a train; None if it is no NORM message."""
    head = data[: _FLAVOR_AT + 1].tobytes()
    if len(head) < COMMON_BYTES:
        return None
    kind = _TYPES.get(head[0])
    if kind is None:
        return None
    source = int.from_bytes(head[4:8])
    if kind is _NACK or kind is _ACK:
        if len(head) < _FEEDBACK_BYTES:
            return None
        return Head(kind, source, int.from_bytes(head[8:12]), False)
    is_application = kind is _CMD and len(head) > _FLAVOR_AT and head[_FLAVOR_AT] == Flavor.APPLICATION
    return Head(kind, source, None, is_application)


def parts_of(data: Bytes, segment_bytes: int) -> Iterator[Bytes]:
    """Yield the train, or its parts of one type and source each: the kernel joins whatever arrives in a row.

    Each command is yielded alone, because commands are not all treated alike. A last datagram that is too short for a
    NORM header is left out.
    """
    if data.size <= segment_bytes:
        yield data
        return
    count = -(-data.size // segment_bytes)
    if data.size - (count - 1) * segment_bytes < COMMON_BYTES:
        count -= 1
        data = data[: count * segment_bytes]
    if segment_bytes < COMMON_BYTES or not count:
        return
    kinds = np.ndarray((count,), _LONG, data, 0, (segment_bytes,)) & _TYPE_AND_SOURCE
    every = kinds.tobytes()
    if data[0] != _COMMAND and every == every[: _LONG.itemsize] * count:
        yield data
        return
    start = 0
    for number in range(1, count + 1):
        if number == count or kinds[number] != kinds[start] or data[start * segment_bytes] == _COMMAND:
            yield data[start * segment_bytes : number * segment_bytes]
            start = number


def application_content(data: Bytes) -> bytes | None:
    """Return the content of a CMD(APPLICATION); None for anything else."""
    try:
        message = decode(data.tobytes())
    except WireError:
        return None
    return message.content if isinstance(message, Application) else None


def application(source: int, sequence: int, content: bytes) -> bytes:
    """Return an encoded CMD(APPLICATION) of the gateway itself. `sequence` is taken modulo 2**16."""
    return Application(
        source_id=source,
        instance_id=1,
        sequence=sequence & 0xFFFF,
        grtt_q=0,
        backoff=4,
        gsize_q=0,
        content=content,
    ).encode()
