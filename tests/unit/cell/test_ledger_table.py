"""Tests of what a keeper knows of ledgers: progress, holes, duplicates, final sets and bounds."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.ledger import Ledger
from fjm2.cell.ledger_table import LedgerTable, Refusal, Span
from fjm2.cell.wire.stored import Progress

LEDGER = Ledger(1, 0, 1)


def table_with(*runs: tuple[int, int]) -> LedgerTable:
    """Return a table that has seen these ranges [first, end) of the ledger."""
    table = LedgerTable()
    for first, end in runs:
        table.accept(LEDGER, first, end - first, 0.0)
    return table


def test_progress_is_contiguous_from_the_first_sequence() -> None:
    table = table_with((1, 4), (6, 9))
    table.note_on_disk(Span(LEDGER, 1, 3))
    table.note_on_disk(Span(LEDGER, 6, 9))
    assert table.progress(LEDGER) == Progress(LEDGER, 2, 3)
    assert table.missing(LEDGER, 1, 12) == [(4, 6), (9, 12)]
    table.accept(LEDGER, 4, 2, 0.0)
    table.note_on_disk(Span(LEDGER, 3, 6))
    assert table.progress(LEDGER) == Progress(LEDGER, 8, 8)


def test_a_ledger_whose_start_is_missing_has_no_progress() -> None:
    table = table_with((2, 9))
    table.note_on_disk(Span(LEDGER, 2, 9))
    assert table.progress(LEDGER) == Progress(LEDGER, 0, 0)


def test_duplicates_are_told_by_their_sequences_at_any_age() -> None:
    table = table_with((1, 100))
    assert table.accept(LEDGER, 1, 99, 1e9) == []
    assert table.refused[Refusal.DUPLICATE] == 1
    assert table.accept(LEDGER, 90, 20, 1e9) == [Span(LEDGER, 100, 110)]


def test_a_fenced_ledger_takes_fetched_frames_only() -> None:
    table = table_with((1, 4))
    table.fence(LEDGER, 0.0)
    assert table.accept(LEDGER, 4, 1, 0.0) == []
    assert table.refused[Refusal.FENCED] == 1
    assert table.accept(LEDGER, 4, 1, 0.0, is_fetched=True) == [Span(LEDGER, 4, 5)]


def test_a_closed_ledger_takes_its_final_set_only() -> None:
    table = table_with((1, 4))
    table.close(LEDGER, ((1, 6), (9, 10)), 0.0, 0)
    assert table.accept(LEDGER, 1, 20, 0.0) == [Span(LEDGER, 4, 7), Span(LEDGER, 9, 11)]
    assert table.accept(LEDGER, 7, 2, 0.0) == []
    assert table.accept(LEDGER, 11, 9, 0.0, is_fetched=True) == []
    assert table.refused[Refusal.CLOSED] == 2
    assert table.is_refused(LEDGER, 7)
    assert not table.is_refused(LEDGER, 9)


def test_the_first_final_set_counts() -> None:
    table = table_with((1, 4))
    table.close(LEDGER, ((1, 3),), 0.0, 0)
    table.close(LEDGER, ((1, 99),), 0.0, 0)
    assert table.is_refused(LEDGER, 4)


def test_closed_ledgers_are_forgotten_by_the_time_of_the_log() -> None:
    table = table_with((1, 4))
    table.close(LEDGER, ((1, 3),), 0.0, 1000)
    assert table.forget_closed(1000) == []
    assert LEDGER in table
    table.pinned = {LEDGER}
    assert table.forget_closed(1001) == []
    table.pinned = ()
    assert table.forget_closed(1001) == [LEDGER]
    assert LEDGER not in table


def test_a_ledger_that_has_a_later_one_is_superseded() -> None:
    table = table_with((1, 4))
    later = LEDGER._replace(producer_epoch=3)
    assert table.successions.superseded() == []
    table.accept(later, 1, 1, 0.0)
    unheard = LEDGER._replace(producer_epoch=2)
    assert set(table.successions.superseded()) == {LEDGER, unheard}
    assert table.successions.open_before(later) == [LEDGER]
    for ledger in (LEDGER, unheard):
        table.fence(ledger, 0.0)
        table.close(ledger, (), 0.0, 0)
    assert table.successions.superseded() == []
    assert table.successions.open_before(later) == []


def test_a_closed_ledger_is_incomplete_until_it_is_on_disk() -> None:
    table = table_with((1, 4))
    table.close(LEDGER, ((1, 5),), 0.0, 0)
    assert list(table.successions.incomplete) == [LEDGER]
    for first, end in ((1, 4), (4, 6)):
        assert LEDGER in table.successions.incomplete
        table.accept(LEDGER, first, end - first, 0.0)
        table.note_on_disk(Span(LEDGER, first, end))
    assert not table.successions.incomplete


@pytest.mark.slow
def test_a_writer_that_rested_very_often_costs_no_more_than_others() -> None:
    table = LedgerTable()
    for epoch in range(20_000):
        ledger = LEDGER._replace(producer_epoch=epoch)
        table.accept(ledger, 1, 1, 0.0)
        table.close(ledger, ((1, 1),), 0.0, epoch)
    later = LEDGER._replace(producer_epoch=20_000)
    table.accept(later, 1, 1, 0.0)
    began = time.process_time()
    for _ in range(2000):
        assert table.successions.superseded() == []
        assert not table.is_refused(later, 1)
    assert time.process_time() - began < 0.5
    assert len(table.forget_closed(19_999)) == 19_999
    assert table.successions.superseded() == []
    assert len(table.forget_closed(20_000)) == 1
    assert len(table.successions.superseded()) == 1


def test_another_lane_or_another_producer_supersedes_nothing() -> None:
    table = table_with((1, 4))
    table.accept(LEDGER._replace(lane=2), 1, 1, 0.0)
    table.accept(LEDGER._replace(producer_id=2), 1, 1, 0.0)
    assert table.successions.superseded() == []


def test_a_fence_holds_for_older_ledgers_too() -> None:
    table = table_with((1, 4))
    later, between = LEDGER._replace(producer_epoch=2), LEDGER._replace(producer_epoch=1)
    table.fence(later, 0.0)
    assert table.accept(LEDGER, 4, 1, 0.0) == []
    assert table.accept(between, 1, 1, 0.0) == []
    assert table.refused[Refusal.FENCED] == 2
    assert table.progress_of(LEDGER.producer_id) == []
    assert table.accept(between, 1, 1, 0.0, is_fetched=True) == [Span(between, 1, 2)]
    assert table.is_fenced(between)


def test_what_is_older_than_a_closed_ledger_is_void() -> None:
    table = table_with((1, 4))
    table.note_on_disk(Span(LEDGER, 1, 4))
    later, between = LEDGER._replace(producer_epoch=2), LEDGER._replace(producer_epoch=1)
    table.close(later, ((1, 5),), 0.0, 1000)
    for ledger in (LEDGER, between):
        assert table.is_closed(ledger)
        assert table.is_refused(ledger, 1)
        assert table.successions.end_of(ledger) == 1
        assert table.accept(ledger, 1, 3, 0.0, is_fetched=True) == []
    assert table.progress(LEDGER) == Progress(LEDGER, 0, 0, True)
    assert [each.ledger for each in table.closed_ledgers] == [later]
    assert list(table.open_ledgers) == []
    assert set(table.forget_closed(1001)) == {LEDGER, later}
    assert not table.is_closed(LEDGER)


def test_a_writer_hears_of_each_lane_however_often_it_went_on_in_another_one() -> None:
    table = table_with((1, 4))
    for epoch in range(40):
        later = LEDGER._replace(producer_epoch=epoch, lane=2)
        table.accept(later, 1, 1, 0.0)
        table.close(later, ((1, 1),), 0.0, 1000)
    told = [each.ledger for each in table.progress_of(LEDGER.producer_id)]
    assert LEDGER in told
    assert 1 < len(told) < 40


def test_one_writer_does_not_take_the_room_of_others() -> None:
    table = LedgerTable(open_max=10, writer_open_max=3)
    for epoch in range(9):
        table.accept(Ledger(1, epoch, 0), 1, 1, 0.0)
    assert len(list(table.open_ledgers)) == 3
    assert table.refused[Refusal.WRITER_FULL] == 6
    for producer in range(2, 99):
        table.accept(Ledger(producer, 0, 0), 1, 1, 0.0)
    assert len(list(table.open_ledgers)) == 10
    assert table.refused[Refusal.TABLE_FULL] == 90


def test_closing_makes_room() -> None:
    table = LedgerTable(writer_open_max=1)
    table.accept(LEDGER, 1, 1, 0.0)
    assert table.accept(Ledger(1, 1, 1), 1, 1, 0.0) == []
    table.close(LEDGER, ((1, 1),), 0.0, 0)
    assert table.accept(Ledger(1, 1, 1), 1, 1, 0.0)


def test_holes_are_bounded_and_filled_in_the_end() -> None:
    """A sender of every second frame costs bounded memory, and loses nothing once the holes are filled."""
    table = LedgerTable(islands_max=8)
    for sequence in range(1, 100, 2):
        table.accept(LEDGER, sequence, 1, 0.0)
    assert table.refused[Refusal.SCATTERED] == 42
    stored = [span for sequence in range(1, 100) for span in table.accept(LEDGER, sequence, 1, 0.0)]
    assert table.progress(LEDGER).seen == 99
    assert all(span.end == span.first + 1 for span in stored)


def test_nonsense_is_counted() -> None:
    table = LedgerTable()
    for first, count in ((0, 1), (1, 0), (5, -1), ((1 << 64) - 1, 2)):
        assert table.accept(LEDGER, first, count, 0.0) == []
    assert table.refused[Refusal.INVALID] == 4
    assert LEDGER not in table


def test_what_is_on_disk_is_restored_even_if_the_table_is_full() -> None:
    table = LedgerTable(open_max=1)
    for epoch in range(3):
        table.restore(Span(Ledger(1, epoch, 0), 1, 5), 0.0)
    assert [each.on_disk for each in table.progress_of(1)] == [4, 4, 4]


def test_silent_ledgers() -> None:
    table = table_with((1, 2))
    other = Ledger(2, 0, 0)
    table.accept(other, 1, 1, 30.0)
    assert table.silent_since(30.0) == [LEDGER]
    table.accept(LEDGER, 1, 1, 40.0)  # even a duplicate is a sign of life
    assert table.silent_since(30.0) == []
    table.accept(LEDGER, 2, 1, 90.0, is_fetched=True)  # a frame that another keeper sent is none
    assert table.silent_since(41.0) == [LEDGER, other]


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 9)), max_size=40))
def test_every_sequence_is_stored_once(runs: list[tuple[int, int]]) -> None:
    table = LedgerTable()
    stored: list[int] = []
    for first, count in runs:
        for span in table.accept(LEDGER, first, count, 0.0):
            stored.extend(range(span.first, span.end))
            table.note_on_disk(span)
    expected = {sequence for first, count in runs for sequence in range(first, first + count)}
    assert sorted(stored) == sorted(expected)
    through = next(number for number in range(1, 80) if number not in expected) - 1
    assert table.progress(LEDGER) == Progress(LEDGER, through, through)
    assert [s for span in table.on_disk_within(LEDGER, 1, 1 << 63) for s in range(*span)] == sorted(expected)
