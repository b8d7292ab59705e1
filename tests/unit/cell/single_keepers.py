"""A keeper alone, whose store syncs when the test says so."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.cell import Cell
from fjm2.cell.context import Context
from fjm2.cell.outgoing import Event, Outgoing, SendCommand, SendStored
from fjm2.cell.replica import Remembered, Replica, StoredEntry
from fjm2.cell.wire.commands import Heartbeat, HeartbeatMember, VoteRequest
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.records import ConfigureRecord, EntryBody, Record
from fjm2.cell.wire.stored import Stored

CELL_ID = 99
MEMBERS = tuple(Member(bytes((number,)) * 16, 1) for number in range(1, 5))
ME = MEMBERS[0]
LEDGER = Ledger(5, 0, 1)
BUS_KEY = int.from_bytes(MEMBERS[0].keeper_id)


class Store:
    """A journal whose writes have numbers, and are on disk when the test says so."""

    def __init__(self) -> None:
        self.is_full = False
        self.has_reserve = True
        """True if a full store has room for what is urgent."""
        self.has_fetch_reserve = False
        """True if a full store has room for what is fetched."""
        self.refused: list[int] = []
        self.writes: list[object] = []
        self.released: list[tuple[int, int]] = []
        """Cells whose decisions were released, and the index before which."""
        self.forgotten: list[Ledger] = []
        self.counted: dict[Ledger, list[tuple[int, int]]] = {}

    @property
    def lsn(self) -> int:
        """Number of the last write."""
        return len(self.writes)

    def store_frames(
        self,
        ledger: Ledger,
        first: int,
        frames: Sequence[bytes],
        *,
        is_fetched: bool = False,
        is_urgent: bool = False,
    ) -> int | None:
        return self._write((ledger, first, frames), is_fetched=is_fetched, is_urgent=is_urgent)

    def store_counted(self, ledger: Ledger, first: int, count: int, *, is_fetched: bool = False) -> int | None:
        self.counted.setdefault(ledger, []).append((first, first + count))
        return self._write((ledger, first, count), is_fetched=is_fetched)

    def store_late(self, ledger: Ledger, first: int, frames: Sequence[bytes]) -> int | None:
        counted = RangeSet(self.counted.get(ledger, ()))
        counted.remove(first, first + len(frames))
        self.counted[ledger] = list(counted)
        return self._write((ledger, first, frames))

    def store_settled(self, cell_id: int, version: int) -> int | None:
        return self._write((cell_id, version), is_urgent=True)

    def store_promise(self, cell_id: int, epoch: int, voted_for: bytes) -> int | None:
        return self._write((cell_id, epoch, voted_for), is_urgent=True)

    def poll_refused(self) -> list[int]:
        refused, self.refused = self.refused, []
        return refused

    def live(self, ledger: Ledger, first: int, end: int) -> RangeSet:
        """Return all sequences but those that were counted."""
        found = RangeSet([(first, end)])
        for low, high in self.counted.get(ledger, ()):
            found.remove(low, high)
        return found

    def release_decisions(self, cell_id: int, before: int) -> None:
        self.released.append((cell_id, before))

    @property
    def has_room(self) -> bool:
        return not self.is_full

    def forget(self, ledger: Ledger) -> None:
        self.forgotten.append(ledger)

    def release(self, ledger: Ledger, ranges: Iterable[tuple[int, int]]) -> None:
        self._write((ledger, tuple(ranges)))

    def _write(self, content: object, *, is_fetched: bool = False, is_urgent: bool = False) -> int | None:
        has_reserve = (is_urgent and self.has_reserve) or (is_fetched and self.has_fetch_reserve)
        if self.is_full and not has_reserve:
            return None
        self.writes.append(content)
        return self.lsn


def body(previous_epoch: int, *records: Record) -> bytes:
    """Return the body of an entry."""
    return EntryBody(previous_epoch, 0, records).encode()


FOUNDED = StoredEntry(0, 1, body(0, ConfigureRecord(1, 3, MEMBERS[:3], True)))
"""The first entry of a cell of three."""


def replica(*entries: StoredEntry, promised: int = 1, me: Member = ME) -> tuple[Replica, Store, Context]:
    """Return what a member of the cell of three holds."""
    store = Store()
    context = Context(me, 1, BUS_KEY, store, Random(1))
    return Replica(context, Remembered(CELL_ID, promised, entries=(FOUNDED, *entries)), 0.0), store, context


def cell(*entries: StoredEntry, promised: int = 1, me: Member = ME) -> tuple[Cell, Store]:
    """Return a member of the cell of three that has just started."""
    store = Store()
    remembered = Remembered(CELL_ID, promised, entries=(FOUNDED, *entries))
    return Cell(me, 1, BUS_KEY, store, Random(1), 0.0, remembered=remembered), store


def sent(keeper: Cell) -> list[Any]:
    """Return the commands, STOREDs and entries that a keeper sends, without their envelopes."""
    found: list[Outgoing] = []
    while (message := keeper.poll_message()) is not None:
        found.append(message)
    return [
        message.command
        if isinstance(message, SendCommand)
        else message.stored
        if isinstance(message, SendStored)
        else message
        for message in found
    ]


def events(keeper: Cell) -> list[Event]:
    found = []
    while (event := keeper.poll_event()) is not None:
        found.append(event)
    return found


def heartbeat(epoch: int, number: int = 1, **changes: Any) -> bytes:
    """Return a heartbeat of the cell of three."""
    members = tuple(HeartbeatMember(*each[:1], 1, 1, each.incarnation, 0) for each in MEMBERS[:3])
    fields = {
        "flags": 1,
        "epoch": epoch,
        "cell_id": CELL_ID,
        "configuration": 1,
        "number": number,
        "committed": 0,
        "table_version": 0,
        "members": members,
    }
    return Heartbeat(**{**fields, **changes}).encode()


def vote_request(epoch: int, candidate: int = 1, flags: int = 0, last: tuple[int, int] = (0, 1)) -> bytes:
    """Return a candidate's request."""
    return VoteRequest(
        flags=flags,
        epoch=epoch,
        cell_id=CELL_ID,
        candidate=MEMBERS[candidate].keeper_id,
        configuration=1,
        last_epoch=last[0],
        last_index=last[1],
    ).encode()


def only_stored(messages: list[Any]) -> list[Stored]:
    return [message for message in messages if isinstance(message, Stored)]
