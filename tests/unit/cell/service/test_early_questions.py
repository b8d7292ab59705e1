"""Tests of questions that come before the decision which makes their consumer."""

import pytest
from serving_cells import Alone
from serving_clients import WRITER, Client, publish

from fjm2.cell.service.early_questions import QUESTIONS_MAX
from fjm2.cell.wire.catch_up import CatchUpPage, CatchUpQuery

NODE = 50


def ask(alone: Alone, client: Client, consumer: int, *, is_exact: bool = True, session: int = 0) -> None:
    """Let a consumer ask for everything of a writer."""
    query = CatchUpQuery(
        is_exact=is_exact,
        reply_to=NODE,
        keeper_node=1,
        consumer=consumer,
        cell_id=alone.cell.cell_id,
        session=session or client.session,
        ledger=WRITER,
        first=1,
    )
    alone.cell.receive(query.encode(), NODE, alone.now)


def pages(alone: Alone) -> list[CatchUpPage]:
    """Return the pages that the keeper has sent."""
    alone.settle()
    return alone.sent_of(CatchUpPage)


@pytest.mark.parametrize("is_exact", [False, True])
def test_a_question_is_answered_when_its_consumer_is_known(is_exact: bool) -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    client.subscribe()
    publish(alone, 1, 3)
    consumer = client.sent + 1
    ask(alone, client, consumer, is_exact=is_exact)
    assert pages(alone) == []
    client.close(client.sent)
    assert client.sent == consumer
    ask(alone, client, consumer + 1, is_exact=is_exact)
    assert pages(alone) == []
    client.subscribe()
    (page,) = pages(alone)
    assert (page.consumer, page.through, page.is_hint) == (consumer + 1, 3, not is_exact)


def test_questions_of_consumers_that_never_were_take_bounded_room() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    consumer = client.sent + 1
    ask(alone, client, consumer)
    for session in range(1, QUESTIONS_MAX + 1):
        ask(alone, client, 1, session=session)
    client.subscribe()
    assert pages(alone) == []
    client.close(consumer)
    ask(alone, client, client.sent + 1)
    client.subscribe()
    assert len(pages(alone)) == 1


def test_of_several_questions_of_one_consumer_the_last_one_is_answered() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    for _ in range(3):
        ask(alone, client, client.sent + 1)
    client.subscribe()
    assert len(pages(alone)) == 1


def test_a_question_is_answered_when_the_driver_has_told_all_messages() -> None:
    alone = Alone()
    client = Client(alone)
    client.open()
    alone.is_table_told = False
    client.subscribe()
    ask(alone, client, client.sent)
    assert pages(alone) == []
    alone.cell.handle_table_ready(1)
    assert len(pages(alone)) == 1
