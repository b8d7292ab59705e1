"""Listeners get messages one at a time, also those that were received together: nothing else may be seen of that."""

import asyncio
from random import Random
from typing import Any

import pytest
from adapter import Api, eventually, listener
from test_jms_batches import COUNT, TOPIC, ends

from fjm2.jms import Message, SessionMode

RUN = 200
"""Messages that are received together, or nearly so."""


async def send_numbers(sending: Any, count: int = COUNT, first: int = 0) -> None:
    numbers = range(first, first + count)
    await (await sending.create_producer()).send_many(TOPIC, [str(number) for number in numbers])


async def test_failing_listeners_get_just_the_failed_message_again(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    random = Random(1)
    failing = {first + random.randrange(RUN) for first in range(0, COUNT, RUN)}
    heard: list[tuple[int, int]] = []

    async def take(message: Message) -> None:
        number = int(message.get_body(str) or "")
        heard.append((number, message.delivery_count))
        if number in failing and message.delivery_count == 1:
            raise ValueError(number)
        if number % 7 == 0:
            await asyncio.sleep(0)

    consumer.message_listener = listener(api, take)
    for first in range(0, COUNT, RUN):  # all messages that wait when one fails are delivered one by one
        await send_numbers(sending, RUN, first)
        await eventually(lambda first=first: len(heard) >= first + RUN + 1 + first // RUN)
    assert heard == [(number, time) for number in range(COUNT) for time in ((1, 2) if number in failing else (1,))]
    assert consumer.inner.statistics().messages_held <= 1  # the last one may be with the listener


async def test_recover_in_a_listener_redelivers_only_the_current_message(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    heard: list[str] = []

    async def take(message: Message) -> None:
        number = int(message.get_body(str) or "")
        heard.append(f"{number}{'+' if message.redelivered else ''}")
        if number % 100 == 3 and not message.redelivered:
            await receiving.recover()

    consumer.message_listener = listener(api, take)
    await send_numbers(sending)
    expected = [text for n in range(COUNT) for text in ((f"{n}", f"{n}+") if n % 100 == 3 else (f"{n}",))]
    await eventually(lambda: len(heard) >= len(expected))
    assert heard == expected


async def test_a_stopped_connection_delivers_nothing_and_goes_on_where_it_was(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    heard: list[int] = []
    consumer.message_listener = lambda message: heard.append(int(message.text))
    sent = asyncio.ensure_future(send_numbers(sending, 20 * RUN))
    for _ in range(10):
        await asyncio.sleep(0.002)
        await receiving.stop()
        count = len(heard)
        await asyncio.sleep(0.01)
        assert len(heard) == count
        await receiving.start()
    await sent
    await eventually(lambda: len(heard) == 20 * RUN)
    assert heard == list(range(20 * RUN))


@pytest.mark.parametrize("heard_max", [10, 70])
async def test_receives_take_over_from_a_listener_in_the_middle_of_a_run(api: Api, heard_max: int) -> None:
    sending, consumer, receiving = await ends(api)
    await send_numbers(sending, 1)  # messages are received together only from a node that is known
    assert (await consumer.receive(5)).text == "0"
    heard: list[int] = []

    def take(message: Any) -> None:
        heard.append(int(message.text))
        if len(heard) == heard_max:
            consumer.message_listener = None

    consumer.message_listener = take
    await send_numbers(sending, RUN)
    await eventually(lambda: len(heard) == heard_max)
    await receiving.stop()  # a listener in a thread gives back what it did not handle
    await receiving.start()
    rest = [int((await consumer.receive(5)).text) for _ in range(RUN - heard_max)]
    assert heard + rest == list(range(RUN))
    await eventually(lambda: not consumer.inner.statistics().messages_held)


async def test_nothing_is_heard_after_a_close_in_the_middle_of_a_run(api: Api) -> None:
    sending, consumer, _ = await ends(api)
    heard: list[str] = []

    async def take(message: Message) -> None:
        heard.append(message.get_body(str) or "")
        if len(heard) == 5:
            await consumer.close()

    consumer.message_listener = listener(api, take)
    await send_numbers(sending, RUN)
    await eventually(lambda: len(heard) >= 5)
    await asyncio.sleep(0.1)
    assert heard == [str(number) for number in range(5)]


async def test_a_slow_listener_with_little_room_loses_nothing(api: Api) -> None:
    sending, consumer, _ = await ends(api, messages_max=20)
    heard: list[int] = []

    async def take(message: Message) -> None:
        await asyncio.sleep(0.0005)
        heard.append(int(message.get_body(str) or ""))

    consumer.message_listener = listener(api, take)
    await send_numbers(sending, 5 * RUN)
    await eventually(lambda: len(heard) == 5 * RUN)
    assert heard == list(range(5 * RUN))


async def test_listeners_get_objects_and_higher_priorities_first(api: Api) -> None:
    sending, consumer, receiving = await ends(api)
    await receiving.stop()
    producer = await sending.create_producer()
    await producer.send_many(TOPIC, [[number] for number in range(RUN)])
    await producer.set_priority(6)
    await producer.send_many(TOPIC, [[-1 - number] for number in range(RUN)])
    await eventually(lambda: consumer.inner.statistics().messages_waiting == 2 * RUN)
    heard: list[int] = []
    consumer.message_listener = lambda message: heard.extend(message.get_body(list))
    await receiving.start()
    await eventually(lambda: len(heard) == 2 * RUN)
    assert heard == [*range(-1, -RUN - 1, -1), *range(RUN)]


async def test_listeners_that_acknowledge_get_messages_again_that_they_did_not(api: Api) -> None:
    sending, consumer, receiving = await ends(api, SessionMode.CLIENT_ACKNOWLEDGE)
    heard: list[str] = []

    async def take(message: Message) -> None:
        heard.append(message.get_body(str) or "")
        if len(heard) == 50:
            await api.acknowledge(message)
        if len(heard) == 60:
            await receiving.recover()

    consumer.message_listener = listener(api, take)
    await send_numbers(sending, RUN)
    await eventually(lambda: len(heard) == RUN + 10)
    assert heard == [str(number) for number in (*range(60), *range(50, RUN))]


@pytest.mark.parametrize("texts", [["one", "seven"], ["same"]])
async def test_listeners_get_properties_and_bodies_of_any_length(api: Api, texts: list[str]) -> None:
    sending, consumer, _ = await ends(api)
    heard: list[tuple[str, str, int]] = []

    def take(message: Any) -> None:
        heard.append((message.text, message.get_string_property("text"), message.get_int_property("number")))

    consumer.message_listener = take
    sent = [("x" * (number % 5), texts[number % len(texts)], number) for number in range(COUNT)]
    bodies, found, numbers = (list(column) for column in zip(*sent, strict=True))
    await (await sending.create_producer()).send_many(TOPIC, bodies, {"text": found, "number": numbers})
    await eventually(lambda: len(heard) == COUNT)
    assert heard == sent
