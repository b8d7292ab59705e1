"""Objects that are being received. They accept segments in any order, and know which parts are missing."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ranges import RangeSet
from fjm2.norm.core.fec import Code, NoCode, ReedSolomon
from fjm2.norm.core.nack import ObjectLayout
from fjm2.norm.core.parity_store import ParityStore
from fjm2.norm.core.partition import ObjectPartition, locate
from fjm2.norm.core.repair_set import INFO_INDEX, RecentRequests, RepairSet
from fjm2.norm.core.stats import Drop, Stats
from fjm2.norm.core.wire import Fti

from .stores import Store

M16_SYMBOLS_MAX = 1024
"""Maximum number of symbols of a block with parity over GF(2^16) that is decoded: the work grows with the square of
their number."""
FRAGMENTS_MAX = 1 << 16
"""Maximum number of fragments (separate ranges of segments received) of an object. Segments that would make more are
dropped, and requested again later."""
_FRAGMENT_BYTES = 128
"""Memory charged for one fragment, which is a range in a set. The estimate is generous."""
_REQUESTED_RANGES_MAX = 64
"""Maximum number of ranges remembered as requested. If there are more, nothing new is requested until some have
expired."""
_OBJECT_BYTES = 4096
"""Memory charged for an object in addition to its content. The estimate is generous: many small objects add up."""


def code_of(fti: Fti) -> Code | None:
    """Return the code that protects an object, or None if it cannot be decoded here."""
    block, parity = fti.block_segments, fti.parity_segments
    is_known = fti.instance == 0 and fti.group == 1 and fti.field_bits in (8, 16)
    if not (is_known and block >= 1 and 1 <= fti.segment_bytes <= 65_000):
        return None
    if parity == 0:
        return NoCode(block)
    if block + parity > (255 if fti.field_bits == 8 else M16_SYMBOLS_MAX):
        return None
    return ReedSolomon(block, parity, bits=fti.field_bits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectProgress:
    """Progress of an object that is being received."""

    sender_id: int
    """Node id of the sender."""
    object_id: int
    """Transport id of the object."""
    info: bytes | None
    """INFO of the object; None if the object has no INFO, or if the INFO has not arrived yet."""
    is_file: bool
    """True if the object is sent as a file."""
    size: int
    """Size of the complete object in bytes."""
    bytes_received: int
    """Bytes that have arrived or were decoded from parity."""


class IncomingObject(ABC):
    """Base of objects and streams that are being received."""

    is_stream = False

    def __init__(self, layout: ObjectLayout, fti: Fti, code: Code, stats: Stats, symbol_bytes: int) -> None:
        self.layout = layout
        self.fti = fti
        self.info: bytes | None = None
        self.is_info_expected = False
        self.received = RangeSet()
        """Indexes of source segments received. Segments that a stream has delivered or given up count as received."""
        self.seen_end = 0
        """Index after the last segment that the sender is known to have sent."""
        self.askable_end = 0
        """Index after the last segment that may be requested. Later segments may still arrive without a request."""
        self.overheard = RepairSet()
        """Parts that other receivers requested since our back-off began."""
        self._requested = RecentRequests()
        """Ranges whose gaps were all requested a moment ago."""
        self.taken = 0
        """Number of symbols that were new when they came, without those that `append` has taken."""
        self.symbol_bytes = symbol_bytes
        """Length of a full symbol in bytes: that of a segment, and in a stream also that of the stream header."""
        self.accounted_bytes = 0
        """Memory that the receiver has charged to this object."""
        self._stats = stats
        self._parity = ParityStore(code, symbol_bytes)
        self.has_parity = self._parity.count > 0
        """True if blocks have parity symbols, which can be requested in place of missing segments."""

    @property
    def memory_bytes(self) -> int:
        """Memory in use, in bytes."""
        info = len(self.info) if self.info is not None else 0
        pieces = self.received.range_count * _FRAGMENT_BYTES
        return _OBJECT_BYTES + info + pieces + self._parity.memory_bytes + self._content_bytes

    @property
    @abstractmethod
    def _content_bytes(self) -> int:
        """Memory of the source segments received, in bytes."""

    @property
    @abstractmethod
    def claimed_bytes(self) -> int:
        """Memory that the complete object may need, in bytes."""

    def _is_fragmenting(self, first: int, end: int) -> bool:
        """Return True if segments would be one fragment too many, and count them as dropped in that case."""
        received = self.received
        if received.range_count < FRAGMENTS_MAX or first - 1 in received or end in received:
            return False
        self._stats.drop(Drop.OUT_OF_WINDOW, end - first)
        return True

    @property
    @abstractmethod
    def first_wanted(self) -> int:
        """Index of the first segment that was neither received nor given up."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """True if nothing is missing any more."""

    @property
    def is_useful(self) -> bool:
        """True if the application has received anything of the object, or is about to."""
        return self.is_complete

    @abstractmethod
    def append(self, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> bool:
        """Receive segments by a short path, which is possible only if they follow all segments received, without a gap.

        Return False, and do nothing, if the short path is not possible.
        """

    @abstractmethod
    def receive(self, first: int, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> None:
        """Receive consecutive source segments from index `first` on: those in the rows of `payloads`, then `tail`.

        `tail` may be shorter than a full segment. Both may be empty.
        """

    def receive_parity(self, block: int, row: int, payload: NDArray[np.uint8]) -> None:
        """Receive a parity symbol."""
        first = self.layout.partition.first_segment(block)
        end = first + self.layout.partition.block_length(block)
        if row >= self._parity.count or end <= self.first_wanted or self.received.covers(first, end):
            return
        if self._parity.add(block, row, payload):
            self.taken += 1
        else:
            self._stats.duplicate_segments_received += 1
        self._repair(block)

    def _repair_touched(self, first: int, end: int) -> None:
        """Decode each block that new source segments belong to, if its parity now suffices."""
        if self.has_parity:
            for block in range(locate(self.layout.partition, first)[0], locate(self.layout.partition, end - 1)[0] + 1):
                if block in self._parity:
                    self._repair(block)

    def _repair(self, block: int) -> None:
        first = self.layout.partition.first_segment(block)
        end = first + self.layout.partition.block_length(block)
        missing = sum(stop - start for start, stop in self.received.gaps(first, end))
        if missing == 0:
            self._parity.drop(block)
        elif self._is_decodable(first) and self._parity.can_repair(block, missing):
            self._stats.segments_decoded += missing
            self._decode(block, first, end)

    def _is_decodable(self, first: int) -> bool:  # noqa: ARG002 - streams use it
        """Return True if all segments that count as received are really there, in the block that begins at `first`."""
        return True

    @abstractmethod
    def _decode(self, block: int, first: int, end: int) -> None:
        """Restore the missing segments of a block from its parity."""

    @property
    def is_incomplete(self) -> bool:
        """True if anything is missing that the sender has sent, as far as is known."""
        return True

    # Missing parts.

    def is_wanting(self) -> bool:
        """Return True if anything can be requested."""
        return self.lacks(self.askable_end)

    def lacks(self, end: int) -> bool:
        """Return True if the INFO, or a segment before `end`, is missing."""
        return self.first_wanted < end or (self.is_info_expected and self.info is None)

    def needs(self, most: int) -> RepairSet:
        """Return the parts to request: everything missing, but not much more than the first `most` ranges or blocks."""
        needs = RepairSet()
        needs.info = self.is_info_expected and self.info is None
        for start, end in self.received.gaps(self.first_wanted, self.askable_end):
            if self.has_parity:
                most -= self._need_parity(needs, start, end, most)
            else:
                needs.segments.add(start, end)
                most -= 1
            if most <= 0:
                break
        return needs

    def new_needs(self, most: int, now: float, since: float) -> RepairSet:
        """Return missing segments that were not requested after the time `since`, and remember them as requested.

        Parity is not considered. To save memory, the ranges that were searched are remembered, not the missing segments
        in them.
        """
        needs = RepairSet()
        requested = self._requested
        if self.is_info_expected and self.info is None and requested.fresh(INFO_INDEX, INFO_INDEX + 1, since):
            needs.info = True
            requested.add(INFO_INDEX, INFO_INDEX + 1, now)
        for start, end in requested.fresh(self.first_wanted, self.askable_end, since):
            if most <= 0 or len(requested) >= _REQUESTED_RANGES_MAX:
                break
            searched_to = start
            for gap_start, gap_end in self.received.gaps(start, end):
                if most <= 0:
                    break
                needs.segments.add(gap_start, gap_end)
                searched_to = gap_end
                most -= 1
            requested.add(start, end if most > 0 else searched_to, now)
        return needs

    def _need_parity(self, needs: RepairSet, start: int, end: int, most: int) -> int:
        """Add to `needs` parity of blocks whose gaps it can fill, and segments of others. Return the number of gaps."""
        pieces = 0
        while start < end and pieces < most:
            block, symbol = locate(self.layout.partition, start)
            first = start - symbol
            stop = first + self.layout.partition.block_length(block)
            if block not in needs.parity:
                pieces += self._need_of_block(needs, block, first, stop)
            start = stop
        return pieces

    def _need_of_block(self, needs: RepairSet, block: int, first: int, end: int) -> int:
        # Either the sender has not finished this block and has no parity for it, or parity would not help.
        if end > self.askable_end or not self._is_decodable(first):
            few = RangeSet(self.received.gaps(max(first, self.first_wanted), min(end, self.askable_end)))
            needs.segments.update(few)
            return few.range_count
        gaps = list(self.received.gaps(first, end))
        missing = sum(stop - start for start, stop in gaps)
        have = self._parity.rows(block)
        count = self._parity.count
        if missing == end - first and not have:
            needs.segments.add(first, end)
        elif missing <= count:
            wanted = [row for row in range(missing) if row not in have]
            needs.parity[block] = set(wanted[: missing - len(have)])
        else:
            # Request all parity, and as many missing segments fewer, as libnorm does.
            skip = count
            for start, stop in gaps:
                needs.segments.add(min(start + skip, stop), stop)
                skip = max(0, skip - (stop - start))
            needs.parity[block] = set(range(count)) - have
        return len(gaps)

    def is_covered(self, needs: RepairSet) -> bool:
        """Return True if other receivers have requested everything in `needs`."""
        overheard = self.overheard
        if needs.info and not overheard.info:
            return False
        if not all(overheard.segments.covers(start, end) for start, end in needs.segments):
            return False
        return all(self._is_parity_covered(block, len(rows)) for block, rows in needs.parity.items())

    def _is_parity_covered(self, block: int, count: int) -> bool:
        first = self.layout.partition.first_segment(block)
        end = first + self.layout.partition.block_length(block)
        requested = sum(stop - start for start, stop in self.overheard.segments.within(first, end))
        return requested + len(self.overheard.parity.get(block, ())) >= count

    def forget_overheard(self) -> None:
        """Forget the requests of others, as a new back-off begins."""
        self.overheard.clear()

    @abstractmethod
    def missing_bytes(self) -> Iterator[tuple[int, int]]:
        """Yield the byte ranges of the object that are missing."""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release files and memory."""


