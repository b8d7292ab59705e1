"""Tests of series of samples: their increments add up to the counters, and they cover all of the time."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.readings import Reading
from fjm2.traces.series import IDLE_S, Series

steps = st.lists(
    st.tuples(
        st.floats(0.01, 3.0),
        st.dictionaries(st.sampled_from("abc"), st.integers(1, 1000), max_size=2),
        st.integers(0, 2),
    ),
    max_size=40,
)
"""Lists of steps: seconds that pass, increments of counters, and the number of lines that the disk then accepts."""


@given(steps)
def test_increments_add_up_and_cover_all_of_the_time(steps: list[tuple[float, dict[str, int], int]]) -> None:
    series, counts, now = Series("session", None, 100.0), Counter[str](a=5), 100.0
    series.begin_with(Reading("session", dict(counts), {}, {}))
    told: Counter[str] = Counter()
    covered_to = now
    for seconds, more, room in [*steps, (0.1, {"a": 1}, 2)]:
        now += seconds
        counts.update(more)
        reading = Reading("session", dict(counts), {}, {})
        samples = series.due(reading, now)
        assert len(samples) <= 2
        assert samples or not more
        for sample in samples[:room]:
            assert sample.start == covered_to < sample.end
            covered_to = sample.end
            told.update({name: int(value) for name, value in sample.counters.items()})
        series.commit(reading, samples, min(room, len(samples)))
    assert covered_to == now
    assert +told == +(counts - Counter(a=5))


def test_an_idle_series_has_a_line_a_second_and_a_short_one_when_it_wakes() -> None:
    series = Series("session", None, 0.0)
    written = []
    for tick in range(1, 36):
        reading = Reading("session", {"a": 7 if tick == 35 else 0, "cpu_s": tick / 1000}, {"rss_bytes": tick}, {})
        samples = series.due(reading, tick / 10)
        series.commit(reading, samples, len(samples))
        written += [(round(one.end - one.start, 3), one.counters.get("a", 0)) for one in samples]
    assert written == [(IDLE_S, 0), (IDLE_S, 0), (IDLE_S, 0), (0.4, 0), (0.1, 7)]


def test_a_gauge_or_a_drop_ends_the_idle_time() -> None:
    series = Series("session", None, 0.0)
    assert series.due(Reading("session", {}, {}, {}), 0.1) == []
    (_, sample) = series.due(Reading("session", {}, {"queue_bytes": 5}, {}), 0.2)
    assert sample.gauges == {"queue_bytes": 5}
    (_, sample) = series.due(Reading("session", {}, {}, {"own": 2}), 0.2)
    assert (sample.drops, sample.end - sample.start) == ({"own": 2}, 0.1)


def test_a_counter_that_fell_counts_from_zero() -> None:
    series = Series("link:1", "1", 0.0)
    series.begin_with(Reading("link:1", {"bytes_sent": 1000}, {}, {}))
    (sample,) = series.due(Reading("link:1", {"bytes_sent": 30}, {}, {}), 0.1)
    assert sample.counters == {"bytes_sent": 30}
