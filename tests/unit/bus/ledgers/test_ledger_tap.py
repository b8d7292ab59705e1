"""Tests of the tap that hears numbered frames for durable consumers."""

from random import Random

import pytest

from fjm2.base.ledger import Ledger
from fjm2.bus.ledgers.destinations import DECISIONS, REQUESTS
from fjm2.bus.ledgers.ledger_tap import LedgerTap
from fjm2.messages.batches.frame_run import find_run
from fjm2.messages.destination import Destination, Topic
from fjm2.messages.frame import Frame, FrameReader, FrameWriter
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.messages.ledgers.ledger_number import with_ledger_number

PRODUCER = 5
PRICES, NEWS = Topic("prices"), Topic("news")
LEDGER = Ledger(PRODUCER, 0, 0)


class Heard:
    """A hearer that keeps what it gets."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def receive_frames(self, frame_hash: int, ledger: Ledger, first: int, frames: list[Frame]) -> None:
        self.calls.append((frame_hash, ledger, first, [buffer[start:end] for buffer, start, _, end, _ in frames]))

    def receive_others(self, ledger: Ledger, first: int, count: int) -> None:
        self.calls.append(("others", ledger, first, count))

    def receive_entry(self, ledger: Ledger, index: int, data: bytes) -> None:
        self.calls.append(("entry", ledger, index, data))


def frame(destination: Destination, sequence: int, body: bytes = b"body", priority: int = 4, epoch: int = 0) -> bytes:
    parts = FrameWriter(1).write_body(int(Kind.BYTES), b"", body, destination, PERSISTENT, priority, 1)
    return b"".join(with_ledger_number(parts, PRODUCER, epoch, sequence))


def heard(*frames: bytes, wanted: tuple[Destination, ...] = (PRICES,)) -> tuple[list[tuple[object, ...]], LedgerTap]:
    hearer = Heard()
    tap = LedgerTap(hearer, lambda: None)
    tap.want(one.frame_hash for one in wanted)
    tap.take_run(77, FrameReader().feed(b"".join(frames), (0,)))
    tap.take_gathered()
    return hearer.calls, tap


def test_consecutive_frames_are_passed_on_at_once() -> None:
    frames = [frame(PRICES, sequence, b"x" * sequence) for sequence in range(1, 200)]
    assert heard(*frames)[0] == [(PRICES.frame_hash, LEDGER, 1, frames)]


def test_of_other_destinations_only_the_numbers_are_passed_on() -> None:
    frames = [frame(PRICES, 1), frame(NEWS, 2), frame(REQUESTS, 3), frame(PRICES, 4)]
    assert heard(*frames)[0] == [
        (PRICES.frame_hash, LEDGER, 1, frames[:1]),
        ("others", LEDGER, 2, 2),
        (PRICES.frame_hash, LEDGER, 4, frames[3:]),
    ]
    assert [call[0] for call in heard(*frames, wanted=(PRICES, NEWS))[0]] == [
        PRICES.frame_hash,
        NEWS.frame_hash,
        "others",
        PRICES.frame_hash,
    ]
    assert heard(*frames, wanted=())[0] == [("others", LEDGER, 1, 4)]


def test_ledgers_and_gaps_part_runs() -> None:
    frames = [frame(PRICES, 1), frame(PRICES, 3), frame(PRICES, 4, priority=9), frame(PRICES, 5, epoch=1)]
    assert [call[1:3] for call in heard(*frames)[0]] == [
        (LEDGER, 1),
        (LEDGER, 3),
        (Ledger(PRODUCER, 0, 2), 4),
        (Ledger(PRODUCER, 1, 0), 5),
    ]


def test_decisions_are_passed_on_one_by_one() -> None:
    frames = [frame(DECISIONS, 7, b"7", epoch=3), frame(DECISIONS, 8, b"8", epoch=3)]
    ledger = Ledger(PRODUCER, 3, 0)
    assert heard(*frames)[0] == [("entry", ledger, 7, b"7"), ("entry", ledger, 8, b"8")]


def test_frames_without_a_number_are_for_nobody() -> None:
    plain = b"".join(FrameWriter(1).write_body(int(Kind.BYTES), b"", b"body", PRICES, 0, 4, 1))
    calls, tap = heard(frame(PRICES, 1), plain, frame(PRICES, 2))
    assert [call[2] for call in calls] == [1, 2]
    assert tap.frames_broken == 0


@pytest.mark.parametrize("place", [-1, 60])
def test_a_broken_frame_is_dropped_and_counted(place: int) -> None:
    broken = bytearray(frame(PRICES, 2))
    broken[place] ^= 1
    calls, tap = heard(frame(PRICES, 1), bytes(broken), frame(PRICES, 3))
    assert [call[2:] for call in calls] == [(1, [frame(PRICES, 1)]), (3, [frame(PRICES, 3)])]
    assert tap.frames_broken == 1


def by_frame(calls: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Return what a hearer got, a tuple for each frame."""
    found: list[tuple[object, ...]] = []
    for call in calls:
        match call:
            case [kind, ledger, int(first), list(frames)]:
                found += [(kind, ledger, first + index, each) for index, each in enumerate(frames)]
            case ["others", ledger, int(first), int(count)]:
                found += [("others", ledger, first + index) for index in range(count)]
            case _:
                found.append(call)
    return found


