"""The publication of a connection with an outbox: PERSISTENT messages go to its disk first."""

from collections.abc import Awaitable
from typing import Final

from fjm2.bus.completions import Receipt, wait_until_stored
from fjm2.bus.confirmation import Confirmation
from fjm2.bus.lane import LANE_OF_PRIORITY
from fjm2.bus.publication import Publication
from fjm2.bus.publishing.publisher import Publisher
from fjm2.messages.batches.frame_array import FrameArray
from fjm2.messages.destination import Destination
from fjm2.messages.errors import IllegalStateError
from fjm2.messages.frame import FRAME_BYTES_MAX, Parts, too_large
from fjm2.messages.header import DELAYED, FILE, FLAGS, KIND, PERSISTENT
from fjm2.messages.ledgers.ledger_number import LEDGER_SECTION_BYTES
from fjm2.outbox.drive.disk_outbox import DiskOutbox

_GRACE_S: Final = 2.0
"""Time beyond the time limit in which the outbox itself tells why it did not take a message."""


class OutboxPublication(Publication):
    """Publishes what is NON_PERSISTENT at once, and leaves the rest to an outbox."""

    is_gated = True

    def __init__(
        self, publisher: Publisher, confirmation: Confirmation, outbox: DiskOutbox, confirm_timeout_s: float
    ) -> None:
        super().__init__(publisher, confirmation)
        self._outbox = outbox
        self._timeout_s = confirm_timeout_s + _GRACE_S

    def holds(self, destination: Destination, flags: int) -> bool:  # noqa: ARG002
        return bool(flags & PERSISTENT)

    def publish(
        self, destination: Destination, priority: int, parts: Parts, flags: int = 0, receipt: Receipt | None = None
    ) -> Awaitable[None] | None:
        """Pass the frame to the outbox. A send ends when the frame is on its disk."""
        head, body = parts
        if not head[FLAGS] & PERSISTENT:
            return super().publish(destination, priority, parts, flags, receipt)
        _check_can_wait(head)
        return self._accept(priority, [head + body], receipt)

    def publish_many(
        self, destination: Destination, priority: int, frames: FrameArray, flags: int, receipt: Receipt | None = None
    ) -> Awaitable[None] | None:
        """Pass the frames to the outbox."""
        if not frames.pieces[0][FLAGS] & PERSISTENT:
            return super().publish_many(destination, priority, frames, flags, receipt)
        _check_can_wait(frames.pieces[0])
        return self._accept(priority, [head + body for head, body in frames.parts()], receipt)

    def _accept(self, priority: int, frames: list[bytes], receipt: Receipt | None) -> Awaitable[None] | None:
        outbox, lane = self._outbox, LANE_OF_PRIORITY[priority]
        longest = max(map(len, frames)) + LEDGER_SECTION_BYTES
        if longest > FRAME_BYTES_MAX:
            raise too_large(longest)
        for frame in frames:
            written = outbox.accept(lane, frame)
        if receipt is None:
            return wait_until_stored(written, self._timeout_s)
        receipt.add_stored(written)
        return None if outbox.has_room else outbox.room()


def _check_can_wait(head: "bytes | memoryview") -> None:
    """Raise IllegalStateError for a file, and for a delayed message: keepers number those in ledgers of their own."""
    if head[KIND] == FILE:
        raise IllegalStateError(
            "a file cannot wait in an outbox: send it with NON_PERSISTENT, or by a connection without outbox="
        )
    if head[FLAGS] & DELAYED:
        raise IllegalStateError(
            "a delayed message cannot wait in an outbox: expected delivery_delay=0, or a connection without outbox="
        )
