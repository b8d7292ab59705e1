"""Tests of LANs with several gateways and lost multicasts, in virtual time.

No datagram may circulate, whether the LANs have labels or not.
"""

import hashlib
import heapq
import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import cast

import numpy as np
import pytest
from gateway_datagrams import data

from fjm2.norm import Address, Train
from fjm2d.forwarding.election import HERE_S, Election
from fjm2d.forwarding.forwarder import Forwarder, Refusal
from fjm2d.forwarding.interest import Status
from fjm2d.forwarding.node_table import MOVE_S
from fjm2d.tunnel import Kind, Peer, Received

GROUP = 7
TICK_S = 0.1
STATUS_S = 1.0
LAN_S, WAN_S = 0.0005, 0.02
SETTLED_S = 3.0
EVERY_S = 0.01
NEAR, FAR = 99, 77


@dataclass
class Link:
    """The attributes of a peer that the forwarding rules use."""

    id: int
    name: str
    is_up: bool = True


class Gateway:
    """One gateway: its forwarding rules and its election."""

    def __init__(self, world: "World", number: int, lan: str) -> None:
        self.id, self.lan = number, lan
        self.address: Address = (f"10.0.0.{number}", 40_000)
        self.links: dict[int, Peer] = {}
        self.forwarder = Forwarder(self.links, lambda _, __: False, 0xA0 + number)
        self.forwarder.set_groups({GROUP: True})
        self.election = Election(number, world.random.randbytes, world.now, self.key_of)
        self.election.is_usable = True
        self.sent = 0
        """Datagrams that the gateway has multicast on its LAN."""

    def key_of(self, other: int) -> bytes | None:
        return hashlib.sha256(f"{sorted((self.id, other))}".encode()).digest() if other in self.links else None

    def join(self, others: Iterable["Gateway"], now: float) -> None:
        for other in others:
            self.links[other.id] = cast("Peer", Link(other.id, str(other.id)))
        self.election.look(True, now)


class World:
    """LANs, their gateways, and the datagrams in flight within and between the LANs."""

    def __init__(self, lans: str, loss: float, seed: int) -> None:
        self.random = Random(seed)
        self.loss = loss
        self.now = 100.0
        self.gateways = [Gateway(self, number, lan) for number, lan in enumerate(lans, 1)]
        self._order = itertools.count()
        self._due: list[tuple[float, int, str, int, int, bytes, Address]] = []
        self._told: dict[int, Status] = {}

    def join(self, *pairs: tuple[int, int]) -> None:
        """Make each of the given pairs of gateways, identified by number, know each other.

        Without arguments, all gateways know each other.
        """
        for one, other in pairs or itertools.combinations(range(1, len(self.gateways) + 1), 2):
            first, second = self.gateways[one - 1], self.gateways[other - 1]
            first.join([second], self.now)
            second.join([first], self.now)

    @property
    def under_way(self) -> int:
        """Number of nodes' datagrams in flight. Beacons and status messages do not count."""
        return sum(one[2] in ("lan", "wan") for one in self._due)

    def run(self, seconds: float, sources: dict[int, str] | None = None) -> Counter[int]:
        """Let time pass while the given nodes take turns sending on their LANs.

        Return how many datagrams each node sent.
        """
        end, tick_at, status_at, send_at = self.now + seconds, self.now, self.now, self.now
        sent: Counter[int] = Counter()
        turns = itertools.cycle((sources or {}).items())
        while self.now < end:
            self.now = min(tick_at, send_at, self._due[0][0] if self._due else end, end)
            if self.now >= send_at:
                send_at += EVERY_S
                for node, lan in itertools.islice(turns, 1):
                    sent[node] += 1
                    self.multicast(lan, data(node), (f"10.0.1.{node}", 1))
            if self.now >= tick_at:
                tick_at += TICK_S
                self._tick(is_status_due=self.now >= status_at)
                status_at += STATUS_S * (self.now >= status_at)
            while self._due and self._due[0][0] <= self.now:
                self._arrive(*heapq.heappop(self._due)[2:])
        return sent

    def multicast(self, lan: str, datagram: bytes, address: Address, channel: str = "lan", by: int = 0) -> None:
        for gateway in self.gateways:
            if gateway.lan == lan and gateway.id != by and self.random.random() >= self.loss:
                self._put(LAN_S, channel, gateway.id, by, datagram, address)

    def _put(self, after_s: float, *what: object) -> None:
        heapq.heappush(self._due, (self.now + after_s, next(self._order), *what))  # type: ignore[arg-type]

    def _tick(self, *, is_status_due: bool) -> None:
        for gateway in self.gateways:
            gateway.election.handle_timeout(self.now)
            gateway.forwarder.expire(self.now)
            self._elect(gateway)
            if is_status_due or gateway.forwarder.is_status_due:
                status = gateway.forwarder.status().encode()
                for peer in gateway.links:
                    self._put(WAN_S, "control", peer, gateway.id, status, gateway.address)

    def _elect(self, gateway: Gateway) -> None:
        gateway.forwarder.note_same_lan(gateway.election.here(self.now))
        gateway.forwarder.note_mates(GROUP, gateway.election.addresses(GROUP))
        gateway.forwarder.is_forwarder = gateway.election.is_forwarder
        beacon = gateway.election.poll_beacon([(GROUP, gateway.address[1])], self.now)
        if beacon is not None:
            self.multicast(gateway.lan, beacon, gateway.address, "beacon", gateway.id)

    def _arrive(self, channel: str, to: int, by: int, datagram: bytes, address: Address) -> None:
        gateway, content = self.gateways[to - 1], np.frombuffer(datagram, np.uint8)
        if channel == "beacon":
            gateway.election.receive(datagram, address, self.now)
            self._elect(gateway)
        elif channel == "lan":
            if address not in gateway.election.addresses(GROUP):
                for outward in gateway.forwarder.from_lan(GROUP, Train(content, content.size, address), self.now):
                    for peer in outward.peers:
                        self._put(WAN_S, "wan", peer.id, to, outward.data.tobytes(), address)
        elif by in gateway.links:
            kind = Kind.CONTROL if channel == "control" else Kind.NORM
            received = Received(gateway.links[by], kind, GROUP, 1, content, content.size)
            for inward in gateway.forwarder.from_wan(received, self.now):
                gateway.sent += 1
                self.multicast(gateway.lan, inward.data.tobytes(), gateway.address, by=to)

    def forwarders(self, lan: str) -> list[int]:
        return [gateway.id for gateway in self.gateways if gateway.lan == lan and gateway.forwarder.is_forwarder]

    @property
    def carried(self) -> int:
        """Number of datagrams that all gateways together have multicast so far."""
        return sum(gateway.sent for gateway in self.gateways)


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("lans", ["AAB", "AABB", "AAABBC"])
def test_gateways_of_a_lan_without_a_label_find_each_other_and_carry_everything_once(lans: str, loss: float) -> None:
    world = World(lans, loss, seed=57)
    world.join()
    world.run(SETTLED_S)
    began = world.carried
    sent = world.run(30.0, {NEAR: "A", FAR: "B"})
    beyond = len(set(lans)) - 1
    assert world.carried - began <= 1.01 * beyond * sent.total()
    assert world.carried - began >= (0.99 - 2 * loss) * beyond * sent.total()
    world.loss = 0.0
    world.run(SETTLED_S)
    for lan in set(lans):
        assert len(world.forwarders(lan)) == 1, lan
    began = world.carried
    world.run(10.0)
    assert (world.carried, world.under_way) == (began, 0)


