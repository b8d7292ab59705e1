"""Flow control for systems that have none from end to end: subscribers report their progress.

The publisher is at most a window ahead of the slowest subscriber. A report of zero messages announces a subscriber. A
report of one more than all messages confirms them and the end.
"""

import os

_WINDOW_BYTES = 16 << 20
"""Maximum number of bytes of a window: more than the bandwidth-delay product of any network here, so that it is not the
limit."""
_WINDOW_MESSAGES = 1 << 16
"""Maximum number of messages of a window. It limits the memory of brokers, which need some hundred bytes for a small
message."""
_REPORTS_A_WINDOW = 4
"""Reports of a subscriber in each window: several, so that the publisher gets a report before the window is full."""


class Window:
    """The publisher's half of the flow control."""

    def __init__(self, receivers: int, size: int) -> None:
        self._receivers = receivers
        self._messages = _window(size)
        self._counts: dict[bytes, int] = {}

    def note(self, report: bytes) -> None:
        """Record a subscriber's report."""
        name, _, count = report.partition(b" ")
        self._counts[name] = max(int(count), self._counts.get(name, 0))

    @property
    def present(self) -> int:
        return len(self._counts)

    def has_all(self) -> bool:
        """Return True if all subscribers have announced themselves."""
        return self.present >= self._receivers

    def has_room(self, sent: int) -> bool:
        """Return True if this many messages may have been sent."""
        return sent - min(self._counts.values(), default=sent) <= self._messages

    def confirmed(self, total: int) -> int:
        """Return the number of subscribers that have confirmed `total` messages and the end."""
        return sum(count > total for count in self._counts.values())

    def is_confirmed(self, total: int) -> bool:
        return self.confirmed(total) >= self._receivers


class Reports:
    """A subscriber's half of the flow control."""

    def __init__(self, size: int) -> None:
        self._every = max(1, _window(size) // _REPORTS_A_WINDOW)
        self._next = self._every
        self._name = str(os.getpid()).encode()

    def report(self, count: int) -> bytes:
        return b"%s %d" % (self._name, count)

    def due(self, count: int) -> bytes | None:
        """Return a report of `count` messages if it is time for one, else None."""
        if count < self._next:
            return None
        self._next = count + self._every
        return self.report(count)


def _window(size: int) -> int:
    """Return the length of the window in messages: it always has room for two lists of `messages_to_send`."""
    return max(8, min(_WINDOW_MESSAGES, _WINDOW_BYTES // size))
