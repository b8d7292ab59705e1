"""Last values over real keepers: keepers, publishers and disks that are lost, and consumers that come later."""

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest
from keepers import KeeperProcess, Keepers, start_three, uri_of
from representatives import representatives
from value_programs import KEYS, TOPIC, ValueSender

from fjm2.jms import ConnectionFactory, Message, ResourceAllocationError, TextMessage, Topic, TopicPattern

pytestmark = pytest.mark.calm

WAIT_S = 20.0
QUIET_S = 1.0


@pytest.fixture
def cell(cell_of_three: Keepers) -> Keepers:
    """Three keepers that run."""
    start_three(cell_of_three)
    return cell_of_three


@contextlib.contextmanager
def sending(uri: str, first: int, count: int) -> Iterator[ValueSender]:
    program = ValueSender(uri, first, count)
    try:
        yield program
    finally:
        if program.popen.poll() is None:
            program.kill()


async def values(uri: str, destination: Topic | TopicPattern = TOPIC, selector: str | None = None) -> list[Message]:
    """Come as a new consumer, and return all last values."""
    async with ConnectionFactory(uri).create_context() as context:
        consumer = context.create_consumer(destination, selector, last_values=True)
        await asyncio.wait_for(consumer.ready(), WAIT_S)
        found: list[Message] = []
        while (message := await consumer.receive_no_wait()) is not None:
            assert message.get_object_property("JMS_FJM2_LastValue") is True
            found.append(message)
        return found


def numbers(messages: list[Message]) -> dict[int, int]:
    """Return the number of each key. There must be one."""
    found = {message.get_int_property("key"): int(message.get_body(str)) for message in messages}
    assert len(found) == len(messages), "each key once"
    return found


def newest(count: int, first: int = 0) -> dict[int, int]:
    return {number % KEYS: number for number in range(first, first + count)}


def check(found: dict[int, int], program: ValueSender) -> None:
    """Hold values against what a publisher stored, and may have stored."""
    stored = {number % KEYS: number for number in sorted(program.stored)}
    assert found.keys() >= stored.keys()
    for key, number in found.items():
        assert stored.get(key, 0) <= number <= program.sending, f"{key}: {number}"
        assert number % KEYS == key


