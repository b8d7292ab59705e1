"""The handing out of a shared subscription's messages: each goes to one of the consumers, within their credits."""

import itertools
from typing import Final, TypeVar

from fjm2.base.ledger import Ledger
from fjm2.cell.replica import Replica
from fjm2.cell.reports import Reports
from fjm2.cell.wire.ranges import Range
from fjm2.cell.wire.records import Hand

from .clients import Clients
from .cursors import Cursor
from .decided import Decided
from .order import older_unread

HANDS_MAX: Final = 256
"""Most ranges that one entry hands out."""
PORTION: Final = 16
"""Most messages that a consumer is handed before the next one has its turn."""
CREDIT_MAX: Final = 1000
"""Most messages that a consumer holds, whatever credit it claims."""
LOOKED_AT_MAX: Final = 64
"""Most subscriptions, and most ledgers of each, that one look goes through."""
LOOK_INTERVAL_S: Final = 0.02
"""Shortest time between two looks at what can be handed out."""
_COUNT_MAX: Final = 0xFFFF_FFFF
_Item = TypeVar("_Item")


class Hander:
    """Hands messages out, once W members have them on disk."""

    def __init__(self, replica: Replica, clients: Clients, reports: Reports) -> None:
        self._replica = replica
        self._clients = clients
        self._reports = reports
        self._look_at = 0.0
        self._look = 0
        """Number of looks, from which it follows whose turn it is."""

    def next_hands(self, draft: Decided, now: float, time_ms: int) -> tuple[Hand, ...]:
        """Return what is to be handed out now. `time_ms` is the time by the clock of this host."""
        if now < self._look_at:
            return ()
        self._look_at = now + LOOK_INTERVAL_S
        hands: list[Hand] = []
        self._look += 1
        backlog = self._clients.backlog
        backlog.due_times.advance(time_ms)
        waiting = [each for frame_hash in backlog.delayed_hashes() for each in draft.cursors_of(frame_hash)]
        unshared = [each for each in waiting if each.consumers and not each.is_shared]
        for cursor in self._turn_of(draft.shared_cursors() + unshared):
            if len(hands) >= HANDS_MAX:
                break
            hands += self._hand_out(cursor, HANDS_MAX - len(hands))
        return tuple(hands)

    def _turn_of(self, items: list[_Item]) -> list[_Item]:
        """Return those of many items that are looked at now, so that a look takes a bounded time."""
        first = self._look * LOOKED_AT_MAX % max(len(items), 1)
        return items if len(items) <= LOOKED_AT_MAX else (items + items)[first : first + LOOKED_AT_MAX]

    def _hand_out(self, cursor: Cursor, most: int) -> list[Hand]:
        """Return what the consumers of one subscription get."""
        room = {consumer: min(credit, CREDIT_MAX) for consumer, credit in cursor.consumers.items()}
        for consumer, ledger, held in cursor.handed():
            if consumer in room:
                room[consumer] -= sum(self._count(cursor, ledger, first, end) for first, end in held)
        hands: list[Hand] = []
        turns = [consumer for consumer, credit in room.items() if credit > 0]
        known = self._clients.backlog.ledgers_of(cursor.frame_hash) if turns else []
        for ledger in self._turn_of([each for each in known if cursor.hands_out(each)]):
            if not turns or len(hands) >= most:
                break
            backlog, ledgers, is_delayed = self._clients.backlog, self._replica.ledgers, ledger.is_delayed
            if is_delayed and ledger in ledgers.doubts:
                continue  # a portion could have messages that are not due: nobody here knows of them
            if not is_delayed and older_unread(ledger, cursor, backlog, ledgers) is not None:
                continue
            portions = self._due_portions if is_delayed else self._portions
            for first, end in portions(cursor, ledger):
                if not turns or len(hands) >= most:
                    break
                consumer = turns.pop(0)
                deliveries = 1 if cursor.again_within(ledger, first, end) else 0
                count = min(end - first, _COUNT_MAX)
                hands.append(Hand(Range(ledger, first, count, consumer.number, deliveries), consumer.session))
                room[consumer] -= self._count(cursor, ledger, first, end)
                if room[consumer] > 0:
                    turns.append(consumer)
        return hands

    def _count(self, cursor: Cursor, ledger: Ledger, first: int, end: int) -> int:
        within = self._clients.backlog.within(cursor.frame_hash, ledger, first, end)
        return sum(high - low for low, high in within)

    def _portions(self, cursor: Cursor, ledger: Ledger) -> list[tuple[int, int]]:
        """Return ranges that have a portion of messages each, with what lies before these and is for nobody.

        What was handed out before, and what was not, are not mixed: only the former is flagged.
        """
        found: list[tuple[int, int]] = []
        for first, end in cursor.free(ledger, self._held_through(ledger) + 1):
            found += self._cut(cursor, ledger, first, end)
            if len(found) >= HANDS_MAX:
                return found
        return found

    def _due_portions(self, cursor: Cursor, ledger: Ledger) -> list[tuple[int, int]]:
        """Return ranges that have a portion of messages each whose delivery time has come, with what lies between these
        and the messages before them, and is for nobody."""
        backlog = self._clients.backlog
        found: list[tuple[int, int]] = []
        due = list(backlog.due_times.due(ledger))
        if not due:
            return found
        taken, ends_at = cursor.taken(ledger), self._held_through(ledger) + 1
        for first, end in due:
            for low, high in taken.gaps(first, min(end, ends_at)):
                start = max(backlog.others_before(cursor.frame_hash, ledger, low), taken.end_before(low), 1)
                found += self._cut(cursor, ledger, start, high)
                if len(found) >= HANDS_MAX:
                    return found
        return found

    def _cut(self, cursor: Cursor, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        """Cut a range into portions that have only new messages, or only some that come again."""
        again = cursor.again_within(ledger, first, end)
        bounds = sorted({first, end, *(bound for each in again for bound in each)})
        return [each for low, high in itertools.pairwise(bounds) for each in self._split(cursor, ledger, low, high)]

    def _split(self, cursor: Cursor, ledger: Ledger, first: int, end: int) -> list[tuple[int, int]]:
        portions: list[tuple[int, int]] = []
        count = 0
        for low, high in self._clients.backlog.within(cursor.frame_hash, ledger, first, end):
            at = low
            while at < high and len(portions) < HANDS_MAX:
                taken = min(high - at, PORTION - count)
                at, count = at + taken, count + taken
                if count == PORTION:
                    portions.append((first, at))
                    first, count = at, 0
        if count and len(portions) < HANDS_MAX:
            last = max(high for _, high in self._clients.backlog.within(cursor.frame_hash, ledger, first, end))
            portions.append((first, last))
        return portions

    def _held_through(self, ledger: Ledger) -> int:
        """Return the sequence through which W members have a ledger on disk. What lies beyond could be lost."""
        ledgers, membership = self._replica.ledgers, self._replica.log.membership
        own = ledgers.progress(ledger).on_disk
        if ledgers.is_closed(ledger):
            return own  # its final set is on W disks since it was closed
        reported = {member: report.on_disk_through(ledger) for member, report in self._reports}
        for through in sorted({own, *(each for each in reported.values() if each < own)}, reverse=True):
            holders = {member for member, on_disk in reported.items() if on_disk >= through}
            if membership.has_majority(holders | {self._clients.me}):
                return through
        return 0
