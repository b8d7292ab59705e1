"""Tests of a link's queue in virtual time: never above the rate, fair to senders, bounded, and every drop counted."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjm2d.tunnel import Drop, LinkQueue
from fjm2d.tunnel.link_queue import BURST_S, SENDERS_MAX, LinkBucket, Parcel

COST = 1500
SEGMENT = 1444


def parcel(count: int, source: int = 1, urgent: bool = False, segment: int = SEGMENT, cost: int = COST) -> Parcel:
    return Parcel(np.zeros(count * segment, np.uint8), segment, 3, 7, 1, source, urgent, cost)


def drain(
    queue: LinkQueue, start: float, end: float, step: float | None = None, *, is_kept_busy: bool = False
) -> list[tuple[float, Parcel]]:
    """Return the parcels that leave the queue between two times, each with its time.

    The queue is polled when it is ready. If `step` is given, polls are at least that many seconds apart.
    """
    sent, now = [], start
    while now <= end:
        count = min(45, queue.bound_bytes // (2 * COST))
        while is_kept_busy and queue.queued_bytes + count * COST <= queue.bound_bytes:
            queue.offer(parcel(count))
        while (taken := queue.poll(now)) is not None:
            sent.append((now, taken))
        at = queue.ready_at(now)
        assert at > now, "otherwise poll would have given it"
        now = at if step is None else max(at, now + step)
    return sent


def most_in_a_window(sent: list[tuple[float, Parcel]], window_s: float) -> int:
    """Return the largest number of bytes that left within any window of `window_s` seconds."""
    times = [at for at, _ in sent]
    sums = np.concatenate(([0], np.cumsum([item.cost for _, item in sent])))
    ends = np.searchsorted(times, [at + window_s for at in times], side="left")
    return int(max(sums[end] - sums[start] for start, end in enumerate(ends)))


@pytest.mark.parametrize("rate_bps", [64e3, 1e6, 10e6, 100e6, 1e9])
@pytest.mark.parametrize("late_s", [None, 0.0013, 0.02])
def test_no_window_has_more_than_the_rate_and_one_burst(rate_bps: float, late_s: float | None) -> None:
    queue = LinkQueue(rate_bps, Counter(), queue_bytes=1 << 30)
    sent = drain(queue, 0.0, 0.9, late_s, is_kept_busy=True)
    burst = max(rate_bps / 8 * BURST_S, 2 * COST)
    for window_s in (0.001, 0.01, 0.1):
        assert most_in_a_window(sent, window_s) <= rate_bps / 8 * window_s + burst + 1
    total = sum(item.cost for _, item in sent)
    assert total <= rate_bps / 8 * 0.9 + burst
    if late_s is None or late_s < BURST_S:
        assert total >= 0.97 * rate_bps / 8 * 0.9 - 2 * COST, "nor is it slower"


@given(
    st.lists(st.tuples(st.floats(0, 0.02), st.integers(1, 64), st.integers(0, 5), st.booleans()), max_size=60),
    st.sampled_from([200e3, 5e6, 300e6]),
)
def test_everything_is_sent_or_counted_and_never_too_fast(
    offers: list[tuple[float, int, int, bool]], rate_bps: float
) -> None:
    drops: Counter[Drop] = Counter()
    queue = LinkQueue(rate_bps, drops, queue_bytes=200_000)
    now, sent, offered = 0.0, [], 0
    for wait_s, count, source, urgent in offers:
        sent += drain(queue, now, now + wait_s)
        now += wait_s
        queue.offer(parcel(count, source, urgent))
        offered += count
        assert queue.queued_bytes <= 200_000
    sent += drain(queue, now, now + 30)
    assert queue.queued_bytes == 0
    assert sum(item.count for _, item in sent) + drops.total() == offered
    assert set(drops) <= {Drop.QUEUE_FULL, Drop.URGENT_FULL}
    if sent:
        assert most_in_a_window(sent, 0.01) <= rate_bps / 8 * 0.01 + max(rate_bps / 8 * BURST_S, 2 * COST) + 1


def test_without_a_limit_trains_leave_whole_and_at_once() -> None:
    queue = LinkQueue(None, Counter())
    for _ in range(10):
        queue.offer(parcel(45))
    assert [queue.poll(0.0).count for _ in range(10)] == [45] * 10  # type: ignore[union-attr]
    assert queue.poll(0.0) is None


def test_contents_stay_in_order() -> None:
    queue = LinkQueue(1e6, Counter())
    data = np.arange(100 * 4, dtype=np.uint32).view(np.uint8)
    queue.offer(Parcel(data, 16, 3, 7, 1, 1, False, 100))
    sent = drain(queue, 0, 1)
    assert len(sent) > 10
    assert b"".join(item.data.tobytes() for _, item in sent) == data.tobytes()


def test_senders_get_equal_shares_whatever_they_offer() -> None:
    """The first sender floods the link.

    The second floods it with short datagrams. The third offers less than its share.
    """
    rate_bps = 30e6
    queue = LinkQueue(rate_bps, Counter())
    got: dict[int, int] = defaultdict(int)
    now, owed = 0.0, 0.0
    while now < 3:
        queue.offer(parcel(60, source=1))
        for _ in range(10):
            queue.offer(parcel(60, source=2, segment=100, cost=156))
        owed += 0.9 * rate_bps / 8 / 3 * 0.005
        queue.offer(parcel(int(owed // COST), source=3))
        owed %= COST
        for _, item in drain(queue, now, now + 0.005):
            got[item.source] += item.cost
        now += 0.005
    share = rate_bps / 8 * 3 / 3
    assert got[3] == pytest.approx(0.9 * share, rel=0.03), "a sender that wants less than its share gets all of it"
    assert got[1] == pytest.approx(1.05 * share, rel=0.03)
    assert got[2] == pytest.approx(1.05 * share, rel=0.03)


def test_the_sender_with_the_longest_queue_loses_its_tail() -> None:
    drops: Counter[Drop] = Counter()
    queue = LinkQueue(1e6, drops, queue_bytes=100 * COST)
    queue.offer(parcel(10, source=1))
    queue.offer(parcel(90, source=2))
    queue.offer(parcel(20, source=3))
    assert drops == {Drop.QUEUE_FULL: 20}
    left = Counter()
    for _, item in drain(queue, 0, 10):
        left[item.source] += item.count
    assert left == {1: 10, 2: 70, 3: 20}


def test_a_quiet_senders_datagram_waits_for_only_one_turn_of_each_other_sender() -> None:
    rate_bps = 10e6
    queue = LinkQueue(rate_bps, Counter())
    for source in range(4):
        queue.offer(parcel(30, source))
    drain(queue, 0, 0.01)
    queue.offer(parcel(1, source=99))
    waited = next(at for at, item in drain(queue, 0.01, 1) if item.source == 99) - 0.01
    assert waited < 0.01, "a fifth of a queue that takes 180 ms"


def test_feedback_goes_first_but_does_not_starve_data() -> None:
    rate_bps = 8e6
    queue = LinkQueue(rate_bps, Counter())
    queue.offer(parcel(60, source=1))
    drain(queue, 0, 0.01)
    queue.offer(parcel(1, source=2, urgent=True, segment=44, cost=100))
    ((at, first), *_) = drain(queue, 0.01, 0.02)
    assert first.is_urgent
    assert at - 0.01 < 0.004
    got = Counter()
    now = 0.02
    while now < 1:
        queue.offer(parcel(64, source=1))
        queue.offer(parcel(64, source=3, urgent=True, segment=44, cost=100))
        for _, item in drain(queue, now, now + 0.005):
            got[item.is_urgent] += item.cost
        now += 0.005
    assert 0.45 < got[False] / got.total() < 0.65, "a flood of it takes half"


def test_feedback_has_its_own_bound() -> None:
    drops: Counter[Drop] = Counter()
    queue = LinkQueue(1e6, drops, queue_bytes=100_000)
    for _ in range(100):
        queue.offer(parcel(10, urgent=True, segment=44, cost=100))
    assert queue.queued_bytes == 25_000
    assert drops == {Drop.URGENT_FULL: 750}
    queue.offer(parcel(50))
    assert drops == {Drop.URGENT_FULL: 750}, "others have their room"


def test_many_senders_cost_bounded_memory() -> None:
    drops: Counter[Drop] = Counter()
    queue = LinkQueue(1e6, drops, queue_bytes=1 << 20)
    for source in range(20_000):
        queue.offer(parcel(1, source, segment=20, cost=76))
    assert len(queue._flows) <= SENDERS_MAX + 16
    assert queue.queued_bytes <= 1 << 20
    assert queue.queued_bytes // 76 + drops.total() == 20_000


def test_several_links_share_an_uplink() -> None:
    uplink = LinkBucket(16e6)
    queues = [LinkQueue(rate, Counter(), shared=uplink) for rate in (None, None, 2e6)]
    got = [0] * 3
    now = 0.0
    order = list(range(3))
    while now < 2:
        for queue in queues:
            queue.offer(parcel(40))
        for _ in range(100):
            for place in list(order):
                if (item := queues[place].poll(now)) is not None:
                    got[place] += item.cost
                    order.remove(place)
                    order.append(place)
                    break
            else:
                break
        now += 0.001
    assert sum(got) <= 16e6 / 8 * 2 + 16e6 / 8 * BURST_S
    assert sum(got) >= 0.97 * 16e6 / 8 * 2
    assert got[2] <= 2e6 / 8 * 2 + 2 * COST
    assert got[0] == pytest.approx(got[1], rel=0.05)


def test_a_new_rate_applies_at_once() -> None:
    queue = LinkQueue(1e6, Counter())
    first = sum(item.cost for _, item in drain(queue, 0, 1, is_kept_busy=True))
    queue.set_rate(10e6, 1)
    second = sum(item.cost for _, item in drain(queue, 1, 2, is_kept_busy=True))
    queue.set_rate(None, 2)
    drain(queue, 2, 2.0001)
    assert first == pytest.approx(125_000, rel=0.03)
    assert second == pytest.approx(1_250_000, rel=0.03)
    assert queue.queued_bytes == 0


@pytest.mark.parametrize(
    ("rate_bps", "most", "bound"),
    [
        (10e3, None, 12_000),
        (100e3, None, 25_000),
        (1e6, None, 250_000),
        (4e6, None, 256 << 10),
        (20e6, None, 625_000),
        (100e6, None, 3_125_000),
        (1e9, None, 8 << 20),
        (None, None, 8 << 20),
        (1e9, 64 << 20, 31_250_000),
        (None, 64 << 20, 64 << 20),
        (100e6, 100_000, 100_000),
        (1e6, 100_000, 100_000),
    ],
)
def test_the_queue_holds_a_quarter_of_a_second_or_two_seconds_of_a_slow_link(
    rate_bps: float | None, most: int | None, bound: int
) -> None:
    drops: Counter[Drop] = Counter()
    queue = LinkQueue(rate_bps, drops, queue_bytes=most)
    for _ in range(bound // (40 * COST) + 2):
        queue.offer(parcel(40))
    assert bound - COST < queue.queued_bytes <= bound
    assert drops.total() * COST + queue.queued_bytes == (bound // (40 * COST) + 2) * 40 * COST


def test_queued_datagrams_are_not_dropped_when_the_rate_falls() -> None:
    drops: Counter[Drop] = Counter()
    queue = LinkQueue(100e6, drops)
    while queue.queued_bytes < 3_000_000:
        queue.offer(parcel(40))
    waiting = queue.queued_bytes
    queue.set_rate(10e6, 0)
    queue.offer(parcel(40))
    assert drops == {Drop.QUEUE_FULL: 40}, "only as much as came"
    assert queue.queued_bytes == waiting


@settings(max_examples=30)
@given(st.floats(1e5, 1e9), st.lists(st.floats(0, 0.1), max_size=30))
def test_a_bucket_never_holds_more_than_a_burst(rate_bps: float, waits: list[float]) -> None:
    bucket, now = LinkBucket(rate_bps), 5.0
    for wait_s in waits:
        now += wait_s
        credit = bucket.refill_for(COST, now)
        assert credit <= bucket.burst_bytes(COST)
        bucket.spend(int(max(credit, 0)))
