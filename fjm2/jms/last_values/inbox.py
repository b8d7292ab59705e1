"""The messages of a consumer that gets last values first. Live messages wait behind them."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from time import time, time_ns
from typing import Any, Final

from fjm2.base.ledger import Ledger
from fjm2.bus.inbox import ConsumerSettings, Delivery, Inbox, Received, is_expired
from fjm2.bus.lane import LANE_OF_PRIORITY
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.bus.routing import targets
from fjm2.bus.routing.targets import ReceivedRun
from fjm2.cell.wire.last_values import ListedValue, Order
from fjm2.messages.destination import Destination, TopicPattern
from fjm2.messages.errors import JMSError, MessageFormatError
from fjm2.messages.frame import Frame, is_sent_to, look_up, name_of, with_properties
from fjm2.messages.header import CONNECTION_ID, FRAME_BYTES, HEADER, MARKS_AT, PRIORITY, RETAINED, Header
from fjm2.messages.last_values.retained import STAMPS, read_retained
from fjm2.messages.ledgers.ledger_number import LedgerNumber, ledger_number_of
from fjm2.messages.properties import encode_properties
from fjm2.messages.selector import Selector

LAST_VALUE: Final = "JMS_FJM2_LastValue"
"""Property of a message that is a last value: it was sent before its consumer was there."""
KNOWN_MAX: Final = 400_000
"""Most values of which the consumer knows how new they are: more than keepers keep. It forgets the oldest then."""
_HELD_PARTS: Final = 4
"""Multiple of its limits that the consumer holds of live messages before it makes senders wait, as long as it does not
know which values there are: the answers of keepers would wait behind those senders' messages."""
_FLAG: Final = encode_properties({LAST_VALUE: True})
_NO_NUMBER: Final = LedgerNumber(0, 0, 0)


class LastValue(targets.Received):
    """A message that is a last value."""

    __slots__ = ()

    def behind(self, gap: Gap) -> "LastValue":
        return LastValue(self.head, self.body, self.header, self.sender_id, gap)


