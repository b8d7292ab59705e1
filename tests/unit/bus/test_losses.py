"""Each kind of loss is listed in docs/bus.md, flagged behind the gap, and told with names, estimates and times."""

import ast
import asyncio
import gc
import re
import time
import weakref
from itertools import count
from pathlib import Path

import pytest
from routing import CONNECTION, OTHER, SENDER, STREAM, TOPIC, Bench, Subscriber, message

from fjm2.bus import errors, reports
from fjm2.bus.losses.kinds import Gap, Loss
from fjm2.bus.losses.notices import LossNotices
from fjm2.bus.presence import Announcement, Flag, PresenceTable
from fjm2.bus.reports import BusReport, BytesLost, MessagesUnreadable, SenderLost, StreamsMissed, TransactionDropped
from fjm2.jms import MessagesLostError, TextMessage, Topic
from fjm2.messages.frame import FrameWriter, Parts
from fjm2.messages.header import DELAYED, KIND, Transaction
from fjm2.norm.events import LossReason, ObjectLost, ObjectsMissed, SenderVanished, StreamGapOpened, StreamLost

ROOT = Path(__file__).parents[3]
GONE, SQUELCHED = LossReason.SENDER_GONE, LossReason.SQUELCHED
CLOCK = r"\d\d:\d\d:\d\d"


class Watched:
    """A router with one subscriber, and the notices of its losses."""

    def __init__(self, *subscribers: Subscriber) -> None:
        self.subscriber = Subscriber()
        self.bench = Bench(self.subscriber, *subscribers)
        self.router = self.bench.router
        self.presence = PresenceTable()
        self.reports: list[BusReport] = []
        self.notices = LossNotices(self.presence, self.reports.append)
        self.notices.router = self.router

    def name(self, node_id: int = SENDER, client_id: str | None = "desk-7") -> None:
        self.presence.names.note_host(node_id, "10.0.0.13")
        self.presence.update(node_id, Announcement(CONNECTION, (node_id, 0, 0), client_id), 0.0)

    @property
    def report(self) -> BusReport:
        (report,) = self.reports
        return report


# The list.


def test_the_docs_list_every_kind_of_loss() -> None:
    page = (ROOT / "docs" / "bus.md").read_text()
    section = page[page.index("## What can be lost") : page.index("## Closing")]
    rows = re.findall(r"^\| `(\w+)` \| .+ \| `(\w+)` \| (\w+) \|$", section, re.MULTILINE)
    assert rows == [(loss.word, loss.gap.word, loss.told_by) for loss in Loss]
    for gap in Gap:
        assert f"`{gap.word}`" in (ROOT / "docs" / "troubleshooting.md").read_text()


def test_every_kind_of_loss_happens_somewhere_and_somebody_tells_of_it() -> None:
    used: set[str] = set()
    for path in sorted((ROOT / "fjm2").rglob("*.py")):
        text = path.read_text()
        if path.name != "kinds.py" and "Loss." in text:
            nodes = ast.walk(ast.parse(text))
            used |= {
                node.attr
                for node in nodes
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Loss"
            }
    assert {loss.name for loss in Loss} <= used
    for loss in Loss:
        assert hasattr(reports, loss.told_by) or hasattr(errors, loss.told_by)


# Texts.


def test_lost_bytes_are_told_in_peoples_words() -> None:
    watched = Watched(Subscriber(Topic("news")))
    watched.name()
    frames = [message(f"{number:0950}") for number in range(10)]
    watched.bench.take(frames)
    watched.bench.take([message("x" * 950, Topic("elsewhere")), message("x" * 950, Topic("news"))])
    mean = sum(map(len, (part for frame in frames for part in frame))) / len(frames)
    start, size = round(12 * mean), round(1_200 * mean)
    before = time.time()
    watched.notices.note(StreamLost(SENDER, STREAM, start, start + size, SQUELCHED))
    report = watched.report
    assert isinstance(report, BytesLost)
    assert re.fullmatch(
        rf"about 1,\d\d\d messages of 'desk-7' at 10\.0\.0\.13 got lost (at|between) {CLOCK}( and {CLOCK})? "
        r"\(it sends to topic://prices\.eu and topic://news\): the sender no longer holds it; "
        r"see https://\S+/troubleshooting\.md#messages-are-lost",
        str(report),
    )
    error = report.error()
    assert isinstance(error, MessagesLostError)
    assert (error.client_ids, error.host, error.topics) == (("desk-7",), "10.0.0.13", (TOPIC, Topic("news")))
    assert error.messages is not None
    assert abs(error.messages - 1_200) < 30
    assert error.since is not None
    assert error.until is not None
    assert before - 5 < error.since <= before <= error.until <= time.time()
    assert (report.sender_id, report.start, report.end, report.lane) == (SENDER, start, start + size, 0)


