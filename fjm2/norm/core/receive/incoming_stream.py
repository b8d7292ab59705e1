"""A STREAM that is being received: segments are delivered in order, straight from the train if nothing is missing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.events import Event, LossReason
from fjm2.norm.core.fec import Code
from fjm2.norm.core.nack import ObjectLayout
from fjm2.norm.core.partition import StreamPartition
from fjm2.norm.core.stats import Drop, Stats
from fjm2.norm.core.wire import STREAM_HEADER, Fti

from .delivery import DeliveryState, StreamDelivery
from .incoming_object import IncomingObject
from .leap import LeapGuard
from .segment_ring import SegmentRing

_HEADER_BYTES = STREAM_HEADER.size
_RING_ROWS_MAX = 1 << 17
"""Maximum number of segments kept in a ring, however short they are, because looking through them takes time."""
_NEAR_SEGMENTS_MIN, _NEAR_SEGMENTS_MAX = 64, 1024
"""Bounds of the number of segments that a sender may skip without proof that it has sent them: a train, and as many as
get lost at once when a socket buffer is full."""
_NEAR_SHARE = 4
"""Share of the ring (1/4) that a sender may be ahead without proof."""
_SPARE_SEGMENTS_MAX = 255
"""Maximum number of spare rows of a ring without parity: the longest block that `SenderConfig` allows."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """A place at which a stream goes on, if it is heard again after it was given up or ended."""

    index: int
    """Next segment."""
    block: int
    """Number of the first block on the wire that shows that the stream goes on."""
    block_bits: int

    def is_reached(self, block: int) -> bool:
        """Return True if a block number shows that the stream goes on."""
        return (block - self.block) & ((1 << self.block_bits) - 1) < 1 << (self.block_bits - 1)


class IncomingStream(IncomingObject):
    """A STREAM that is being received. Its segments are delivered in order; those that arrive early wait in a ring."""

    is_stream = True

    def __init__(
        self,
        layout: ObjectLayout,
        fti: Fti,
        code: Code,
        stats: Stats,
        sender_id: int,
        ring_bytes: int,
        emit: Callable[[Event], None],
    ) -> None:
        super().__init__(layout, fti, code, stats, fti.segment_bytes + _HEADER_BYTES)
        self.partition: StreamPartition = StreamPartition(fti.block_segments)
        # One block more than the sender's buffer: with parity, the block that is being read must stay whole.
        segments = min(-(-min(fti.object_bytes, ring_bytes) // fti.segment_bytes), _RING_ROWS_MAX)
        self._spare = fti.block_segments if self.has_parity else min(fti.block_segments, _SPARE_SEGMENTS_MAX)
        rows = (max(2, -(-segments // self._spare)) + 1) * self._spare
        self._ring = SegmentRing(rows, fti.segment_bytes + _HEADER_BYTES)
        self.leaps = LeapGuard(min(max(self._capacity // _NEAR_SHARE, _NEAR_SEGMENTS_MIN), _NEAR_SEGMENTS_MAX))
        """Position of the sender, as far as it is proven."""
        self._leapt: tuple[int, int, int, int] | None = None
        """The last leap: range of segments given up, offset of the first, and `seen_end` before; None if there is
        none."""
        self._delivery = StreamDelivery(sender_id, layout.object_id, stats, emit)
        self.next_index = 0
        """Index of the next segment to deliver."""
        self.heard: tuple[int, int] | None = None
        """First segment that was heard of before it is known where reading begins, and index after the last one; None
        if none was."""
        self._whole_from = 0
        """Blocks that begin before this index cannot be decoded: parts of them were never received."""

    @property
    def _content_bytes(self) -> int:
        return self._ring.memory_bytes

    @property
    def claimed_bytes(self) -> int:
        return self._ring.claimed_bytes

    @property
    def first_wanted(self) -> int:
        return self.next_index

    @property
    def is_started(self) -> bool:
        """True if it is known where reading begins."""
        return self._delivery.is_started

    @property
    def is_complete(self) -> bool:
        return self._delivery.is_ended

    @property
    def is_useful(self) -> bool:
        return self._delivery.is_open

    @property
    def _capacity(self) -> int:
        """Number of segments that there is room for."""
        return self._ring.rows - self._spare

    @property
    def reach(self) -> int:
        """Index after the last segment that there is room for."""
        return self.next_index + self._capacity

    @property
    def is_incomplete(self) -> bool:
        return self.next_index < self.seen_end or not self.is_started

    def is_plausible(self, first: int, end: int, now: float) -> bool:
        """Return True if the sender may be at a range of segments.

        If the sender turns out to be where it was before its last leap, that was forged: go back.
        """
        if not self.is_started:
            return True
        leaps = self.leaps
        leaps.note_front(self.next_index)  # segments in order need no proof
        if self._leapt is not None and self._leapt[0] <= first and end <= self._leapt[1]:
            # Segments that were seen before the leap may be repairs, for which this node or others asked.
            if end >= self._leapt[3] and leaps.is_proven(first, end, now):
                self._go_back()
            return True
        front, reach = leaps.front, self.reach
        if not leaps.admits(first, end, reach, now):
            return False
        if end > reach and first > front + leaps.near:
            self._leapt = self.next_index, end - self._capacity, self._delivery.offset, self.seen_end
        return True

    def resumption(self) -> Resumption:
        """Return where to go on. A stream that has ended goes on in place of its last segment."""
        index, size = self.next_index, self.partition.block_segments
        block = -(-index // size) if self.is_complete else index // size
        return Resumption(index - self.is_complete, block, self.layout.format.block_bits)

    def is_given_up(self, end: int) -> bool:
        """Return True if segments before an index were given up because of a leap."""
        return self._leapt is not None and self._leapt[0] < end <= self._leapt[1]

    def _go_back(self) -> None:
        """Receive again from where the last leap began."""
        assert self._leapt is not None
        first, _, offset, _ = self._leapt
        self._leapt = None
        if self.received:  # a FLUSH alone may have proved the leap
            self.received.remove(first, self.received.last + 1)
        self.next_index = self._whole_from = self.seen_end = self.askable_end = first
        self.leaps.front = first
        self._parity.clear()
        self._delivery.go_back(offset)

    def hear(self, first: int, end: int) -> None:
        """Note segments that were heard of before it is known where reading begins."""
        self.heard = (first if self.heard is None else self.heard[0], end)

    def start_at(self, index: int) -> None:
        """Begin reading at a segment."""
        self._delivery.move_to(DeliveryState.STARTED)
        self.next_index = self._whole_from = index
        self.leaps.front = index
        self.seen_end, self.askable_end = min(self.seen_end, index), min(self.askable_end, index)
        self.received.add(0, index)

    def append(self, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> bool:
        delivery = self._delivery
        if self.has_parity or not delivery.is_contiguous or self.received.last >= self.next_index:
            return False
        count = len(payloads)
        self.received.add(self.next_index, self.next_index + count + (tail.size > 0))
        if count:
            self.next_index += count
            delivery.deliver(payloads)
        if tail.size:
            self.next_index += 1
            delivery.deliver_short(tail)
        return True

    def append_alone(self, data: memoryview, at: int) -> bool:
        """Deliver the segment `seen_end`, which came alone as the bytes of `data` from index `at` on. Return False, and
        do nothing, if anything is unusual."""
        index = self.next_index
        if index != self.seen_end or self.has_parity or not self._delivery.deliver_alone(data, at):
            return False
        self.next_index = self.seen_end = self.askable_end = end = index + 1
        self.received.add(index, end)
        return True

    def receive(self, first: int, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> None:
        count = len(payloads) + (tail.size > 0)
        end = first + count
        if end <= self.next_index:
            self._stats.duplicate_segments_received += count
            return
        is_next = first == self.next_index and self.received.end_of(first) == first
        if is_next and not self.has_parity and not any(self.received.within(first, end)):
            self.taken += count
            self.received.add(first, end)
            if len(payloads):
                self._deliver(payloads)
            if tail.size >= _HEADER_BYTES:
                self._deliver(tail.reshape(1, -1))
            self._deliver_waiting()
            return
        if self._is_fragmenting(first, end):
            return
        capacity = self._capacity
        for start in range(0, count, capacity):  # a run longer than the ring passes through it in parts
            some = payloads[start : start + capacity]
            rest = tail if start + capacity >= count else tail[:0]
            part_end = first + start + len(some) + (rest.size > 0)
            if part_end > self.reach:
                self.give_up(part_end - capacity, LossReason.OVERRUN)
            self._store(first + start, some, rest)
        self.announce_gap()

    def receive_parity(self, block: int, row: int, payload: NDArray[np.uint8]) -> None:
        if self.partition.first_segment(block) < self.reach:
            super().receive_parity(block, row, payload)
        else:
            self._stats.drop(Drop.OUT_OF_WINDOW)

    def _store(self, first: int, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> None:
        end = first + len(payloads)
        self._store_rows(first, end, payloads)
        if tail.size >= _HEADER_BYTES:
            self._store_rows(end, end + 1, tail.reshape(1, -1))
            end += 1
        self._repair_touched(first, max(end, first + 1))
        self._deliver_waiting()

    def _store_rows(self, first: int, end: int, rows: NDArray[np.uint8]) -> None:
        """Store the segments that are not there yet."""
        fresh = list(self.received.gaps(max(first, self.next_index), end))
        count = sum(stop - start for start, stop in fresh)
        self._stats.duplicate_segments_received += end - first - count
        self.taken += count
        self._ring.store(fresh, first, rows)
        for start, stop in fresh:
            self.received.add(start, stop)

    def _is_decodable(self, first: int) -> bool:
        return first >= self._whole_from

    def _decode(self, block: int, first: int, end: int) -> None:
        self._parity.repair(block, self._ring.run(first, end), self.received, first)
        self.received.add(first, end)
        self._deliver_waiting()

    def _deliver(self, rows: NDArray[np.uint8]) -> None:
        self.next_index += len(rows)
        self._delivery.deliver(rows)

    def _deliver_waiting(self) -> None:
        """Deliver the segments in the ring before which nothing is missing any more."""
        while self._ring.is_allocated and not self._delivery.is_ended:
            end = self.received.end_of(self.next_index)
            if end == self.next_index:
                break
            self._deliver(self._ring.run(self.next_index, end))
        self._parity.drop_before(self.next_index // self.partition.block_segments)

    def give_up(self, until: int, reason: LossReason) -> None:
        """Stop waiting for segments before an index, and continue reading from there."""
        while self.next_index < until and not self._delivery.is_ended:
            end = self.received.end_of(self.next_index)
            if end > self.next_index:
                self._deliver_waiting()
                continue
            gap_end = next((stop for start, stop in self.received.gaps(self.next_index, until)), until)
            self._delivery.note_gap(reason, gap_end - self.next_index)
            self.received.add(self.next_index, gap_end)
            self.next_index = self._whole_from = gap_end
            self._stats.objects_lost += 1
        self._deliver_waiting()

    def announce_gap(self) -> None:
        """Tell the application of a gap whose end is not known yet."""
        self._delivery.announce_gap(self.fti.segment_bytes)

    def abandon(self, reason: LossReason) -> None:
        """Report that no more of the stream will arrive."""
        self._delivery.abandon(reason)

    def missing_bytes(self) -> Iterator[tuple[int, int]]:
        yield from ()
