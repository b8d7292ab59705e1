"""Flow control for systems that have none from end to end: subscribers report how far they are.

The publisher is never more than a window ahead of the slowest. A report of nothing is how a subscriber says that it is
there, and one of all messages and their end is how it confirms them.
"""

import os

_WINDOW_BYTES = 16 << 20
_WINDOW_MESSAGES = 1 << 16
_REPORTS_A_WINDOW = 4


class Window:
    """The publisher's side."""

    def __init__(self, receivers: int, size: int) -> None:
        self._receivers = receivers
        self._messages = _window(size)
        self._counts: dict[bytes, int] = {}

    def note(self, report: bytes) -> None:
        """What a subscriber says."""
        name, _, count = report.partition(b" ")
        self._counts[name] = max(int(count), self._counts.get(name, 0))

    @property
    def present(self) -> int:
        return len(self._counts)

    def has_all(self) -> bool:
        """Whether all subscribers are there."""
        return self.present >= self._receivers

    def has_room(self, sent: int) -> bool:
        """Whether as many as these may be under way."""
        return sent - min(self._counts.values(), default=sent) <= self._messages

    def confirmed(self, total: int) -> int:
        """How many have so many messages, and the end."""
        return sum(count > total for count in self._counts.values())

    def is_confirmed(self, total: int) -> bool:
        return self.confirmed(total) >= self._receivers


class Reports:
    """A subscriber's side."""

    def __init__(self, size: int) -> None:
        self._every = max(1, _window(size) // _REPORTS_A_WINDOW)
        self._next = self._every
        self._name = str(os.getpid()).encode()

    def report(self, count: int) -> bytes:
        return b"%s %d" % (self._name, count)

    def due(self, count: int) -> bytes | None:
        """A report of so many messages, if it is time for one."""
        if count < self._next:
            return None
        self._next = count + self._every
        return self.report(count)


def _window(size: int) -> int:
    """Two lists of messages of `messages_to_send` have room in it, always."""
    return max(8, min(_WINDOW_MESSAGES, _WINDOW_BYTES // size))