class IncomingData(IncomingObject):
    """A DATA or FILE object that is being received."""

    def __init__(self, layout: ObjectLayout, fti: Fti, code: Code, stats: Stats, store: Store, is_file: bool) -> None:
        super().__init__(layout, fti, code, stats, fti.segment_bytes)
        self.store = store
        self.is_file = is_file
        self.partition = ObjectPartition(fti.object_bytes, fti.segment_bytes, fti.block_segments)
        self._segment_count = 0

    def progress(self, sender_id: int) -> ObjectProgress:
        """Return how much of the object has arrived."""
        last, size = self.partition.segments - 1, self.fti.segment_bytes
        has_last = last in self.received
        received = self._segment_count * size - (size - self.partition.segment_length(last) if has_last else 0)
        return ObjectProgress(
            sender_id=sender_id,
            object_id=self.layout.object_id,
            info=self.info,
            is_file=self.is_file,
            size=self.fti.object_bytes,
            bytes_received=received,
        )

    @property
    def _content_bytes(self) -> int:
        return self.store.memory_bytes(self._segment_count, self.fti.segment_bytes)

    @property
    def claimed_bytes(self) -> int:
        return self.store.memory_bytes(self.partition.segments, self.fti.segment_bytes)

    @property
    def first_wanted(self) -> int:
        return self.received.end_of(0)

    @property
    def is_complete(self) -> bool:
        has_info = self.info is not None or not self.is_info_expected
        return has_info and self.received.end_of(0) >= self.partition.segments

    def append(self, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> bool:
        first, end = self.first_wanted, self.first_wanted + len(payloads)
        # The last segment, which is shorter, and segments that follow a gap take the general path.
        if tail.size or end >= self.partition.segments or (self.received and self.received.last >= first):
            return False
        self.store.write(first * self.fti.segment_bytes, payloads)
        self._note(first, end)
        return True

    def receive(self, first: int, payloads: NDArray[np.uint8], tail: NDArray[np.uint8]) -> None:
        count = len(payloads)
        if count and payloads.shape[1] < self.fti.segment_bytes:
            # A single datagram shorter than a segment: the last one of the object, or a truncated one.
            payloads, tail, count = payloads[:0], payloads[0], 0
        last = first + count - 1
        if count and self.partition.segment_length(last) < self.fti.segment_bytes:
            # The last segment was padded to full length.
            payloads, tail, count = payloads[:-1], payloads[-1], count - 1
        end = first + count
        if self._is_fragmenting(first, end + (tail.size > 0)):
            return
        if count:
            self.store.write(first * self.fti.segment_bytes, payloads)
        if tail.size and tail.size >= self.partition.segment_length(end):
            self.store.write(end * self.fti.segment_bytes, tail[: self.partition.segment_length(end)])
            end += 1
        self._note(first, end)

    def _note(self, first: int, end: int) -> None:
        if first < end:
            fresh = sum(stop - start for start, stop in self.received.gaps(first, end))
            self._segment_count += fresh
            self.taken += fresh
            self._stats.duplicate_segments_received += end - first - fresh
            if fresh:
                self.received.add(first, end)
                self._repair_touched(first, end)

    def _decode(self, block: int, first: int, end: int) -> None:
        size = self.fti.segment_bytes
        source = np.zeros((end - first, size), np.uint8)
        for start, stop in self.received.within(first, end):
            for index in range(start, stop):
                length = self.partition.segment_length(index)
                source[index - first, :length] = self.store.read(index * size, length)
        gaps = list(self.received.gaps(first, end))
        self._parity.repair(block, source, self.received, first)
        for start, stop in gaps:
            for index in range(start, stop):
                length = self.partition.segment_length(index)
                self.store.write(index * size, source[index - first, :length])
        self._segment_count += sum(stop - start for start, stop in gaps)
        self.received.add(first, end)

    def missing_bytes(self) -> Iterator[tuple[int, int]]:
        for start, end in self.received.gaps(0, self.partition.segments):
            yield start * self.fti.segment_bytes, min(end * self.fti.segment_bytes, self.fti.object_bytes)

    def close(self) -> None:
        self.store.close()
