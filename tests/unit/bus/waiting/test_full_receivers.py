"""A receiver that is full is reported once, however often it is full, and once more when that is over."""

from fjm2.bus.losses.names import PeerName
from fjm2.bus.reports import BusReport, SubscriberFull, SubscriberReady
from fjm2.bus.waiting.full_receivers import ENDS_AFTER_S, FullReceivers

DESK, OTHER = 7, 8


class Observed:
    """Full receivers, a clock that ticks every second, and the reports."""

    def __init__(self) -> None:
        self.now = 100.0
        self.full: set[tuple[int, int]] = set()
        self.reports: list[BusReport] = []
        self.receivers = FullReceivers(lambda node: PeerName(node, ("desk-7",), "10.0.0.13"), self.reports.append)

    def fill(self, lane: int = 0, node: int = DESK) -> None:
        self.full.add((lane, node))
        self.receivers.note_full(lane, node, self.now)

    def empty(self, lane: int = 0, node: int = DESK) -> None:
        self.full.discard((lane, node))
        self.receivers.note_ready(lane, node, self.now)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += min(1.0, end - self.now)
            self.receivers.tick(self.full, self.now)

    def kinds(self) -> list[type[BusReport]]:
        return [type(report) for report in self.reports]


def test_one_that_is_full_for_less_than_a_second_is_not_reported() -> None:
    observed = Observed()
    observed.fill()
    observed.now += 0.9
    observed.empty()
    observed.run(60)
    assert observed.reports == []
    assert observed.receivers.count == 0


def test_it_is_reported_within_two_seconds_and_again_at_the_end_with_the_time() -> None:
    observed = Observed()
    observed.fill()
    observed.run(2)
    (full,) = observed.reports
    assert isinstance(full, SubscriberFull)
    assert 1.0 <= full.full_s <= 2.0
    assert "'desk-7' at 10.0.0.13 is full" in str(full)
    observed.run(10)
    assert observed.receivers.count == 1
    observed.empty()
    observed.run(60)
    _, ready = observed.reports
    assert isinstance(ready, SubscriberReady)
    assert (ready.full_s, ready.within_s, ready.is_gone) == (12.0, 12.0, False)
    assert str(ready) == "'desk-7' at 10.0.0.13 takes messages again: it was full for 12.0 s"


def test_one_that_is_full_again_and_again_is_reported_once() -> None:
    observed = Observed()
    for _ in range(10):
        observed.fill()
        observed.run(4)
        observed.empty()
        observed.run(0.9 * ENDS_AFTER_S)
    observed.run(60)
    assert observed.kinds() == [SubscriberFull, SubscriberReady]
    ready = observed.reports[1]
    assert isinstance(ready, SubscriberReady)
    assert round(ready.full_s) == 40
    assert "it was full for 40.0 s of 64.3 s" in str(ready)


def test_lanes_of_one_receiver_are_one_episode() -> None:
    observed = Observed()
    observed.fill(lane=0)
    observed.run(1)
    observed.fill(lane=2)
    observed.run(3)
    observed.empty(lane=0)
    observed.run(10)
    assert observed.kinds() == [SubscriberFull]
    observed.empty(lane=2)
    observed.run(10)
    ready = observed.reports[1]
    assert isinstance(ready, SubscriberReady)
    assert ready.full_s == 14.0


def test_one_that_says_nothing_any_more_is_ready() -> None:
    observed = Observed()
    observed.fill()
    observed.run(5)
    observed.full.clear()
    observed.run(10)
    assert observed.kinds() == [SubscriberFull, SubscriberReady]


def test_one_that_leaves_ends_its_episode_at_once() -> None:
    observed = Observed()
    observed.fill()
    observed.fill(node=OTHER)
    observed.run(5)
    observed.receivers.note_gone(DESK, observed.now)
    observed.receivers.note_gone(DESK, observed.now)
    assert observed.kinds() == [SubscriberFull, SubscriberFull, SubscriberReady]
    assert "is gone: it was full for 5.0 s" in str(observed.reports[2])
    assert observed.receivers.count == 1


def test_events_of_unknown_receivers_do_no_harm() -> None:
    observed = Observed()
    observed.receivers.note_ready(0, DESK, observed.now)
    observed.receivers.note_gone(DESK, observed.now)
    observed.run(5)
    assert observed.reports == []
