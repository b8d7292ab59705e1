"""Tests of delivery times: messages wait until they are due, and what is due stays due."""

from random import Random

from fjm2.base.ledger import DELAYED_LANE, Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.service.due_times import DueTimes

ONE, TWO = Ledger(1, 0, DELAYED_LANE), Ledger(2, 0, DELAYED_LANE + 1)


def test_messages_are_due_at_their_times() -> None:
    times = DueTimes()
    times.add(ONE, 1, [300, 100, 200])
    times.add(TWO, 7, [100])
    assert (times.waiting, times.next_ms) == (4, 100)
    times.advance(99)
    assert (list(times.due(ONE)), list(times.due(TWO))) == ([], [])
    times.advance(200)
    assert (list(times.due(ONE)), list(times.due(TWO))) == ([(2, 4)], [(7, 8)])
    times.advance(50)
    assert list(times.due(ONE)) == [(2, 4)], "a clock that is set back takes nothing back"
    times.advance(300)
    assert (list(times.due(ONE)), times.waiting, times.next_ms) == ([(1, 4)], 0, None)


def test_a_message_is_noted_once() -> None:
    times = DueTimes()
    for _ in range(3):
        times.add(ONE, 1, [100, 200])
    assert times.waiting == 2
    times.advance(100)
    times.add(ONE, 1, [100, 200])
    assert (list(times.due(ONE)), times.waiting) == ([(1, 2)], 1)


def test_what_is_gone_is_never_due() -> None:
    times = DueTimes()
    times.add(ONE, 1, [100, 200, 300])
    times.advance(100)
    times.remove(ONE, [(1, 3)])
    times.advance(1000)
    assert list(times.due(ONE)) == [(3, 4)]
    times.remove(ONE, [(1, 1 << 64)])
    assert (list(times.due(ONE)), times.waiting) == ([], 0)


def test_times_of_messages_that_are_gone_take_no_memory_for_long() -> None:
    times = DueTimes()
    for first in range(1, 100_000, 1000):
        times.add(ONE, first, [10**12] * 1000)
        times.remove(ONE, [(first, first + 1000)])
        assert len(times._waiting) <= 2001
    assert times.next_ms is None or times.waiting == 0


def test_random_messages() -> None:
    for seed in range(50):
        random = Random(seed)
        times, now = DueTimes(), 0
        known: dict[tuple[Ledger, int], int] = {}
        for _ in range(200):
            ledger = random.choice((ONE, TWO))
            match random.randrange(3):
                case 0:
                    first = random.randrange(1, 100)
                    each = [random.randrange(1000) for _ in range(random.randrange(5))]
                    times.add(ledger, first, each)
                    for sequence, time_ms in enumerate(each, first):
                        known.setdefault((ledger, sequence), time_ms)
                case 1:
                    now = max(now, random.randrange(1000))
                    times.advance(now)
                case _:
                    first = random.randrange(1, 100)
                    times.remove(ledger, [(first, first + 5)])
                    for sequence in range(first, first + 5):
                        known.pop((ledger, sequence), None)
            times.advance(now)
            for ledger in (ONE, TWO):
                expected = RangeSet()
                for (owner, sequence), time_ms in known.items():
                    if owner == ledger and time_ms <= now:
                        expected.add(sequence, sequence + 1)
                assert list(times.due(ledger)) == list(expected), seed
            assert times.waiting == sum(time_ms > now for time_ms in known.values())
