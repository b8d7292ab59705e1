"""One ledger, as the consumer of a durable subscription that is not shared reads it."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from fjm2.base.ledger import SEQUENCE_MAX, Ledger

from ..service.pages import PAGE_MESSAGES_MAX
from ..wire.catch_up import PAGE_SPANS_MAX, CatchUpPage
from .context import RETRY_S, ConsumerBase, Context, Reader
from .held_frames import AHEAD_MAX, HeldFrames
from .outgoing import F

GAP_S: Final = 0.02
"""Time that frames of a gap have to come by themselves before a keeper is asked."""
PLANNED_MAX: Final = 4 * PAGE_MESSAGES_MAX
"""Most messages that a consumer waits for. With several pages a keeper sends while questions are on their way."""
_END: Final = SEQUENCE_MAX + 1


class DurableReader(Reader[F]):
    """Reads a ledger from its start on: at first by pages, then as its frames are heard.

    Everything before `next` is decided: delivered, acknowledged, or for others. A page decides what comes next: the
    plan. Behind the plan, and behind all that the subscription had acknowledged when this consumer came, frames are
    taken as they are heard, so that nothing is lost or doubled where one way ends and the other begins.

    A ledger that succeeds others of its producer and lane is read when these have ended: until then everything is as
    before the first page.
    """

    __slots__ = (
        "_final_end",
        "_held",
        "_is_more",
        "_live_from",
        "_moved_at",
        "_old_end",
        "_old_ends",
        "_older",
        "_plan",
        "_planned_end",
        "_retried",
        "_seen_end",
        "next",
    )

    def __init__(self, context: Context[F], consumer: ConsumerBase[F], frame_hash: int, ledger: Ledger) -> None:
        super().__init__(context, consumer, frame_hash, ledger, is_shared=False)
        self.next = 1
        """First sequence that is not decided; behind all sequences when the ledger has ended."""
        self._plan: deque[tuple[int, int]] = deque()
        """Ranges [first, end) that are to be delivered next."""
        self._planned_end = 1
        """End of what pages have decided."""
        self._live_from = _END
        """Sequence from which on frames are taken as they are heard. Not known before the first page that counts."""
        self._final_end = _END
        """Sequence from which on there is nothing. Not known before the ledger is closed."""
        self._older: Ledger | None = None
        """Older ledger that has not ended; None if it is not known which, or if there is none."""
        self._seen_end = 2
        """End of what is known to exist, or may exist: before the first page that is anything."""
        self._old_end = _END if consumer.is_resumed else 1
        """End of what an earlier consumer may have got. Not known before W keepers have said how far they are."""
        self._old_ends: dict[int, int] = {}
        """End of what each keeper has."""
        self._is_more = False
        """True if the last page had no room for all that its keeper has, or if a later ledger waits for the end of this
        one."""
        self._retried = 0
        """Sequence from which on the plan was asked for again; 0 if it was not."""
        self._moved_at = 0.0
        """Time at which `next` last moved, or at which something was first missing."""
        self._held: HeldFrames[F] = HeldFrames(context)

    # State

    @property
    def is_behind(self) -> bool:
        """Return True if something is missing."""
        return (
            bool(self._plan)
            or self._is_more
            or self.next < self._seen_end
            or self.next < self._live_from
            or self._old_end == _END
        )

    @property
    def _decided_end(self) -> int:
        """First sequence of which no page has said anything."""
        return self._planned_end if self._plan else self.next

    @property
    def _hold_end(self) -> int:
        """End of the frames that are worth keeping until it is their turn. Without room, these are what keepers were
        asked for: they would have to send it again."""
        end = self.next + AHEAD_MAX
        return end if self.consumer.room else min(end, self._planned_end)

    def _wanted(self) -> tuple[int, int]:
        """Return the range of which the first frame is delivered next; (0, 0) if that is not known."""
        if self._plan:
            return self._plan[0]
        return (self.next, self._final_end) if self._final_end > self.next >= self._live_from else (0, 0)

    def has_ended(self) -> bool:
        """Return True if everything was delivered, and nothing follows. Otherwise ask for the end."""
        if self.next != _END and not self._plan:
            self._is_more = True
            self.context.note_behind(self)
        return self.next == _END

    # Input

    def hear(self, first: int, frames: Sequence[F], now: float) -> None:
        """Take frames to the consumer's destination."""
        self.heard_at = now
        count = len(frames)
        end = first + count
        consumer = self.consumer
        # All but the first and the lost frames come here: in order, behind all pages, and with room for them.
        if (
            first == self.next >= self._live_from
            and not self._plan
            and count <= consumer.room
            and not self._held
            and end < self._final_end
        ):
            self.next = end
            self._is_more = False  # whatever the last page had no room for was heard
            if end > self._seen_end:
                self._seen_end = end
            self._deliver(first, frames, is_redelivered=first < self._old_end)
            return
        was_behind = self.is_behind
        if end > self._seen_end:
            self._seen_end = end
        if not was_behind:
            self._moved_at = now
        self._deliver_from(first, frames, now)
        low, high = max(first, self.next), min(end, self._hold_end)
        if low < high:
            self._held.add(low, frames[low - first : high - first])
        self.advance(now)

    def skip(self, first: int, count: int, now: float) -> None:
        """Take numbers of frames to other destinations."""
        self.heard_at = now
        end = first + count
        if first <= self.next >= self._live_from and not self._plan:
            if end > self.next:
                self.next = end
                if end > self._seen_end:
                    self._seen_end = end
                if self._held or end >= self._final_end:
                    self.advance(now)
            return
        if end > self._seen_end:
            self._seen_end = end
        if end > self.next and first < self.next + AHEAD_MAX:
            self._held.pass_over(first, end)
        self.context.note_behind(self)

    def take_page(self, page: CatchUpPage, source: int, now: float) -> None:
        """Take a keeper's page of this ledger."""
        if self.next == _END:
            return  # it is of a question that was asked before the end was known, and would have the reader go on
        if page.is_final:
            self._learn_end(page.through + 1)
        if self._live_from == _END:
            if not self._may_begin(page, now):
                self.context.note_behind(self)
                return
            self._live_from = page.acknowledged + 1
            self._seen_end = max(self._seen_end - 1, 1)
        if page.first == self._retried and page.through >= self.next:
            # The frames of the plan did not come. Perhaps they never will: they are outside a final set.
            self._retried = 0
            self._plan.clear()
            self.next = max(self.next, page.first)
        decided = self._decided_end
        if page.first <= decided <= page.through:
            for first, last in page.spans:
                if last >= decided:
                    self._plan.append((max(first, decided), last + 1))
            self._planned_end = page.through + 1
            if not self._plan:
                self.next = self._planned_end
            self._moved_at = now
            self._note_answer(source)
        size = sum(last - first + 1 for first, last in page.spans)
        is_full = size >= PAGE_MESSAGES_MAX or len(page.spans) == PAGE_SPANS_MAX
        if page.through >= decided - 1:  # otherwise it is about what was decided meanwhile
            self._is_more = is_full
        if not is_full and self._old_end == _END:
            self._note_old(page.through + 1, source)
        self.advance(now)

    def _may_begin(self, page: CatchUpPage, now: float) -> bool:
        """Return True if nothing older is to be delivered before what a page names."""
        older = page.older_ledger
        # A keeper that has nothing of this ledger may name one that never was: another keeper knows better.
        is_certain = page.first <= page.through or page.is_final or older in self.consumer.readers
        self._older = older if is_certain else None
        return older is None or (is_certain and self.consumer.has_read(older, now))

    def note_last(self, last: int, now: float) -> None:
        """Learn that there is a message, and perhaps others before it."""
        if not self.is_behind:
            self._moved_at = now
        self._seen_end = max(self._seen_end, last + 1)
        if self.is_behind:
            self.context.note_behind(self)
            self.turn(now)

    def note_end(self, end: int, now: float) -> None:
        """Learn that the ledger was closed, and has nothing from a sequence on."""
        self._learn_end(end)
        self.advance(now)

    def _learn_end(self, end: int) -> None:
        """Leave out what is planned from behind the end: one keeper had it, and no keeper has to keep it."""
        self._final_end = min(self._final_end, end)
        if self._plan and self._planned_end > end:
            self._planned_end = end
            self._plan = deque((low, min(high, end)) for low, high in self._plan if low < end)
            if not self._plan:
                self.next = max(self.next, end)

    def _end_if_read(self) -> None:
        """End if everything was delivered. What was heard from behind the end is in no final set, and comes too late
        for those that were delivered meanwhile."""
        if self._plan or not _END > self.next >= max(self._final_end, self._live_from):
            return
        self.next = _END
        self._is_more = False
        self._seen_end = self._final_end
        self._old_end = min(self._old_end, self._final_end)
        self._held.clear()

    def _note_old(self, end: int, source: int) -> None:
        """Learn how far messages are old. W keepers have all between them that W had stored before."""
        self._old_ends[source] = end
        if len(self._old_ends) >= self.context.majority:
            self._old_end = max(self._old_ends.values())
            self._old_ends.clear()

    # Output

    def _deliver_from(self, first: int, frames: Sequence[F], now: float) -> None:
        """Deliver those frames of a run whose turn it is."""
        end = first + len(frames)
        while self.consumer.room:
            low, high = self._wanted()
            if not first <= low < end:
                return
            high = min(high, end, low + self.consumer.room)
            self._pass_on(low, frames[low - first : high - first], now)

    def _pass_on(self, first: int, frames: Sequence[F], now: float) -> None:
        """Deliver frames, the first of which is the next one."""
        end = first + len(frames)
        old_end = self._old_end
        if not self._plan:
            self._is_more = False
        if first < old_end < end:
            self._deliver(first, frames[: old_end - first], is_redelivered=True)
            self._deliver(old_end, frames[old_end - first :], is_redelivered=False)
        else:
            self._deliver(first, frames, is_redelivered=first < old_end)
        self._moved_at = now
        self.next = end
        if self._plan:
            if end < self._plan[0][1]:
                self._plan[0] = end, self._plan[0][1]
                return
            self._plan.popleft()
            if not self._plan:
                self.next = self._planned_end

    def advance(self, now: float) -> None:
        """Deliver what waits and is next, and ask for what is missing."""
        held = self._held
        while held and self.consumer.room:
            low, high = self._wanted()
            if not low:
                break
            frames = held.take(low, min(high - low, self.consumer.room))
            if frames:
                self._pass_on(low, frames, now)
            elif not self._plan and low in held.passed:
                self.next = held.passed.end_of(low)
            else:
                break
        if held:
            held.forget_before(self._plan[0][0] if self._plan else self.next)
        self._end_if_read()
        if self.is_behind:
            self.context.note_behind(self)
            self.turn(now)

    def turn(self, now: float) -> None:
        """Ask for what is missing, if it is time."""
        room = self.consumer.room
        if not room:
            return
        if self._older is not None:
            if not self.consumer.has_read(self._older, now):
                return
            self._older = None
            self.asked_at = -RETRY_S
        is_asking = now < self.asked_at + RETRY_S
        if not self._plan:
            if not is_asking and (self.next < self._live_from or now >= self._moved_at + GAP_S):
                self._ask(self.next, now, self._old_ends)
            return
        planned = sum(end - first for first, end in self._plan)
        if not is_asking and now >= self._moved_at + RETRY_S:
            self._retried = self._plan[0][0]
            self._ask_another(self._retried, now)
        elif not is_asking and self._is_more and planned <= min(PLANNED_MAX, room) - PAGE_MESSAGES_MAX:
            self._ask(self._planned_end, now)

    def forget(self) -> None:
        """Give up all that waits."""
        self._held.clear()
