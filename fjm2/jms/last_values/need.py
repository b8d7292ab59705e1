"""The room that last values need at keepers."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from fjm2.messages.files.file_message import FileMessage
from fjm2.messages.message import Message, snapshot

_HEAD_BYTES: Final = 200
"""Bytes of a frame besides its body, as an estimate."""
_OTHER_BYTES: Final = 1000
"""Bytes of a body that is encoded later, as an estimate."""


class Need(NamedTuple):
    """Values, and the KiB that they take."""

    values: int
    kib: int

    def covers(self, other: "Need") -> bool:
        """Return True if there is as much of both."""
        return self.values >= other.values and self.kib >= other.kib

    def without(self, other: "Need") -> "Need":
        """Return the rest, which must not be less than nothing."""
        return Need(self.values - other.values, self.kib - other.kib)

    def at_most(self, other: "Need") -> "Need":
        """Return the smaller part of each."""
        return Need(min(self.values, other.values), min(self.kib, other.kib))


NOTHING: Final = Need(0, 0)
"""Need of a removal."""


def need_of(body: object) -> Need:
    """Return the need of a message with this body, which is none if it removes a value: its body has no bytes."""
    if isinstance(body, Message) and not isinstance(body, FileMessage):
        body = snapshot(body)[3]
    if body is None:
        return NOTHING
    size = len(body) if isinstance(body, str | bytes | bytearray | memoryview) else _OTHER_BYTES
    if isinstance(body, dict) and not body:
        size = 0
    return Need(1, (size + _HEAD_BYTES + 1023) // 1024) if size else NOTHING


def need_of_all(bodies: Iterable[object]) -> Need:
    """Return the need of messages with these bodies."""
    needs = [need_of(body) for body in bodies]
    return Need(sum(need.values for need in needs), sum(need.kib for need in needs))