def test_frames_in_one_run_are_passed_on_as_each_alone_is() -> None:
    """Runs of frames that are alike, and those in which one thing changes, take different ways."""
    random = Random(7)
    for _ in range(300):
        sequence, count = random.randrange(1, 5), random.randrange(1, 8)
        alike = {"destination": random.choice([PRICES, NEWS, DECISIONS]), "priority": random.choice([4, 9]), "epoch": 0}
        changed = random.choice([{}, {}, {"destination": PRICES}, {"priority": 5}, {"epoch": 1}])
        frames = []
        for index in range(count):
            options = alike | (changed if index == count // 2 else {})
            frames.append(frame(sequence=sequence, **options))  # type: ignore[arg-type]
            sequence += random.choice([1, 1, 1, 1, 2])
        if random.random() < 0.1:
            frames[-1] = frames[-1][:-1] + b"?"  # its checksum is wrong
        calls, tap = heard(*frames)
        parts = [heard(each) for each in frames]
        assert by_frame(calls) == [call for each, _ in parts for call in by_frame(each)]
        assert tap.frames_broken == sum(each.frames_broken for _, each in parts)


def test_runs_wait_until_they_are_taken_together() -> None:
    hearer, gathered = Heard(), []
    tap = LedgerTap(hearer, lambda: gathered.append(len(hearer.calls)))
    tap.want([PRICES.frame_hash])
    frames = [frame(PRICES, sequence, b"x" * sequence) for sequence in range(1, 90)]
    data, reader = b"".join(frames), FrameReader()
    for _ in range(2):
        for cut in range(0, len(data), 1000):
            tap.take_run(77, reader.feed(data[cut : cut + 1000], (0,)))
        tap.take_gathered()
        tap.take_gathered()
    assert hearer.calls == 2 * [(PRICES.frame_hash, LEDGER, 1, frames)]
    assert gathered == [0, 1], "the owner is told once each time"


def by_sequence(hearer: Heard) -> list[tuple[object, ...]]:
    """Return what a hearer got, a tuple for each sequence."""
    found: list[tuple[object, ...]] = []
    for kind, ledger, first, rest in hearer.calls:
        assert isinstance(first, int)
        each = [None] * rest if isinstance(rest, int) else list(rest)  # type: ignore[call-overload]
        found += [(kind, ledger, first + place, one) for place, one in enumerate(each)]
    return found


def test_alike_frames_are_passed_on_as_those_one_by_one() -> None:
    """Runs that are alike and frames one by one, of which some are broken or have no number, are gathered together."""
    random = Random(5)
    for _ in range(200):
        hearer, alone, sequence = Heard(), Heard(), 1
        tap, one_by_one = LedgerTap(hearer, lambda: None), LedgerTap(alone, lambda: None)
        for each in (tap, one_by_one):
            each.want([PRICES.frame_hash])
        for _ in range(random.randrange(1, 5)):
            destination, body = random.choice([PRICES, PRICES, NEWS]), bytes(random.randrange(40))
            frames = [frame(destination, sequence + place, body) for place in range(random.randrange(1, 30))]
            sequence += len(frames) + (random.random() < 0.3)
            if random.random() < 0.2:
                frames[-1] = frames[-1][:-1] + b"?"
            if random.random() < 0.2:
                parts = FrameWriter(1).write_body(int(Kind.BYTES), b"", body, destination, PERSISTENT, 4, 1)
                frames.insert(random.randrange(len(frames)), b"".join(parts))
            data = b"".join(frames)
            found = FrameReader().feed(data, (0,))
            for one in found:
                one_by_one.take([one])
            run = find_run(data, 0, found[0][4], 1 << 20)
            if run is not None:
                tap.take_run(77, run)
            if run is None or len(run) < len(found):
                tap.take_run(77, found[0 if run is None else len(run) :])
        tap.take_gathered()
        assert by_sequence(hearer) == by_sequence(alone)
        assert tap.frames_broken == one_by_one.frames_broken
