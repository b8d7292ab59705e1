"""Tests of a bus observed from outside. The report must agree with what was sent."""

import dataclasses
import json
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sightings import PARITY_FTI, Node, train

from fjm2.bus.presence import Flag
from fjm2.cell.outgoing import State
from fjm2.jms import Queue, TemporaryTopic, Topic
from fjm2.keeper.status import KeeperStatus, StatusFlag
from fjm2.norm import Train
from fjm2.norm.core.quantize import rtt_of
from fjm2.norm.core.wire import ObjectFlag
from fjm2.watch import BusWatch, known_as
from fjm2.watch.answers import RECEIVERS_MAX
from fjm2.watch.senders import SENDERS_MAX
from fjm2.watch.topics import TOPICS_MAX

FEED, DESK = 0xFEED, 0xDE5C


def watch_of(*names: str) -> BusWatch:
    return BusWatch(known_as(names), now=0.0)


# Connections.


def test_connections_are_reported_as_announced() -> None:
    watch = watch_of()
    desk = Node(7, watch, host="10.0.0.7", port=77)
    desk.announce(DESK, 1.0, client_id="desk", topics=frozenset((Topic("prices").frame_hash,)))
    desk.announce(0xABC, 2.0, flags=Flag.WANTS_ALL)
    named, nameless = sorted(watch.report(5.0).connections, key=lambda one: one.label, reverse=True)
    assert (named.label, named.node_id, named.address, named.seen_s) == ("desk", 7, "10.0.0.7:77", 4.0)
    assert named.subscriptions == (f"#{Topic('prices').frame_hash:08x}",)
    assert (nameless.label, nameless.seen_s) == ("0000000000000abc", 3.0)
    assert nameless.subscribes_to_more
    assert not named.subscribes_to_more


def test_connections_that_leave_or_fall_silent_are_removed() -> None:
    watch = watch_of()
    Node(7, watch).announce(DESK, 0.0, valid_s=15)
    leaver = Node(8, watch)
    leaver.announce(FEED, 0.0, client_id="feed")
    leaver.publish(FEED, 3, 1.0)
    assert [topic.publishers for topic in watch.report(2.0).topics] == [("feed",)]
    leaver.announce(FEED, 3.0, flags=Flag.GOODBYE)
    report = watch.report(4.0)
    assert [one.node_id for one in report.connections] == [7]
    assert [topic.publishers for topic in report.topics] == [()]
    assert [one.owner for one in report.senders] == ["feed"]  # it has sent the messages that are shown
    assert watch.report(15.1).connections == ()
    assert watch.report(64.0).senders == ()


def test_forged_announcements_are_refused() -> None:
    watch = watch_of()
    Node(7, watch).announce(DESK, 0.0, client_id="desk")
    Node(8, watch).announce(DESK, 1.0, client_id="thief", flags=Flag.GOODBYE)
    Node(8, watch).announce(DESK, 1.0, client_id="thief")
    assert [(one.client_id, one.node_id) for one in watch.report(2.0).connections] == [("desk", 7)]
    assert watch.label_of(DESK) == "desk"


# Messages.


def test_messages_are_counted_by_topic_and_sender() -> None:
    watch = watch_of()
    feed, desk = Node(5, watch), Node(7, watch)
    feed.announce(FEED, 0.0, client_id="feed", lanes=(5, 6, 0))
    desk.announce(DESK, 0.0, client_id="desk", topics=frozenset((Topic("prices").frame_hash,)))
    feed.publish(FEED, 20, 1.0)
    Node(6, watch).publish(FEED, 5, 1.0, topic="alarms")
    report = watch.report(2.0)
    assert {one.label: (one.messages, one.messages_per_s) for one in report.topics} == {
        "prices": (20, 10.0),
        "alarms": (5, 2.5),
    }
    prices = report.topics[0]
    assert (prices.publishers, prices.subscribers) == (("feed",), ("desk",))
    assert {(one.node_id, one.owner, one.lane, one.messages) for one in report.senders} == {
        (5, "feed", 0, 20),
        (6, "feed", 1, 5),
    }
    assert report.senders[0].grtt_s == rtt_of(100)
    assert report.messages == 25
    again = watch.report(3.0)
    assert (again.messages, again.messages_per_s) == (25, 0.0)
    assert all(one.messages_per_s == one.bytes_per_s == 0.0 for one in again.senders)


