"""Messages of keepers, and a publisher's view that takes them, for tests without a network."""

from random import Random
from typing import Any

from fjm2.base.ledger import Ledger
from fjm2.cell.client.cell_view import CellView
from fjm2.cell.client.outgoing import Event, Outgoing, TableLearned
from fjm2.cell.wire.commands import Heartbeat, HeartbeatMember, MemberFlag
from fjm2.cell.wire.stored import Progress, Stored, progress_array
from fjm2.cell.wire.table import TableHashes

CELL, OTHER_CELL = 7, 8
PRODUCER = 42
LEDGER = Ledger(PRODUCER, 0, 0)
KEEPERS = tuple(bytes((number,)) * 16 for number in range(1, 6))
MANAGER = 101
"""Node of the first keeper."""
TIMEOUT_S = 10.0


def heartbeat(size: int = 3, *, lost: tuple[int, ...] = (), **changes: Any) -> Heartbeat:
    """Return a heartbeat of a cell whose keepers have the nodes 101, 102 and so on. Some may be lost."""
    members = tuple(
        HeartbeatMember(KEEPERS[at], MANAGER + at, 0 if at in lost else MemberFlag.LIVE, 1, 0) for at in range(size)
    )
    fields = {
        "flags": 1,
        "epoch": 1,
        "cell_id": CELL,
        "configuration": 257,
        "number": 1,
        "committed": 3,
        "table_version": 0,
        "members": members,
    }
    return Heartbeat(**{**fields, **changes})


def stored(keeper: int, on_disk: int, *, ledger: Ledger = LEDGER, is_closed: bool = False, **changes: Any) -> Stored:
    """Return the STORED of a member."""
    fields = {
        "flags": 0,
        "configuration": 257,
        "cell_id": CELL,
        "keeper_id": KEEPERS[keeper],
        "incarnation": 1,
        "table_version": 0,
        "durable_lsn": 1,
        "promised_epoch": 1,
        "heartbeat": 1,
        "ledgers": progress_array([Progress(ledger, on_disk, on_disk, is_closed)]),
    }
    return Stored(**{**fields, **changes})


def part(version: int, *hashes: int, number: int = 0, parts: int = 1, cell_id: int = CELL) -> TableHashes:
    """Return a part of a table."""
    return TableHashes(part=number, parts=parts, cell_id=cell_id, version=version, hashes=hashes)


class Publisher:
    """A view with one producer, in a time that the test lets go by."""

    def __init__(self, seed: int = 1) -> None:
        self.view = CellView(Random(seed))
        self.now = 0.0
        self.view.add_writer(PRODUCER, TIMEOUT_S, self.now)
        self.number = 0

    def beat(self, **changes: Any) -> list[Event]:
        """Hear the next heartbeat."""
        self.number += 1
        return self.hear(heartbeat(**{"number": self.number, **changes}))

    def hear(self, message: Heartbeat | TableHashes, source: int = MANAGER) -> list[Event]:
        """Hear a message, and return the events that follow."""
        self.view.receive_command(message.encode(), source, self.now)
        return self.events()

    def take(self, answer: Stored) -> list[Event]:
        """Take a STORED, and return the events that follow."""
        self.view.receive_stored(answer.encode(), self.now)
        return self.events()

    def send(self, through: int, ledger: Ledger = LEDGER) -> None:
        """Send messages that wait."""
        self.view.note_waiting(ledger, through, self.now)

    def learn(self, version: int, *hashes: int) -> None:
        """Hear of a table, and learn it."""
        self.beat(table_version=version)
        assert self.hear(part(version, *hashes)) == [TableLearned(version)]

    def run(self, seconds: float) -> tuple[list[Event], list[Outgoing]]:
        """Let time go by, and return what was told and sent."""
        end, told, sent = self.now + seconds, self.events(), self.messages()
        while (at := self.view.poll_timeout()) <= end:
            self.now = max(self.now, at)
            self.view.handle_timeout(self.now)
            told += self.events()
            sent += self.messages()
        self.now = end
        return told, sent

    def events(self) -> list[Event]:
        """Return all events that wait."""
        return list(iter(self.view.poll_event, None))

    def messages(self) -> list[Outgoing]:
        """Return all messages that wait."""
        return list(iter(self.view.poll_message, None))
