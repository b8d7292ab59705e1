"""Tests of the times after which answers and repairs count as lost."""

import pytest

from fjm2.base.ranges import RangeSet
from fjm2.norm.core.repair_set import RecentRepairs, RecentRequests
from fjm2.norm.core.response_time import ResponseTime
from fjm2.norm.core.timers import NEVER

MOST_S = 1.0


def after(*samples: float) -> ResponseTime:
    made = ResponseTime()
    for took_s in samples:
        made.sample(took_s)
    return made


def test_nothing_known_waits_for_the_longest_time() -> None:
    assert ResponseTime().late_s(MOST_S) == MOST_S


def test_steady_answers_are_late_soon_after_their_usual_time() -> None:
    assert 0.05 < after(*[0.05] * 50).late_s(MOST_S) < 0.1


def test_unsteady_answers_get_more_time() -> None:
    assert after(*[0.01, 0.09] * 25).late_s(MOST_S) > 0.09


@pytest.mark.parametrize(("took_s", "most_s", "expected_s"), [(1e-6, MOST_S, 0.004), (5.0, MOST_S, MOST_S)])
def test_the_time_has_bounds(took_s: float, most_s: float, expected_s: float) -> None:
    assert after(*[took_s] * 50).late_s(most_s) == expected_s


def test_each_late_answer_doubles_the_time_until_one_comes() -> None:
    time = after(*[0.01] * 50)
    usual_s = time.late_s(MOST_S)
    time.note_late()
    time.note_late()
    assert time.late_s(MOST_S) == pytest.approx(4 * usual_s)
    for _ in range(100):
        time.note_late()
    assert time.late_s(MOST_S) <= 64 * usual_s
    assert time.late_s(0.1) == 0.1
    time.sample(0.01)
    assert time.late_s(MOST_S) == pytest.approx(usual_s, rel=0.2)


def test_requests_older_than_a_repair_are_recognized() -> None:
    repairs = RecentRepairs()
    repairs.add(0, 5, 1.0, 2.0)
    repairs.add(8, 9, 1.2, 2.2)
    assert repairs.sent_after(0.9, 1.3) == RangeSet([(0, 5), (8, 9)])
    assert repairs.sent_after(1.1, 1.3) == RangeSet([(8, 9)])
    assert repairs.sent_after(1.25, 1.3) == RangeSet()
    assert repairs.sent_after(-NEVER, 1.3) == RangeSet([(0, 5), (8, 9)])
    assert repairs.sent_after(0.0, 2.1) == RangeSet([(8, 9)])  # the time of the first is over


def test_very_many_repairs_are_all_taken_for_later_ones() -> None:
    repairs = RecentRepairs()
    for index in range(0, 4000, 2):
        repairs.add(index, index + 1, index * 1e-6, 2.0)
    assert len(repairs.sent_after(0.003999, 1.0)) == 0
    assert len(repairs.sent_after(0.0, 1.0)) == 2000


def test_requests_are_forgotten_once_their_repair_is_late() -> None:
    requests = RecentRequests()
    requests.add(0, 5, 1.0)
    requests.add(5, 7, 1.5)
    assert requests.fresh(0, 10, 0.9) == [(7, 10)]
    assert requests.fresh(0, 10, 1.0) == [(0, 5), (7, 10)]
    assert len(requests) == 1
