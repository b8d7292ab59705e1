"""Processes of clients in virtual time: they run, are stopped for a while, or end."""

from collections.abc import Callable
from typing import Final

MISSED_MAX: Final = 500
"""Most packets that wait for a process that is stopped."""


class Process:
    """A process that takes what the network brings. It does not notice that it was stopped."""

    def __init__(self, later: Callable[[float, Callable[[], None]], None], go_on: Callable[[], None]) -> None:
        """`later` does something after a time, and `go_on` is what the program does next when it was stopped."""
        self.is_alive = True
        self._later = later
        self._go_on = go_on
        self._missed: list[Callable[[], None]] | None = None
        """Calls that the network made while the process was stopped; None while it runs."""

    @property
    def is_stopped(self) -> bool:
        return self._missed is not None

    def call(self, act: Callable[[], None]) -> None:
        """Do what the network brings: at once, or when the process goes on."""
        if self.is_alive and self._missed is None:
            act()
        elif self._missed is not None and len(self._missed) < MISSED_MAX:
            self._missed.append(act)

    def stop(self, seconds: float) -> None:
        """Stop for a while."""
        if self._missed is None:
            self._missed = []
            self._later(seconds, self._resume)

    def _resume(self) -> None:
        missed, self._missed = self._missed or [], None
        if self.is_alive:
            self._go_on()
        for act in missed:
            self.call(act)
