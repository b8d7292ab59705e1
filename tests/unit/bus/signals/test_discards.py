"""Notices of lost messages: their form, which are sent, and which are reported."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from fjm2.bus.discards.discards import Discards
from fjm2.bus.discards.notice import Notice, decode
from fjm2.bus.presence import Announcement, PresenceTable
from fjm2.bus.presence import decode as decode_announcement
from fjm2.bus.reports import BusReport, LostAfterConfirmation

LANE, SUBSCRIBER, STRANGER = 11, 22, 33


def test_a_notice_is_read_as_it_was_written() -> None:
    notice = Notice(7, LANE, 3, 1 << 40)
    assert notice.encode().hex() == "070000070000000b000000030000010000000000"
    assert decode(notice.encode()) == notice
    assert decode(notice.encode() + b"of a later version") == notice
    assert decode(Notice(7, LANE, 1 << 40, 1 << 80).encode()) == Notice(7, LANE, (1 << 32) - 1, (1 << 64) - 1)


def test_what_is_no_notice_is_refused() -> None:
    data = Notice(7, LANE).encode()
    assert not [length for length in range(len(data)) if decode(data[:length])]
    assert decode(Announcement(5).encode(1400)) is None
    assert decode_announcement(data) is None
    random = Random(1)
    for _ in range(1000):
        decode(random.randbytes(random.randrange(60)))


class Bench:
    """Discards of a bus with one lane, and what they send and report."""

    def __init__(self) -> None:
        self.sent: list[Notice] = []
        self.reports: list[BusReport] = []
        self.lane: Any = SimpleNamespace(number=0, node_id=LANE, confirmed_upto={}, wants_all=True, topics=set())
        session = SimpleNamespace(send_command=self._send)
        lanes: Any = SimpleNamespace(all=[self.lane], with_streams=[self.lane], is_open=True, session=session)
        presence = PresenceTable()
        presence.update(SUBSCRIBER, Announcement(1, client_id="till"), 0.0)
        self.name = presence.names.of(SUBSCRIBER)
        self.discards = Discards(lanes, presence, self.reports.append)

    def _send(self, content: bytes) -> None:
        notice = decode(content)
        assert notice is not None
        self.sent.append(notice)


@pytest.fixture
def bench() -> Bench:
    async def make() -> Bench:
        return Bench()

    return asyncio.run(make())


def test_losses_are_told_at_once_then_together_and_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(bench.discards, "_loop", SimpleNamespace(time=lambda: now))
    bench.discards.note(7, 1, 10)
    assert bench.sent == [Notice(1, 7, 1, 10)]
    bench.discards.note(7, 2, 20)
    bench.discards.note(7, size=5)
    bench.discards.note(8)
    bench.discards.tell()
    assert bench.sent[1:] == [Notice(1, 7, 1, 10), Notice(2, 7, 2, 25), Notice(3, 8)]
    bench.discards.tell()
    assert bench.sent[4:] == [Notice(2, 7, 2, 25), Notice(3, 8)]
    bench.discards.tell()
    assert len(bench.sent) == 6


def test_notices_are_few_whatever_is_lost(bench: Bench) -> None:
    for sender in range(100, 10_000):
        bench.discards.note(sender, 1)
    bench.sent.clear()
    bench.discards.tell()
    assert len(bench.sent) <= 17
    for _ in range(30):
        bench.discards.tell()
    assert len({notice.sender_id for notice in bench.sent}) <= 257  # one was told at once


def test_a_loss_that_there_was_no_room_for_says_nothing_of_later_ones(bench: Bench) -> None:
    for sender in range(100, 1000):
        bench.discards.note(sender, 1)
    bench.discards.note_undelivered(7, 1)
    while bench.discards._waiting:
        bench.discards.tell()
    bench.discards.note(7, 1)
    bench.discards.tell()
    assert [notice.is_undelivered for notice in bench.sent if notice.sender_id == 7] == [False]


def test_what_we_lose_of_our_own_is_told_nobody(bench: Bench) -> None:
    bench.discards.note(LANE, 3)
    bench.discards.tell()
    assert bench.sent == []


def test_a_notice_is_reported_once_if_its_sender_has_confirmed(bench: Bench) -> None:
    hear = bench.discards.hear
    bench.lane.confirmed_upto[SUBSCRIBER] = 1
    assert hear(SUBSCRIBER, Notice(1, LANE, 5).encode())
    assert hear(SUBSCRIBER, Notice(1, LANE, 5).encode())
    assert hear(SUBSCRIBER, Notice(2, LANE, 0, 77).encode())
    assert hear(SUBSCRIBER, Notice(3, 4711, 5).encode())
    assert hear(STRANGER, Notice(1, LANE, 5).encode())
    assert not hear(SUBSCRIBER, b"\x02")
    assert bench.reports == [
        LostAfterConfirmation(SUBSCRIBER, 0, bench.name, 5, None),
        LostAfterConfirmation(SUBSCRIBER, 0, bench.name, None, 77),
    ]
    assert str(bench.reports[0]).startswith("'till' lost 5 messages that it may have confirmed before; see https://")
    assert str(bench.reports[1]).startswith("'till' lost 77 bytes that it may have confirmed before; see https://")


def test_a_notice_before_the_first_confirmation_is_reported_with_it(bench: Bench) -> None:
    """Otherwise a publisher whose first watermark is confirmed late would never hear of messages dropped before."""
    hear, confirm = bench.discards.hear, bench.discards.note_confirmed
    for notice in (Notice(1, LANE, 5, 50), Notice(1, LANE, 5, 50), Notice(2, LANE, 3)):
        assert hear(SUBSCRIBER, notice.encode())
        assert hear(STRANGER, notice.encode())
    confirm(bench.lane, {SUBSCRIBER + 1})
    assert bench.reports == []
    bench.lane.confirmed_upto |= {SUBSCRIBER: 1, STRANGER: 1}
    confirm(bench.lane, {SUBSCRIBER, STRANGER})
    confirm(bench.lane, {SUBSCRIBER})
    assert hear(SUBSCRIBER, Notice(2, LANE, 3).encode())
    assert bench.reports == [LostAfterConfirmation(SUBSCRIBER, 0, bench.name, 8, 50)]
