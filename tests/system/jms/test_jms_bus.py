"""Tests of buses on real sockets: lanes, presence, flow control and transactions."""

import asyncio
import time

import pytest
from buses import (
    OTHER_TOPIC,
    TOPIC,
    Node,
    flood,
    node,
    on,
    soon,
    uri,
)

from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.lane import DSCP_OF_LANE, LANE_OF_PRIORITY
from fjm2.bus.reports import (
    BytesLost,
    ClientIdDuplicated,
)
from fjm2.jms import IllegalStateError, Topic
from fjm2.messages.header import Transaction
from fjm2.norm import Flow, Sync
from fjm2.norm.net import event_queue
from fjm2.uri import BusConfig

pytestmark = pytest.mark.calm


# Settings.


def test_a_bus_waits_for_its_subscribers_by_default() -> None:
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


# The beginning of a subscription.


@on("asyncio", "uvloop")
async def test_a_late_subscriber_gets_messages_sent_from_then_on(port: int) -> None:
    async with node(port) as sending:
        for number in range(500):
            await sending.publish(f"old {number}", number % 10)
        await sending.bus.flushed()
        async with node(port) as late:
            subscriber = late.subscribe()
            began = time.monotonic()
            await late.bus.ready()
            assert time.monotonic() - began < 0.9  # shows that the timeout did not end the wait
            for number in range(100):
                await sending.publish(f"new {number}", number % 10)
            await subscriber.until(100)
            assert sorted(subscriber.texts) == sorted(f"new {number}" for number in range(100))
            began = time.monotonic()
            await late.bus.ready()
            assert time.monotonic() - began < 0.02
            assert not late.reports


@on("uvloop")
async def test_a_node_alone_on_the_bus_is_ready(port: int) -> None:
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
        await asyncio.sleep(0.6)  # by then, all receivers have answered a probe
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
        assert one.reports == [ClientIdDuplicated("desk 7", other.bus.node_id, "127.0.0.1")]


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
            assert len(subscriber.received) < 1000  # it may get the rest of one run
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
async def test_a_receiver_that_is_too_slow_gets_a_report_of_its_losses(port: int) -> None:
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
        missing = 3010 + 1 - len(subscriber.received)

        def told() -> int:
            return sum(loss.details.messages for loss in receiving.all(BytesLost))

        # The losses after the first report are told a second later, in one sum.
        await soon(lambda: abs(told() - missing) <= 0.1 * missing)
        losses = receiving.all(BytesLost)
        gaps = sum(loss.gaps for loss in losses)
        assert {loss.sender_id for loss in losses} == {sending.bus.node_id}
        assert {loss.lane for loss in losses} == {0}
        first = losses[0]
        assert first.start > 10_000
        assert first.end is not None
        assert first.end > first.start
        assert (
            str(first)
            .split(" got lost ")[0]
            .endswith(f" messages of a program without client id at 127.0.0.1 (node {sending.bus.node_id:#010x})")
        )
        assert f"(it sends to {TOPIC})" in str(first)
        assert abs(told() - missing) <= max(0.1 * missing, gaps)
        assert 1 <= [each.has_gap for each in subscriber.received].count(True) <= gaps
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
