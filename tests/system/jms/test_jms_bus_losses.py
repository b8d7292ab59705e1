"""Tests of buses whose processes die, and of buses over a network that loses datagrams."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import pytest
from buses import (
    TOPIC,
    Node,
    flood,
    node,
    run_on,
    soon,
    uri,
)
from netns import Namespace, Network

from fjm2.bus import transactions
from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.reports import (
    NotConfirmed,
    SenderLost,
    SubscriberEvicted,
    TransactionDropped,
)
from fjm2.uri import BusConfig

pytestmark = pytest.mark.calm


# Processes that die.


CHILD = textwrap.dedent(
    """
    import asyncio, sys
    from fjm2.jms import TextMessage, Topic
    from fjm2.bus.bus import BUS_DEFAULTS, Bus
    from fjm2.bus.confirmation import Confirmation
    from fjm2.bus.publication import Publication
    from fjm2.messages.frame import FrameWriter, seal
    from fjm2.messages.header import Transaction
    from fjm2.uri import BusConfig

    class Subscriber:
        destination, selector, left_out, is_full = Topic("prices.eu"), None, None, False
        def deliver(self, received):
            pass
        def miss(self, header, loss):
            pass

    async def main(uri, role):
        bus = await Bus.open(BusConfig.from_uri(uri, BUS_DEFAULTS))
        subscribers = [Subscriber()] if role == "subscriber" else []
        for subscriber in subscribers:
            bus.router.add(subscriber)
        bus.announce(1, "child", {subscriber.destination.frame_hash for subscriber in subscribers})
        await bus.ready()
        if role == "publisher":
            writer, topic = FrameWriter(1), Subscriber.destination
            publication = Publication(bus.publisher, Confirmation(bus, print))
            for place in range(2):
                parts = seal(writer.write(TextMessage("never"), topic, 0, 4, 0), Transaction(1, place, 3))
                publication.publish(topic, 4, parts)
            publication.publish(topic, 4, writer.write(TextMessage("done"), topic, 0, 4, 0))
        print(bus.node_id, flush=True)
        await asyncio.sleep(60)

    asyncio.run(main(*sys.argv[1:]))
    """
)


@contextlib.contextmanager
def child(port: int, role: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start another process with a bus, yield the process and its node id, and kill the process in the end."""
    command = [sys.executable, "-c", CHILD, uri(port), role]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.kill()


def test_a_dead_subscriber_holds_up_neither_the_others_nor_the_end(port: int) -> None:
    async def main() -> None:
        with child(port, "subscriber") as (process, dead_id):
            async with node(port) as receiving:
                subscriber = receiving.subscribe()
                await receiving.bus.ready()
                config = BusConfig.from_uri(uri(port, window_bytes="256KiB", stream_bytes="512KiB"), BUS_DEFAULTS)
                sending = Node(await Bus.open(config), 5)
                sending.announce()
                await sending.bus.ready()
                assert sending.bus.subscribers(TOPIC) == 2
                await flood(sending, 10)
                assert await sending.bus.confirmed() == frozenset()
                process.kill()
                process.wait()
                flooding = asyncio.create_task(flood(sending, 5_000))
                await asyncio.sleep(0.1)
                assert not flooding.done()  # the send window is full, and the dead one is still waited for
                flooding.cancel()
                began = time.monotonic()
                outcome = await sending.bus.close()
                assert time.monotonic() - began < 2.1
                assert isinstance(outcome, NotConfirmed)
                assert outcome.nodes == {dead_id}
                assert outcome.unsent_bytes == 0
                assert sending.all(NotConfirmed) == [outcome]
                await asyncio.sleep(0.1)
                numbers = [int(text) for text in subscriber.texts[10:]]
                assert numbers == list(range(len(numbers)))
                assert len(numbers) > 300  # the sender had accepted that many at least
                assert not receiving.reports

    run_on("asyncio", main())


@pytest.mark.parametrize("is_refreshed", [False, True], ids=["idle", "refreshed"])
def test_a_subscriber_that_dies_after_it_confirmed_everything_is_not_reported(port: int, is_refreshed: bool) -> None:
    async def main() -> None:
        with child(port, "subscriber") as (process, dead_id):
            sending = Node(await Bus.open(BusConfig.from_uri(uri(port), BUS_DEFAULTS)), 5)
            sending.announce()
            await sending.bus.ready()
            await flood(sending, 10)
            assert await sending.bus.confirmed() == frozenset()
            lane = sending.bus.lanes.first
            assert dead_id in lane.confirmed_upto
            process.kill()
            process.wait()
            if is_refreshed:
                async with node(port) as newcomer:
                    await newcomer.bus.ready()
                    await soon(lambda: lane.refreshes)
            assert await sending.bus.close() is None
            assert not sending.all(NotConfirmed)

    run_on("asyncio", main())


