"""Tests of two tunnels in virtual time: sessions, liveness, address changes and measurements."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tunnel_sim import GROUP, Net, chatter, connected, datagrams, exchange

from fjm2d.tunnel import Drop, EndpointConfig
from fjm2d.tunnel.events import PeerDown, PeerMoved
from fjm2d.tunnel.link.meter import LinkMeter


def test_a_session_takes_one_round_trip() -> None:
    net = Net()
    a, b = net.node("a"), net.node("b")
    b.add(a, knows=False)
    a.add(b)
    took = net.until(lambda: a.peer(b).is_up, 5)
    assert took <= 0.05, "two times 20 ms"
    net.run(0.05)
    assert b.peer(a).is_up, "confirmed half a round trip later"
    assert b.peer(a).path.address == a.address
    assert (a.peer(b).stats.handshakes_sent, b.peer(a).stats.handshakes_sent) == (1, 0)
    assert exchange(a, b)


@pytest.mark.parametrize("seed", range(8))
def test_both_may_call_at_once_and_end_with_one_session(seed: int) -> None:
    net = Net(seed)
    a, b = net.node("a"), net.node("b")
    for path in net.both(a, b):
        path.delay_s, path.jitter_s = 0.1, 0.05
    b.add(a)
    net.run(net.random.uniform(0, 0.2))
    a.add(b)
    net.run(2)
    assert exchange(a, b)
    completed = {a.peer(b).stats.handshakes_completed, b.peer(a).stats.handshakes_completed}
    net.run(100)
    assert exchange(a, b), "both sides still share one session after all overlaps ended"
    assert completed == {a.peer(b).stats.handshakes_completed, b.peer(a).stats.handshakes_completed}
    assert not a.events_of(PeerDown)
    assert not b.events_of(PeerDown)


def test_datagrams_arrive_unchanged() -> None:
    net, a, b = connected()
    sent = [*datagrams(200, 1444), b"the last one is shorter"]
    for start in range(0, 200, 50):
        a.send(b, *sent[start : start + 50])
    a.send(b, sent[-1])
    net.run(1)
    assert b.contents == sent
    assert {group for group, _ in b.received} == {GROUP}
    assert a.peer(b).stats.split == 0, "1,444 bytes fit into 1,500 exactly"


def test_lost_handshakes_are_repeated_forever_with_backoff_and_jitter() -> None:
    net = Net()
    a, b = net.node("a"), net.node("b")
    paths = net.both(a, b)
    paths[0].is_cut = True
    b.add(a, knows=False)
    a.records = True
    a.add(b)
    net.run(60)
    sent = a.peer(b).stats.handshakes_sent
    assert 13 <= sent <= 18, "0.5, 1, 2, 4 seconds, then every 5"
    assert len(a.sent) == sent
    net.run(3600)
    paths[0].is_cut = False
    assert net.until(lambda: b.peer(a).is_up, 10) <= 6.2


def test_every_address_is_tried() -> None:
    net = Net()
    a, b = net.node("a"), net.node("b")
    b.add(a, knows=False)
    peer = a.add(b, knows=False)
    assert math.isinf(net.until(lambda: peer.is_up, 3)), "neither knows the address of the other"
    peer.set_addresses((("198.51.100.1", 1), ("198.51.100.2", 2), b.address), net.now)
    a.settle()
    assert net.until(lambda: peer.is_up, 5) < 2.5


@pytest.mark.parametrize("good", range(3))
def test_every_address_is_tried_forever(good: int) -> None:
    net = Net()
    a, b = net.node("a"), net.node("b")
    b.add(a, knows=False)
    peer = a.add(b, knows=False)
    addresses = [(f"198.51.100.{number}", 1) for number in range(3)]
    addresses[good] = b.address
    net.path(a, b).is_cut = True
    peer.set_addresses(tuple(addresses), net.now)
    a.settle()
    net.run(600)
    net.path(a, b).is_cut = False
    assert net.until(lambda: peer.is_up, 30) < 3 * 6.2


def test_a_path_with_loss_reordering_and_duplicates() -> None:
    """Every datagram that arrives does so once and unchanged, despite loss, reordering and duplicates."""
    net = Net(4)
    a, b = net.node("a"), net.node("b")
    for path in net.both(a, b):
        path.loss, path.duplicate, path.jitter_s = 0.1, 0.1, 0.03
    a.add(b)
    b.add(a)
    assert net.until(lambda: a.peer(b).is_up and b.peer(a).is_up, 10) < 5
    net.run(5)
    sent = list(datagrams(2000, 1400))
    for start in range(0, 2000, 20):
        a.send(b, *sent[start : start + 20])
        net.run(0.01)
    net.run(1)
    assert len(set(b.contents)) == len(b.contents), "no datagram twice"
    assert set(b.contents) <= set(sent)
    assert 0.86 < len(b.contents) / 2000 < 0.94
    drops = b.peer(a).stats.drops
    assert drops[Drop.REPLAYED] > 100
    assert not drops[Drop.FORGED]
    assert not drops[Drop.TOO_OLD]
    assert 0.03 < a.peer(b).loss_sent < 0.25, "2,000 datagrams are few probes' worth"


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1 << 32),
    loss=st.floats(0, 0.3),
    duplicate=st.floats(0, 0.3),
    jitter=st.floats(0, 0.1),
    delay=st.floats(0.001, 0.3),
    outages=st.lists(st.tuples(st.floats(0, 60), st.floats(0.5, 20), st.sampled_from(["a", "b", "both"])), max_size=3),
    restarts=st.lists(st.tuples(st.floats(0, 60), st.sampled_from(["a", "b"])), max_size=3),
)
def test_peers_reconnect_after_any_outages_and_restarts(
    seed: int,
    loss: float,
    duplicate: float,
    jitter: float,
    delay: float,
    outages: list[tuple[float, float, str]],
    restarts: list[tuple[float, str]],
) -> None:
    net = Net(seed)
    a, b = net.node("a"), net.node("b")
    paths = {"a": net.path(a, b), "b": net.path(b, a)}
    for path in paths.values():
        path.loss, path.duplicate, path.jitter_s, path.delay_s = loss, duplicate, jitter, delay

    def cut(which: str, is_cut: bool) -> None:
        for name, path in paths.items():
            if which in (name, "both"):
                path.is_cut = is_cut

    def restart(which: str) -> None:
        one, other = (a, b) if which == "a" else (b, a)
        one.restart()
        one.add(other)

    a.add(b)
    b.add(a)
    chatter(a, b, 60, 1.0)
    for at, length, which in outages:
        net.at(net.now + at, lambda which=which: cut(which, True))
        net.at(net.now + at + length, lambda which=which: cut(which, False))
    for at, which in restarts:
        net.at(net.now + at, lambda which=which: restart(which))
    net.run(90)
    for path in paths.values():
        path.loss = path.duplicate = 0.0
        path.is_cut = False
    net.run(12)
    assert exchange(a, b, 2)
    for node in (a, b):
        assert not any(peer.stats.drops[Drop.FORGED] for peer in node.endpoint.peers.values())
        assert len(node.endpoint.indexes) <= 4, "sessions that are over are forgotten"


def test_keys_are_renewed_without_losing_anything() -> None:
    config = EndpointConfig(rekey_s=10)
    net, a, b = connected(config=config)
    completed = a.peer(b).stats.handshakes_completed
    sent = list(datagrams(600, 200))
    for datagram in sent:
        a.send(b, datagram)
        net.run(0.1)
    net.run(1)
    assert b.contents == sent
    assert 5 <= a.peer(b).stats.handshakes_completed - completed <= 7, "once every ten seconds"
    assert a.peer(b).stats.handshakes_completed == b.peer(a).stats.handshakes_completed
    assert not a.events_of(PeerDown)


def test_an_old_epoch_is_accepted_for_a_short_time_only() -> None:
    net, a, b = connected(config=EndpointConfig(rekey_s=60))
    a.records = True
    net.paths["a", "b"].is_cut = True
    for _ in range(2):
        a.send(b, b"late")
    net.paths["a", "b"].is_cut = False
    early, late = (train for train in a.sent if train.segment_bytes == len(b"late") + 28)
    assert net.until(lambda: b.peer(a).stats.handshakes_completed > 1, 65) < 62
    b.receive(early.data.tobytes(), early.segment_bytes, a.address)
    assert b.contents == [b"late"], "overtaken by the new epoch, but not by much"
    net.run(6)
    before = b.endpoint.drops[Drop.UNKNOWN_INDEX]
    b.receive(late.data.tobytes(), late.segment_bytes, a.address)
    assert b.contents == [b"late"]
    assert b.endpoint.drops[Drop.UNKNOWN_INDEX] == before + 1


def test_keys_that_cannot_be_renewed_expire() -> None:
    """The link carries sealed datagrams, but no handshakes."""
    net, a, b = connected(config=EndpointConfig(rekey_s=20))
    for node in (a, b):
        node.endpoint._receive_handshake = lambda *_: None  # type: ignore[method-assign]
    chatter(a, b, 40)
    net.run(27)
    assert a.peer(b).is_up
    net.run(4)
    assert [event.reason for _, event in a.events_of(PeerDown)] == ["expired"]
    assert not a.peer(b).is_up
    assert a.peer(b).epoch_began_at is None
    a.send(b, b"no")
    assert a.peer(b).stats.drops[Drop.NOT_UP] > 0


def test_an_idle_tunnel_sends_a_keepalive_every_ten_seconds() -> None:
    net, a, b = connected(config=EndpointConfig(rekey_s=3600))
    before = [node.peer(other).stats.datagrams_sent for node, other in ((a, b), (b, a))]
    net.run(300)
    sent = [
        node.peer(other).stats.datagrams_sent - n for (node, other), n in zip(((a, b), (b, a)), before, strict=True)
    ]
    # Each sends a probe every ten seconds, and an answer to each probe of the other.
    assert all(55 <= n <= 62 for n in sent), sent


def test_a_peer_that_dies_is_noticed_within_three_seconds() -> None:
    net, a, b = connected()
    chatter(a, b, 20)
    net.run(5.3)
    b.is_running = False
    died = net.now
    took = net.until(lambda: not a.peer(b).is_up, 10)
    assert 2 < took <= 3.1
    (at, event), *_ = a.events_of(PeerDown)
    assert event.reason == "silent"
    assert at - died == pytest.approx(took, abs=0.02)


@pytest.mark.parametrize("is_measured", [False, True])
def test_a_peer_that_cannot_hear_us_is_down(is_measured: bool) -> None:
    """Only the path from a to b fails. The session is useless to both sides, so both must give it up."""
    net, a, b = connected(is_measured=is_measured)
    chatter(a, b, 30)
    chatter(b, a, 30)
    net.run(5.3)
    net.path(a, b).is_cut = True
    heard = len(a.received)
    took = net.until(lambda: not a.peer(b).is_up, 10)
    assert 2 < took <= 4.1, "for a second b still reports what it heard before"
    assert len(a.received) > heard + 10, "though it hears it all the time"
    assert [event.reason for _, event in a.events_of(PeerDown)] == ["deaf"]
    net.run(0.5)
    assert [event.reason for _, event in b.events_of(PeerDown)] == ["silent"]
    sent = a.peer(b).stats.probes_sent
    net.run(10)
    assert not a.peer(b).is_up, "and it stays so"
    assert a.peer(b).stats.probes_sent - sent < 100
    net.path(a, b).is_cut = False
    assert net.until(lambda: a.peer(b).is_up and b.peer(a).is_up, 10) <= 1.5
    assert exchange(a, b)
    assert exchange(b, a)


def test_a_path_that_loses_a_third_each_way_is_not_dead() -> None:
    net, a, b = connected()
    chatter(a, b, 60)
    for path in net.both(a, b):
        path.loss = 0.33
    net.run(120)
    assert not a.events_of(PeerDown)
    assert not b.events_of(PeerDown)


def test_an_idle_peer_that_dies_is_noticed_too() -> None:
    net, a, b = connected()
    net.run(30)
    b.is_running = False
    assert net.until(lambda: not a.peer(b).is_up, 30) <= 10 + 3.1


@pytest.mark.parametrize("knows", [True, False])
def test_a_restarted_peer_is_back_soon(knows: bool) -> None:
    """The restarted peer calls if it knows the address. Otherwise the other side calls when it notices the silence."""
    net, a, b = connected()
    chatter(a, b, 30)
    net.run(5)
    b.is_running = False
    net.run(0.3)
    b.restart()
    b.add(a, knows=knows)
    took = net.until(lambda: b.peer(a).is_up, 10)
    assert took <= (0.1 if knows else 2.5)
    if knows:
        assert not a.events_of(PeerDown), "so soon that it was not missed"
    net.run(0.05)
    assert exchange(a, b)


def test_a_session_resumes_within_a_second_of_a_blackout_shorter_than_its_keys() -> None:
    net, a, b = connected()
    chatter(a, b, 60)
    net.run(2)
    for path in net.both(a, b):
        path.is_cut = True
    net.run(20)
    assert not a.peer(b).is_up
    for path in net.both(a, b):
        path.is_cut = False
    assert net.until(lambda: a.peer(b).is_up and b.peer(a).is_up, 10) <= 1.2
    assert exchange(a, b)


def test_datagrams_queued_for_a_dead_peer_are_dropped_and_counted() -> None:
    net, a, b = connected(rate_bps=10_000)
    b.is_running = False
    a.send(b, *[bytes(1000)] * 60)
    net.run(4)
    sent = a.peer(b).stats.datagrams_sent
    assert not a.peer(b).is_up
    assert a.peer(b).outbound.queue.queued_bytes == 0
    drops = a.peer(b).stats.drops
    assert drops[Drop.NOT_UP] > 5
    assert drops[Drop.NOT_UP] + drops[Drop.QUEUE_FULL] < 60 <= drops[Drop.NOT_UP] + drops[Drop.QUEUE_FULL] + sent
    b.is_running = True
    net.run(4)
    assert a.peer(b).is_up
    assert not any(len(content) == 1000 for content in b.contents), "NORM repairs what is still wanted"
    assert a.peer(b).stats.datagrams_sent - sent < 20


def test_a_lost_confirmation_is_repeated_soon() -> None:
    net = Net()
    a, b = net.node("a"), net.node("b")
    b.add(a, knows=False)
    a.add(b)
    net.run(0.03)
    net.path(a, b).is_cut = True
    net.run(0.02)
    assert a.peer(b).is_up
    assert not b.peer(a).is_up
    net.path(a, b).is_cut = False
    assert net.until(lambda: b.peer(a).is_up, 2) < 0.3


def test_an_answer_counts_once() -> None:
    meter = LinkMeter(Random(1).randbytes)
    number = meter.ask(1.0, 10, 1000, 0)
    assert meter.note_answer(number, 10, 1.5) is not None
    assert meter.note_answer(number, 10, 9.0) is None
    assert meter.note_answer(number ^ 1, 10, 9.0) is None
    assert meter.rtt_s == 0.5


def test_a_clean_stop_sends_a_goodbye() -> None:
    net, a, b = connected()
    b.endpoint.close(net.now)
    b.settle()
    b.is_running = False
    net.run(0.1)
    assert [event.reason for _, event in a.events_of(PeerDown)] == ["goodbye"]
    b.restart()
    b.add(a)
    assert net.until(lambda: a.peer(b).is_up, 5) < 0.1


def test_the_newest_datagram_sets_the_address_of_a_peer() -> None:
    net, a, b = connected()
    old = b.address
    b.records = True
    net.path(b, a).is_cut = True
    b.send(a, b"before, and delivered late")
    late = b.sent[-1]
    net.path(b, a).is_cut = False
    b.address = ("203.0.113.9", 999)
    b.send(a, b"from elsewhere")
    net.run(0.1)
    assert a.peer(b).path.address == b.address
    assert [(event.before, event.address) for _, event in a.events_of(PeerMoved)] == [(old, b.address)]
    a.receive(late.data.tobytes(), late.segment_bytes, old)
    assert b"before, and delivered late" in a.contents
    assert a.peer(b).path.address == b.address, "what came before does not move it back"
    assert exchange(a, b)
    assert a.peer(b).stats.moves == 1


def test_an_idle_peer_that_changes_its_address_is_found_by_its_keepalive() -> None:
    net, a, b = connected()
    net.run(20)
    b.address = ("203.0.113.9", 999)
    assert net.until(lambda: a.peer(b).path.address == b.address, 30) <= 10.1
    assert exchange(a, b)


def test_round_trip_and_loss_are_measured() -> None:
    net, a, b = connected()
    net.path(a, b).loss = 0.05
    net.path(b, a).delay_s = 0.06
    for _ in range(600):
        a.send(b, *[bytes(200)] * 10)
        net.run(0.1)
    assert a.peer(b).rtt_s == pytest.approx(0.08, rel=0.02)
    assert b.peer(a).rtt_s == pytest.approx(0.08, rel=0.02)
    assert 0.02 < a.peer(b).loss_sent < 0.09
    assert 0.02 < b.peer(a).loss_received < 0.09
    assert b.peer(a).loss_sent == 0


def test_flow_is_the_current_rate() -> None:
    net, a, b = connected(config=EndpointConfig(mtu_bytes=1500))
    peer = a.peer(b)
    peer.flow.look(peer.stats, net.now)
    for _ in range(100):
        a.send(b, bytes(972))  # 1,000 with the tunnel's header
        net.run(0.01)
    peer.flow.look(peer.stats, net.now)
    assert 800_000 <= peer.flow.sent_bps < 810_000
    assert peer.flow.received_bps < 10_000
    sent_bps = peer.flow.sent_bps
    peer.flow.look(peer.stats, net.now)
    assert peer.flow.sent_bps == sent_bps, "no time has passed"
    net.run(1)
    peer.flow.look(peer.stats, net.now)
    assert peer.flow.sent_bps < 10_000
