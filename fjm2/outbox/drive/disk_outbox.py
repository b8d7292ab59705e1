"""An outbox on the event loop: accepts messages, and has them written by the thread that commits."""

import asyncio
from collections.abc import Callable
from typing import Final

from fjm2.base.quantities import counted
from fjm2.messages.errors import IllegalStateError, JMSError, ResourceAllocationError
from fjm2.store.config import Need
from fjm2.store.drive.committer import Committer

from ..outbox import Outbox, Turn
from ..outbox_store import OutboxStore
from .directory import OpenOutbox

_TICK_S: Final = 1.0
"""Interval at which a disk that is full is asked for room again: others may have made some. At most that late the disk
has how far messages are stored."""
_ACCEPTING_BYTES_MAX: Final = 4 << 20
"""Bytes on the way to the disk from which on senders wait before they send more."""


FAILED: Final = "outbox_failed"
FULL: Final = "outbox_full"
"""Error codes."""


class DiskOutbox:
    """An open outbox. Messages are accepted at once, and their future is done when they are on disk."""

    def __init__(self, opened: OpenOutbox, timeout_s: float) -> None:
        """Messages for which there is no room after `timeout_s` seconds fail."""
        self._loop = asyncio.get_running_loop()
        self._disk = opened.disk
        self._timeout_s = timeout_s
        self._committer = Committer(
            opened.journal, opened.disk, on_synced=self._handle_synced, on_failed=self._handle_failed
        )
        store = OutboxStore(opened.journal, self._committer.append)
        self.core: Final[Outbox[asyncio.Future[None]]] = Outbox(store, opened.recovered)
        """The outbox without I/O. Call `settle` after each call of it."""
        self.on_settled: Callable[[], None] = lambda: None
        """Called when something may have changed."""
        self.failure: JMSError | None = None
        """Error that ended the outbox."""
        self.on_failed: Callable[[JMSError], None] = lambda _: None
        self._open_turn: Turn[asyncio.Future[None]] | None = None
        self._room = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._tick()

    @property
    def waiting(self) -> int:
        """Number of messages that are not known to be stored."""
        return self.core.waiting + (self._open_turn.count if self._open_turn is not None else 0)

    @property
    def has_room(self) -> bool:
        """True if senders need not wait before they send more."""
        return self.core.accepting_bytes < _ACCEPTING_BYTES_MAX

    def accept(self, lane: int, frame: bytes) -> "asyncio.Future[None]":
        """Accept a message. The future is done when it is on disk. Messages of one turn of the loop share it."""
        if self.failure is not None:
            raise self.failure
        turn = self._open_turn
        if turn is None:
            future = self._loop.create_future()
            future.add_done_callback(_retrieve)
            turn = self._open_turn = Turn(future, self._loop.time())
            self._loop.call_soon(self._end_turn)
        self.core.accept(turn, lane, frame)
        return turn.token

    async def room(self) -> None:
        """Wait until senders may send more."""
        while not self.has_room and self.failure is None:
            self._room.clear()
            await self._room.wait()

    def _end_turn(self) -> None:
        turn, self._open_turn = self._open_turn, None
        if turn is None:
            return
        if self.failure is not None:
            _fail(turn, self.failure)
            return
        self.core.add(turn)
        self.settle()

    def settle(self) -> None:
        """Write what is due, and tell the owner."""
        if self.failure is None:
            self.core.flush()
            self._committer.kick()
        self.on_settled()

    async def read(self, lane: int, number: int) -> None:
        """Read messages of a lane from the disk, from one on, and hold them in memory."""
        read = self.core.store.read(lane, number, self.core.lanes[lane].durable)
        frames = await asyncio.to_thread(read.fetch, self._disk)
        whole: list[bytes] = []
        for sequence, frame in zip(read.sequences.tolist(), frames, strict=True):
            if frame is None or sequence != number + len(whole):
                break
            whole.append(frame)
        if whole:
            self.core.hold(lane, number, whole)
        elif self.core.lanes[lane].released < number:
            self.fail(
                ResourceAllocationError(
                    f"message {number} of lane {lane} of the outbox cannot be read: expected what was accepted; look "
                    "into the system's log, and open the outbox again",
                    FAILED,
                )
            )

    def fail(self, error: JMSError) -> None:
        """Let everything fail that is not on disk, and take nothing more."""
        if self.failure is None:
            self.failure = error
            for turn in self.core.give_up():
                _fail(turn, error)
            self._room.set()
            self.on_failed(error)

    def _handle_synced(self, lsn: int) -> None:
        journal = self._committer.journal
        refused, journal.refused[:] = list(journal.refused), []
        for turn in self.core.handle_synced(lsn, refused, self._loop.time()):
            if not turn.token.done():
                turn.token.set_result(None)
        self._room.set()
        self.settle()

    def _handle_failed(self, error: OSError) -> None:
        self.fail(
            ResourceAllocationError(
                f"the disk of the outbox failed: {error}; messages whose send did not return may be lost: look into "
                "the system's log, and open the outbox again",
                FAILED,
                error,
            )
        )

    def _tick(self) -> None:
        """Write how far messages are stored, ask a full disk for room again, and let fail what has waited for too
        long."""
        now = self._loop.time()
        if self.failure is None:
            if self.core.is_full:
                self._committer.journal.retry()
                for turn in self.core.expired(now - self._timeout_s):
                    _fail(turn, self._full())
                self._room.set()
            self.core.remember()
            self.settle()
        oldest = self.core.oldest_turn()
        at = now + _TICK_S if oldest is None else min(now + _TICK_S, max(oldest + self._timeout_s, now + 0.01))
        self._timer = self._loop.call_at(at, self._tick)

    def _full(self) -> JMSError:
        use = self._committer.journal.use
        return ResourceAllocationError(
            f"the outbox is full, and got no room for {self._timeout_s:g} s (confirm_timeout_s): it takes "
            f"{counted(use.used, 'byte')} of {use.allowed} (outbox_bytes_max), and {counted(self.waiting, 'message')} "
            "wait for keepers: start keepers, or give the outbox more room",
            FULL,
        )

    async def close(self) -> None:
        """Write everything that waits and how far messages are stored, and give up the directory. Calling it twice does
        no harm."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.core.remember(Need.URGENT)  # a full outbox has no room for less
        self._end_turn()
        self.settle()
        await self._committer.close()
        self.on_failed = lambda _: None
        if self.failure is None:
            self.fail(IllegalStateError("the connection is closed: create another one"))
        self._disk.shut()


def _fail(turn: "Turn[asyncio.Future[None]]", error: JMSError) -> None:
    if not turn.token.done():
        turn.token.set_exception(error)


def _retrieve(future: "asyncio.Future[None]") -> None:
    """Mark an error as seen: nobody may be waiting."""
    if not future.cancelled():
        future.exception()
