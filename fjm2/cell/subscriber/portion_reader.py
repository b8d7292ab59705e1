"""One ledger whose messages are handed out, as a consumer reads it: portion by portion."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from fjm2.base.ledger import Ledger, is_older
from fjm2.base.ranges import RangeSet

from ..wire.catch_up import CatchUpPage
from ..wire.ranges import Range
from .context import RETRY_S, ConsumerBase, Context, Reader
from .outgoing import F
from .recent_frames import RecentFrames

PORTIONS_MAX: Final = 2000
"""Most portions of a ledger that wait. A manager hands out no more messages than a consumer has credit for."""


class _Portion:
    """A range that was handed to the consumer."""

    __slots__ = ("end", "first", "is_again", "known_end", "messages", "next", "taken")

    def __init__(self, each: Range) -> None:
        self.first = self.next = self.taken = self.known_end = each.first
        self.end = each.last + 1
        self.is_again = each.deliveries > 0
        self.messages = RangeSet()
        """Messages of the portion before `known_end`, as heard or as a page named them."""


class PortionReader(Reader[F]):
    """Delivers the portions of a ledger in the order in which they were handed to the consumer.

    A portion has the numbers of frames to others as well. If everything in it was heard, its messages are known;
    otherwise a keeper names them, and sends them again. Delayed messages were heard long ago, and are not kept.

    The portions of a ledger that succeeds others of its producer and lane wait for those that were handed out before.
    """

    __slots__ = ("_older", "_portions", "_recent")

    def __init__(self, context: Context[F], consumer: ConsumerBase[F], frame_hash: int, ledger: Ledger) -> None:
        super().__init__(context, consumer, frame_hash, ledger, is_shared=True)
        self._portions: deque[_Portion] = deque()
        self._older: list[Reader[F]] = []
        """Readers of older ledgers that have portions to be delivered before."""
        self._recent: RecentFrames[F] = RecentFrames(context)

    @property
    def is_behind(self) -> bool:
        """Return True if something is missing."""
        return bool(self._portions)

    # Input

    def take_hand(self, each: Range, now: float) -> None:
        """Take a portion."""
        if len(self._portions) < PORTIONS_MAX:
            self._portions.append(_Portion(each))
            if self.ledger.producer_epoch:
                readers = self.consumer.readers.values()
                self._older = [each for each in readers if is_older(each.ledger, self.ledger) and each.is_behind]
            self.advance(now)

    def hear(self, first: int, frames: Sequence[F], now: float) -> None:
        """Take frames to the consumer's destination: it may be handed them."""
        self.heard_at = now
        if self._portions or not self.ledger.is_delayed:
            self._recent.add(first, frames)
            self.advance(now)

    def skip(self, first: int, count: int, now: float) -> None:
        """Take numbers of frames to other destinations."""
        self.heard_at = now
        if self._portions or not self.ledger.is_delayed:
            self._recent.pass_over(first, first + count)
            self.advance(now)

    def take_page(self, page: CatchUpPage, source: int, now: float) -> None:
        """Take a keeper's page about a portion."""
        del source
        for portion in self._portions:
            if page.first <= portion.known_end <= page.through and portion.known_end < portion.end:
                for first, last in page.spans:
                    portion.messages.add(max(first, portion.known_end), min(last + 1, portion.end))
                portion.known_end = min(page.through + 1, portion.end)
        self.advance(now)

    # Output

    def advance(self, now: float) -> None:
        """Deliver what is there."""
        self._older = [reader for reader in self._older if reader.is_behind]
        if self._older:
            self.context.note_behind(self)
            return
        while self._portions and self.consumer.room:
            portion = self._portions[0]
            self._learn(portion)
            self._deliver_portion(portion)
            # An acknowledgement behind this does not include messages that were not delivered.
            self.acks.mine.add(portion.taken, portion.next)
            portion.taken = portion.next
            if portion.next < portion.end:
                break
            self._portions.popleft()
            self._recent.forget_before(portion.first)
            self._end_portion(portion)
            if self._portions and self._portions[0].known_end < self._portions[0].end:
                self.asked_at = -RETRY_S  # no page names what it has: the question about this one was about less
        if self.ledger.is_delayed and not self._portions:
            self._recent.clear()
        if self._portions:
            self.context.note_behind(self)
            self.turn(now)

    def _learn(self, portion: _Portion) -> None:
        """Find the messages of a portion in what was heard."""
        end = min(self._recent.heard_end(portion.known_end), portion.end)
        if end > portion.known_end:
            for low, high in self._recent.messages_within(portion.known_end, end):
                portion.messages.add(low, high)
            portion.known_end = end

    def _deliver_portion(self, portion: _Portion) -> None:
        """Deliver as much of a portion as is there."""
        for low, high in list(portion.messages.within(portion.next, portion.known_end)):
            here = next(iter(self._recent.messages_within(low, high)), (0, 0))
            room = self.consumer.room
            if here[0] != low or not room:
                portion.next = low
                return
            end = min(here[1], low + room)
            frames = self._recent.take(low, end)
            self._deliver(low, frames, is_redelivered=portion.is_again)
            portion.next = end
            if end < high:
                return
        portion.next = portion.known_end

    def _end_portion(self, portion: _Portion) -> None:
        """Acknowledge a portion that has no messages: they are outside the final set of their ledger."""
        if not portion.messages:
            self.acks.asked.add(portion.first, portion.end)
            self.consumer.dirty[self] = None

    def turn(self, now: float) -> None:
        """Ask for what is missing, if it is time."""
        if self.consumer.room and self._portions and now >= self.asked_at + RETRY_S:
            portion = self._portions[0]
            self._ask(portion.next, now)

    def forget(self) -> None:
        """Give up all that waits."""
        self._portions.clear()
        self._recent.clear()
