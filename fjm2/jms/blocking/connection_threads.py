"""Threads and the send queue of one connection, which its sessions and contexts share."""

from collections.abc import Awaitable, Callable

from fjm2.bus.closing import close_timeout_after
from fjm2.jms.connection import ConnectionCore
from fjm2.jms.session import SessionCore

from .callback_thread import CallbackThread
from .send_queue import SendQueue
from .session_threads import SessionThreads


class ConnectionThreads:
    """The send queue of a connection, the thread of its exception listener, and the threads of its sessions."""

    def __init__(self, core: ConnectionCore) -> None:
        self._core = core
        self._queue = SendQueue(core.report)
        self._sessions: list[SessionThreads] = []
        self.exceptions = CallbackThread(core.endpoint, core.endpoint, "exceptions")
        """Thread that runs the exception listener."""

    def add_session(self, core: SessionCore) -> SessionThreads:
        """Return the threads of a new session. They are named after its number."""
        threads = SessionThreads(core, self._queue, f"session-{len(self._sessions) + 1}")
        self._sessions.append(threads)
        return threads

    async def close_behind(self, close: Callable[[float | None], Awaitable[None]], timeout_s: float | None) -> None:
        """Call `close` after the send queue is empty. Sends that are blocked delay this only until the deadline of the
        close."""
        if not self._core.is_cut_off:
            self._core.begin_closing(timeout_s)
            if self._core.endpoint is not None:
                await self._queue.close(self._core.endpoint.closing())
            await close(timeout_s)

    def close_timeout_after(self, kind: type[BaseException] | None) -> float | None:
        """Return the timeout of a close at the end of a `with` block, which an exception may have ended."""
        return close_timeout_after(kind, self._core.settings.close_timeout_s)

    def close(self) -> None:
        """End all callback threads."""
        for session in self._sessions:
            session.close()
        self.exceptions.close()
