"""Tests of the sorting of frames for the cell."""

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from fjm2.base.ledger import Ledger
from fjm2.bus.ledgers.destinations import REQUESTS
from fjm2.keeper.counts import KeeperCounts
from fjm2.keeper.decisions import entry_frame
from fjm2.keeper.intake import FrameIntake
from fjm2.messages.batches.frame_run import find_run
from fjm2.messages.destination import Destination, Queue, TemporaryQueue, Topic
from fjm2.messages.frame import FrameReader, FrameWriter
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.last_values.retained import retained_parts, retained_section
from fjm2.messages.ledgers.ledger_number import with_ledger_number

CELL_ID, PRODUCER, NODE = 99, 5, 1234
QUEUE, TOPIC = Queue("orders"), Topic("prices")


class Taken:
    """A cell that keeps what it gets."""

    cell_id = CELL_ID

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.noted: list[tuple[object, ...]] = []

    def receive_frames(
        self,
        ledger: Ledger,
        first: int,
        frames: Sequence[bytes],
        source: int,
        _now: float,
        *,
        is_fetched: bool = False,
        is_urgent: bool = False,
    ) -> bool:
        self.calls.append(("frames", ledger, first, list(frames), source, is_fetched, is_urgent))
        return True

    def receive_counted(self, ledger: Ledger, first: int, count: int, source: int, _now: float) -> bool:
        self.calls.append(("counted", ledger, first, count, source))
        return True

    def receive_entry(self, epoch: int, index: int, data: bytes, _now: float) -> None:
        self.calls.append(("entry", epoch, index, data))

    def receive_request(self, ledger: Ledger, sequence: int, body: bytes) -> None:
        self.noted.append(("request", ledger, sequence, body))

    def note_messages(self, frame_hash: int, ledger: Ledger, first: int, count: int) -> None:
        self.noted.append(("messages", frame_hash, ledger, first, count))


def frame(destination: Destination, sequence: int, body: bytes = b"body", priority: int = 4, epoch: int = 0) -> bytes:
    parts = FrameWriter(1).write_body(int(Kind.BYTES), b"", body, destination, PERSISTENT, priority, 1)
    return b"".join(with_ledger_number(parts, PRODUCER, epoch, sequence))


def taken(
    *frames: bytes, topics: Sequence[int] = (), is_fetched: bool = False, knows_table: bool = True
) -> tuple[Taken, KeeperCounts]:
    cell, counts = Taken(), KeeperCounts()
    intake = FrameIntake(cell, cell, counts, lambda: 1.0)
    intake.topics = lambda: np.array(topics, np.uint32)
    intake.knows_table = lambda: knows_table
    intake.take(NODE, FrameReader().feed(b"".join(frames), (0,)), is_fetched=is_fetched)
    return cell, counts


def test_consecutive_frames_are_passed_on_at_once() -> None:
    frames = [frame(QUEUE, sequence, b"x" * sequence) for sequence in range(1, 200)]
    cell, counts = taken(*frames)
    assert cell.calls == [("frames", Ledger(PRODUCER, 0, 0), 1, frames, NODE, False, False)]
    assert counts.frames_stored == 199


def test_ledgers_and_gaps_part_them() -> None:
    one, two, four, urgent, later = (
        frame(QUEUE, 1),
        frame(QUEUE, 2),
        frame(QUEUE, 4),
        frame(QUEUE, 5, priority=9),
        frame(QUEUE, 6, epoch=1),
    )
    cell, _ = taken(one, two, four, urgent, later)
    assert [call[1:4] for call in cell.calls] == [
        (Ledger(PRODUCER, 0, 0), 1, [one, two]),
        (Ledger(PRODUCER, 0, 0), 4, [four]),
        (Ledger(PRODUCER, 0, 2), 5, [urgent]),
        (Ledger(PRODUCER, 1, 0), 6, [later]),
    ]


def test_topics_are_counted_unless_the_table_names_them() -> None:
    frames = [frame(TOPIC, 1), frame(TOPIC, 2), frame(QUEUE, 3)]
    cell, counts = taken(*frames)
    ledger = Ledger(PRODUCER, 0, 0)
    assert cell.calls == [("counted", ledger, 1, 2, NODE), ("frames", ledger, 3, frames[2:], NODE, False, False)]
    assert (counts.frames_counted, counts.frames_stored) == (2, 1)
    cell, counts = taken(*frames, topics=[TOPIC.frame_hash])
    assert cell.calls == [("frames", ledger, 1, frames, NODE, False, False)]


