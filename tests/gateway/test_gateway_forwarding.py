"""What goes where: the rules of three gateways with real tunnels between them, in memory and in virtual time."""

import hashlib
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fjm2.bus.presence import PEERS_MAX, Announcement, Flag
from fjm2.norm import Address, Train
from fjm2.norm.core.wire import (
    Ack,
    AckType,
    Application,
    Data,
    EndOfTransmission,
    MessageType,
    Nack,
    ObjectFlag,
    decode,
)
from fjm2d.forwarding.forwarder import Forwarder, Inward, Outward, Refusal
from fjm2d.forwarding.headers import application, application_content, head_of, parts_of
from fjm2d.forwarding.interest import HINT_S, STATUS_VALID_S, LanInterest, PeerInterest, Status
from fjm2d.forwarding.node_table import FORGET_S, HOLD_S, MOVE_S, NodeTable
from fjm2d.keys import KeyPair
from fjm2d.tunnel import Endpoint, EndpointConfig, Kind, PeerConfig
from fjm2d.tunnel.wire import GROUP_NONE

GROUP, ALWAYS = 4711, 815
WALL_NS = 1_700_000_000_000_000_000
SENDER = {"instance_id": 7, "grtt_q": 100, "backoff": 4, "gsize_q": 2}


def data(source: int, size: int = 100, number: int = 0) -> bytes:
    return Data(
        **SENDER, source_id=source, flags=ObjectFlag.FILE, fec_id=5, object_id=1, payload_id=number, payload=bytes(size)
    ).encode()


def presence(source: int, topics: set[int], connection: int | None = None, flags: int = 0) -> bytes:
    content = Announcement(connection or source, topics=frozenset(topics), flags=flags).encode(1000)
    return Application(**SENDER, source_id=source, content=content).encode()


def nack(source: int, sender: int) -> bytes:
    return Nack(source_id=source, sender_id=sender, instance_id=7, requests=()).encode()


def ack(source: int, sender: int) -> bytes:
    return Ack(source_id=source, sender_id=sender, instance_id=7, ack_type=AckType.CC, ack_id=0, content=b"").encode()


def joined(*datagrams: bytes) -> tuple[NDArray[np.uint8], int]:
    return np.frombuffer(b"".join(datagrams), np.uint8), len(datagrams[0])