def test_bytes_are_counted_per_datagram() -> None:
    watch = watch_of()
    feed = Node(5, watch)
    feed.write(FEED, 30, Topic("prices"))
    sent = train(*feed.segments())
    watch.take(sent, 1.0)
    sender = watch.report(2.0).senders[0]
    assert (sender.bytes, sender.bytes_per_s, sender.datagrams) == (sent.data.size, sent.data.size / 2, sent.count)


def test_topics_have_heard_or_given_names() -> None:
    watch = watch_of("orders")
    node = Node(7, watch)
    hashes = frozenset(one.frame_hash for one in (Topic("orders"), Queue("orders"), Topic("unheard"), Topic("prices")))
    node.announce(DESK, 0.0, topics=hashes)
    Node(5, watch).publish(FEED, 1, 0.0)
    labels = {one.label for one in watch.report(1.0).topics}
    assert labels == {"orders", "queue://orders", f"#{Topic('unheard').frame_hash:08x}", "prices"}
    assert set(watch.report(1.0).connections[0].subscriptions) == labels


def test_who_subscribes_to_more_than_listed_may_get_any_topic_but_private_ones() -> None:
    watch = watch_of()
    Node(7, watch).announce(DESK, 0.0, client_id="desk", flags=Flag.WANTS_ALL)
    Node(8, watch).announce(0xABC, 0.0, client_id="both", topics=frozenset([Topic("prices").frame_hash]))
    feed = Node(5, watch)
    for destination in (Topic("prices"), Topic("orders"), TemporaryTopic("reply")):
        feed.write(FEED, 1, destination)
    watch.take(train(*feed.segments()), 0.0)
    told = {one.label: (one.subscribers, one.possible_subscribers) for one in watch.report(1.0).topics}
    assert told == {"prices": (("both",), ("desk",)), "orders": ((), ("desk",)), "temp-topic://reply": ((), ())}


def test_other_destinations_show_their_scheme() -> None:
    watch = watch_of()
    node = Node(5, watch)
    node.write(FEED, 1, TemporaryTopic("reply"))
    watch.take(train(*node.segments()), 0.0)
    assert [one.name for one in watch.report(1.0).topics] == ["temp-topic://reply"]


def test_keepalive_frames_are_not_messages() -> None:
    watch = watch_of()
    Node(5, watch).publish(0, 4, 0.0)
    report = watch.report(1.0)
    assert (report.messages, report.topics) == (0, ())


# Losses and repairs.


def test_missed_bytes_are_counted_and_the_rest_is_read() -> None:
    watch = watch_of()
    feed = Node(5, watch)
    feed.write(FEED, 40, Topic("prices"), size=80)  # nearly two segments per message
    segments = feed.segments()
    for at, segment in enumerate(segments):
        if not 20 <= at < 23:
            watch.take(train(segment), 1.0)
    report = watch.report(2.0)
    assert report.senders[0].datagrams_missed == 3
    assert watch.bytes_missed == 300
    assert 40 - 5 <= report.messages <= 40 - 2


def test_repairs_are_not_counted_as_messages_again() -> None:
    watch = watch_of()
    feed = Node(5, watch)
    feed.write(FEED, 10, Topic("prices"))
    segments = feed.segments()
    watch.take(train(*segments), 1.0)
    again = [
        dataclasses.replace(one, sequence=100 + at, flags=one.flags | ObjectFlag.REPAIR)
        for at, one in enumerate(segments[2:6])
    ]
    watch.take(train(*again), 1.5)
    sender = watch.report(2.0).senders[0]
    assert (sender.messages, sender.repairs, sender.repairs_per_s) == (10, 4, 2.0)
    assert watch.bytes_missed == 0


