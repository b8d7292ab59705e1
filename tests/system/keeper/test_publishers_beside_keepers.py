"""Publishers of topics that nobody stores: keepers are no subscribers, and their death costs nothing."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from keepers import DEADLINE_S, KeeperProcess, Keepers, start_three, uri_of
from representatives import representatives

from fjm2.jms import BytesMessage, ConnectionFactory, Topic

PATIENCE_S, ROUND_TRIPS, NOTICED_S = 0.2, 4, 0.1
"""Time for which a receiver that is gone holds others up, as documented: 0.2 s, or four round trips if these are
longer. It takes a little until that is seen."""
TOPIC = Topic("prices")


def arguments(name: str, *rest: object) -> tuple[str, ...]:
    return (sys.executable, "-W", "error", "-m", "fjm2", name, *map(str, rest))


def ended(port: int, name: str, *rest: object) -> "subprocess.CompletedProcess[str]":
    """Run a command of `fjm2` to its end."""
    environment = os.environ | {"FJM2_URI": uri_of(port)}
    return subprocess.run(
        arguments(name, *rest), capture_output=True, text=True, timeout=DEADLINE_S, env=environment, check=False
    )


@pytest.fixture
def three(cell_of_three: Keepers) -> Iterator[list[KeeperProcess]]:
    """Yield the keepers of a cell that serves."""
    keepers = start_three(cell_of_three)
    yield keepers
    for keeper in keepers:
        if keeper.popen.poll() is None:
            keeper.popen.send_signal(signal.SIGCONT)


@pytest.mark.calm
@pytest.mark.usefixtures("three")
def test_keepers_are_no_subscribers(port: int) -> None:
    published = ended(port, "pub", "nobody.listens", "hello")
    assert published.returncode == 0
    assert published.stderr.endswith("; no known subscribers\n")
    asked = ended(port, "request", "nobody.listens", "hello", "--timeout", "1s")
    assert "no subscriber of it is known" in asked.stderr
    assert "keeper-" not in asked.stderr


@pytest.mark.calm
@pytest.mark.usefixtures("three")
def test_a_publisher_is_told_that_keepers_store_its_messages(port: int, tmp_path: Path) -> None:
    async def subscribe() -> None:
        async with ConnectionFactory(uri_of(port), client_id="desk").create_context() as context:
            await context.create_durable_consumer(TOPIC, "name")

    asyncio.run(subscribe())
    (tmp_path / "file").write_text("content")
    file = ("--file", tmp_path / "file")
    ways = (("hello",), ("hello", "--non-persistent"), (*file, "--non-persistent"))
    told = [ended(port, "pub", TOPIC.name, *way).stderr.rpartition("; ")[2] for way in ways]
    unstored = "no known subscribers\n"
    assert told == ["no known subscribers, stored by 3 keepers\n", unstored, unstored]
    refused = ended(port, "pub", TOPIC.name, *file)
    assert refused.returncode == 1
    assert "keepers do not keep files" in refused.stderr


@pytest.mark.calm
@pytest.mark.usefixtures("three")
def test_top_shows_keepers_as_keepers(port: int) -> None:
    found = json.loads(ended(port, "top", "--once", "--json", "--duration", "6s", "--topic", "prices").stdout)
    connections = found["connections"]
    assert [(one["is_keeper"], one["subscribes_to_more"]) for one in connections] == [(True, False)] * 3
    assert not any(topic["possible_subscribers"] for topic in found["topics"])


@pytest.mark.calm
@pytest.mark.parametrize("victim", representatives(["serving", "follower"], "serving"))
def test_the_death_of_a_keeper_is_no_loss_of_a_topic_that_nobody_stores(
    three: list[KeeperProcess], port: int, victim: str
) -> None:
    settings = ("--count", 1000, "--rate", 200)
    publisher = subprocess.Popen(
        arguments("pub", TOPIC.topic_name, *settings, "--uri", uri_of(port)),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(2.0)
    assert publisher.poll() is None
    assert next(each for each in three if each.state == victim).end(signal.SIGKILL) == -signal.SIGKILL
    _, said = publisher.communicate(timeout=DEADLINE_S)
    assert "not confirmed" not in said
    assert publisher.returncode == 0, said


@pytest.mark.alone
@pytest.mark.parametrize(
    ("victim", "number"),
    representatives(
        itertools.product(["serving", "follower"], [signal.SIGKILL, signal.SIGSTOP]), ("serving", signal.SIGSTOP)
    ),
)
def test_a_keeper_that_is_gone_holds_no_traffic_up(
    three: list[KeeperProcess], port: int, victim: str, number: signal.Signals
) -> None:
    """The send buffer is small, so that the publisher waits for all that it knows many times in a second."""

    round_trips: list[float] = []

    async def publish() -> tuple[float, list[float], list[float]]:
        sent: list[float] = []
        arrived: list[float] = []
        factory = ConnectionFactory(uri_of(port) + "&stream_bytes=512KiB")
        listener = ConnectionFactory(uri_of(port))
        async with factory.create_connection() as connection, listener.create_connection() as other:
            consumer = other.create_session().create_consumer(TOPIC)
            consumer.message_listener = lambda _: arrived.append(time.monotonic())
            other.start()
            producer = connection.create_session().create_producer(TOPIC)
            await other.ready()
            await connection.ready()
            session = connection._core.check_open().bus.lanes.session
            gone_at, end = time.monotonic() + 2.0, time.monotonic() + 6.0
            while (now := time.monotonic()) < end:
                if not (sent and sent[-1] >= gone_at) and now >= gone_at:
                    next(each for each in three if each.state == victim).popen.send_signal(number)
                await producer.send(BytesMessage(bytes(10_000)))
                sent.append(time.monotonic())
                round_trips.append(session.grtt_s)
                await asyncio.sleep(0.002)
        return gone_at, sent, arrived

    gone_at, sent, arrived = asyncio.run(publish())
    assert len(arrived) == len(sent)
    for times in (sent, arrived):
        pauses = [(after - before, before < gone_at - 1.0) for before, after in pairwise(times)]
        usual = max(pause for pause, is_usual in pauses if is_usual)  # on a machine that has other things to do
        patience = max(PATIENCE_S, ROUND_TRIPS * max(round_trips))
        assert max(pauses)[0] < patience + max(NOTICED_S, 2 * usual)
