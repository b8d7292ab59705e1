"""Repair requests at the sender: what was requested, and what is repaired next (RFC 5740, 5.4.3).

Without parity a repair is sent at once, and a request that crosses it on the way is ignored. With parity, requests are
gathered first: one parity symbol repairs a different loss at each receiver.
"""

from collections.abc import Callable
from enum import Enum, auto

from fjm2.base.ranges import RangeSet
from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.nack import LEVELS, ObjectLayout, RequestBuilder, RequestedRange, read_requests, resolve
from fjm2.norm.core.partition import locate
from fjm2.norm.core.repair_set import INFO_INDEX, RepairSet
from fjm2.norm.core.stats import Drop, Stats
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.wire import Nack, RepairFlag, RepairRequest

from .cache import SendCache
from .objects import SendObject

_WORK_MAX = 1024
"""Maximum number of items of one NACK that are read, plus objects looked at for them. Honest NACKs have fewer."""
_FRAGMENTS_MAX = 1 << 13
"""Maximum number of fragments (ranges of segments, and blocks) of one object that wait for repair. A receiver that
misses more requests the rest later."""


_STALLED_INTERVAL_S = 1.0
"""Shortest time between two NACKs that are served of all receivers that were given up because they made no progress."""
_STALLED_SEGMENTS = 64
"""Segments of such a NACK that are repaired: enough to see if they arrive now, and little of the rate."""


def _is_fragmented(repairs: RepairSet) -> bool:
    return repairs.segments.range_count + len(repairs.parity) >= _FRAGMENTS_MAX


def _first_new(item: SendObject, parts: RepairSet, known: RepairSet, recent: RangeSet | None = None) -> int:
    """Return the first segment of `parts` that is neither known nor was repaired recently.

    The first segment of a block stands for its parity, and INFO_INDEX for the INFO. If nothing is new, return the end
    of what was sent.
    """
    if parts.info and not known.info and (recent is None or INFO_INDEX not in recent):
        return INFO_INDEX
    first = item.next_index
    for block, rows in parts.parity.items():
        if not rows <= known.parity.get(block, set()):
            first = min(first, item.partition.first_segment(block))
    for start, end in parts.segments:
        for unknown_start, unknown_end in known.segments.gaps(start, end):
            gaps = [(unknown_start, unknown_end)] if recent is None else recent.gaps(unknown_start, unknown_end)
            for fresh_start, _ in gaps:
                return min(first, fresh_start)
    return first


class RepairPhase(Enum):
    """A phase of the repair cycle with parity."""

    IDLE = auto()
    GATHERING = auto()
    HOLDING_OFF = auto()


LEGAL = {
    RepairPhase.IDLE: {RepairPhase.GATHERING},
    RepairPhase.GATHERING: {RepairPhase.HOLDING_OFF},
    RepairPhase.HOLDING_OFF: {RepairPhase.IDLE},
}
"""Phases that may follow each phase."""


