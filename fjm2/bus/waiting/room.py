"""Awaitables that a send returns when there is no room for more."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from fjm2.messages.errors import JMSError

if TYPE_CHECKING:
    from ..lane import Lane


class Room:
    """Awaitable that waits until everything appended to a lane is in its send buffer. Nothing happens if nobody awaits
    it."""

    __slots__ = ("_lane", "_wait")

    def __init__(self, wait: "Callable[[Lane], Coroutine[Any, Any, None]]", lane: "Lane") -> None:
        """`wait` waits for room in a lane."""
        self._wait = wait
        self._lane = lane

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait(self._lane).__await__()


class HeldRoom(Room):
    """Awaitable that waits until a frame that a gate held is published or refused. The receipt tells which."""

    __slots__ = ("_sent",)

    def __init__(self, sent: asyncio.Future[JMSError | None]) -> None:
        self._sent = sent

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.shield(self._sent).__await__()
