"""Tests of `batches` of consumers."""

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from adapter import QUIET_S, WAIT_S, Api, eventually

from fjm2.errors import ConfigError
from fjm2.jms import (
    Byte,
    BytesMessage,
    IllegalStateError,
    Long,
    MapMessage,
    Message,
    ObjectMessage,
    SessionMode,
    TextMessage,
    Topic,
)

TOPIC, OTHER = Topic("fjm2.batches"), Topic("fjm2.batches.other")
COUNT = 3_000


async def ends(api: Api, mode: SessionMode = SessionMode.AUTO_ACKNOWLEDGE, **options: Any) -> tuple[Any, Any, Any]:
    """Return a context, and a consumer with its context on another node of the bus."""
    receiving = await api.context(mode, dscp=8)
    consumer = await receiving.create_consumer(TOPIC, **options)
    sending = await api.context()
    await consumer.ready()
    await sending.ready()
    return sending, consumer, receiving


async def gather(consumer: Any, count: int, **options: Any) -> list[Any]:
    """Return batches with `count` messages together."""
    batches = []
    async for batch in await consumer.batches(**options):
        batches.append(batch)
        count -= len(batch)
        if count <= 0:
            break
    assert not count
    return batches


def bodies_of(batches: list[Any]) -> list[bytes]:
    return [bytes(body) for batch in batches for body in batch.bodies()]