def test_temporary_queues_are_counted() -> None:
    """Their messages go to one connection, and end with it."""
    cell, counts = taken(frame(TemporaryQueue("replies"), 1), frame(QUEUE, 2))
    assert [call[0] for call in cell.calls] == ["counted", "frames"]
    assert (counts.frames_counted, counts.frames_stored) == (1, 1)


def test_what_another_keeper_kept_is_kept() -> None:
    cell, _ = taken(frame(TOPIC, 1), is_fetched=True)
    assert cell.calls == [("frames", Ledger(PRODUCER, 0, 0), 1, [frame(TOPIC, 1)], NODE, True, False)]


def test_everything_is_kept_before_the_table_is_known() -> None:
    cell, _ = taken(frame(TOPIC, 1), knows_table=False)
    assert cell.calls == [("frames", Ledger(PRODUCER, 0, 0), 1, [frame(TOPIC, 1)], NODE, False, False)]


def test_requests_are_urgent() -> None:
    cell, _ = taken(frame(REQUESTS, 1))
    assert cell.calls[0][-1] is True


def test_the_service_gets_requests_one_by_one() -> None:
    cell, _ = taken(frame(REQUESTS, 1, b"one"), frame(REQUESTS, 2, b"two"), frame(QUEUE, 3))
    ledger = Ledger(PRODUCER, 0, 0)
    assert cell.noted == [("request", ledger, 1, b"one"), ("request", ledger, 2, b"two")]


@pytest.mark.parametrize("is_fetched", [False, True])
def test_the_service_is_told_of_messages_by_runs_of_a_topic(is_fetched: bool) -> None:
    other, third = Topic("others"), Topic("third")
    frames = [frame(TOPIC, 1), frame(TOPIC, 2), frame(other, 3), frame(QUEUE, 4), frame(third, 5), frame(TOPIC, 7)]
    cell, _ = taken(*frames, topics=[TOPIC.frame_hash, other.frame_hash], is_fetched=is_fetched)
    ledger = Ledger(PRODUCER, 0, 0)
    assert cell.noted == [
        ("messages", TOPIC.frame_hash, ledger, 1, 2),
        ("messages", other.frame_hash, ledger, 3, 1),
        ("messages", TOPIC.frame_hash, ledger, 7, 1),
    ]


def test_messages_of_two_writers_are_two_runs() -> None:
    cell, _ = taken(frame(TOPIC, 1), frame(TOPIC, 2, epoch=1), topics=[TOPIC.frame_hash])
    assert [call[2:] for call in cell.noted] == [(Ledger(PRODUCER, 0, 0), 1, 1), (Ledger(PRODUCER, 1, 0), 2, 1)]


def test_frames_without_a_number_are_none_of_the_cells() -> None:
    plain = FrameWriter(1).write_body(int(Kind.BYTES), b"", b"body", QUEUE, 0, 4, 1)
    cell, counts = taken(frame(QUEUE, 1), b"".join(plain), frame(QUEUE, 2))
    assert [call[2] for call in cell.calls] == [1, 2]
    assert counts == KeeperCounts(frames_stored=2)


@pytest.mark.parametrize("place", [-1, 60])
def test_a_broken_frame_is_dropped_and_counted(place: int) -> None:
    broken = bytearray(frame(QUEUE, 2))
    broken[place] ^= 1
    cell, counts = taken(frame(QUEUE, 1), bytes(broken), frame(QUEUE, 3))
    assert [call[2:4] for call in cell.calls] == [(1, [frame(QUEUE, 1)]), (3, [frame(QUEUE, 3)])]
    assert counts.frames_broken == 1


def test_decisions_are_passed_on_one_by_one_if_they_are_of_the_cell() -> None:
    writer = FrameWriter(1)
    entries = [b"".join(entry_frame(writer, CELL_ID, 3, index, b"%d" % index)) for index in (7, 8)]
    foreign = b"".join(entry_frame(writer, CELL_ID + 1, 3, 9, b"9"))
    cell, counts = taken(*entries, foreign)
    assert cell.calls == [("entry", 3, 7, b"7"), ("entry", 3, 8, b"8")]
    assert counts.decisions_foreign == 1


