"""An outbox without I/O: messages go to the disk in groups, and from there to the keepers.

The owner passes in what reaches the disk and what the cell says. After each call it calls `flush`, and sends what
`poll_ask` returns.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from fjm2.base.ledger import Ledger
from fjm2.store.config import Need

from .held_messages import HeldMessages
from .lives import Life
from .outbox_lane import AskFinal, OutboxLane, Recovered
from .outbox_store import OutboxStore

GROUP_BYTES: Final = 4 << 20
"""Bytes at which a group takes no further turns."""
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Turn(Generic[T]):
    """Messages that were accepted together, and become sure together."""

    token: T
    """Something of the owner."""
    since: float
    frames: dict[int, list[bytes]] = field(default_factory=dict)
    """Frames by lane."""
    size: int = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.frames.values()))


@dataclass(slots=True)
class _Group(Generic[T]):
    """Turns, a life, or only how far lanes are stored, on the way to the disk."""

    lsn: int
    turns: list[Turn[T]] = field(default_factory=list)
    messages: dict[int, tuple[int, list[bytes]]] = field(default_factory=dict)
    """Messages of the turns by lane, with the number of the first one."""
    life: tuple[int, Life] | None = None


class Outbox(Generic[T]):
    """All lanes of an outbox, and their common way to the disk. One group is on that way at a time."""

    def __init__(self, store: OutboxStore, recovered: dict[int, Recovered]) -> None:
        self.store: Final = store
        self.lanes: Final = {lane: OutboxLane(store.producer_id, lane, each) for lane, each in recovered.items()}
        self.is_full = False
        """True if the disk took nothing more when it was asked last."""
        self._held = {lane: HeldMessages() for lane in recovered}
        self._read = {lane: HeldMessages() for lane in recovered}
        """Messages of each lane that were read from the disk."""
        self._turns: deque[Turn[T]] = deque()
        self._lives: deque[tuple[int, Life]] = deque()
        self._group: _Group[T] | None = None
        self._released = dict.fromkeys(recovered, 0)
        self._due: Need | None = None
        """Reason to write how far lanes are stored, if it is to be written without messages."""
        self.accepting_bytes = 0
        """Bytes of messages that are not on disk yet."""
        for lane in self.lanes.values():
            self._release(lane)  # what was released before the last life ended may be back

    @property
    def waiting(self) -> int:
        """Number of messages that are accepted, or about to be, and not known to be stored."""
        return sum(lane.waiting for lane in self.lanes.values()) + sum(turn.count for turn in self._coming())

    def _coming(self) -> Iterator[Turn[T]]:
        if self._group is not None:
            yield from self._group.turns
        yield from self._turns

    # The disk

    def accept(self, turn: Turn[T], lane: int, frame: bytes) -> None:
        """Add a message to a turn that was not passed to `add` yet."""
        turn.frames.setdefault(lane, []).append(frame)
        turn.size += len(frame)
        self.accepting_bytes += len(frame)

    def add(self, turn: Turn[T]) -> None:
        """Have the messages of a turn written, after all that were accepted before."""
        self._turns.append(turn)

    def expired(self, before: float) -> list[Turn[T]]:
        """Give up turns that were accepted before a time and that the disk had no room for. Return them."""
        expired: list[Turn[T]] = []
        while self._turns and self._turns[0].since <= before:
            expired.append(self._turns.popleft())
        self.accepting_bytes -= sum(turn.size for turn in expired)
        return expired

    def give_up(self) -> list[Turn[T]]:
        """Give up all turns that are not on disk, and return them: the disk failed."""
        turns = list(self._coming())
        self._turns.clear()
        self._group = None
        self.accepting_bytes = 0
        return turns

    def oldest_turn(self) -> float | None:
        """Return the time at which the first turn was accepted that is not on its way to the disk."""
        return self._turns[0].since if self._turns else None

    def remember(self, need: Need = Need.MESSAGE) -> None:
        """Have it written how far lanes are stored, if no group of messages comes that tells it, too."""
        self._due = need

    def flush(self) -> None:
        """Start to write the next life or group, unless one is on its way."""
        for lane in self.lanes.values():
            life = lane.poll_life()
            if life is not None:
                self._lives.append((lane.lane, life))
        if self._group is None:
            self._group = self._write_life() or self._write_turns() or self._write_stored()

    def _write_life(self) -> _Group[T] | None:
        if not self._lives:
            return None
        lane, life = self._lives[0]
        lsn = self.store.append_life(lane, life)
        if lsn is None:
            return None
        return _Group(lsn, life=self._lives.popleft())

    def _write_turns(self) -> _Group[T] | None:
        if not self._turns:
            return None
        many = self._next_group()
        for turns in (many, many[:1]):
            messages = self._numbered(turns)
            lsn = self.store.append(messages, self._newly_stored())
            if lsn is not None:
                for _ in turns:
                    self._turns.popleft()
                self.is_full = False
                return _Group(lsn, turns, messages)
        self.is_full = True
        return None

    def _write_stored(self) -> _Group[T] | None:
        need, self._due = self._due, None
        stored = self._newly_stored()
        if need is None or not stored:
            return None
        lsn = self.store.append({}, stored, need)
        return None if lsn is None else _Group(lsn)

    def _newly_stored(self) -> dict[int, int]:
        """Return the number through which each lane is stored of which the disk does not know that yet."""
        return {lane: each.released for lane, each in self.lanes.items() if each.released > self.store.stored(lane)}

    def _next_group(self) -> list[Turn[T]]:
        group: list[Turn[T]] = []
        size = 0
        for turn in self._turns:
            if group and size + turn.size > GROUP_BYTES:
                break
            group.append(turn)
            size += turn.size
        return group

    def _numbered(self, turns: list[Turn[T]]) -> dict[int, tuple[int, list[bytes]]]:
        messages: dict[int, tuple[int, list[bytes]]] = {}
        for turn in turns:
            for lane, frames in turn.frames.items():
                known = messages.setdefault(lane, (self.lanes[lane].durable + 1, []))
                known[1].extend(frames)
        return messages

    def handle_synced(self, lsn: int, refused: list[int], now: float) -> list[Turn[T]]:
        """Note that everything through a batch is on disk, but for those that it had no room for after all. Return the
        turns that are sure now."""
        group = self._group
        if group is None or lsn < group.lsn:
            return []
        self._group = None
        if group.lsn in refused:
            self._turns.extendleft(reversed(group.turns))
            if group.life is not None:
                self._lives.appendleft(group.life)
            self.is_full = True
            return []
        if group.life is not None:
            lane, life = group.life
            self.lanes[lane].handle_life_written(life, now)
        for lane, (first, frames) in group.messages.items():
            self._held[lane].add(first, frames)
            self.lanes[lane].handle_durable(first + len(frames) - 1)
        self.accepting_bytes -= sum(turn.size for turn in group.turns)
        return group.turns

    # The cell

    def handle_cell(self) -> None:
        """Note that a cell serves the bus, or another one."""
        for lane in self.lanes.values():
            lane.handle_cell()

    def handle_stored(self, ledger: Ledger, through: int) -> None:
        """Note that W keepers have a ledger on disk through a sequence."""
        lane = self.lane_of(ledger)
        if lane is not None:
            lane.handle_stored(ledger, through)
            self._release(lane)

    def handle_lost(self, ledger: Ledger) -> None:
        """Note that keepers may lack something of a ledger for ever, or take nothing more of it."""
        lane = self.lane_of(ledger)
        if lane is not None:
            lane.handle_lost(ledger)

    def handle_final(self, ledger: Ledger, through: int, now: float) -> None:
        """Note the final set of a ledger."""
        lane = self.lane_of(ledger)
        if lane is not None:
            lane.handle_final(ledger, through, now)
            self._release(lane)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        for lane in self.lanes.values():
            lane.handle_timeout(now)

    def lane_of(self, ledger: Ledger) -> OutboxLane | None:
        """Return the lane of a ledger of this outbox."""
        return self.lanes.get(ledger.lane) if ledger.producer_id == self.store.producer_id else None

    def _release(self, lane: OutboxLane) -> None:
        before = self._released[lane.lane]
        if lane.released > before:
            self.store.release(lane.lane, before + 1, lane.released)
            self._released[lane.lane] = lane.released

    # Output

    def poll_ask(self) -> AskFinal | None:
        """Return the next request to send."""
        return next((ask for lane in self.lanes.values() if (ask := lane.poll_ask()) is not None), None)

    def held(self, lane: int, number: int) -> bytes | None:
        """Return the next message of a lane, or None if it has to be read from the disk. Those before are forgotten."""
        for held in (self._held[lane], self._read[lane]):
            if held.has(number):
                return held.next
        return None

    def hold(self, lane: int, first: int, frames: list[bytes]) -> None:
        """Hold messages that were read from the disk."""
        self._read[lane] = HeldMessages()
        self._read[lane].add(first, frames)

    def poll_timeout(self) -> float:
        """Return the time at which to call `handle_timeout`."""
        return min(lane.poll_timeout() for lane in self.lanes.values())
