"""Schedule NACKs to one remote sender: what to request, when, and when to stay silent (RFC 5740, 5.3)."""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from fjm2.norm.core.backoff import NackCycle, NackPhase, exponential_backoff
from fjm2.norm.core.nack import LEVELS, ObjectLayout, RequestBuilder, RequestedRange, read_requests, resolve
from fjm2.norm.core.partition import ObjectPartition, locate
from fjm2.norm.core.ranges import RangeSet
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.repair_set import RecentRepairs, RepairSet
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.timers import Timer, TimerTable
from fjm2.norm.core.wire import RepairFlag, RepairRequest

from .incoming_object import IncomingObject
from .window import ObjectWindow

MESSAGES_MAX = 16
"""So many NACKs at once at the most; what is missing besides is asked for next time."""
PIECES_MAX = 2048
"""So many ranges or blocks at once, likewise. As many of what others ask for are noted."""
_PAUSE_MIN_S = 0.001
_PAUSES_PER_GRTT = 8
"""Where nobody else need be heard, what has got lost since is asked for so often."""
_OBJECT_RANGES_MAX = 64
_MESSAGE_BYTES_MIN = 40  # libnorm's, while it knows no segment size
_CREDIT_MIN_BYTES = 128
_HEADER_BYTES = 64  # of a NACK: NORM, UDP and IP
_NO_OBJECT = ObjectPartition(0, 1, 1)


