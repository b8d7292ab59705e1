"""Tells the status of a keeper to all: every few seconds, and when somebody asks."""

import asyncio
from collections.abc import Callable
from typing import Final

from .status import STATUS_S

_SHORTEST_S: Final = 0.1
"""Shortest interval between two answers: anybody may ask as often as they like."""


class StatusTeller:
    """Sends the status of one keeper."""

    def __init__(self, send: Callable[[], None]) -> None:
        """Begin to tell, on the running event loop. `send` sends the present status."""
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._next_at = 0.0
        self._timer = self._loop.call_soon(self._tell_regularly)

    def tell(self) -> None:
        """Answer, unless that was done a moment ago."""
        now = self._loop.time()
        if now >= self._next_at:
            self._next_at = now + _SHORTEST_S
            self._send()

    def close(self) -> None:
        """Tell no more."""
        self._timer.cancel()

    def _tell_regularly(self) -> None:
        self._timer = self._loop.call_later(STATUS_S, self._tell_regularly)
        self.tell()
