"""Tests of trains that pass through a gateway without queueing or copying.

Their content stays the same, and the limits of the queue apply to them.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tunnel_sim import GROUP, Node, connected, datagrams

from fjm2.norm import Train
from fjm2d.tunnel import Drop, EndpointConfig, Kind
from fjm2d.tunnel.crypto.replay import WINDOW, ReplayWindow
from fjm2d.tunnel.session import Session
from fjm2d.tunnel.wire import OVERHEAD_BYTES

SIZE = 1000


def array(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


def passed(node: Node, other: Node, content: bytes, segment_bytes: int = SIZE, kind: Kind = Kind.NORM) -> Train | None:
    return node.endpoint.pass_through(node.peer(other), kind, GROUP, array(content), segment_bytes, node.net.now)


@pytest.mark.parametrize("count", [1, 2, 44])
@pytest.mark.parametrize("last", [SIZE, 1])
def test_trains_that_pass_through_arrive_unchanged(count: int, last: int) -> None:
    net, a, b = connected()
    contents = [*datagrams(count, SIZE)]
    contents[-1] = contents[-1][:last]
    before = a.peer(b).stats.as_dict()
    train = passed(a, b, b"".join(contents))
    assert train is not None
    assert train.count == count
    net.carry(a, train)
    net.run(1)
    assert b.contents == contents
    after = a.peer(b).stats.as_dict()
    assert after["datagrams_sent"] - before["datagrams_sent"] >= count  # type: ignore[operator]
    assert not after["drops"]


def test_a_train_is_sealed_at_once_without_a_copy() -> None:
    """Changing the caller's buffer afterwards does not change the train."""
    net, a, b = connected()
    buffer = np.frombuffer(bytearray(b"x" * 3 * SIZE), np.uint8)
    train = a.endpoint.pass_through(a.peer(b), Kind.NORM, GROUP, buffer, SIZE, net.now)
    assert train is not None
    buffer[:] = ord("y")
    net.carry(a, train)
    net.run(1)
    assert b.contents == [b"x" * SIZE] * 3


def test_nothing_overtakes_queued_datagrams() -> None:
    _, a, b = connected(rate_bps=1e6)
    a.endpoint.send([a.peer(b)], Kind.NORM, GROUP, bytes(50 * SIZE), SIZE, a.net.now)
    assert passed(a, b, b"later") is None
    assert passed(a, b, b"later", kind=Kind.FEEDBACK) is None


def test_nothing_overtakes_datagrams_queued_for_the_same_uplink() -> None:
    net, a, b = connected(config=EndpointConfig(uplink_bps=1e6))
    c = net.node("c")
    a.add(c)
    c.add(a)
    net.run(2)
    passed(a, b, b"the bucket begins to fill")
    net.run(0.1)
    assert passed(a, b, b"free") is not None
    a.endpoint.send([a.peer(c)], Kind.NORM, GROUP, bytes(50 * SIZE), SIZE, net.now)
    assert passed(a, b, b"not free") is None


def test_the_rate_limits_trains_that_pass_through() -> None:
    """In a second the link carries at least nine tenths of its rate, and at most its rate plus one burst."""
    net, a, b = connected(rate_bps=10e6)
    began_at, went = net.now, 0
    while net.now < began_at + 1:
        train = passed(a, b, bytes(SIZE))
        if train is None:
            net.run(0.0001)
        else:
            went += train.data.size + 28
    assert 0.9 * 10e6 / 8 < went < 10e6 / 8 * 1.005 + 2 * (SIZE + 100)


def test_a_train_that_is_longer_than_a_turn_is_queued() -> None:
    net, a, b = connected(rate_bps=10e6)
    passed(a, b, b"the bucket begins to fill")
    net.run(1)
    assert passed(a, b, bytes(4 * SIZE)) is None
    assert passed(a, b, bytes(SIZE)) is not None


@pytest.mark.parametrize(("size", "segment_bytes"), [(1473, 1473), (45 * 1444, 1444), (65 * 100, 100)])
def test_a_train_that_is_too_long_to_seal_at_once_is_queued(size: int, segment_bytes: int) -> None:
    net, a, b = connected()
    assert passed(a, b, bytes(size), segment_bytes) is None
    a.endpoint.send([a.peer(b)], Kind.NORM, GROUP, bytes(size), segment_bytes, net.now)
    a.settle()
    net.run(1)
    assert b.received_bytes == size


def test_nothing_passes_to_a_peer_that_is_down() -> None:
    net, a, b = connected()
    c = net.node("c")
    a.add(c)
    assert passed(a, c, b"x") is None
    b.is_running = False
    assert passed(a, b, b"x") is not None
    net.run(10)
    assert not a.peer(b).is_up
    assert passed(a, b, b"x") is None