class LastValuesInbox(Inbox):
    """An inbox that gets last values from elsewhere, and then what the router delivers."""

    __slots__ = (
        "_change",
        "_gap",
        "_known",
        "_values",
        "failure",
        "is_held",
        "is_listing",
        "learns",
        "on_close",
        "on_value_room",
    )

    def __init__(
        self,
        destination: Destination,
        selector: Selector | None,
        left_out: int | None,
        settings: ConsumerSettings,
        on_room: Callable[[], None],
        on_full: Callable[[Inbox, Loss | None], None],
    ) -> None:
        super().__init__(destination, selector, left_out, settings, on_room, on_full)
        self.is_held = True
        """True while live messages wait until all values have come."""
        self.is_listing = True
        """True while it is not known which values there are."""
        self.learns = True
        """True while values may come: live messages tell then which of them are old."""
        self.failure: JMSError | None = None
        """Error of each receive: the values did not come."""
        self.on_value_room: Callable[[], None] = lambda: None
        """Called when a message was released while values are still to come."""
        self.on_close: Callable[[], object] = lambda: None
        self._values: deque[Received] = deque()
        self._known: dict[bytes, Order] = {}
        """Newest message of each value, as far as it matters."""
        self._gap: Gap | None = None
        """Gap before a message that was left out. The next one shows it."""
        self._change = asyncio.Event()
        """Set when there may be something to receive for a caller that does not wait."""

    # Live messages

    def deliver(self, received: Any) -> None:
        if received.head[MARKS_AT] & RETAINED and not self._note_live(received.head, received.header):
            if received.gap is not None:
                self._gap = max(received.gap, self._gap or received.gap)
            return
        if self._gap is not None:
            received, self._gap = received.behind(self._gap), None
        super().deliver(received)
        if self.is_full and self.is_listing and self.is_held:
            settings = self.settings
            is_within = self.held <= _HELD_PARTS * settings.messages_max
            self.is_full = not (is_within and self.held_bytes <= _HELD_PARTS * settings.bytes_max)

    def deliver_run(self, run: ReceivedRun) -> None:
        for received in run.messages():
            self.deliver(received)

    def _note_live(self, head: bytes, header: Header) -> bool:
        """Note a live message that is a value. Return False if the consumer has got it already, or a newer one."""
        found = read_retained(head, header)
        if found is None:
            return True
        STAMPS.note(found.stamp, time_ns() // 1000)
        number = ledger_number_of(head, header) or _NO_NUMBER
        ledger = Ledger(number.producer_id, number.producer_epoch, LANE_OF_PRIORITY[header[PRIORITY]])
        order = Order(found.stamp, ledger, number.sequence)
        known = self._known.get(found.identity)
        if known is not None and order <= known:
            return False
        if known is not None or self.learns:
            self._note(found.identity, order)
        return True

    def _note(self, identity: bytes, order: Order) -> None:
        self._known[identity] = order
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    # Values

    def lacks(self, value: ListedValue) -> bool:
        """Return True if the consumer has not got a value, nor a newer one."""
        known = self._known.get(value.identity)
        return known is None or known < value.order

    @property
    def value_room(self) -> tuple[int, int]:
        """Number of values that the consumer takes now, and their bytes."""
        least = 0 if self._values or self.is_closed else 1
        messages = self.settings.messages_max - self.held
        return max(least, messages), max(0, self.settings.bytes_max - self.held_bytes)

    def take_value(self, frame: Frame, value: ListedValue) -> None:
        """Take a value that was asked for, unless the consumer does not want it."""
        buffer, start, body, end, _ = frame
        if self.is_closed or not self.lacks(value):
            return
        self._note(value.identity, value.order)
        STAMPS.note(value.order.stamp, time_ns() // 1000)
        if not self._wants(frame):
            return
        parts = buffer[start:body], buffer[body:end]
        head, content = with_properties(parts, lambda properties: _FLAG + properties)
        received = LastValue(head, content, HEADER.unpack_from(head), 0, None)
        if is_expired(received, time() * 1000):
            return
        self.messages_received += 1
        self.held += 1
        self.held_bytes += received.header[FRAME_BYTES]
        self._values.append(received)
        self._tell()

    def _wants(self, frame: Frame) -> bool:
        buffer, start, _, _, header = frame
        if self.left_out == header[CONNECTION_ID]:
            return False
        try:
            if isinstance(self.destination, TopicPattern):
                if not self.destination.matches(name_of(buffer, start, header)):
                    return False
            elif not is_sent_to(buffer, start, header, self.destination):
                return False
            return self.selector is None or self.selector.evaluate(partial(look_up, buffer, start, header))
        except MessageFormatError:
            self.note_loss(Loss.UNSELECTABLE)
            return False

    def go_live(self) -> None:
        """Deliver live messages from now on."""
        self.is_held = self.is_listing = False
        self._tell()

    def fail(self, failure: JMSError) -> None:
        """Let each receive fail: what a consumer is to get first cannot be got."""
        self.failure = failure
        self._change.set()
        if self.wake is not None and self.listener is None:
            self.wake()

    def _tell(self) -> None:
        self._change.set()
        if self.wake is not None and self.has_waiting():
            self.wake()

    async def caught_up(self) -> None:
        """Wait until live messages are delivered. Raise the error that prevents it."""
        while self.is_held and not self.is_closed:
            self.check()
            self._change.clear()
            await self._change.wait()
        self.check()

    def check(self) -> None:
        """Raise the error of a consumer that cannot get its values."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    @property
    def is_settling(self) -> bool:
        return self.is_held and not self._values and self.failure is None and not self.is_closed

    async def settled(self) -> None:
        while self.is_settling:
            self._change.clear()
            await self._change.wait()

    # The inbox

    def pop(self) -> Received | None:
        if self._values:
            return self._values.popleft()
        return None if self.is_held else super().pop()

    def pop_again(self) -> Delivery | None:
        self.check()
        return super().pop_again()

    def put_back(self, received: Received) -> None:
        if isinstance(received, LastValue):
            self._values.appendleft(received)
        else:
            super().put_back(received)

    def release(self, received: Received) -> None:
        super().release(received)
        if self.is_held:
            self.on_value_room()

    def has_waiting(self) -> bool:
        if self.failure is not None:
            return False
        return bool(self.again or self._values) or (not self.is_held and super().has_waiting())

    @property
    def _waiting(self) -> int:
        return len(self._values) + super()._waiting

    def close(self) -> None:
        super().close()
        self._change.set()
        self.on_close()
