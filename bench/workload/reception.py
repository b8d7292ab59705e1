"""A subscriber's messages as they arrive: checked, counted and timed."""

import time
from collections.abc import Sequence

from .checker import Checker, Tally
from .messages import ALL, Buffer, Series
from .results import StopWatch, SubResult


class Reception:
    """The messages that a subscriber receives by any system: checked, counted and timed.

    The rate is the number of messages after the first piece, divided by the time from it to the last piece.
    """

    def __init__(self, system: str, size: int, *, is_verified: bool, series: Series = ALL) -> None:
        self.system = system
        self.size = size
        self.total: int | None = None
        """Number of messages that were sent, once it is known."""
        self.is_ended = False
        self.loss_reports: int | None = None
        self._bad_properties = 0
        self._checker = Checker(size, series) if is_verified else None
        self._unchecked_bytes = 0
        self._begun_messages = 0
        self._watch: StopWatch | None = None
        self._last_at = 0.0

    @property
    def messages(self) -> int:
        return self._unchecked_bytes // self.size if self._checker is None else self._checker.messages

    @property
    def is_complete(self) -> bool:
        """True if it is known how many messages there are, and all have arrived."""
        if self.total is None:
            return False
        return self.messages >= self.total if self._checker is None else self._checker.is_complete(self.total)

    def begin(self, first: int) -> None:
        """Expect all messages from the position `first` on."""
        if self._checker is not None:
            self._checker.begin(first)

    def skip_to(self, position: int) -> None:
        """Note that bytes were lost before this byte position."""
        if self._checker is not None:
            self._checker.skip_to(position)

    def take(self, data: Buffer) -> None:
        """Take a piece of messages laid end to end."""
        if self._checker is None:
            self._unchecked_bytes += len(data)
        else:
            self._checker.take(data)
        self._note_time()

    def take_object(self, data: memoryview) -> None:
        """Take one message."""
        if len(data) == self.size:
            self.take(data)
        else:
            self.take_many([bytes(data)])

    def take_many(self, messages: Sequence[bytes | memoryview]) -> None:
        """Take whole messages."""
        if self._checker is None:
            self._unchecked_bytes += sum(map(len, messages))
        else:
            self._checker.take_many(messages)
        self._note_time()

    def note_corrupt(self) -> None:
        """Count a message with wrong properties as corrupt."""
        self._bad_properties += 1

    def _note_time(self) -> None:
        if self._watch is None:
            self._watch = StopWatch()
            self._begun_messages = self.messages
        self._last_at = time.perf_counter()

    def result(self) -> SubResult:
        seconds = cpu_s = 0.0
        if self._watch is not None:
            seconds = self._last_at - self._watch.start
            cpu_s = self._watch.elapsed()[1]  # reading it with each piece would cost more than the pieces do
        if self._checker is None:
            tally = Tally(self.messages, max(0, (self.total or 0) - self.messages))
        else:
            tally = self._checker.result(self.total)
        rate = (tally.messages - self._begun_messages) / seconds if seconds else 0.0
        return SubResult(
            system=self.system,
            size=self.size,
            ended=self.is_ended,
            verified=self._checker is not None,
            messages=tally.messages,
            bytes=tally.messages * self.size,
            seconds=round(seconds, 6),
            msgs_per_s=round(rate, 1),
            gbit_per_s=round(rate * self.size * 8e-9, 6),
            lost=tally.lost,
            duplicated=tally.duplicated,
            out_of_order=tally.out_of_order,
            corrupt=tally.corrupt + self._bad_properties,
            loss_reports=self.loss_reports,
            cpu_s=round(cpu_s, 3),
        )


def messages_at_once(size: int) -> int:
    """Return the number of messages to gather before they are checked: at most 256, or 128 KiB."""
    return max(1, min(256, (128 << 10) // size))
