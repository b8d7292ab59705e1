"""Where connections come in: they count from the first moment, also while TLS is still being agreed upon."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from fjm2.base.logs import Log

from .limits import Doors, address_key

_TLS_TIMES = {"ssl_handshake_timeout": 15.0, "ssl_shutdown_timeout": 1.0}
"""So long TLS may take to be agreed upon, and to be ended by both: few clients care for that."""
STUCK_S = 30.0
"""What is sent has to be taken within this time."""
_AT_ONCE = 128
_NO_FILES_S = 0.1
"""Where no more files may be open, we wait for one to be closed."""

log = Log("fjm2admin.server")


class Served(H11Protocol):
    """Speaks HTTP, and tells when its connection is over."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()
        super().connection_lost(exc)


class Entrance:
    """Lets connections in, until it is closed."""

    def __init__(
        self, listener: socket.socket, doors: Doors, context: ssl.SSLContext | None, served: Callable[[], Served]
    ) -> None:
        self._listener = listener
        self._doors = doors
        self._context = context
        self._served = served
        self._loop = asyncio.get_running_loop()
        self._inside: set[asyncio.Task[None]] = set()
        self._resting: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._resting = None
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Let nobody in any more. Who is inside stays."""
        if self._resting is not None:
            self._resting.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        """Many at a time: on a busy loop a turn may take a while."""
        for _ in range(_AT_ONCE):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError:
                self._loop.remove_reader(self._listener)
                self._resting = self._loop.call_later(_NO_FILES_S, self._begin)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._let_in(connection, peer[0]))
            self._inside.add(task)
            task.add_done_callback(self._inside.discard)

    async def _let_in(self, connection: socket.socket, host: str) -> None:
        try:
            if self._doors.enter(host):
                _give_up_if_stuck(connection)
                await self._serve(connection)
            else:
                self._tell_full(host)
        except OSError:
            pass  # the client has left, or no TLS was agreed upon
        finally:
            self._doors.leave(host)
            connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        served = self._served()
        await self._loop.connect_accepted_socket(
            lambda: served,
            connection,
            ssl=self._context,
            **({} if self._context is None else _TLS_TIMES),
        )
        await served.over.wait()

    def _tell_full(self, host: str) -> None:
        about = address_key(host)
        log.seldom(logging.WARNING, "too_many_connections", about, address=host, in_all=self._doors.count)


def _give_up_if_stuck(connection: socket.socket) -> None:
    """The kernel holds much of what is sent: whether that is taken, only it knows."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * STUCK_S))
