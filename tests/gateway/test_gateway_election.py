"""Tests of elections in virtual time: gateways that join, die, are partitioned, and receive forged beacons."""

import hashlib
from collections.abc import Iterable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fjm2d.forwarding.election import (
    ALONE_S,
    DEAD_S,
    GREET_S,
    HERE_S,
    INTERVAL_S,
    LIST_S,
    LISTEN_S,
    MATES_MAX,
    OTHER_S,
    OTHERS_MAX,
    PROVE_S,
    BeaconDrop,
    Election,
    Flag,
)

STEP_S = 0.1
TAKEOVER_S = 3.0
SETTLED_S = 2 * LISTEN_S + 4 * INTERVAL_S
PORTS = [(77, 40_001), (78, 40_002)]


def key_of(one: int, other: int) -> bytes:
    return hashlib.sha256(f"{sorted((one, other))}".encode()).digest()


class Lan:
    """A simulated LAN whose gateways hear each other's beacons. Beacons can be lost, and pairs of gateways cut off."""

    def __init__(self, ids: Iterable[int], *, seed: int = 57, loss: float = 0.0, has_label: bool = True) -> None:
        self.random = Random(seed)
        self.loss = loss
        self.now = 100.0
        self.ids = list(ids)
        self.has_label = has_label
        self.unknown: set[frozenset[int]] = set()
        """Pairs of gateways that do not know each other's keys. This matters only on a LAN without a label."""
        self.alive: dict[int, Election] = {}
        self.cut: set[frozenset[int]] = set()
        self.heard: list[tuple[int, bytes]] = []
        """All beacons sent so far, with their senders, as anyone on the LAN could record them."""
        for identity in self.ids:
            self.start(identity)

    def start(self, identity: int) -> Election:
        election = Election(identity, self.random.randbytes, self.now, lambda other: self.key_of(identity, other))
        election.is_usable = True
        self.alive[identity] = election
        election.look(True, self.now)
        if not self.has_label:
            return election
        election.set_mates({mate: key_of(identity, mate) for mate in self.ids if mate != identity}, self.now)
        return election

    def key_of(self, one: int, other: int) -> bytes | None:
        is_known = other in self.ids and frozenset((one, other)) not in self.unknown
        return key_of(one, other) if is_known and not self.has_label and one != other else None

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.now += STEP_S
            for identity, election in list(self.alive.items()):
                election.handle_timeout(self.now)
                self.say(identity, election.poll_beacon(PORTS, self.now))

    def say(self, identity: int, beacon: bytes | None) -> None:
        if beacon is None:
            return
        self.heard.append((identity, beacon))
        for other, election in self.alive.items():
            is_cut = frozenset((identity, other)) in self.cut
            if other != identity and not is_cut and self.random.random() >= self.loss:
                election.receive(beacon, (f"10.0.0.{identity % 250}", 5742), self.now)

    @property
    def forwarders(self) -> list[int]:
        return sorted(identity for identity, election in self.alive.items() if election.is_forwarder)

    def until_one(self, within_s: float) -> float:
        """Let time pass until exactly one gateway forwards. Return the seconds that this took."""
        began = self.now
        while len(self.forwarders) != 1:
            assert self.now - began < within_s, self.forwarders
            self.run(STEP_S)
        return self.now - began


def test_a_gateway_without_mates_forwards_at_once_and_sends_no_beacons() -> None:
    election = Election(1, Random(1).randbytes, 0.0)
    election.handle_timeout(0.0)
    assert election.is_forwarder
    assert election.poll_beacon(PORTS, 10.0) is None
    assert election.goodbye(PORTS, 10.0) is None


def test_the_lowest_id_is_elected_and_stays_when_a_lower_one_comes() -> None:
    lan = Lan([5, 9, 3])
    lan.run(SETTLED_S)
    assert lan.forwarders == [3]
    del lan.alive[3]
    lan.run(TAKEOVER_S)
    assert lan.forwarders == [5]
    lan.start(3)
    lan.run(5.0)
    assert lan.forwarders == [5]


@given(st.sets(st.integers(1, 2**32 - 1), min_size=2, max_size=5), st.integers(0, 2**32), st.sampled_from([0.0, 0.1]))
def test_one_gateway_forwards_and_is_replaced_within_three_seconds_of_its_death(
    ids: set[int], seed: int, loss: float
) -> None:
    lan = Lan(ids, seed=seed)
    lan.run(SETTLED_S)
    assert len(lan.forwarders) == 1
    lan.loss = loss
    for _ in range(len(ids) - 1):
        lan.until_one(TAKEOVER_S)
        del lan.alive[lan.forwarders[0]]
        lan.until_one(TAKEOVER_S)


