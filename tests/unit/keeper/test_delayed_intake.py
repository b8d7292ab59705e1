"""Tests of delayed messages on their way into ledgers: they have ledgers of their own, and keepers learn when they are
due."""

from collections.abc import Sequence

import numpy as np
import pytest

from fjm2.base.ledger import DELAYED_LANE, Ledger
from fjm2.bus.ledgers.ledger_gate import LedgerGate
from fjm2.bus.ledgers.ledger_room import LedgerRoom
from fjm2.bus.ledgers.ledger_tap import LedgerTap
from fjm2.keeper.counts import KeeperCounts
from fjm2.keeper.intake import FrameIntake
from fjm2.keeper.kept_frames import delivery_time
from fjm2.messages.destination import Topic
from fjm2.messages.frame import FrameReader, FrameWriter
from fjm2.messages.header import DELAYED, FILE, HEADER, IN_PARTS, PERSISTENT, Section, delay_section, make_section
from fjm2.messages.ledgers.ledger_number import with_ledger_number
from fjm2.messages.text_message import TextMessage

PRODUCER, NOW = 5, 1_000_000
PRICES = Topic("prices")
AT_ONCE = Ledger(PRODUCER, 0, 0)
LATER = Ledger(PRODUCER, 0, DELAYED_LANE)


def frame(delay: int = 0, priority: int = 4) -> tuple[bytes, bytes]:
    flags = PERSISTENT | (DELAYED if delay else 0)
    return FrameWriter(1).write(TextMessage("body"), PRICES, flags, priority, NOW, 0, delay)


def numbered(sequence: int, delay: int = 0, priority: int = 4) -> bytes:
    return b"".join(with_ledger_number(frame(delay, priority), PRODUCER, 0, sequence))


def part_of_file(sequence: int) -> bytes:
    head, body = frame()
    fields = list(HEADER.unpack_from(head))
    fields[1:3] = FILE, fields[2] | IN_PARTS
    return b"".join(with_ledger_number((HEADER.pack(*fields) + head[HEADER.size :], body), PRODUCER, 0, sequence))


class Noted:
    """A cell, or a consumer, that keeps what it gets."""

    cell_id = 99

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def receive_frames(self, *arguments: object, **_: object) -> bool:
        frames = next(each for each in arguments if isinstance(each, Sequence) and not isinstance(each, Ledger))
        ledger = next(each for each in arguments if isinstance(each, Ledger))
        self.calls.append(("frames", ledger, len(frames)))
        return True

    def receive_counted(self, *_: object) -> bool:
        return True

    def receive_entry(self, *_: object) -> None: ...
    def receive_request(self, *_: object) -> None: ...
    def receive_others(self, ledger: Ledger, first: int, count: int) -> None:
        self.calls.append(("others", ledger, first, count))

    def note_messages(self, _: int, ledger: Ledger, first: int, count: int) -> None:
        self.calls.append(("messages", ledger, first, count))

    def note_delivery_times(self, ledger: Ledger, first: int, times_ms: Sequence[int]) -> None:
        self.calls.append(("times", ledger, first, list(times_ms)))


def taken(*frames: bytes) -> list[tuple[object, ...]]:
    """Return what a keeper's cell is told."""
    cell = Noted()
    intake = FrameIntake(cell, cell, KeeperCounts(), lambda: 1.0)
    intake.topics = lambda: np.array([PRICES.frame_hash], np.uint32)
    intake.take(1, FrameReader().feed(b"".join(frames), (0,)))
    return cell.calls


def gathered(one: bytes) -> list[tuple[object, ...]]:
    """Return what a keeper's cell is told of a frame that comes alone."""
    cell = Noted()
    intake = FrameIntake(cell, cell, KeeperCounts(), lambda: 1.0)
    intake.topics = lambda: np.array([PRICES.frame_hash], np.uint32)
    intake.gather(1, FrameReader().feed(one, (0,)))
    intake.take_gathered()
    return cell.calls


def heard(*frames: bytes) -> list[tuple[object, ...]]:
    """Return what consumers hear."""
    hearer = Noted()
    tap = LedgerTap(hearer, lambda: None)
    tap.want([PRICES.frame_hash])
    tap.take(FrameReader().feed(b"".join(frames), (0,)))
    return hearer.calls


def test_a_keeper_learns_the_times_before_the_messages() -> None:
    assert taken(numbered(1, 100), numbered(2, 50)) == [
        ("frames", LATER, 2),
        ("times", LATER, 1, [NOW + 100, NOW + 50]),
        ("messages", LATER, 1, 2),
    ]


def test_delayed_messages_have_ledgers_of_their_own_in_each_lane() -> None:
    calls = taken(numbered(1), numbered(1, 100), numbered(2), numbered(1, 7, priority=9))
    assert [each for each in calls if each[0] == "times"] == [
        ("times", LATER, 1, [NOW + 100]),
        ("times", Ledger(PRODUCER, 0, 2 + DELAYED_LANE), 1, [NOW + 7]),
    ]
    assert [each[1:] for each in calls if each[0] == "messages"] == [
        (AT_ONCE, 1, 1),
        (LATER, 1, 1),
        (AT_ONCE, 2, 1),
        (Ledger(PRODUCER, 0, 2 + DELAYED_LANE), 1, 1),
    ]
    assert [call[1] for call in heard(numbered(1), numbered(1, 100))] == [AT_ONCE, LATER]


def test_a_frame_that_comes_alone_is_told_as_one_of_many() -> None:
    for one in (numbered(1), numbered(1, 100), numbered(1, 7, priority=9), part_of_file(1)):
        assert gathered(one) == taken(one)
    assert gathered(part_of_file(1))[0][1] == AT_ONCE


def test_parts_of_files_are_no_delayed_messages() -> None:
    """Both have the same flag. Consecutive numbers make no run of them."""
    frames = numbered(1, 100), part_of_file(2), numbered(3, 100)
    assert [call[1] for call in heard(*frames)] == [LATER, AT_ONCE, LATER]
    assert [call[1] for call in taken(*frames) if call[0] == "frames"] == [LATER, AT_ONCE, LATER]


def test_the_gate_and_the_tap_name_the_same_ledger() -> None:
    gate = LedgerGate(PRODUCER, 0, LedgerRoom(1 << 20))
    gate.is_stored = lambda _: False
    for delay, priority in ((0, 4), (5, 4), (5, 9), (0, 9), (5, 4)):
        found = gate.admit(PRICES, frame(delay, priority))
        assert found is not None
        lane = (0 if priority == 4 else 2) + (DELAYED_LANE if delay else 0)
        ((_, ledger, _),) = heard(b"".join(found[0]))
        assert ledger == Ledger(PRODUCER, 0, lane)
    assert [gate.newest(lane).sequence for lane in (0, 2, DELAYED_LANE, DELAYED_LANE + 2)] == [1, 1, 2, 1]


@pytest.mark.parametrize(
    "section", [make_section(Section.DELIVERY_DELAY, b"short"), b"\x05\xff\xff\xff\xff", delay_section(-(1 << 63))]
)
def test_what_cannot_be_read_is_due(section: bytes) -> None:
    """Its consumers drop it. Otherwise it would be kept for ever."""
    head, body = frame()
    fields = list(HEADER.unpack_from(head))
    fields[8] += len(section)
    fields[4] += len(section)
    data = HEADER.pack(*fields) + head[HEADER.size :] + section + body
    assert delivery_time(data) <= NOW
    assert delivery_time(None) == 0
