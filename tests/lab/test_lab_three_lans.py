"""Tests of a topic on three LANs. Their gateways know only the address of the node-list service and a token."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from gateways import GROUP, WAN_PORT, Admin, Gateway, make_gateways, uri
from internet import Internet
from peers import READY_S, Peer, peers, until
from wiretap import Datagram, Tap

pytestmark = [pytest.mark.root, pytest.mark.alone]

FIRST_S = 5.0
"""Longest time from the start of the gateways to the first message in another LAN."""
PER_S = 100
SENT_S = 2.0
QUIET_S = 2.0
PAUSE_S = 0.5
OWN_MESSAGES_PER_S = 15
NORM_DATA = 0x12
"""First byte of NORM_DATA. A sender never sends such a datagram twice, so a duplicate proves a loop."""


class ThreeLans:
    """A publisher in LAN A, and a subscriber on each host of all LANs."""

    def __init__(self, lab: Internet, gateways: dict[str, Gateway]) -> None:
        self.lab = lab
        self.gateways = gateways
        self.subscribers = {
            f"{site.name}{number}": Peer(host, "jms_peer.py", "subscribe", uri())
            for site in lab.sites.values()
            for number, host in enumerate(site.hosts, start=1)
        }
        self.publisher = Peer(lab["a"].hosts[0], "jms_peer.py", "publish", uri(), 100, PER_S, "waiting")

    @property
    def all(self) -> tuple[Peer, ...]:
        return (*self.subscribers.values(), self.publisher)

    def received(self) -> dict[str, int]:
        return {name: sum(peer.last("received", {}).values()) for name, peer in self.subscribers.items()}

    def gained(self, before: dict[str, int]) -> dict[str, int]:
        return {name: count - before[name] for name, count in self.received().items()}

    def pause(self) -> None:
        """Pause the publisher, and wait until no more messages arrive."""
        self.publisher.tell("pause")
        before: dict[str, int] = {}
        while before != (now := self.received()):
            before = now
            time.sleep(PAUSE_S)


@pytest.fixture(scope="module")
def lans(lab: Internet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeLans]:
    """Run the publisher, the subscribers and the node-list service. Gateways are configured, but do not run yet."""
    folder = tmp_path_factory.mktemp("three")
    gateways = make_gateways(lab, folder, "a1 b1 c1")
    with ExitStack() as stack:
        admin = Admin(lab, folder)
        for gateway in gateways.values():
            gateway.know_admin(admin.address, admin.token(gateway.name))
        stack.enter_context(admin)
        made = ThreeLans(lab, gateways)
        stack.enter_context(peers(*made.all))
        for peer in made.all:
            peer.wait_for("ready")
        made.publisher.tell("begin")
        until(lambda: made.received()["a2"], FIRST_S, lambda: f"anything in LAN A: {made.subscribers['a2']}")
        for gateway in gateways.values():
            stack.callback(gateway.close)
        yield made


def test_the_first_message_crosses_within_five_seconds_of_the_start(lans: ThreeLans) -> None:
    assert all(lans.received()[name] == 0 for name in ("b1", "b2", "c1", "c2"))
    began = time.monotonic()
    for gateway in lans.gateways.values():
        gateway.start()
    told = lambda: f"{lans.received()} {' '.join(map(str, lans.gateways.values()))}"  # noqa: E731
    until(lambda: all(lans.received().values()), FIRST_S, told)
    print(f"first message across after {time.monotonic() - began:.2f} s")


def test_every_subscriber_gets_every_message_once(lans: ThreeLans) -> None:
    before = lans.received()
    assert all(before.values())
    until(lambda: min(lans.gained(before).values()) >= PER_S, READY_S, lambda: f"{lans.received()}")
    lans.pause()
    after = lans.received()
    # Each subscriber reports messages that are duplicated, out of order, or missing after the first.
    for name, peer in lans.subscribers.items():
        assert peer.all("fault") == [], name
        assert peer.last("gaps") == 0
    assert after["a1"] == after["a2"]
    # Subscribers behind other gateways joined later, so they begin with a later message.
    assert after["b1"] <= after["a1"]
    assert after["c1"] <= after["a1"]


def test_nothing_loops(lans: ThreeLans) -> None:
    """Every datagram appears once on each LAN, and crosses the Internet once to each other LAN."""
    lans.pause()
    switches = {name: site.switch for name, site in lans.lab.sites.items()}
    with lans.lab.trains_cut(), ExitStack() as stack:
        taps = {name: stack.enter_context(Tap(switch, "br0")) for name, switch in switches.items()}
        ports = {
            name: stack.enter_context(Tap(lans.lab.router, site.gateway.wan_device))
            for name, site in lans.lab.sites.items()
        }
        time.sleep(0.2)
        before = lans.received()["a2"]
        lans.publisher.tell("begin")
        time.sleep(SENT_S)
        lans.pause()
        sent = lans.received()["a2"] - before
        time.sleep(QUIET_S)
    seen = {
        name: Counter(each.payload for each in tap.datagrams if each.destination == GROUP) for name, tap in taps.items()
    }
    for name, payloads in seen.items():
        twice = [payload for payload, count in payloads.items() if count > 1 and payload[0] == NORM_DATA]
        assert not twice, f"{len(twice)} datagrams came more than once to LAN {name}"
    data = {payload for payload in seen["a"] if payload[0] == NORM_DATA}
    assert len(data) >= sent
    for name in "bc":
        missing = len(data - seen[name].keys())
        assert missing <= 0.02 * len(data), f"{missing} of {len(data)} datagrams are not in LAN {name}"
    # The other gateways do not pass on what they receive from LAN A's gateway.
    flows = {
        (left, right): len(_between(ports[left].datagrams, lans.gateways[f"{left}1"], lans.gateways[f"{right}1"]))
        for left in "abc"
        for right in "abc"
        if left != right
    }
    for left, right in flows:
        # Apart from the datagrams of the LAN, only the gateways' own messages cross the Internet.
        assert flows[left, right] < len(seen[left]) + OWN_MESSAGES_PER_S * (SENT_S + QUIET_S + PAUSE_S), f"{flows}"
    assert flows["a", "b"] >= len(data)
    assert flows["a", "c"] >= len(data)
    assert flows["b", "c"] < sent
    assert flows["c", "b"] < sent


def test_little_is_sent_while_no_one_publishes(lans: ThreeLans) -> None:
    lans.publisher.tell("close")
    assert lans.publisher.wait() == 0
    time.sleep(QUIET_S)
    with ExitStack() as stack:
        taps = [stack.enter_context(Tap(site.switch, "br0")) for site in lans.lab.sites.values()]
        wan = stack.enter_context(Tap(lans.lab.router, lans.lab["a"].gateway.wan_device))
        time.sleep(QUIET_S)
    assert all(len(tap.datagrams) < 20 * QUIET_S for tap in taps)
    assert len([each for each in wan.datagrams if WAN_PORT in (each.source[1], each.destination[1])]) < 30 * QUIET_S


def _between(datagrams: list[Datagram], left: Gateway, right: Gateway) -> list[Datagram]:
    return [
        each for each in datagrams if not each.is_outgoing and (each.source, each.destination) == (left.wan, right.wan)
    ]