def test_a_gateway_that_says_goodbye_is_replaced_at_once() -> None:
    lan = Lan([1, 2])
    lan.run(SETTLED_S)
    leaving = lan.alive.pop(1)
    lan.say(1, leaving.goodbye(PORTS, lan.now))
    assert lan.forwarders == [2]


def test_a_partitioned_lan_has_one_forwarder_in_each_part_and_one_after_it_heals() -> None:
    lan = Lan([1, 2, 3])
    lan.run(SETTLED_S)
    lan.cut = {frozenset((1, 2)), frozenset((1, 3))}
    lan.run(TAKEOVER_S)
    assert lan.forwarders == [1, 2]
    lan.cut = set()
    lan.run(2 * INTERVAL_S + 2 * STEP_S)
    assert lan.forwarders == [1]


def test_a_gateway_without_connected_peers_yields_to_one_that_has_some() -> None:
    lan = Lan([1, 2])
    lan.run(SETTLED_S)
    lan.alive[1].is_usable = False
    lan.run(2 * INTERVAL_S)
    assert lan.forwarders == [2]
    lan.alive[2].is_usable = False
    lan.run(3 * INTERVAL_S)
    assert len(lan.forwarders) == 1


def test_mates_know_the_addresses_that_the_others_multicast_from() -> None:
    lan = Lan([1, 2])
    lan.run(SETTLED_S)
    assert lan.alive[2].addresses(77) == {("10.0.0.1", 40_001)}
    assert lan.alive[1].addresses(78) == {("10.0.0.2", 40_002)}
    assert lan.alive[1].addresses(79) == frozenset()


def test_forged_beacons_do_not_stop_the_forwarder() -> None:
    lan = Lan([1, 2])
    lan.run(SETTLED_S)
    stranger = Election(3, lan.random.randbytes, lan.now)
    stranger.is_usable = True
    stranger.set_mates({1: b"guess" * 6, 2: b"guess" * 6}, lan.now)
    posing = Election(1, lan.random.randbytes, lan.now)
    posing.is_usable = True
    posing.set_mates({2: b"guess" * 6}, lan.now)
    del lan.alive[1]
    end = lan.now + TAKEOVER_S
    while lan.now < end:
        for liar in (stranger, posing):
            beacon = liar.poll_beacon(PORTS, lan.now)
            if beacon is not None:
                lan.alive[2].receive(beacon, ("10.0.0.66", 5742), lan.now)
        lan.run(STEP_S)
    drops = lan.alive[2].drops
    assert lan.forwarders == [2]
    assert drops[BeaconDrop.STRANGER] > 2
    assert drops[BeaconDrop.FORGED] > 2


def test_old_beacons_of_a_dead_gateway_do_not_prevent_a_takeover() -> None:
    lan = Lan([1, 2])
    lan.run(30.0)
    old = [beacon for identity, beacon in lan.heard if identity == 1]
    del lan.alive[1]
    end, number = lan.now + TAKEOVER_S, 0
    while lan.now < end:
        for beacon in (old[-1], old[number % len(old)]):
            lan.alive[2].receive(beacon, ("10.0.0.1", 5742), lan.now)
        number += 1
        lan.run(STEP_S)
    assert lan.forwarders == [2]
    assert lan.alive[2].drops[BeaconDrop.STALE] > 20
    # A gateway that starts after the recording does not believe these old beacons either.
    del lan.alive[2]
    fresh = lan.start(2)
    for beacon in old:
        fresh.receive(beacon, ("10.0.0.1", 5742), lan.now)
    lan.run(LISTEN_S + 2 * STEP_S)
    assert lan.forwarders == [2]
    assert fresh.addresses(77) == frozenset()


def test_a_beacon_counts_once_wherever_it_comes_from() -> None:
    lan = Lan([1, 2])
    lan.run(SETTLED_S)
    standby = lan.alive[2]
    genuine = standby.addresses(77)
    for identity, beacon in lan.heard[-8:]:
        if identity == 1:
            standby.receive(beacon, ("10.0.0.66", 5742), lan.now)
    assert standby.addresses(77) == genuine
    assert standby.drops[BeaconDrop.REPLAYED]


def test_the_last_beacon_of_a_dead_gateway_does_not_keep_it_alive() -> None:
    lan = Lan([1, 2])
    lan.run(SETTLED_S)
    last = next(beacon for identity, beacon in reversed(lan.heard) if identity == 1)
    del lan.alive[1]
    for _ in range(round((DEAD_S + INTERVAL_S) / STEP_S)):
        lan.alive[2].receive(last, ("10.0.0.1", 5742), lan.now)
        lan.run(STEP_S)
    assert lan.forwarders == [2]


