"""Tests of received transactions, which are delivered whole or not at all, in order and with bounded memory."""

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from routing import CONNECTION, OTHER, SENDER, STREAM, TOPIC, Bench, Subscriber, message

from fjm2.bus.reports import BusReport, TransactionDropped
from fjm2.bus.transactions import TransactionDrop, Transactions
from fjm2.jms import Topic
from fjm2.messages.frame import Parts
from fjm2.messages.header import Transaction


def part(number: int, place: int, size: int, destination: Topic = TOPIC) -> Parts:
    return message(f"{number}.{place}", destination, transaction=Transaction(number, place, size))


def batch(number: int, size: int) -> list[Parts]:
    return [part(number, place, size) for place in range(size)]


def dropped(reports: list[BusReport]) -> list[tuple[int, int, str]]:
    return [(each.number, each.received, each.reason) for each in reports if isinstance(each, TransactionDropped)]


def test_a_batch_is_released_when_it_is_complete() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    first, second, third = batch(1, 3)
    bench.take([first, message("plain"), second])
    assert subscriber.texts == ["plain"]
    bench.take([third])
    assert subscriber.texts == ["plain", "1.0", "1.1", "1.2"]
    assert len(bench.router.transactions) == bench.router.transactions.held_bytes == 0


def test_the_order_is_that_of_the_sends_over_all_lanes() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    parts = batch(1, 4)
    bench.take(
        [
            parts[3],
        ],
        sender=OTHER,
    )
    bench.take([parts[0], parts[2]])
    bench.take([parts[1]], sender=OTHER)
    assert subscriber.texts == ["1.0", "1.1", "1.2", "1.3"]


def test_messages_that_nobody_here_wants_count_but_take_no_memory() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    elsewhere = Topic("elsewhere")
    unwanted = message("x" * 100_000, elsewhere, transaction=Transaction(1, 1, 3))
    bench.take([part(1, 0, 3), unwanted])
    assert bench.router.transactions.held_bytes < 5_000
    bench.take([part(1, 2, 3)])
    assert subscriber.texts == ["1.0", "1.2"]


def test_batches_of_one_lane_keep_their_order() -> None:
    """The second batch is complete before the first one, the rest of which is in a slower lane."""
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([part(1, 0, 2), *batch(2, 2)])
    bench.take(batch(3, 1), sender=OTHER)  # this batch shares no lane with the first
    assert subscriber.texts == ["3.0"]
    bench.take([part(1, 1, 2)], sender=OTHER)
    assert subscriber.texts == ["3.0", "1.0", "1.1", "2.0", "2.1"]


def test_a_batch_whose_sender_is_gone_is_dropped_whole_and_reported() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([part(1, 0, 2), part(1, 1, 2), part(2, 0, 2), *batch(3, 1)])
    bench.router.forget(SENDER)
    bench.router.check()
    assert subscriber.texts == ["1.0", "1.1"]
    bench.now += 5.0
    bench.router.check()
    assert dropped(bench.reports) == [(2, 1, TransactionDrop.SENDER_GONE.value)]
    assert subscriber.texts == ["1.0", "1.1", "3.0"]  # batch 3 was complete, and waited for batch 2
    assert str(bench.reports[0]).startswith(f"transaction 2 of connection {CONNECTION:016x} was dropped with 1 of 2")


def test_another_lane_may_complete_a_batch_begun_by_an_ended_lane() -> None:
    """A closing sender ends its lanes one by one, and the last lane may still be repaired."""
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([part(1, 0, 3)])
    bench.router.forget(SENDER)
    bench.now += 4.0
    bench.take([part(1, 1, 3)], sender=OTHER)
    bench.now += 30.0
    bench.router.check()
    assert not bench.reports
    bench.take([part(1, 2, 3)], sender=OTHER)
    assert subscriber.texts == ["1.0", "1.1", "1.2"]


def test_lost_bytes_drop_a_batch_unless_its_next_parts_follow() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([part(1, 0, 3), part(2, 0, 3)])
    bench.router.note_gap(SENDER, STREAM)
    for place in (1, 2):
        bench.now += 4.0
        bench.router.check()
        bench.take([part(2, place, 3)])
    bench.router.check()
    assert dropped(bench.reports) == [(1, 1, TransactionDrop.BYTES_LOST.value)]
    assert subscriber.texts == ["2.0", "2.1", "2.2"]
    assert subscriber.gaps == [True, False, False]


def test_a_batch_that_does_not_go_on_is_dropped_some_time() -> None:
    bench = Bench(Subscriber())
    bench.take([part(1, 1, 2)])
    bench.now += 59.0
    bench.router.check()
    assert not bench.reports
    bench.now += 1.0
    bench.router.check()
    assert dropped(bench.reports) == [(1, 1, TransactionDrop.STALLED.value)]


