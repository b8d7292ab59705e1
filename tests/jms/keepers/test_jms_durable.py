"""Tests of durable subscriptions in both APIs, beside a keeper that is a process.

Their names begin with the number of the case: A1 to A11, X1 to X9, U2, U5 to U9.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adapter import WAIT_S, Api, Asyncio, eventually, listener
from keeper_process import keeping

from fjm2 import jms
from fjm2.base.errors import ConfigError
from fjm2.bus.presence import Announcement
from fjm2.jms import (
    DeliveryMode,
    FileMessage,
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    MessageFormatError,
    MessagesLostError,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
)
from fjm2.jms.durable.taken_id import TAKEN_S
from fjm2.jms.sends.cell_client import CellClient

_PORT = 31_900
"""Port of the keeper. It lies above those of tests."""
_numbers = itertools.count(1)
MODES = [SessionMode.AUTO_ACKNOWLEDGE, SessionMode.DUPS_OK_ACKNOWLEDGE]


@pytest.fixture(scope="module")
def kept_uri(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[str]:
    """Yield the URI of a bus with a keeper, which the tests of this module share."""
    port = _PORT + 2 * int(worker_id.removeprefix("gw")) if worker_id.startswith("gw") else _PORT
    uri = f"fjm2://239.192.57.40:{port}?interface=127.0.0.1&ttl=0&grtt_s=1ms&robust_factor=5"
    with keeping(tmp_path_factory.mktemp("keeper") / "store", uri):
        yield uri


@pytest.fixture
def kept(api: Api, kept_uri: str) -> Api:
    """Return an API whose bus has a keeper."""
    api.uri = kept_uri
    return api


@pytest.fixture
def topic() -> Topic:
    """Return a topic that no other test uses."""
    return Topic(f"fjm2.durable.{next(_numbers)}")


def client_of(topic: Topic) -> str:
    return f"client of {topic.name}"


async def reader(api: Api, topic: Topic, mode: SessionMode = SessionMode.CLIENT_ACKNOWLEDGE) -> Any:
    """Return a context with the client id of a topic's durable subscription."""
    return await api.context(mode, client_id=client_of(topic))


async def api_context_with(api: Api, topic: Topic) -> Any:
    """Return a context with the client id of a topic that another connection of this process uses. This process would
    refuse that, unlike two programs."""
    from fjm2.jms import connection

    connection._claimed.clear()
    return await reader(api, topic)


async def subscribed(api: Api, topic: Topic) -> None:
    """Create the durable subscription of a topic, and close its connection."""
    context = await reader(api, topic)
    await context.create_durable_consumer(topic, "name")
    await context.close()


async def send(api: Api, topic: Topic, *bodies: str, **options: Any) -> None:
    context = await api.context()
    await context.ready()  # otherwise it does not know of the keeper yet
    for body in bodies:
        await context.send(topic, body, **options)
    await context.close()


async def received(consumer: Any, count: int) -> list[tuple[str, bool]]:
    """Receive messages, and return their texts and flags. Fail if there are fewer or more."""
    found = []
    for _ in range(count):
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None, f"only {found}"
        found.append((message.text, message.redelivered))
    assert await consumer.receive(0.3) is None
    return found


async def bodies(consumer: Any, count: int) -> list[str]:
    return [text for text, _ in await received(consumer, count)]


# Subscriptions.


async def test_u5_a_subscription_keeps_what_comes_while_its_consumer_is_away(kept: Api, topic: Topic) -> None:
    await subscribed(kept, topic)
    await send(kept, topic, "a", "b")
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name")
    assert (consumer.destination, consumer.message_selector, consumer.no_local) == (topic, None, False)
    assert await received(consumer, 2) == [("a", True), ("b", True)], "keepers do not know that nobody had them"
    await send(kept, topic, "c")
    assert await received(consumer, 1) == [("c", False)]
    await context.acknowledge()
    await context.close()
    context = await reader(kept, topic)
    assert await bodies(await context.create_durable_consumer(topic, "name"), 0) == []


