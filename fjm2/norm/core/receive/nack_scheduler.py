"""Scheduling of NACKs to one remote sender: what to request, when, and when to stay silent (RFC 5740, 5.3)."""

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from fjm2.base.ranges import RangeSet
from fjm2.norm.core.backoff import NackCycle, NackPhase, exponential_backoff
from fjm2.norm.core.nack import LEVELS, ObjectLayout, RequestBuilder, RequestedRange, read_requests, resolve
from fjm2.norm.core.partition import ObjectPartition, locate
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.repair_set import RecentRequests, RepairSet
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.timers import Timer, TimerTable
from fjm2.norm.core.wire import RepairFlag, RepairRequest

from .incoming_object import IncomingObject
from .repair_time import RepairTime
from .window import ObjectWindow

MESSAGES_MAX = 16
"""Most NACKs sent at once. Parts that do not fit into them are requested the next time."""
PIECES_MAX = 2048
"""Maximum number of ranges or blocks requested at once. Also the maximum number of ranges noted from other receivers'
requests."""
_PAUSE_MIN_S = 0.001
"""Shortest time in seconds between two requests, to spare the sender."""
_PAUSES_PER_ROUND_TRIP = 8
"""Number of times in a round trip that new losses are requested, if there is no need to listen to other receivers."""
_OBJECT_RANGES_MAX = 64
"""Maximum number of ranges of unknown objects remembered as requested: a sender can claim any number of objects."""
_MESSAGE_BYTES_MIN = 40
"""Bytes of requests in one NACK while the segment size is unknown. libnorm has the same limit."""
_CREDIT_BYTES_MIN = 128
"""Bytes of requests that are always allowed, even if the sender has sent fewer bytes of data."""
_HEADER_BYTES = 64
"""Bytes of all headers of one NACK: NORM, UDP and IP."""
_NO_OBJECT = ObjectPartition(0, 1, 1)


