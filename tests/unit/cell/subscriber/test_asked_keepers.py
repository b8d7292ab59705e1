"""Tests of the keepers that a consumer asks for what it missed, in a cell of three."""

from random import Random

import pytest

from fjm2.base.ledger import Ledger
from fjm2.cell.outgoing import SendCommand
from fjm2.cell.service.pages import PAGE_MESSAGES_MAX
from fjm2.cell.subscriber.consumer import Consumer
from fjm2.cell.subscriber.context import RETRY_S, Context
from fjm2.cell.wire.catch_up import CatchUpPage, CatchUpQuery
from fjm2.cell.wire.commands import Heartbeat, HeartbeatFlag, HeartbeatMember, MemberFlag
from fjm2.cell.wire.requests import Place, Subscribe, SubscriptionFlag

LEDGER = Ledger(900, 0, 1)
KEEPERS = (1, 2, 3)
CELL = 77
ROOM = 100_000
SEEDS = range(8)


class Reading:
    """A consumer that catches up with one ledger. The test answers its questions."""

    def __init__(self, seed: int) -> None:
        self.now = 100.0
        self.context: Context[bytes] = Context(50, Random(seed), lambda frame: (frame, len(frame)))
        members = tuple(HeartbeatMember(bytes([node]) * 16, node, MemberFlag.LIVE, 1, 0) for node in KEEPERS)
        heartbeat = Heartbeat(
            flags=HeartbeatFlag.SERVING,
            epoch=1,
            cell_id=CELL,
            configuration=1,
            number=1,
            committed=1,
            table_version=1,
            members=members,
        )
        self.context.choice.hear(heartbeat, KEEPERS[0], self.now)
        request = Subscribe(1, int(SubscriptionFlag.DURABLE), 0, Place(0, "orders"), "name", "")
        self.consumer = Consumer(self.context, 1, request)
        self.consumer.room = ROOM
        self.consumer.attach(1, 1, is_resumed=False, now=self.now)
        self.consumer.open_reader(LEDGER, self.now)
        self.reader = self.consumer.readers[LEDGER]

    def asked(self) -> list[CatchUpQuery]:
        """Return the questions for messages since the last call."""
        sent = [message.command for message in self.context.messages if isinstance(message, SendCommand)]
        self.context.messages.clear()
        return [query for query in sent if isinstance(query, CatchUpQuery) and query.is_exact]

    def answer(self, query: CatchUpQuery) -> None:
        """Let the keeper that was asked send a full page."""
        through = query.first + PAGE_MESSAGES_MAX - 1
        page = CatchUpPage(
            is_hint=False,
            reply_to=query.reply_to,
            consumer=query.consumer,
            cell_id=CELL,
            session=query.session,
            ledger=LEDGER,
            first=query.first,
            through=through,
            acknowledged=0,
            is_final=False,
            older_ledger=None,
            next_ledger=None,
            spans=((query.first, through),),
        )
        self.consumer.receive_page(page, query.keeper_node, self.now)

    def hear(self, first: int, count: int) -> None:
        """Let frames come."""
        self.reader.hear(first, [b"frame"] * count, self.now)

    def wait(self) -> None:
        """Let the time go by after which a question is asked again."""
        self.now += RETRY_S
        self.reader.advance(self.now)


@pytest.fixture(params=SEEDS)
def reading(request: pytest.FixtureRequest) -> Reading:
    reading = Reading(request.param)
    reading.reader.advance(reading.now)
    return reading


def test_the_keeper_that_answers_is_asked_for_all_pages(reading: Reading) -> None:
    nodes, firsts = [], []
    for _ in range(20):
        (query,) = reading.asked()
        nodes.append(query.keeper_node)
        firsts.append(query.first)
        reading.answer(query)
        reading.hear(query.first, PAGE_MESSAGES_MAX)
    assert len(set(nodes)) == 1
    assert firsts == [1 + PAGE_MESSAGES_MAX * page for page in range(20)]


def test_a_keeper_whose_frames_do_not_come_is_not_asked_for_them_again(reading: Reading) -> None:
    silent = 0
    while queries := reading.asked():
        for query in queries:
            silent = query.keeper_node
            reading.answer(query)
    reading.wait()
    (again,) = reading.asked()
    assert again.first == 1
    assert again.keeper_node != silent


def test_a_keeper_that_answered_once_is_not_waited_for() -> None:
    goes_on = []
    for seed in SEEDS:
        reading = Reading(seed)
        reading.reader.advance(reading.now)
        (query,) = reading.asked()
        reading.answer(query)
        (unanswered,) = reading.asked()
        assert unanswered.keeper_node == query.keeper_node
        reading.now += RETRY_S / 2
        reading.hear(1, 100)
        reading.now += RETRY_S / 2
        reading.hear(101, 100)
        (again,) = reading.asked()
        assert again.first == unanswered.first
        goes_on.append(again.keeper_node == unanswered.keeper_node)
    assert not all(goes_on)