@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(1, 255))
def test_damaged_beacons_are_dropped_and_counted(noise: bytes, place: int, flip: int) -> None:
    lan = Lan([1, 2])
    lan.run(SETTLED_S)
    beacon = bytearray(next(beacon for identity, beacon in reversed(lan.heard) if identity == 1))
    before = sum(lan.alive[2].drops.values())
    lan.alive[2].receive(noise, ("10.0.0.1", 5742), lan.now)
    beacon[place % len(beacon)] ^= flip
    lan.alive[2].receive(bytes(beacon), ("10.0.0.1", 5742), lan.now)
    lan.alive[2].receive(bytes(beacon[:-1]), ("10.0.0.1", 5742), lan.now)
    assert sum(lan.alive[2].drops.values()) == before + 3
    assert lan.forwarders == [1]


def test_a_beacon_that_does_not_name_us_is_not_trusted() -> None:
    """A mate whose settings do not name us would ignore our beacons. So we ignore the mate's beacons."""
    election = Election(1, Random(1).randbytes, 0.0)
    election.set_mates({2: key_of(1, 2)}, 0.0)
    other = Election(2, Random(2).randbytes, 0.0)
    other.set_mates({3: key_of(2, 3)}, 0.0)
    beacon = other.poll_beacon(PORTS, 0.0)
    assert beacon is not None
    election.receive(beacon, ("10.0.0.2", 5742), 0.0)
    assert election.drops == {BeaconDrop.FORGED: 1}
    election.handle_timeout(LISTEN_S)
    assert election.is_forwarder


def test_the_maximum_of_mates_and_groups_fits_into_a_beacon() -> None:
    lan = Lan(range(1, MATES_MAX + 2))
    groups = [(number, number) for number in range(1, 65)]
    beacon = lan.alive[1].poll_beacon(groups, lan.now)
    assert beacon is not None
    lan.alive[2].receive(beacon, ("10.0.0.1", 5742), lan.now)
    answer = lan.alive[2].poll_beacon(groups, lan.now)
    assert answer is not None
    lan.alive[1].receive(answer, ("10.0.0.2", 5742), lan.now)
    assert lan.alive[1].live_mates(lan.now) == [2]
    assert lan.alive[1].addresses(64) == {("10.0.0.2", 64)}


def test_the_mac_covers_every_flag() -> None:
    lan = Lan([1, 2])
    lan.run(SETTLED_S)
    beacon = bytearray(next(beacon for identity, beacon in reversed(lan.heard) if identity == 1))
    beacon[5] |= Flag.LEAVES
    lan.alive[2].receive(bytes(beacon), ("10.0.0.1", 5742), lan.now)
    assert lan.alive[2].drops[BeaconDrop.FORGED] == 1
    assert lan.alive[2].live_mates(lan.now) == [1]


# LANs without a label.


def test_peers_on_one_lan_find_each_other_within_a_second_and_one_forwards() -> None:
    lan = Lan([5, 9, 3], has_label=False)
    assert lan.forwarders == []
    lan.run(1.0)
    assert lan.forwarders == [3]
    assert lan.alive[9].here(lan.now) == {3, 5}
    assert lan.alive[9].addresses(77) == {("10.0.0.3", 40_001), ("10.0.0.5", 40_001)}
    del lan.alive[3]
    lan.run(TAKEOVER_S)
    assert lan.forwarders == [5]
    # A gateway that joins later finds the forwarder before it has itself forwarded anything.
    latest = lan.start(3)
    for _ in range(round(5.0 / STEP_S)):
        lan.run(STEP_S)
        assert not latest.is_forwarder
    assert lan.forwarders == [5]


def test_a_lone_gateway_forwards_almost_at_once_and_sends_few_beacons() -> None:
    lan = Lan([1], has_label=False)
    lan.run(GREET_S + STEP_S)
    assert lan.forwarders == [1]
    lan.run(20.0)
    assert len(lan.heard) <= 2 + 20.0 / ALONE_S


@given(st.integers(0, 2**32), st.sampled_from([0.1, 0.3]))
def test_lost_beacons_do_not_make_gateways_forget_each_other(seed: int, loss: float) -> None:
    lan = Lan([1, 2, 3], seed=seed, loss=loss, has_label=False)
    lan.run(10.0)
    for _ in range(100):
        lan.run(STEP_S)
        for identity, election in lan.alive.items():
            assert election.here(lan.now) == {1, 2, 3} - {identity}


def test_a_gateway_that_vanished_is_no_mate_and_its_peer_stops_sending_beacons() -> None:
    lan = Lan([1, 2], has_label=False)
    lan.run(SETTLED_S)
    del lan.alive[2]
    lan.run(HERE_S - 1.0)
    assert lan.alive[1].here(lan.now) == {2}
    lan.run(2.0)
    assert lan.alive[1].here(lan.now) == frozenset()
    assert lan.alive[1].addresses(77) == frozenset()
    before = len(lan.heard)
    lan.run(20.0)
    assert len(lan.heard) - before <= 1 + 20.0 / ALONE_S


