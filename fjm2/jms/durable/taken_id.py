"""A client id that the cell says another connection has: it is there, or was killed a moment ago."""

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

TAKEN_S: Final = 6.0
"""Time for which a client id may be in use by a connection that is gone: the lease of its session, and a takeover."""
_AGAIN_S: Final = 0.2
"""Interval at which the cell is asked again. Others take half of it to say that they are there."""
_QUESTIONS: Final = 3
"""Times that others are asked if they are there: datagrams get lost."""


class TakenId:
    """Waits for a client id until it is known that its owner is there."""

    def __init__(self, bus: "Bus", client_id: str) -> None:
        self._bus = bus
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._asked_at = 0.0
        self._asked = 0

    async def may_be_free(self) -> bool:
        """Wait a moment. Return False if a connection with the client id has said that it is there, or if the lease of
        one that is gone must be over."""
        now = self._loop.time()
        if not self._asked:
            self._asked_at = now
        elif now >= self._asked_at + TAKEN_S:
            return False
        if self._asked < _QUESTIONS:
            self._bus.membership.ask()
        self._asked += 1
        await asyncio.sleep(_AGAIN_S)
        return not self._bus.presence.has_heard(self._client_id, self._asked_at)
