"""Tests of a cell of one that goes on without what its disk has lost."""

from collections.abc import Sequence
from random import Random

import pytest
from single_keepers import CELL_ID, LEDGER, ME, MEMBERS, Store, body, events
from test_return_alone import AGAIN, ALONE, OPENED, run

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.cell import Cell
from fjm2.cell.closing import HOLES_MAX
from fjm2.cell.ledger_table import Span
from fjm2.cell.outgoing import LossFound, State
from fjm2.cell.replica import Remembered, StoredEntry
from fjm2.cell.wire.ranges import Range, Spans
from fjm2.cell.wire.records import (
    ApplyRecord,
    CloseRecord,
    ConfigureRecord,
    FenceRecord,
    Hand,
    HandRecord,
    Record,
    Verdict,
)
from fjm2.cell.wire.requests import Open, encode_request

LATER = LEDGER._replace(producer_epoch=1)
EPOCH = OPENED.epoch
_FAR = 1 << 20


def returned(
    spans: Sequence[Span], *decided: Record, incarnation: int = AGAIN.incarnation, request: tuple[int, bytes] = (0, b"")
) -> tuple[Cell, Store]:
    """Return the only member of a cell in a new incarnation, a moment after it began, with what its disk still has.

    `request` is one that is in the store and not decided, with its sequence.
    """
    entries = [ALONE, OPENED]
    for record in decided:
        entries.append(StoredEntry(EPOCH, len(entries) + 1, body(EPOCH, record)))
    remembered = Remembered(CELL_ID, EPOCH, entries=entries, spans=spans, incarnation=incarnation)
    store = Store()
    for ledger in (LEDGER, LATER):
        kept = RangeSet((first, end) for each, first, end in spans if each == ledger)
        store.counted[ledger] = list(kept.gaps(1, _FAR))  # no other frame can be read
    cell = Cell(AGAIN, 1, 7, store, Random(1), 0.0, remembered=remembered)
    if request[0]:
        cell.clients.receive_request(LEDGER, *request)
    run(cell, store, 3.0)
    return cell, store


def finals(cell: Cell) -> dict[Ledger, Spans]:
    return {each.ledger: each.final for each in cell.replica.ledgers.closed_ledgers}


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param([(1, 19), (21, 38)], id="one"),
        pytest.param([(1, 3), (5, 7), (10, 10), (12, 38)], id="several"),
        pytest.param([(4, 38)], id="the beginning"),
        pytest.param([(2, 2)], id="nearly all"),
    ],
)
def test_an_open_ledger_is_closed_with_what_is_there(kept: list[tuple[int, int]]) -> None:
    cell, _ = returned([Span(LEDGER, first, last + 1) for first, last in kept])
    assert cell.state is State.SERVING
    assert finals(cell) == {LEDGER: tuple(kept)}
    assert cell.replica.ledgers.end_on_disk(LEDGER, 1) == kept[-1][1] + 1  # so that readers go on behind each hole


def test_a_ledger_without_holes_goes_on() -> None:
    """Its writer may still repair what the end has lost, if anything. Otherwise it fails, and begins another one."""
    cell, _ = returned([Span(LEDGER, 1, 39)])
    assert cell.state is State.SERVING
    assert not cell.replica.ledgers.is_fenced(LEDGER)


def test_later_ledgers_of_the_writer_are_closed_as_well() -> None:
    cell, _ = returned([Span(LEDGER, 1, 3), Span(LEDGER, 5, 8), Span(LATER, 2, 4)])
    assert finals(cell) == {LEDGER: ((1, 2), (5, 7)), LATER: ((2, 3),)}


def test_the_driver_is_told_how_much_is_missing() -> None:
    closed = CloseRecord(LATER, ((1, 4),))
    cell, _ = returned(
        [Span(LEDGER, 1, 3), Span(LEDGER, 5, 8), Span(LATER, 2, 4)], CloseRecord(LEDGER, ((1, 7),)), closed
    )
    assert [each for each in events(cell) if isinstance(each, LossFound)] == [
        LossFound(frames=4, ledgers=2, decisions=0)
    ]


def test_decisions_behind_one_that_is_lost_are_void_and_told() -> None:
    entries = [StoredEntry(EPOCH, at, body(EPOCH, FenceRecord(LEDGER))) for at in (4, 5, 6)]  # and none at 3
    remembered = Remembered(CELL_ID, EPOCH, entries=(ALONE, OPENED, *entries), incarnation=AGAIN.incarnation)
    store = Store()
    cell = Cell(AGAIN, 1, 7, store, Random(1), 0.0, remembered=remembered)
    run(cell, store, 3.0)
    assert cell.state is State.SERVING
    assert LossFound(frames=0, ledgers=0, decisions=3) in events(cell)


def test_a_final_set_has_a_bounded_number_of_holes() -> None:
    count = HOLES_MAX + 20
    cell, _ = returned([Span(LEDGER, 2 * each, 2 * each + 1) for each in range(1, count + 1)])
    (final,) = finals(cell).values()
    assert len(final) == HOLES_MAX
    assert final[-1] == (2 * HOLES_MAX, 2 * count)
    assert cell.replica.ledgers.end_on_disk(LEDGER, 1) == 2 * count + 1
    assert (LEDGER, 2 * count - 1) in cell.replica.ledgers.lost