def test_a_batch_whose_senders_are_silent_is_dropped_soon() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([part(1, 0, 3), part(2, 0, 2)])
    bench.take([part(1, 1, 3)], sender=OTHER)
    silent: set[int] = set()
    bench.now += 5.0
    bench.router.check(silent.__contains__)
    silent.add(SENDER)
    bench.now -= 0.1
    bench.router.check(silent.__contains__)
    assert not bench.reports
    bench.now += 0.1
    bench.router.check(silent.__contains__)
    assert dropped(bench.reports) == [(2, 1, TransactionDrop.SENDER_SILENT.value)]  # the first has a sender that lives
    silent.add(OTHER)
    bench.router.check(silent.__contains__)
    assert dropped(bench.reports)[1:] == [(1, 2, TransactionDrop.SENDER_SILENT.value)]


def test_time_in_which_nobody_listened_does_not_count() -> None:
    bench = Bench(Subscriber())
    bench.take([part(1, 0, 2)])
    bench.now += 50.0
    bench.router.check(lambda _: True, unheard_s=50.0)
    bench.now += 4.9
    bench.router.check(lambda _: True)
    assert not bench.reports


def test_later_parts_of_a_dropped_batch_begin_no_new_one() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([part(1, 0, 2)])
    bench.now += 60.0
    bench.router.check()
    bench.take([part(1, 1, 2), part(1, 0, 2)])
    assert subscriber.texts == []
    assert bench.router.transactions.refused == 2
    assert len(bench.router.transactions) == 0


def test_parts_that_disagree_are_refused() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    bench.take([part(1, 0, 2), part(1, 0, 2), part(1, 1, 3), part(1, 1, 2)])
    assert subscriber.texts == ["1.0", "1.1"]
    assert bench.router.transactions.refused == 2


def test_a_new_subscriber_gets_own_batches_only_from_their_start() -> None:
    """A subscriber that is added while a batch is published gets none of it. No part of the batch is kept."""
    bench = Bench()
    first, *rest = batch(1, 3)
    bench.router.publish(TOPIC, first)
    subscriber = Subscriber()
    bench.router.add(subscriber)
    for parts in rest:
        bench.router.publish(TOPIC, parts)
    assert subscriber.texts == []
    assert len(bench.router.transactions) == 0
    for parts in batch(2, 3):
        bench.router.publish(TOPIC, parts)
    assert subscriber.texts == ["2.0", "2.1", "2.2"]


@pytest.mark.parametrize("size", [2, 0xFFFFFFFF])
def test_memory_is_bounded_and_the_largest_goes_first(size: int) -> None:
    reports: list[BusReport] = []
    released: list[str] = []
    transactions = Transactions[str](released.append, reports.append, bytes_max=100_000)
    transactions.add(1, Transaction(7, 0, 2), "kept", 10_000, SENDER, 0.0)
    for connection in range(2, 100):
        transactions.add(connection, Transaction(1, 0, size), "large", 40_000, OTHER, 0.0)
        assert transactions.held_bytes <= 100_000
    transactions.add(1, Transaction(7, 1, 2), "kept, too", 10, SENDER, 0.0)
    assert released == ["kept", "kept, too"]
    assert {each.reason for each in reports if isinstance(each, TransactionDropped)} == {
        TransactionDrop.NO_MEMORY.value
    }


def test_a_connection_has_few_batches_at_a_time() -> None:
    bench = Bench(Subscriber())
    bench.take([part(number, 0, 2) for number in range(300)])
    assert len(bench.router.transactions) == 256
    assert [number for number, _, _ in dropped(bench.reports)] == list(range(44))


@given(data=st.data(), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_whatever_the_lanes_delay_batches_come_whole_and_in_order(data: st.DataObject, sizes: list[int]) -> None:
    """Each lane keeps the order of its messages. Lanes may run ahead of each other."""
    lanes: dict[int, list[tuple[int, int]]] = defaultdict(list)
    lane_of = {}
    for number, size in enumerate(sizes):
        for place in range(size):
            lane = data.draw(st.sampled_from([10, 11, 12]))
            lanes[lane].append((number, place))
            lane_of[f"{number}.{place}"] = lane
    subscriber = Subscriber()
    bench = Bench(subscriber)
    arrived: list[tuple[int, int]] = []
    while any(lanes.values()):
        lane = data.draw(st.sampled_from(sorted(lane for lane in lanes if lanes[lane])))
        number, place = lanes[lane].pop(0)
        bench.take([part(number, place, sizes[number])], sender=lane)
        arrived.append((number, place))
        shown = {int(text.split(".")[0]) for text in subscriber.texts}
        for one in shown:
            assert sum(batch == one for batch, _ in arrived) == sizes[one]  # of no earlier batch have all parts arrived
    by_batch = defaultdict(list)
    for text in subscriber.texts:
        by_batch[int(text.split(".")[0])].append(text)
    assert by_batch == {number: [f"{number}.{place}" for place in range(size)] for number, size in enumerate(sizes)}
    for lane in (10, 11, 12):
        of_lane = [text for text in subscriber.texts if lane_of[text] == lane]
        assert of_lane == sorted(of_lane, key=lambda text: [int(each) for each in text.split(".")])
