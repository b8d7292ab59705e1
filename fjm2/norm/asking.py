"""Asking a remote sender for repairs: what, when, and not at all where others do (RFC 5740, 5.3)."""

from collections.abc import Callable, Iterator
from random import Random

from .backoff import NackCycle, Phase, exponential_backoff
from .incoming import IncomingObject
from .nack import LEVELS, Ask, Place, RequestBuilder, read_requests, resolve
from .partition import ObjectPartition, locate
from .ranges import RangeSet
from .remote import Remote
from .repairset import RepairSet
from .stats import Stats
from .timers import Timer, TimerTable
from .window import ObjectWindow
from .wire import RepairFlag, RepairRequest

MESSAGES_MAX = 16
"""So many NACKs at once at the most; what is missing besides is asked for next time."""
_MESSAGE_BYTES_MIN = 40  # libnorm's, while it knows no segment size
_NO_OBJECT = ObjectPartition(0, 1, 1)


class Asking:
    """The NACK cycle towards one sender. It listens to others while it backs off."""

    def __init__(
        self,
        window: ObjectWindow,
        remote: Remote,
        timers: TimerTable,
        random: Random,
        stats: Stats,
        is_suppressible: bool,
        send: Callable[[tuple[RepairRequest, ...], float], None],
    ) -> None:
        self.window = window
        self.remote = remote
        self.timers = timers
        self.random = random
        self.stats = stats
        self.is_suppressible = is_suppressible
        """Whether others can be heard, so that waiting for them makes sense."""
        self.send = send
        self.message_bytes = _MESSAGE_BYTES_MIN
        """Most bytes of requests in one NACK."""
        self.cycle = NackCycle()
        self._heard_objects = RangeSet()

    def check(self, now: float) -> None:
        """Begin a cycle if anything is missing and none is under way."""
        if self.cycle.is_idle and self._is_wanting():
            self.cycle.move_to(Phase.BACKING_OFF)
            self._heard_objects.clear()
            for item in self.window.open.values():
                item.forget_heard()
            remote = self.remote
            most_s = remote.backoff_factor * remote.grtt_s if self.is_suppressible else 0.0
            self.timers.set(Timer.BACKOFF, now + exponential_backoff(self.random, most_s, remote.group_size))

    def end_phase(self, now: float) -> None:
        """The back-off is over: ask, unless others have. The hold-off is over: begin again."""
        if self.cycle.phase is Phase.HOLDING_OFF:
            self.cycle.move_to(Phase.IDLE)
            self.check(now)
            return
        needs = self._needs()
        unheard = list(self.window.unheard())
        if not needs and not unheard:
            self.cycle.move_to(Phase.IDLE)  # it came of itself meanwhile
            return
        if self._is_covered(needs, unheard):
            self.stats.nacks_suppressed += 1
        else:
            for requests in self._messages(needs, unheard)[:MESSAGES_MAX]:
                self.send(requests, now)
        self.cycle.move_to(Phase.HOLDING_OFF)
        hold_off = self.remote.backoff_factor + 2 if self.is_suppressible else 2
        self.timers.set(Timer.BACKOFF, now + hold_off * self.remote.grtt_s)

    def overhear(self, requests: tuple[RepairRequest, ...]) -> None:
        """Others ask the same sender, or it repeats what they asked."""
        if not self.cycle.is_listening:
            return
        for ask in read_requests(requests):
            first = self.window.count_of(ask.first.object_id)
            last = self.window.count_of(ask.last.object_id)
            level = ask.flags & LEVELS
            known = self.window.open.get(first)
            if level == RepairFlag.OBJECT:
                self._heard_objects.add(first, last + 1)
                for count, item in self.window.open.items():
                    if first <= count <= last:
                        item.is_heard_whole = item.heard.info = True
            elif known is not None:
                self._overhear_symbols(ask, level, known)

    @staticmethod
    def _overhear_symbols(ask: Ask, level: int, item: IncomingObject) -> None:
        if ask.flags & RepairFlag.INFO:
            item.heard.info = True
        if not level:
            return
        wanted = resolve(ask, item.place, locate(item.place.partition, max(item.seen_end - 1, 0))[0])
        if wanted is not None:
            item.heard.segments.add(wanted.start, wanted.end)
            if wanted.rows:
                item.heard.parity.setdefault(wanted.block, set()).update(wanted.rows)

    # What is missing.

    def _is_wanting(self) -> bool:
        window = self.window
        if any(item.is_wanting() for item in window.open.values()):
            return True
        return len(window.open) < window.end - window.start and next(window.unheard(), None) is not None

    def _needs(self) -> list[tuple[int, IncomingObject, RepairSet]]:
        wanting = [(count, item) for count, item in sorted(self.window.open.items()) if item.is_wanting()]
        needs = [(count, item, item.needs()) for count, item in wanting]
        return [need for need in needs if need[2]]

    def _is_covered(self, needs: list[tuple[int, IncomingObject, RepairSet]], unheard: list[tuple[int, int]]) -> bool:
        return all(self._heard_objects.covers(start, end) for start, end in unheard) and all(
            item.is_covered(wants) for _, item, wants in needs
        )

    def _messages(
        self, needs: list[tuple[int, IncomingObject, RepairSet]], unheard: list[tuple[int, int]]
    ) -> list[tuple[RepairRequest, ...]]:
        """Requests for all of it, oldest object first."""
        remote = self.remote
        builder = RequestBuilder(4 + remote.format.size, max(self.message_bytes, _MESSAGE_BYTES_MIN))
        ranges: Iterator[tuple[int, int]] = iter(unheard)
        gap = next(ranges, None)
        for count, item, wants in needs:
            while gap is not None and gap[0] < count:
                self._add_objects(builder, gap)
                gap = next(ranges, None)
            _add_needs(builder, item.place, wants)
        while gap is not None:
            self._add_objects(builder, gap)
            gap = next(ranges, None)
        return builder.messages()

    def _add_objects(self, builder: RequestBuilder, counts: tuple[int, int]) -> None:
        start, end = counts
        remote = self.remote
        first, last = (
            Place(remote.fec_id, remote.format, count & 0xFFFF, _NO_OBJECT).whole for count in (start, end - 1)
        )
        builder.add(RepairFlag.OBJECT, first, last, end - start)


def _add_needs(builder: RequestBuilder, place: Place, wants: RepairSet) -> None:
    """Requests for one object, lowest block first."""
    flags = RepairFlag.INFO if wants.info else 0
    if not wants.segments and not wants.parity:
        builder.add_object(flags, place)
        return
    ranges = list(wants.segments)
    for block in sorted(wants.parity):
        first = place.partition.first_segment(block)
        length = place.partition.block_length(block)
        before = [(start, end) for start, end in ranges if start < first + length]
        ranges = ranges[len(before) :]
        builder.add_segments(flags, place, before)
        for start, end in RangeSet((row, row + 1) for row in wants.parity[block]):
            builder.add_symbols(flags, place, block, range(length + start, length + end))
    builder.add_segments(flags, place, ranges)
