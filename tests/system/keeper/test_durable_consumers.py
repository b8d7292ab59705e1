"""Durable subscriptions over real keepers: consumers, keepers and publishers that are killed."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator

import pytest
from durable_programs import NAME, TOPIC, Program, reader, sender
from keepers import Keepers, start_three, uri_of
from representatives import representatives

from fjm2.jms import (
    ConnectionFactory,
    IllegalStateError,
    Message,
    ResourceAllocationError,
    SessionMode,
    TextMessage,
    Topic,
    UnconfirmedError,
)

pytestmark = pytest.mark.calm

MESSAGES = 5000
WAIT_S = 20.0
LEASE_S = 3.0
"""Time for which the keepers keep the session of a silent program."""


@pytest.fixture
def cell(cell_of_three: Keepers) -> Keepers:
    """Three keepers that run."""
    start_three(cell_of_three)
    return cell_of_three


@contextlib.contextmanager
def running(*programs: Program) -> Iterator[None]:
    """Kill programs at the end."""
    try:
        yield
    finally:
        for program in programs:
            program.kill()


def subscribe(uri: str) -> None:
    """Create the subscription, and end."""

    async def create() -> None:
        async with ConnectionFactory(uri, client_id="desk").create_context() as context:
            await context.create_durable_consumer(TOPIC, NAME)

    asyncio.run(create())


def sent(uri: str, count: int = MESSAGES, first: int = 0) -> None:
    """Send messages, all of which are stored then."""
    program = sender(uri, first, count)
    with running(program):
        program.until(lambda: str(first + count - 1) in program.lines, 60.0)


async def drained(uri: str, mode: SessionMode = SessionMode.CLIENT_ACKNOWLEDGE) -> list[Message]:
    """Come back as the consumer, and return all that it gets and acknowledges."""
    async with ConnectionFactory(uri, client_id="desk").create_context(mode) as context:
        consumer = await context.create_durable_consumer(TOPIC, NAME)
        found: list[Message] = []
        while (message := await consumer.receive(timeout=3)) is not None:
            found.append(message)
        await context.acknowledge()
        return found


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.get_body(str)) for message in messages]


def test_what_is_sent_while_the_consumer_is_away_comes_once_and_in_order(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    subscribe(uri)
    sent(uri)
    assert numbers(asyncio.run(drained(uri))) == list(range(MESSAGES))
    assert asyncio.run(drained(uri)) == []


@pytest.mark.parametrize(
    "mode",
    representatives([SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED], SessionMode.CLIENT_ACKNOWLEDGE),
)
def test_a_killed_consumer_gets_again_what_it_did_not_acknowledge(cell: Keepers, mode: SessionMode) -> None:
    uri = uri_of(cell.port)
    subscribe(uri)
    program, sending = reader(uri, mode=mode), sender(uri, 0, 2000)
    with running(program, sending):
        program.until_ready()
        program.until(lambda: len(program.acknowledged) >= 500)
        program.kill()
        sending.until(lambda: "1999" in sending.lines)
    rest = asyncio.run(drained(uri))
    acknowledged, before = program.acknowledged, {number for number, _ in program.messages}
    assert acknowledged == list(range(len(acknowledged)))
    assert numbers(rest) == list(range(2000 - len(rest), 2000)), "in order, and each once"
    assert 2000 - len(rest) in (len(acknowledged), len(acknowledged) + 50), "the last acknowledgement may have counted"
    assert all(message.redelivered for message in rest if int(message.get_body(str)) in before)


def test_a_killed_session_that_acknowledges_by_itself_repeats_one_message(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    subscribe(uri)
    program = reader(uri, mode=SessionMode.AUTO_ACKNOWLEDGE)
    with running(program):
        program.until_ready()
        sent(uri, 500)
        program.until(lambda: len(program.messages) > 50, 60.0)
        program.kill()
    handled = [number for number, _ in program.messages]
    rest = numbers(asyncio.run(drained(uri)))
    assert handled == list(range(len(handled)))
    assert rest == list(range(500 - len(rest), 500))
    assert rest[0] >= handled[-1], "the last message that was handled may come again, and no other"


def test_keepers_are_killed_while_messages_flow(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    subscribe(uri)
    program, sending = reader(uri), sender(uri, 0, 3000)
    with running(program, sending):
        program.until_ready()
        program.until(lambda: len(program.messages) > 300)
        (manager,) = cell.serving
        manager.end(signal.SIGKILL)
        cell.until(lambda: cell.serving)
        cell.start(manager.directory.name)
        program.until(lambda: len(program.messages) >= 3000, 60.0)
        assert [number for number, _ in program.messages][:3000] == list(range(3000))
        program.until(lambda: len(program.acknowledged) == 3000)


def test_messages_of_a_killed_publisher_come_as_far_as_they_were_stored(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    subscribe(uri)
    sending = sender(uri, 0, 100_000)
    with running(sending):
        sending.until(lambda: len(sending.lines) > 500)
        sending.kill()
    stored = [int(line) for line in sending.lines if line.isdigit()]
    found = numbers(asyncio.run(drained(uri)))
    assert found == list(range(len(found)))
    assert len(found) >= len(stored)


@pytest.mark.nightly
def test_two_consumers_share_what_comes(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    programs = [reader(uri, "-") for _ in range(2)]
    with running(*programs):
        for program in programs:
            program.until_ready()
        sent(uri, 1000)
        programs[0].until(lambda: sum(len(program.messages) for program in programs) >= 1000)
        shares = [[number for number, _ in program.messages] for program in programs]
    assert all(shares), "both get some"
    assert sorted(shares[0] + shares[1]) == list(range(1000)), "each goes to one of them"


@pytest.mark.nightly
def test_another_consumer_gets_what_a_killed_one_held(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    one, two = reader(uri, "-"), reader(uri, "-")
    with running(one, two):
        one.until_ready()
        two.until_ready()
        sent(uri, 300)
        one.until(lambda: len(one.messages) + len(two.messages) >= 300)
        held = set(one.held)
        one.kill()
        two.until(lambda: held <= {number for number, _ in two.messages})
        again = [is_flagged for number, is_flagged in two.messages if number in held]
    assert all(again)


@pytest.mark.nightly
def test_a_consumer_that_was_stopped_for_long_goes_on_by_itself(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    subscribe(uri)
    program, sending = reader(uri), sender(uri, 0, 2000)
    with running(program, sending):
        program.until_ready()
        program.until(lambda: len(program.acknowledged) >= 100)
        program.popen.send_signal(signal.SIGSTOP)
        sending.until(lambda: "1999" in sending.lines, 60.0)
        time.sleep(LEASE_S + 1.0)  # nothing tells here that the keepers have given its messages back
        program.popen.send_signal(signal.SIGCONT)
        program.until(lambda: {number for number, _ in program.messages} == set(range(2000)), 60.0)
    seen: set[int] = set()
    for number, is_flagged in program.messages:
        assert is_flagged or number not in seen, "what comes again is flagged"
        seen.add(number)


def test_a_consumer_outlives_all_keepers(cell_of_one: Keepers) -> None:
    """While they are gone, acknowledgements fail in time, and nothing is lost."""
    uri = uri_of(cell_of_one.port)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    subscribe(uri)
    sent(uri, 20)

    async def consume() -> list[Message]:
        factory = ConnectionFactory(uri, client_id="desk", confirm_timeout_s=1.0)
        async with factory.create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
            consumer = await context.create_durable_consumer(TOPIC, NAME)
            found = [await consumer.receive(TextMessage, WAIT_S) for _ in range(10)]
            one.end(signal.SIGKILL)
            with pytest.raises(UnconfirmedError, match="may come again"):
                await context.acknowledge()
            again = cell_of_one.start("one", "--replicas", 1)
            cell_of_one.until(lambda: again.state == "serving")
            while (message := await consumer.receive(timeout=5)) is not None:
                found.append(message)
            await context.acknowledge()
        return [message for message in found if message is not None]

    found = numbers(asyncio.run(consume()))
    assert found[:10] == list(range(10))
    assert set(found) == set(range(20))
    assert asyncio.run(drained(uri)) == []


def test_a_consumer_closes_without_keepers(cell_of_one: Keepers) -> None:
    uri = uri_of(cell_of_one.port)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")

    async def consume() -> None:
        async with ConnectionFactory(uri, client_id="desk").create_context() as context:
            consumer = await context.create_durable_consumer(TOPIC, NAME)
            await context.send(TOPIC, "a")
            assert await consumer.receive(TextMessage, WAIT_S) is not None
            one.end(signal.SIGKILL)
            assert await consumer.receive(timeout=0.1) is None
        async with ConnectionFactory(uri, client_id="desk").create_context() as context:
            with pytest.raises(ResourceAllocationError, match="no keeper"):
                await context.create_durable_consumer(TOPIC, NAME)

    asyncio.run(asyncio.wait_for(consume(), 3 * WAIT_S))


@pytest.mark.nightly
def test_a_session_that_was_stopped_for_long_and_acknowledges_by_itself_repeats_two_messages(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    subscribe(uri)
    program = reader(uri, mode=SessionMode.AUTO_ACKNOWLEDGE)
    with running(program):
        program.until_ready()
        sending = sender(uri, 0, 10_000)
        with running(sending):
            for _ in range(3):
                count = len(program.messages)
                program.until(lambda count=count: len(program.messages) > count + 50, 60.0)
                program.popen.send_signal(signal.SIGSTOP)
                time.sleep(2 * LEASE_S)
                stopped_at = len(program.messages)
                program.popen.send_signal(signal.SIGCONT)
                program.until(lambda at=stopped_at: any(flag for _, flag in program.messages[at:]), 30.0)
                received = program.messages
                again = [number for number, _ in received[stopped_at:] if (number, False) in received[:stopped_at]]
                late = next(at for at, (_, flag) in enumerate(received[stopped_at:]) if flag)
                assert late <= 1, "until the cell has decided, one more message comes at most"
                assert len(again) <= 2, "the last message that was handled may come again, and one that waited"


@pytest.mark.nightly
def test_every_mode_acknowledges_what_was_handled(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    subscribe(uri)

    async def consume(mode: SessionMode) -> None:
        async with ConnectionFactory(uri, client_id="desk").create_context(mode) as context:
            consumer = await context.create_durable_consumer(TOPIC, NAME)
            for number in range(50):
                message = await consumer.receive(TextMessage, WAIT_S)
                assert message is not None
                assert message.text == str(number)
            if mode is SessionMode.CLIENT_ACKNOWLEDGE:
                await message.acknowledge()
            if mode is SessionMode.SESSION_TRANSACTED:
                await context.commit()

    for mode in SessionMode:
        sent(uri, 50)
        asyncio.run(consume(mode))
    assert asyncio.run(drained(uri)) == []


def test_a_commit_that_the_keepers_refuse_says_that_its_messages_were_sent(cell_of_one: Keepers) -> None:
    uri = uri_of(cell_of_one.port)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")

    async def commit_late() -> None:
        factory = ConnectionFactory(uri, client_id="desk")
        async with factory.create_context(SessionMode.SESSION_TRANSACTED) as context:
            consumer = await context.create_durable_consumer(TOPIC, NAME)
            async with ConnectionFactory(uri).create_context() as other:
                await other.send(TOPIC, "a")
            assert await consumer.receive(TextMessage, WAIT_S) is not None
            await context.send(Topic("fjm2.replies"), "b")
            time.sleep(LEASE_S + 1.5)  # noqa: ASYNC251 - as a program that computes
            with pytest.raises(
                IllegalStateError, match=r"^commit: the messages of the transaction were sent"
            ) as caught:
                await context.commit()
            assert caught.value.error_code == "session_fenced"
            again = await consumer.receive(TextMessage, WAIT_S)
            assert again is not None
            assert again.redelivered
            await context.commit()

    asyncio.run(asyncio.wait_for(commit_late(), 3 * WAIT_S))