def test_a_gap_is_told_when_it_opens_and_only_then() -> None:
    watched = Watched()
    lost: list[tuple[int, int, int]] = []
    watched.notices.on_lost = lambda *numbers: lost.append(numbers)
    frame = message("a")
    watched.bench.take([frame])
    place = sum(map(len, frame))
    watched.notices.note(StreamGapOpened(SENDER, STREAM, place, 700, SQUELCHED))
    report = watched.report
    assert isinstance(report, BytesLost)
    assert (report.start, report.end) == (place, place + 700)
    watched.notices.note(StreamLost(SENDER, STREAM, place, place + 500, SQUELCHED))
    assert watched.reports == [report]
    watched.bench.take([message("b"), message("c")])
    assert watched.subscriber.gaps == [False, True, False]
    assert lost == [(SENDER, 0, 700)]


def test_a_gap_that_grows_after_it_was_told_is_told_again() -> None:
    watched = Watched()
    watched.bench.take([message("a")])
    watched.notices.note(StreamGapOpened(SENDER, STREAM, 100, 500, SQUELCHED))
    watched.notices.note(StreamLost(SENDER, STREAM, 100, 900, SQUELCHED))
    watched.notices.note(StreamLost(SENDER, STREAM, 1_000, 1_200, SQUELCHED))
    told = [(report.start, report.end) for report in watched.reports if isinstance(report, BytesLost)]
    assert told == [(100, 600), (600, 900), (1_000, 1_200)]


def test_the_messages_of_each_part_of_a_gap_are_estimated() -> None:
    watched = Watched()
    frame = message("a")
    size = sum(map(len, frame))
    watched.bench.take([frame, frame])
    at = 2 * size
    watched.notices.note(StreamGapOpened(SENDER, STREAM, at, 20 * size, SQUELCHED))
    watched.notices.note(StreamLost(SENDER, STREAM, at, at + 50 * size, SQUELCHED))
    watched.bench.take_bytes(b"".join(frame), (0,), start=at + 50 * size)
    watched.notices.note(StreamLost(SENDER, STREAM, at + 51 * size, at + 61 * size, SQUELCHED))
    lost = [report.details.messages for report in watched.reports if isinstance(report, BytesLost)]
    assert lost == [20, 30, 10]


def test_the_time_span_begins_when_the_sender_was_last_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_700_000_000.0
    monkeypatch.setattr("fjm2.bus.router.time", lambda: now)
    watched = Watched()
    for second in range(30):
        now += 1
        if second < 10:
            watched.bench.take([message("a")])
        watched.router.check()
    watched.notices.note(StreamLost(SENDER, STREAM, 5_000, 9_000, SQUELCHED))
    report = watched.report
    assert isinstance(report, BytesLost)
    assert report.details.since == now - 21
    watched.bench.take_bytes(b"".join(message("b")), (0,), start=9_000)
    watched.notices.note(StreamLost(SENDER, STREAM, 9_500, 9_600, SQUELCHED))
    assert isinstance(watched.reports[1], BytesLost)
    assert watched.reports[1].details.since == now


def test_what_is_not_known_is_left_out() -> None:
    watched = Watched()
    watched.notices.note(StreamLost(SENDER, STREAM, 0, 0, SQUELCHED))
    assert str(watched.report).startswith(f"messages of node {SENDER:#010x} got lost")
    watched.notices.note(ObjectsMissed(OTHER, 7, 1))
    assert f"messages of node {OTHER:#010x} got lost" in str(watched.reports[1])
    assert "nothing of 1 stream could be read" in str(watched.reports[1])
    assert "it sends to" not in str(watched.reports[1])


