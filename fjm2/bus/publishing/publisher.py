"""The rare tasks of publishing, for all connections of a bus: it opens lanes, notes new topics, and waits for room."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakSet

from fjm2.base.errors import NormError
from fjm2.messages.destination import Destination
from fjm2.messages.errors import IllegalStateError, ResourceAllocationError

from ..confirmation import Confirmation

if TYPE_CHECKING:
    from fjm2.norm import OutgoingStream

    from ..lane import Lane, Lanes
    from ..presence import PresenceTable
    from ..router import Router

_FULL_S = 1.0
"""Longest wait of a publisher for a full subscription of its own process, which the publisher itself may have to
empty."""


class Publisher:
    """The part of publishing that all connections of a bus share."""

    def __init__(
        self,
        lanes: "Lanes",
        router: "Router",
        presence: "PresenceTable",
        on_lane_opened: Callable[[], None],
        on_topic_added: Callable[[], None],
    ) -> None:
        self.lanes = lanes
        self.router = router
        self.presence = presence
        self._on_lane_opened = on_lane_opened
        self._on_topic_added = on_topic_added
        self._has_room = asyncio.Event()
        self._confirmations: WeakSet[Confirmation] = WeakSet()

    def add_confirmation(self, confirmation: Confirmation) -> None:
        """Tell the confirmation of a connection what subscribers discard, as long as the connection lives."""
        self._confirmations.add(confirmation)

    def note_discarded(self, node_id: int) -> None:
        """Note that a subscriber discarded messages of this bus."""
        for confirmation in list(self._confirmations):
            confirmation.note_discarded(node_id)

    def open_lane(self, lane: "Lane", destination: Destination) -> "OutgoingStream":
        """Open a lane for its first message. Raise NormError if that is not possible."""
        if not self.lanes.is_open:
            raise NormError("the bus is closed")
        try:
            stream = lane.open_stream()
        except OSError as error:
            raise NormError(str(error)) from error
        lane.topics.add(destination.frame_hash)
        self.lanes.ignore_own()
        self._on_lane_opened()
        return stream

    def add_topic(self, lane: "Lane", destination: Destination) -> None:
        """Note that a lane also sends to `destination`, so that flow control waits for the subscribers to it."""
        if not lane.wants_all:
            lane.topics.add(destination.frame_hash)
            self._on_topic_added()

    def refuse(self, error: NormError) -> NoReturn:
        """Raise the JMSError that says why a message could not be sent."""
        if not self.lanes.is_open:
            raise IllegalStateError("the connection is closed: create another one") from error
        raise ResourceAllocationError(f"cannot send: {error}", linked_exception=error)

    def wait_for_subscription(self, lane: "Lane") -> Awaitable[None]:
        """Wait up to a second until no subscription of this process is full, then until the lane has room."""
        self._has_room.clear()
        return self._wait_for_subscription(lane)

    async def _wait_for_subscription(self, lane: "Lane") -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FULL_S):
                await self._has_room.wait()
        await self.wait_for_room(lane)

    async def wait_for_room(self, lane: "Lane") -> None:
        """Wait until everything appended to a lane is in its send buffer."""
        if lane.stream is not None:
            try:
                await lane.stream.drain()
            except NormError as error:
                self.refuse(error)

    async def flushed(self) -> None:
        """Wait until everything published so far is in the send buffers of the lanes."""
        for lane in self.lanes.with_streams:
            await self.wait_for_room(lane)

    def resume(self) -> None:
        """Wake publishers that wait for a subscription of this process."""
        self._has_room.set()
