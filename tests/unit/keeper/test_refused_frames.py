"""Tests of frames for which a store has no room: they are held, and offered again in their order."""

from collections.abc import Sequence

import pytest

from fjm2.base.ledger import Ledger
from fjm2.keeper import intake as intake_module
from fjm2.keeper.counts import KeeperCounts
from fjm2.keeper.intake import FrameIntake
from fjm2.messages.destination import Destination, Queue, Topic
from fjm2.messages.frame import FrameReader, FrameWriter
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.ledgers.ledger_number import with_ledger_number

PRODUCER, NODE = 5, 1234
QUEUE, TOPIC = Queue("orders"), Topic("prices")


class SmallCell:
    """A cell with room for so many messages."""

    cell_id = 99

    def __init__(self, room: int) -> None:
        self.room = room
        self.has: list[int] = []
        """Sequences that it took, in their order."""
        self.noted: list[int] = []

    def receive_frames(
        self,
        _ledger: Ledger,
        first: int,
        frames: Sequence[bytes],
        _source: int,
        _now: float,
        **_: bool,
    ) -> bool:
        assert all(b"body" in bytes(each) for each in frames)
        return self._take(first, len(frames))

    def receive_counted(self, _ledger: Ledger, first: int, count: int, _source: int, _now: float) -> bool:
        return self._take(first, count)

    def _take(self, first: int, count: int) -> bool:
        new = [each for each in range(first, first + count) if each not in self.has]
        if len(new) > self.room:
            return False
        self.room -= len(new)
        self.has += new
        return True

    def receive_entry(self, _epoch: int, _index: int, _data: bytes, _now: float) -> None:
        raise AssertionError("there is no decision")

    def receive_request(self, _ledger: Ledger, _sequence: int, _body: bytes) -> None:
        raise AssertionError("there is no request")

    def note_messages(self, _frame_hash: int, _ledger: Ledger, first: int, count: int) -> None:
        self.noted += range(first, first + count)

    def note_delivery_times(self, _ledger: Ledger, _first: int, _times_ms: Sequence[int]) -> None:
        raise AssertionError("nothing is delayed")


class Intake:
    """An intake of a cell with little room."""

    def __init__(self, room: int) -> None:
        self.cell = SmallCell(room)
        self.ended: set[Ledger] = set()
        self.counts = KeeperCounts()
        self.intake = FrameIntake(
            self.cell, self.cell, self.counts, lambda: 1.0, is_ended=lambda ledger: ledger in self.ended
        )

    def hear(self, *sequences: int, destination: Destination = QUEUE, epoch: int = 0, is_fetched: bool = False) -> None:
        frames = b"".join(frame(each, destination, epoch) for each in sequences)
        self.intake.take(NODE, FrameReader().feed(frames, (0,)), is_fetched=is_fetched)

    def give(self, room: int) -> list[int]:
        """Make room. Return what the cell has then."""
        self.cell.room = room
        self.intake.take_refused()
        return self.cell.has


def frame(sequence: int, destination: Destination = QUEUE, epoch: int = 0) -> bytes:
    parts = FrameWriter(1).write_body(int(Kind.BYTES), b"", b"body", destination, PERSISTENT, 4, 1)
    return b"".join(with_ledger_number(parts, PRODUCER, epoch, sequence))


def test_frames_are_taken_when_there_is_room_again() -> None:
    intake = Intake(room=2)
    for sequence in range(1, 6):
        intake.hear(sequence)
    assert intake.cell.has == [1, 2]
    assert intake.give(room=2) == [1, 2, 3, 4]
    assert intake.intake.refused
    assert intake.give(room=9) == [1, 2, 3, 4, 5]
    assert not intake.intake.refused
    assert intake.counts.frames_stored == 5


def test_those_that_came_first_have_the_first_room() -> None:
    """A message behind a hole in its ledger waits for that, so that its room would be taken for nothing."""
    intake = Intake(room=0)
    intake.hear(1, 2, 3)
    intake.hear(4)
    assert intake.give(room=1) == []
    assert intake.give(room=3) == [1, 2, 3]
    assert intake.give(room=1) == [1, 2, 3, 4]


def test_frames_that_nobody_asked_to_keep_leave_no_hole_either() -> None:
    intake = Intake(room=0)
    intake.hear(1, destination=TOPIC)
    intake.hear(2)
    assert intake.give(room=9) == [1, 2]


def test_frames_of_other_keepers_are_not_held() -> None:
    """They are fetched again."""
    intake = Intake(room=0)
    intake.hear(1, is_fetched=True)
    assert not intake.intake.refused


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest frames are held, unless nothing is taken of their ledger any more."""
    monkeypatch.setattr(intake_module, "REFUSED_BYTES_MAX", 3 * (len(frame(1)) + intake_module.RUN_BYTES))
    intake = Intake(room=0)
    for sequence in range(1, 6):
        intake.hear(sequence)
    intake.ended.add(Ledger(PRODUCER, 1, 0))
    assert intake.give(room=9) == [1, 2, 3]
    intake.cell.room = 0
    for sequence in range(11, 14):
        intake.hear(sequence, epoch=1)
    intake.hear(21, 22, epoch=2)
    assert intake.give(room=9) == [1, 2, 3, 21, 22]
