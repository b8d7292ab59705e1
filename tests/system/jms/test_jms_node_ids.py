"""Tests of two nodes of a bus that have drawn the same node id. Both draw another one and continue."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from buses import TOPIC, flood, node, on, run_on, soon

from fjm2.bus.reports import NodeIdCollision, SenderLost
from fjm2.bus.router import Received
from fjm2.messages.message import open_message
from fjm2.norm.net import session as session_module


def text_of(received: Received) -> str:
    return str(open_message(received.head, received.body, received.header).get_body(str))


@pytest.fixture
def same_node_ids(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that makes the next two buses draw the same node ids. Later ids are random again."""
    draw = session_module.random_node_id

    def begin() -> None:
        ids = iter([7, 8, 9] * 2)
        monkeypatch.setattr(session_module, "random_node_id", lambda: next(ids, None) or draw())

    return begin


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_nodes_that_have_drawn_the_same_id_draw_others(loop: str, port: int, same_node_ids: Callable[[], None]) -> None:
    async def main() -> None:
        same_node_ids()
        async with node(port) as receiving, node(port) as sending:
            ids = {receiving.bus.node_id, sending.bus.node_id}
            assert ids == {7}
            subscriber, own = receiving.subscribe(), sending.subscribe()
            await soon(lambda: receiving.bus.node_id != 7 != sending.bus.node_id)
            assert receiving.bus.node_id != sending.bus.node_id
            await soon(lambda: sending.bus.subscribers(TOPIC) == 2 == receiving.bus.subscribers(TOPIC))
            await asyncio.gather(receiving.bus.ready(), sending.bus.ready())
            await flood(sending, 500)
            await subscriber.until(500)
            assert [int(text) for text in subscriber.texts] == list(range(500))
            assert {each.sender_id for each in own.received} == {sending.bus.node_id}
            assert await sending.bus.confirmed() == frozenset()
            for each in (receiving, sending):
                (collision,) = each.reports
                assert isinstance(collision, NodeIdCollision)
                assert (collision.node_id, collision.has_another) == (7, True)

    run_on(loop, main())


def test_a_sender_whose_node_id_is_taken_continues_and_losses_are_reported(
    port: int, same_node_ids: Callable[[], None]
) -> None:
    async def main() -> None:
        async with node(port) as receiving:
            subscriber = receiving.subscribe()
            await receiving.bus.ready()
            same_node_ids()
            async with node(port) as sending:
                await sending.bus.ready()
                await flood(sending, 300)
                await subscriber.until(300)
                assert sending.bus.node_id == 7
                async with node(port) as newcomer:
                    flooding = asyncio.create_task(flood(sending, 5000))
                    await soon(lambda: sending.bus.node_id != newcomer.bus.node_id)
                    await flooding
                    for each, text in (sending, "the end"), (newcomer, "the other's"):
                        await each.publish(text)
                        await soon(lambda text=text: text_of(subscriber.received[-1]) == text)
                    assert sending.all(NodeIdCollision) + newcomer.all(NodeIdCollision)
                numbers = [int(text) for text in subscriber.texts[300:-2]]
                assert numbers == sorted(set(numbers))
                is_flagged = [received.has_gap for received in subscriber.received[300:]]
                is_behind_a_gap = [number != before + 1 for before, number in pairwise([-1, *numbers])]
                assert all(is_flagged[place] for place, is_behind in enumerate(is_behind_a_gap) if is_behind)
                assert sum(is_flagged) == (sending.bus.node_id != 7)  # the first message under a new node id
                assert not is_flagged[-1]  # the newcomer lost nothing
                if len(numbers) < 5000:
                    assert receiving.all(SenderLost)

    run_on("uvloop", main())


@on("asyncio")
async def test_a_bus_draws_new_node_ids_only_so_often(port: int) -> None:
    async with node(port) as one:
        for _ in range(20):
            one.bus.note_collision(one.bus.lanes.first, ("127.0.0.1", 9))
        await asyncio.sleep(0.1)
        drawn = [report.has_another for report in one.all(NodeIdCollision)]
        assert drawn == [True] * 8 + [False] * 12
        subscriber = one.subscribe()
        await one.publish("still here")
        assert subscriber.texts == ["still here"]
