"""Frames of many messages, laid end to end. Nothing here needs numpy, which is loaded when it is needed first."""

from collections.abc import Iterator
from typing import Final

from ..destination import Destination
from ..frame import Frame, Parts, body_place
from ..header import HEADER

ARRAY_MESSAGES_MAX: Final = 4096
"""Greatest number of frames of an array: a millisecond or so of work."""


class FrameArray:
    """Frames of messages to one destination, laid end to end."""

    __slots__ = ("pieces", "size", "starts")

    def __init__(self, pieces: list[bytes], starts: list[int], size: int) -> None:
        self.pieces = pieces
        """Frames in pieces: one for all, or as many for each, of which the last is its body. They are joined where they
        are sent, with what was sent before."""
        self.starts = starts
        """Offsets in `data` at which the frames begin."""
        self.size = size
        """Bytes of all frames."""

    @property
    def data(self) -> bytes:
        """Frames laid end to end."""
        if len(self.pieces) != 1:
            self.pieces = [b"".join(self.pieces)]
        return self.pieces[0]

    def __len__(self) -> int:
        return len(self.starts)

    def frames(self) -> Iterator[Frame]:
        """Return the frames one by one, as a reader of the stream would."""
        data = self.data
        for start, end in zip(self.starts, [*self.starts[1:], self.size], strict=True):
            header = HEADER.unpack_from(data, start)
            yield data, start, start + body_place(header), end, header

    def parts(self) -> Iterator[Parts]:
        """Return the frames one by one, each in two parts."""
        for data, start, body, end, _ in self.frames():
            yield data[start:body], data[body:end]


class FrameSettings:
    """Everything that the headers of all messages of a batch have in common."""

    __slots__ = (
        "delivery_delay",
        "destination",
        "expiration",
        "flags",
        "kind",
        "priority",
        "sections",
        "timestamp",
    )

    def __init__(
        self,
        destination: Destination,
        kind: int,
        flags: int,
        priority: int,
        timestamp: int,
        expiration: int,
        sections: bytes,
        delivery_delay: int = 0,
    ) -> None:
        self.destination = destination
        self.kind = kind
        self.flags = flags
        self.priority = priority
        self.timestamp = timestamp
        self.expiration = expiration
        self.sections = sections
        """Encoded optional sections."""
        self.delivery_delay = delivery_delay
        """Delivery delay in milliseconds, which is one of the sections."""
