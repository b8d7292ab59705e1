"""The gate of a connection that does not know yet whether keepers store its messages."""

import asyncio
from collections.abc import Callable
from typing import Final

from fjm2.messages.batches.frame_array import FrameArray
from fjm2.messages.destination import TEMPORARY_FLAG, Destination
from fjm2.messages.frame import Parts
from fjm2.messages.header import FLAGS, PERSISTENT


class StartGate:
    """Holds back what keepers may have to store, until its owner opens it, or puts another gate in its place.

    NON_PERSISTENT messages pass, and all messages to temporary destinations: keepers never store these.
    """

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max` is that of the gate that may follow."""
        self.on_room: Callable[[], None] = lambda: None
        self.bytes_max: Final = bytes_max
        self.is_waiting = True

    def open(self) -> None:
        """Let everything pass from now on."""
        self.is_waiting = False
        self.on_room()

    def shut(self) -> None:
        """Hold messages back again."""
        self.is_waiting = True

    def holds(self, destination: Destination, flags: int) -> bool:
        """Return True if such a message has to wait. Any thread may ask."""
        return self.is_waiting and bool(flags & PERSISTENT) and not destination.kind_flags & TEMPORARY_FLAG

    def admit(self, destination: Destination, parts: Parts) -> "tuple[Parts, asyncio.Future[None] | None] | None":
        """Let a frame pass as it is, unless it has to wait."""
        return None if self.holds(destination, parts[0][FLAGS]) else (parts, None)

    def admit_many(
        self, destination: Destination, frames: FrameArray
    ) -> "tuple[FrameArray, asyncio.Future[None] | None] | None":
        """Let the frames of a batch pass as they are, unless they have to wait."""
        return None if self.holds(destination, frames.pieces[0][FLAGS]) else (frames, None)