class Site:
    """A gateway's decisions and its tunnel."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.address: Address = (f"192.0.2.{number}", 5741)
        self.keys = KeyPair(hashlib.sha256(bytes([number])).digest())
        self.endpoint = Endpoint(
            self.keys, EndpointConfig(), wall_ns=lambda: WALL_NS + int(world.now * 1e9), random=Random(number)
        )
        self.forwarder = Forwarder(self.endpoint.peers, lambda one, other: frozenset((one, other)) == world.same_lan)
        self.forwarder.is_forwarder = True
        self.forwarder.set_groups({GROUP: False, ALWAYS: True})
        self.inward: list[Inward] = []

    def lan(self, *datagrams: bytes, group: int = GROUP, host: str = "10.0.0.9") -> list[Outward]:
        """These are multicast on the LAN."""
        content, segment_bytes = joined(*datagrams)
        train = Train(content, segment_bytes, (host, 40_000))
        return self._send(self.forwarder.from_lan(group, train, self.world.now))

    def receiver(self, *datagrams: bytes, group: int = GROUP) -> list[Outward]:
        """These are sent to the gateway."""
        content, segment_bytes = joined(*datagrams)
        train = Train(content, segment_bytes, ("10.0.0.10", 40_001))
        return self._send(self.forwarder.from_receivers(group, train, self.world.now))

    def _send(self, outwards: Iterator[Outward]) -> list[Outward]:
        found = []
        for one in outwards:
            self.endpoint.send(
                one.peers, one.kind, one.group, one.data, one.segment_bytes, self.world.now, source=one.source
            )
            found.append(one)
        self.world.settle()
        return found

    def tell(self) -> None:
        """Its peers get its status."""
        content = self.forwarder.status().encode()
        peers = [peer for peer in self.endpoint.peers.values() if peer.is_up]
        self.endpoint.send(peers, Kind.CONTROL, GROUP_NONE, content, len(content), self.world.now)
        self.world.settle()

    def receive(self, train: Train) -> None:
        for received in self.endpoint.receive_train(train, self.world.now):
            for inward in self.forwarder.from_wan(received, self.world.now):
                copy = inward.data.copy()
                self.inward.append(inward._replace(data=copy))

    def take(self) -> list[bytes]:
        """The datagrams that have come into the LAN since the last time."""
        found, self.inward = self.inward, []
        return [
            one.data[start : start + one.segment_bytes].tobytes()
            for one in found
            for start in range(0, one.data.size, one.segment_bytes)
        ]

    @property
    def refusals(self) -> dict[Refusal, int]:
        return dict(self.forwarder.refusals)


class World:
    """Three sites that are all connected, and know what the others carry."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.same_lan: frozenset[int] = frozenset()
        self.sites = [Site(self, number) for number in (1, 2, 3)]
        self._by_address = {site.address: site for site in self.sites}
        for site in self.sites:
            for other in self.sites:
                if other is not site:
                    config = PeerConfig(public_key=other.keys.public, addresses=(other.address,))
                    site.endpoint.add_peer(config, self.now)
        self.settle()
        for _ in range(30):
            self.now += 0.1
            for site in self.sites:
                site.endpoint.handle_timeout(self.now)
            self.settle()
        for site in self.sites:
            assert all(peer.is_up for peer in site.endpoint.peers.values())
            site.forwarder.note_peers()
            site.tell()

    def settle(self) -> None:
        is_busy = True
        while is_busy:
            is_busy = False
            for site in self.sites:
                while (train := site.endpoint.poll_train(self.now)) is not None:
                    is_busy = True
                    copy = Train(train.data.copy(), train.segment_bytes, site.address)
                    self._by_address[train.address].receive(copy)

    def id_of(self, site: Site) -> int:
        return site.keys.public.id


@pytest.fixture
def world() -> World:
    return World()


def subscribe(site: Site, node: int = 900) -> None:
    site.lan(presence(node, {1}))
    site.tell()
    for other in site.world.sites:
        other.take()


# Rules.


def test_data_go_where_somebody_subscribes_and_nowhere_else(world: World) -> None:
    left, middle, right = world.sites
    left.lan(data(1))
    assert left.refusals == {Refusal.NOT_WANTED: 1}
    subscribe(right)
    train = [data(1, number=number) for number in range(20)]
    (outward,) = left.lan(*train)
    assert [peer.id for peer in outward.peers] == [world.id_of(right)]
    assert right.take() == train
    assert middle.take() == []
    assert left.take() == []
    right.lan(presence(900, set(), flags=Flag.GOODBYE))
    right.tell()
    world.now += HINT_S
    left.forwarder.expire(world.now)
    assert left.lan(data(1)) == []


def test_announcements_go_to_all_that_carry_the_group_and_count_as_a_wish_before_any_status(world: World) -> None:
    left, middle, right = world.sites
    message = presence(900, {1})
    right.lan(message)
    assert left.take() == middle.take() == [message]
    left.lan(data(1))
    assert right.take() == [data(1)]
    assert middle.take() == []
    publisher = presence(5, set())
    left.lan(publisher)
    assert right.take() == middle.take() == [publisher]
    middle.lan(data(6))
    assert left.take() == []


def test_a_group_that_is_always_carried_asks_nobody(world: World) -> None:
    left, middle, right = world.sites
    left.lan(data(1), group=ALWAYS)
    assert middle.take() == right.take() == [data(1)]