class RepairQueue:
    """Queue of a sender's repairs: it collects requests, and hands out what must be repaired, oldest object first."""

    def __init__(
        self, cache: SendCache, config: SenderConfig, layout: Callable[[SendObject], ObjectLayout], stats: Stats
    ) -> None:
        self._cache = cache
        self._config = config
        self._layout = layout
        self._stats = stats
        self._phase = RepairPhase.IDLE
        self.repairing: set[SendObject] = set()
        """Objects with repairs that are due."""
        self._requested: set[SendObject] = set()
        self._is_squelch_wanted = False
        self._squelched_until = 0.0
        self._is_immediate = config.parity_segments == 0
        self._stalled_until = 0.0
        """Time before which nothing is repaired for receivers that make no progress."""
        self.reopened: dict[SendObject, int] = {}
        """Objects of which the last NACK requested parts that were not requested before, and the first such segment."""

    # Requests come in.

    def add(
        self,
        nack: Nack,
        now: float,
        *,
        asked_at: float = -NEVER,
        is_stalled: bool = False,
        most: int | None = None,
    ) -> int:
        """Note what a NACK requests, and return how many segments of it are new.

        Without parity, segments count as new if no repair of them that was sent after `asked_at` can still be on its
        way; see `RecentRepairs.since`. If the receiver was given up because it made no progress, little is repaired:
        the others need the rate. If `most` is not None and there is no parity, at most so many segments are repaired.
        """
        self.reopened = {}
        if is_stalled:
            if now < self._stalled_until:
                self._stats.drop(Drop.RATE_LIMITED)
                return 0
            self._stalled_until = now + _STALLED_INTERVAL_S
        requested: dict[SendObject, RepairSet] = {}
        work_left = _WORK_MAX + len(self._cache)
        for request in read_requests(nack.requests):
            work_left -= self._read(request, requested)
            if work_left <= 0:
                self._stats.drop(Drop.RATE_LIMITED)
                break
        total = 0
        for item, parts in requested.items():
            if is_stalled:
                parts.limit(_STALLED_SEGMENTS)
            if self._is_immediate:
                recent = item.repairs.recent.sent_after(asked_at, now)
                first = _first_new(item, parts, item.repairs.due, recent)
                fresh = self._repair_at_once(item, parts, recent, None if most is None else most - total)
            elif self._phase is RepairPhase.HOLDING_OFF:
                self._drop_earlier(item, parts)
                first = _first_new(item, parts, item.repairs.due)
                fresh = self._repair(item, parts)
            else:
                first = _first_new(item, parts, item.repairs.requested)
                fresh = item.repairs.requested.merge(parts)
                self._requested.add(item)
            if fresh:
                self.reopened[item] = first
                total += fresh
        return total

    def _read(self, request: RequestedRange, requested: dict[SendObject, RepairSet]) -> int:
        """Add the parts that one item or range requests to `requested`. Return the work done, as `_WORK_MAX` counts."""
        if request.first.fec_id != self._config.fec.fec_id:
            self._stats.drop(Drop.UNSUPPORTED)
            return 1
        first_id, last_id = request.first.object_id, request.last.object_id
        level = request.flags & LEVELS
        if level != RepairFlag.OBJECT and first_id != last_id:
            self._stats.drop(Drop.BAD_POSITION)
            return 1
        held, is_complete = self._cache.between(first_id, last_id)
        self._is_squelch_wanted |= not is_complete
        is_info_requested = bool(request.flags & (RepairFlag.INFO | RepairFlag.OBJECT))
        is_whole = level == RepairFlag.OBJECT
        for item in held:
            parts = requested.get(item)
            if parts is None:
                if _is_fragmented(item.repairs.due) or _is_fragmented(item.repairs.requested):
                    self._stats.drop(Drop.RATE_LIMITED)
                    continue
                parts = requested[item] = RepairSet()
            if is_info_requested and item.info is not None:
                parts.info = True
            if is_whole:
                parts.segments.add(item.first_recent, item.next_index)
            elif level and not self._read_symbols(request, item, parts):
                self._stats.drop(Drop.BAD_POSITION)
        return 1 + len(held)

    def _read_symbols(self, request: RequestedRange, item: SendObject, parts: RepairSet) -> bool:
        """Add the requested blocks or symbols to `parts`. Return False if the object does not have them (yet)."""
        newest = locate(item.partition, item.next_index - 1)[0] if item.next_index else -1
        resolved = resolve(request, self._layout(item), newest)
        if resolved is None or resolved.block > newest:
            return False
        if resolved.rows.stop > self._config.parity_segments and not request.is_erasures:
            return False
        self._add_segments(item, parts, resolved.start, resolved.end)
        if resolved.rows:
            self._add_parity(item, parts, resolved.block, resolved.rows)
        return True

    def _add_segments(self, item: SendObject, parts: RepairSet, start: int, end: int) -> None:
        """Add source segments to `parts`. Requests for segments that a stream has overwritten can only be squelched."""
        if start < item.first_held:
            self._is_squelch_wanted = True
        parts.segments.add(max(start, item.first_held), min(end, item.next_index))

    def _add_parity(self, item: SendObject, parts: RepairSet, block: int, rows: range) -> None:
        partition = item.partition
        start, length = partition.first_segment(block), partition.block_length(block)
        if rows.stop > self._config.parity_segments or start + length > item.next_index:
            # There are more erasures than parity, or the block is not complete yet and so has no parity.
            self._add_segments(item, parts, start, start + length)
        elif start < item.first_held:
            self._is_squelch_wanted = True
        else:
            parts.parity.setdefault(block, set()).update(rows)

    def _repair_at_once(self, item: SendObject, parts: RepairSet, recent: RangeSet, most: int | None) -> int:
        due = item.repairs.due
        before = len(due)
        for start, end in parts.segments:
            for fresh_start, fresh_end in recent.gaps(start, end):
                if most is None:
                    due.segments.add(fresh_start, fresh_end)
                elif (left := most - (len(due) - before)) > 0:
                    due.segments.add(fresh_start, min(fresh_end, fresh_start + left))
        if parts.info and INFO_INDEX not in recent:
            due.info = True
        if due:
            self.repairing.add(item)
        return len(due) - before

    def _drop_earlier(self, item: SendObject, parts: RepairSet) -> None:
        """Keep only what lies after the current position: requests for earlier parts are older than their repair."""
        current = self.next_object()
        if current is None or item.order < current.order:
            parts.clear()
        elif item is current:
            position = item.partition.first_segment(self._current_block(item))
            parts.segments.remove(0, position)
            for block in [block for block in parts.parity if item.partition.first_segment(block) < position]:
                del parts.parity[block]
            parts.info &= item.repairs.due.info

    def _repair(self, item: SendObject, parts: RepairSet) -> int:
        """Make parts due for repair, and return how many are new."""
        due = item.repairs.due
        fresh = due.merge(parts)
        if due:
            self.repairing.add(item)
        return fresh

    # The cycle with parity.

    def starts_gathering(self) -> bool:
        """Begin to gather requests if a first request has arrived. Return True if gathering has begun."""
        if self._phase is not RepairPhase.IDLE or not self._requested:
            return False
        self._move_to(RepairPhase.GATHERING)
        return True

    def end_phase(self) -> bool:
        """End the current phase, and return True if a hold-off begins."""
        if self._phase is not RepairPhase.GATHERING:
            if self._phase is RepairPhase.HOLDING_OFF:
                self._move_to(RepairPhase.IDLE)
            return False
        self._move_to(RepairPhase.HOLDING_OFF)
        for item in self._requested:
            item.repairs.due.merge(item.repairs.requested)
            item.repairs.requested.clear()
            if item.repairs.due:
                self.repairing.add(item)
        self._requested.clear()
        return True

    def _move_to(self, phase: RepairPhase) -> None:
        if phase not in LEGAL[self._phase]:
            raise AssertionError(f"{self._phase} to {phase}")
        self._phase = phase

    # Repairs go out.

    @property
    def is_busy(self) -> bool:
        """True if repairs are due, or requests are being gathered."""
        return bool(self.repairing) or self._phase is RepairPhase.GATHERING

    def next_object(self) -> SendObject | None:
        """Return the oldest object that has repairs due, and still holds the data for them; None if there is none."""
        while self.repairing:
            item = min(self.repairing, key=lambda item: item.order)
            self._trim(item)
            if item.repairs.due:
                return item
            self.settle(item)
        return None

    def _trim(self, item: SendObject) -> None:
        """Drop repairs of data that a stream has overwritten since the request, which can only be squelched."""
        due, first = item.repairs.due, item.first_held
        if due.segments and due.segments.first < first:
            due.segments.remove(0, first)
            self._is_squelch_wanted = True
        if first and due.parity:
            for block in [block for block in due.parity if item.partition.first_segment(block) < first]:
                del due.parity[block]
                self._is_squelch_wanted = True

    def next_parity(self, item: SendObject) -> int | None:
        """Return the block whose parity is due next; None if no parity is due, or source segments come first."""
        due = item.repairs.due
        if not due.parity:
            return None
        block = min(due.parity)
        return None if due.segments and self._current_block(item) < block else block

    def spend_parity(self, item: SendObject, block: int) -> range:
        """Take and return parity rows to send for a block: rows never sent, or, if there are none, requested rows."""
        repairs = item.repairs
        rows = repairs.due.parity.pop(block)
        row_count = self._config.parity_segments
        fresh = repairs.fresh_parity.get(block, self._config.auto_parity)
        if fresh < row_count:
            chosen = range(fresh, min(row_count, fresh + len(rows)))
            repairs.fresh_parity[block] = chosen.stop
            return chosen
        start = min(rows)
        stop = start + 1
        while stop in rows:
            stop += 1
        rest = {row for row in rows if row >= stop}
        if rest:
            repairs.due.parity[block] = rest
        return range(start, stop)

    def settle(self, item: SendObject) -> None:
        """Take an object out of the queue after a repair, unless it has other repairs due."""
        repairs = item.repairs
        if not repairs.due:
            self.repairing.discard(item)
            if item.first_held:
                repairs.fresh_parity = {
                    block: row
                    for block, row in repairs.fresh_parity.items()
                    if item.partition.first_segment(block) >= item.first_held
                }

    def forget(self, item: SendObject) -> None:
        """Repair nothing more of an object."""
        self.repairing.discard(item)
        self._requested.discard(item)

    def _current_block(self, item: SendObject) -> int:
        """Return the lowest block that has repairs due."""
        due = item.repairs.due
        blocks = list(due.parity)
        if due.segments:
            blocks.append(locate(item.partition, due.segments.first)[0])
        return min(blocks, default=0)

    # Answers to requests.

    def is_squelch_due(self, now: float, interval_s: float) -> bool:
        """Return True if a SQUELCH must answer requests for data no longer held: at most once in `interval_s`."""
        if not self._is_squelch_wanted:
            return False
        self._is_squelch_wanted = False
        if now < self._squelched_until:
            self._stats.drop(Drop.RATE_LIMITED)
            return False
        self._squelched_until = now + interval_s
        return True

    def requests(self, message_bytes: int) -> list[tuple[RepairRequest, ...]]:
        """Return everything requested or being repaired, as repair requests for each of one or more messages."""
        builder: RequestBuilder | None = None
        for item in sorted(self._requested | self.repairing, key=lambda item: item.order):
            layout = self._layout(item)
            builder = builder or RequestBuilder(layout.item_bytes, message_bytes)
            union = RepairSet()
            union.merge(item.repairs.requested)
            union.merge(item.repairs.due)
            flags = RepairFlag.INFO if union.info else 0
            builder.add_segments(flags, layout, union.segments)
            for block in sorted(union.parity):
                if builder.message_count > 1:
                    return builder.messages()
                length = item.partition.block_length(block)
                builder.add_symbols(flags, layout, block, range(length, length + len(union.parity[block])))
            if union.info and not union.segments and not union.parity:
                builder.add_object(RepairFlag.INFO, layout)
        return builder.messages() if builder else []
