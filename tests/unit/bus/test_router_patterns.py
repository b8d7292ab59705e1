"""Tests of subscriptions to patterns of topics: what they get, and that hostile names cost little."""

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing import CONNECTION, SENDER, Bench, Subscriber, message

from fjm2.jms import Destination, Message, Queue, TemporaryTopic, Topic, TopicPattern
from fjm2.messages.destination import PatternTable, destination_from
from fjm2.messages.frame import Frame, FrameWriter
from fjm2.messages.header import DESTINATION_HASH, HEADER, HEADER_BYTES, Transaction

PRICES = TopicPattern("prices.>")


def made(name: str) -> Destination:
    """Return a topic of any name, as if it was received."""
    return destination_from(0, name.encode())


def test_a_pattern_gets_the_messages_of_all_topics_that_match() -> None:
    pattern, plain, other = Subscriber(PRICES), Subscriber(Topic("prices.eu")), Subscriber(Topic("orders"))
    bench = Bench(pattern, plain, other)
    for name in ("prices.eu", "prices.us.spot", "orders", "prices"):
        bench.take([message(name, Topic(name))])
    assert pattern.texts == ["prices.eu", "prices.us.spot"]
    assert (plain.texts, other.texts) == (["prices.eu"], ["orders"])
    assert bench.router.stats.deliveries == 4


def test_a_consumer_gets_a_message_once_however_often_its_pattern_matches() -> None:
    first, second = Subscriber(TopicPattern("*.*")), Subscriber(TopicPattern("*.*"))
    bench = Bench(first, second)
    bench.take([message("a", Topic("x.y"))])
    assert first.texts == second.texts == ["a"]


@pytest.mark.parametrize("kind", [Queue, TemporaryTopic])
def test_a_pattern_gets_nothing_of_queues_and_temporary_topics(kind: type[Topic]) -> None:
    pattern, other = Subscriber(TopicPattern(">")), Subscriber(kind("x"))
    bench = Bench(pattern, other)
    bench.take([message("a", kind("x"))])
    assert (pattern.texts, other.texts) == ([], ["a"])


def test_selectors_and_left_out_connections_hold_for_patterns() -> None:
    dear = Subscriber(PRICES, selector="price > 10 AND JMSDestination LIKE '%.eu'")
    foreign = Subscriber(PRICES, left_out=CONNECTION)
    bench = Bench(dear, foreign)
    eu, us = Topic("prices.eu"), Topic("prices.us")
    bench.take([message("a", eu, price=11), message("b", us, price=11), message("c", eu, price=9)])
    assert (dear.texts, foreign.texts) == (["a"], [])


def test_subscriptions_come_and_go() -> None:
    pattern, plain = Subscriber(PRICES), Subscriber(Topic("prices.eu"))
    bench = Bench(plain)
    bench.take([message("a", plain.destination)])
    bench.router.add(pattern)
    bench.take([message("b", plain.destination)])
    bench.router.remove(plain)
    bench.take([message("c", plain.destination)])
    bench.router.add(plain)
    bench.router.remove(pattern)
    bench.router.remove(pattern)
    bench.take([message("d", plain.destination)])
    assert (plain.texts, pattern.texts) == (["a", "b", "d"], ["b", "c"])
    assert bench.router.targets.destinations == {plain.destination}


def test_a_process_gets_its_own_messages_by_pattern() -> None:
    pattern = Subscriber(PRICES)
    bench = Bench(pattern)
    bench.router.publish(Topic("prices.eu"), message("a", Topic("prices.eu")))
    bench.router.publish(Topic("orders"), message("b", Topic("orders")))
    bench.router.publish(TemporaryTopic("prices.eu"), message("c", TemporaryTopic("prices.eu")))
    assert pattern.texts == ["a"]


def test_transactions_and_taps_work_with_patterns() -> None:
    pattern = Subscriber(PRICES)
    bench = Bench(pattern)
    seen: list[Frame] = []

    class Tap:
        is_full = False

        def take_run(self, _: int, frames: list[Frame]) -> None:
            seen.extend(frames)

    bench.router.add_tap(Tap())
    topics = [Topic("prices.eu"), Topic("orders"), Topic("prices.us")]
    for place, topic in enumerate(topics):
        assert pattern.texts == []
        bench.take([message(topic.name, topic, transaction=Transaction(1, place, 3))])
    assert pattern.texts == ["prices.eu", "prices.us"]
    assert len(seen) == 3


