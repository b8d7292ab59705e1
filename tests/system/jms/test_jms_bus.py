"""Buses on real sockets: lanes, presence, flow control, losses and closing, in one process and in several."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from netns import Namespace, Network

from fjm2.bus import transactions
from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.confirmation import Confirmation
from fjm2.bus.lane import DSCP_OF_LANE, LANE_OF_PRIORITY
from fjm2.bus.publication import Publication
from fjm2.bus.reports import (
    BusReport,
    BytesLost,
    ClientIdDuplicated,
    NotConfirmed,
    SenderLost,
    SubscriberEvicted,
    TransactionDropped,
)
from fjm2.bus.router import Received
from fjm2.jms import IllegalStateError, TextMessage, Topic
from fjm2.jms.selector import Selector
from fjm2.messages.frame import FrameWriter, seal
from fjm2.messages.header import Transaction
from fjm2.messages.message import open_message
from fjm2.norm import Flow, Sync
from fjm2.norm.net import event_queue
from fjm2.uri import BusConfig

pytestmark = pytest.mark.calm

GROUP = "239.192.57.98"
DEADLINE_S = 10.0
TOPIC, OTHER_TOPIC = Topic("prices.eu"), Topic("weather")


class Subscriber:
    """Keeps the received messages. Full once it has `most` of them."""

    def __init__(self, destination: Topic = TOPIC) -> None:
        self.destination = destination
        self.selector: Selector | None = None
        self.left_out: int | None = None
        self.most = 1 << 30
        self.received: list[Received] = []

    @property
    def is_full(self) -> bool:
        return len(self.received) >= self.most

    def deliver(self, received: Received) -> None:
        self.received.append(received)

    @property
    def texts(self) -> list[str]:
        return [str(open_message(each.head, each.body, each.header).get_body(str)) for each in self.received]

    async def until(self, count: int) -> list[str]:
        await soon(lambda: len(self.received) >= count, lambda: f"{len(self.received)} of {count}")
        return self.texts


class Node:
    """A bus with one connection, and the bus's reports."""

    def __init__(self, bus: Bus, connection: int) -> None:
        self.bus = bus
        self.reports: list[BusReport] = []
        self.connection = connection
        self.writer = FrameWriter(connection)
        self.publication = Publication(bus.publisher, Confirmation(bus, lambda _: None))
        self._subscribers: list[Subscriber] = []
        bus.add_listener(self.reports.append)

    def subscribe(self, destination: Topic = TOPIC) -> Subscriber:
        subscriber = Subscriber(destination)
        self._subscribers.append(subscriber)
        self.bus.router.add(subscriber)
        self.announce()
        return subscriber

    def announce(self, client_id: str | None = None) -> None:
        self.bus.announce(self.connection, client_id, {each.destination.frame_hash for each in self._subscribers})

    async def publish(
        self, text: str, priority: int = 4, destination: Topic = TOPIC, transaction: Transaction | None = None
    ) -> None:
        parts = self.writer.write(TextMessage(text), destination, 0, priority, 0)
        if transaction is not None:
            parts = seal(parts, transaction)
        waiting = self.publication.publish(destination, priority, parts)
        if waiting is not None:
            await waiting

    def all(self, kind: type[BusReport]) -> list[Any]:
        return [report for report in self.reports if isinstance(report, kind)]


