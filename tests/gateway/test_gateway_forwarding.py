"""Tests of forwarding between three gateways connected by real tunnels, in memory and in virtual time."""

import hashlib
from collections.abc import Iterator
from random import Random

import numpy as np
import pytest
from gateway_datagrams import ALWAYS, GROUP, SENDER, ack, data, joined, nack, presence
from hypothesis import given
from hypothesis import strategies as st

from fjm2.bus.presence import Flag
from fjm2.norm import Address, Train
from fjm2.norm.core.wire import (
    EndOfTransmission,
    MessageType,
)
from fjm2d.forwarding.forwarder import Forwarder, Inward, Outward, Refusal
from fjm2d.forwarding.interest import HINT_S, STATUS_VALID_S
from fjm2d.forwarding.node_table import HOLD_S
from fjm2d.keys import KeyPair
from fjm2d.tunnel import Endpoint, EndpointConfig, Kind, PeerConfig
from fjm2d.tunnel.wire import GROUP_NONE

WALL_NS = 1_700_000_000_000_000_000


class Site:
    """One site's gateway: its forwarding rules and its tunnel."""

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
        """Pass multicast datagrams from a host of the LAN to the gateway. Return what it sends through the tunnel."""
        content, segment_bytes = joined(*datagrams)
        train = Train(content, segment_bytes, (host, 40_000))
        return self._send(self.forwarder.from_lan(group, train, self.world.now))

    def receiver(self, *datagrams: bytes, group: int = GROUP) -> list[Outward]:
        """Pass unicast datagrams from a receiver on the LAN to the gateway. Return what it sends through the tunnel."""
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
        """Send the gateway's status to all connected peers."""
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
        """Return the datagrams that the gateway has put onto its LAN since the last call."""
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
    """Three sites whose gateways are all connected and have exchanged their status."""

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


def test_data_go_only_to_lans_with_subscribers(world: World) -> None:
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


def test_announcements_go_to_every_lan_of_the_group_and_count_as_interest_before_any_status(world: World) -> None:
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


def test_a_group_that_is_always_carried_needs_no_subscriber(world: World) -> None:
    left, middle, right = world.sites
    left.lan(data(1), group=ALWAYS)
    assert middle.take() == right.take() == [data(1)]


def test_feedback_goes_to_the_sender_in_its_lan(world: World) -> None:
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
    # Feedback that arrived by multicast is multicast on the LAN of its target, and on no third LAN.
    right.lan(nack(900, 1))
    (inward,) = left.inward
    assert inward.address is None
    assert left.take() == [nack(900, 1)]
    assert middle.take() == []
    # Feedback for a sender on the same LAN stays there.
    right.lan(data(2))
    right.lan(nack(901, 2))
    right.receiver(nack(901, 2))
    right.receiver(data(3))
    assert right.refusals[Refusal.NO_SENDER] == 1
    assert right.refusals[Refusal.NOT_FEEDBACK] == 1
    assert left.take() == []


def test_a_datagram_that_comes_back_is_a_loop_and_goes_no_further(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    subscribe(middle, 800)
    left.lan(data(1))
    assert right.take() == middle.take() == [data(1)]
    # The datagram comes back, through another gateway or a cable.
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


def test_a_standby_learns_nodes_but_forwards_nothing(world: World) -> None:
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
    assert right.lan(data(3)) == []  # the left gateway's status says that it is no forwarder
    right.forwarder.is_forwarder = False
    left.forwarder.is_forwarder = True
    left.lan(data(1))
    assert right.take() == []


def test_groups_that_are_not_configured_are_refused(world: World) -> None:
    left, _, right = world.sites
    right.forwarder.set_groups({GROUP: False})
    left.lan(data(1), group=ALWAYS)
    assert right.take() == []
    assert right.refusals == {Refusal.GROUP_NOT_ALLOWED: 1}
    right.tell()
    left.lan(data(1), group=ALWAYS)
    assert right.refusals == {Refusal.GROUP_NOT_ALLOWED: 1}


def test_a_peer_whose_status_expired_is_sent_nothing(world: World) -> None:
    left, _, right = world.sites
    subscribe(right)
    left.lan(data(1))
    assert right.take() == [data(1)]
    world.now += STATUS_VALID_S + 0.1
    left.forwarder.expire(world.now)
    assert left.lan(data(1)) == []


def test_joined_trains_are_split_and_each_part_is_forwarded_by_itself(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    message = presence(1, set())
    train = [*(data(1, number=number) for number in range(3)), message]
    assert len(message) < len(train[0])
    left.lan(*train)
    assert right.take() == train
    assert middle.take() == [message]  # the left gateway gets no data
    # The datagrams of two senders arrive joined into trains.
    both = [data(1), data(2), data(2), data(1)]
    outwards = left.lan(*both)
    assert [one.source for one in outwards] == [1, 2, 1]
    assert sorted(right.take()) == sorted(both)  # the senders take turns on the link


@given(st.binary(min_size=1, max_size=300), st.integers(1, 80))
def test_any_content_raises_nothing_and_rubbish_is_not_forwarded(content: bytes, segment_bytes: int) -> None:
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
def test_nothing_arrives_twice_or_comes_back(said: list[tuple[int, int, str]]) -> None:
    """A datagram reaches every other LAN once, and never comes back to the LAN where it was sent."""
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


def test_a_node_moves_at_once_away_from_a_gateway_that_stopped_forwarding(world: World) -> None:
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


def test_nothing_is_exchanged_through_the_tunnel_with_a_peer_on_the_same_lan(world: World) -> None:
    left, middle, right = world.sites
    subscribe(right)
    subscribe(middle, 800)
    middle.lan(data(5))
    assert left.forwarder.groups[GROUP].table.peer_of(5) is None  # the left LAN does not want the group
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


def test_a_loop_is_reported_with_its_node_and_where_it_came_from(world: World) -> None:
    left, _, right = world.sites
    subscribe(right)
    left.lan(data(1))
    right.lan(data(1), host="10.0.0.66")
    assert right.forwarder.loop == (GROUP, 1, "10.0.0.66")
    right.lan(data(2))
    left.lan(data(2))
    assert right.forwarder.loop == (GROUP, 2, right.endpoint.peers[world.id_of(left)].name)
