"""`fjm2 keep adopt` over real keepers: what nobody acknowledged in a cell that is gone arrives in another one, once."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from keepers import Keepers, command, keeping, run_command, start_three, uri_of

from fjm2.jms import ConnectionFactory, Message, SessionMode, TextMessage, Topic

pytestmark = pytest.mark.calm

ORDERS, PRICES = Topic("fjm2.orders"), Topic("fjm2.prices")
MESSAGES = 400
ACKED = 150
URGENT = 20
PRICES_SENT, DUE, LATER = 30, 6, 4
"""Messages to PRICES: those without a delay, with one that is over, and with one that is not."""
MANY = 20_000
ACKED_TOGETHER = 1000
ADOPT_S = 60.0
FIRST_BATCH = 512
"""Offset of the first batch of a segment."""


@pytest.fixture
def cell_of_today(founded_three: Path, tmp_path: Path, port: int) -> Iterator[Keepers]:
    """Yield another cell, of three keepers that are not running."""
    shutil.copytree(founded_three, tmp_path / "today")
    with keeping(tmp_path / "today", port) as keepers:
        yield keepers


async def subscribed(uri: str, name: str, take: int = 0, topic: Topic = ORDERS) -> list[Message]:
    """Create a durable subscription, or come back to it. Take and acknowledge messages, or leave all there."""
    found: list[Message] = []
    async with ConnectionFactory(uri, client_id=name).create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
        consumer = await context.create_durable_consumer(topic, name)
        while len(found) < take and (message := await consumer.receive(timeout=5)) is not None:
            found.append(message)
            if len(found) % ACKED_TOGETHER == 0:
                await context.acknowledge()
        if found:
            await context.acknowledge()
    return found


async def publish(uri: str, topic: Topic, count: int, delay_ms: int = 0, **options: Any) -> list[str]:
    """Send texts 0, 1, 2 ... Return their message ids."""
    async with ConnectionFactory(uri).create_connection() as connection:
        await connection.ready()
        producer = connection.create_session().create_producer(topic)
        producer.delivery_delay = delay_ms
        messages = [TextMessage(str(number)) for number in range(count)]
        for message in messages:
            message.set_int_property("half", int(message.text) // 2)
            message.type = "order"
        for first in range(0, count, 500):
            await asyncio.gather(*(producer.send_async(each, **options) for each in messages[first : first + 500]))
        return [message.message_id for message in messages]


async def past_life(uri: str) -> dict[str, list[str]]:
    """Live in a cell that is to end. Return the message ids that some subscription has not acknowledged then."""
    for name in ("desk", "audit"):
        await subscribed(uri, name)
    plain = await publish(uri, ORDERS, MESSAGES)
    urgent = await publish(uri, ORDERS, URGENT, priority=9)
    acked = {message.message_id for message in await subscribed(uri, "desk", ACKED)}
    await subscribed(uri, "audit", URGENT + MESSAGES)
    await subscribed(uri, "prices", topic=PRICES)
    prices = await publish(uri, PRICES, PRICES_SENT)
    await publish(uri, PRICES, 10, time_to_live=1)
    await publish(uri, PRICES, LATER, delay_ms=3_600_000)
    due = await publish(uri, PRICES, DUE, delay_ms=1)
    assert len(acked) == ACKED
    lanes = {"plain": plain, "urgent": urgent, "prices": prices, "due": due}
    return {lane: [each for each in ids if each not in acked] for lane, ids in lanes.items()}


def check_orders(got: list[Message], waiting: dict[str, list[str]]) -> None:
    """Check that all messages to ORDERS came once, as they were, and in the order of each priority."""
    plain = [message for message in got if message.priority == 4]
    assert [message.message_id for message in plain] == waiting["plain"]
    assert [message.message_id for message in got if message.priority == 9] == waiting["urgent"]
    assert all(message.redelivered and message.type == "order" for message in got)
    numbers = [int(message.get_body(str)) for message in got]
    assert [message.get_int_property("half") for message in got] == [number // 2 for number in numbers]


def adopt(directory: Path, port: int, *options: object) -> "subprocess.CompletedProcess[str]":
    return run_command("adopt", directory, "--uri", uri_of(port), *options)


def told(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def retired(keepers: Keepers, number: int = signal.SIGINT) -> tuple[Path, dict[str, list[str]]]:
    """Let the cell of one live and end. Return its store, and what was not acknowledged."""
    one = keepers.start("one", "--replicas", 1)
    keepers.until(lambda: one.state == "serving")
    waiting = asyncio.run(past_life(uri_of(keepers.port)))
    one.end(number)
    return one.directory, waiting


async def adopted_beside(
    uri: str, store: Path, port: int, count: int
) -> "tuple[subprocess.CompletedProcess[str], list[Message]]":
    """Adopt a store beside a consumer of PRICES. Return the result, and what the consumer gets."""
    async with ConnectionFactory(uri, client_id="prices").create_context(SessionMode.CLIENT_ACKNOWLEDGE) as context:
        consumer = await context.create_durable_consumer(PRICES, "prices")
        done = await asyncio.to_thread(adopt, store, port)
        found = [await consumer.receive(timeout=5) for _ in range(count)]
        await context.acknowledge()
        return done, [message for message in found if message is not None]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_retired_cell_of_one(cell_of_one: Keepers, cell_of_today: Keepers, number: int) -> None:
    port, uri = cell_of_one.port, uri_of(cell_of_one.port)
    store, waiting = retired(cell_of_one, number)

    counted = told(adopt(store, port, "--dry-run", "--json"))
    left = MESSAGES + URGENT - ACKED
    now = PRICES_SENT + DUE
    assert counted["waiting"] == left + now
    orders, prices = counted["topics"]
    assert (orders["name"], orders["subscriptions"], orders["expired"]) == (ORDERS.name, ["audit", "desk"], 0)
    assert (prices["messages"], prices["expired"], prices["later"]) == (now, 10, LATER)

    assert adopt(store, port).returncode == 1  # no cell
    start_three(cell_of_today)
    asyncio.run(subscribed(uri, "new"))
    first = adopt(store, port, "--json")
    assert first.returncode == 1
    assert told(first)["adopted"] == left
    assert (told(first)["unwanted"], told(first)["unwanted_topics"]) == (now, [PRICES.name])

    second, got = asyncio.run(adopted_beside(uri, store, port, now))
    assert second.returncode == 1, second.stderr
    assert f"{LATER} messages left: not due yet" in second.stderr
    total = left + now
    assert f"{total} messages adopted, {now} by this run" in second.stderr, second.stderr
    third = told(adopt(store, port, "--json"))
    assert (third["adopted"], third["added"]) == (total, 0)

    check_orders(asyncio.run(subscribed(uri, "new", MESSAGES)), waiting)
    ids = [message.message_id for message in got]
    assert [each for each in ids if each not in waiting["due"]] == waiting["prices"]
    assert [each for each in ids if each in waiting["due"]] == waiting["due"]
    assert {message.delivery_count for message in got} == {2}
    assert asyncio.run(subscribed(uri, "prices", 1, PRICES)) == []


def killed(directory: Path, port: int, random: Random) -> int:
    """Adopt, and kill it at a moment after it has made its plan. Return its exit code; it may have ended before."""
    plan = directory.with_name(f"{directory.name}.adopted") / "plan"
    before = plan.stat().st_mtime_ns if plan.exists() else 0
    arguments = command("adopt", directory, "--uri", uri_of(port))
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends_at = time.monotonic() + ADOPT_S
        while process.poll() is None and not (plan.exists() and plan.stat().st_mtime_ns > before):
            assert time.monotonic() < ends_at
            time.sleep(0.002)
        time.sleep(random.uniform(0, 0.4))
    finally:
        process.kill()
        code = process.wait(10)
    return code


def faults_of(numbers: list[int]) -> list[str]:
    """Return where numbers do not follow each other."""
    expected, faults = ACKED, []
    for number in numbers:
        if number != expected:
            faults.append(f"{number}, expected {expected}")
        expected = number + 1
    return faults


@pytest.mark.parametrize("seed", [1, 2])
def test_an_adoption_that_is_killed_again_and_again(cell_of_one: Keepers, cell_of_today: Keepers, seed: int) -> None:
    random, port, uri = Random(seed), cell_of_one.port, uri_of(cell_of_one.port)
    one = cell_of_one.start("one", "--replicas", 1, "--store-bytes", "256MiB")
    cell_of_one.until(lambda: one.state == "serving")
    asyncio.run(subscribed(uri, "desk"))
    asyncio.run(publish(uri, ORDERS, MANY))
    asyncio.run(subscribed(uri, "desk", ACKED))
    one.end(signal.SIGKILL)

    start_three(cell_of_today, "--store-bytes", "256MiB")
    asyncio.run(subscribed(uri, "new"))
    codes = [killed(one.directory, port, random) for _ in range(5)]
    assert -signal.SIGKILL in codes
    last = adopt(one.directory, port)
    assert last.returncode == 0, last.stderr
    got = asyncio.run(subscribed(uri, "new", MANY))
    numbers = [int(message.get_body(str)) for message in got]
    assert faults_of(numbers) == []
    assert numbers[-1] == MANY - 1
    assert all(message.redelivered for message in got)


def test_a_cell_that_lost_a_conflict(cell_of_one: Keepers, cell_of_today: Keepers) -> None:
    port, uri = cell_of_one.port, uri_of(cell_of_one.port)
    store, waiting = retired(cell_of_one)
    three = start_three(cell_of_today)
    one = cell_of_one.start("one", "--replicas", 1)
    cell_of_one.until(lambda: one.state == "stranded")
    assert adopt(store, port).returncode == 3  # it is in use
    one.end(signal.SIGINT)

    asyncio.run(subscribed(uri, "new"))
    assert adopt(store, port).returncode == 1  # prices wait for a subscription
    check_orders(asyncio.run(subscribed(uri, "new", MESSAGES)), waiting)

    follower = next(each for each in three if each.state == "follower")
    follower.end(signal.SIGINT)
    refused = adopt(follower.directory, port)
    assert refused.returncode == 1
    assert "which the store belongs to" in refused.stderr


def test_stores_and_folders_that_cannot_be_used(cell_of_one: Keepers, tmp_path: Path) -> None:
    store, port = cell_of_one.folder / "one", cell_of_one.port
    (tmp_path / "empty").mkdir()
    nothing = adopt(tmp_path / "empty", port)
    assert nothing.returncode == 1
    assert "expected the directory of a store" in nothing.stderr
    (tmp_path / "file").write_text("")
    strange = adopt(store, port, "--dry-run", "--journal", tmp_path / "file" / "x")
    assert strange.returncode == 1
    assert "expected the plan of an adoption" in strange.stderr

    segment = store / "segment-0"
    with segment.open("r+b") as file:
        file.seek(FIRST_BATCH + 20)
        file.write(bytes(8))
    damaged = adopt(store, port, "--dry-run")
    assert damaged.returncode == 4, damaged.stderr
    assert adopt(store, port, "--dry-run", "--accept-loss").returncode == 0
    assert sorted(os.listdir(cell_of_one.folder)) == ["one"]