def test_a_mate_gets_nothing_through_the_tunnel_until_it_moves_to_another_lan() -> None:
    world = World("AAB", 0.0, seed=57)
    world.join()
    world.run(SETTLED_S, {NEAR: "A"})
    one, other, far = world.gateways
    (forwarding,) = world.forwarders("A")
    active, standby = (one, other) if forwarding == one.id else (other, one)
    assert [peer.id for peer in active.forwarder.groups[GROUP].takers or ()] == [far.id]
    standby.lan = "C"
    world.run(HERE_S + 2 * TICK_S)
    assert standby.forwarder.is_forwarder
    before = standby.sent
    sent = world.run(5.0, {NEAR: "A"})
    assert standby.sent - before >= sent[NEAR] - 5
    assert not active.forwarder.refusals[Refusal.SAME_LAN]


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_lans_joined_twice_by_gateways_unknown_to_each_other_have_no_storm(loss: float, seed: int) -> None:
    world = World("AABB", loss, seed)
    world.join((1, 3), (2, 4))
    world.run(SETTLED_S)
    # The nodes are so many that the gateway which should hear a node first now and then misses each of them.
    sent = world.run(20.0, {node: "AB"[node % 2] for node in range(1, 101)})
    # Every datagram arrives twice, and one that came back arrives a third time. It must not go further.
    assert world.carried <= 3 * sent.total()
    world.run(1.0)
    began = world.carried
    world.run(10.0)
    assert (world.carried, world.under_way) == (began, 0)
    assert all(gateway.election.others(world.now) for gateway in world.gateways)


def test_a_node_that_changed_its_address_is_carried_again_soon() -> None:
    world = World("AB", 0.0, seed=57)
    world.join()
    world.run(SETTLED_S, {NEAR: "A"})
    began = world.carried
    end = world.now + MOVE_S + 1.0
    while world.now < end:
        world.multicast("A", data(NEAR), ("10.0.1.200", 1))
        world.run(EVERY_S)
    assert world.carried - began > 0.9 / EVERY_S
    assert world.gateways[0].forwarder.refusals[Refusal.LOOP] <= 1.1 * MOVE_S / EVERY_S
