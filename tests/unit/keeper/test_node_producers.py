"""Tests of the writers behind a node, of which a request for STORED has to reach all."""

import asyncio
from types import SimpleNamespace
from typing import Any

from fjm2.cell.wire.stored import STORED_TYPE
from fjm2.keeper.cell_signals import CellSignals
from fjm2.keeper.counts import KeeperCounts
from fjm2.keeper.node_producers import PRODUCERS_MAX, NodeProducers


class AskedCell:
    """A cell that notes what is asked for."""

    cell_id = 0

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def receive_stored_request(self, producer_id: int, source: int) -> None:
        self.asked.append((producer_id, source))


def test_a_request_reaches_all_writers_of_a_node() -> None:
    asyncio.run(check_that_a_request_reaches_all_writers_of_a_node())


async def check_that_a_request_reaches_all_writers_of_a_node() -> None:
    cell: Any = AskedCell()
    handlers: dict[int, Any] = {}
    heard = SimpleNamespace(
        hear_commands=lambda *_: None, hear_acks=lambda *_: None, hear_requests=handlers.__setitem__
    )
    bus: Any = SimpleNamespace(
        config=SimpleNamespace(sender=SimpleNamespace(segment_bytes=1400)),
        lanes=SimpleNamespace(signals=heard),
        announce=lambda *_, **__: None,
    )
    signals = CellSignals(bus, cell, KeeperCounts(), lambda: 0.0)
    signals.join("keeper")
    for node_id, producer_id in ((1, 10), (1, 11), (2, 20), (1, 10)):
        signals.note_writer(node_id, producer_id)
    handlers[STORED_TYPE](SimpleNamespace(sender_id=1))
    assert cell.asked == [(10, 1), (11, 1)]
    signals.stop_hearing()


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
