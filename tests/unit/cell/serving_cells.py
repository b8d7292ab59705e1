"""A cell of one that serves, in a time that the test lets go by."""

from random import Random
from typing import Any

from single_keepers import BUS_KEY, ME, Store, events, sent

from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import Event, TableChanged
from fjm2.cell.times import HEARTBEAT_S, TELL_S
from fjm2.cell.wire.records import Record


class Alone:
    """A keeper that is its cell's only member, so that what it decides is committed as soon as it is on its disk."""

    def __init__(self, **options: Any) -> None:
        self.now = 0.0
        self.store = Store()
        self.cell = Cell(ME, 1, BUS_KEY, self.store, Random(1), self.now, members_wanted=1, **options)
        self.sent: list[Any] = []
        self.events: list[Event] = []
        self.is_table_told = True
        """True if the driver tells at once what a new subscription needs."""
        for _ in range(60):
            self.run(0.1)
        assert self.cell.is_serving
        self.forget()

    def run(self, seconds: float) -> None:
        """Let time go by, with time-outs as often as heartbeats are due."""
        ends_at = self.now + seconds
        while self.now < ends_at:
            self.pause(min(HEARTBEAT_S, ends_at - self.now))

    def pause(self, seconds: float) -> None:
        """Let time go by without a time-out before its end."""
        self.now += seconds
        self.cell.handle_timeout(self.now)
        self.settle()

    def settle(self) -> None:
        """Sync, and take all that the keeper sends and tells, also of what it gathers for a moment."""
        self.take()
        while (at := self.cell.poll_timeout()) <= self.now + TELL_S:
            self.now = max(self.now, at)
            self.cell.handle_timeout(self.now)
            self.take()

    def take(self) -> None:
        """Sync, and take all that the keeper sends and tells at this time."""
        while self.cell.replica.durable_lsn < self.store.lsn:
            self.cell.handle_synced(self.store.lsn, self.now)
        self.sent += sent(self.cell)
        for event in events(self.cell):
            self.events.append(event)
            if isinstance(event, TableChanged) and self.is_table_told:
                self.cell.handle_table_ready(event.version)

    def decide(self, *records: Record) -> None:
        """Decide something."""
        assert self.cell.propose(records, self.now) is not None
        self.settle()

    def forget(self) -> None:
        """Forget what was sent and told."""
        self.sent.clear()
        self.events.clear()

    def sent_of(self, kind: type) -> list[Any]:
        """Return what was sent of a kind."""
        return [message for message in self.sent if isinstance(message, kind)]