@pytest.mark.parametrize("size", [0, 1, 64, 1000, 3000])
async def test_a_batch_arrives_once_and_in_order(api: Api, size: int) -> None:
    sending, consumer, _ = await ends(api)
    bodies = [f"{place:06}".encode() * (1 + (size + place % (size // 10 + 1)) // 6) for place in range(COUNT)]
    await (await sending.create_producer()).send_many(TOPIC, bodies)
    assert bodies_of(await asyncio.wait_for(gather(consumer, COUNT), WAIT_S)) == bodies
    assert await consumer.receive(0) is None


async def test_columns_of_properties(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    columns: dict[str, Any] = {
        "f8": np.arange(COUNT) / 3,
        "f4": np.arange(COUNT, dtype=np.float32),
        "i8": np.arange(COUNT) << 40,
        "i4": np.arange(COUNT, dtype=np.int32)[::-1],
        "i2": (np.arange(COUNT) % 999).astype(">i2"),
        "i1": (np.arange(COUNT) % 100).astype(np.int8),
        "b1": np.arange(COUNT) % 3 == 0,
        "floats": [place / 7 for place in range(COUNT)],
        "ints": list(range(COUNT)),
        "bools": tuple(place % 2 == 0 for place in range(COUNT)),
    }
    texts = {"texts": [f"text {place}" for place in range(COUNT)], "mixed": [1, 1 << 40, None] * (COUNT // 3)}
    for many in (columns, {**columns, **texts}):
        await (await sending.create_producer()).send_many(TOPIC, [b"x"] * COUNT, {"all": "same", **many})
        batches = await gather(consumer, COUNT)
        for name, sent in many.items():
            found = np.concatenate([batch.column(name) for batch in batches])
            assert found.tolist() == list(sent if isinstance(sent, list | tuple) else sent.tolist()), name
            if name in columns:
                assert found.dtype.kind == np.asarray(sent).dtype.kind, name
        assert set(batches[0].column("all")) == {"same"}
        assert batches[0].column("none").tolist() == [None] * len(batches[0])
        assert set(batches[0].column("JMSPriority")) == {4}
        message = batches[0].messages()[1]
        assert message.get_object_property("i8") == 1 << 40
        assert type(message.get_object_property("i8")) is Long
        assert type(message.get_object_property("i1")) is Byte
        assert type(message.get_object_property("ints")) is int
        assert message.get_float_property("f4") == 1.0


async def test_columns_of_headers_that_are_large_numbers(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    producer = await sending.create_producer()
    before = int(time.time() * 1000)
    await producer.send(TOPIC, TextMessage("alone"))
    await producer.send_many(TOPIC, ["a", "b"] * 50, {"n": [1] * 100})
    for batch in await gather(consumer, 101, max_wait=0.5):
        times = batch.column("JMSTimestamp")
        assert times.dtype == np.int64
        assert times.tolist() == [message.timestamp for message in batch.messages()]
        assert all(before <= at <= time.time() * 1000 for at in times.tolist())
        assert batch.column("JMSPriority").dtype == np.int32


async def test_batches_of_other_bodies(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    bodies = ["text", b"bytes", {"k": 1}, None, [1, 2], TextMessage("message")]
    producer = await sending.create_producer()
    await producer.set_type("t")
    await producer.send_many(TOPIC, bodies, {"place": list(range(6))})
    (batch,) = await gather(consumer, 6, max_wait=0.5)
    messages = batch.messages()
    assert [type(one) for one in messages] == [
        TextMessage,
        BytesMessage,
        MapMessage,
        Message,
        ObjectMessage,
        TextMessage,
    ]
    assert [one.get_body(object) for one in messages] == ["text", b"bytes", {"k": 1}, None, [1, 2], "message"]
    assert [one.get_int_property("place") for one in messages] == batch.column("place").tolist() == list(range(6))
    assert {one.type for one in messages} == {"t"}
    assert bytes(batch.bodies()[0]) == b"text"
    assert repr(batch) == "<Batch of 6 messages>"


async def test_a_large_batch_is_sent_with_bounded_memory(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    bodies = [bytes(10_000)] * 2_000
    batches = asyncio.ensure_future(gather(consumer, 2_000))
    await (await sending.create_producer()).send_many(TOPIC, bodies)
    assert sum(map(len, await asyncio.wait_for(batches, WAIT_S))) == 2_000


async def test_persistent_batches_are_confirmed(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    await (await sending.create_producer()).send_many(TOPIC, [b"a"] * 100)
    await gather(consumer, 100)
    await eventually(lambda: sending.inner.statistics().messages_unconfirmed == 0)


async def test_selectors_and_several_consumers_get_what_they_want(api: Api) -> None:
    sending, consumer, receiving = await ends(api, selector="n > 997")
    beside = await receiving.create_consumer(TOPIC)
    pattern = await receiving.create_consumer(Topic("fjm2.batches"), no_local=True)
    await (await sending.create_producer()).send_many(TOPIC, [b"a"] * 1000, {"n": list(range(1000))})
    (batch,) = await gather(consumer, 2, max_wait=0.5)
    assert batch.column("n").tolist() == [998, 999]
    for every in (beside, pattern):
        found = await gather(every, 1000)
        assert np.concatenate([one.column("n") for one in found]).tolist() == list(range(1000))


async def test_expired_messages_are_in_no_batch(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    producer = await sending.create_producer()
    await receiving.stop()
    await producer.send_many(TOPIC, ["early"] * 20, time_to_live=30)
    await producer.send_many(TOPIC, ["late"] * 20)
    await eventually(lambda: consumer.inner.statistics().messages_received >= 20)
    await asyncio.sleep(2 * QUIET_S)
    await receiving.start()
    assert set(bodies_of(await gather(consumer, 20, max_wait=0.2))) == {b"late"}


async def test_higher_priorities_come_first(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    producer = await sending.create_producer()
    await receiving.stop()
    for priority in (4, 9, 0):
        await producer.send_many(TOPIC, [str(priority)] * 50, priority=priority)
    await eventually(lambda: consumer.inner.statistics().messages_waiting == 150)
    await receiving.start()
    (batch,) = await gather(consumer, 150)
    assert [bytes(body) for body in batch.bodies()] == [b"9"] * 50 + [b"4"] * 50 + [b"0"] * 50


async def test_batches_are_bounded_and_wait_no_longer_than_asked(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    producer = await sending.create_producer()
    batches = asyncio.ensure_future(gather(consumer, 95, max_messages=10))
    await producer.send_many(TOPIC, [b"a"] * 95)
    found = await asyncio.wait_for(batches, WAIT_S)
    assert max(map(len, found)) <= 10
    await producer.send_many(TOPIC, [b"a"] * 5)
    began = time.monotonic()
    waiting = asyncio.ensure_future(gather(consumer, 10, max_messages=10, max_wait=WAIT_S))
    await asyncio.sleep(QUIET_S)
    assert not waiting.done()
    await producer.send_many(TOPIC, [b"a"] * 5)
    assert [len(one) for one in await waiting] == [10]
    assert time.monotonic() - began < WAIT_S


@pytest.mark.parametrize("mode", [SessionMode.AUTO_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED])
async def test_a_stop_or_a_recover_takes_back_a_batch_that_waits_for_more(api: Api, mode: SessionMode) -> None:
    sending, consumer, receiving = await ends(api, mode)
    producer = await sending.create_producer()
    batches = await consumer.batches(max_messages=COUNT, max_wait=2 * QUIET_S)
    await producer.send_many(TOPIC, ["a"] * 20)
    first = await asyncio.wait_for(api.next(batches.inner), WAIT_S)
    assert bodies_of([first]) == [b"a"] * 20
    await producer.send_many(TOPIC, ["b"] * 20)
    waiting = asyncio.ensure_future(api.next(batches.inner))
    await eventually(lambda: consumer.inner.statistics().messages_received == 40)
    await asyncio.sleep(QUIET_S / 2)
    await receiving.stop()
    await asyncio.sleep(3 * QUIET_S)
    assert not waiting.done()
    is_again = mode is SessionMode.SESSION_TRANSACTED
    if is_again:
        await receiving.rollback()
    await receiving.start()
    found = await asyncio.wait_for(waiting, WAIT_S)
    assert bodies_of([found]) == [b"a"] * 20 * is_again + [b"b"] * 20
    assert [one.delivery_count for one in found.messages()] == [2] * 20 * is_again + [1] * 20


async def test_a_batch_is_acknowledged_when_the_next_is_asked_for(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    await (await sending.create_producer()).send_many(TOPIC, ["a", "b", "c"])
    await eventually(lambda: consumer.inner.statistics().messages_received == 3)
    batches = await consumer.batches(max_messages=2)
    first = await api.next(batches.inner)
    assert [bytes(one) for one in first.bodies()] == [b"a", b"b"]
    assert consumer.inner.statistics().messages_held == 3
    await receiving.recover()
    again = await api.next(batches.inner)
    assert [one.text for one in again.messages()] == ["a", "b"]
    assert [one.delivery_count for one in again.messages()] == [2, 2]
    last = await api.next(batches.inner)
    assert [one.text for one in last.messages()] == ["c"]
    assert consumer.inner.statistics().messages_held == 1
    assert await consumer.receive(0) is None
    assert consumer.inner.statistics().messages_held == 0


async def test_the_client_acknowledges_a_batch(api: Api) -> None:
    sending, consumer, receiving = await ends(api, SessionMode.CLIENT_ACKNOWLEDGE)
    await (await sending.create_producer()).send_many(TOPIC, ["a"] * 50)
    (batch,) = await gather(consumer, 50, max_wait=0.5)
    await receiving.recover()
    (batch,) = await gather(consumer, 50, max_wait=0.5)
    assert {one.delivery_count for one in batch.messages()} == {2}
    await api.invoke(batch.acknowledge)
    assert consumer.inner.statistics().messages_held == 0
    await receiving.recover()
    assert await consumer.receive(0) is None


async def test_a_full_consumer_of_batches_makes_senders_wait_and_loses_nothing(api: Api) -> None:
    sending, consumer, _ = await ends(api, messages_max=100)
    producer = await sending.create_producer()
    bodies = [str(place).encode() for place in range(COUNT)]
    sends = asyncio.ensure_future(producer.send_many(TOPIC, bodies))
    assert bodies_of(await asyncio.wait_for(gather(consumer, COUNT, max_messages=30), WAIT_S)) == bodies
    await sends


async def test_what_a_full_consumer_drops_leaves_a_gap(api: Api) -> None:
    sending, consumer, receiving = await ends(api, messages_max=100, overflow="drop_oldest")
    await receiving.stop()
    producer = await sending.create_producer()
    await producer.send_many(TOPIC, [b"a"] * 1000, {"n": list(range(1000))})
    await eventually(lambda: consumer.inner.statistics().messages_dropped == 900)
    await receiving.start()
    batches = await gather(consumer, 100)
    assert [n for one in batches for n in one.column("n").tolist()] == list(range(900, 1000))
    gaps = [gap for one in batches for gap in one.column("JMS_FJM2_Gap").tolist()]
    assert gaps == [True] + [None] * 99
    assert batches[0].messages()[0].get_boolean_property("JMS_FJM2_Gap")


async def test_other_ways_to_receive_follow_batches(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    producer = await sending.create_producer()
    await receiving.stop()
    await producer.send_many(TOPIC, [str(place) for place in range(300)])
    await eventually(lambda: consumer.inner.statistics().messages_waiting == 300)
    await receiving.start()
    assert len(await gather(consumer, 100, max_messages=100)) == 1
    assert (await consumer.receive(WAIT_S)).text == "100"
    heard: list[str] = []
    consumer.message_listener = lambda message: heard.append(message.text)
    await eventually(lambda: len(heard) == 199)
    assert heard == [str(place) for place in range(101, 300)]
    with pytest.raises(IllegalStateError, match="listener"):
        await gather(consumer, 1)
    consumer.message_listener = None
    await producer.send_many(TOPIC, ["again"] * 50)
    assert len(bodies_of(await gather(consumer, 50))) == 50


async def test_the_loop_ends_when_the_consumer_is_closed(api: Api) -> None:
    _, consumer, _ = await ends(api)
    waiting = asyncio.ensure_future(gather(consumer, 0))
    await asyncio.sleep(QUIET_S)
    await consumer.close()
    assert await asyncio.wait_for(waiting, WAIT_S) == []


async def test_temporary_queues_are_consumed_in_batches(api: Api) -> None:
    context = await api.context()
    queue = await context.create_temporary_queue()
    await (await context.create_producer()).send_many(queue.inner, ["a", "b", "c"])
    first, second = await context.create_consumer(queue), await context.create_consumer(queue)
    (batch,) = await gather(first, 2, max_messages=2)
    assert bodies_of([batch]) == [b"a", b"b"]
    await first.close()
    found = await gather(second, 3)
    assert sorted(bodies_of(found)) == [b"a", b"b", b"c"]


async def test_batches_and_single_sends_keep_their_order(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    producer = await sending.create_producer()
    expected: list[bytes] = []
    for place in range(40):
        bodies = [b"%d.%d" % (place, number) for number in range(place % 5 * 50)]
        await producer.send_many(TOPIC, bodies)
        await producer.send(TOPIC, b"%d" % place)
        expected += [*bodies, b"%d" % place]
    assert bodies_of(await asyncio.wait_for(gather(consumer, len(expected), max_messages=64), WAIT_S)) == expected


async def test_batches_of_several_producers_each_keep_their_order(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    second = await (await api.context()).create_producer()
    first = await sending.create_producer()

    async def send_all(producer: Any, name: bytes) -> None:
        for start in range(0, COUNT, COUNT // 3):
            await producer.send_many(TOPIC, [name + b"%d" % number for number in range(start, start + COUNT // 3)])

    batches = asyncio.ensure_future(gather(consumer, 2 * COUNT))
    await asyncio.gather(send_all(first, b"a"), send_all(second, b"b"))
    found = bodies_of(await asyncio.wait_for(batches, WAIT_S))
    for name in (b"a", b"b"):
        assert [one for one in found if one[:1] == name] == [name + b"%d" % number for number in range(COUNT)]


async def test_a_rollback_delivers_the_batches_of_a_transaction_again(api: Api) -> None:
    sending, consumer, receiving = await ends(api, SessionMode.SESSION_TRANSACTED)
    bodies = [b"%d" % number for number in range(500)]
    await (await sending.create_producer()).send_many(TOPIC, bodies)
    assert bodies_of(await gather(consumer, 500, max_messages=200)) == bodies
    await receiving.rollback()
    batches = await gather(consumer, 500)
    assert bodies_of(batches) == bodies
    assert {count for batch in batches for count in batch.column("JMSXDeliveryCount").tolist()} == {2}
    await receiving.commit()
    assert consumer.inner.statistics().messages_held == 0
    await receiving.rollback()
    assert await consumer.receive(0) is None


async def test_a_batch_can_be_read_after_its_consumer_was_closed(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    producer = await sending.create_producer()
    await producer.send_many(TOPIC, ["a"] * 50, {"n": np.arange(50)})
    batches = await consumer.batches(max_messages=20)
    batch = await api.next(batches.inner)
    await consumer.close()
    assert await api.next(batches.inner) is None
    assert [one.text for one in batch.messages()] == ["a"] * 20
    assert batch.column("n").tolist() == list(range(20))
    await receiving.recover()
    with pytest.raises(IllegalStateError):
        await consumer.receive(0)


async def test_a_batch_does_not_wait_for_messages_that_find_no_room(api: Api) -> None:
    sending, consumer, _ = await ends(api, messages_max=50)
    bodies = [b"%06d" % number * 100 for number in range(COUNT)]
    sends = asyncio.ensure_future((await sending.create_producer()).send_many(TOPIC, bodies))
    batches = await consumer.batches(max_messages=COUNT, max_wait=10 * WAIT_S)
    batch = await asyncio.wait_for(api.next(batches.inner), WAIT_S)
    assert 50 <= len(batch) < COUNT
    rest = await asyncio.wait_for(gather(consumer, COUNT - len(batch)), WAIT_S)
    assert bodies_of([batch, *rest]) == bodies
    await sends


async def test_columns_tell_how_often_messages_were_delivered(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    await (await sending.create_producer()).send_many(TOPIC, ["a"] * 40)
    await eventually(lambda: consumer.inner.statistics().messages_received == 40)
    batches = await consumer.batches(max_messages=30)
    assert set((await api.next(batches.inner)).column("JMSXDeliveryCount")) == {1}
    await receiving.recover()
    batches = await consumer.batches()
    assert (await api.next(batches.inner)).column("JMSXDeliveryCount").tolist() == [2] * 30 + [1] * 10


async def test_wrong_bounds_of_batches_are_told(api: Api) -> None:
    context = await api.context()
    consumer = await context.create_consumer(TOPIC)
    for wrong in ({"max_messages": 0}, {"max_wait": -1}, {"max_wait": float("inf")}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            await consumer.batches(**wrong)
