"""Tests of requests to close an earlier ledger: its final set is decided at once, and nothing comes in it any more."""

from typing import Final

import pytest
from serving_cells import Alone
from serving_clients import Client, publish

from fjm2.base.ledger import Ledger
from fjm2.cell.cell import Cell
from fjm2.cell.ledger_table import LedgerTable
from fjm2.cell.service.decided import Decided
from fjm2.cell.service.judge import Judge, Judgement
from fjm2.cell.service.reasons import Reason
from fjm2.cell.wire.records import FenceRecord
from fjm2.cell.wire.requests import End

OLD: Final = Ledger(1, 3, 1)
"""Ledger of the life before, of the client's producer and lane."""


def client_of(alone: Alone) -> Client:
    client = Client(alone)
    client.ledger = OLD._replace(producer_epoch=4)
    return client


def final(cell: Cell, ledger: Ledger) -> int | None:
    """Return the last sequence of a closed ledger."""
    progress = cell.replica.ledgers.progress(ledger)
    return progress.on_disk if progress.is_closed else None


def test_an_earlier_ledger_is_closed_at_once() -> None:
    alone = Alone()
    client = client_of(alone)
    publish(alone, 1, 5, ledger=OLD)
    assert client.ask(End(0, OLD.producer_epoch)) is Reason.GRANTED
    alone.run(0.2)
    assert final(alone.cell, OLD) == 5
    publish(alone, 6, 1, ledger=OLD)
    assert final(alone.cell, OLD) == 5
    assert client.ask(End(0, OLD.producer_epoch)) is Reason.GRANTED  # as if the first answer was lost


def test_a_ledger_that_nobody_knows_is_closed_too() -> None:
    """Its frames may be on their way."""
    alone = Alone()
    client = client_of(alone)
    assert client.ask(End(0, 2)) is Reason.GRANTED
    alone.run(0.2)
    unknown = OLD._replace(producer_epoch=2)
    assert final(alone.cell, unknown) == 0
    publish(alone, 1, 1, ledger=unknown)
    assert final(alone.cell, unknown) == 0


@pytest.mark.parametrize("request_", [End(0, 4), End(0, 5), End(0, 0xFFFF_FFFF), End(1, 3)])
def test_later_ledgers_are_not_closed(request_: End) -> None:
    alone = Alone()
    client = client_of(alone)
    assert client.ask(request_) is Reason.MALFORMED
    alone.run(0.2)
    assert final(alone.cell, client.ledger) is None


def test_no_more_ledgers_are_closed_than_there_is_room_for() -> None:
    ledgers = LedgerTable(open_max=1)
    ledgers.accept(OLD, 1, 5, 0.0)
    judge, client = Judge(Decided(), ledgers), OLD._replace(producer_epoch=4)
    assert judge.judge(client, 1, End(0, 2)).reason is Reason.TOO_MANY_LEDGERS
    assert judge.judge(client, 2, End(0, 3)) == Judgement(Reason.GRANTED, (FenceRecord(OLD),))  # it is known already
