"""A full consumer is reported once an episode, and let go if and only if it takes nothing for `block_s`."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.bus.waiting.patience import EPISODE_ENDS_AFTER_S, REPORTED_AFTER_S, Patience, Verdict


class Watched:
    """A consumer that is checked when it asks to be, by a clock that tests set."""

    def __init__(self, block_s: float) -> None:
        self.now = 0.0
        self.taken = 0
        self.patience = Patience(block_s)
        self.verdicts: list[tuple[Verdict, float]] = []
        """Verdicts, each with its time."""

    def fill(self) -> None:
        self.patience.note_full((self.taken,), self.now)

    def run(self, until: float, take_every_s: float = math.inf) -> None:
        """Check until a time, while the consumer takes a message now and then."""
        next_take_at = self.now + take_every_s
        while self.patience.is_full and self.now < until:
            self.now = min(self.now + self.patience.next_check_s(self.now) + 1e-9, until)
            while next_take_at <= self.now:
                self.taken += 1
                next_take_at += take_every_s
            verdict = self.patience.check((self.taken,), self.now)
            if verdict is not None:
                self.verdicts.append((verdict, self.now))


@pytest.mark.parametrize("block_s", [0.05, 0.5, 5.0, 60.0])
def test_a_consumer_that_takes_nothing_is_let_go_in_time(block_s: float) -> None:
    watched = Watched(block_s)
    watched.fill()
    watched.run(1000.0)
    (*reports, (verdict, at)) = watched.verdicts
    assert verdict is Verdict.LET_GO
    assert at == pytest.approx(block_s, abs=0.001)
    assert [(one, round(at, 3)) for one, at in reports] == [(Verdict.REPORT, REPORTED_AFTER_S)] * (block_s > 1)
    assert not watched.patience.is_full
    assert watched.patience.taken == 0


def test_with_0_it_is_let_go_at_the_first_check() -> None:
    watched = Watched(0.0)
    watched.fill()
    assert watched.patience.next_check_s(0.0) == 0.0
    assert watched.patience.check((0,), 0.0) is Verdict.LET_GO


def test_without_a_limit_it_is_never_let_go() -> None:
    watched = Watched(math.inf)
    watched.fill()
    watched.run(10_000.0)
    assert [verdict for verdict, _ in watched.verdicts] == [Verdict.REPORT]


@given(st.floats(0.1, 100.0), st.floats(0.01, 0.9))
def test_one_that_keeps_taking_messages_is_never_let_go(block_s: float, share: float) -> None:
    watched = Watched(block_s)
    watched.fill()
    watched.run(20 * block_s, take_every_s=share * block_s)
    assert Verdict.LET_GO not in [verdict for verdict, _ in watched.verdicts]
    assert watched.patience.taken > 0


@given(st.floats(0.1, 100.0), st.floats(0.0, 10.0))
def test_one_that_stops_is_let_go_within_a_twentieth_more(block_s: float, worked_s: float) -> None:
    watched = Watched(block_s)
    watched.fill()
    watched.run(worked_s, take_every_s=0.01 * block_s)
    stopped_at = watched.now
    watched.run(stopped_at + 10 * block_s)
    verdict, at = watched.verdicts[-1]
    assert verdict is Verdict.LET_GO
    assert 0.98 * block_s <= at - stopped_at <= 1.06 * block_s


def test_one_that_is_full_for_short_times_is_not_reported() -> None:
    watched = Watched(60.0)
    for _ in range(100):
        watched.fill()
        watched.run(watched.now + 0.9 * REPORTED_AFTER_S, take_every_s=0.002)
        watched.patience.note_room(watched.now)
        watched.now += 0.001
    assert watched.verdicts == []


def test_a_slow_one_that_is_full_again_and_again_is_reported_once() -> None:
    watched = Watched(60.0)
    for _ in range(10):
        watched.fill()
        watched.run(watched.now + 20.0, take_every_s=0.002)
        watched.patience.note_room(watched.now)
        watched.now += 0.5 * EPISODE_ENDS_AFTER_S
    assert [verdict for verdict, _ in watched.verdicts] == [Verdict.REPORT]
    watched.now += EPISODE_ENDS_AFTER_S
    watched.fill()
    watched.run(watched.now + 2.0, take_every_s=0.002)
    assert [verdict for verdict, _ in watched.verdicts] == [Verdict.REPORT] * 2


def test_it_is_asked_seldom_enough_to_cost_nothing() -> None:
    watched = Watched(60.0)
    watched.fill()
    checks = 0
    while watched.patience.is_full:
        watched.now += watched.patience.next_check_s(watched.now) + 1e-9
        watched.patience.check((0,), watched.now)
        checks += 1
    assert checks < 300
