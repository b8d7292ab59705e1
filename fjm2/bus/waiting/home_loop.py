"""The event loop that a connection belongs to."""

import asyncio
from threading import get_ident

from fjm2.messages.errors import IllegalStateError


class HomeLoop:
    """The event loop that runs when this object is made. What belongs to it can be used in no other."""

    __slots__ = ("_loop", "is_running", "thread")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_running = self._loop.is_running
        self.thread = get_ident()
        """Thread that the loop was last seen in."""

    def check(self) -> None:
        """Raise IllegalStateError in another event loop, or outside any.

        A thread runs one loop at a time, so that two quick questions do for most calls: `get_running_loop` can take a
        system call. Where even this call is too slow, ask them in place.
        """
        if get_ident() != self.thread or not self.is_running():
            self._find()

    def _find(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._loop:
            raise IllegalStateError(
                "a connection can only be used in the event loop that opened it; threads use fjm2.jms.blocking"
            )
        self.thread = get_ident()  # the program runs the loop in another thread now
