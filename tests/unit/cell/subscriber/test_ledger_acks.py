"""Tests of acknowledgements: each message is named once, and few ranges name all of them."""

from hypothesis import given
from hypothesis import strategies as st

from fjm2.cell.subscriber.ledger_acks import RETRY_S, RETRY_S_MAX, SCATTERED_MAX, LedgerAcks

acts = st.lists(st.tuples(st.sampled_from(["deliver", "skip", "ask", "take", "land", "fail"]), st.integers(1, 60)))


@given(acts)
def test_each_message_is_acknowledged_once_and_no_other_one(steps: list[tuple[str, int]]) -> None:
    acks, end = LedgerAcks(is_shared=False), 1
    waiting: set[int] = set()
    asked: set[int] = set()
    flying: list[tuple[int, int]] = []
    landed: set[int] = set()
    for act, number in steps:
        match act:
            case "deliver":
                acks.outstanding.add(end, end + number)
                waiting.update(range(end, end + number))
                end += number
            case "skip":
                end += number
            case "ask":
                acks.ask(number, 2 * number)
                asked |= waiting & set(range(number, 2 * number))
                waiting -= asked
            case "take":
                flying += acks.take(number, is_shared=False)
            case "land" if flying:
                first, stop = flying.pop(number % len(flying))
                acks.land(first, stop)
                assert not landed & set(range(first, stop))
                landed.update(range(first, stop))
            case "fail" if flying:
                acks.fail(*flying.pop(number % len(flying)))
            case _:
                pass
        assert not landed & waiting
    while flying or acks.asked:
        flying += acks.take(5, is_shared=False)
        for first, stop in flying:
            acks.land(first, stop)
            landed.update(range(first, stop))
        flying.clear()
    assert asked <= landed
    assert not landed & waiting
    assert not acks.is_waiting(1, end)


@given(st.lists(st.tuples(st.sampled_from(["hand", "skip", "ask", "take", "give back"]), st.integers(1, 6))))
def test_what_is_given_back_leaves_what_waits_to_be_acknowledged(steps: list[tuple[str, int]]) -> None:
    """Other requests may be on their way for so long that messages are given back behind some that are asked."""
    acks, end = LedgerAcks(is_shared=True), 1
    waiting: set[int] = set()
    asked: set[int] = set()
    taken: set[int] = set()
    given: set[int] = set()
    for act, number in steps:
        chosen = waiting & set(range(number, 2 * number))
        match act:
            case "hand":
                acks.mine.add(end, end + 2 * number)
                acks.outstanding.add(end + number, end + 2 * number)
                waiting.update(range(end + number, end + 2 * number))
                end += 2 * number
            case "skip":
                end += number
            case "ask":
                acks.ask(number, 2 * number)
                asked |= chosen
                waiting -= chosen
            case "take":
                taken.update(each for part in acks.take(1, is_shared=True) for each in range(*part))
            case _:
                given.update(each for part in acks.give_back(number, 2 * number) for each in range(*part))
                waiting -= chosen
    while acks.asked:
        parts = acks.take(5, is_shared=True)
        assert parts, "what is asked is taken at last"
        taken.update(each for part in parts for each in range(*part))
    assert asked <= taken
    assert not taken & given
    assert not (taken | given) & waiting


def test_what_is_acknowledged_in_order_is_one_range_over_what_is_for_others() -> None:
    acks = LedgerAcks(is_shared=False)
    for sequence in range(10, 1000, 10):
        acks.outstanding.add(sequence, sequence + 1)
        acks.ask(sequence, sequence + 1)
        (taken,) = acks.take(10, is_shared=False)
        assert taken == (max(1, sequence - 9), sequence + 1)
    assert acks.mine.range_count == 1


def test_scattered_acknowledgements_wait_until_those_before_them_come() -> None:
    acks = LedgerAcks(is_shared=False)
    acks.outstanding.add(1, 1001)
    for sequence in range(2, 1000, 2):
        acks.ask(sequence, sequence + 1)
    taken = acks.take(1000, is_shared=False)
    assert len(taken) < SCATTERED_MAX
    assert acks.asked
    acks.ask(1, 1001)
    taken += acks.take(1000, is_shared=False)
    named = sorted(taken)
    assert sum(end - first for first, end in named) == 1000
    assert not acks.asked


def test_a_consumer_of_a_shared_subscription_names_only_what_it_holds() -> None:
    acks = LedgerAcks(is_shared=True)
    acks.mine.add(5, 20)
    acks.outstanding.add(10, 20)
    acks.ask(1, 12)
    assert acks.take(10, is_shared=True) == [(5, 12)]
    assert acks.give_back(12, 30) == [(12, 20)]
    assert not acks.outstanding


def test_what_came_too_early_is_asked_for_less_and_less_often() -> None:
    acks, now = LedgerAcks(is_shared=False), 0.0
    acks.outstanding.add(1, 2)
    acks.ask(1, 2)
    waits = []
    for _ in range(8):
        assert acks.is_due(now)
        ((first, end),) = acks.take(1, is_shared=False)
        acks.fail(first, end)
        acks.delay(now)
        assert not acks.is_due(now)
        waits.append(acks.retry_at - now)
        now = acks.retry_at
    assert waits[:3] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
    assert waits[-1] == RETRY_S_MAX