def test_a_train_that_the_kernel_has_no_room_for_stays_whole() -> None:
    """Probes that the tunnel sends meanwhile must not overwrite the sealed train, which the caller still holds."""
    net, a, b = connected()
    contents = [*datagrams(20, SIZE)]
    train = passed(a, b, b"".join(contents))
    assert train is not None
    probes = a.peer(b).stats.probes_sent
    a.peer(b)._prober.send_question(net.now)
    a.peer(b)._prober.send_question(net.now, packet_bytes=1500)
    assert a.peer(b).stats.probes_sent == probes + 2
    net.carry(a, train)
    a.settle()
    net.run(1)
    assert b.contents == contents
    assert not b.peer(a).stats.as_dict()["drops"]


# Trains that arrive one after another in the same memory.


def sessions() -> tuple[Session, Session]:
    one, two = bytes(range(32)), bytes(range(32, 64))
    return Session(one, two, 7, 8), Session(two, one, 8, 7)


TRAINS = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([1, 40, 100]), st.integers(1, 700), st.booleans()), max_size=30
)


@given(TRAINS)
def test_offsets_and_lengths_may_change_from_train_to_train(trains: list[tuple[int, int, int, bool]]) -> None:
    here, there = sessions()
    plain_room, sealed_room = np.zeros(2000, np.uint8), np.zeros(60_000, np.uint8)
    drops: Counter[Drop] = Counter()
    for number, (offset, segment_bytes, size, is_fresh) in enumerate(trains):
        content = bytes((number + place) % 251 for place in range(size))
        plain_room[offset : offset + size] = array(content)
        data = array(content) if is_fresh else plain_room[offset : offset + size]
        sealed = here.seal_train(data, segment_bytes, Kind.NORM, 1)
        arrived = sealed_room[offset : offset + sealed.size]
        arrived[:] = sealed
        opened = there.open_train(arrived, min(segment_bytes + OVERHEAD_BYTES, sealed.size), drops)
        assert opened is not None
        assert opened.data.tobytes() == content
    assert not drops


@given(st.data())
def test_each_datagram_is_accepted_once_whatever_the_order_of_trains(data: st.DataObject) -> None:
    """Trains have gaps, duplicates, and late or forged datagrams, as the kernel may join them."""
    here, there = sessions()
    step = 20 + OVERHEAD_BYTES
    total = 60
    sealed = here.seal_train(array(bytes(place // 20 for place in range(20 * total))), 20, Kind.NORM, 1).tobytes()
    taken: list[int] = []
    drops: Counter[Drop] = Counter()
    expected: Counter[Drop] = Counter()
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, total - 1))
        numbers = [*range(start, min(start + data.draw(st.integers(1, 20)), total))]
        if data.draw(st.booleans()):
            numbers = data.draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=20))
        forged = data.draw(st.sets(st.sampled_from(numbers), max_size=2))
        train = bytearray().join(sealed[number * step : (number + 1) * step] for number in numbers)
        for place, number in enumerate(numbers):
            if number in forged:
                train[place * step + 20] ^= 1
        opened = there.open_train(array(bytes(train)), step, drops)
        first = [number for place, number in enumerate(numbers) if number not in numbers[:place]]
        new = [number for number in first if number not in taken]
        good = [number for number in new if number not in forged]
        expected[Drop.REPLAYED] += len(numbers) - len(new)
        expected[Drop.FORGED] += len(new) - len(good)
        assert (b"" if opened is None else opened.data.tobytes()) == b"".join(bytes([number]) * 20 for number in good)
        taken += good
        assert there.received == len(taken)
        assert +drops == +expected


@given(st.lists(st.tuples(st.integers(0, 3 * WINDOW), st.integers(1, 70)), max_size=30))
def test_marking_a_row_equals_marking_its_counters_one_by_one(rows: list[tuple[int, int]]) -> None:
    together, single = ReplayWindow(), ReplayWindow()
    for ahead, count in rows:
        first = together.newest + 1 + ahead
        together.mark_row(first, count)
        for counter in range(first, first + count):
            single.mark(np.array([counter]))
        assert together.newest == single.newest
        last = np.arange(max(0, single.newest - WINDOW - 5), single.newest + 5)
        assert (together.are_new(last) == single.are_new(last)).all()


def test_micro_benchmark_measures_trains_that_pass_through() -> None:
    micro = pytest.importorskip("fjm2bench.micro.tunnel", reason="the package is not installed")
    costs = {cost.step: cost for cost in micro.run(1)}
    assert len(costs) == 9
    for cost in costs.values():
        count = 1 if "a lone datagram" in cost.step else micro.SEGMENTS
        assert cost.us == pytest.approx(cost.us_a_datagram * count)
        assert cost.us > 0
