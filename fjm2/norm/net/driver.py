"""An engine on an asyncio loop: turns of bounded work, one timer, and the way for events up and for datagrams out."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Protocol

from fjm2.norm.core.engine import Engine
from fjm2.norm.core.events import Event, InterfaceLost, InterfaceRestored
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.train import Train

from .udp import LinkState, UdpSocket, UdpTransport

TRAINS_PER_TURN = 8
"""So much is done before other tasks of the loop get their turn: well under a millisecond."""
SEND_S = 0.001
"""For so long trains are sent. Fewer would leave behind what a busy application writes in each of its turns."""
_CHECK_S = 1.0
"""How often the interface is looked at: a dead one does not say so to those who only listen."""


class Writer(Protocol):
    """Something that collects data while the application runs, and hands them over once a turn."""

    def _hand_over(self) -> None:
        """Give the engine what it takes."""
        ...


class Driver:
    """Owns the sockets' readiness and the engine's timer. Everything runs in the loop's thread."""

    def __init__(
        self,
        engine: Engine,
        transport: UdpTransport,
        sink: Callable[[Event], None],
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        """`sink` takes every event; `settled` is called after every turn, when all of its events have been taken."""
        self._engine = engine
        self._transport = transport
        self._sink = sink
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._held: Train | None = None
        """A train that the kernel had no room for."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._turn_handle: asyncio.Handle | None = None
        self._writers: dict[Writer, None] = {}
        self._is_lost = False
        self._is_closed = False
        engine.own_address = transport.address
        self._watch_sockets()
        self._check_handle = self._loop.call_later(_CHECK_S, self._check_interface)

    @staticmethod
    def now() -> float:
        """The engine's clock. The loop's own may be a millisecond coarse."""
        return time.monotonic()

    def wake(self, writer: Writer | None = None) -> None:
        """A command was given: act on it at the end of the loop's turn, once for all of the turn's commands."""
        if writer is not None:
            self._writers[writer] = None
        if self._turn_handle is None and not self._is_closed:
            self._turn_handle = self._loop.call_soon(self._turn)

    def close(self) -> None:
        """Send what the closed engine still has to say, and let go of the loop. The transport stays open."""
        if self._is_closed:
            return
        self._is_closed = True
        self._unwatch_sockets()
        for handle in (self._timer, self._turn_handle, self._check_handle):
            if handle is not None:
                handle.cancel()
        self.send_goodbye()
        self._hand_up()

    def send_goodbye(self) -> None:
        """Answers that wait, and the goodbye. A full kernel is not waited for."""
        now = self.now()
        for _ in range(TRAINS_PER_TURN):
            train = self._engine.poll_train(now)
            if train is None:
                return
            self._transport.send(train)

    # Inputs of the engine.

    def _receive(self, socket: UdpSocket, by_unicast: bool) -> None:
        if self._is_closed:
            return
        now = self.now()
        for _ in range(TRAINS_PER_TURN):
            train = socket.receive()
            if train is None:
                break
            self._engine.receive_train(train, now, by_unicast)
        if socket.has_taken:
            # What it has taken from the kernel already makes no file readable.
            self._loop.call_soon(self._receive, socket, by_unicast)
        self._settle(now)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, NEVER
        now = self.now()
        self._engine.handle_timeout(now)
        self._settle(now)

    def _turn(self) -> None:
        self._turn_handle = None
        writers, self._writers = self._writers, {}
        for writer in writers:
            writer._hand_over()
        self._settle(self.now())

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._transport.transmit.fileno())
        self._settle(self.now())

    # Outputs of the engine.

    def _settle(self, now: float) -> None:
        """Send what is due, hand up what happened, arm the one timer. Runs after every input."""
        self._send(now)
        self._hand_up()
        self._settled()
        self._arm(self._engine.poll_timeout(), now)

    def _hand_up(self) -> None:
        while (event := self._engine.poll_event()) is not None:
            self._sink(event)

    def _send(self, now: float) -> None:
        end = now + SEND_S
        while True:
            train = self._held or self._engine.poll_train(now)
            if train is None:
                return
            if not self._transport.send(train):
                self._held = train
                self._loop.add_writer(self._transport.transmit.fileno(), self._on_writable)
                return
            self._held = None
            if time.monotonic() > end:
                break
        self.wake()  # more to do, but others first

    def _arm(self, at: float, now: float) -> None:
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at != NEVER and not self._is_closed:
            # Whole milliseconds, rounded up: uvloop's timers know no others, and would come early again and again.
            delay_s = math.ceil((at - now) * 1000) / 1000 if at > now else 0.0
            self._timer = self._loop.call_later(delay_s, self._on_timer)

    # The interface.

    def _watch_sockets(self) -> None:
        group, transmit = self._transport.group, self._transport.transmit
        self._loop.add_reader(group.fileno(), self._receive, group, False)
        self._loop.add_reader(transmit.fileno(), self._receive, transmit, True)

    def _unwatch_sockets(self) -> None:
        for socket in (self._transport.group, self._transport.transmit):
            self._loop.remove_reader(socket.fileno())
        self._loop.remove_writer(self._transport.transmit.fileno())

    def _check_interface(self) -> None:
        """Notice that the interface is gone, or back, and report either once."""
        self._check_handle = self._loop.call_later(_CHECK_S, self._check_interface)
        state = self._transport.check()
        if state is LinkState.CHANGED:
            self._unwatch_sockets()
            self._held = None
            state = self._transport.reopen()
            self._engine.own_address = self._transport.address
            self._watch_sockets()
        is_lost = state is not LinkState.UP
        if is_lost != self._is_lost:
            self._is_lost = is_lost
            name = self._transport.interface.name
            self._sink(InterfaceLost(name) if is_lost else InterfaceRestored(name))
            self._settle(self.now())
