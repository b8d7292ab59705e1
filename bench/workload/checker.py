"""Checks of received messages: which were lost, duplicated, corrupt or out of order."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.ranges import RangeSet

from .messages import ALL, CHECK_BITS, END_NUMBER, PATTERNS, WORD_BYTES, Buffer, Expected, Series, patterns, with_check


@dataclass(slots=True)
class Tally:
    """What became of the messages."""

    messages: int = 0
    """Whole and as they should be, each counted once."""
    lost: int = 0
    """Never came as they should be."""
    duplicated: int = 0
    out_of_order: int = 0
    """Came after one with a higher number."""
    corrupt: int = 0
    """What came in the place of a message and is none. The message it was to be is lost as well."""


class Checker:
    """Takes what arrives, in whatever pieces, and keeps the tally. Messages go by their places in the series."""

    def __init__(self, size: int, series: Series = ALL) -> None:
        self.size = size
        self._series = series
        self._expected = Expected(size, series=series)
        self._step = (self._expected.run - 1) * size
        self._patterns = patterns(size)
        self._next = 0
        """One more than the highest number seen."""
        self._first: int | None = None
        """Nothing is expected before it; None until it is known."""
        self._parts: list[bytes] = []
        """What has come of the message that is not whole yet."""
        self._held = 0
        self._is_held_good = True
        self._bytes_to_skip = 0
        self._missing = RangeSet()
        self._early = RangeSet()
        """What came although nobody waited for it."""
        self._tally = Tally()

    @property
    def messages(self) -> int:
        """Good ones so far."""
        return self._tally.messages

    def begin(self, first: int) -> None:
        """The first message that has to come has this number. Without it, it is the first that comes."""
        if self._first is None:
            self._first = self._next = first
        elif first < self._first:
            for low, high in self._early.gaps(first, self._first):
                self._missing.add(low, high)
            self._first = first

    def is_complete(self, total: int) -> bool:
        """Whether all messages up to the number `total` are there."""
        return self._next >= total and not self._missing

    def skip_to(self, position: int) -> None:
        """Some bytes are gone; the next ones are at this place of a run that began with message 0."""
        self._parts, self._held, self._is_held_good = [], 0, True
        self._bytes_to_skip = -position % self.size

    def take(self, data: Buffer) -> None:
        """The next bytes of messages laid end to end."""
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

    def take_many(self, messages: Sequence[bytes]) -> None:
        """Whole messages; each that is of another size is corrupt."""
        if all(len(message) == self.size for message in messages):
            self.take(messages[0] if len(messages) == 1 else b"".join(messages))
            return
        for message in messages:
            if len(message) == self.size:
                self.take(message)
            else:
                self._tally.corrupt += 1

    def result(self, total: int | None = None) -> Tally:
        """The tally, given how many messages there were in all, if that is known."""
        after_last = 0 if total is None else max(0, total - self._next)
        return replace(self._tally, lost=len(self._missing) + after_last)

    def _take_piece(self, data: Buffer) -> None:
        """The fast path: all of it is as it should be, and next. Otherwise look at each message."""
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
            return data == should_be.tobytes()  # half the time that an array takes, copy and all
        word_type = np.uint64 if len(data) % 8 == 0 else np.uint8  # eight bytes at once are compared faster
        return np.array_equal(np.frombuffer(data, word_type), should_be.view(word_type))

    def _hold(self, data: Buffer) -> None:
        if len(data):
            # Copied if it is part of something larger, which would be kept alive by it.
            self._parts.append(data if isinstance(data, bytes) else bytes(data))
            self._held += len(data)

    def _take_rows(self, rows: NDArray[np.uint8]) -> None:
        """Messages of which something is unusual. Runs among them are taken as such."""
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
        """Good messages with numbers that follow each other."""
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
        """Messages behind the highest number; some of them, `fresh`, were not there yet."""
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
