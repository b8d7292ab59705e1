"""Work on a disk, in order and in a thread of its own: an event loop must not wait for a slow disk.

A job is work for the thread, and a function that the event loop calls after it. Each job has a size, and callers can
wait while the jobs that are not done add up to too much.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, Protocol, TypeAlias

_JOB_BYTES: Final = 4096
"""Smallest size of a job. It bounds the number of jobs that wait."""

Work: TypeAlias = Callable[[], object]
"""A part of a job. It must not raise."""


def _nothing() -> None:
    pass


class Disk(Protocol):
    """Does jobs in order."""

    @property
    def waiting_bytes(self) -> int:
        """Size of the jobs that are not done."""

    @property
    def jobs_done(self) -> int:
        """Number of jobs done."""

    def do(self, work: Work, after: Work = ..., size: int = ...) -> None:
        """Do some work, then call `after`."""

    def leave(self, work: Work) -> None:
        """Do some work, and call nothing after it. Any thread may call this, and so may finalizers."""

    def close(self) -> None:
        """Expect no more jobs."""

    async def finished(self, timeout_s: float) -> None:
        """Wait until all jobs so far are done, or the time is over."""


class DiskThread:
    """Does jobs in a thread, which starts with the first of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call what comes after a job in the event loop."""
        self.waiting_bytes = 0
        self.jobs_done = 0
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Work, Work | None, int] | None] = SimpleQueue()
        self._done: deque[tuple[Work, int]] = deque()
        self._thread: threading.Thread | None = None
        self._is_told = False
        """True if the event loop will look at what is done."""

    def do(self, work: Work, after: Work = _nothing, size: int = 0) -> None:
        size = max(size, _JOB_BYTES)
        self.waiting_bytes += size
        if self._thread is None:
            # Nobody waits for it when the program ends: a disk may hang for good.
            self._thread = threading.Thread(target=self._serve, name="fjm2-disk", daemon=True)
            self._thread.start()
        self._jobs.put((work, after, size))

    def leave(self, work: Work) -> None:
        self._jobs.put((work, None, 0))

    def close(self) -> None:
        self._jobs.put(None)

    async def finished(self, timeout_s: float) -> None:
        if self._thread is not None:
            done = threading.Event()
            self.leave(done.set)
            await asyncio.to_thread(done.wait, timeout_s)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, after, size = job
            work()
            if after is not None:
                self._done.append((after, size))
                if not self._is_told:
                    self._is_told = True
                    with contextlib.suppress(RuntimeError):  # the loop is closed
                        self._loop.call_soon_threadsafe(self._note_done)
            del job, work, after  # they refer to data

    def _note_done(self) -> None:
        self._is_told = False
        for _ in range(len(self._done)):
            after, size = self._done.popleft()
            self.waiting_bytes -= size
            self.jobs_done += 1
            after()
