"""One turn of an event loop around a sans-I/O machine: bounded input, bounded output, one timer.

`SocketReaders` is the way in: it reads a bounded number of trains from each readable socket, then ends the turn.
`LoopDriver` is the way out: it ends a turn by sending what is due, dispatching what happened and arming one timer.
Neither knows what a train holds. Both work on asyncio's own loop and on uvloop.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

NEVER: Final = math.inf
"""A deadline that does not come."""
SEND_BUDGET_S: Final = 0.001
"""Time to send trains before other tasks of the loop run. Less would leave trains behind at the end of each turn of a
busy application; more would delay everybody else on the loop."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Machine(Protocol[T_co]):
    """A protocol without I/O. Times are monotonic seconds."""

    def handle_timeout(self, now: float) -> None:
        """Act on deadlines that have passed."""
        ...

    def poll_train(self, now: float) -> T_co | None:
        """Return the next train to send now, or None."""
        ...

    def poll_timeout(self) -> float:
        """Return when to call `handle_timeout` next, or NEVER."""
        ...


class Waitable(Protocol):
    """Anything that an event loop can wait for."""

    def fileno(self) -> int:
        """Return the file number to wait for."""
        ...


class Source(Waitable, Protocol[T_co]):
    """A non-blocking socket that gives whole trains."""

    @property
    def has_taken(self) -> bool:
        """True if the next train is in the socket's own memory. It no longer makes the file readable."""
        ...

    def receive(self) -> T_co | None:
        """Return the next train, borrowed until the next call, or None."""
        ...


class SocketReaders(Generic[T]):
    """Reads trains from sockets as they become readable, a bounded number from each in a turn."""

    __slots__ = ("_clock", "_loop", "_receivers", "_settle", "_trains_per_turn")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settle: Callable[[float], None],
        *,
        trains_per_turn: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Call `settle` with the time the turn began after each turn, however many trains it read."""
        self._loop = loop
        self._settle = settle
        self._trains_per_turn = range(trains_per_turn)
        self._clock = clock
        self._receivers: dict[Source[T], Callable[[T, float], None]] = {}

    def watch(self, socket: Source[T], receive: Callable[[T, float], None]) -> None:
        """Call `receive` with each train of the socket, and with the time its turn began."""
        self._receivers[socket] = receive
        self._loop.add_reader(socket.fileno(), self._read, socket)

    def clear(self) -> None:
        """Watch no socket any more. Call it before the sockets are closed or get other file numbers."""
        for socket in self._receivers:
            self._loop.remove_reader(socket.fileno())
        self._receivers.clear()

    def _read(self, socket: Source[T]) -> None:
        receive = self._receivers.get(socket)
        if receive is None:
            return  # a call that was pending when the socket was cleared
        now = self._clock()
        for _ in self._trains_per_turn:
            train = socket.receive()
            if train is None:
                break
            receive(train, now)
        if socket.has_taken:
            self._loop.call_soon(self._read, socket)
        self._settle(now)


class LoopDriver(Generic[T]):
    """Ends each turn of a machine: sends what is due, dispatches what happened, and arms the one timer.

    Does nothing before `open` and after `close`. Everything runs in the loop's thread.
    """

    __slots__ = (
        "_dispatch",
        "_is_open",
        "_loop",
        "_machine",
        "_prepare",
        "_send",
        "_timer",
        "_timer_at",
        "_timer_min_s",
        "_turn_handle",
        "_waiting",
        "_writers",
        "held",
        "now",
        "sends_blocked",
    )

    def __init__(
        self,
        machine: Machine[T],
        send: Callable[[T, float], Waitable | None],
        dispatch: Callable[[], None],
        *,
        prepare: Callable[[float], None] | None = None,
        timer_min_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Drive `machine`, sending its trains by `send` and calling `dispatch` after each turn's sending.

        `send` returns None if it is done with the train, or else the full socket: it is called again with the same
        train once that socket is writable. `prepare` is called before each turn's sending. The timer never waits for
        less than `timer_min_s`: a machine may name deadlines that have passed while it cannot act on them.
        """
        self._machine = machine
        self._send = send
        self._dispatch = dispatch
        self._prepare = prepare
        self._timer_min_s = timer_min_s
        self.now = clock
        """Return the machine's time. The loop's own clock may be a millisecond coarse."""
        self.held: T | None = None
        """The train that the kernel had no room for; it goes before all others."""
        self.sends_blocked = 0
        """Times that the kernel was full."""
        self._waiting: Waitable | None = None
        """The socket whose writability we wait for."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._turn_handle: asyncio.Handle | None = None
        self._writers: dict[Callable[[], None], None] = {}
        """Functions that hand data over to the machine before the next turn's sending."""
        self._is_open = False

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to act on this loop."""
        self._loop = loop
        self._is_open = True

    def close(self) -> None:
        """Let go of the loop. The sockets must still be open."""
        if not self._is_open:
            return
        self._is_open = False
        for handle in (self._timer, self._turn_handle):
            if handle is not None:
                handle.cancel()
        self.drop_held()

    def wake(self, hand_over: Callable[[], None] | None = None) -> None:
        """End a turn soon, once for all calls of the loop's present turn.

        `hand_over` gives the machine what was written until then. It is called once, however often it was named.
        """
        if hand_over is not None:
            self._writers[hand_over] = None
        if self._turn_handle is None and self._is_open:
            self._turn_handle = self._loop.call_soon(self._turn)

    def settle(self, now: float) -> None:
        """End a turn. Call it after every input of the machine."""
        if not self._is_open:
            return
        if self._prepare is not None:
            self._prepare(now)
        self._send_due(now)
        self._dispatch()
        self._arm(self._machine.poll_timeout(), now)

    def hold(self, train: T, socket: Waitable) -> None:
        """Keep a train that `socket` had no room for, and send it before all others once the socket is writable."""
        self.held = train
        if self._waiting is socket:
            return
        self._stop_waiting()
        self._waiting = socket
        self.sends_blocked += 1
        self._loop.add_writer(socket.fileno(), self._on_writable)

    def drop_held(self) -> None:
        """Forget the held train and its socket. Call it before the socket gets another file number."""
        self.held = None
        self._stop_waiting()

    def _turn(self) -> None:
        self._turn_handle = None
        writers, self._writers = self._writers, {}
        for hand_over in writers:
            hand_over()
        self.settle(self.now())

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = self.now()
        self._machine.handle_timeout(now)
        self.settle(now)

    def _on_writable(self) -> None:
        self._stop_waiting()
        self.settle(self.now())

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._loop.remove_writer(self._waiting.fileno())
            self._waiting = None

    def _send_due(self, now: float) -> None:
        end = now + SEND_BUDGET_S
        while True:
            train = self.held or self._machine.poll_train(now)
            if train is None:
                return
            full = self._send(train, now)
            if full is not None:
                self.hold(train, full)
                return
            self.held = None
            if self.now() > end:
                break
        self.wake()  # there may be more to send, but other tasks come first

    def _arm(self, at: float, now: float) -> None:
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at != NEVER and self._is_open:
            # Whole milliseconds, rounded up: uvloop's timers know no others and would come early again and again.
            delay_s = math.ceil((at - now) * 1000) / 1000 if at > now else 0.0
            self._timer = self._loop.call_later(max(delay_s, self._timer_min_s), self._on_timer)
