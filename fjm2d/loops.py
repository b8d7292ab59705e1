"""The gateway's event loop: uvloop if it is installed, with name lookups that never keep it from closing."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

from fjm2.base.event_loop import uvloop_class

_LOOKUPS_MAX: Final = 16
"""Maximum number of lookups at a time, each in a thread. If the resolver does not answer, a lookup takes up to a
minute."""

Places = list[tuple[Any, ...]]
"""Result of socket.getaddrinfo."""


class _Lookups:
    """Base of a loop that looks names up in daemon threads. In its own executor, lookups would keep it from closing."""

    def __init__(self) -> None:
        super().__init__()
        self._room = asyncio.Semaphore(_LOOKUPS_MAX)

    async def getaddrinfo(
        self,
        host: Any,
        port: Any,
        *,
        family: int = 0,
        type: int = 0,  # noqa: A002
        proto: int = 0,
        flags: int = 0,
    ) -> Places:
        loop = asyncio.get_running_loop()
        await self._room.acquire()
        answer: asyncio.Future[Places] = loop.create_future()

        def look_up() -> None:
            found: Places | Exception
            try:
                found = socket.getaddrinfo(host, port, family, type, proto, flags)
            except (OSError, UnicodeError) as error:
                found = error
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the answer is no longer needed
                loop.call_soon_threadsafe(self._deliver, answer, found)

        threading.Thread(target=look_up, name="lookup", daemon=True).start()
        return await answer

    def _deliver(self, answer: "asyncio.Future[Places]", found: Places | Exception) -> None:
        self._room.release()
        if answer.done():
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return the class of the gateway's event loop."""
    base = uvloop_class() or asyncio.SelectorEventLoop
    factory: Callable[[], asyncio.AbstractEventLoop] = type("Loop", (_Lookups, base), {})
    return factory
