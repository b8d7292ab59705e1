"""Tests of the wait for final sets: W members have to say that a ledger is closed, and one of them has all of it."""

from typing import Any

import pytest
from talking_cells import CELL, LEDGER, MANAGER, OTHER_CELL, PRODUCER, Publisher, heartbeat, stored

from fjm2.cell.client.outgoing import AskStored, LedgerFinal
from fjm2.cell.stored_tracker import ASK_AFTER_S
from fjm2.cell.wire.stored import StoredFlag


def waiting() -> Publisher:
    """Return a publisher that hears a cell of three, and waits for a final set."""
    publisher = Publisher()
    publisher.beat()
    publisher.view.wait_for_final(LEDGER, publisher.now)
    return publisher


def closed(keeper: int, through: int, **changes: Any) -> Any:
    return stored(keeper, through, is_closed=True, **changes)


def test_two_of_three_members_tell_the_final_set() -> None:
    publisher = waiting()
    assert publisher.take(closed(0, 5)) == []
    assert publisher.take(closed(0, 5)) == []
    # The second one lacks some of it yet. None has more than the final set.
    assert publisher.take(closed(1, 3)) == [LedgerFinal(LEDGER, 5)]
    assert publisher.take(closed(2, 5)) == []


def test_an_empty_final_set_is_told() -> None:
    publisher = waiting()
    publisher.take(closed(0, 0))
    assert publisher.take(closed(2, 0)) == [LedgerFinal(LEDGER, 0)]


@pytest.mark.parametrize(
    "changes",
    [
        {"configuration": 258},
        {"cell_id": OTHER_CELL},
        {"incarnation": 2},
        {"keeper_id": bytes(16)},
        {"flags": int(StoredFlag.DOES_NOT_COUNT)},
    ],
    ids=repr,
)
def test_those_who_do_not_count_do_not_close_a_ledger(changes: dict[str, Any]) -> None:
    publisher = waiting()
    publisher.take(closed(0, 5))
    assert publisher.take(closed(1, 5, **changes)) == []
    assert publisher.take(closed(2, 5)) == [LedgerFinal(LEDGER, 5)]


def test_a_ledger_that_is_open_is_not_final() -> None:
    publisher = waiting()
    publisher.take(stored(0, 5))
    assert publisher.take(stored(1, 5)) == []


def test_another_configuration_begins_anew() -> None:
    publisher = waiting()
    publisher.take(closed(0, 5))
    publisher.beat(configuration=258)
    assert publisher.take(closed(1, 5, configuration=258)) == []
    assert publisher.take(closed(2, 5, configuration=258)) == [LedgerFinal(LEDGER, 5)]


def test_members_are_asked_until_they_have_told() -> None:
    publisher = waiting()
    _, asked = publisher.run(10.5 * ASK_AFTER_S)
    assert asked == [AskStored(LEDGER.lane, (MANAGER, MANAGER + 1, MANAGER + 2))] * 10
    publisher.take(closed(0, 5))
    publisher.take(closed(1, 5))
    assert publisher.run(1.0)[1] == []


def test_a_producer_that_is_gone_and_a_cell_that_is_gone_are_not_waited_for() -> None:
    publisher = waiting()
    publisher.view.remove_writer(PRODUCER)
    assert publisher.run(1.0)[1] == []
    publisher = waiting()
    publisher.run(60.0)
    publisher.hear(heartbeat(number=100, cell_id=CELL - 1))
    publisher.messages()
    assert publisher.run(1.0)[1] == []
