"""Shared subscriptions that are not durable over real keepers: consumers and keepers that are killed or stopped."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator

import pytest
from durable_programs import ACKED_TOGETHER, NAME, PASSING, SHARED, TOPIC, Program, reader, sender, thread_reader
from keepers import Keepers, start_three, uri_of

from fjm2.jms import ConnectionFactory, JMSContext, ResourceAllocationError, SessionMode, TextMessage

pytestmark = pytest.mark.calm

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


def numbers(*programs: Program) -> list[int]:
    return [number for program in programs for number, _ in program.messages]


def sent(uri: str, first: int, count: int) -> None:
    """Send messages, and wait until the sends have returned."""
    program = sender(uri, first, count)
    with running(program):
        program.until(lambda: str(first + count - 1) in program.lines, 60.0)


def test_a_killed_last_consumer_takes_the_subscription_along(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    program = reader(uri, PASSING)
    with running(program):
        program.until_ready()
        sent(uri, 0, 100)
        program.until(lambda: len(program.messages) == 100)

    async def send_without_keepers() -> None:
        """Once the subscription has ended, nothing waits for keepers."""
        async with ConnectionFactory(uri, confirm_timeout_s=1.0).create_context() as context:
            await context.ready()
            await asyncio.sleep(LEASE_S + 2.0)
            for keeper in cell.running:
                keeper.end(signal.SIGKILL)
            await asyncio.wait_for(context.send(TOPIC, "passes"), 0.9)

    asyncio.run(send_without_keepers())


def test_others_get_what_a_killed_consumer_held_and_the_subscription_stays(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    one, two = reader(uri, PASSING), reader(uri, PASSING)
    with running(one, two):
        one.until_ready()
        two.until_ready()
        sent(uri, 0, 300)
        one.until(lambda: len(numbers(one, two)) >= 300)
        held = set(one.held)
        assert held
        one.kill()
        sent(uri, 300, 100)
        two.until(lambda: held | set(range(300, 400)) <= set(numbers(two)))
        assert all(is_flagged for number, is_flagged in two.messages if number in held)


@pytest.mark.nightly
def test_a_takeover_ends_no_subscription(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    one, two = reader(uri, PASSING), reader(uri, PASSING)
    with running(one, two):
        one.until_ready()
        two.until_ready()
        sending = sender(uri, 0, 2000)
        with running(sending):
            one.until(lambda: len(numbers(one, two)) > 200)
            (manager,) = cell.serving
            manager.end(signal.SIGKILL)
            sending.until(lambda: "1999" in sending.lines, 60.0)
        one.until(lambda: len(set(numbers(one, two))) == 2000, 60.0)
        seen: set[int] = set()
        for number, is_flagged in one.messages + two.messages:
            assert is_flagged or number not in seen
            seen.add(number)


def test_a_consumer_that_was_stopped_for_long_is_told_that_it_may_lack_messages(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    program = reader(uri, PASSING)
    with running(program):
        program.until_ready()
        program.popen.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_S + 2.0)
        sent(uri, 0, 10)
        program.popen.send_signal(signal.SIGCONT)
        program.until(lambda: "MessagesLostError" in program.lines)
        sent(uri, 10, 10)
        program.until(lambda: len(program.messages) >= 10)
        assert numbers(program) == list(range(10, 20))


@pytest.mark.parametrize("is_in_thread", [False, True])
def test_a_consumer_that_was_stopped_delivers_nothing_in_silence_that_others_acknowledged(
    cell: Keepers, is_in_thread: bool
) -> None:
    uri, work_s = uri_of(cell.port), 0.05
    slow = (
        thread_reader(uri, SessionMode.DUPS_OK_ACKNOWLEDGE, work_s)
        if is_in_thread
        else reader(uri, SHARED, work_s=work_s)
    )
    with running(slow):
        slow.until_ready()
        sent(uri, 0, 300)
        slow.until(lambda: len(slow.messages) >= 5)
        slow.popen.send_signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        quick = reader(uri, SHARED)
        with running(quick):
            quick.until(lambda: sum(is_flagged for _, is_flagged in quick.messages) >= 2 * ACKED_TOGETHER)
            quick.until(lambda: len(quick.acknowledged) >= 3 * ACKED_TOGETHER)
            time.sleep(max(0.0, stopped_at + LEASE_S + 1.0 - time.monotonic()))
            acknowledged, before = set(quick.acknowledged), len(slow.messages)
            slow.popen.send_signal(signal.SIGCONT)
            time.sleep(1.0)
        sent(uri, 300, 50)
        slow.until(lambda: set(range(300, 350)) <= set(numbers(slow)), 60.0)
        silent = {number for number, is_flagged in slow.messages[before:] if not is_flagged}
        assert not silent & acknowledged


def test_a_consumer_needs_a_keeper(cell: Keepers) -> None:
    """Without a cell it says so at once, and once the cell is gone after its time."""
    uri = uri_of(cell.port)

    async def create(context: JMSContext) -> None:
        consumer = await context.create_shared_consumer(TOPIC, NAME)
        await context.send(TOPIC, "a")
        message = await consumer.receive(TextMessage, WAIT_S)
        assert message is not None
        assert message.text == "a"

    async def use() -> None:
        async with ConnectionFactory(uri).create_context() as context:
            await create(context)
        for keeper in cell.running:
            keeper.end(signal.SIGKILL)
        async with ConnectionFactory(uri).create_context() as context:
            with pytest.raises(ResourceAllocationError, match="no keeper") as caught:
                await create(context)
        assert caught.value.error_code == "no_keeper"

    asyncio.run(asyncio.wait_for(use(), 3 * WAIT_S))