def test_the_estimate_holds_for_gaps_in_a_row() -> None:
    """Nothing may arrive between gaps, and far more may be lost than was ever received."""
    watched = Watched()
    size = sum(map(len, message("x" * 900)))
    end, lost = 0, (5, 300, 40, 2_000, 1, 700)
    watched.bench.take([message("x" * 900)] * 10)
    end += 10 * size
    for count_lost in lost:
        if count_lost == 40:
            watched.notices.note(StreamGapOpened(SENDER, STREAM, end, 40 * size, SQUELCHED))
        watched.notices.note(StreamLost(SENDER, STREAM, end, end + count_lost * size, SQUELCHED))
        end += count_lost * size
    watched.bench.take_bytes(b"".join(message("x" * 900)), (0,), start=end)
    watched.notices.note(StreamLost(SENDER, STREAM, end + size, end + 21 * size, SQUELCHED))
    counts = [report.details.messages for report in watched.reports if isinstance(report, BytesLost)]
    assert counts == [*lost, 20]


def test_the_estimate_leaves_gaps_out() -> None:
    """The mean size of messages is that of messages received, however much was lost before."""
    watched = Watched()
    size = sum(map(len, message("x" * 900)))
    end = 0
    for expected in (1, 7, 5_000):
        watched.bench.take_bytes(b"".join(b"".join(message("x" * 900)) for _ in range(3)), (0,), start=end)
        end += 3 * size
        watched.notices.note(StreamLost(SENDER, STREAM, end, end + expected * size, SQUELCHED))
        end += expected * size
    counts = [report.details.messages for report in watched.reports if isinstance(report, BytesLost)]
    assert counts == [1, 7, 5_000]


# Losses that nobody was told of.


def test_a_whole_stream_that_is_given_up_is_told_and_flagged() -> None:
    watched = Watched()
    watched.notices.note(ObjectLost(SENDER, 9, (), LossReason.UNSUPPORTED))
    assert isinstance(watched.report, StreamsMissed)
    watched.bench.take([message("a"), message("b")])
    assert watched.subscriber.gaps == [True, False]


def test_bytes_lost_before_anything_was_read_are_flagged() -> None:
    watched = Watched()
    watched.notices.note(StreamLost(SENDER, STREAM, 0, 0, SQUELCHED))
    watched.bench.take([message("a"), message("b")])
    assert watched.subscriber.gaps == [True, False]


def test_a_sender_that_goes_before_anything_of_its_stream_was_read_is_told() -> None:
    watched = Watched()
    watched.notices.note(StreamLost(SENDER, STREAM, 0, 0, GONE))
    assert watched.reports == []
    watched.notices.note(SenderVanished(SENDER, GONE))
    assert isinstance(watched.report, SenderLost)
    watched.notices.note(SenderVanished(OTHER, GONE))
    assert len(watched.reports) == 1
    watched.bench.take([message("it is back")])
    assert watched.subscriber.gaps == [True]


@pytest.mark.parametrize("has_connection", [False, True])
def test_a_keeper_that_goes_has_lost_no_messages(has_connection: bool) -> None:
    watched = Watched()
    watched.presence.update(SENDER, Announcement(1, (SENDER, 0, 0), "keeper-1", flags=Flag.KEEPER), 0.0)
    if has_connection:
        watched.presence.update(SENDER, Announcement(2, (SENDER, 0, 0), "desk-7"), 0.0)
        watched.presence.update(SENDER, Announcement(1, (SENDER, 0, 0), "keeper-1", flags=Flag.KEEPER), 1.0)
    watched.presence.expire(1000.0)
    watched.notices.note(StreamLost(SENDER, STREAM, 0, 0, GONE))
    watched.notices.note(SenderVanished(SENDER, GONE))
    assert len(watched.reports) == has_connection


def unreadable() -> bytes:
    frame = bytearray(b"".join(message("?")))
    frame[KIND] = 99
    return bytes(frame)


def test_what_cannot_be_read_is_flagged_in_its_place_and_told_once_a_second() -> None:
    watched = Watched()
    watched.name()
    watched.bench.take([message("a"), unreadable(), message("b"), unreadable(), unreadable(), message("c")])
    assert watched.subscriber.texts == ["a", "b", "c"]
    assert watched.subscriber.gaps == [False, True, True]
    assert watched.router.stats.frames_received == 3
    for _ in range(2):
        watched.notices.tick()
    report = watched.report
    assert isinstance(report, MessagesUnreadable)
    assert report.count == 2
    for _ in range(20):
        watched.bench.take([unreadable()])
        watched.notices.tick()
    counts = [each.count for each in watched.reports if isinstance(each, MessagesUnreadable)]
    assert counts[0] == 2
    assert len(counts) == 3
    assert 2 + 20 - 10 <= sum(counts) <= 2 + 20
    assert str(report).startswith("messages of 'desk-7' at 10.0.0.13 were skipped at 2 places (it sends to")
    assert isinstance(report.error(), MessagesLostError)


