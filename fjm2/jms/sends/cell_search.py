"""The search of a connection's bus for a cell: it tells what to do with messages that a cell would have to store."""

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from fjm2.base.errors import NormError

from .lone_bus import is_alone

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

_STEP_S: Final = 0.05
"""Interval at which the search goes on."""
_STEPS: Final = 10
"""Steps after which no cell is expected if there was no sign of one: 0.5 s, in which a manager tells three heartbeats.
They are counted, because a program that computes for half a second has not listened meanwhile."""
_ASKING_STEPS: Final = frozenset({0, 1, 3, 6})
"""Steps at which the question for a cell is asked: datagrams get lost."""


class Search(Enum):
    """States of the search."""

    LISTENING = auto()
    """It is too soon to know."""
    ABSENT = auto()
    """There is no sign of keepers, so that messages need not wait for any."""
    EXPECTED = auto()
    """Keepers of a cell are there, or were a moment ago. None of them is known to serve."""


class CellSearch:
    """Looks for signs of a cell on a bus, until a heartbeat ends the search."""

    def __init__(self, bus: "Bus", on_change: Callable[[], None]) -> None:
        """Begin. `on_change` is called after each change of the state."""
        self.state = Search.LISTENING
        self.lingers_s = 0.0
        """Time for which a cell is expected after its last keeper has gone. What was sent before then does not go out
        as on a bus without keepers."""
        self._bus = bus
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._steps = 0
        self._handle: asyncio.TimerHandle | None = None
        bus.presence.on_cell = self._note_cell
        if is_alone(bus.config):
            self.state = Search.ABSENT
        else:
            self._step()

    def end(self) -> None:
        """Look no more. Calling this twice does no harm."""
        self._bus.presence.on_cell = None
        self._cancel()

    def _cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _step(self) -> None:
        if self._steps >= _STEPS:
            self._handle = None
            self._enter(Search.EXPECTED if self._bus.presence.has_cell else Search.ABSENT)
            return
        if self._steps in _ASKING_STEPS:
            self._ask()
        self._steps += 1
        self._handle = self._loop.call_later(_STEP_S, self._step)

    def _ask(self) -> None:
        from fjm2.bus.signals.signals import CELL_QUESTION  # only now: it loads the NORM engine

        if self._bus.lanes.is_open:
            with contextlib.suppress(NormError):  # the interface is away; what is sent later waits as well
                self._bus.lanes.session.send_command(bytes((CELL_QUESTION,)))

    def _note_cell(self) -> None:
        if self.state is Search.LISTENING:
            return
        if self._bus.presence.has_cell:
            self._cancel()
            if self.state is Search.ABSENT:
                self._ask()
                self._enter(Search.EXPECTED)
        elif self.state is Search.EXPECTED and self._handle is None:
            self._handle = self._loop.call_later(self.lingers_s, self._enter, Search.ABSENT)

    def _enter(self, state: Search) -> None:
        self.state = state
        self._on_change()
