"""The checker of histories finds each kind of broken promise."""

from collections import defaultdict

import pytest
from history import Life, Range, Told, check, were_told

PLACES = [("a", 4)]
SEQUENCE = ("p", "a", 4)
LOST = Told(2.0, "MessagesLostError", "messages of 'p' are lost")
NAMED = Told(2.0, "BusError", "'s' is silent")


def lives(
    *ranges: tuple[int, int, bool], told: tuple[Told, ...] = (), publisher_told: tuple[Told, ...] = ()
) -> list[Life]:
    """Return a publisher of ten messages, and a subscriber that got these ranges of them."""
    publisher = Life("p", "publish", 1, closing_at=2.0, is_closed=True, closed_at=2.5, began=[(1.0, 0, 10)], sent=10)
    publisher.told += publisher_told
    got = defaultdict(list, {SEQUENCE: [Range(1.5, *each) for each in ranges]})
    subscriber = Life("s", "subscribe", 2, ready_at=0.5, closing_at=3.0, is_closed=True, closed_at=3.5, got=got)
    subscriber.told += told
    return [publisher, subscriber]


def test_a_complete_history_is_fine() -> None:
    verdict = check(lives((0, 4, False), (4, 10, False)), PLACES)
    assert verdict.broken == []
    assert verdict.losses == []


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([(0, 5, False), (4, 10, False)], "4 came again"),
        ([(0, 5, False), (7, 10, False)], "7 has no gap flag"),
        ([(2, 10, False)], "2 has no gap flag"),
        ([(0, 12, False)], "11 was never sent"),
    ],
)
def test_a_broken_sequence_is_found(ranges: list[tuple[int, int, bool]], text: str) -> None:
    verdict = check(lives(*ranges, told=(LOST,), publisher_told=(NAMED,)), PLACES)
    assert len(verdict.broken) == 1
    assert text in verdict.broken[0]


@pytest.mark.parametrize("ranges", [[(0, 5, False), (7, 10, True)], [(0, 9, False)], []])
def test_a_loss_must_be_told_to_both(ranges: list[tuple[int, int, bool]]) -> None:
    texts = check(lives(*ranges), PLACES).broken
    assert [text.rpartition(": ")[2] for text in texts] == [
        "the subscriber was not told",
        "the publisher was not told",
    ]
    assert check(lives(*ranges, told=(LOST,), publisher_told=(NAMED,)), PLACES).broken == []


def test_a_loss_at_the_end_is_told_again_to_the_publisher_if_the_subscriber_had_come_back() -> None:
    def texts(told_at: float) -> list[str]:
        named = Told(told_at, NAMED.kind, NAMED.text)
        publisher, subscriber = lives((0, 2, False), (4, 9, True), told=(LOST,), publisher_told=(named,))
        publisher.began[:] = [(1.0, 0, 8), (1.2, 8, 1), (1.4, 9, 1)]
        return check([publisher, subscriber], PLACES).broken

    (text,) = texts(1.1)
    assert "told before the subscriber came back" in text
    assert texts(1.3) == []


@pytest.mark.parametrize("ranges", [[(0, 5, False), (7, 10, True)], [(0, 9, False)], []])
def test_a_subscriber_that_runs_is_waited_for_until_it_has_all_or_was_told(ranges: list[tuple[int, int, bool]]) -> None:
    for told, is_settled in (((), False), ((LOST,), True)):
        publisher, subscriber = lives(*ranges, told=told)
        subscriber.is_closed, subscriber.closing_at = False, float("inf")
        assert were_told([publisher, subscriber], PLACES) is is_settled
        subscriber.killed_at = 2.2
        assert were_told([publisher, subscriber], PLACES)
    publisher, subscriber = lives((0, 10, False))
    assert were_told([publisher, subscriber], PLACES)


def test_a_message_sent_before_the_subscriber_was_ready_may_be_missed() -> None:
    publisher, subscriber = lives((4, 10, False))
    publisher.began[:] = [(0.4, 0, 4), (1.0, 4, 6)]
    assert check([publisher, subscriber], PLACES).broken == []


def test_nobody_tells_a_killed_publisher() -> None:
    publisher, subscriber = lives((0, 5, False), (7, 8, True), told=(LOST,))
    publisher.sent, publisher.is_closed = None, False
    assert check([publisher, subscriber], PLACES).broken == []


def test_a_subscriber_that_leaves_early_does_not_miss_the_rest() -> None:
    publisher, subscriber = lives((0, 5, False))
    subscriber.closing_at = 2.2
    assert check([publisher, subscriber], PLACES).broken == []


CUT = Told(8.0, "MessagesLostError", "a transaction of 'p' was dropped")


def cut(*ranges: tuple[int, int, bool], told: tuple[Told, ...] = ()) -> list[Life]:
    """Return a publisher that was killed in its second transaction, and a subscriber that got these ranges."""
    publisher, subscriber = lives(*ranges, told=told)
    publisher.began[:] = [(1.0, 0, 4), (1.2, 4, 6)]
    publisher.is_transacted, publisher.sent, publisher.is_closed = True, None, False
    publisher.commit_at, publisher.killed_at = 1.3, 2.0
    subscriber.closing_at = 12.0
    return [publisher, subscriber]


def test_a_cut_transaction_must_be_told_in_time() -> None:
    assert check(cut((0, 4, False), told=(CUT,)), PLACES).broken == []
    late = Told(10.0, CUT.kind, CUT.text)
    for told in ((), (late,)):
        (text,) = check(cut((0, 4, False), told=told), PLACES).broken
        assert "told of the cut transaction of p" in text


def test_a_transaction_that_all_lanes_had_sent_may_arrive() -> None:
    assert check(cut((0, 10, False)), PLACES).broken == []


def test_a_part_of_a_transaction_is_found() -> None:
    (text,) = check(cut((0, 7, False), told=(CUT,)), PLACES).broken
    assert "3 of 6 messages of a transaction" in text


def test_a_file_arrives_or_is_told_to_both() -> None:
    publisher, subscriber = lives((0, 10, False))
    publisher.files.append(("p", 1))
    subscriber.takes_files = True
    assert len(check([publisher, subscriber], PLACES).broken) == 2
    subscriber.told.append(LOST)
    publisher.told.append(NAMED)
    assert check([publisher, subscriber], PLACES).broken == []
    subscriber.told.clear()
    subscriber.files.append(("p", 1))
    assert check([publisher, subscriber], PLACES).broken == []