def test_a_consumer_that_comes_later_gets_the_newest_of_each_key(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    with sending(uri, 0, 500) as program:
        program.wait()
    found = asyncio.run(values(uri))
    assert numbers(found) == newest(500)
    assert [int(message.get_body(str)) for message in found] == sorted(newest(500).values()), "in the order of sending"
    assert numbers(asyncio.run(values(uri, selector="key < 5"))) == {
        key: number for key, number in newest(500).items() if key < 5
    }
    assert numbers(asyncio.run(values(uri, TopicPattern("fjm2.*")))) == newest(500)
    assert asyncio.run(values(uri, Topic("fjm2.other"))) == []


def test_values_outlive_a_killed_publisher_and_all_keepers(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    with sending(uri, 0, 100_000) as program:
        program.until(lambda: len(program.stored) > 500)
        program.kill()
    for keeper in cell.running:
        keeper.end(signal.SIGKILL)
    three = [cell.start(name) for name in "abc"]
    cell.until(lambda: cell.serving and all(each.state in ("serving", "follower") for each in three))
    check(numbers(asyncio.run(values(uri))), program)


def alive(cell: Keepers) -> dict[str, KeeperProcess]:
    """Return the running keepers by name."""
    return {each.directory.name: each for each in cell.running if each.popen.poll() is None}


def has_stored(program: ValueSender, count: int) -> bool:
    return len(program.stored) > count


def restart(cell: Keepers, name: str) -> None:
    """Start a keeper again, and wait until it is a member."""
    keeper = cell.start(name)
    cell.until(lambda: keeper.state in ("follower", "serving"))


def send_while_away(cell: Keepers, name: str) -> ValueSender:
    """Kill a keeper while a publisher sends. Return the publisher, which is killed too."""
    with sending(uri_of(cell.port), 0, 100_000) as program:
        program.until(lambda: len(program.stored) > 200)
        alive(cell)[name].end(signal.SIGKILL)
        before = len(program.stored)
        program.until(lambda: len(program.stored) > before + 200)
        program.kill()
    return program


@pytest.mark.parametrize("victim", representatives(["a", "b", "c"], "a"))
def test_any_two_keepers_have_the_values(cell: Keepers, victim: str) -> None:
    """One that was away lacks some, which must not be missing when another one goes as soon as it is back."""
    uri = uri_of(cell.port)
    program = send_while_away(cell, victim)
    check(numbers(asyncio.run(values(uri))), program)
    restart(cell, victim)
    other = next(name for name in "abc" if name != victim)
    alive(cell)[other].end(signal.SIGKILL)
    cell.until(lambda: cell.serving)
    check(numbers(asyncio.run(values(uri))), program)


def test_values_and_live_messages_come_once_and_in_order(cell: Keepers) -> None:
    """A consumer that comes while messages are sent misses none of a key's later ones, and none comes before an
    older one."""
    uri = uri_of(cell.port)

    async def send_once() -> None:
        async with ConnectionFactory(uri).create_context() as context:
            await context.send(TOPIC, "-1", retain="key", properties={"key": -1})

    asyncio.run(send_once())

    async def follow(count: int) -> list[tuple[int, int, bool]]:
        async with ConnectionFactory(uri).create_context() as context:
            consumer = context.create_consumer(TOPIC, last_values=True)
            found = []
            async with asyncio.timeout(60.0):
                while not found or found[-1][1] < count - 1:
                    message = await consumer.receive(timeout=WAIT_S)
                    assert message is not None
                    is_value = bool(message.get_object_property("JMS_FJM2_LastValue"))
                    found.append((message.get_int_property("key"), int(message.get_body(str)), is_value))
            return found

    count = 3000
    with sending(uri, 0, count) as program:
        for at in (100, 700, 1300):
            program.until(partial(has_stored, program, at))
            found = asyncio.run(follow(min(at + 600, count)))
            by_key: dict[int, list[int]] = {}
            for key, number, _ in found:
                by_key.setdefault(key, []).append(number)
            assert len(by_key) == KEYS + 1
            for key, got in by_key.items():
                assert got == list(range(got[0], got[-1] + 1, KEYS)), f"{key}: {got}"
            kinds = [is_value for *_, is_value in found]
            assert kinds == sorted(kinds, reverse=True), "values first"
            assert (-1, -1, True) in found


@pytest.mark.nightly
def test_a_new_keeper_gets_the_values_from_the_others(cell: Keepers) -> None:
    """A disk is lost for good. The publisher has been gone for so long that its ledger is closed when a new one takes
    the place. Then a second disk is lost."""
    uri = uri_of(cell.port)
    with sending(uri, 0, 300) as program:
        program.wait()
    lost = alive(cell)["a"]
    lost.end(signal.SIGKILL)
    shutil.rmtree(lost.directory)
    new = cell.start("d")
    cell.until(lambda: new.state in ("follower", "serving"), 100.0)
    assert numbers(asyncio.run(values(uri))) == newest(300)
    alive(cell)["b"].end(signal.SIGKILL)
    shutil.rmtree(cell.folder / "b")
    cell.until(lambda: cell.serving)
    assert numbers(asyncio.run(values(uri))) == newest(300)


def test_a_value_that_was_removed_does_not_come_back(cell: Keepers) -> None:
    """A keeper that was away while it was removed still has it."""
    uri = uri_of(cell.port)

    async def send(*bodies: str | None) -> None:
        async with ConnectionFactory(uri).create_context() as context:
            for body in bodies:
                await context.send(TOPIC, body, retain=True)

    asyncio.run(send("first"))
    alive(cell)["a"].end(signal.SIGKILL)
    cell.until(lambda: cell.serving)
    asyncio.run(send("second", None))
    assert asyncio.run(values(uri)) == []
    restart(cell, "a")
    assert asyncio.run(values(uri)) == []
    alive(cell)["b"].end(signal.SIGKILL)
    cell.until(lambda: cell.serving)
    assert asyncio.run(values(uri)) == []


def test_one_keeper_of_three_cannot_tell_the_values(cell: Keepers) -> None:
    uri = uri_of(cell.port)
    with sending(uri, 0, 40) as program:
        program.wait()

    async def come_late() -> None:
        async with ConnectionFactory(uri).create_context() as context:
            await context.ready()
            for keeper in cell.running[:2]:
                keeper.end(signal.SIGKILL)
            consumer = context.create_consumer(TOPIC, last_values=True)
            assert await consumer.receive(timeout=QUIET_S) is None
            for name in [keeper.directory.name for keeper in cell.running[:2]]:
                cell.start(name)
            found = []
            for _ in range(KEYS):
                message = await consumer.receive(timeout=WAIT_S)
                assert message is not None
                found.append(message)
            assert numbers(found) == newest(40)

    asyncio.run(come_late())


def test_a_consumer_fails_if_the_keepers_stay_away(cell_of_one: Keepers) -> None:
    uri = uri_of(cell_of_one.port)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")

    async def come_late() -> None:
        async with ConnectionFactory(uri).create_context() as context:
            await context.ready()
            one.end(signal.SIGKILL)
            consumer = context.create_consumer(TOPIC, last_values=True)
            began = time.monotonic()
            with pytest.raises(ResourceAllocationError, match="decided nothing for 15 s") as caught:
                await consumer.receive(timeout=30.0)
            assert caught.value.error_code == "no_keeper"
            assert 14.0 < time.monotonic() - began < 25.0

    asyncio.run(come_late())


def test_a_durable_subscription_and_last_values_share_messages(cell_of_one: Keepers) -> None:
    """A message stays as long as one of them needs it."""
    uri = uri_of(cell_of_one.port)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")

    async def share() -> None:
        async with ConnectionFactory(uri, client_id="desk").create_context() as context:
            await (await context.create_durable_consumer(TOPIC, "all")).close()
            for number in range(40):
                await context.send(TOPIC, str(number), retain="key", properties={"key": number % KEYS})
            consumer = await context.create_durable_consumer(TOPIC, "all")
            for number in range(40):
                assert await consumer.receive_body(str, timeout=WAIT_S) == str(number)
            assert await consumer.receive(timeout=0.5) is None
            await asyncio.sleep(1.0)
        assert numbers(await values(uri)) == newest(40)

    asyncio.run(share())
    one.end(signal.SIGKILL)
    back = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: back.state == "serving")
    assert numbers(asyncio.run(values(uri))) == newest(40)


def test_commands_leave_values_and_print_them(cell_of_one: Keepers) -> None:
    uri = uri_of(cell_of_one.port)

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-W", "error", "-m", "fjm2", *arguments, "--uri", uri]
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    for arguments in (("pub", "prices", "1", "--retain"), ("sub", "prices", "--last-values", "--timeout", "5s")):
        ended = run(*arguments)
        assert ended.returncode == 1
        assert "start one: fjm2 keep DIRECTORY" in ended.stderr
    wrong = run("pub", "prices", "1", "-r", "--non-persistent")
    assert wrong.returncode == 2
    assert "not valid with --file or --non-persistent" in wrong.stderr

    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")
    for body, *options in (
        ("17.25", "-p", "symbol=ABC", "--retain-key", "symbol"),
        ("9.5", "-p", "symbol=XYZ", "--retain-key", "symbol"),
        ("17.5", "-p", "symbol=ABC", "--retain-key", "symbol"),
        ("open", "-r"),
        ("not kept",),
    ):
        assert run("pub", "prices", body, *options).returncode == 0
    printed = run("sub", "prices", "--last-values", "--count", "3", "--timeout", "20s")
    assert (printed.returncode, printed.stdout.split()) == (0, ["9.5", "17.5", "open"])
    assert run("pub", "prices", "", "--retain").returncode == 0
    printed = run("sub", "prices", "--last-values", "--json", "--count", "2", "--timeout", "20s")
    flags = [json.loads(line)["properties"]["JMS_FJM2_LastValue"] for line in printed.stdout.splitlines()]
    assert (printed.returncode, flags) == (0, [True, True])


def test_a_value_that_was_on_its_way_is_not_missed(cell_of_one: Keepers) -> None:
    """It was sent before the consumer came, and stored after the consumer had asked what there is."""
    uri = uri_of(cell_of_one.port)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "serving")

    async def come_between() -> None:
        factory = ConnectionFactory(uri)
        async with factory.create_connection() as sender, factory.create_context() as receiver:
            await receiver.ready()
            producer = sender.create_session().create_producer(TOPIC)
            await producer.send(TextMessage("first"), retain=True)
            for number in range(5):
                one.popen.send_signal(signal.SIGSTOP)
                sent = producer.send_async(TextMessage(str(number)), retain=True)
                await asyncio.sleep(0.1)
                consumer = receiver.create_consumer(TOPIC, last_values=True)
                await asyncio.sleep(0.1)
                one.popen.send_signal(signal.SIGCONT)
                await sent
                async with asyncio.timeout(WAIT_S):
                    while (await consumer.receive_body(str)) != str(number):
                        pass
                await consumer.close()

    asyncio.run(come_between())
