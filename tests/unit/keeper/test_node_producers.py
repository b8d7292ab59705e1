"""Tests of the writers behind a node, of which a request for STORED has to reach all."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fjm2.cell.wire.kinds import Kind
from fjm2.cell.wire.stored import STORED_TYPE
from fjm2.cell.wire.table import CellQuestion
from fjm2.keeper.cell_signals import CellSignals
from fjm2.keeper.counts import KeeperCounts
from fjm2.keeper.node_producers import PRODUCERS_MAX, NodeProducers
from fjm2.norm.events import AckReceived


class AskedCell:
    """A cell that notes what is asked for."""

    cell_id = 0

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.received: list[bytes] = []

    def receive(self, message: bytes, source: int, now: float) -> None:
        assert source + now == 7
        self.received.append(message)

    def receive_stored_request(self, producer_id: int, source: int) -> None:
        self.asked.append((producer_id, source))


def test_a_request_reaches_all_writers_of_a_node() -> None:
    asyncio.run(check_that_a_request_reaches_all_writers_of_a_node())


class Bench:
    """Signals of a keeper, and the handlers that they have set."""

    def __init__(self) -> None:
        self.cell: Any = AskedCell()
        self.commands: dict[int, Any] = {}
        self.acks: dict[int, Any] = {}
        self.requests: dict[int, Any] = {}
        self.answers = 0
        heard = SimpleNamespace(
            hear_commands=self.commands.__setitem__,
            hear_acks=self.acks.__setitem__,
            hear_requests=self.requests.__setitem__,
        )
        bus: Any = SimpleNamespace(
            config=SimpleNamespace(sender=SimpleNamespace(segment_bytes=1400)),
            lanes=SimpleNamespace(signals=heard),
            membership=SimpleNamespace(announcer=SimpleNamespace(answer=self._answer)),
            announce=lambda *_, **__: None,
        )
        self.signals = CellSignals(bus, self.cell, KeeperCounts(), lambda: 0.0)
        self.signals.join("keeper")

    def _answer(self) -> None:
        self.answers += 1


async def check_that_a_request_reaches_all_writers_of_a_node() -> None:
    bench = Bench()
    signals, cell, handlers = bench.signals, bench.cell, bench.requests
    for node_id, producer_id in ((1, 10), (1, 11), (2, 20), (1, 10)):
        signals.note_writer(node_id, producer_id)
    handlers[STORED_TYPE](SimpleNamespace(sender_id=1))
    assert cell.asked == [(10, 1), (11, 1)]
    signals.stop_hearing()


def test_a_keeper_says_that_it_is_there_when_a_new_connection_asks() -> None:
    asyncio.run(check_that_a_keeper_says_that_it_is_there_when_a_new_connection_asks())


async def check_that_a_keeper_says_that_it_is_there_when_a_new_connection_asks() -> None:
    bench = Bench()
    question = CellQuestion().encode()
    for handler in (bench.commands[Kind.HEARTBEAT], bench.commands[Kind.CELL_QUESTION]):
        handler(7, question)
    for content in (b"", question):
        bench.acks[STORED_TYPE](0, AckReceived(7, STORED_TYPE, 0, content))
    assert bench.answers == 1
    assert bench.cell.received == [question, question, b"", question]
    bench.signals.stop_hearing()


def test_the_oldest_writers_are_forgotten() -> None:
    producers = NodeProducers()
    producers.note(1, 1)
    for producer_id in range(PRODUCERS_MAX):
        producers.note(2, producer_id)
    assert producers.of(1) == []
    assert len(producers.of(2)) == PRODUCERS_MAX
    producers.note(1, 1)
    assert producers.of(1) == [1]
    assert len(producers.of(2)) == PRODUCERS_MAX - 1