def test_a_gateway_that_says_goodbye_is_gone_at_once() -> None:
    lan = Lan([1, 2], has_label=False)
    lan.run(SETTLED_S)
    leaving = lan.alive.pop(1)
    lan.say(1, leaving.goodbye(PORTS, lan.now))
    assert lan.forwarders == [2]
    assert lan.alive[2].here(lan.now) == frozenset()


def test_unknown_gateways_are_reported_but_not_trusted() -> None:
    lan = Lan([1, 2], has_label=False)
    lan.unknown = {frozenset((1, 2))}
    lan.run(SETTLED_S)
    assert lan.forwarders == [1, 2]
    (other,) = lan.alive[1].others(lan.now)
    assert (other.id, other.host, other.groups) == (2, "10.0.0.2", {77, 78})
    assert not lan.alive[1].live_mates(lan.now)
    del lan.alive[2]
    lan.run(OTHER_S)
    assert lan.alive[1].others(lan.now) == []


def test_a_gateway_that_is_heard_before_the_list_names_it_is_no_fault() -> None:
    lan = Lan([1, 2], has_label=False)
    lan.unknown = {frozenset((1, 2))}
    lan.run(LIST_S - 0.5)
    for identity, other in ((1, 2), (2, 1)):
        assert [one.id for one in lan.alive[identity].others(lan.now)] == [other]
        assert lan.alive[identity].strangers(lan.now) == []
    lan.unknown = set()
    assert lan.alive[1].others(lan.now) == [], "it is named from now on"
    lan.run(ALONE_S)
    assert lan.forwarders == [1]
    assert lan.alive[1].live_mates(lan.now) == [2]
    for election in lan.alive.values():
        assert election.others(lan.now) == election.strangers(lan.now) == []


def test_a_gateway_that_no_list_names_is_a_fault_until_it_is_gone() -> None:
    lan = Lan([1, 2], has_label=False)
    lan.unknown = {frozenset((1, 2))}
    lan.run(LIST_S + ALONE_S)
    assert [other.id for other in lan.alive[1].strangers(lan.now)] == [2]
    lan.run(20.0)
    assert [other.id for other in lan.alive[1].strangers(lan.now)] == [2]
    del lan.alive[2]
    lan.run(OTHER_S)
    assert lan.alive[1].strangers(lan.now) == []


def test_beacons_that_anyone_could_forge_prove_nothing_and_use_bounded_memory() -> None:
    """This includes beacons that carry the ids of peers."""
    lan = Lan(range(1, 100), has_label=False)
    lan.alive = {1: lan.alive[1], 2: lan.alive[2]}
    lan.cut = {frozenset((1, 2))}
    forged = {}
    for identity in [*range(2, 100), *range(1000, 1100)]:
        poser = Election(identity, lan.random.randbytes, lan.now)
        poser.look(True, lan.now)
        forged[identity] = poser.poll_beacon(PORTS, lan.now)
    before = len(lan.heard)
    for _ in range(50):
        for beacon in forged.values():
            assert beacon is not None
            lan.alive[1].receive(beacon, ("10.0.0.66", 5742), lan.now)
        lan.run(STEP_S)
    assert lan.alive[1].is_forwarder
    assert lan.alive[1].here(lan.now) == frozenset()
    assert len(lan.alive[1].others(lan.now)) == OTHERS_MAX
    assert len(lan.heard) - before < 5.0 / STEP_S * 2
    assert all(len(beacon) <= 1400 for _, beacon in lan.heard)
    lan.cut = set()
    lan.run(PROVE_S + ALONE_S + 1.0)
    assert lan.alive[1].here(lan.now) == {2}


def test_our_own_beacons_are_ignored_but_another_gateway_with_our_key_is_reported() -> None:
    lan = Lan([1, 2], has_label=False)
    lan.run(ALONE_S + 1.0)
    for _, beacon in [one for one in lan.heard if one[0] == 1][-3:]:
        lan.alive[1].receive(beacon, ("10.0.0.1", 5742), lan.now)
    assert lan.alive[1].others(lan.now) == []
    twin = Election(1, Random(1).randbytes, lan.now)
    twin.look(True, lan.now)
    beacon = twin.poll_beacon(PORTS, lan.now)
    assert beacon is not None
    lan.alive[1].receive(beacon, ("10.0.0.7", 5742), lan.now)
    assert [other.id for other in lan.alive[1].others(lan.now)] == [1]
