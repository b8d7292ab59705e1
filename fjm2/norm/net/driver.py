"""Driver of an engine on an asyncio loop: trains from sockets go in, and the engine's trains and events come out."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from fjm2.base.loop import NEVER, LoopDriver, TrainReader, Waitable
from fjm2.norm.core.engine import Engine
from fjm2.norm.core.events import Event, InterfaceLost, InterfaceRestored, SendsRefused
from fjm2.norm.core.train import Train

from .udp import LinkState, UdpTransport

TRAINS_PER_TURN: Final = 8
"""Maximum number of trains read from one socket before other tasks of the loop run: well under a millisecond of work.
"""
_GOODBYE_TRAINS_MAX: Final = 8
"""Maximum number of trains sent after closing: enough for pending answers and the goodbye."""
_ALONE_S: Final = 50e-6
"""Time after a lone message in which the next one waits for the end of the loop's turn: there may be more of them, and
together they cost less. A train that arrives meanwhile ends it: the next message is most likely an answer."""
_CHECK_S: Final = 1.0
"""Seconds between checks of the interface. A session that only listens gets no error from a dead interface."""
_REFUSAL_CHECKS: Final = 10
"""Checks without a failed send after which refused sends are reported again. Fewer would report those to one peer anew
between announcements to the group, which go out every few seconds."""


class Driver:
    """Connection of an engine, a transport and an asyncio loop. Everything runs in the loop's thread."""

    def __init__(
        self,
        engine: Engine,
        transport: UdpTransport,
        sink: Callable[[Event], None],
        settled: Callable[[], None] = lambda: None,
    ) -> None:
        """Pass every event to `sink`; call `settled` after each turn, when all of its events have been passed on."""
        self._engine = engine
        self._transport = transport
        self._transmit = transport.transmit
        self._sink = sink
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._turns = LoopDriver(engine, self._send, self._dispatch)
        self._turns.open(self._loop)
        self.wake = self._turns.wake
        """Let the engine act on all commands together, at the end of the loop's turn. See `LoopDriver.wake`."""
        self._alone_at = -NEVER
        """Time of the last lone message; minus infinity if a train has arrived since."""
        self._reader = TrainReader[Train](self._loop, self._settle_input, trains_per_turn=TRAINS_PER_TURN)
        self._is_lost = False
        self._refusal_checks = 0
        """Checks left until refused sends are reported again; 0 if they are reported at once."""
        self._send_errors = 0
        """Failed sends as of the last check."""
        self._is_closed = False
        engine.own_address = transport.address
        self._watch_sockets()
        self._check_handle = self._loop.call_later(_CHECK_S, self._check_interface)

    @staticmethod
    def now() -> float:
        """Return the engine's time in seconds. The loop's own clock is not used: it can be a millisecond coarse."""
        return time.monotonic()

    def send_alone(self, stream: int, head: bytes, body: bytes) -> bool:
        """Send a short message, in two parts, at once, if it finds the session idle. Return False otherwise."""
        turns = self._turns
        if not turns.is_idle:
            return False
        now = turns.now()
        engine = self._engine
        if now - self._alone_at < _ALONE_S or not engine.write_alone(stream, head, body, now, self._send_alone):
            return False
        self._alone_at = now
        turns.arm(now)
        if engine.may_send:
            turns.wake()
        return True

    def _send_alone(self, datagram: memoryview) -> None:
        transmit, group = self._transmit, self._transport.destination
        if not transmit.send_alone(datagram, group):
            train = Train(np.frombuffer(datagram, np.uint8), len(datagram), group)
            self._turns.hold(train, transmit)

    def close(self) -> None:
        """Send the last trains of the closed engine, pass on its last events, and leave the loop.

        The transport stays open.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._reader.clear()
        self._turns.close()
        self._check_handle.cancel()
        self.send_goodbye()
        while (event := self._engine.poll_event()) is not None:
            self._sink(event)

    def send_goodbye(self) -> None:
        """Send pending answers and the goodbye. Drop them if the kernel's send buffer is full."""
        now = self.now()
        for _ in range(_GOODBYE_TRAINS_MAX):
            train = self._engine.poll_train(now)
            if train is None:
                return
            self._transport.send(train)

    def _settle_input(self, now: float) -> None:
        self._alone_at = -NEVER
        self._turns.settle(now)

    def _send(self, train: Train, _now: float) -> Waitable | None:
        transmit = self._transmit
        return None if transmit.send(train) else transmit

    def _dispatch(self) -> None:
        events, sink = self._engine.events, self._sink
        while events:
            sink(events.popleft())
        self._settled()

    def _watch_sockets(self) -> None:
        self._reader.watch(self._transport.group, self._engine.receive_train)
        self._reader.watch(self._transmit, partial(self._engine.receive_train, by_unicast=True))

    def _check_interface(self) -> None:
        """Check if the interface has disappeared or come back, and report each change once."""
        self._check_handle = self._loop.call_later(_CHECK_S, self._check_interface)
        state = self._transport.check()
        if state is LinkState.CHANGED:
            self._reader.clear()
            self._turns.drop_held()
            state = self._transport.reopen()
            self._engine.own_address = self._transport.address
            self._watch_sockets()
        is_lost = state is not LinkState.UP
        if is_lost != self._is_lost:
            self._is_lost = is_lost
            name = self._transport.interface.name
            self._sink(InterfaceLost(name) if is_lost else InterfaceRestored(name))
            self._turns.settle(self.now())
        self._check_refusal()

    def _check_refusal(self) -> None:
        """Check if the kernel refuses what is sent, and report each time in which it does once."""
        before, self._send_errors = self._send_errors, self._transport.stats.send_errors.total()
        reason = self._transport.refusal
        if reason is not None and not self._refusal_checks:
            self._refusal_checks = _REFUSAL_CHECKS
            self._sink(SendsRefused(self._transport.interface.name, reason))
            self._turns.settle(self.now())
        elif self._send_errors != before:
            self._refusal_checks = _REFUSAL_CHECKS if self._refusal_checks else 0
        elif self._refusal_checks:
            self._refusal_checks -= 1