class NackScheduler:
    """The NACK cycle towards one sender. It listens to others while it backs off."""

    def __init__(
        self,
        window: ObjectWindow,
        remote: RemoteSender,
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
        self.credit_bytes = 0
        """What the sender has sent since we asked last. Requests are no longer than that, if it is not very little: who
        sends next to nothing, perhaps in another's name, shall not make us send a lot."""
        self.cycle = NackCycle()
        self._heard_objects = RangeSet()
        self._heard_left = 0
        self._asked_objects = RecentRepairs()
        """Objects never heard of that were asked for a moment ago."""
        self._asked_at = 0.0

    def check(self, now: float) -> None:
        """Begin a cycle if anything is missing and none is under way."""
        if self.cycle.is_idle and self._is_wanting():
            self.cycle.move_to(NackPhase.BACKING_OFF)
            self._heard_objects.clear()
            self._heard_left = PIECES_MAX
            for item in self.window.open.values():
                item.forget_heard()
            remote = self.remote
            most_s = remote.backoff_factor * remote.grtt_s if self.is_suppressible else 0.0
            self.timers.set(Timer.BACKOFF, now + exponential_backoff(self.random, most_s, remote.group_size))

    def end_phase(self, now: float) -> None:
        """The back-off is over: ask, unless others have. The hold-off is over: begin again."""
        if self.cycle.phase is NackPhase.HOLDING_OFF:
            self.cycle.move_to(NackPhase.IDLE)
            if self.remote.data_at > self._asked_at:  # to a sender that has fallen silent `Receiver` will look
                self.check(now)
            return
        if self._is_prompt():
            self._ask_for_new(now)
            return
        needs = self._needs()
        unheard = list(self.window.unheard())
        if not needs and not unheard:
            self.cycle.move_to(NackPhase.IDLE)  # it came of itself meanwhile
            return
        if self._is_covered(needs, unheard):
            self.stats.nacks_suppressed += 1
        else:
            for requests in self._messages(needs, unheard):
                self.send(requests, now)
            self.credit_bytes = 0
        self._asked_at = now
        self.cycle.move_to(NackPhase.HOLDING_OFF)
        self.timers.set(Timer.BACKOFF, now + self._hold_off_s)

    @property
    def _hold_off_s(self) -> float:
        """The time that a repair is given to come."""
        return (self.remote.backoff_factor + 2 if self.is_suppressible else 2) * self.remote.grtt_s

    def _is_prompt(self) -> bool:
        """Whether only what was asked for has to wait for its repair, not what gets lost meanwhile.

        So it is where nobody else is to be spared, and where the sender does not gather requests for its parity.
        """
        is_alone = self.remote.backoff_factor == 0 or not self.is_suppressible
        return is_alone and not any(item.has_parity for item in self.window.open.values())

    def _ask_for_new(self, now: float) -> None:
        """Ask for what was not asked for a moment ago, and look again soon."""
        if not self._is_wanting():
            self.cycle.move_to(NackPhase.IDLE)
            return
        until = now + self._hold_off_s
        if self.credit_bytes >= _CREDIT_MIN_BYTES or now >= self._asked_at + self._hold_off_s:
            needs = self._new_needs(now, until)
            unheard = self._new_unheard(now, until)
            if needs or unheard:
                for requests in self._messages(needs, unheard):
                    self.send(requests, now)
                self.credit_bytes = 0
                self._asked_at = now
        self.cycle.move_to(NackPhase.HOLDING_OFF)
        self.timers.set(Timer.BACKOFF, now + max(self.remote.grtt_s / _PAUSES_PER_GRTT, _PAUSE_MIN_S))

    def overhear(self, requests: tuple[RepairRequest, ...]) -> None:
        """Others ask the same sender, or it repeats what they asked."""
        if not self.cycle.is_listening:
            return
        for ask in islice(read_requests(requests), self._heard_left):
            self._heard_left -= 1
            first = self.window.count_of(ask.first.object_id)
            last = self.window.count_of(ask.last.object_id)
            level = ask.flags & LEVELS
            known = self.window.open.get(first)
            if level == RepairFlag.OBJECT:
                self._heard_objects.add(first, last + 1)
            elif known is not None:
                self._overhear_symbols(ask, level, known)

    @staticmethod
    def _overhear_symbols(ask: RequestedRange, level: int, item: IncomingObject) -> None:
        if ask.flags & RepairFlag.INFO:
            item.heard.info = True
        if not level:
            return
        wanted = resolve(ask, item.layout, locate(item.layout.partition, max(item.seen_end - 1, 0))[0])
        if wanted is not None:
            item.heard.segments.add(wanted.start, wanted.end)
            rows = range(wanted.rows.start, min(wanted.rows.stop, item.fti.parity_segments))
            if rows:
                item.heard.parity.setdefault(wanted.block, set()).update(rows)

    # What is missing.

    def _is_wanting(self) -> bool:
        window = self.window
        if any(item.is_wanting() for item in window.open.values()):
            return True
        return window.has_unheard

    def _needs(self) -> list[tuple[int, IncomingObject, RepairSet]]:
        needs: list[tuple[int, IncomingObject, RepairSet]] = []
        most = PIECES_MAX
        for count, item in sorted(self.window.open.items()):
            if most > 0 and item.is_wanting():
                wants = item.needs(most)
                most -= wants.segments.range_count + len(wants.parity) + 1
                if wants:
                    needs.append((count, item, wants))
        return needs

    def _new_needs(self, now: float, until: float) -> list[tuple[int, IncomingObject, RepairSet]]:
        needs: list[tuple[int, IncomingObject, RepairSet]] = []
        most = PIECES_MAX
        for count, item in sorted(self.window.open.items()):
            if most > 0 and item.is_wanting():
                wants = item.new_needs(most, now, until)
                most -= wants.segments.range_count + 1
                if wants:
                    needs.append((count, item, wants))
        return needs

    def _new_unheard(self, now: float, until: float) -> list[tuple[int, int]]:
        asked = self._asked_objects
        unheard: list[tuple[int, int]] = []
        for start, end in self.window.unheard():
            for fresh_start, fresh_end in asked.fresh(start, end, now):
                if len(asked) < _OBJECT_RANGES_MAX:
                    asked.add(fresh_start, fresh_end, until)
                    unheard.append((fresh_start, fresh_end))
        return unheard

    def _is_covered(self, needs: list[tuple[int, IncomingObject, RepairSet]], unheard: list[tuple[int, int]]) -> bool:
        return all(self._heard_objects.covers(start, end) for start, end in unheard) and all(
            count in self._heard_objects or item.is_covered(wants) for count, item, wants in needs
        )

    def _messages(
        self, needs: list[tuple[int, IncomingObject, RepairSet]], unheard: list[tuple[int, int]]
    ) -> list[tuple[RepairRequest, ...]]:
        """Requests for all of it, oldest object first, as far as they may go now."""
        remote = self.remote
        credit = max(self.credit_bytes, _CREDIT_MIN_BYTES)
        size = max(min(self.message_bytes, credit), _MESSAGE_BYTES_MIN)
        builder = RequestBuilder(4 + remote.format.size, size)
        ranges: Iterator[tuple[int, int]] = iter(unheard)
        gap = next(ranges, None)
        for count, item, wants in needs:
            while gap is not None and gap[0] < count:
                self._add_objects(builder, gap)
                gap = next(ranges, None)
            _add_needs(builder, item.layout, wants)
        while gap is not None:
            self._add_objects(builder, gap)
            gap = next(ranges, None)
        return builder.messages()[: min(max(credit // (size + _HEADER_BYTES), 1), MESSAGES_MAX)]

    def _add_objects(self, builder: RequestBuilder, counts: tuple[int, int]) -> None:
        start, end = counts
        remote = self.remote
        first, last = (
            ObjectLayout(remote.fec_id, remote.format, count & 0xFFFF, _NO_OBJECT).whole for count in (start, end - 1)
        )
        builder.add(RepairFlag.OBJECT, first, last, end - start)


def _add_needs(builder: RequestBuilder, layout: ObjectLayout, wants: RepairSet) -> None:
    """Requests for one object, lowest block first."""
    flags = RepairFlag.INFO if wants.info else 0
    if not wants.segments and not wants.parity:
        builder.add_object(flags, layout)
        return
    ranges = [*iter(wants.segments)]  # not of the set itself: it is as long as it has numbers, and Python makes room
    done = 0
    for block in sorted(wants.parity):
        first = layout.partition.first_segment(block)
        length = layout.partition.block_length(block)
        before = done
        while done < len(ranges) and ranges[done][0] < first + length:
            done += 1
        builder.add_segments(flags, layout, ranges[before:done])
        for start, end in RangeSet((row, row + 1) for row in wants.parity[block]):
            builder.add_symbols(flags, layout, block, range(length + start, length + end))
    builder.add_segments(flags, layout, ranges[done:])
