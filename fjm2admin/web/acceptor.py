"""Acceptor of connections. It counts them from the first moment, before the TLS handshake, to limit their number."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from fjm2.base.logs import Log

from .limits import ConnectionLimit, address_key

_TLS_TIMES = {"ssl_handshake_timeout": 15.0, "ssl_shutdown_timeout": 1.0}
"""Longest TLS handshake and shutdown. The shutdown is short, because few clients take part in it."""
STUCK_S = 30.0
"""Longest time for which a client may take none of the data sent to it, before its connection is closed."""
_ACCEPTS_PER_TURN_MAX = 128
"""Maximum number of connections accepted in a turn of the loop. There are many, because turns are rare on a busy loop.
"""
_NO_FILES_S = 0.1
"""Pause before the next attempt to accept, when the process has as many open files as it may."""

log = Log("fjm2admin.server")


class TrackedProtocol(H11Protocol):
    """HTTP protocol that tells when its connection is closed."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.closed = asyncio.Event()
        """Set when the connection is closed."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        super().connection_lost(exc)


class Acceptor:
    """Acceptor of a listening socket's connections, until it is closed."""

    def __init__(
        self,
        listener: socket.socket,
        limit: ConnectionLimit,
        context: ssl.SSLContext | None,
        make_protocol: Callable[[], TrackedProtocol],
    ) -> None:
        self._listener = listener
        self._limit = limit
        self._context = context
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        """Accept no more connections. Existing connections stay."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN_MAX):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError:
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_NO_FILES_S, self._begin)
                return
            connection.setblocking(False)
            task = self._loop.create_task(self._handle(connection, peer[0]))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _handle(self, connection: socket.socket, host: str) -> None:
        try:
            if self._limit.admit(host):
                _limit_unacknowledged_time(connection)
                await self._serve(connection)
            else:
                self._log_full(host)
        except OSError:
            pass  # the client has left, or the TLS handshake failed
        finally:
            self._limit.release(host)
            connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        protocol = self._make_protocol()
        await self._loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._context,
            **({} if self._context is None else _TLS_TIMES),
        )
        await protocol.closed.wait()

    def _log_full(self, host: str) -> None:
        about = address_key(host)
        log.seldom(logging.WARNING, "too_many_connections", about, address=host, in_all=self._limit.count)


def _limit_unacknowledged_time(connection: socket.socket) -> None:
    """Have the kernel close the connection if the client acknowledges none of its data for `STUCK_S`."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * STUCK_S))
