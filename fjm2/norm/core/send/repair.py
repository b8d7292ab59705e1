"""What a sender has been asked to send again, and when it does (RFC 5740, 5.4.3).

Without parity a repair goes out at once, and a request that comes while it travels is not answered again. With parity
requests are gathered first, as one parity symbol repairs another loss at every receiver.
"""

from collections.abc import Callable
from enum import Enum, auto

from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.nack import LEVELS, ObjectLayout, RequestBuilder, RequestedRange, read_requests, resolve
from fjm2.norm.core.partition import locate
from fjm2.norm.core.repair_set import INFO_INDEX, RepairSet
from fjm2.norm.core.stats import Drop, Stats
from fjm2.norm.core.wire import Nack, RepairFlag, RepairRequest

from .cache import SendCache
from .objects import SendObject

_LOOKS_MAX = 1024
"""So many items of one NACK are read, and objects looked at for it; honest ones have fewer."""
_FRAGMENTS_MAX = 1 << 13
"""In so many pieces may lie what is to be repaired of an object. Who misses more will ask again."""


def _is_scattered(repairs: RepairSet) -> bool:
    return repairs.segments.range_count + len(repairs.parity) >= _FRAGMENTS_MAX


class RepairPhase(Enum):
    """Of the repair cycle with parity."""

    IDLE = auto()
    GATHERING = auto()
    HOLDING_OFF = auto()