def test_feedback_goes_to_the_lan_of_its_sender_and_there_to_the_sender(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    left.lan(data(1), host="10.0.0.77")
    right.take()
    for message in (nack(900, 1), ack(900, 1)):
        (outward,) = right.receiver(message)
        assert (outward.kind, outward.is_feedback) == (Kind.FEEDBACK, True)
        (inward,) = left.inward
        assert inward.address == ("10.0.0.77", 40_000)
        assert left.take() == [message]
    # One that was multicast is multicast there, and in no third LAN.
    right.lan(nack(900, 1))
    (inward,) = left.inward
    assert inward.address is None
    assert left.take() == [nack(900, 1)]
    assert middle.take() == []
    # What is for a sender next door stays there.
    right.lan(data(2))
    right.lan(nack(901, 2))
    right.receiver(nack(901, 2))
    right.receiver(data(3))
    assert right.refusals[Refusal.NO_SENDER] == 1
    assert right.refusals[Refusal.NOT_FEEDBACK] == 1
    assert left.take() == []


def test_what_comes_back_of_the_other_side_is_a_loop_and_goes_no_further(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    subscribe(middle, 800)
    left.lan(data(1))
    assert right.take() == middle.take() == [data(1)]
    # As if another gateway, or a cable, brought it back.
    assert right.lan(data(1)) == []
    assert right.refusals[Refusal.LOOP] == 1
    middle.lan(data(1))
    assert left.take() == right.take() == []
    world.now += HOLD_S  # the node has moved
    right.lan(data(1))
    assert right.forwarder.groups[GROUP].table.address_of(1) is not None
    left.lan(data(1))
    assert right.take() == []
    assert right.refusals[Refusal.LOOP] == 2


def test_a_node_moves_at_once_between_gateways_of_one_lan_and_away_from_one_that_is_down(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    left.lan(data(1))
    assert right.take() == [data(1)]
    middle.lan(data(1))
    assert right.take() == []
    world.same_lan = frozenset((world.id_of(left), world.id_of(middle)))
    middle.lan(data(1))
    assert right.take() == [data(1)]
    assert right.forwarder.groups[GROUP].table.peer_of(1) == world.id_of(middle)


def test_who_does_not_forward_learns_and_says_nothing(world: World) -> None:
    left, _, right = world.sites
    subscribe(right)
    left.forwarder.is_forwarder = False
    assert left.forwarder.is_status_due
    left.lan(data(1))
    left.lan(presence(2, {5}))
    assert right.take() == []
    assert left.forwarder.status().wanted == {GROUP, ALWAYS}
    assert left.forwarder.groups[GROUP].table.address_of(1) is not None
    assert left.refusals == {Refusal.NOT_FORWARDER: 2}
    right.tell()
    left.tell()
    assert right.lan(data(3)) == []  # it says that another forwards
    right.forwarder.is_forwarder = False
    left.forwarder.is_forwarder = True
    left.lan(data(1))
    assert right.take() == []


def test_groups_that_are_not_allowed_stay_outside(world: World) -> None:
    left, _, right = world.sites
    right.forwarder.set_groups({GROUP: False})
    left.lan(data(1), group=ALWAYS)
    assert right.take() == []
    assert right.refusals == {Refusal.GROUP_NOT_ALLOWED: 1}
    right.tell()
    left.lan(data(1), group=ALWAYS)
    assert right.refusals == {Refusal.GROUP_NOT_ALLOWED: 1}


def test_who_falls_silent_is_sent_nothing(world: World) -> None:
    left, _, right = world.sites
    subscribe(right)
    left.lan(data(1))
    assert right.take() == [data(1)]
    world.now += STATUS_VALID_S + 0.1
    left.forwarder.expire(world.now)
    assert left.lan(data(1)) == []


def test_trains_that_the_kernel_joined_are_taken_apart_and_each_part_goes_its_way(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    message = presence(1, set())
    train = [*(data(1, number=number) for number in range(3)), message]
    assert len(message) < len(train[0])
    left.lan(*train)
    assert right.take() == train
    assert middle.take() == [message]  # though the data are not for it
    # Of two senders, joined on the way.
    both = [data(1), data(2), data(2), data(1)]
    outwards = left.lan(*both)
    assert [one.source for one in outwards] == [1, 2, 1]
    assert sorted(right.take()) == sorted(both)  # they take turns on the link


@given(st.binary(min_size=1, max_size=300), st.integers(1, 80))
def test_whatever_comes_raises_nothing_and_rubbish_goes_nowhere(content: bytes, segment_bytes: int) -> None:
    world = World()
    left, _, right = world.sites
    subscribe(right)
    train = Train(np.frombuffer(content, np.uint8), segment_bytes, ("10.0.0.9", 40_000))
    for outward in left.forwarder.from_lan(GROUP, train, world.now):
        assert outward.data[0] >> 4 == 1
        assert (outward.data[0] & 15) in set(MessageType)
    for _ in left.forwarder.from_receivers(GROUP, train, world.now):
        pass
    peers = list(left.endpoint.peers.values())
    for kind in (Kind.NORM, Kind.FEEDBACK, Kind.CONTROL):
        left.endpoint.send(peers, kind, GROUP, content, segment_bytes, world.now)
    world.settle()
    for one in right.take():
        assert one[0] >> 4 == 1


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.sampled_from(["data", "presence", "end"])), max_size=40)
)
def test_nothing_comes_twice_nor_back(said: list[tuple[int, int, str]]) -> None:
    """Whoever speaks where: another LAN hears it once or not at all, and its own LAN never from outside."""
    world = World()
    for number, site in enumerate(world.sites):
        subscribe(site, 900 + number)
    for place, node, what in said:
        source = 10 * place + node
        match what:
            case "data":
                message = data(source)
            case "presence":
                message = presence(source, set())
            case _:
                message = EndOfTransmission(**SENDER, source_id=source).encode()
        world.sites[place].lan(message)
        for number, site in enumerate(world.sites):
            assert site.take() == ([] if number == place else [message])
    assert not any(site.refusals.get(Refusal.LOOP) for site in world.sites)


def test_a_node_moves_at_once_from_a_gateway_that_has_left_forwarding_to_another(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    left.lan(data(1))
    middle.lan(data(1))
    assert right.take() == [data(1)]
    left.forwarder.is_forwarder = False
    left.tell()
    middle.lan(data(1))
    assert right.take() == [data(1)]
    assert right.forwarder.groups[GROUP].table.peer_of(1) == world.id_of(middle)


def test_a_peer_on_this_lan_gets_nothing_by_the_tunnel_and_what_it_sends_there_goes_nowhere(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    subscribe(middle, 800)
    middle.lan(data(5))
    assert left.forwarder.groups[GROUP].table.peer_of(5) is None  # nobody wants it there
    left.lan(presence(700, {1}))
    left.tell()
    middle.lan(data(5))
    assert left.take() == [data(5)]
    left.forwarder.note_same_lan(frozenset({world.id_of(middle)}))
    assert left.forwarder.groups[GROUP].table.peer_of(5) is None
    assert middle.take()
    left.lan(data(1))
    assert right.take()[-1:] == [data(1)]
    assert middle.take() == []
    middle.lan(data(6))
    assert left.take() == []
    assert left.refusals[Refusal.SAME_LAN] == 1
    left.forwarder.note_same_lan(frozenset())
    middle.lan(data(6))
    assert left.take() == [data(6)]


def test_a_loop_is_told_with_its_node_and_where_it_came_from(world: World) -> None:
    left, _, right = world.sites
    subscribe(right)
    left.lan(data(1))
    right.lan(data(1), host="10.0.0.66")
    assert right.forwarder.loop == (GROUP, 1, "10.0.0.66")
    right.lan(data(2))
    left.lan(data(2))
    assert right.forwarder.loop == (GROUP, 2, right.endpoint.peers[world.id_of(left)].name)


# What is known.


def test_a_table_holds_the_side_where_a_node_was_heard_first() -> None:
    table = NodeTable()
    assert table.note_lan(1, ("10.0.0.1", 1), 0.0)
    assert not table.note_wan(1, 50, HOLD_S - 0.1, lambda *_: True)
    assert table.note_wan(1, 50, HOLD_S, lambda *_: False)
    assert not table.note_lan(1, ("10.0.0.1", 1), HOLD_S + 1)
    assert table.peer_of(1) == 50
    assert table.address_of(1) is None
    table.expire(HOLD_S + FORGET_S)
    assert len(table) == 0


def test_a_flood_of_nodes_pushes_out_nobody_that_is_heard() -> None:
    table = NodeTable(nodes_max=200)
    for node in range(100):
        table.note_lan(node, ("10.0.0.1", node), 0.0)
    for node in range(1000, 3000):
        assert table.note_lan(node, ("10.0.0.66", 1), 1.0)
    assert len(table) == 100
    assert table.refused == 2000
    assert table.address_of(7) == ("10.0.0.1", 7)
    table.note_lan(7, ("10.0.0.1", 7), HOLD_S)
    table.note_lan(5000, ("10.0.0.66", 1), HOLD_S + 1)
    assert table.address_of(5000) is not None
    assert table.address_of(7) is not None
    assert len(table) == 2


def test_neither_side_fills_more_than_half_of_the_table() -> None:
    table = NodeTable(nodes_max=200)
    for node in range(1000, 2000):
        assert table.note_wan(node, node, 0.0, lambda *_: False)
    assert table.counts() == (0, 100)
    for node in range(100):
        table.note_lan(node, ("10.0.0.1", node), 1.0)
    assert table.counts() == (100, 100)
    # Nor by nodes that go over from one side to the other, again and again.
    for turn in range(1, 5):
        now = turn * HOLD_S
        for node in range(1000, 1100):
            table.note_lan(node, ("10.0.0.66", 1), now)
            table.note_lan(node % 100, ("10.0.0.1", node % 100), now)
        for node in range(2000 * turn, 2000 * turn + 200):
            table.note_wan(node, node, now, lambda *_: False)
        assert max(table.counts()) <= 100
        assert sum(table.counts()) == len(table)
    assert table.address_of(7) == ("10.0.0.1", 7)


def test_a_peer_that_invents_nodes_leaves_room_for_others() -> None:
    table = NodeTable(nodes_max=200)
    for node in range(1000, 2000):
        table.note_wan(node, 50, 0.0, lambda *_: False)
    assert table.counts() == (0, 50)
    for node in range(20):
        table.note_wan(node, 51, 1.0, lambda *_: False)
        table.note_wan(100 + node, 52, 1.0, lambda *_: False)
    assert [table.peer_of(node) for node in range(16)] == [51] * 16
    assert [table.peer_of(100 + node) for node in range(16)] == [52] * 16
    # Who is gone has left its room to others.
    table.forget_behind(frozenset([50]))
    for node in range(3000, 3050):
        table.note_wan(node, 53, 2.0, lambda *_: False)
    assert table.peer_of(3020) == 53
    assert sum(table.counts()) == len(table)


def test_a_node_is_at_one_address_of_the_lan_until_it_has_been_silent_there() -> None:
    table = NodeTable()
    assert table.note_lan(1, ("10.0.0.1", 1), 0.0)
    assert not table.note_lan(1, ("10.0.0.66", 1), MOVE_S - 0.1)
    # What it sends to the gateway alone may come from elsewhere, and does not keep it there.
    assert table.note_receiver(1, ("10.0.0.1", 2), MOVE_S - 0.1)
    assert table.address_of(1) == ("10.0.0.1", 1)
    assert table.note_lan(1, ("10.0.0.66", 1), MOVE_S)
    assert table.address_of(1) == ("10.0.0.66", 1)
    table.note_wan(2, 50, 0.0, lambda *_: False)
    assert not table.note_receiver(2, ("10.0.0.1", 2), 1.0)
    assert table.note_receiver(3, ("10.0.0.1", 2), 1.0)


def test_a_mate_is_no_node_of_the_lan() -> None:
    table = NodeTable()
    table.note_lan(1, ("10.0.0.2", 40_002), 0.0)
    table.note_lan(2, ("10.0.0.3", 40_002), 0.0)
    table.forget_at(frozenset({("10.0.0.2", 40_002)}))
    assert table.note_wan(1, 50, 0.1, lambda *_: False)
    assert table.counts() == (1, 1)


@given(st.booleans(), st.sets(st.integers(1, 0xFFFF), max_size=64), st.data())
def test_a_status_comes_back_as_it_was(is_forwarder: bool, groups: set[int], draw: st.DataObject) -> None:
    wanted = draw.draw(st.sets(st.sampled_from(sorted(groups)))) if groups else set()
    status = Status(is_forwarder, frozenset(groups), frozenset(wanted))
    assert Status.decode(status.encode()) == status
    assert Status.decode(status.encode()[:-1]) is None
    assert Status.decode(b"\2" + status.encode()[1:]) is None


def test_what_peers_want_is_forgotten_when_they_go() -> None:
    interest = PeerInterest()
    assert interest.note(1, Status(True, frozenset({5, 6}), frozenset({5})), 0.0)
    assert not interest.note(1, Status(True, frozenset({5, 6}), frozenset({5})), 1.0)
    assert (interest.wants(1, 5), interest.wants(1, 6), interest.serves(1, 6), interest.serves(1, 7)) == (
        True,
        False,
        True,
        False,
    )
    assert interest.hint(1, 6, 1.0)
    assert not interest.hint(1, 6, 1.5)
    assert interest.wants(1, 6)
    assert interest.expire(1.5 + HINT_S)
    assert not interest.wants(1, 6)
    interest.forget(1)
    assert not interest.serves(1, 5)


def test_a_group_is_wanted_while_anyone_on_the_lan_subscribes() -> None:
    interest = LanInterest(is_always=False)
    announced = Announcement(1, topics=frozenset({3}), valid_s=15).encode(1000)
    assert interest.note(100, announced, 0.0)
    assert not interest.note(100, announced, 1.0)
    assert interest.is_wanted
    assert not interest.note(100, b"rubbish", 1.0)
    assert not interest.expire(15.9)
    assert interest.expire(16.1)
    assert not interest.is_wanted
    assert interest.note(100, Announcement(1, flags=Flag.WANTS_ALL).encode(1000), 20.0)
    assert interest.note(100, Announcement(1, flags=Flag.GOODBYE).encode(1000), 21.0)
    assert not interest.is_wanted


def test_a_group_is_wanted_while_there_is_no_room_to_know_who_subscribes() -> None:
    interest = LanInterest(is_always=False)
    crowd = [Announcement(number, valid_s=60).encode(1000) for number in range(1, PEERS_MAX + 1)]
    news = [interest.note(number, announced, 0.0) for number, announced in enumerate(crowd)]
    assert news == [False] * (PEERS_MAX - 1) + [True]
    interest.note(9999, Announcement(99_999, topics=frozenset({3}), valid_s=60).encode(1000), 1.0)
    assert interest.connections == PEERS_MAX
    assert interest.is_wanted
    assert interest.expire(60.1)
    assert not interest.is_wanted


# Headers.


def test_a_head_says_who_and_what() -> None:
    content = np.frombuffer(nack(5, 6), np.uint8)
    head = head_of(content)
    assert head is not None
    assert (head.type, head.source, head.sender, head.is_application) == (MessageType.NACK, 5, 6, False)
    assert head_of(content[:11]) is None
    assert head_of(np.frombuffer(b"\x2f" + bytes(20), np.uint8)) is None
    own = np.frombuffer(application(9, 0x1_0007, b"hello"), np.uint8)
    head = head_of(own)
    assert head is not None
    assert head.is_application
    assert application_content(own) == b"hello"
    assert decode(own.tobytes()).sequence == 7
    assert application_content(content) is None


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 5]), st.integers(0, 3)), min_size=1, max_size=20),
    st.integers(0, 30),
)
def test_parts_are_of_one_kind_and_together_the_whole(kinds: list[tuple[int, int]], tail: int) -> None:
    segments = [bytes([16 | kind, 4, 0, 0, 0, 0, 0, source]) + bytes(22) for kind, source in kinds]
    segments[-1] = segments[-1][: max(8, tail)]
    content = np.frombuffer(b"".join(segments), np.uint8)
    parts = [part.tobytes() for part in parts_of(content, 30)]
    assert b"".join(parts) == content.tobytes()
    for part in parts:
        pieces = [part[start : start + 30] for start in range(0, len(part), 30)]
        assert len({(piece[0], piece[4:8]) for piece in pieces}) == 1
        assert len(pieces) == 1 or pieces[0][0] & 15 != MessageType.CMD