def test_parity_is_not_read_as_content() -> None:
    watch = watch_of()
    feed = Node(5, watch)
    feed.write(FEED, 12, Topic("prices"))
    segments = feed.segments(PARITY_FTI)
    for at, segment in enumerate(segments):
        watch.take(train(segment), 0.0)
        if at % 4 == 3:
            parity = feed.data(0, Random(at).randbytes(108), PARITY_FTI)
            watch.take(train(dataclasses.replace(parity, payload_id=(at // 4) << 8 | 4)), 0.0)
    sender = watch.report(1.0).senders[0]
    assert (sender.messages, sender.datagrams_missed) == (12, 0)
    assert sender.parity == len(segments) // 4 >= 2
    assert watch.bytes_missed == 0


def test_a_train_beginning_with_old_segments_is_read() -> None:
    watch = watch_of()
    feed = Node(5, watch)
    feed.write(FEED, 30, Topic("prices"))
    segments = feed.segments()
    watch.take(train(*segments[:10]), 0.0)
    watch.take(train(*segments[5:]), 0.0)
    assert watch.report(1.0).messages == 30
    assert watch.bytes_missed == 0


def test_a_restarted_sender_is_read_from_its_beginning() -> None:
    watch = watch_of()
    Node(5, watch).publish(FEED, 10, 0.0)
    feed = Node(5, watch)
    feed.write(FEED, 10, Topic("prices"))
    watch.take(train(*(dataclasses.replace(one, instance_id=2) for one in feed.segments())), 1.0)
    assert watch.report(2.0).messages == 20
    assert watch.bytes_missed == 0


# Slow receivers.


def test_the_slowest_receiver_takes_longest_to_confirm() -> None:
    watch = watch_of()
    feed, quick, slow = Node(5, watch), Node(7, watch), Node(8, watch)
    slow.announce(DESK, 0.0, client_id="slow")
    feed.publish(FEED, 1, 0.0)
    feed.ask(9, (7, 8), 1.0)
    quick.confirm(5, 9, 1.01)
    feed.ask(9, (8,), 1.1)
    slow.miss(5, 1.2)
    report = watch.report(1.3)
    assert report.slowest is not None
    assert (report.slowest.label, report.slowest.nacks) == ("slow", 1)
    assert report.slowest.awaited_s == pytest.approx(0.3)
    slow.confirm(5, 9, 1.5)
    by_node = {one.node_id: one for one in watch.report(2.0).receivers}
    assert by_node[8].confirm_s == pytest.approx(0.5)
    assert by_node[8].awaited_s is None
    assert by_node[7].confirm_s == pytest.approx(0.01)
    assert watch.report(2.1).senders[0].nacks == 1


def test_other_confirmations_do_not_end_the_wait() -> None:
    watch = watch_of()
    feed, slow = Node(5, watch), Node(8, watch)
    feed.ask(9, (8,), 1.0)
    slow.confirm(5, 3, 1.1)
    slow.confirm(6, 9, 1.1)
    assert [one.awaited_s for one in watch.report(2.0).receivers] == [1.0]


def test_a_receiver_that_is_not_asked_any_more_is_not_awaited() -> None:
    watch = watch_of()
    Node(5, watch).ask(9, (8,), 1.0)
    assert watch.report(3.0).receivers[0].awaited_s == 2.0
    assert watch.report(6.5).receivers[0].awaited_s is None
    assert watch.report(70.0).receivers == ()


def test_a_given_up_receiver_is_reported_until_it_answers() -> None:
    watch = watch_of()
    feed, quick, stuck = Node(5, watch), Node(7, watch), Node(8, watch)
    feed.announce(FEED, 0.0, client_id="feed", valid_s=600)
    stuck.announce(DESK, 0.0, client_id="stuck", valid_s=600)
    feed.ask(8, (7, 8), 1.0)
    for receiver in (quick, stuck):
        receiver.confirm(5, 8, 1.01)
    for tenth in range(20, 70):
        feed.ask(9, (8,), tenth / 10)
    quick.confirm(5, 9, 2.0)
    assert watch.report(7.0).slowest == watch.report(7.0).receivers[0]
    assert watch.report(7.0).receivers[0].given_up_by == ()
    watch.report(12.0)
    feed.ask(10, (7,), 12.0)
    quick.confirm(5, 10, 13.0)
    report = watch.report(100.0)
    assert report.slowest is not None
    assert (report.slowest.label, report.slowest.given_up_by) == ("stuck", ("feed",))
    stuck.confirm(5, 11, 100.1)
    assert all(one.given_up_by == () for one in watch.report(101.0).receivers)


def test_a_receiver_that_says_it_is_full_is_reported_so_until_it_says_otherwise() -> None:
    watch = watch_of()
    feed, desk = Node(5, watch), Node(8, watch)
    desk.announce(DESK, 0.0, client_id="desk", valid_s=600)
    feed.ask(9, (8,), 1.0)
    desk.confirm_full(5, 1.1)
    slowest = watch.report(2.0).slowest
    assert slowest is not None
    assert (slowest.label, slowest.is_full, slowest.awaited_s) == ("desk", True, 1.0)
    desk.confirm_full(5, 2.1, is_full=False)
    assert not watch.report(3.0).receivers[0].is_full


def test_unheard_answers_do_not_mean_given_up() -> None:
    watch = watch_of()
    feed, lucky, alone = Node(5, watch), Node(7, watch), Node(8, watch)
    feed.announce(FEED, 0.0, valid_s=600)
    lucky.announce(DESK, 0.0, valid_s=600)
    lucky.confirm(5, 7, 0.5)
    for tenth in range(10, 18):
        feed.ask(9, (7,), tenth / 10)
    for tenth in range(10, 70):
        feed.ask(9, (8,), tenth / 10)  # the receiver answers by unicast
    alone.miss(5, 7.0)
    watch.report(15.0)
    feed.publish(FEED, 1, 15.0)
    assert [one.given_up_by for one in watch.report(16.0).receivers] == [(), ()]


# Keepers.

KEEPER = KeeperStatus(
    state=State.SERVING,
    flags=0,
    pid=12,
    epoch=3,
    configuration=1,
    cell_id=99,
    keeper_id=bytes(range(16)),
    incarnation=1,
    committed=7,
    last_index=8,
    table_version=2,
    durable_lsn=5,
    messages=1000,
    store_bytes=1 << 30,
    allowed_bytes=10 << 30,
    live_bytes=4096,
    waiting_bytes=0,
    free_bytes=5 << 30,
    sync_us=1500,
    conflicts=0,
    host="paris",
)


def test_keepers_are_reported_as_long_as_they_tell_their_status() -> None:
    watch = watch_of()
    behind = dataclasses.replace(KEEPER, keeper_id=bytes(16), state=State.FOLLOWER, messages=990, flags=StatusFlag.FULL)
    Node(7, watch).command(behind.encode(), 1.0)
    Node(8, watch).command(KEEPER.encode(), 10.0)
    manager, follower = watch.report(11.0).keepers
    assert (manager.host, manager.state, manager.epoch, manager.lag) == ("paris", "serving", 3, 0)
    assert (manager.store_bytes, manager.free_bytes, manager.sync_s) == (1 << 30, 5 << 30, 0.0015)
    assert (follower.state, follower.lag, follower.is_full) == ("follower", 10, True)
    assert [one.state for one in watch.report(17.0).keepers] == ["serving"]
    assert watch.report(30.0).keepers == ()


def test_forged_keepers_take_little_memory() -> None:
    watch = watch_of()
    forger = Node(7, watch)
    for number in range(1000):
        forger.command(dataclasses.replace(KEEPER, keeper_id=number.to_bytes(16)).encode(), 1.0)
    forger.command(KEEPER.encode()[:40], 1.0)
    assert len(watch.report(2.0).keepers) == 256


# Gateways.


def beacon(gateway_id: int, flags: int, host: str) -> Train:
    data = b"FJMB\x01" + bytes((flags, 0, 0)) + gateway_id.to_bytes(4) + bytes(8)
    return Train(np.frombuffer(data, np.uint8), len(data), (host, 5742))


def test_an_address_with_several_members_is_a_gateway() -> None:
    watch = watch_of()
    for node_id in (7, 8):
        Node(node_id, watch, host="10.0.0.9", port=999).announce(node_id, 0.0)
    Node(6, watch, host="10.0.0.9", port=1).announce(6, 0.0)  # another node on the gateway's host
    report = watch.report(1.0)
    assert [(one.host, one.gateway_id, one.is_forwarding, one.nodes) for one in report.gateways] == [
        ("10.0.0.9", None, None, 2)
    ]
    assert {one.node_id: one.gateway for one in report.connections} == {6: None, 7: "10.0.0.9", 8: "10.0.0.9"}


def test_beacons_show_which_gateway_forwards() -> None:
    watch = watch_of()
    watch.take_beacon(beacon(1, 3, "10.0.0.1"), 0.0)
    watch.take_beacon(beacon(2, 2, "10.0.0.2"), 0.0)
    watch.take_beacon(beacon(3, 2, "10.0.0.3"), 0.0)
    watch.take_beacon(beacon(3, 4, "10.0.0.3"), 1.0)
    gateways = watch.report(2.0).gateways
    assert [(one.gateway_id, one.is_forwarding) for one in gateways] == [(1, True), (2, False)]
    assert watch.report(9.0).gateways == ()


# Robustness.


@given(st.binary(min_size=1, max_size=300), st.integers(8, 200))
def test_any_datagram_is_handled(data: bytes, segment_bytes: int) -> None:
    watch = watch_of()
    some = Train(np.frombuffer(data, np.uint8), min(segment_bytes, len(data)), ("10.0.0.1", 1))
    watch.take(some, 0.0)
    watch.take_beacon(some, 0.0)
    json.dumps(watch.report(1.0).as_dict(), allow_nan=False)


@given(st.randoms(use_true_random=False))
def test_corrupted_data_is_handled(random: Random) -> None:
    watch = watch_of()
    feed = Node(5, watch)
    feed.write(FEED, 20, Topic("prices"))
    for segment in feed.segments():
        wire = bytearray(segment.encode())
        if random.random() < 0.3:
            wire[random.randrange(8, len(wire))] ^= 1 << random.randrange(8)
        watch.take(Train(np.frombuffer(bytes(wire), np.uint8), len(wire), ("10.0.0.1", 1)), 0.0)
    json.dumps(watch.report(1.0).as_dict(), allow_nan=False)


def test_a_flood_of_senders_is_bounded() -> None:
    watch = watch_of()
    feed = Node(5, watch)
    payload = feed.data(0, b"\0" * 8 + b"x" * 100)
    for number in range(SENDERS_MAX + 100):
        watch.take(train(dataclasses.replace(payload, source_id=number + 1)), 0.0)
    report = watch.report(1.0)
    assert len(report.senders) == SENDERS_MAX
    feed.ask(1, tuple(range(1, 300)), 0.0)
    for number in range(RECEIVERS_MAX + 100):
        Node(100_000 + number, watch).miss(5, 0.0)
    assert len(watch.report(1.0).receivers) == RECEIVERS_MAX
    for first in range(0, TOPICS_MAX + 600, 300):
        Node(7, watch).announce(first + 1, 0.0, topics=frozenset(range(first, first + 300)))
    assert len(watch.report(1.0).topics) == TOPICS_MAX


def test_a_report_is_json() -> None:
    watch = watch_of()
    Node(5, watch).publish(FEED, 3, 0.0)
    told = json.loads(json.dumps(watch.report(1.0).as_dict()))
    assert told["topics"][0]["name"] == "prices"
    assert told["senders"][0]["messages"] == 3