def test_streams_of_other_programs_on_the_same_port_are_nobodys_loss() -> None:
    watched = Watched()
    for _ in range(30):
        watched.bench.take_bytes(b"GET / HTTP/1.1\r\n" * 10, (0,))
        watched.router.check()
        watched.notices.tick()
    assert watched.reports == []
    assert watched.router.table.drops


def test_taps_see_no_marks_of_what_was_skipped() -> None:
    watched = Watched()
    seen: list[int] = []

    class Tap:
        is_full = False

        def take_run(self, sender_id: int, frames: list[object]) -> None:
            assert sender_id == SENDER
            seen.append(len(frames))

    watched.router.add_tap(Tap())
    watched.bench.take([message("a"), unreadable(), message("b")])
    watched.bench.take([unreadable()])
    watched.bench.take([message("c")])
    assert seen == [2, 1]
    assert watched.subscriber.gaps == [False, True, True]


def test_incomplete_messages_that_take_too_much_memory_are_flagged_and_told() -> None:
    watched = Watched()
    watched.name()
    bench = Bench(watched.subscriber, held_bytes_max=1_000)
    watched.notices.router = bench.router
    bench.take_bytes(b"".join(message("x" * 2_000))[:-1], (0,))
    assert bench.router.stats.streams_cut == 1
    bench.take_bytes(b"x" + b"".join(message("next")), (1,))
    assert watched.subscriber.gaps == [True]
    watched.notices.tick()
    assert isinstance(watched.report, MessagesUnreadable)
    assert "bound on memory" in str(watched.report)


def test_a_stream_that_ends_in_the_middle_of_a_message_is_told() -> None:
    watched = Watched()
    watched.name()
    watched.bench.take_bytes(b"".join(message("x"))[:-1], (0,))
    watched.router.end(SENDER, STREAM)
    watched.notices.tick()
    assert isinstance(watched.report, MessagesUnreadable)


def test_a_dropped_transaction_is_flagged_and_names_its_sender() -> None:
    watched = Watched()
    watched.name()
    bench = Bench(watched.subscriber)
    bench.router.transactions._report = watched.notices.note_dropped
    watched.notices.router = bench.router
    lost: list[tuple[int, int, int]] = []
    watched.notices.on_lost = lambda *numbers: lost.append(numbers)
    bench.take([message("1.0", transaction=Transaction(1, 0, 3))])
    bench.take([message("1.1", priority=9, transaction=Transaction(1, 1, 3))], sender=OTHER)
    bench.now += 60.0
    bench.router.check()
    bench.take([message("a"), message("b")])
    assert watched.subscriber.gaps == [True, False]
    assert isinstance(watched.report, TransactionDropped)
    assert str(watched.report).startswith("transaction 1 of 'desk-7' at 10.0.0.13 was dropped with 2 of 3 messages: ")
    assert lost == [(SENDER, 2, 0), (OTHER, 0, 0)]


def test_a_subscription_that_has_ended_is_not_kept_by_a_sender_that_has_left() -> None:
    ended, other = Subscriber(), Subscriber(Topic("other"))
    bench = Bench(ended, other)
    bench.take([message("a")])
    bench.router.note_gap(SENDER, STREAM)
    bench.take([message("b")])
    assert ended.gaps == [False, True]
    bench.router.forget(SENDER)
    bench.router.remove(ended)
    is_kept = weakref.ref(ended)
    del ended
    gc.collect()
    assert is_kept() is None


def test_expired_and_unreadable_messages_are_missed_by_those_who_want_them() -> None:
    now_ms = round(time.time() * 1000)
    plain, dear, foreign = Subscriber(), Subscriber(selector="price > 10"), Subscriber(left_out=CONNECTION)
    bench = Bench(plain, dear, foreign)
    bench.take([message("cheap", expiration=now_ms - 1, price=1), message("dear", expiration=now_ms - 1, price=11)])
    assert plain.losses == [Loss.EXPIRED, Loss.EXPIRED]
    assert dear.losses == [Loss.EXPIRED]
    assert foreign.losses == []