async def test_u5_a_consumer_gets_what_is_sent_now_by_its_own_process_too(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic, SessionMode.AUTO_ACKNOWLEDGE)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a", "b")
    await context.send(topic, "c")
    assert await received(consumer, 3) == [("a", False), ("b", False), ("c", False)]


async def test_u5_a_subscription_needs_a_client_id_and_has_one_consumer(kept: Api, topic: Topic) -> None:
    with pytest.raises(IllegalStateError, match="client id"):
        await (await kept.context()).create_durable_consumer(topic, "name")
    context = await reader(kept, topic)
    await context.create_durable_consumer(topic, "name")
    with pytest.raises(IllegalStateError, match="active consumer"):
        await context.create_durable_consumer(topic, "name")
    await context.create_durable_consumer(topic, "another name")


async def test_u5_names_topics_and_selectors_are_checked_first(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    for name in ("", "a" * 1025):
        with pytest.raises(ValueError, match="name="):
            await context.create_durable_consumer(topic, name)
    with pytest.raises(InvalidDestinationError):
        await context.create_durable_consumer(await context.create_temporary_topic(), "name")
    with pytest.raises(InvalidSelectorError):
        await context.create_durable_consumer(topic, "name", "size >")


async def test_u5_texts_that_cannot_be_sent_are_refused_and_do_not_stop_the_connection(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    with pytest.raises(ValueError, match="lone surrogate"):
        await context.create_durable_consumer(topic, "\ud800")
    with pytest.raises(ValueError, match="lone surrogate"):
        await context.unsubscribe("\ud800")
    with pytest.raises(InvalidSelectorError, match="lone surrogate at position 8"):
        await context.create_durable_consumer(topic, "name", "size = '\ud800'")
    with pytest.raises(ResourceAllocationError, match="too long"):
        await context.create_durable_consumer(topic, "name", "size = '" + "a" * 70_000 + "'")
    with pytest.raises(ConfigError, match="lone surrogate"):
        await kept.context(client_id="\ud800")
    late = await kept.context()
    with pytest.raises(InvalidClientIDError, match="lone surrogate"):
        late.client_id = "\ud800"
    await context.create_durable_consumer(topic, "name")


async def test_u5_a_client_id_that_is_too_long_is_refused(kept: Api, topic: Topic) -> None:
    context = await kept.context(client_id="a" * 70_000)
    with pytest.raises(ResourceAllocationError, match="too long"):
        await context.create_durable_consumer(topic, "name")
    with pytest.raises(ResourceAllocationError, match="too long"):
        await context.unsubscribe("name")


@pytest.mark.parametrize("name", ["a" * 128, "Aa0_.-" * 22, "fjm2.ü.漢字"])
async def test_u9_names_may_be_long_and_of_all_letters(kept: Api, topic: Topic, name: str) -> None:
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, name)
    await send(kept, topic, "a")
    assert await bodies(consumer, 1) == ["a"]
    await context.acknowledge()
    await consumer.close()
    await context.unsubscribe(name)


async def test_c5_a_client_id_belongs_to_one_connection(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    await context.create_durable_consumer(topic, "name")
    kept.uri += "&dscp=8"  # a bus of its own, as in another program
    other = await api_context_with(kept, topic)
    await other.ready()
    began = time.monotonic()
    with pytest.raises(InvalidClientIDError, match="another client with this client id"):
        await other.create_durable_consumer(topic, "name")
    with pytest.raises(InvalidClientIDError, match="another client with this client id"):
        await other.unsubscribe("name")
    assert time.monotonic() - began < 0.9 * TAKEN_S, "its owner is there, and says so"


async def test_u2_no_local_and_selectors_leave_messages_out_for_good(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name", "size > 2", True)
    assert (consumer.message_selector, consumer.no_local) == ("size > 2", True)
    await send(kept, topic, "small", properties={"size": 1})
    await send(kept, topic, "large", properties={"size": 3})
    await context.send(topic, "mine", properties={"size": 4})
    assert await bodies(consumer, 1) == ["large"]
    await context.acknowledge()
    await context.close()
    context = await reader(kept, topic)
    assert await bodies(await context.create_durable_consumer(topic, "name", "size > 2", True), 0) == []


async def test_u6_another_selector_makes_the_subscription_new(kept: Api, topic: Topic) -> None:
    await subscribed(kept, topic)
    await send(kept, topic, "gone")
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name", "JMSPriority = 4")
    await send(kept, topic, "new")
    assert await bodies(consumer, 1) == ["new"]


async def test_u7_consumers_share_a_subscription_without_a_client_id(kept: Api, topic: Topic) -> None:
    contexts = [await kept.context() for _ in range(2)]
    consumers = [await each.create_shared_durable_consumer(topic, topic.name) for each in contexts]
    await send(kept, topic, *map(str, range(20)))
    found: list[str] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < 20:
            for consumer in consumers:
                message = await consumer.receive(TextMessage, 0.05)
                found += [] if message is None else [message.text]
    assert sorted(found, key=int) == list(map(str, range(20)))
    assert [await each.receive(0.3) for each in consumers] == [None, None]


async def test_u7_shared_and_unshared_ones_clash(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    await (await context.create_durable_consumer(topic, "name")).close()
    with pytest.raises(IllegalStateError, match="shared"):
        await context.create_shared_durable_consumer(topic, "name")


async def test_u8_unsubscribing_ends_a_subscription_that_nobody_consumes(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    with pytest.raises(InvalidDestinationError, match="no subscription of this name"):
        await context.unsubscribe("name")
    consumer = await context.create_durable_consumer(topic, "name")
    with pytest.raises(IllegalStateError, match="active consumer"):
        await context.unsubscribe("name")
    await consumer.close()
    await send(kept, topic, "gone")
    await context.unsubscribe("name")
    assert await bodies(await context.create_durable_consumer(topic, "name"), 0) == []


async def test_u8_a_subscription_with_unacknowledged_messages_cannot_be_ended(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a")
    message = await consumer.receive(WAIT_S)
    await consumer.close()
    with pytest.raises(IllegalStateError, match="active consumer"):
        await context.unsubscribe("name")
    await kept.acknowledge(message)
    await context.unsubscribe("name")


async def test_u5_a_new_subscription_waits_until_publishers_know_it(
    kept_uri: str, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    factory = jms.ConnectionFactory(kept_uri, client_id=client_of(topic))
    async with factory.create_context() as context:
        await context.ready()
        presence, now = context.counted.presence, asyncio.get_running_loop().time()  # type: ignore[attr-defined]
        presence.update(0x1234, Announcement(7, (0x1235,), "late publisher"), now)
        creating = asyncio.ensure_future(context.create_durable_consumer(topic, "name"))
        await eventually(lambda: "publishers_unaware" in caplog.text)
        assert "late publisher" in caplog.text
        assert not creating.done()
        presence.update(0x1234, Announcement(7, (0x1235,), "late publisher", table_version=1 << 40), now)
        await asyncio.wait_for(creating, WAIT_S)


# Acknowledging.


@pytest.mark.parametrize("mode", MODES)
async def test_a1_a3_the_session_acknowledges_what_was_received(kept: Api, topic: Topic, mode: SessionMode) -> None:
    await subscribed(kept, topic)
    await send(kept, topic, "a", "b", "c")
    context = await reader(kept, topic, mode)
    consumer = await context.create_durable_consumer(topic, "name")
    assert [(await consumer.receive(TextMessage, WAIT_S)).text for _ in range(2)] == ["a", "b"]
    await context.close()
    context = await reader(kept, topic, mode)
    assert await bodies(await context.create_durable_consumer(topic, "name"), 1) == ["c"]


async def test_a1_receive_no_wait_finds_what_waits(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic, SessionMode.AUTO_ACKNOWLEDGE)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, *map(str, range(20)))
    await eventually(lambda: consumer.inner.statistics().messages_waiting == 20)
    assert [(await consumer.receive_no_wait()).text for _ in range(20)] == list(map(str, range(20)))


async def test_a2_acknowledge_covers_the_session_and_nothing_that_comes_later(kept: Api, topic: Topic) -> None:
    await subscribed(kept, topic)
    await send(kept, topic, "a", "b", "c")
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name")
    first, _ = [await consumer.receive(WAIT_S) for _ in range(2)]
    await kept.acknowledge(first)
    assert (await consumer.receive(TextMessage, WAIT_S)).text == "c"
    await context.close()
    context = await reader(kept, topic)
    assert await received(await context.create_durable_consumer(topic, "name"), 1) == [("c", True)]


@pytest.mark.parametrize("api", [Asyncio], indirect=True)  # a thread that acknowledges does nothing else
async def test_a2_a_program_goes_on_while_acknowledgements_are_on_their_way(kept: Api, topic: Topic) -> None:
    """Each covers what was received before the call, whenever it is awaited."""
    await subscribed(kept, topic)
    await send(kept, topic, *map(str, range(30)))
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name")
    answers = []
    for number in range(27):
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message.text == str(number)
        if number % 3 == 2:
            answers.append(message.acknowledge())
    assert (await consumer.receive(TextMessage, WAIT_S)).text == "27"
    for answer in reversed(answers):
        await answer
    await context.close()
    context = await reader(kept, topic)
    found = await received(await context.create_durable_consumer(topic, "name"), 3)
    assert found == [("27", True), ("28", True), ("29", True)]


async def test_a5_recover_delivers_again_in_order_and_flagged(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a", "b")
    assert await received(consumer, 2) == [("a", False), ("b", False)]
    await context.recover()
    assert await received(consumer, 2) == [("a", True), ("b", True)]
    await context.acknowledge()
    await context.recover()
    assert await bodies(consumer, 0) == []


async def test_a7_a_listener_that_raises_gets_the_message_again(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic, SessionMode.AUTO_ACKNOWLEDGE)
    consumer = await context.create_durable_consumer(topic, "name")
    heard: list[tuple[str, int]] = []

    async def hear(message: TextMessage) -> None:
        heard.append((message.get_body(str), message.delivery_count))
        if message.delivery_count < 3:
            raise RuntimeError("again")

    await kept.invoke(setattr, consumer.inner, "message_listener", listener(kept, hear))
    await send(kept, topic, "a", "b")
    await eventually(lambda: len(heard) == 6)
    assert heard == [(text, count) for text in "ab" for count in (1, 2, 3)]
    await context.close()
    context = await reader(kept, topic)
    assert await bodies(await context.create_durable_consumer(topic, "name"), 0) == []


async def test_a8_a_message_of_another_kind_comes_again(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic, SessionMode.AUTO_ACKNOWLEDGE)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a")
    with pytest.raises(MessageFormatError):
        await consumer.receive_body(bytes, WAIT_S)
    assert await received(consumer, 1) == [("a", False)]


async def test_a11_what_a_loop_works_on_comes_again_after_the_end(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic, SessionMode.AUTO_ACKNOWLEDGE)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a", "b", "c")
    found = []
    async for message in consumer:
        found.append(message.text)
        if len(found) == 2:
            break
    await context.close()
    context = await reader(kept, topic)
    assert found == ["a", "b"]
    assert await received(await context.create_durable_consumer(topic, "name"), 2) == [("b", True), ("c", True)]


async def test_a11_batches_are_acknowledged_by_the_next(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic, SessionMode.AUTO_ACKNOWLEDGE)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, *map(str, range(10)))
    await eventually(lambda: consumer.inner.statistics().messages_waiting == 10)
    found: list[str] = []
    batches = await consumer.batches(5)
    async for batch in batches:
        found += [message.text for message in batch.messages()]
        if len(found) == 10:
            break
    await context.close()
    context = await reader(kept, topic)
    assert found == list(map(str, range(10)))
    assert await bodies(await context.create_durable_consumer(topic, "name"), 5) == list(map(str, range(5, 10)))


async def test_c4_messages_of_a_closed_consumer_can_be_acknowledged(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a", "b")
    messages = [await consumer.receive(WAIT_S) for _ in range(2)]
    await consumer.close()
    await kept.acknowledge(messages[0])
    assert await bodies(await context.create_durable_consumer(topic, "name"), 0) == []


async def test_c4_messages_of_a_closed_consumer_come_again_to_the_next_one(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a", "b")
    await bodies(consumer, 2)
    await consumer.close()
    consumer = await context.create_durable_consumer(topic, "name")
    assert await received(consumer, 2) == [("a", True), ("b", True)]


async def test_c4_a_closed_consumer_whose_messages_are_recovered_is_gone(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a")
    await bodies(consumer, 1)
    await consumer.close()
    await context.recover()
    await context.acknowledge()  # nothing: the message comes again to the next consumer
    consumer = await context.create_durable_consumer(topic, "name")
    assert await received(consumer, 1) == [("a", True)]
    await consumer.close()
    await context.recover()
    await context.unsubscribe("name")


# Transactions.


async def test_x2_commit_acknowledges_and_rollback_does_not(kept: Api, topic: Topic) -> None:
    context = await reader(kept, topic, SessionMode.SESSION_TRANSACTED)
    consumer = await context.create_durable_consumer(topic, "name")
    await send(kept, topic, "a", "b")
    await bodies(consumer, 2)
    await context.rollback()
    assert await received(consumer, 2) == [("a", True), ("b", True)]
    await context.send(topic, "c")
    await context.commit()
    assert await bodies(consumer, 1) == ["c"]
    await context.close()
    context = await reader(kept, topic)
    assert await bodies(await context.create_durable_consumer(topic, "name"), 1) == ["c"]


# Files.


async def test_a_file_is_refused_while_keepers_would_have_to_keep_it(kept: Api, topic: Topic, tmp_path: Path) -> None:
    (tmp_path / "disk.img").write_bytes(bytes(300_000))
    await subscribed(kept, topic)
    context, problems = await kept.context(), []
    context.exception_listener = problems.append
    consumer = await context.create_consumer(topic)
    await context.ready()
    await context.send(topic, "a")
    with pytest.raises(ResourceAllocationError, match="keepers do not keep files") as caught:
        await context.send(topic, tmp_path / "disk.img")
    assert caught.value.error_code == "files_not_kept"
    await context.send(topic, tmp_path / "disk.img", delivery_mode=DeliveryMode.NON_PERSISTENT)
    await context.send(topic, "b")
    assert await consumer.receive_body(str, WAIT_S) == "a"
    file = await consumer.receive(FileMessage, WAIT_S)
    assert (file.name, file.size) == ("disk.img", 300_000)
    assert await consumer.receive_body(str, WAIT_S) == "b"
    away = await reader(kept, topic)
    away.exception_listener = problems.append
    assert await bodies(await away.create_durable_consumer(topic, "name"), 2) == ["a", "b"]
    assert problems == []


async def test_a_file_of_a_sender_that_did_not_know_of_the_subscription_is_told_once(
    kept_uri: str, topic: Topic, tmp_path: Path
) -> None:
    (tmp_path / "disk.img").write_bytes(bytes(300_000))
    problems: list[Exception] = []
    factory = jms.ConnectionFactory(kept_uri, client_id=client_of(topic))
    async with factory.create_context() as away:
        await away.create_durable_consumer(topic, "name")
    async with jms.ConnectionFactory(kept_uri).create_context() as context:
        await context.ready()
        await context.send(topic, "a")
        driver = CellClient.of(context._connection._core.check_open().bus).driver
        assert driver is not None
        for gate in driver.gates:
            gate.is_stored = lambda _: False
        await context.send(topic, tmp_path / "disk.img")
    async with jms.ConnectionFactory(kept_uri).create_context() as context:
        await context.ready()
        await context.send(topic, "b")
    async with factory.create_context() as away:
        away.exception_listener = problems.append
        consumer = await away.create_durable_consumer(topic, "name")
        assert sorted([str(await consumer.receive_body(str, WAIT_S)) for _ in range(2)]) == ["a", "b"]
        await eventually(lambda: bool(problems))
        assert await consumer.receive(0.3) is None
    assert [type(each) for each in problems] == [MessagesLostError]
    assert "the file 'disk.img' of 300,000 bytes was sent, and does not come" in str(problems[0])
