"""The time for which a connection may deliver what its durable consumers hold."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Final

_now: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)
"""A clock that goes on while this process, or its host, is suspended. The clock of event loops stops with the host."""


class Lease:
    """Ends by itself, so that a program that was stopped delivers nothing before it knows how things stand.

    Others may have got and acknowledged the messages by then. Threads may ask `has_ended`.
    """

    __slots__ = ("_on_ended", "_until")

    def __init__(self, on_ended: Callable[[], None]) -> None:
        """Call `on_ended` whenever messages are asked for, and the lease has ended."""
        self._on_ended = on_ended
        self._until = math.inf

    def extend(self, seconds: float) -> None:
        """End in some seconds from now. Less than 0 means at once, and infinitely less that the cell is asked."""
        self._until = _now() + seconds

    @property
    def has_ended(self) -> bool:
        """True if nothing may be delivered."""
        return _now() > self._until

    @property
    def has_run_out(self) -> bool:
        """True if time alone has ended the lease: nobody has asked the cell yet."""
        return self._until > -math.inf and self.has_ended

    def allows(self) -> bool:
        """Return True if messages may be delivered now."""
        if _now() <= self._until:
            return True
        self._on_ended()
        return False
