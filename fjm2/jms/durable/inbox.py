"""Messages of a durable subscription that its consumer holds, and which of them it is done with."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, cast

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.bus.inbox import ConsumerSettings, Delivery, Inbox, Received
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.bus.routing import targets
from fjm2.bus.routing.targets import ReceivedRun
from fjm2.messages.destination import Topic
from fjm2.messages.errors import MessageFormatError
from fjm2.messages.files.parts import BEGIN, decode_begin, decode_part
from fjm2.messages.frame import Frame, is_sent_to, look_up
from fjm2.messages.header import CONNECTION_ID, FILE, FRAME_BYTES, KIND, Header
from fjm2.messages.selector import Selector

from .lease import Lease
from .repeats import Repeats

MESSAGES_MAX: Final = 16_384
"""Most messages that a durable consumer holds, whatever its settings allow. Beyond, a keeper holds them for it."""
_FRAME_BYTES_MIN: Final = 1024
"""Size of messages that have not come yet, as an estimate: larger ones are taken into account when they are here."""


class DurableReceived(targets.Received):
    """A message of a durable subscription."""

    __slots__ = ("ledger", "life", "sequence")

    def __init__(self, frame: Frame, ledger: Ledger, sequence: int, life: int) -> None:
        # Without a call of the other constructor: it would take a good part of the time.
        buffer, start, body, end, self.header = frame
        self.head, self.body = buffer[start:body], buffer[body:end]
        self.sender_id, self.gap = 0, None
        self.ledger = ledger
        self.sequence = sequence
        self.life = life
        """Life of the inbox in which it came."""

    def behind(self, gap: Gap) -> "DurableReceived":
        raise AssertionError(f"{gap}: nothing is missing in a durable subscription")


class DurableInbox(Inbox):
    """The messages that a durable consumer holds.

    A message that the session is done with counts as done, and so do those that the consumer does not want. The owner
    takes what is done, and has the cell acknowledge it.

    The client gets messages in the order in which they came, whether they are flagged as delivered before or not: those
    of an earlier life of an outbox may wait here without a flag when those of the next one come with it.
    """

    __slots__ = (
        "_done",
        "_hold",
        "_life",
        "_repeats",
        "_settling",
        "done_count",
        "late_count",
        "lease",
        "on_done",
        "on_file",
    )

    def __init__(
        self,
        destination: Topic,
        selector: Selector | None,
        left_out: int | None,
        settings: ConsumerSettings,
        on_room: Callable[[], None],
        on_full: Callable[[Inbox, Loss | None], None],
    ) -> None:
        """Call `on_room` when half of the room is free again, and `on_full` with each kind of loss."""
        bounded = replace(settings, messages_max=min(settings.messages_max, MESSAGES_MAX), block_s=inf)
        super().__init__(destination, selector, left_out, bounded, on_room, on_full)
        self.on_done: Callable[[bool], None] = lambda _: None
        """Called when something is done. The argument is True if the client is done with it, and False if the consumer
        did not want it."""
        self.on_file: Callable[[str, int], None] = lambda _name, _size: None
        """Called with name and size of a file that the consumer wanted, and does not get: keepers do not keep files."""
        self.done_count = 0
        """Messages that are done since `take_done`."""
        self._done: dict[Ledger, RangeSet] = {}
        self.late_count = 0
        """Messages that the client was done with when they were to come again, since `begin_life`."""
        self._settling: asyncio.Future[None] | None = None
        self.lease = Lease(lambda: None)
        """Lease of the session, after whose end nothing is delivered until `end_hold`."""
        self._hold: asyncio.Future[None] | None = None
        """Future of the end of the hold that somebody waits for; None if nobody does."""
        self._life = 1
        self._repeats = Repeats()

    # The subscription.

    @property
    def room(self) -> int:
        """Number of messages that the consumer can take."""
        if self.is_closed:
            return 0
        messages = self.settings.messages_max - self.held
        left = self.settings.bytes_max - self.held_bytes
        size = max(_FRAME_BYTES_MIN, self.held_bytes // max(self.held, 1))
        return max(0, min(messages, left // size))

    def take_frames(self, ledger: Ledger, first: int, frames: Sequence[Frame], *, is_redelivered: bool) -> None:
        """Take frames with consecutive sequences of a ledger. They may have been delivered before."""
        unwanted = 0
        deliver = self._deliver_again if is_redelivered else self.deliver
        for sequence, frame in enumerate(frames, first):
            if not self._wants(frame):
                self._note_done(ledger, sequence)
                unwanted += 1
            elif not ledger.producer_epoch or self._is_new(frame[4], ledger, sequence):
                deliver(DurableReceived(frame, ledger, sequence, self._life))
        if unwanted:
            self.on_done(False)
        if not self.room:
            self.is_full = True  # so that `on_room` tells when the cell may go on

    def _is_new(self, header: Header, ledger: Ledger, sequence: int) -> bool:
        """Return False if an outbox has sent a message again that the consumer got before."""
        if self._repeats.is_done(header):
            self._note_done(ledger, sequence)
            self.on_done(False)
            return False
        return self._repeats.is_new(header, ledger, sequence)

    def _wants(self, frame: Frame) -> bool:
        buffer, start, _, _, header = frame
        if self.left_out == header[CONNECTION_ID] or not is_sent_to(buffer, start, header, self.destination):
            return False
        try:
            is_selected = self.selector is None or self.selector.evaluate(partial(look_up, buffer, start, header))
            if is_selected and header[KIND] == FILE:
                self._tell_file(frame)
        except MessageFormatError:
            self.note_loss(Loss.UNSELECTABLE)
            return False
        return is_selected and header[KIND] != FILE

    def _tell_file(self, frame: Frame) -> None:
        """Tell of a file by its first frame. Raise MessageFormatError if it is malformed."""
        buffer, start, body, end, header = frame
        part = decode_part(buffer, start, header)
        if part is None or part.form == BEGIN:
            self.on_file(*decode_begin(buffer[body:end]))

    def _deliver_again(self, received: Received) -> None:
        """Add a message that may have been delivered before, behind all that wait: they are to be delivered again, too,
        but for the first time."""
        while (waiting := super().pop()) is not None:
            self.again.append(Delivery(waiting, self, 1, 0, self.gap_before(waiting)))
        self.messages_received += 1
        self.held += 1
        self.held_bytes += received.header[FRAME_BYTES]
        self.again.append(Delivery(received, self, 2, 0, None))
        if self.wake is not None:
            self.wake()

    def begin_life(self) -> None:
        """Begin anew: the cell gives everything again that it does not know as acknowledged."""
        self._life += 1
        self._done.clear()
        self._repeats.clear()
        self.done_count = 0
        self.end_settling(self._settling)
        for delivery in self.again:
            self.forgo(delivery.received)
        self.again.clear()
        while (received := super().pop()) is not None:
            self.forgo(received)

    def is_late(self, received: Received) -> bool:
        """Return True if a message was delivered in an earlier life. It comes again."""
        return cast(DurableReceived, received).life != self._life

    # Messages that are done.

    def release(self, received: Received) -> None:
        super().release(received)
        if self.is_late(received):
            self.late_count += 1
            return
        mine = cast(DurableReceived, received)
        self._note_done(mine.ledger, mine.sequence)
        if mine.ledger.producer_epoch:
            for place in self._repeats.finish(mine.header):
                self._note_done(*place)
        self.on_done(True)

    def release_run(self, run: ReceivedRun) -> None:
        raise AssertionError(f"{run}: a durable consumer gets no runs")

    def forgo(self, received: Received) -> None:
        super().release(received)

    def _note_done(self, ledger: Ledger, sequence: int) -> None:
        done = self._done.get(ledger)
        if done is None:
            done = self._done[ledger] = RangeSet()
        done.add(sequence, sequence + 1)
        self.done_count += 1

    def take_done(self) -> dict[Ledger, RangeSet]:
        """Return what is done since the last call."""
        done, self._done = self._done, {}
        self.done_count = 0
        return done

    # Settling: the next message waits until the acknowledgement of the one before is safe.

    @property
    def is_settling(self) -> bool:
        return self._settling is not None or not self.lease.allows()

    def begin_settling(self) -> None:
        """Deliver nothing until `end_settling`, which names the `settling` that begins now."""
        if self._settling is None:
            self._settling = asyncio.get_running_loop().create_future()

    @property
    def settling(self) -> "asyncio.Future[None] | None":
        """Future of the present settling; None if there is none."""
        return self._settling

    def end_settling(self, settling: "asyncio.Future[None] | None") -> None:
        """Deliver messages again, unless another message settles by now."""
        if settling is not None and settling is self._settling:
            self._settling = None
            settling.set_result(None)
            if self.wake is not None and self.has_waiting():
                self.wake()

    def end_hold(self) -> None:
        """Deliver messages again: the lease was extended, or this is a new life."""
        hold, self._hold = self._hold, None
        if hold is not None:
            hold.set_result(None)
        if self.wake is not None and self.has_waiting():
            self.wake()

    def may_deliver(self, received: Received) -> bool:
        """Return False for a message that was taken, and has to be given back now instead of being delivered. Any
        thread may ask."""
        return not self.lease.has_ended and not self.is_late(received)

    def close(self) -> None:
        super().close()
        self.end_settling(self._settling)
        self.end_hold()

    async def settled(self) -> None:
        while self.is_settling and not self.is_closed:
            if self._settling is None and self._hold is None:
                self._hold = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._settling or cast("asyncio.Future[None]", self._hold))

    def pop(self) -> Received | None:
        if self.again:
            return None  # that comes first, as it came first
        return super().pop() if self._settling is None and self.lease.allows() else None

    def pop_again(self) -> Delivery | None:
        if self.is_settling:
            return None
        while (delivery := super().pop_again()) is not None:
            if not self.is_late(delivery.received):
                return delivery
            self.forgo(delivery.received)  # the cell gives it again
        return None

    def has_waiting(self) -> bool:
        return super().has_waiting() and not self.is_settling


class OneByOneInbox(DurableInbox):
    """A durable consumer whose session acknowledges each message before it takes the next."""

    __slots__ = ()

    is_shared = True
