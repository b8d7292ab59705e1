"""Tests of LANs that are joined twice by mistake: a gateway's own question must not circulate between them."""

from collections import deque
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest

from fjm2.bus.presence import Announcement, Flag
from fjm2.norm import Address, Train
from fjm2.norm.core.wire import Application
from fjm2d.forwarding.forwarder import Forwarder, Refusal
from fjm2d.forwarding.interest import Status
from fjm2d.tunnel import Kind, Peer, Received

GROUP = 7
STEPS_MAX = 1000
TURN_S = 0.0005


@dataclass
class Link:
    """The attributes of a peer that the forwarding rules use."""

    id: int
    name: str
    is_up: bool = True


class Gateway:
    """The forwarding rules of one gateway that has one peer."""

    def __init__(self, number: int, lan: str) -> None:
        self.node = 0xA0 + number
        self.lan = lan
        self.address: Address = (f"10.0.0.{number}", 40_000)
        self.beyond: Gateway = self
        self.link = cast("Peer", Link(number, f"gateway {number}"))
        self.forwarder = Forwarder({}, lambda _, __: False, self.node)

    def join(self, other: "Gateway") -> None:
        self.beyond, self.link = other, cast("Peer", Link(other.node, other.lan))
        self.forwarder = Forwarder({self.link.id: self.link}, lambda _, __: False, self.node)
        self.forwarder.is_forwarder = True
        self.forwarder.set_groups({GROUP: False})
        status = Status(True, frozenset({GROUP}), frozenset({GROUP})).encode()
        assert not list(self.forwarder.from_wan(self.received(status, Kind.CONTROL), 0.0))

    def received(self, datagram: bytes, kind: Kind = Kind.NORM) -> Received:
        return Received(self.link, kind, GROUP, 1, np.frombuffer(datagram, np.uint8), len(datagram))

    @property
    def question(self) -> bytes:
        """The datagram by which the gateway asks the nodes of its LAN for announcements."""
        content = Announcement(self.node, flags=Flag.ASKS | Flag.GOODBYE).encode(1024)
        return Application(source_id=self.node, instance_id=1, grtt_q=0, backoff=4, gsize_q=0, content=content).encode()


def travel(gateways: list[Gateway], asking: Gateway) -> int:
    """Return how many times a gateway's question is forwarded until it dies out. Stop counting at `STEPS_MAX`."""
    now, steps = 0.0, 0
    heard = deque([(asking.lan, asking.question, asking)])
    while heard and steps < STEPS_MAX:
        lan, datagram, by = heard.popleft()
        for gateway in gateways:
            if gateway.lan != lan or gateway is by:
                continue
            train = Train(np.frombuffer(datagram, np.uint8), len(datagram), by.address)
            for outward in gateway.forwarder.from_lan(GROUP, train, now):
                now, steps = now + TURN_S, steps + 1
                far = gateway.beyond
                arrived = far.received(outward.data.tobytes())
                heard.extend((far.lan, one.data.tobytes(), far) for one in far.forwarder.from_wan(arrived, now))
    return steps


def test_a_question_does_not_circulate_between_two_lans_that_are_joined_twice() -> None:
    gateways = [Gateway(number, lan) for number, lan in enumerate("AABB", 1)]
    for near, far in ((0, 2), (1, 3), (2, 0), (3, 1)):
        gateways[near].join(gateways[far])
    for asking in gateways:
        assert travel(gateways, asking) <= 2, f"{asking.address}"
    assert gateways[0].forwarder.refusals[Refusal.LOOP]


def test_a_question_does_not_circulate_between_two_gateways_of_one_lan() -> None:
    one, other = gateways = [Gateway(1, "A"), Gateway(2, "A")]
    one.join(other)
    other.join(one)
    for asking in gateways:
        assert travel(gateways, asking) <= 1


@pytest.mark.parametrize("side", ["lan", "wan"])
def test_datagrams_with_the_gateways_own_node_id_are_refused(side: str) -> None:
    one, other = Gateway(1, "A"), Gateway(2, "B")
    one.join(other)
    if side == "lan":
        train = Train(np.frombuffer(one.question, np.uint8), len(one.question), ("10.0.0.66", 9))
        assert not list(one.forwarder.from_lan(GROUP, train, 0.0))
    else:
        assert not list(one.forwarder.from_wan(one.received(one.question), 0.0))
    assert one.forwarder.refusals[Refusal.LOOP] == 1
    assert len(one.forwarder.groups[GROUP].table) == 0
