"""Tests of followers that count messages because they hear late of the subscription that asks for them."""

import os

import broken_services
import pytest
from cells import BrokenPromiseError, Keeper
from representatives import representatives
from service_worlds import ServiceWorld
from subscribers import Client

from fjm2.cell.outgoing import State

SEED = int(os.environ.get("FJM2_SEED", "1"))
SEEDS_TO_BREAK = 6
"""Number of seeds in half of which the broken rule has to be found."""


class Publisher(Client):
    """A client that sends to one topic, and subscribes to something in the end."""

    def act(self) -> None:
        if self.is_quiet:
            super().act()
        else:
            self.send(self.ledger, b"M0%d" % len(self.frames[self.ledger]))


class Subscriber(Client):
    """A client that waits with its subscription to that topic."""

    def act(self) -> None:
        assert isinstance(self.world, LateWorld)
        if self.consumer is not None or not self.is_open or self.world.may_subscribe:
            super().act()

    def act_without_consumer(self, chance: float) -> None:
        if chance > 0.5 or self.is_quiet:
            super().act_without_consumer(1.0)

    def act_with_consumer(self, consumer: object) -> None:
        """Keep the consumer."""


class LateWorld(ServiceWorld):
    """Publishers, one durable subscriber, and a follower that may be deaf to keepers."""

    def __init__(self, seed: int, **options: float) -> None:
        self.may_subscribe = False
        super().__init__(seed, client_ids=("a", "p1", "p2"), **options)

    def revive(self, number: int) -> None:
        kind = Publisher if number else Subscriber
        self.clients[number : number + 1] = [kind(self, number, self.lives, self.client_ids[number])]
        self.lives += 1

    def followers(self) -> list[Keeper]:
        found = [keeper for keeper in self.keepers if keeper is not self.manager]
        self.random.shuffle(found)
        return found


def late(seed: int) -> LateWorld:
    """Let one follower hear of a subscription when the other one is gone: a writer needs what the late one has."""
    world = LateWorld(seed, loss=0.02, slow_syncs=0.0)
    world.run_until(lambda: world.manager is not None and all(client.subscriber.cell_id for client in world.clients))
    world.run_until(lambda: world.clients[0].is_open)
    world.run(1.0)
    deaf, other = world.followers()
    world.deaf.add(deaf.node)
    world.may_subscribe = True
    for _ in range(60):
        if any(publisher.tracker.table_version for publisher in world.clients[1:]):
            break
        world.run(0.01)
    world.run(world.random.uniform(0.0, 0.05))
    other.reachable = False
    world.run(world.random.uniform(0.05, 0.2))
    world.deaf.clear()
    world.run(1.0)
    assert deaf.cell is None or deaf.cell.state is not State.EMPTY
    other.reachable = True
    world.check_end()
    assert world.model.counts["counted"] > 20
    return world


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 6), SEED, SEED + 1, SEED + 2))
def test_a_follower_that_hears_late_of_a_subscription_confirms_nothing_that_it_counted(seed: int) -> None:
    late(seed)


def test_without_doubts_a_message_is_confirmed_that_one_disk_has(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_services.doubt_nothing(monkeypatch)
    broken = 0
    for seed in range(SEEDS_TO_BREAK):
        try:
            late(seed)
        except BrokenPromiseError as error:
            print(f"{seed=}: {error}")
            broken += "is confirmed, and only" in str(error)
    assert broken >= SEEDS_TO_BREAK // 2