class RepairQueue:
    """Takes requests in, and hands out what is to be repaired next."""

    def __init__(
        self, cache: SendCache, config: SenderConfig, layout: Callable[[SendObject], ObjectLayout], stats: Stats
    ) -> None:
        self._cache = cache
        self._config = config
        self._layout = layout
        self._stats = stats
        self._phase = RepairPhase.IDLE
        self._repairing: set[SendObject] = set()
        self._asked: set[SendObject] = set()
        self._is_squelch_wanted = False
        self._squelched_until = 0.0
        self._is_immediate = config.parity_segments == 0
        self.reopened: list[SendObject] = []
        """The objects that the last NACK gave repairs to."""

    # Requests come in.

    def take(self, nack: Nack, now: float) -> int:
        """Note what a NACK asks for. How many segments of it are new."""
        wanted: dict[SendObject, RepairSet] = {}
        left = _LOOKS_MAX + len(self._cache)
        for ask in read_requests(nack.requests):
            left -= self._read(ask, wanted)
            if left <= 0:
                self._stats.drop(Drop.RATE_LIMITED)
                break
        self.reopened = []
        total = 0
        for item, wants in wanted.items():
            if self._is_immediate:
                fresh = self._repair_at_once(item, wants, now)
            elif self._phase is RepairPhase.HOLDING_OFF:
                fresh = self._repair_if_ahead(item, wants)
            else:
                fresh = item.asked.merge(wants)
                self._asked.add(item)
            if fresh:
                self.reopened.append(item)
                total += fresh
        return total

    def _read(self, ask: RequestedRange, wanted: dict[SendObject, RepairSet]) -> int:
        """Find the objects that one item or range is about. How much work that was."""
        if ask.first.fec_id != self._config.fec.fec_id:
            self._stats.drop(Drop.UNSUPPORTED)
            return 1
        first_id, last_id = ask.first.object_id, ask.last.object_id
        level = ask.flags & LEVELS
        if level != RepairFlag.OBJECT and first_id != last_id:
            self._stats.drop(Drop.BAD_POSITION)
            return 1
        held, is_complete = self._cache.between(first_id, last_id)
        self._is_squelch_wanted |= not is_complete
        is_info_wanted = bool(ask.flags & (RepairFlag.INFO | RepairFlag.OBJECT))
        is_whole = level == RepairFlag.OBJECT
        for item in held:
            wants = wanted.get(item)
            if wants is None:
                if _is_scattered(item.repairs) or _is_scattered(item.asked):
                    self._stats.drop(Drop.RATE_LIMITED)
                    continue
                wants = wanted[item] = RepairSet()
            if is_info_wanted and item.info is not None:
                wants.info = True
            if is_whole:
                wants.segments.add(item.first_held, item.next_index)
            elif level and not self._read_symbols(ask, item, wants):
                self._stats.drop(Drop.BAD_POSITION)
        return 1 + len(held)

    def _read_symbols(self, ask: RequestedRange, item: SendObject, wants: RepairSet) -> bool:
        """Note the blocks and symbols that are meant; False if the object has no such, or not yet."""
        newest = locate(item.partition, item.next_index - 1)[0] if item.next_index else -1
        wanted = resolve(ask, self._layout(item), newest)
        if wanted is None or wanted.block > newest:
            return False
        if wanted.rows.stop > self._config.parity_segments and not ask.is_erasures:
            return False
        self._want(item, wants, wanted.start, wanted.end)
        if wanted.rows:
            self._want_parity(item, wants, wanted.block, wanted.rows)
        return True

    def _want(self, item: SendObject, wants: RepairSet, start: int, end: int) -> None:
        """Source segments; those that a stream has left behind can only be squelched."""
        if start < item.first_held:
            self._is_squelch_wanted = True
        wants.segments.add(max(start, item.first_held), min(end, item.next_index))

    def _want_parity(self, item: SendObject, wants: RepairSet, block: int, rows: range) -> None:
        partition = item.partition
        start, length = partition.first_segment(block), partition.block_length(block)
        if rows.stop > self._config.parity_segments or start + length > item.next_index:
            self._want(item, wants, start, start + length)  # more erasures than parity, or none to be had yet
        elif start < item.first_held:
            self._is_squelch_wanted = True
        else:
            wants.parity.setdefault(block, set()).update(rows)

    def _repair_at_once(self, item: SendObject, wants: RepairSet, now: float) -> int:
        before = len(item.repairs)
        for start, end in wants.segments:
            for fresh_start, fresh_end in item.recent.fresh(start, end, now):
                item.repairs.segments.add(fresh_start, fresh_end)
        if wants.info and item.recent.fresh(INFO_INDEX, INFO_INDEX + 1, now):
            item.repairs.info = True
        if item.repairs:
            self._repairing.add(item)
        return len(item.repairs) - before

    def _repair_if_ahead(self, item: SendObject, wants: RepairSet) -> int:
        """In the hold-off a request for what has just been repaired is older than the repair."""
        current = self.next_object()
        if current is None or item.order < current.order:
            return 0
        if item is current:
            ahead = item.partition.first_segment(self._current_block(item))
            wants.segments.remove(0, ahead)
            for block in [block for block in wants.parity if item.partition.first_segment(block) < ahead]:
                del wants.parity[block]
            wants.info &= item.repairs.info
        fresh = item.repairs.merge(wants)
        if item.repairs:
            self._repairing.add(item)
        return fresh

    # The cycle with parity.

    def starts_gathering(self) -> bool:
        """Whether a first request has just come, so that the time to gather others begins."""
        if self._phase is not RepairPhase.IDLE or not self._asked:
            return False
        self._phase = RepairPhase.GATHERING
        return True

    def end_phase(self) -> bool:
        """The phase's time is over. Whether a hold-off begins."""
        if self._phase is not RepairPhase.GATHERING:
            self._phase = RepairPhase.IDLE
            return False
        self._phase = RepairPhase.HOLDING_OFF
        for item in self._asked:
            item.repairs.merge(item.asked)
            item.asked.clear()
            if item.repairs:
                self._repairing.add(item)
        self._asked.clear()
        return True

    # Repairs go out.

    @property
    def is_busy(self) -> bool:
        """Whether repairs are due, or being gathered."""
        return bool(self._repairing) or self._phase is RepairPhase.GATHERING

    @property
    def has_repairs(self) -> bool:
        return bool(self._repairing)

    def next_object(self) -> SendObject | None:
        """The oldest object with something to be repaired, and still held."""
        while self._repairing:
            item = min(self._repairing, key=lambda item: item.order)
            self._trim(item)
            if item.repairs:
                return item
            self.settle(item)
        return None

    def _trim(self, item: SendObject) -> None:
        """A stream has gone on since it was asked: what it left behind is overwritten, and can only be squelched."""
        repairs, first = item.repairs, item.first_held
        if repairs.segments and repairs.segments.first < first:
            repairs.segments.remove(0, first)
            self._is_squelch_wanted = True
        if first and repairs.parity:
            for block in [block for block in repairs.parity if item.partition.first_segment(block) < first]:
                del repairs.parity[block]
                self._is_squelch_wanted = True

    def next_parity(self, item: SendObject) -> int | None:
        """The block whose parity is due next, unless source segments are."""
        repairs = item.repairs
        if not repairs.parity:
            return None
        block = min(repairs.parity)
        return None if repairs.segments and self._current_block(item) < block else block

    def spend_parity(self, item: SendObject, block: int) -> range:
        """The parity rows to send for a block: fresh ones while there are any, then those asked for."""
        rows = item.repairs.parity.pop(block)
        most = self._config.parity_segments
        fresh = item.fresh_parity.get(block, self._config.auto_parity)
        if fresh < most:
            chosen = range(fresh, min(most, fresh + len(rows)))
            item.fresh_parity[block] = chosen.stop
            return chosen
        start = min(rows)
        stop = start + 1
        while stop in rows:
            stop += 1
        rest = {row for row in rows if row >= stop}
        if rest:
            item.repairs.parity[block] = rest
        return range(start, stop)

    def settle(self, item: SendObject) -> None:
        """After a repair: the object may have no other."""
        if not item.repairs:
            self._repairing.discard(item)
            if item.first_held:
                item.fresh_parity = {
                    block: row
                    for block, row in item.fresh_parity.items()
                    if item.partition.first_segment(block) >= item.first_held
                }

    def forget(self, item: SendObject) -> None:
        """The object will not be held any more."""
        self._repairing.discard(item)
        self._asked.discard(item)

    def _current_block(self, item: SendObject) -> int:
        """The lowest block with something to be repaired."""
        repairs = item.repairs
        blocks = list(repairs.parity)
        if repairs.segments:
            blocks.append(locate(item.partition, repairs.segments.first)[0])
        return min(blocks, default=0)

    # What is said of it.

    def is_squelch_due(self, now: float, interval_s: float) -> bool:
        """Whether requests for what is gone are to be answered: at most once in an interval."""
        if not self._is_squelch_wanted:
            return False
        self._is_squelch_wanted = False
        if now < self._squelched_until:
            self._stats.drop(Drop.RATE_LIMITED)
            return False
        self._squelched_until = now + interval_s
        return True

    def requests(self, message_bytes: int) -> list[tuple[RepairRequest, ...]]:
        """All that is asked for or being repaired, as receivers would ask for it."""
        builder: RequestBuilder | None = None
        for item in sorted(self._asked | self._repairing, key=lambda item: item.order):
            layout = self._layout(item)
            builder = builder or RequestBuilder(layout.item_bytes, message_bytes)
            union = RepairSet()
            union.merge(item.asked)
            union.merge(item.repairs)
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