async def soon(is_true: Callable[[], object], told: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        if time.monotonic() > deadline:
            pytest.fail(f"did not happen: {told()}")
        await asyncio.sleep(0.005)


def uri(port: int, **settings: object) -> str:
    settings = {"interface": "127.0.0.1", "ttl": 0, "grtt_s": 0.002} | settings
    return f"fjm2://{GROUP}:{port}?{'&'.join(f'{name}={value}' for name, value in settings.items())}"


_connections = iter(range(1000, 1 << 30))


@contextlib.asynccontextmanager
async def node(port: int, **settings: object) -> AsyncIterator[Node]:
    """Open a separate bus. Buses of one event loop are separate only if a setting differs."""
    connection = next(_connections)
    config = BusConfig.from_uri(uri(port, **{"inactivity_s": 50 + connection % 1000} | settings), BUS_DEFAULTS)
    bus = await Bus.open(config)
    made = Node(bus, connection)
    made.announce()
    try:
        yield made
    finally:
        bus.withdraw(connection)
        began = time.monotonic()
        await bus.close()
        assert time.monotonic() - began < 2.2


def on(*loops: str) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Run a coroutine function as a test on each loop, asyncio's or uvloop. Errors in callbacks fail the test."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @pytest.mark.parametrize("loop", loops)
        def run(loop: str, port: int) -> None:
            run_on(loop, test(port))

        return run

    return decorate


def run_on(loop: str, main: Coroutine[Any, Any, None]) -> None:
    troubles: list[dict[str, Any]] = []
    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().set_exception_handler(lambda _, trouble: troubles.append(trouble))
        runner.run(main)
    assert not troubles


# Settings.


def test_a_bus_waits_for_its_subscribers_unless_told_otherwise() -> None:
    config = BusConfig.from_uri("fjm2://", BUS_DEFAULTS)
    assert config.sender.flow is Flow.MIN
    assert config.sender.rate_bps is None
    assert config.receiver.sync is Sync.CURRENT
    told = BusConfig.from_uri("fjm2://?flow=max&rate=10mbit&sync=all&window_bytes=1MiB", BUS_DEFAULTS)
    assert told.sender.flow is Flow.MAX
    assert told.sender.rate_bps == 10e6
    assert told.sender.window_bytes == 1 << 20
    assert told.receiver.sync is Sync.ALL
    assert BusConfig.from_uri(config.to_uri()) == config


@on("asyncio", "uvloop")
async def test_a_bus_is_shared_by_its_users(port: int) -> None:
    config = BusConfig.from_uri(uri(port), BUS_DEFAULTS)
    one, other = await Bus.open(config), await Bus.open(config)
    assert one is other
    apart = await Bus.open(BusConfig.from_uri(uri(port, dscp=1), BUS_DEFAULTS))
    assert apart is not one
    await apart.close()
    first, second = Node(one, 1), Node(other, 2)
    subscriber = second.subscribe()
    await other.close()
    await first.publish("still open")
    assert subscriber.texts == ["still open"]
    assert subscriber.received[0].sender_id == one.node_id
    await one.close()
    with pytest.raises(IllegalStateError):
        await first.publish("closed")
    again = await Bus.open(config)
    assert again is not one
    await again.close()


# Lanes.


@on("asyncio", "uvloop")
async def test_messages_of_all_priorities_arrive_once_each_lane_in_order(port: int) -> None:
    async with node(port) as receiving, node(port) as sending:
        subscriber, own = receiving.subscribe(), sending.subscribe()
        await asyncio.gather(receiving.bus.ready(), sending.bus.ready())
        sent = [(f"{number}", number % 10) for number in range(5000)]
        for text, priority in sent:
            await sending.publish(text, priority)
        assert own.texts == [text for text, _ in sent]
        await subscriber.until(len(sent))
        assert await sending.bus.confirmed() == frozenset()
        await asyncio.sleep(0.05)
        assert len(subscriber.received) == len(own.received) == len(sent)
        for lane in range(3):
            wanted = [text for text, priority in sent if LANE_OF_PRIORITY[priority] == lane]
            texts = [each for each in subscriber.texts if LANE_OF_PRIORITY[int(each) % 10] == lane]
            assert texts == wanted
        senders = {each.sender_id for each in subscriber.received}
        assert len(senders) == 3
        lanes = sending.bus.lanes.all
        assert senders == {lane.node_id for lane in lanes}
        assert [lane.session.udp_config.dscp for lane in lanes] == list(DSCP_OF_LANE)
        assert {lane.node_id for lane in receiving.bus.lanes.all[1:]}.isdisjoint(senders)
        assert not receiving.reports
        assert not sending.reports


@on("asyncio")
async def test_a_full_low_lane_delays_no_high_one(port: int) -> None:
    small = {"rate": "2mbit", "stream_bytes": "64KiB", "block_segments": 4}
    async with node(port) as receiving, node(port, **small) as sending:
        subscriber = receiving.subscribe()
        await asyncio.gather(receiving.bus.ready(), sending.bus.ready())
        await flood(sending, 300)
        await subscriber.until(20)
        began = time.monotonic()
        await sending.publish("urgent", 9)
        await soon(lambda: "urgent" in subscriber.texts)
        assert time.monotonic() - began < 0.3
        assert sending.bus.lanes.all[0].pending_bytes > 100_000
        await subscriber.until(301)


async def flood(sending: Node, count: int, size: int = 1000) -> None:
    for number in range(count):
        await sending.publish(f"{number:0{size}}")


# Beginning.


@on("asyncio", "uvloop")
async def test_who_comes_late_gets_what_is_sent_from_then_on(port: int) -> None:
    async with node(port) as sending:
        for number in range(500):
            await sending.publish(f"old {number}", number % 10)
        await sending.bus.flushed()
        async with node(port) as late:
            subscriber = late.subscribe()
            began = time.monotonic()
            await late.bus.ready()
            assert time.monotonic() - began < 0.9  # not because of the timeout
            for number in range(100):
                await sending.publish(f"new {number}", number % 10)
            await subscriber.until(100)
            assert sorted(subscriber.texts) == sorted(f"new {number}" for number in range(100))
            began = time.monotonic()
            await late.bus.ready()
            assert time.monotonic() - began < 0.02
            assert not late.reports


@on("uvloop")
async def test_alone_one_is_ready_as_well(port: int) -> None:
    async with node(port) as alone:
        alone.subscribe()
        began = time.monotonic()
        await alone.bus.ready()
        assert time.monotonic() - began < 0.5


# Presence and flow control.


@on("asyncio")
async def test_publishers_know_their_subscribers(port: int) -> None:
    async with node(port) as sending, node(port) as one, node(port) as stranger:
        one.subscribe()
        stranger.subscribe(OTHER_TOPIC)
        await asyncio.gather(sending.bus.ready(), one.bus.ready(), stranger.bus.ready())
        assert sending.bus.subscribers(TOPIC) == 1
        assert sending.bus.subscribers(Topic("nobody's")) == 0
        await flood(sending, 3000)
        await asyncio.sleep(0.6)  # by then, all have answered a probe
        session = sending.bus.lanes.session
        assert session.receivers == {one.bus.node_id}
        await sending.publish("rain", 4, OTHER_TOPIC)
        await soon(lambda: session.receivers == {one.bus.node_id, stranger.bus.node_id})
        one.bus.withdraw(one.connection)
        await soon(lambda: session.receivers == {stranger.bus.node_id})
        assert sending.bus.subscribers(TOPIC) == 0


@on("uvloop")
async def test_a_client_id_that_is_in_use_elsewhere_is_reported_once(port: int) -> None:
    async with node(port) as one, node(port) as other:
        one.announce("desk 7")
        other.announce("desk 7")
        await soon(lambda: one.reports and other.reports)
        other.bus.membership.announcer.now()
        await asyncio.sleep(0.1)
        assert one.reports == [ClientIdDuplicated("desk 7", other.bus.node_id)]


@on("asyncio")
async def test_an_idle_bus_is_nearly_silent(port: int) -> None:
    async with node(port) as idle, node(port) as other:
        idle.subscribe()
        await idle.publish("something")
        await asyncio.gather(idle.bus.ready(), other.bus.ready())
        await asyncio.sleep(1.0)
        sent = idle.bus.lanes.session.stats.datagrams_sent
        used = time.process_time()
        await asyncio.sleep(2.0)
        assert idle.bus.lanes.session.stats.datagrams_sent - sent < 10
        assert time.process_time() - used < 0.1


@on("uvloop")
async def test_a_full_subscription_holds_the_sender_back_and_loses_nothing(port: int) -> None:
    async with node(port) as receiving, node(port, window_bytes="1MiB", stream_bytes="1MiB") as sending:
        subscriber = receiving.subscribe()
        subscriber.most = 100
        await asyncio.gather(receiving.bus.ready(), sending.bus.ready())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(event_queue, "EVENT_BYTES_MAX", 1 << 20)
            flooding = asyncio.create_task(flood(sending, 20_000))
            await subscriber.until(100)
            await asyncio.sleep(0.7)
            assert not flooding.done()
            assert len(subscriber.received) < 1000  # at most one run more
            subscriber.most = 1 << 30
            receiving.bus.router.resume()
            async with asyncio.timeout(10):
                await flooding
        await subscriber.until(20_000)
        assert [int(text) for text in subscriber.texts] == list(range(20_000))
        assert not receiving.reports
        assert not sending.reports


@on("asyncio")
async def test_publishing_to_a_full_subscription_of_the_same_process_is_slowed_down(port: int) -> None:
    async with node(port) as both:
        subscriber = both.subscribe()
        subscriber.most = 10
        began = time.monotonic()
        await flood(both, 9)
        assert time.monotonic() - began < 0.5
        waiting = asyncio.create_task(flood(both, 1))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        subscriber.received.clear()
        both.bus.router.resume()
        await asyncio.wait_for(waiting, 0.5)


@on("uvloop")
async def test_a_receiver_that_is_too_slow_is_told_what_it_lost(port: int) -> None:
    slow_at = {"flow": "max", "stream_bytes": "128KiB", "rate": "400mbit"}
    async with node(port, stream_bytes_max="64KiB") as receiving, node(port, **slow_at) as sending:
        subscriber, second = receiving.subscribe(), receiving.subscribe(OTHER_TOPIC)
        await asyncio.gather(receiving.bus.ready(), sending.bus.ready())
        await flood(sending, 10)
        await subscriber.until(10)
        subscriber.most = 10
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(event_queue, "EVENT_BYTES_MAX", 100_000)
            await flood(sending, 3000)
            await sending.bus.flushed()
            await asyncio.sleep(0.1)
            subscriber.most = 1 << 30
            receiving.bus.router.resume()
            await sending.publish("the end")
            await sending.publish("on another topic", 4, OTHER_TOPIC)
            await second.until(1)
        losses = receiving.all(BytesLost)
        assert losses
        assert {loss.sender_id for loss in losses} == {sending.bus.node_id}
        assert {loss.lane for loss in losses} == {0}
        first = losses[0]
        assert first.start > 10_000
        assert first.end is not None
        assert first.end > first.start
        assert 1 <= [each.has_gap for each in subscriber.received].count(True) <= len(losses)
        assert not any(each.has_gap for each in subscriber.received[:10])
        assert second.received[0].has_gap


# Transactions.


@on("asyncio", "uvloop")
async def test_a_transaction_over_all_lanes_arrives_whole_and_in_order(port: int) -> None:
    async with node(port) as receiving, node(port) as sending:
        subscriber = receiving.subscribe()
        await asyncio.gather(receiving.bus.ready(), sending.bus.ready())
        for number in range(20):
            for place in range(100):
                await sending.publish(f"{number}.{place}", place % 10, transaction=Transaction(number, place, 100))
        await subscriber.until(2000)
        assert subscriber.texts == [f"{number}.{place}" for number in range(20) for place in range(100)]


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
    """Another process with a bus, and its node id; killed in the end."""
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
                await asyncio.sleep(0.3)
                assert not flooding.done()  # the send window is full
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
                assert len(numbers) > 300  # all messages that had been accepted
                assert not receiving.reports

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
                (report,) = sending.reports
                assert isinstance(report, SubscriberEvicted)
                assert (report.node_id, report.lane) == (dead_id, 0)
                assert report.client_id is not None
                assert str(report).startswith(f"{report.client_id!r}, receiver {dead_id:#x} is silent")
                assert sending.bus.lanes.session.receivers == {receiving.bus.node_id}
                sending.bus.membership.receivers.update()
                assert sending.bus.lanes.session.receivers == {receiving.bus.node_id}
                assert await sending.bus.confirmed() == {dead_id}

    run_on("asyncio", main())


def test_a_publisher_that_dies_is_reported_and_its_transaction_dropped(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_DOUBTFUL_S", 0.1)

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
def test_the_first_message_arrives_as_well_where_the_network_loses_much(network: Network, port: int) -> None:
    """The subscriber starts before the publisher, so it must get all messages, each once."""

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
def test_nothing_is_lost_where_the_network_loses_some(network: Network, port: int) -> None:
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
                with right.entered():  # lanes are opened when they are first used
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
