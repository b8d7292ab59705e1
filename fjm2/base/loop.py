"""Turns of an event loop around a sans-I/O machine. Each turn has bounded input, bounded output and one timer.

A train is a batch of datagrams in one buffer. `TrainReader` reads a bounded number of trains from each readable
socket, then ends the turn. `LoopDriver` ends a turn: it sends what is due, dispatches what happened and arms one timer.
Neither of them looks into trains. Both work on asyncio's own loop and on uvloop.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

NEVER: Final = math.inf
"""Time of a deadline that never comes."""
SEND_BUDGET_S: Final = 0.001
"""Longest time in a turn for sending trains, in seconds, before other tasks of the loop run. Less would leave trains
behind at the end of each turn of a busy application; more would delay all other tasks of the loop."""


def call_not_before(loop: asyncio.AbstractEventLoop, at: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
    """Have a callback called when the loop's own clock has reached a time.

    The timers and the clock of uvloop are whole milliseconds, and its `call_at` rounds down: a callback that finds
    nothing due and sets its timer again would be called hundreds of times in that millisecond.
    """
    return loop.call_later(whole_ms(at - loop.time()), callback)


def whole_ms(delay_s: float) -> float:
    """Return a delay in seconds, rounded up to whole milliseconds; 0 if it is negative."""
    return math.ceil(max(delay_s, 0.0) * 1000) / 1000


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Machine(Protocol[T_co]):
    """A state machine of a protocol, without I/O. Times are seconds of a monotonic clock."""

    def handle_timeout(self, now: float) -> None:
        """Act on deadlines that have passed."""
        ...

    def poll_train(self, now: float) -> T_co | None:
        """Return the next train to send at the time `now`, or None if there is none."""
        ...

    def poll_timeout(self) -> float:
        """Return the time at which to call `handle_timeout` next, or NEVER."""
        ...


class Waitable(Protocol):
    """Anything that an event loop can wait for."""

    def fileno(self) -> int:
        """Return the file descriptor to wait for."""
        ...


class Source(Waitable, Protocol[T_co]):
    """A non-blocking socket from which whole trains are read."""

    @property
    def has_taken(self) -> bool:
        """True if this object already holds the next train. The event loop then does not report the socket as
        readable."""
        ...

    @property
    def is_busy(self) -> bool:
        """True if more trains are expected to wait behind the last one."""
        ...

    def receive(self) -> T_co | None:
        """Return the next train, or None if there is none. The train is valid until the next call only."""
        ...


class TrainReader(Generic[T]):
    """Reads trains from any number of sockets as they become readable, a bounded number from each in a turn."""

    __slots__ = ("_clock", "_loop", "_receivers", "_settle", "_trains_per_turn")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settle: Callable[[float], None],
        *,
        trains_per_turn: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read at most `trains_per_turn` trains from a socket in a turn.

        `settle` is called after each turn that read something, with the time at which the turn began. After a train
        that came alone, it is called at once, and the socket is read again after the callbacks that this has scheduled.
        """
        self._loop = loop
        self._settle = settle
        self._trains_per_turn = range(trains_per_turn)
        self._clock = clock
        self._receivers: dict[Source[T], Callable[[T, float], None]] = {}

    def watch(self, socket: Source[T], receive: Callable[[T, float], None]) -> None:
        """Begin to read from a socket. `receive` is called with each train and the time at which its turn began."""
        self._receivers[socket] = receive
        self._loop.add_reader(socket.fileno(), self._read, socket)

    def clear(self) -> None:
        """Stop reading from all sockets. Call it before the sockets are closed or get other file descriptors."""
        for socket in self._receivers:
            self._loop.remove_reader(socket.fileno())
        self._receivers.clear()

    def _read(self, socket: Source[T]) -> None:
        receive = self._receivers.get(socket)
        if receive is None:
            return  # a call that was pending when the socket was cleared
        now = self._clock()
        is_settled = True
        for _ in self._trains_per_turn:
            train = socket.receive()
            if train is None:
                break
            receive(train, now)
            if not socket.is_busy:
                # Most likely nothing waits behind it. Look only after the callbacks that the train has scheduled.
                self._settle(now)
                self._loop.call_soon(self._read, socket)
                return
            is_settled = False
        if socket.has_taken:
            self._loop.call_soon(self._read, socket)
        if not is_settled:
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
        """Drive `machine`: pass its trains to `send`, and call `dispatch` after each turn's sending.

        `send` returns None if it is done with the train. If a socket is full, it returns that socket, and is called
        again with the same train once the socket is writable. `prepare` is called before each turn's sending. The timer
        always waits for at least `timer_min_s` seconds, because a machine may name deadlines that have passed while it
        cannot act on them.
        """
        self._machine = machine
        self._send = send
        self._dispatch = dispatch
        self._prepare = prepare
        self._timer_min_s = timer_min_s
        self.now = clock
        """Function that returns the machine's time. The loop's own clock may be a millisecond coarse."""
        self.held: T | None = None
        """The train that the kernel had no room for, or None. It is sent before all others."""
        self.sends_blocked = 0
        """Number of times that the kernel had no room for a train."""
        self._waiting: Waitable | None = None
        """The socket that has to become writable before more is sent, or None."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._turn_handle: asyncio.Handle | None = None
        self._writers: dict[Callable[[], None], None] = {}
        """Functions that hand data over to the machine before the next turn's sending."""
        self._is_open = False

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to run turns on the event loop `loop`."""
        self._loop = loop
        self._is_open = True

    def close(self) -> None:
        """Stop running turns. Call it while the sockets are still open."""
        if not self._is_open:
            return
        self._is_open = False
        for handle in (self._timer, self._turn_handle):
            if handle is not None:
                handle.cancel()
        self.drop_held()

    def wake(self, hand_over: Callable[[], None] | None = None) -> None:
        """Schedule the end of a turn. Several calls during one turn of the loop schedule it only once.

        `hand_over` is called before the turn's sending and gives the machine the data written until then. It is called
        once, however often it was passed.
        """
        if hand_over is not None:
            self._writers[hand_over] = None
        if self._turn_handle is None and self._is_open:
            self._turn_handle = self._loop.call_soon(self._turn)

    @property
    def is_idle(self) -> bool:
        """True if no turn is scheduled and no train waits for the kernel."""
        return self._turn_handle is None and self.held is None and self._is_open

    def arm(self, now: float) -> None:
        """Arm the timer after the machine was used outside of the turns, while `is_idle`."""
        at = self._machine.poll_timeout()
        if at < self._timer_at:
            self._set_timer(at, now)

    def settle(self, now: float) -> None:
        """End a turn: send what is due, dispatch what happened and arm the timer. Call it after every input of the
        machine."""
        if not self._is_open:
            return
        if self._prepare is not None:
            self._prepare(now)
        train = self.held or self._machine.poll_train(now)
        if train is not None:
            self._send_due(train, now)
        self._dispatch()
        at = self._machine.poll_timeout()
        if at < self._timer_at:
            self._set_timer(at, now)

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
        """Discard the held train, and stop waiting for its socket. Call it before the socket gets another file
        descriptor."""
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

    def _send_due(self, train: T | None, now: float) -> None:
        """Send a train, and those that are due after it."""
        end = now + SEND_BUDGET_S
        while train is not None:
            full = self._send(train, now)
            if full is not None:
                self.hold(train, full)
                return
            self.held = None
            if self.now() > end:
                self.wake()  # there may be more to send, but other tasks come first
                return
            train = self._machine.poll_train(now)

    def _set_timer(self, at: float, now: float) -> None:
        """Set the timer to an earlier time. It is not set to a later one: it then comes too early, finds nothing due,
        and is set again, which costs less than to move it each time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if self._is_open:
            # uvloop's timers are no finer than milliseconds, and would fire early again and again.
            self._timer = self._loop.call_later(max(whole_ms(at - now), self._timer_min_s), self._on_timer)
