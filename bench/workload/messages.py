"""Numbered messages of one size, whose content can be checked.

The first 8 bytes of a message are one big-endian number: the message's number (40 bits) and a checksum of it (24 bits).
The rest is one of PATTERNS fixed patterns, chosen by the number. So the whole sequence of messages is known in advance,
and any piece of it is checked by one comparison. `peers/native/workload.h` and `peers/java/Bench.java` do the same.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Buffer = bytes | bytearray | memoryview

WORD_BYTES = 8
MESSAGE_BYTES_MIN = WORD_BYTES
NUMBER_MAX = (1 << 40) - 1
PATTERNS = 5
"""Number of patterns: a prime, so that an offset by a segment, a block or a power of two does not go unnoticed."""
END_NUMBER = NUMBER_MAX
"""Number of the message without content that marks the end, for systems that have no other way to mark it."""

PERIOD = 10
"""Number of messages after which properties and patterns repeat: they depend on the last digit of the number."""
PROPERTIES_MAX = 8
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

# Constants of the generator splitmix64.
_STEP, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
CHECK_BITS = 24
_TABLE_NUMBERS = 1 << 16
_RUN_BYTES = 1 << 18
"""Maximum number of bytes that are made or compared at once, so that they stay in the processor's cache."""


def word(number: int) -> int:
    """Return the first 8 bytes of a message as a number."""
    return int(words(number, 1).astype(np.uint64)[0])


def words(first: int, count: int) -> NDArray[np.uint64]:
    """Return the first 8 bytes of consecutive messages, in network byte order."""
    return ALL.words(first, count)


def number_of(message: bytes | memoryview) -> int:
    """Return the number in a message's first bytes. It is meaningful only if the message is not corrupt."""
    return int.from_bytes(message[:WORD_BYTES]) >> CHECK_BITS


def property_values(count: int) -> dict[str, tuple[int, ...] | tuple[str, ...]]:
    """Return the first `count` properties: by name, the values for each last digit of a message's number.

    The values are the digits for one property, their names for the next, and so on in turn.
    """
    return {f"p{place}": _DIGITS if place % 2 else tuple(range(PERIOD)) for place in range(count)}


def with_check(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    check: NDArray[np.uint64] = (numbers * np.uint64(_STEP)) >> np.uint64(64 - CHECK_BITS)
    return (numbers << np.uint64(CHECK_BITS)) | check


class Series:
    """Messages of a run: all, or those whose numbers end in certain digits. Their positions count from 0."""

    def __init__(self, digits: Sequence[int] = range(PERIOD)) -> None:
        if not digits:
            raise ValueError("expected at least one digit")
        self.digits = sorted(set(digits))
        self._is_all = len(self.digits) == PERIOD
        self._digits = np.array(self.digits, dtype=np.uint64)
        self._rank = np.full(PERIOD, -1)
        self._rank[self.digits] = np.arange(len(self.digits))

    def words(self, first: int, count: int) -> NDArray[np.uint64]:
        """Return the first 8 bytes of messages at consecutive positions, in network byte order."""
        numbers = np.arange(first, first + count, dtype=np.uint64)
        if not self._is_all:
            rounds, rest = np.divmod(numbers, np.uint64(len(self.digits)))
            numbers = rounds * np.uint64(PERIOD) + self._digits[rest.astype(np.intp)]
        return with_check(numbers).astype(">u8")

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of messages by their numbers; -1 for messages that are not in the series."""
        if self._is_all:
            return numbers
        rounds, digits = np.divmod(numbers, PERIOD)
        rank = self._rank[digits]
        return np.where(rank < 0, -1, rounds * len(self.digits) + rank)

    def count(self, total: int) -> int:
        """Return the number of messages of the series whose numbers are below `total`."""
        rounds, rest = divmod(total, PERIOD)
        return rounds * len(self.digits) + sum(digit < rest for digit in self.digits)


ALL = Series()


def patterns(size: int) -> NDArray[np.uint8]:
    """Return the PATTERNS patterns, one of which follows the first 8 bytes of each message of this size."""
    rest = size - WORD_BYTES
    lengthy = -(-rest // 8)
    places = np.arange(PATTERNS, dtype=np.uint64)[:, None] * np.uint64(1 << 32) + np.arange(1, lengthy + 1, dtype="u8")
    mixed = places * np.uint64(_STEP)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_MIX_1)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_MIX_2)
    mixed ^= mixed >> np.uint64(31)
    return np.ascontiguousarray(mixed.astype("<u8").view(np.uint8).reshape(PATTERNS, -1)[:, :rest])


class Expected:
    """The expected bytes of any piece of the sequence of messages. Messages are named by their positions."""

    def __init__(self, size: int, run_bytes: int = _RUN_BYTES, series: Series = ALL) -> None:
        if size < MESSAGE_BYTES_MIN:
            raise ValueError(f"size={size}: expected {MESSAGE_BYTES_MIN} or more")
        self.size = size
        self.run = max(2, run_bytes // size)
        """Maximum number of messages that a piece may touch."""
        self._series = series
        self._period = len(series.digits)
        self._grid = np.zeros((self.run + self._period, size), np.uint8)
        self._words = self._grid[:, :WORD_BYTES].view(">u8")[:, 0]
        self._flat = self._grid.reshape(-1)
        content = patterns(size)
        for row in range(len(self._grid)):
            self._grid[row, WORD_BYTES:] = content[series.digits[row % self._period] % PATTERNS]
        self._table = series.words(0, 0)
        self._table_from = 0

    def messages(self, first: int, count: int) -> bytes:
        """Return `count` messages laid end to end, from position `first` on. `count` may be at most `run`."""
        return self.piece(first, 0, count * self.size).tobytes()

    def piece(self, first: int, skip: int, length: int) -> NDArray[np.uint8]:
        """Return `length` bytes of the sequence, from `skip` bytes behind the beginning of the message `first`.

        They may touch at most `run` messages. The array is valid until the next call.
        """
        count = -(-(skip + length) // self.size)
        assert count <= self.run
        at = first - self._table_from
        if at < 0 or at + count > len(self._table):
            self._table = self._series.words(first, max(count, _TABLE_NUMBERS))
            self._table_from, at = first, 0
        row = first % self._period
        self._words[row : row + count] = self._table[at : at + count]
        start = row * self.size + skip
        return self._flat[start : start + length]


class Maker:
    """Maker of messages in batches, which costs next to nothing per message."""

    def __init__(self, size: int, first: int = 0) -> None:
        self.size = size
        self.next_number = first
        self._expected = Expected(size)

    def batch(self, count: int) -> bytes:
        """Return the next messages laid end to end. The buffer is never written to again."""
        parts = []
        while count:
            some = min(count, self._expected.run)
            parts.append(self._expected.messages(self.next_number, some))
            self.next_number += some
            count -= some
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def messages(self, count: int, *, has_views: bool = True) -> Iterator[list[bytes | memoryview]]:
        """Yield the next messages in lists of at most 512. Large messages are views of the list's buffer."""
        size = self.size
        some = min(self._expected.run, 512)
        while count > 0:
            number = min(some, count)
            whole = self.batch(number)
            if number == 1:
                yield [whole]
            else:
                # A view costs more than a copy of a small message.
                view = memoryview(whole) if has_views and size >= 1024 else whole
                yield [view[start : start + size] for start in range(0, number * size, size)]
            count -= number