# Connections that continue under another node id.


_numbers = count()


def frame_of(connection: int, text: str, priority: int = 4) -> list[Parts]:
    return [message(text, priority=priority, writer=FrameWriter(connection, next(_numbers)))]


def test_the_first_message_under_another_node_id_shows_the_gap() -> None:
    watched = Watched()
    for node_id in (10, 11, 12):
        watched.bench.take(frame_of(1, f"{node_id}"), sender=node_id)
        watched.bench.take(frame_of(1, f"{node_id} again"), sender=node_id)
        watched.notices.note(SenderVanished(node_id, GONE))
    assert watched.subscriber.gaps == [False, False, True, False, True, False]
    assert len(watched.reports) == 3


def test_only_the_lane_that_continues_shows_the_gap() -> None:
    watched = Watched()
    watched.bench.take(frame_of(1, "normal"), sender=10)
    watched.notices.note(SenderVanished(10, GONE))
    watched.bench.take(frame_of(1, "urgent", 9), sender=20)
    watched.bench.take(frame_of(2, "another connection"), sender=30)
    watched.bench.take(frame_of(1, "normal again"), sender=11)
    assert watched.subscriber.gaps == [False, False, False, True]


def test_a_sender_that_ended_its_stream_leaves_no_gap() -> None:
    watched = Watched()
    watched.bench.take(frame_of(1, "a"), sender=10)
    watched.router.end(10, STREAM)
    watched.notices.note(SenderVanished(10, GONE))
    watched.bench.take(frame_of(1, "b"), sender=11)
    assert watched.subscriber.gaps == [False, False]
    assert watched.reports == []


def test_the_gap_is_shown_even_if_nobody_heard_the_old_node_leave() -> None:
    watched = Watched()
    watched.bench.take(frame_of(1, "a"), sender=10)
    watched.bench.take(frame_of(1, "b"), sender=11)
    watched.notices.note(SenderVanished(10, GONE))
    watched.bench.take(frame_of(1, "c"), sender=11)
    assert watched.subscriber.gaps == [False, True, False]
    assert isinstance(watched.report, SenderLost)


def test_another_program_that_takes_the_node_id_shows_no_gap() -> None:
    watched = Watched()
    watched.bench.take(frame_of(1, "a"), sender=10)
    watched.notices.note(SenderVanished(10, LossReason.SENDER_RESTARTED))
    watched.bench.take(frame_of(2, "other"), sender=10)
    watched.bench.take(frame_of(1, "b"), sender=11)
    assert watched.subscriber.gaps == [False, False, True]


def test_marking_a_gap_takes_no_longer_with_many_subscriptions() -> None:
    """Anybody can make gaps in a stream of his own: each must cost little."""
    watched = Watched(*(Subscriber(Topic(f"t{number}")) for number in range(5_000)))
    watched.bench.take([message("a")])
    began = time.process_time()
    for _ in range(5_000):
        watched.router.note_gap(SENDER, STREAM)
    assert time.process_time() - began < 1.0
    watched.bench.take([message("b"), message("c")])
    assert watched.subscriber.gaps == [False, True, False]


def test_what_does_not_fit_is_missed_by_those_who_want_it() -> None:
    async def run() -> None:
        plain, dear = Subscriber(), Subscriber(selector="price > 10")
        bench = Bench(plain, dear)
        bench.router.targets.delayed._bytes_max = 1000
        bench.take([delayed("a", 11), delayed("b", 1), delayed("c", 11)])
        assert (plain.losses, dear.losses) == ([Loss.OVERFLOW, Loss.OVERFLOW], [Loss.OVERFLOW])
        bench.router.remove(plain)
        bench.router.remove(dear)
        assert not bench.router.targets.delayed

    asyncio.run(run())


def delayed(text: str, price: int) -> tuple[bytes, bytes]:
    """Return the frame of a message that is due in a minute."""
    message = TextMessage(text)
    message.set_int_property("price", price)
    return FrameWriter(CONNECTION).write(message, TOPIC, DELAYED, 4, round(time.time() * 1000), 0, 60_000)