def test_gaps_are_flagged_for_patterns() -> None:
    pattern = Subscriber(PRICES)
    bench = Bench(pattern)
    bench.take([message("a", Topic("prices.eu"))])
    bench.router.note_gap(SENDER, 500)
    bench.take([message("b", Topic("prices.us"))])
    bench.take([message("c", Topic("prices.us"))])
    assert pattern.gaps == [False, True, False]


def test_losses_name_the_topics_that_matched() -> None:
    bench = Bench(Subscriber(PRICES), Subscriber(Topic("prices.eu")))
    eu, us, other = Topic("prices.eu"), Topic("prices.us"), Topic("orders")
    bench.take([message("a", topic) for topic in (eu, us, other)])
    found = [bench.router.targets.destinations_of(topic.frame_hash) for topic in (eu, us, other)]
    assert found == [(eu,), (us,), ()]


class Finds:
    """Counts how often patterns are matched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        find = PatternTable.find

        def counted(table: PatternTable[object], name: str) -> list[object]:
            self.count += 1
            return find(table, name)

        monkeypatch.setattr(PatternTable, "find", counted)


def test_patterns_are_matched_once_for_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    finds = Finds(monkeypatch)
    patterns = [Subscriber(TopicPattern(f"prices.{number}.*")) for number in range(1000)]
    bench = Bench(*patterns)
    for _ in range(50):
        bench.take([message("a", Topic(f"prices.{number}.spot")) for number in range(20)])
    assert finds.count == 20
    assert [len(one.received) for one in patterns[:21]] == [50] * 20 + [0]


def test_topics_in_use_are_remembered_beside_a_flood_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(pattern := Subscriber(PRICES))
    finds = Finds(monkeypatch)
    for number in range(10_000):
        bench.take([message("a", Topic(f"forged.{number}"))])
        if not number % 100:
            bench.take([message("b", Topic("prices.eu"))])
    assert finds.count == 10_001
    assert len(pattern.received) == 100


def test_forged_names_take_little_memory() -> None:
    bench = Bench(pattern := Subscriber(TopicPattern("none.*")))
    tracemalloc.start()
    for number in range(500):
        bench.take([message("", made(f"{number}." + "x" * 60_000))])
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not pattern.received
    assert size < 2 << 20


def test_names_that_are_not_utf8_are_counted() -> None:
    bench = Bench(pattern := Subscriber(TopicPattern(">")))
    head, body = message("a", Topic("prices"))
    broken = head[:HEADER_BYTES] + b"\xff" + head[HEADER_BYTES + 1 :]
    bench.take([(broken, body), (broken, body), message("b", Topic("prices"))])
    assert pattern.texts == ["b"]
    assert bench.router.stats.frames_malformed == 2


def test_the_frames_by_which_buses_refresh_streams_are_not_delivered() -> None:
    bench = Bench(pattern := Subscriber(TopicPattern(">")))
    bench.take([FrameWriter(0).write(Message(), Topic("FJM2.REFRESH"), 0, 0, 0)])
    assert not pattern.received


@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), forged=st.integers(0, 2**32 - 1))
def test_no_name_and_no_hash_breaks_a_router(name: str, forged: int) -> None:
    topic = made(name)
    everything, plain = Subscriber(TopicPattern(">")), Subscriber(topic)
    bench = Bench(everything, Subscriber(TopicPattern("*.*")), plain)
    head, body = message("a", topic)
    fields = list(HEADER.unpack_from(head))
    fields[DESTINATION_HASH] = forged
    bench.take([(HEADER.pack(*fields) + head[HEADER_BYTES:], body), (head, body)])
    is_own = re.split("[./]", name)[0] == "FJM2"
    assert len(everything.received) == (0 if is_own else 2)
    assert len(plain.received) == 2