class NackScheduler:
    """Scheduler of the NACKs to one sender. During the back-off, it listens to the requests of other receivers."""

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
        """True if other receivers can be heard, so that waiting for their requests makes sense."""
        self.send = send
        self.message_bytes = _MESSAGE_BYTES_MIN
        """Maximum number of bytes of requests in one NACK."""
        self.credit_bytes = 0
        """Bytes that the sender sent since the last request. Requests may not be longer, except for a small minimum:
        a forger who sends little in another's name must not make this node send a lot.
        """
        self.cycle = NackCycle()
        self._overheard_objects = RangeSet()
        self._overheard_left = 0
        self._requested_objects = RecentRequests()
        """Unknown objects that were requested a moment ago."""
        self._repair_time = RepairTime()
        self.requested_at = 0.0
        """Time of the last request by this receiver, or by another one for the same data."""

    def check(self, now: float) -> None:
        """Begin a NACK cycle if anything is missing and no cycle is in progress."""
        self._repair_time.note_arrivals(now, self._hold_off_s)
        if self.cycle.is_idle and self._is_missing_anything():
            self.cycle.move_to(NackPhase.BACKING_OFF)
            self._overheard_objects.clear()
            self._overheard_left = PIECES_MAX
            for item in self.window.open.values():
                item.forget_overheard()
            remote = self.remote
            backoff_max_s = remote.backoff_factor * remote.grtt_s if self.is_suppressible else 0.0
            self.timers.set(Timer.BACKOFF, now + exponential_backoff(self.random, backoff_max_s, remote.group_size))

    def end_phase(self, now: float) -> None:
        """End a back-off by requesting repairs, unless other receivers have. End a hold-off by checking again."""
        if self.cycle.phase is NackPhase.HOLDING_OFF:
            self.cycle.move_to(NackPhase.IDLE)
            if self.remote.data_at > self.requested_at:  # a silent sender is checked by `Receiver`
                self.check(now)
            return
        if self._is_prompt():
            self._request_new(now)
            return
        needs = self._needs()
        unheard = list(self.window.unheard())
        if not needs and not unheard:
            self.cycle.move_to(NackPhase.IDLE)  # it has arrived meanwhile
            return
        if self._is_covered(needs, unheard):
            self.stats.nacks_suppressed += 1
        else:
            for requests in self._messages(needs, unheard):
                self.send(requests, now)
            self.credit_bytes = 0
        self.requested_at = now
        self.cycle.move_to(NackPhase.HOLDING_OFF)
        self.timers.set(Timer.BACKOFF, now + self._hold_off_s)

    @property
    def _hold_off_s(self) -> float:
        """Time within which a repair should arrive, in seconds."""
        return (self.remote.backoff_factor + 2 if self.is_suppressible else 2) * self.remote.grtt_s

    def _is_prompt(self) -> bool:
        """Return True if new losses can be requested while earlier ones are being repaired.

        That is so if there are no other receivers to wait for, and the sender does not gather requests for parity.
        """
        is_alone = self.remote.backoff_factor == 0 or not self.is_suppressible
        return is_alone and not any(item.has_parity for item in self.window.open.values())

    def _request_new(self, now: float) -> None:
        """Request missing parts that were not requested recently, or whose repair is late, and check again soon."""
        self._repair_time.note_arrivals(now, self._hold_off_s)
        if not self._is_missing_anything():
            self.cycle.move_to(NackPhase.IDLE)
            return
        hold_off_s = self._repair_time.late_s(self._hold_off_s)
        since = now - hold_off_s
        if self.credit_bytes >= _CREDIT_BYTES_MIN or self.requested_at <= since:
            needs = self._new_needs(now, since)
            unheard = self._new_unheard(now, since)
            if needs or unheard:
                for requests in self._messages(needs, unheard):
                    self.send(requests, now)
                for _, item, wants in needs:
                    if wants.segments:
                        self._repair_time.note_request(item, wants.segments.last, now)
                self.credit_bytes = 0
                self.requested_at = now
        self.cycle.move_to(NackPhase.HOLDING_OFF)
        round_trip_s = self._repair_time.late_s(self.remote.grtt_s)
        self.timers.set(Timer.BACKOFF, now + max(round_trip_s / _PAUSES_PER_ROUND_TRIP, _PAUSE_MIN_S))

    def overhear(self, requests: tuple[RepairRequest, ...]) -> None:
        """Note requests of other receivers to the same sender, which may make ours unnecessary."""
        if not self.cycle.is_listening:
            return
        for request in islice(read_requests(requests), self._overheard_left):
            self._overheard_left -= 1
            first = self.window.count_of(request.first.object_id)
            last = self.window.count_of(request.last.object_id)
            level = request.flags & LEVELS
            known = self.window.open.get(first)
            if level == RepairFlag.OBJECT:
                self._overheard_objects.add(first, last + 1)
            elif known is not None:
                self._overhear_symbols(request, level, known)

    @staticmethod
    def _overhear_symbols(request: RequestedRange, level: int, item: IncomingObject) -> None:
        if request.flags & RepairFlag.INFO:
            item.overheard.info = True
        if not level:
            return
        wanted = resolve(request, item.layout, locate(item.layout.partition, max(item.seen_end - 1, 0))[0])
        if wanted is not None:
            item.overheard.segments.add(wanted.start, wanted.end)
            rows = range(wanted.rows.start, min(wanted.rows.stop, item.fti.parity_segments))
            if rows:
                item.overheard.parity.setdefault(wanted.block, set()).update(rows)

    # Missing parts.

    def _is_missing_anything(self) -> bool:
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

    def _new_needs(self, now: float, since: float) -> list[tuple[int, IncomingObject, RepairSet]]:
        needs: list[tuple[int, IncomingObject, RepairSet]] = []
        most = PIECES_MAX
        for count, item in sorted(self.window.open.items()):
            if most > 0 and item.is_wanting():
                wants = item.new_needs(most, now, since)
                most -= wants.segments.range_count + 1
                if wants:
                    needs.append((count, item, wants))
        return needs

    def _new_unheard(self, now: float, since: float) -> list[tuple[int, int]]:
        requested = self._requested_objects
        unheard: list[tuple[int, int]] = []
        for start, end in self.window.unheard():
            for fresh_start, fresh_end in requested.fresh(start, end, since):
                if len(requested) < _OBJECT_RANGES_MAX:
                    requested.add(fresh_start, fresh_end, now)
                    unheard.append((fresh_start, fresh_end))
        return unheard

    def _is_covered(self, needs: list[tuple[int, IncomingObject, RepairSet]], unheard: list[tuple[int, int]]) -> bool:
        return all(self._overheard_objects.covers(start, end) for start, end in unheard) and all(
            count in self._overheard_objects or item.is_covered(wants) for count, item, wants in needs
        )

    def _messages(
        self, needs: list[tuple[int, IncomingObject, RepairSet]], unheard: list[tuple[int, int]]
    ) -> list[tuple[RepairRequest, ...]]:
        """Return the requests of each NACK to send: all requests, oldest object first, as far as credit allows."""
        remote = self.remote
        credit = max(self.credit_bytes, _CREDIT_BYTES_MIN)
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
    """Add requests for one object, lowest block first."""
    flags = RepairFlag.INFO if wants.info else 0
    if not wants.segments and not wants.parity:
        builder.add_object(flags, layout)
        return
    ranges = [*iter(wants.segments)]  # list(set) would reserve room for len(set), the number of segments
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
