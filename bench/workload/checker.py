"""Check of received messages. It finds messages that are lost, duplicated, corrupt or out of order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ranges import RangeSet

from .messages import ALL, CHECK_BITS, END_NUMBER, PATTERNS, WORD_BYTES, Buffer, Expected, Series, patterns, with_check


@dataclass(slots=True)
class Tally:
    """Counts of received messages."""

    messages: int = 0
    """Messages that arrived unaltered. Each is counted once."""
    lost: int = 0
    """Messages that did not arrive unaltered."""
    duplicated: int = 0
    out_of_order: int = 0
    """Messages that arrived after one with a higher number."""
    corrupt: int = 0
    """Messages that arrived altered. The original is counted as lost as well."""


class Checker:
    """Check of received bytes, in pieces of any length. Messages are named by their positions in the series."""

    def __init__(self, size: int, series: Series = ALL) -> None:
        self.size = size
        self._series = series
        self._expected = Expected(size, series=series)
        self._step = (self._expected.run - 1) * size
        self._patterns = patterns(size)
        self._next = 0
        """One more than the highest position seen."""
        self._first: int | None = None
        """Position of the first message that is expected. None until it is known."""
        self._parts: list[bytes] = []
        """Pieces of the message that is not complete yet."""
        self._held = 0
        self._is_held_good = True
        self._bytes_to_skip = 0
        self._missing = RangeSet()
        self._early = RangeSet()
        """Messages before the first expected one that arrived nevertheless."""
        self._tally = Tally()

    @property
    def messages(self) -> int:
        """Number of unaltered messages so far."""
        return self._tally.messages

    def begin(self, first: int) -> None:
        """Expect all messages from this position on. Without this call, the first message that arrives is the first
        expected.
        """
        if self._first is None:
            self._first = self._next = first
        elif first < self._first:
            for low, high in self._early.gaps(first, self._first):
                self._missing.add(low, high)
            self._first = first

    def is_complete(self, total: int) -> bool:
        """Return True if all messages before position `total` have arrived."""
        return self._next >= total and not self._missing

    def skip_to(self, position: int) -> None:
        """Note that bytes were lost. The next bytes are at this position of the sequence that began with message 0."""
        self._parts, self._held, self._is_held_good = [], 0, True
        self._bytes_to_skip = -position % self.size

    def take(self, data: Buffer) -> None:
        """Check the next bytes of messages laid end to end."""
        if self._bytes_to_skip:
            skipped = min(self._bytes_to_skip, len(data))
            self._bytes_to_skip -= skipped
            data = data[skipped:]
        if len(data) <= self._step:
            self._take_piece(data)
            return
        view = memoryview(data)
        for start in range(0, len(view), self._step):
            self._take_piece(view[start : start + self._step])

    def take_many(self, messages: Sequence[bytes | memoryview]) -> None:
        """Check whole messages. A message of another size is corrupt."""
        if set(map(len, messages)) <= {self.size}:
            self.take(messages[0] if len(messages) == 1 else b"".join(messages))
            return
        for message in messages:
            if len(message) == self.size:
                self.take(message)
            else:
                self._tally.corrupt += 1

    def result(self, total: int | None = None) -> Tally:
        """Return the counts. If `total` is known, messages that are missing at the end are lost."""
        after_last = 0 if total is None else max(0, total - self._next)
        return replace(self._tally, lost=len(self._missing) + after_last)

    def _take_piece(self, data: Buffer) -> None:
        """Check a piece. If it continues the sequence as expected, a single comparison is enough.

        Otherwise each message is checked by itself.
        """
        if self._first is not None and self._is_held_good and self._is_expected(self._held, data):
            count, rest = divmod(self._held + len(data), self.size)
            if count:
                self._next += count
                self._tally.messages += count
                self._parts, self._held = [], 0
                data = data[len(data) - rest :]
            self._hold(data)
            return
        whole = b"".join([*self._parts, data])
        count, rest = divmod(len(whole), self.size)
        if count:
            self._take_rows(np.frombuffer(whole, np.uint8, count * self.size).reshape(count, self.size))
        self._parts, self._held = [], 0
        tail = whole[count * self.size :]
        self._is_held_good = self._is_expected(0, tail)
        self._hold(tail)

    def _is_expected(self, skip: int, data: Buffer) -> bool:
        if not len(data):
            return True
        should_be = self._expected.piece(self._next, skip, len(data))
        if isinstance(data, bytes):
            return data == should_be.tobytes()  # takes half the time of a comparison of arrays, in spite of the copy
        word_type = np.uint64 if len(data) % 8 == 0 else np.uint8  # comparing eight bytes at once is faster
        return np.array_equal(np.frombuffer(data, word_type), should_be.view(word_type))

    def _hold(self, data: Buffer) -> None:
        if len(data):
            # A view would keep the larger buffer alive.
            self._parts.append(data if isinstance(data, bytes) else bytes(data))
            self._held += len(data)

    def _take_rows(self, rows: NDArray[np.uint8]) -> None:
        """Check messages one by one, and count runs of consecutive good ones together."""
        values = np.ascontiguousarray(rows[:, :WORD_BYTES]).view(">u8")[:, 0].astype(np.uint64)
        numbers = values >> np.uint64(CHECK_BITS)
        is_good = (values == with_check(numbers)) & (numbers != END_NUMBER)
        is_good &= (rows[:, WORD_BYTES:] == self._patterns[(numbers % np.uint64(PATTERNS)).astype(np.intp)]).all(axis=1)
        places = self._series.places(numbers.astype(np.int64))
        is_good &= places >= 0
        self._tally.corrupt += int(len(rows) - np.count_nonzero(is_good))
        good = places[is_good]
        for run in np.split(good, np.flatnonzero(np.diff(good) != 1) + 1):
            if run.size:
                self._take_run(int(run[0]), int(run[-1]) + 1)

    def _take_run(self, first: int, end: int) -> None:
        """Count good messages at consecutive positions."""
        if self._first is None:
            self._first = self._next = first
        self._take_late(first, min(end, self._first), list(self._early.gaps(first, min(end, self._first))))
        first = max(first, self._first)
        self._take_late(first, min(end, self._next), list(self._missing.within(first, min(end, self._next))))
        first = max(first, self._next)
        if first < end:
            self._missing.add(self._next, first)
            self._tally.messages += end - first
            self._next = end

    def _take_late(self, first: int, end: int, fresh: list[tuple[int, int]]) -> None:
        """Count messages below the highest position. All but those in `fresh` are duplicates."""
        if first >= end:
            return
        count = 0
        for low, high in fresh:
            self._missing.remove(low, high)
            if self._first is not None and low < self._first:
                self._early.add(low, high)
            count += high - low
        self._tally.messages += count
        self._tally.out_of_order += count
        self._tally.duplicated += end - first - count
