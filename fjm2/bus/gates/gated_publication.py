"""A gate in front of a connection. It sees every frame before the network does. It may change the frame, and decides
when the message counts as sent."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Protocol

from fjm2.base.errors import NormError
from fjm2.messages.batches.frame_array import FrameArray
from fjm2.messages.destination import Destination
from fjm2.messages.errors import JMSError
from fjm2.messages.frame import Parts
from fjm2.messages.header import FLAGS

from ..completions import Receipt, wait_until_stored
from ..confirmation import Confirmation
from ..publication import Publication
from ..publishing.publisher import Publisher
from ..waiting.room import Room

if TYPE_CHECKING:
    from ..lane import Lane


class Gate(Protocol):
    """A hook that decides when messages of a connection count as sent.

    It can do something with each message first, such as number it, write it to a journal, or wait until others have
    stored it.
    """

    on_room: Callable[[], None]
    """Function to call when a frame that was not admitted may be. Set by the publication."""

    @property
    def is_waiting(self) -> bool:
        """True while it is not known which messages have to be stored. Those that `holds` names wait for that, others
        pass them, and senders that need not wait for the outcome go on, as long as there is room."""

    @property
    def bytes_max(self) -> int:
        """Size of the largest array of frames that should be admitted at once, in bytes. While the gate `is_waiting`,
        frames of a lane that take as much wait before their senders do."""

    def holds(self, destination: Destination, flags: int) -> bool:
        """Return True if a message with these flags of its header counts as sent only when a future is done. Any thread
        may ask."""

    def admit(self, destination: Destination, parts: Parts) -> "tuple[Parts, asyncio.Future[None] | None] | None":
        """Take note of a frame just before the network gets it.

        Called once for each frame, in the order of publication. Return the frame to be sent, and a future, which
        messages may share: `send`, the outcome of an asynchronous send, and `commit` wait for it, and pass on the
        JMSError that it may raise. Without a future, the message counts as sent at once. Return None if the frame has
        to wait: it is offered again after `on_room`, before all that follows in its lane. Raise JMSError to refuse the
        message: it is then not sent.
        """

    def admit_many(
        self, destination: Destination, frames: FrameArray
    ) -> "tuple[FrameArray, asyncio.Future[None] | None] | None":
        """Do the same as `admit` for the frames of a batch, all or none."""


class _Held:
    """A frame, or frames of a batch, that the gate has not admitted yet. Awaiting it waits until it is published, and
    raises the JMSError that prevents that."""

    __slots__ = ("destination", "flags", "frames", "priority", "receipt", "room", "sent", "since", "stored")

    def __init__(
        self,
        destination: Destination,
        priority: int,
        frames: Parts | FrameArray | None,
        flags: int,
        receipt: Receipt | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.destination = destination
        self.priority = priority
        self.frames = frames
        """None for a transaction, which begins when the gate no longer waits."""
        self.flags = flags
        self.receipt = receipt
        self.since = loop.time()
        self.sent: asyncio.Future[JMSError | None] = loop.create_future()
        """Done when it is published, with the error that prevented that, or None."""
        self.stored: asyncio.Future[None] | None = None
        self.room: Room | None = None
        """Awaitable of room in the lane, if there was none when it was published."""

    @property
    def size(self) -> int:
        """Bytes of the frames."""
        frames = self.frames
        if frames is None:
            return 0
        return frames.size if isinstance(frames, FrameArray) else len(frames[0]) + len(frames[1])

    def __await__(self) -> Generator[Any, None, None]:
        error = yield from asyncio.shield(self.sent).__await__()
        if error is not None:
            raise error


class GatedPublication(Publication):
    """Publishes the frames of one connection after a gate has admitted them."""

    is_gated = True

    def __init__(
        self,
        publisher: Publisher,
        confirmation: Confirmation,
        gate: Gate,
        confirm_timeout_s: float,
        transactions: int = 0,
    ) -> None:
        """Allow `confirm_timeout_s` seconds for each of the gate's futures, once its message is published."""
        super().__init__(publisher, confirmation, transactions)
        self._gate = gate
        self._confirm_timeout_s = confirm_timeout_s
        self._held: dict[Lane, deque[_Held]] = {lane: deque() for lane in publisher.lanes.all}
        """Frames of each lane that wait for the gate, oldest first."""
        self._held_bytes = dict.fromkeys(publisher.lanes.all, 0)
        gate.on_room = self._release

    def use(self, gate: Gate) -> None:
        """Put another gate in the place of the present one. It gets what that one has not admitted."""
        self._gate.on_room = lambda: None
        self._gate = gate
        gate.on_room = self._release
        self._release()

    @property
    def is_holding(self) -> bool:
        """True if frames wait for the gate."""
        return any(self._held.values())

    def give_up(self, before: float, error: Callable[[], JMSError]) -> float | None:
        """Let everything fail that has waited for the gate since before a time. Return since when the oldest of the
        rest waits; None if there is none."""
        for lane, queue in self._held.items():
            while queue and queue[0].since <= before:
                held = queue.popleft()
                self._held_bytes[lane] -= held.size
                if not held.sent.done():
                    held.sent.set_result(error())
        return min((queue[0].since for queue in self._held.values() if queue), default=None)

    def cleared(self, destination: Destination, priority: int, flags: int) -> Awaitable[None] | None:
        gate = self._gate
        if not (gate.is_waiting and gate.holds(destination, flags)):
            return None
        place = _Held(destination, priority, None, flags, None)
        self._held[self._lane_of_priority[priority]].append(place)
        return place

    def holds(self, destination: Destination, flags: int) -> bool:
        return self._gate.holds(destination, flags)

    def publish(
        self, destination: Destination, priority: int, parts: Parts, flags: int = 0, receipt: Receipt | None = None
    ) -> Awaitable[None] | None:
        """Pass the frame to the gate, then publish it. Without a receipt, the returned awaitable also waits for the
        gate's future.

        Subscribers confirm a message that the gate has a future for in the background: its outcome is that of the
        future.
        """
        held = self._held[self._lane_of_priority[priority]]
        self._open_lane(destination, priority)
        is_behind = held and not self._passes(destination, parts[0][FLAGS])
        admitted = None if is_behind else self._gate.admit(destination, parts)
        if admitted is None:
            return self._hold(_Held(destination, priority, parts, flags, receipt))
        parts, stored = admitted
        if stored is None:
            return super().publish(destination, priority, parts, flags, receipt)
        waiting = super().publish(destination, priority, parts, flags)
        if receipt is None:
            return self._wait_for_both(waiting, stored)
        receipt.add_stored(stored)
        return waiting

    def publish_many(
        self, destination: Destination, priority: int, frames: FrameArray, flags: int, receipt: Receipt | None = None
    ) -> Awaitable[None] | None:
        """Pass the frames to the gate, then publish them. Without a receipt, the returned awaitable also waits for the
        gate's future."""
        if len(frames) > 1 and frames.size > self._gate.bytes_max:
            return self._publish_each(destination, priority, frames, flags, receipt)
        held = self._held[self._lane_of_priority[priority]]
        self._open_lane(destination, priority)
        is_behind = held and not self._passes(destination, frames.pieces[0][FLAGS])
        admitted = None if is_behind else self._gate.admit_many(destination, frames)
        if admitted is None:
            return self._hold(_Held(destination, priority, frames, flags, receipt))
        frames, stored = admitted
        waiting = super().publish_many(destination, priority, frames, flags)
        if stored is None:
            return waiting
        if receipt is None:
            return self._wait_for_both(waiting, stored)
        receipt.add_stored(stored)
        return waiting

    async def _publish_each(
        self, destination: Destination, priority: int, frames: FrameArray, flags: int, receipt: Receipt | None
    ) -> None:
        """Publish the frames of a batch that is larger than the gate's room one by one.

        Each goes out as a batch of one frame, because a receipt of a batch gets the futures of the gate only. With that
        of a single frame, failures to confirm would not be reported.
        """
        own = Receipt() if receipt is None else receipt
        for head, body in frames.parts():
            alone = FrameArray([head + body], [0], len(head) + len(body))
            waiting = self.publish_many(destination, priority, alone, flags, own)
            if waiting is not None:
                await waiting
        if receipt is None:
            for stored in own.stored or ():
                await wait_until_stored(stored, self._confirm_timeout_s)

    def _open_lane(self, destination: Destination, priority: int) -> None:
        """Open the lane before the gate numbers a frame: a number that is not sent would leave a hole for ever."""
        lane = self._lane_of_priority[priority]
        if lane.stream is None:
            try:
                self._publisher.open_lane(lane, destination)
            except NormError as error:
                self._publisher.refuse(error)

    def _passes(self, destination: Destination, flags: int) -> bool:
        """Return True if a message overtakes those that wait."""
        gate = self._gate
        return gate.is_waiting and not gate.holds(destination, flags)

    def _hold(self, held: _Held) -> Awaitable[None]:
        lane = self._lane_of_priority[held.priority]
        self._held[lane].append(held)
        self._held_bytes[lane] += held.size
        if held.receipt is None:
            return self._wait_for_held(held)
        held.receipt.sent = held.sent
        held.receipt.has_room = self._gate.is_waiting and self._held_bytes[lane] <= self._gate.bytes_max
        return held

    def _release(self) -> None:
        """Publish held frames as far as the gate admits them."""
        for lane, queue in self._held.items():
            while queue and self._publish_held(queue[0]):
                self._held_bytes[lane] -= queue.popleft().size

    def _publish_held(self, held: _Held) -> bool:
        """Publish a held frame. Return False if the gate has no room for it yet."""
        destination, priority, frames, flags = held.destination, held.priority, held.frames, held.flags
        if frames is None and self._gate.is_waiting:
            return False
        error: JMSError | None = None
        waiting: Awaitable[None] | None = None
        try:
            self._open_lane(destination, priority)
            if isinstance(frames, FrameArray):
                many = self._gate.admit_many(destination, frames)
                if many is None:
                    return False
                held.stored = many[1]
                waiting = super().publish_many(destination, priority, many[0], flags)
            elif frames is not None:
                one = self._gate.admit(destination, frames)
                if one is None:
                    return False
                held.stored = one[1]
                receipt = held.receipt if held.stored is None else None
                waiting = super().publish(destination, priority, one[0], flags, receipt)
        except JMSError as failure:
            error = failure
        if isinstance(waiting, Coroutine):
            # Nobody has to wait for room in the lane: all that the gate admits at a time fits into the lane's buffer.
            waiting.close()
        elif isinstance(waiting, Room):
            held.room = waiting
        if held.receipt is not None and held.stored is not None:
            held.receipt.add_stored(held.stored)
        if not held.sent.done():
            held.sent.set_result(error)
        return True

    async def _wait_for_both(self, waiting: Awaitable[None] | None, stored: "asyncio.Future[None]") -> None:
        if waiting is not None:
            await waiting
        await wait_until_stored(stored, self._confirm_timeout_s)

    async def _wait_for_held(self, held: _Held) -> None:
        await held
        if held.room is not None:
            await held.room
        if held.stored is not None:
            await wait_until_stored(held.stored, self._confirm_timeout_s)
