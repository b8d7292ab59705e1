"""The newest table whose messages a member has, and what it has to find out before it has them."""

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.configuration import Membership
from fjm2.cell.context import Context
from fjm2.cell.decision_log import DecisionLog
from fjm2.cell.fetches import Word
from fjm2.cell.ledger_table import LedgerTable, Span
from fjm2.cell.outgoing import SendCommand
from fjm2.cell.subscription_table import SubscriptionTable
from fjm2.cell.wire.commands import Counted, CountedFlag
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import COUNT_MAX, DECISION_LANE, Position, Range
from fjm2.cell.wire.records import Subscription

_ALL = 1 << 64


class Asked(NamedTuple):
    """The start positions of subscriptions of which a member has just heard."""

    starts: Sequence[Sequence[Position]]
    sure: int
    """Version of the table before the first of them."""
    closed: Container[Ledger] = ()
    """Ledgers that were closed since, or may have been. Others that are closed have nothing for them."""


class TableReadiness:
    """The version of the table whose messages the driver has told, the subscriptions that it still works on, and the
    frames that this member may have counted wrongly."""

    def __init__(
        self, context: Context, log: DecisionLog, ledgers: LedgerTable, table: SubscriptionTable, settled: int
    ) -> None:
        """`settled` is the version that the store remembers."""
        self._context, self._log, self._ledgers, self._table = context, log, ledgers, table
        self.version = 0
        self.settled = settled
        """Version through which nothing is doubtful. It is on disk, as a member does not remember its doubts."""
        self._added: list[tuple[int, int]] = []
        """Version and destination of each subscription whose messages have not been told."""
        self._tallies: dict[Member, dict[Ledger, RangeSet]] = {}
        """Sequences that other members said they counted, as a manager hears it."""

    def note(self, version: int, is_added: bool, subscription: Subscription) -> None:
        """Note a change that the driver is told of."""
        if is_added:
            self._added.append((version, subscription.destination.frame_hash))

    def reach(self, version: int) -> None:
        """Note that all messages are told that one change asks for, and those before it. Changes that come with a
        snapshot are several of one version."""
        self._added = [each for each in self._added if each[0] >= version]
        if self._added and self._added[0][0] == version:
            del self._added[0]
        if not self._added or self._added[0][0] > version:
            self.version = max(self.version, min(version, self._table.version))

    def knows_messages(self, frame_hash: int) -> bool:
        """Return True if all messages to a destination that are in the store have been told."""
        return all(each != frame_hash for _, each in self._added)

    def advance(self) -> None:
        """Write down the version through which nothing is doubtful."""
        if self.version > self.settled and not self._ledgers.doubts:
            lsn = self._context.storage.store_settled(self._context.cell_id, self.version)
            if lsn is not None:
                self.settled = self.version

    def tell_counted(self, ranges: tuple[Range, ...], word: Word | None = None) -> None:
        """Tell those who fetch that sequences need no keeping, as far as this keeper knows."""
        version, flags = (self.version, 0) if word is None else (min(self.version, word.sure), word.flags)
        command = Counted(flags=flags, cell_id=self._context.cell_id, table_version=version, ranges=ranges)
        self._context.outgoing.append(SendCommand(command))

    # Doubts

    def doubt(self, asked: Asked, unsynced: Iterable[Span]) -> None:
        """Doubt what was counted from the starts of new subscriptions on. `unsynced` was counted a moment ago.

        It is hearsay to a keeper that is no member: one whose place it takes may have known of these subscriptions.
        """
        if not asked.starts:
            return
        is_hearsay = self._context.me not in self._log.membership
        wanted = self._wanted(asked)
        doubts = self._ledgers.doubts
        for ledger, ranges in wanted.items():
            for low, high in ranges:
                for first, end in self._ledgers.on_disk_within(ledger, low, high):
                    gaps = self._context.storage.live(ledger, first, end).gaps(first, end)
                    doubts.add(ledger, gaps, asked.sure, is_hearsay=is_hearsay)
        for ledger, first, end in unsynced:
            parts = wanted[ledger].within(first, end) if ledger in wanted else ()
            doubts.add(ledger, parts, asked.sure, is_hearsay=is_hearsay)

    def _wanted(self, asked: Asked) -> dict[Ledger, RangeSet]:
        """Return the sequences of each ledger that subscriptions may ask for: of a closed one through its final set."""
        positions = [dict(each) for each in asked.starts]
        parts: dict[Ledger, Iterable[tuple[int, int]]] = dict.fromkeys(self._ledgers.open_ledgers, ((1, _ALL),))
        for each in self._ledgers.closed_ledgers if asked.closed else ():
            if each.ledger in asked.closed:
                parts[each.ledger] = tuple((first, last + 1) for first, last in each.final)
        begins = {ledger: min(each.get(ledger, 1) for each in positions) for ledger in parts}
        return {ledger: RangeSet(RangeSet(each).within(begins[ledger], _ALL)) for ledger, each in parts.items()}

    def doubtful(self) -> list[Range]:
        """Return what has to be asked for."""
        return [Range(ledger, first, min(end - first, COUNT_MAX)) for ledger, first, end in self._ledgers.doubts]

    @property
    def asked(self) -> int:
        """Newest version in the log, committed or not."""
        return max(self._table.version, self._log.table_version_ahead)

    def vouches(self, message: Counted) -> bool:
        """Return True if the sender of an answer has whatever the newest table that was heard of asks for."""
        heard = self._table.newest_heard
        return heard is not None and message.table_version >= max(self.asked, heard)

    def believe(self, message: Counted, *, is_trusted: bool) -> list[Range]:
        """Take another member's word that it has no frames. Return the ranges that may count as known, too.

        A sender with an older table may be in doubt itself. Its word counts only if nobody knows better: for a manager,
        and for those who follow one.
        """
        ranges = [each for each in message.ranges if each.ledger.lane != DECISION_LANE]
        if self.vouches(message):
            for each in ranges:
                for first, end in self._ledgers.doubts.within(each.ledger, each.first, each.last + 1):
                    self._ledgers.doubts.resolve(each.ledger, first, end)
        return ranges if is_trusted or message.table_version >= self._table.version else []

    def tally(self, message: Counted, member: Member, membership: Membership) -> None:
        """Note as the manager that a member knew of frames, and resolve what K - W + 1 members doubt.

        A writer waits for W members when it knows of the subscription, so that W had it in their logs. If K - W + 1
        knew of a frame before they had, it was sent by a writer that did not know.
        """
        if message.flags & CountedFlag.HEARSAY:
            return
        doubts, me = self._ledgers.doubts, self._context.me
        mine = self._tallies.setdefault(member, {})
        for each in message.ranges:
            for first, end in doubts.within(each.ledger, each.first, each.last + 1):
                mine.setdefault(each.ledger, RangeSet()).add(first, end)
                others = {
                    other
                    for other, said in self._tallies.items()
                    if each.ledger in said and said[each.ledger].covers(first, end)
                }
                if membership.can_read(others):
                    doubts.resolve(each.ledger, first, end)
                elif membership.can_read(others | {me}):
                    for low, high in doubts.counted_within(each.ledger, first, end):
                        doubts.resolve(each.ledger, low, high)
        if not doubts:
            self._tallies.clear()

    def resolve_alone(self, membership: Membership) -> None:
        """Resolve as the manager what no other member could have confirmed, in a cell of one or two."""
        doubts = self._ledgers.doubts
        if doubts and membership.can_read({self._context.me}):
            for ledger, first, end in list(doubts):
                for low, high in doubts.counted_within(ledger, first, end):
                    doubts.resolve(ledger, low, high)