def test_a_ledger_that_was_fenced_before_is_closed_with_all_that_is_there() -> None:
    cell, _ = returned([Span(LEDGER, 1, 20), Span(LEDGER, 21, 39)], FenceRecord(LEDGER))
    assert finals(cell) == {LEDGER: ((1, 19), (21, 38))}


def test_readers_of_a_closed_ledger_go_on_behind_what_is_lost() -> None:
    cell, _ = returned(
        [Span(LEDGER, 1, 20), Span(LEDGER, 21, 39)], FenceRecord(LEDGER), CloseRecord(LEDGER, ((1, 38),))
    )
    ledgers = cell.replica.ledgers
    assert cell.state is State.SERVING
    assert finals(cell) == {LEDGER: ((1, 38),)}
    assert ledgers.end_on_disk(LEDGER, 1) == 39
    assert ((LEDGER, 19) in ledgers.lost, (LEDGER, 20) in ledgers.lost) == (False, True)
    assert not ledgers.successions.incomplete


def test_a_closed_ledger_may_have_lost_everything() -> None:
    cell, _ = returned([], FenceRecord(LEDGER), CloseRecord(LEDGER, ((1, 38),)))
    assert cell.state is State.SERVING
    assert cell.replica.ledgers.end_on_disk(LEDGER, 1) == 39


def test_the_loss_of_what_was_handed_out_does_not_stop_the_cell() -> None:
    handed = HandRecord((Hand(Range(LEDGER, 1, 5), 7),))
    cell, _ = returned([Span(LEDGER, 1, 3), Span(LEDGER, 5, 8)], handed)
    assert cell.state is State.SERVING
    assert finals(cell) == {LEDGER: ((1, 7),)}  # 3 and 4 are known to have been there


def test_a_request_that_is_lost_has_no_effect() -> None:
    cell, _ = returned([Span(LEDGER, 2, 3)], ApplyRecord(LEDGER, 1, (Verdict(1, 0),)))
    assert cell.state is State.SERVING
    assert cell.clients.is_current
    assert cell.clients.state.through == {LEDGER: 1}


def test_a_request_behind_one_that_is_lost_is_decided() -> None:
    opens = encode_request(Open(7, 1, "desk"))
    cell, _ = returned([Span(LEDGER, 1, 3), Span(LEDGER, 4, 6)], request=(5, opens))
    assert finals(cell) == {LEDGER: ((1, 2), (4, 5))}
    assert list(cell.clients.state.sessions) == [7]
    assert cell.clients.state.through == {LEDGER: 5}


def test_it_goes_on_after_another_start() -> None:
    """In the second life nothing is told but by the log, and by what the disk has."""
    cell, store = returned([Span(LEDGER, 1, 20), Span(LEDGER, 21, 39)], HandRecord((Hand(Range(LEDGER, 19, 2), 7),)))
    log = cell.replica.log
    entries = [StoredEntry(log.epoch_at(at), at, log.entry(at).data) for at in range(1, log.last_index + 1)]
    spans = [Span(LEDGER, 1, 20), Span(LEDGER, 21, 39)]
    remembered = Remembered(CELL_ID, cell.epoch, entries=entries, spans=spans, incarnation=AGAIN.incarnation)
    again = Cell(AGAIN, 1, 7, store, Random(1), 0.0, remembered=remembered)
    run(again, store, 3.0)
    assert again.state is State.SERVING
    assert finals(again) == {LEDGER: ((1, 38),)}
    assert again.replica.ledgers.end_on_disk(LEDGER, 1) == 39
    assert again.replica.log.membership.number == log.membership.number


def test_a_disk_that_failed_has_lost_nothing_that_was_confirmed() -> None:
    cell, _ = returned([Span(LEDGER, 1, 20), Span(LEDGER, 21, 39)], incarnation=ME.incarnation)
    assert cell.state is State.SERVING
    assert not finals(cell)
    assert cell.replica.ledgers.progress(LEDGER).on_disk == 19  # its writer can still send the rest


def test_members_of_larger_cells_give_up_nothing() -> None:
    three = StoredEntry(0, 1, body(0, ConfigureRecord(1, 3, MEMBERS[:3], True)))
    closed = StoredEntry(0, 2, body(0, CloseRecord(LEDGER, ((1, 38),))))
    remembered = Remembered(CELL_ID, EPOCH, entries=(three, closed), spans=[Span(LEDGER, 1, 20), Span(LATER, 2, 3)])
    for me in (ME, AGAIN):
        store = Store()
        cell = Cell(me, 1, 7, store, Random(1), 0.0, remembered=remembered)
        run(cell, store, 3.0)
        assert not cell.replica.ledgers.lost
        assert not cell.replica.ledgers.is_fenced(LATER)
        assert cell.replica.confirmable == 1
