"""Tests of hostile frames: they must not cost the receiver more processor time than the sender."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing import TOPIC, Bench, Subscriber, message

from fjm2.bus.reports import BusReport
from fjm2.bus.transactions import Transactions
from fjm2.jms import Message, MessageFormatError, ObjectMessage, Queue, Topic, TopicPattern
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import Transaction
from fjm2.messages.object_codec import SAFE_CODEC

_NAMED = Topic("prices.eu"), Topic("prices/"), Topic("."), Queue("prices.eu")
_HASH_MODULUS = (1 << 61) - 1
PROMPTLY_S = 5.0
"""Limit of processor time, which does not depend on how busy the machine is."""


def test_a_flood_of_transactions_that_never_end_is_dropped_at_little_cost() -> None:
    reports: list[BusReport] = []
    bytes_max = 12 << 20
    transactions: Transactions[str] = Transactions(lambda _: None, reports.append, bytes_max)
    begin = time.process_time()
    for connection in range(25_000):
        transactions.add(connection, Transaction(1, 0, 2), None, 0, 5, 0.0)
        assert transactions.held_bytes <= bytes_max
    assert time.process_time() - begin < PROMPTLY_S
    assert len(transactions) + len(reports) == 25_000
    assert len(transactions) > 9_000


@pytest.mark.slow
def test_after_a_flood_of_transactions_others_are_delivered() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.router.transactions._bytes_max = 64 << 20  # so that the flood is larger
    for connection in range(60_000):
        transaction = Transaction(1, 0, 2)
        bench.take([message("", writer=FrameWriter(connection), transaction=transaction)])
    bench.take([message(f"{place}", transaction=Transaction(1, place, 2)) for place in range(2)])
    assert subscriber.texts == ["0", "1"]


@pytest.mark.slow
def test_deep_names_cost_little_beside_many_patterns() -> None:
    subscribers = [Subscriber(TopicPattern(f"prices.{number}.*.>")) for number in range(10_000)]
    bench = Bench(*subscribers)
    frames = [message("", Topic(f"prices.{number}." + "x/" * 30_000)) for number in range(100)]
    begin = time.process_time()
    for _ in range(30):
        bench.take(frames)
    assert time.process_time() - begin < PROMPTLY_S
    assert not any(one.received for one in subscribers)


@given(st.data())
def test_no_broken_frame_breaks_a_router_with_patterns(data: st.DataObject) -> None:
    async def take() -> None:  # a frame may say that it is delayed: a router has an event loop, and sets a timer there
        for _ in range(3):
            frame = bytearray(b"".join(message("a", data.draw(st.sampled_from(_NAMED)))))
            for _ in range(data.draw(st.integers(0, 6))):
                frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
            bench.take([bytes(frame)])
        bench.take([message("whole")])

    bench = Bench(*(Subscriber(TopicPattern(name), "JMSDestination LIKE '%'") for name in (">", "prices.*", "*.eu")))
    asyncio.run(take())


def test_integers_of_the_same_hash_are_refused_before_they_are_compared() -> None:
    few = {number * _HASH_MODULUS: None for number in range(1, 90)}
    assert SAFE_CODEC.decode(SAFE_CODEC.encode(few)) == few
    # The dict is joined from encoded pieces. Encoding it as a whole would take minutes, as would decoding it unchecked.
    pairs = [SAFE_CODEC.encode(number * _HASH_MODULUS)[1:] + b"\0" for number in range(1, 50_000)]
    hostile = bytes((0, 9)) + len(pairs).to_bytes(4, "big") + b"".join(pairs)
    begin = time.process_time()
    with pytest.raises(MessageFormatError, match="same hash"):
        SAFE_CODEC.decode(hostile)
    assert time.process_time() - begin < PROMPTLY_S


def test_dicts_of_many_keys_pass() -> None:
    value = {number: str(number) for number in range(-5_000, 5_000)} | {(number, "a"): None for number in range(5_000)}
    made: Message = ObjectMessage(value)
    bench = Bench(subscriber := Subscriber())
    bench.take([FrameWriter(1).write(made, TOPIC, 0, 4, 0)])
    assert SAFE_CODEC.decode(subscriber.received[0].body) == value