def by_frame(cell: Taken) -> list[tuple[object, ...]]:
    """Return what a cell got and was told, a tuple for each frame."""
    found: list[tuple[object, ...]] = []
    for kind, *rest in cell.calls + cell.noted:
        match kind, rest:
            case "frames", [ledger, int(first), list(frames), *more]:
                found += [(kind, ledger, first + index, each, *more) for index, each in enumerate(frames)]
            case "counted", [ledger, int(first), int(count), source]:
                found += [(kind, ledger, first + index, source) for index in range(count)]
            case "messages", [frame_hash, ledger, int(first), int(count)]:
                found += [(kind, frame_hash, ledger, first + index) for index in range(count)]
            case _:
                found.append((kind, *rest))
    return sorted(found, key=repr)


@pytest.mark.parametrize("is_fetched", [False, True])
def test_frames_in_one_run_are_sorted_as_each_alone_is(is_fetched: bool) -> None:
    """Runs of frames that are alike, and those in which one thing changes, take different ways."""
    random = Random(7)
    others = [TOPIC, QUEUE, Topic("others"), REQUESTS, TemporaryQueue("replies")]
    for _ in range(300):
        sequence, count = random.randrange(1, 5), random.randrange(1, 8)
        alike = {"destination": random.choice(others), "priority": random.choice([4, 9]), "epoch": 0}
        changed = random.choice([{}, {}, {"destination": TOPIC}, {"priority": 5}, {"epoch": 1}])
        frames = []
        for index in range(count):
            options = alike | (changed if index == count // 2 else {})
            frames.append(frame(sequence=sequence, **options))  # type: ignore[arg-type]
            sequence += random.choice([1, 1, 1, 1, 2])
        if random.random() < 0.1:
            frames[-1] = frames[-1][:-1] + b"?"  # its checksum is wrong
        topics = random.choice([[], [TOPIC.frame_hash], [TOPIC.frame_hash, Topic("others").frame_hash]])
        knows_table = random.random() < 0.9
        whole, counts = taken(*frames, topics=topics, is_fetched=is_fetched, knows_table=knows_table)
        parts = [taken(each, topics=topics, is_fetched=is_fetched, knows_table=knows_table) for each in frames]
        expected = [call for cell, _ in parts for call in by_frame(cell)]
        assert by_frame(whole) == sorted(expected, key=repr)
        for name in ("frames_stored", "frames_counted", "frames_broken"):
            assert getattr(counts, name) == sum(getattr(each, name) for _, each in parts)


def test_gathered_frames_of_a_sender_are_taken_at_once() -> None:
    cell, counts = Taken(), KeeperCounts()
    intake = FrameIntake(cell, cell, counts, lambda: 1.0)
    frames = [frame(QUEUE, sequence, b"x" * sequence) for sequence in range(1, 90)]
    reader, data = FrameReader(), b"".join(frames)
    plain = b"".join(FrameWriter(1).write_body(int(Kind.BYTES), b"", b"plain", TOPIC, 0, 4, 1))
    for cut in range(0, len(data), 1000):
        assert intake.gather(NODE, reader.feed(data[cut : cut + 1000], (0,)))
        assert not intake.gather(NODE + 1, FrameReader().feed(plain, (0,)))
    assert not cell.calls
    assert intake.gathered_bytes >= len(data)
    intake.gather(NODE + 2, FrameReader().feed(frame(QUEUE, 1, epoch=7), (0,)))
    intake.take_gathered()
    assert cell.calls == [
        ("frames", Ledger(PRODUCER, 0, 0), 1, frames, NODE, False, False),
        ("frames", Ledger(PRODUCER, 7, 0), 1, [frame(QUEUE, 1, epoch=7)], NODE + 2, False, False),
    ]
    assert (intake.gathered_bytes, counts.frames_stored) == (0, 90)
    intake.take_gathered()
    assert len(cell.calls) == 2


def test_gathered_frames_count_with_all_that_they_keep_in_memory() -> None:
    cell = Taken()
    intake = FrameIntake(cell, cell, KeeperCounts(), lambda: 1.0)
    plain = b"".join(FrameWriter(1).write_body(int(Kind.BYTES), b"", bytes(50_000), TOPIC, 0, 4, 1))
    for sequence in range(1, 4):
        intake.gather(NODE, FrameReader().feed(plain + frame(QUEUE, sequence), (0,)))
    assert intake.gathered_bytes >= 150_000
    intake.take_gathered()
    assert cell.calls[0][3] == [frame(QUEUE, sequence) for sequence in range(1, 4)]


def test_gathered_decisions_are_known_as_such() -> None:
    cell = Taken()
    intake = FrameIntake(cell, cell, KeeperCounts(), lambda: 1.0)
    intake.gather(NODE, FrameReader().feed(frame(QUEUE, 1), (0,)))
    assert not intake.has_decisions
    entry = b"".join(entry_frame(FrameWriter(3), CELL_ID, 4, 5, b"decided"))
    intake.gather(NODE + 1, FrameReader().feed(entry, (0,)))
    assert intake.has_decisions
    intake.take_gathered()
    assert cell.calls[-1] == ("entry", 4, 5, b"decided")
    assert not intake.has_decisions


def value_frame(destination: Destination, sequence: int, flags: int = PERSISTENT) -> bytes:
    """Return a frame that says that it is a last value."""
    parts = FrameWriter(1).write_body(int(Kind.BYTES), b"", b"body", destination, flags, 4, 1)
    parts = retained_parts(parts, retained_section("", sequence))
    return b"".join(with_ledger_number(parts, PRODUCER, 0, sequence))


def taken_values(*frames: bytes, **how: Any) -> tuple[Taken, list[tuple[int, int]]]:
    """Return what the cell got, and the runs of last values as first sequences and counts."""
    cell, values = Taken(), []
    intake = FrameIntake(cell, cell, KeeperCounts(), lambda: 1.0)
    intake.note_values = lambda _, run: values.append((run.first, run.size))
    intake.take(NODE, FrameReader().feed(b"".join(frames), (0,)), **how)
    return cell, values


def test_last_values_are_kept_without_a_subscription() -> None:
    frames = [value_frame(TOPIC, 1), value_frame(TOPIC, 2)]
    cell, values = taken_values(*frames)
    assert cell.calls == [("frames", Ledger(PRODUCER, 0, 0), 1, frames, NODE, False, False)]
    assert values == [(1, 2)]


def test_last_values_between_other_messages_are_kept() -> None:
    frames = [frame(TOPIC, 1), value_frame(TOPIC, 2), value_frame(TOPIC, 3), frame(TOPIC, 4), frame(QUEUE, 5)]
    cell, values = taken_values(*frames)
    ledger = Ledger(PRODUCER, 0, 0)
    assert cell.calls == [
        ("counted", ledger, 1, 1, NODE),
        ("frames", ledger, 2, frames[1:3], NODE, False, False),
        ("counted", ledger, 4, 1, NODE),
        ("frames", ledger, 5, frames[4:], NODE, False, False),
    ]
    assert values == [(2, 2)]


@pytest.mark.parametrize("is_value_first", [True, False])
def test_messages_that_differ_in_the_mark_alone_are_no_run(is_value_first: bool) -> None:
    value, other = (1, 2) if is_value_first else (2, 1)
    frames = {value: value_frame(TOPIC, value), other: frame(TOPIC, other)}
    cell, values = taken_values(frames[1], frames[2])
    assert {(call[0], call[2]) for call in cell.calls} == {("frames", value), ("counted", other)}
    assert values == [(value, 1)]


def test_fetched_values_are_noted() -> None:
    _, values = taken_values(frame(QUEUE, 1), value_frame(TOPIC, 2), is_fetched=True)
    assert values == [(2, 1)]


@pytest.mark.parametrize("others", [(), (frame(QUEUE, 9),)], ids=["alone", "among others"])
@pytest.mark.parametrize(
    ("destination", "flags"), [(TemporaryQueue("replies"), PERSISTENT), (TOPIC, 0)], ids=["queue", "non-persistent"]
)
def test_only_persistent_messages_to_topics_are_values(
    destination: Destination, flags: int, others: tuple[bytes, ...]
) -> None:
    cell, values = taken_values(value_frame(destination, 1, flags), *others)
    assert cell.calls[0][0] == "counted"
    assert values == []


def test_frames_that_are_alike_are_gathered_as_those_one_by_one() -> None:
    random = Random(11)
    for _ in range(200):
        cell, expected, sequence = Taken(), list[tuple[object, ...]](), 1
        intake = FrameIntake(cell, cell, KeeperCounts(), lambda: 1.0)
        for _ in range(random.randrange(1, 5)):
            destination, body = random.choice([QUEUE, TOPIC]), bytes(random.randrange(40))
            frames = [frame(destination, sequence + place, body) for place in range(random.randrange(8, 30))]
            sequence += len(frames) + (random.random() < 0.3)
            if random.random() < 0.3:
                frames[-1] = frames[-1][:-1] + b"?"
            data = b"".join(frames)
            found = FrameReader().feed(data, (0,))
            run = find_run(data, 0, found[0][4], 1 << 20)
            assert run is not None
            before = intake.gathered_bytes
            assert intake.gather(NODE, random.choice([run, found]))
            assert intake.gathered_bytes == before + len(data)
            expected += [call for each in frames for call in by_frame(taken(each)[0])]
        intake.take_gathered()
        assert by_frame(cell) == sorted(expected, key=repr)


def test_alike_frames_without_numbers_are_not_gathered() -> None:
    cell = Taken()
    intake = FrameIntake(cell, cell, KeeperCounts(), lambda: 1.0)
    plain = b"".join(FrameWriter(1).write_body(int(Kind.BYTES), b"", b"body", TOPIC, 0, 4, 1)) * 20
    run = find_run(plain, 0, FrameReader().feed(plain, (0,))[0][4], 1 << 20)
    assert run is not None
    assert not intake.gather(NODE, run)
    assert intake.gathered_bytes == 0


def test_a_frame_that_is_gathered_alone_is_sorted_as_one_that_is_taken() -> None:
    """A lone frame is read without arrays, unless it is a last value or delayed."""
    random = Random(3)
    writer = FrameWriter(1)
    to = [TOPIC, QUEUE, Topic("others"), REQUESTS, TemporaryQueue("replies")]
    ways: set[str] = set()
    for number in range(1, 400):
        one = frame(random.choice(to), number, b"x" * random.randrange(3000), random.randrange(10), random.randrange(3))
        match random.randrange(8):
            case 0:
                place = random.randrange(len(one) - 40, len(one))
                one = one[:place] + bytes([one[place] ^ 1]) + one[place + 1 :]
            case 1:
                cell_id = CELL_ID + random.randrange(2)
                one = b"".join(entry_frame(writer, cell_id, 3, number, b"%d" % number))
        topics = random.choice([[], [TOPIC.frame_hash]])
        knows_table = random.random() < 0.8
        cell, counts = Taken(), KeeperCounts()
        intake = FrameIntake(cell, cell, counts, lambda: 1.0)
        intake.topics = lambda topics=topics: np.array(topics, np.uint32)  # type: ignore[misc]
        intake.knows_table = lambda knows_table=knows_table: knows_table  # type: ignore[misc]
        if intake.gather(NODE, FrameReader().feed(b"?" * 5 + one + one, (5,))[:1]):
            intake.take_gathered()
        expected, expected_counts = taken(one, topics=topics, knows_table=knows_table)
        assert (cell.calls, cell.noted, counts) == (expected.calls, expected.noted, expected_counts)
        ways.update(str(call[0]) for call in (*cell.calls, *cell.noted))
        ways.update(["broken"] * counts.frames_broken + ["foreign"] * counts.decisions_foreign)
    assert ways == {"frames", "counted", "entry", "request", "messages", "broken", "foreign"}


@pytest.mark.parametrize("one", [value_frame(TOPIC, 7), value_frame(QUEUE, 7), value_frame(TOPIC, 7, 0)])
def test_a_last_value_that_is_gathered_alone_is_noted(one: bytes) -> None:
    cell, values = Taken(), []
    intake = FrameIntake(cell, cell, KeeperCounts(), lambda: 1.0)
    intake.note_values = lambda _, run: values.append((run.first, run.size))
    intake.gather(NODE, FrameReader().feed(frame(TOPIC, 6) + one, (0,))[1:])
    intake.take_gathered()
    expected, expected_values = taken_values(one)
    assert (cell.calls, values) == (expected.calls, expected_values)
