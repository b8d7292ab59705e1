"""Messages received for a consumer and not yet taken by its session, bounded, and ordered by priority.

A message that the consumer does not get leaves a gap in its place: between two messages of the same connection and
priority. The one behind it is flagged, also if it is not there yet. Until then, the gap is remembered in one of two
places: `gaps` has those in front of all that wait, `_late` those behind all that wait. Messages without gaps pay
nothing for this: while there are late gaps, `deliver` takes the slow path of a full inbox, and at no other time.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from time import time
from typing import Any, Final, Protocol, Self, TypeAlias, cast

from fjm2.base.errors import ConfigError
from fjm2.base.quantities import check_count, seconds_setting
from fjm2.messages.destination import Destination, TopicPattern
from fjm2.messages.errors import JMSError
from fjm2.messages.files.file_message import ProgressListener
from fjm2.messages.header import (
    CONNECTION_ID,
    EXPIRATION,
    FLAGS,
    FRAME_BYTES,
    PERSISTENT,
    PRIORITY,
    PRIORITY_MAX,
    Header,
)
from fjm2.messages.selector import Selector

from .losses.kinds import Gap, Loss
from .routing.targets import ReceivedRun
from .statistics import ConsumerStatistics
from .waiting.patience import Progress

_GAPS_MAX: Final = 1024
"""Gaps that are remembered. Past that, the next message of anybody shows the oldest."""
_ANYBODY: Final = (-1, -1)
"""Stands for every connection and priority."""

MessageListener: TypeAlias = Callable[[Any], Any]
"""A function that is called with each message. In `fjm2.jms` it may be a coroutine function."""


class Overflow(Enum):
    """Behaviour of a full consumer."""

    BLOCK = "block"
    """Make senders wait, for up to `block_s` after the consumer last took a message. Meanwhile this process receives
    nothing from the bus at all. After that, drop the oldest messages until the consumer takes one."""
    DROP_OLDEST = "drop_oldest"
    """Drop the oldest message of the lowest priority."""
    DROP_NEWEST = "drop_newest"
    """Drop the newest message of the lowest priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Limits of the messages that a consumer holds, including those taken but not acknowledged."""

    overflow: Overflow = Overflow.BLOCK
    messages_max: int = 100_000
    bytes_max: int = 64 << 20
    block_s: float = 60.0
    """Longest time in seconds for which a full consumer holds senders up without taking a message. With 0 it holds
    nobody up, and with infinity it does so for as long as it is full. Only `overflow="block"` uses it."""

    def __post_init__(self) -> None:
        if not self.block_s >= 0:  # also not NaN
            raise ConfigError(f"block_s={self.block_s}: expected 0 or more seconds, or inf for no limit")
        check_count("messages_max", self.messages_max, 1)
        check_count("bytes_max", self.bytes_max, 1)


def overflow_of(value: "Overflow | str") -> Overflow:
    """Return the Overflow that has a name, such as "block". Raise ConfigError if there is none."""
    try:
        return Overflow(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in Overflow)
        raise ConfigError(f"overflow={value!r}: expected one of {known}") from None


def block_s_of(value: float | str) -> float:
    """Return a time for `block_s` in seconds. A text is a duration such as `5s` or `500ms`, or `inf`. Raise ConfigError
    if it is neither."""
    if isinstance(value, str) and value.strip().lower() in ("inf", "none"):
        return math.inf
    try:
        return seconds_setting("block_s", value)
    except ConfigError as error:
        raise ConfigError(f"{error}, or inf for no limit") from None


def settings_with(
    default: ConsumerSettings,
    overflow: Overflow | str | None = None,
    messages_max: int | None = None,
    bytes_max: int | None = None,
    block_s: float | str | None = None,
) -> ConsumerSettings:
    """Return the settings of a consumer: those given, and the default for those that are None. Raise ConfigError if one
    is wrong."""
    return ConsumerSettings(
        overflow=default.overflow if overflow is None else overflow_of(overflow),
        messages_max=default.messages_max if messages_max is None else messages_max,
        bytes_max=default.bytes_max if bytes_max is None else bytes_max,
        block_s=default.block_s if block_s is None else block_s_of(block_s),
    )


class Received(Protocol):
    """A message as the router delivers it."""

    @property
    def head(self) -> bytes: ...
    @property
    def body(self) -> bytes: ...
    @property
    def header(self) -> Header: ...
    @property
    def sender_id(self) -> int: ...
    @property
    def gap(self) -> Gap | None:
        """Reason why messages are missing before this one; None if none are."""

    def behind(self, gap: Gap) -> Self:
        """Return this message with a gap before it."""


class Delivery:
    """One delivery of a message to the application, the first or a later one."""

    __slots__ = ("count", "gap", "inbox", "received", "serial")

    def __init__(self, received: Received, inbox: "Inbox", count: int, serial: int, gap: Gap | None) -> None:
        self.received = received
        self.inbox = inbox
        self.count = count
        """Number of deliveries of the message, this one included."""
        self.serial = serial
        """Position of the message in the order of the session's first deliveries; 0 while the message is in a queue
        that sessions share."""
        self.gap = gap
        """Reason why messages are missing before this one; None if none are."""


def is_expired(received: Received, now_ms: float) -> bool:
    return 0 < received.header[EXPIRATION] <= now_ms


class Inbox:
    """The subscription of one consumer, and the messages that it holds. The router delivers, the session takes."""

    __slots__ = (
        "_bytes_max",
        "_discarded",
        "_late",
        "_let_go_at",
        "_limit",
        "_messages_max",
        "_queues",
        "_top",
        "_untold",
        "again",
        "destination",
        "gaps",
        "handled",
        "held",
        "held_bytes",
        "is_closed",
        "is_full",
        "left_out",
        "listener",
        "message_destination",
        "messages_dropped",
        "messages_received",
        "on_full",
        "on_progress",
        "on_room",
        "on_runs",
        "run_messages",
        "selector",
        "settings",
        "takes_runs",
        "times_full",
        "wake",
    )

    is_shared = False
    """True if several consumers share the messages. Each of them then takes one message at a time."""
    failure: JMSError | None = None

    def __init__(
        self,
        destination: Destination,
        selector: Selector | None,
        left_out: int | None,
        settings: ConsumerSettings,
        on_room: Callable[[], None],
        on_full: Callable[["Inbox", Loss | None], None],
    ) -> None:
        self.destination = destination
        self.message_destination = None if isinstance(destination, TopicPattern) else destination
        """Destination of all messages of the inbox; None if messages have to tell."""
        self.selector = selector
        self.left_out = left_out
        """Id of a connection whose messages the consumer does not want, or None."""
        self.settings = settings
        self._messages_max = settings.messages_max
        self._bytes_max = settings.bytes_max
        self.listener: MessageListener | None = None
        self.again: deque[Delivery] = deque()
        """Messages to deliver again, before all others."""
        self.is_full = False
        """True while the router takes nothing from the bus because of this inbox: never of one that drops messages."""
        self.times_full = 0
        self.is_closed = False
        self.wake: Callable[[], None] | None = None
        """Function that is called after each message delivered to the inbox, or None. It is set only while a receive
        waits, or a listener has no message, because calls take time."""
        self.held = 0
        """Number of messages in the inbox, plus those taken and not acknowledged."""
        self.held_bytes = 0
        self.on_progress: ProgressListener | None = None
        """Function that is called while files are received for the inbox."""
        self.messages_received = 0
        self.messages_dropped = 0
        self.handled = 0
        """Messages handled in the middle of a batch: a listener in a thread takes and releases the messages of a batch
        together."""
        self._let_go_at: Progress | None = None
        """Progress at which the inbox stopped making senders wait; None if it makes them wait when it is full."""
        self.takes_runs = False
        """True if the router may deliver several messages at once, because the consumer takes batches."""
        self.on_runs: Callable[[Inbox], None] | None = None
        """Function that is called when the inbox begins to take runs."""
        self.run_messages = 0
        """Number of messages that wait in runs. There are no runs if it is 0."""
        self.on_room = on_room
        self.on_full = on_full
        """Function that is called with the inbox and None when the inbox becomes full, and with the inbox and a kind of
        loss at the first loss of that kind since `take_losses`."""
        self._queues: tuple[deque[Received], ...] = tuple(deque() for _ in range(PRIORITY_MAX + 1))
        self._top = 0
        """Priority above which all queues are empty."""
        self._limit = self._messages_max
        """Number of messages past which `deliver` looks closer; below 0 while there are late gaps."""
        self.gaps: dict[tuple[int, int], Gap] = {}
        """Gaps in front of the messages that wait, by connection id and priority."""
        self._late: dict[tuple[int, int], Gap] = {}
        """Gaps behind the messages that wait."""
        self._discarded: Counter[int] = Counter()
        """PERSISTENT messages dropped since `take_discarded`, by sender. They may have been confirmed."""
        self._untold: dict[Loss, int] = {}
        """Messages lost since `take_losses`."""

    def deliver(self, received: Received) -> None:
        """Add a message that the router delivers."""
        header = received.header
        self.messages_received += 1
        self.held = held = self.held + 1
        self.held_bytes = held_bytes = self.held_bytes + header[FRAME_BYTES]
        priority = header[PRIORITY]
        self._queues[priority].append(received)
        if priority > self._top:
            self._top = priority
        if held > self._limit or held_bytes > self._bytes_max:
            self._overflow(received)
        if self.wake is not None:
            self.wake()

    def begin_runs(self) -> None:
        """Let the router deliver several messages at once, until `end_runs`."""
        if not self.takes_runs:
            self.takes_runs = True
            if self.on_runs is not None:
                self.on_runs(self)

    def end_runs(self) -> None:
        """Have messages delivered one by one again, those that wait included."""
        self.takes_runs = False
        self.split_runs()

    def deliver_run(self, run: ReceivedRun) -> None:
        """Add messages that the router delivers together."""
        count, size = len(run), run.frames.frame_bytes
        is_too_much = self.held + count > self._messages_max or self.held_bytes + size > self._bytes_max
        if is_too_much or self.is_closed or self._limit != self._messages_max:
            for received in run.messages():
                self.deliver(received)
            return
        self.messages_received += count
        self.held += count
        self.held_bytes += size
        self.run_messages += count
        priority = run.header[PRIORITY]
        self._queues[priority].append(cast(Any, run))
        self._top = max(self._top, priority)
        if self.wake is not None:
            self.wake()

    def pop_run(self, count_max: int) -> ReceivedRun | None:
        """Remove and return at most `count_max` of the next messages, if they were delivered together. They count as
        held until `release_run`."""
        if not self.run_messages:
            return None
        while self._top and not self._queues[self._top]:
            self._top -= 1
        queue = self._queues[self._top]
        first: Any = queue[0] if queue else None
        if type(first) is not ReceivedRun or self.gaps:
            if self.gaps or (first is not None and first.header[EXPIRATION]):
                self.split_runs()  # the messages behind may take the place of those that are lost
            return None
        queue.popleft()
        if len(first) > count_max:
            first, rest = first.split(count_max)
            queue.appendleft(cast(Any, rest))
        self.run_messages -= len(first)
        return cast(ReceivedRun, first)

    def put_back_run(self, run: ReceivedRun) -> None:
        """Put back messages that `pop_run` returned, one by one if `end_runs` was called meanwhile."""
        self.run_messages += len(run)
        priority = run.header[PRIORITY]
        self._queues[priority].appendleft(cast(Any, run))
        self._top = max(self._top, priority)
        if not self.takes_runs:  # the consumer ended runs in the middle of this one
            self.split_runs()

    def end_run_at(self, run: ReceivedRun, place: int) -> Received:
        """Release the messages of a run before a place, and put those behind it back. Return the one at the place."""
        messages = list(run.messages())
        for received in messages[:place]:
            self.release(received)
        for received in reversed(messages[place + 1 :]):
            self.put_back(received)
        return messages[place]

    def release_run(self, run: ReceivedRun) -> None:
        """Stop counting messages as held. See `release`."""
        self.held -= len(run)
        self.held_bytes -= run.frames.frame_bytes
        self._check_room()

    def split_runs(self) -> None:
        """Replace runs by their messages."""
        if self.run_messages:
            self.run_messages = 0
            for queue in self._queues:
                waiting: list[Any] = list(queue)
                queue.clear()
                for one in waiting:
                    queue.extend(one.messages() if type(one) is ReceivedRun else (one,))

    def close(self) -> None:
        """Deliver nothing more, and make no sender wait. The subscription may end later."""
        self.is_closed = True
        self._make_room()
        if self.wake is not None:
            self.wake()

    def _make_room(self) -> None:
        if self.is_full:
            self.is_full = False
            self.on_room()

    def _overflow(self, received: Received) -> None:
        if self.is_closed:
            self._queues[received.header[PRIORITY]].pop()
            self.release(received)
            return
        if self._late:
            self._flag_late(received)
            if self.held <= self._messages_max and self.held_bytes <= self._bytes_max:
                return
        overflow = self.settings.overflow
        if overflow is Overflow.BLOCK and self._let_go_at is not None:
            if self.progress == self._let_go_at:
                overflow = Overflow.DROP_OLDEST
            else:
                self._let_go_at = None
        if overflow is Overflow.BLOCK:
            # The rest of a run that was already taken from the bus may exceed the bounds.
            if not self.is_full:
                self.is_full = True
                self.times_full += 1
                self.on_full(self, None)
            return
        while self.held > self._messages_max or self.held_bytes > self._bytes_max:
            if not self._drop(overflow):
                return

    def _drop(self, overflow: Overflow) -> bool:
        """Drop the least important message, and remember the gap in its place. Return False if there is none."""
        self.split_runs()
        queue = next((queue for queue in self._queues if queue), None)
        if queue is None:
            return False
        if overflow is Overflow.DROP_OLDEST:
            dropped, gaps = queue.popleft(), self.gaps
        else:
            dropped, gaps = queue.pop(), self._late
            self._limit = -1
        _note(gaps, dropped.header, max(Loss.OVERFLOW.gap, dropped.gap or Loss.OVERFLOW.gap))
        self.release(dropped)
        self.messages_dropped += 1
        if dropped.header[FLAGS] & PERSISTENT:
            self._discarded[dropped.sender_id] += 1
        self.note_loss(Loss.OVERFLOW)
        return True

    @property
    def has_little_room(self) -> bool:
        """True if the next messages may find no room until some are acknowledged."""
        return self.held >= self._messages_max or self.held_bytes * 2 >= self._bytes_max

    @property
    def _waiting(self) -> int:
        if not self.run_messages:
            return sum(map(len, self._queues))
        items: Iterator[object] = chain.from_iterable(self._queues)
        return sum(len(one) if type(one) is ReceivedRun else 1 for one in items)

    @property
    def progress(self) -> Progress:
        """Numbers that change whenever the application takes or acknowledges a message. The first counts messages
        taken."""
        kept = self.messages_received - self.messages_dropped
        return kept - self._waiting, kept - self.held, len(self.again), self.handled

    @property
    def is_let_go(self) -> bool:
        """True if the inbox drops its oldest messages instead of making senders wait, because nothing was taken."""
        return self._let_go_at is not None

    def let_go(self) -> None:
        """Make senders wait no longer. Drop the oldest messages from now on, until the application takes one."""
        self._let_go_at = self.progress
        self._make_room()

    def miss(self, header: Header, loss: Loss) -> None:
        """Note that a message that the consumer wants does not come. The next one shows the gap."""
        _note(self._late, header, loss.gap)
        self._limit = -1
        self.note_loss(loss)

    def _flag_late(self, received: Received) -> None:
        """Flag a message that was just appended, if there is a gap before it."""
        gap = _take(self._late, received.header)
        if gap is not None:
            self._queues[received.header[PRIORITY]][-1] = received.behind(gap)
        if not self._late:
            self._limit = self._messages_max

    def pop(self) -> Received | None:
        """Remove and return the next new message of the highest priority, or None. It counts as held until `release`.

        If messages may be in runs, try `pop_run` before."""
        while True:
            queue = self._queues[self._top]
            if queue:
                return queue.popleft()
            if not self._top:
                return None
            self._top -= 1

    def put_back(self, received: Received) -> None:
        """Put back a message that `pop` returned."""
        priority = received.header[PRIORITY]
        self._queues[priority].appendleft(received)
        self._top = max(self._top, priority)

    def release(self, received: Received) -> None:
        """Stop counting a message as held. A full inbox has room again at half of its limits."""
        self.held -= 1
        self.held_bytes -= received.header[FRAME_BYTES]
        if self.is_full:
            self._check_room()

    def forgo(self, received: Received) -> None:
        """Stop counting a message as held that the client does not get again here, without having acknowledged it."""
        self.release(received)

    @property
    def is_settling(self) -> bool:
        """True while messages wait for something else than a consumer."""
        return False

    async def settled(self) -> None:
        """Wait while `is_settling`."""

    def _check_room(self) -> None:
        if self.is_full and self.held * 2 <= self._messages_max and self.held_bytes * 2 <= self._bytes_max:
            self.is_full = False
            self.on_room()

    def has_gap_before(self, header: Header) -> bool:
        """Return True if a gap before a message is remembered in `gaps`."""
        return _place(header) in self.gaps or _ANYBODY in self.gaps

    def gap_before(self, received: Received) -> Gap | None:
        """Return the gap before a message that was popped, which is flagged now. Call this once for each message."""
        gap = _take(self.gaps, received.header) if self.gaps else None
        return received.gap if gap is None else max(gap, received.gap or gap)

    def lose(self, received: Received, loss: Loss) -> None:
        """Release a message that was popped, and that the client does not get. The next one shows the gap."""
        gap = self.gap_before(received)
        _note(self.gaps, received.header, max(loss.gap, gap or loss.gap))
        self.release(received)
        self.note_loss(loss)

    def lose_again(self, delivery: Delivery, loss: Loss) -> None:
        """Release a message that was to be delivered again. The next one in the old order shows the gap."""
        gap = loss.gap
        if delivery.count == 1 and delivery.gap is not None and loss is not Loss.GIVEN_UP:
            gap = max(gap, delivery.gap)  # it was not delivered after all, and so has not shown its own gap
        place = _place(delivery.received.header)
        later = (each for each in self.again if not each.serial or each.serial > delivery.serial)
        behind = (each for each in later if _place(each.received.header) == place)
        following = next(behind, None)
        if following is None:
            _note(self.gaps, delivery.received.header, gap)
        else:
            following.gap = max(gap, following.gap or gap)
        self.release(delivery.received)
        self.note_loss(loss)

    def note_loss(self, loss: Loss) -> None:
        """Count a message that the consumer does not get, to be reported."""
        count = self._untold.get(loss, 0)
        self._untold[loss] = count + 1
        if not count:
            self.on_full(self, loss)

    def take_losses(self, loss: Loss) -> int:
        """Return the number of messages lost in this way since the last call."""
        return self._untold.pop(loss, 0)

    def take_discarded(self) -> Counter[int]:
        """Return the number of PERSISTENT messages dropped since the last call, by sender."""
        discarded, self._discarded = self._discarded, Counter()
        return discarded

    def statistics(self) -> ConsumerStatistics:
        return ConsumerStatistics(
            messages_received=self.messages_received,
            messages_waiting=len(self.again) + self._waiting,
            messages_held=self.held,
            held_bytes=self.held_bytes,
            messages_dropped=self.messages_dropped,
            times_full=self.times_full,
            is_full=self.is_full,
        )

    def has_waiting(self) -> bool:
        """Return True if there is a message to deliver."""
        return self.held > 0 and (bool(self.again) or any(self._queues))

    def waiting(self) -> Iterator[deque[Received]]:
        """Return the queues of new messages, highest priority first."""
        return reversed(self._queues)

    def pop_again(self) -> Delivery | None:
        """Remove and return the next message to deliver again, or None. Expired messages are dropped."""
        while self.again:
            delivery = self.again.popleft()
            if not is_expired(delivery.received, time() * 1000):
                return delivery
            self.lose_again(delivery, Loss.EXPIRED)
        return None


def _place(header: Header) -> tuple[int, int]:
    """Return the key of a message's gap: messages of one connection and priority are in one order."""
    return header[CONNECTION_ID], header[PRIORITY]


def _note(gaps: dict[tuple[int, int], Gap], lost: Header, gap: Gap) -> None:
    """Remember a gap in the place of a message. The gravest of several counts."""
    place = _place(lost)
    if len(gaps) >= _GAPS_MAX and place not in gaps:
        oldest = gaps.pop(next(iter(gaps)))
        gaps[_ANYBODY] = max(oldest, gaps.pop(_ANYBODY, oldest))
    gaps[place] = max(gap, gaps.get(place, gap))


def _take(gaps: dict[tuple[int, int], Gap], header: Header) -> Gap | None:
    """Return the gap before a message, which is then told."""
    gap = gaps.pop(_place(header), None)
    anybody = gaps.pop(_ANYBODY, None)
    if gap is None or anybody is None:
        return gap if anybody is None else anybody
    return max(gap, anybody)
