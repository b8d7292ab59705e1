"""The thread that commits, and the event loop's side of it."""

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from ..config import Need
from ..disk import Buffer, Disk
from ..journal import Journal
from ..opening import mark_failed
from ..runs import Run
from ..writes import BatchWrite, Write

COMMIT_S_MIN = 0.0005
"""Time between the beginnings of two commits under load: what comes in it shares a sync."""
BUSY_S = 0.008
"""The same behind a batch of BUSY_BYTES or more: one of a stream, whose senders do not wait for each message."""
URGENT_S = 0.004
"""The same if something urgent waits: consumers make room by it."""
BUSY_BYTES = 16 << 10
BUSY_S_MAX = 0.016
_FILL_PART = 8
"""Part (1/8) of the time that `fill` may take of a loop with a stream. A loop that is short of time has fewer commits,
each with more in it, and gets along with less."""


class Committer:
    """Drives a journal: one write is on the disk at a time, and the next one has everything that came meanwhile.

    The journal belongs to the event loop's thread. The other thread only performs writes.
    """

    def __init__(
        self,
        journal: Journal,
        disk: Disk,
        *,
        on_synced: Callable[[int], None],
        on_failed: Callable[[OSError], None],
        state: Callable[[], Buffer] = bytes,
    ) -> None:
        """Start to commit, on the running event loop.

        `on_synced` gets the LSN on disk after each commit, and `on_failed` the error that ended the journal, once.
        `state` returns what a checkpoint keeps for the caller.
        """
        self.journal = journal
        self._disk = disk
        self.fill: Callable[[], None] = lambda: None
        """Called before each write is chosen. It may append what should be in it."""
        self._on_synced, self._on_failed, self._state = on_synced, on_failed, state
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[Write | None] = SimpleQueue()
        self._idle = asyncio.Event()
        self._idle.set()
        self._began_at = 0.0
        self._fill_s = 0.0
        """Time that `fill` took before the last write."""
        self._is_kicking = False
        """True if `kick` is called soon, or at the moment."""
        self._resting: asyncio.TimerHandle | None = None
        """Call that ends the time between two commits; None if none is to come."""
        self._rest_until = math.inf
        """Time of that call."""
        self._thread = threading.Thread(target=self._perform, name="fjm2-store", daemon=True)
        self._thread.start()
        self.kick()

    def append(self, runs: Sequence[Run], need: Need = Need.MESSAGE) -> int | None:
        """Append runs, and have them committed with all others of this turn of the loop. Return their LSN, or None if
        there is no room."""
        lsn = self.journal.append(runs, need)
        if lsn is not None and self._idle.is_set() and not self._is_kicking:
            self._is_kicking = True
            self._loop.call_soon(self.kick)
        elif lsn is not None and need is Need.URGENT and self._resting is not None:
            self._rest(URGENT_S)
        return lsn

    def kick(self) -> None:
        """Start the next write, if there is one and none is under way. Call it after a release."""
        self._is_kicking = False
        if not self._idle.is_set() or not self._thread.is_alive():
            return
        self._is_kicking = True
        began = self._loop.time()
        self.fill()
        self._fill_s = self._loop.time() - began
        self._is_kicking = False
        if self.journal.error is None and self.journal.wants_checkpoint:
            self.journal.start_checkpoint(self._state())
        write = self.journal.poll_write()
        if write is not None:
            self._idle.clear()
            self._began_at = self._loop.time()
            self._work.put(write)

    async def close(self) -> None:
        """Write everything that waits, and end the thread. Calling it twice is harmless."""
        while self.journal.error is None:
            await self._idle.wait()
            self.kick()
            if self._idle.is_set():
                break
        await self._idle.wait()
        self._work.put(None)
        await self._loop.run_in_executor(None, self._thread.join)

    def _perform(self) -> None:
        """Perform writes. Runs in the thread."""
        while (write := self._work.get()) is not None:
            error: OSError | None = None
            try:
                write.perform(self._disk)
            except OSError as failure:
                error = failure
                self._mark()
            try:
                self._loop.call_soon_threadsafe(self._handle, write, error)
            except RuntimeError:
                # The loop was closed without `close`: nobody is left to be told.
                return

    def _mark(self) -> None:
        try:
            mark_failed(self._disk)
        except OSError:
            # A disk that refuses this too has lost the last batch only; the next opening settles that.
            return

    def _handle(self, write: Write, error: OSError | None) -> None:
        if error is not None:
            self.journal.handle_failed(error)
            self._idle.set()
            self._on_failed(error)
            return
        before = self.journal.lsn
        lsn = self.journal.handle_synced(write)
        # The next write is on its way while the caller learns of this one.
        interval_s = self._interval_s(write)
        if lsn != before and self._began_at + interval_s > self._loop.time():
            self._rest_until = math.inf
            self._rest(interval_s)
        else:
            self._go_on()
        if lsn != before:
            self._on_synced(lsn)

    def _interval_s(self, write: Write) -> float:
        """Return the time between the beginnings of a write and the next one."""
        if not isinstance(write, BatchWrite) or write.length < BUSY_BYTES:
            return COMMIT_S_MIN
        return min(max(BUSY_S, _FILL_PART * self._fill_s), BUSY_S_MAX)

    def _rest(self, interval_s: float) -> None:
        """Go on some time after the beginning of the last write, or sooner if that was meant before."""
        until = self._began_at + interval_s
        if until < self._rest_until:
            if self._resting is not None:
                self._resting.cancel()
            self._rest_until = until
            # Never at once: the caller may be in the middle of what is to be written.
            self._resting = self._loop.call_later(max(until - self._loop.time(), 0.0), self._go_on)

    def _go_on(self) -> None:
        self._resting = None
        self._idle.set()
        self.kick()