@pytest.mark.parametrize("is_refreshed", [False, True], ids=["idle", "refreshed"])
def test_a_subscriber_that_dies_before_the_last_message_is_reported_by_the_close(port: int, is_refreshed: bool) -> None:
    async def main() -> None:
        with child(port, "subscriber") as (process, dead_id):
            sending = Node(await Bus.open(BusConfig.from_uri(uri(port), BUS_DEFAULTS)), 5)
            sending.announce()
            await sending.bus.ready()
            await flood(sending, 10)
            assert await sending.bus.confirmed() == frozenset()
            process.kill()
            process.wait()
            await flood(sending, 1)
            if is_refreshed:
                async with node(port) as newcomer:
                    await newcomer.bus.ready()
                    await soon(lambda: sending.bus.lanes.first.refreshes)
            outcome = await sending.bus.close()
            assert isinstance(outcome, NotConfirmed)
            assert outcome.nodes == {dead_id}

    run_on("asyncio", main())


def test_a_dead_subscriber_is_waited_for_only_so_long(port: int) -> None:
    async def main() -> None:
        small = {"window_bytes": "256KiB", "stream_bytes": "512KiB", "ack_timeout_s": 0.5}
        with child(port, "subscriber") as (process, dead_id):
            async with node(port, **small) as sending, node(port) as receiving:
                subscriber = receiving.subscribe()
                await asyncio.gather(receiving.bus.ready(), sending.bus.ready())
                os.kill(process.pid, signal.SIGSTOP)
                async with asyncio.timeout(5):
                    await flood(sending, 3_000)
                    await subscriber.until(3_000)
                await soon(lambda: sending.reports)
                (report,) = sending.reports
                assert isinstance(report, SubscriberEvicted)
                assert (report.node_id, report.lane) == (dead_id, 0)
                assert report.client_id is not None
                assert str(report).startswith(f"{report.client_id!r} at 127.0.0.1 is silent")
                assert sending.bus.lanes.session.receivers == {receiving.bus.node_id}
                sending.bus.membership.receivers.update()
                assert sending.bus.lanes.session.receivers == {receiving.bus.node_id}
                assert await sending.bus.confirmed() == {dead_id}

    run_on("asyncio", main())


def test_a_publisher_that_dies_is_reported_and_its_transaction_dropped(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "SILENT_S", 0.1)

    async def main() -> None:
        async with node(port, inactivity_s=1.0) as receiving:
            subscriber = receiving.subscribe()
            await receiving.bus.ready()
            await asyncio.sleep(1.1)
            with child(port, "publisher") as (process, dead_id):
                await subscriber.until(1)
                process.kill()
                process.wait()
                await soon(lambda: receiving.all(SenderLost))
                (lost,) = receiving.all(SenderLost)
                assert (lost.sender_id, lost.lane, lost.client_id) == (dead_id, 0, "child")
                await soon(lambda: receiving.all(TransactionDropped))
                (dropped,) = receiving.all(TransactionDropped)
                assert (dropped.number, dropped.received, dropped.size) == (1, 2, 3)
                assert subscriber.texts == ["done"]

    run_on("asyncio", main())


# Losses.


@contextlib.contextmanager
def lossy(network: Network, probability: float) -> Iterator[tuple[Namespace, Namespace]]:
    left, right = network.namespace(), network.namespace()
    network.link(left, right)
    for namespace in (left, right):
        namespace.cut_trains("veth0")
        namespace.lose(probability)
    yield left, right


def on_veth(port: int, **settings: object) -> BusConfig:
    return BusConfig.from_uri(uri(port, interface="veth0", ttl=1, **settings), BUS_DEFAULTS)


@pytest.mark.root
def test_the_first_message_arrives_too_over_a_very_lossy_network(network: Network, port: int) -> None:
    """The subscriber starts before the publisher, so it must get every message once."""

    async def main() -> None:
        with lossy(network, 0.2) as (left, right):
            with left.entered():
                receiving = Node(await Bus.open(on_veth(port)), 1)
            subscriber = receiving.subscribe()
            await receiving.bus.ready()
            for number in range(8):
                with right.entered():
                    bus = await Bus.open(on_veth(port, inactivity_s=60 + number))
                sending = Node(bus, 10 + number)
                sending.announce()
                await sending.bus.ready()
                for place in range(100):
                    await sending.publish(f"{number}.{place}")
                await subscriber.until(100 * (number + 1))
                await bus.close()
            assert subscriber.texts == [f"{number}.{place}" for number in range(8) for place in range(100)]
            assert not receiving.reports
            await receiving.bus.close()

    run_on("asyncio", main())


@pytest.mark.root
def test_nothing_is_lost_over_a_lossy_network(network: Network, port: int) -> None:
    async def main() -> None:
        with lossy(network, 0.02) as (left, right):
            with left.entered():
                receiving = Node(await Bus.open(on_veth(port)), 1)
            with right.entered():
                sending = Node(await Bus.open(on_veth(port, inactivity_s=60)), 2)
                sending.announce()
            subscriber = receiving.subscribe()
            await asyncio.gather(receiving.bus.ready(), sending.bus.ready())
            count = 10_000
            async with asyncio.timeout(30):
                with right.entered():  # a lane's socket is opened when the lane is first used
                    await sending.publish("urgent", 9)
                await flood(sending, count)
                assert await sending.bus.confirmed() == frozenset()
            await subscriber.until(count + 1)
            texts = subscriber.texts
            texts.remove("urgent")
            assert [int(text) for text in texts] == list(range(count))
            assert sending.bus.lanes.session.stats.nacks_received
            assert not receiving.reports
            await sending.bus.close()
            await receiving.bus.close()

    run_on("asyncio", main())
