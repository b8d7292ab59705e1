"""Tests of durable subscribers of whole cells, in virtual time."""

import os
from functools import cache

import broken_services
import pytest
from cells import BrokenPromiseError, wander
from representatives import representatives
from service_worlds import ServiceWorld

from fjm2.cell.service.reasons import Reason
from fjm2.cell.subscriber import session

SEED = int(os.environ.get("FJM2_SEED", "1"))
"""First of the seeds. A failing test names its own."""
SEEDS_TO_BREAK = 20
"""Number of seeds in which a broken rule has to be found. Most are found in the first one."""


def wandered(seed: int, *, keepers: int = 3) -> ServiceWorld:
    """Return a cell with clients after a while of faults, healed and checked.

    First everything breaks, then clients only: sessions lapse where a manager serves for longer than their lease.
    """
    print(f"ServiceWorld: {seed=}")
    world = ServiceWorld(seed, keepers, loss=0.08, slow_syncs=0.2)
    world.run(5.0)
    wander(world, 12.0)
    world.heal_keepers()
    for _ in range(40):
        world.run(world.random.expovariate(3.0))
        world.decide()
    world.check_end()
    return world


@cache
def kept(seed: int) -> ServiceWorld:
    """Return a cell of three that `wandered`, the same one for all tests: no rule is broken in it."""
    return wandered(seed)


@pytest.mark.parametrize("seed", representatives(range(SEED, SEED + 8), SEED, SEED + 1))
def test_subscribers_get_what_they_are_promised(seed: int) -> None:
    kept(seed)


@pytest.mark.parametrize("keepers", representatives([1, 5], 1))
def test_subscribers_of_cells_of_one_and_of_five(keepers: int) -> None:
    wandered(SEED, keepers=keepers)


# With the first seed nothing is left.
@pytest.mark.parametrize("seed", representatives(range(SEED + 1, SEED + 4), SEED + 2))
def test_messages_of_closed_ledgers_reach_their_subscribers(seed: int) -> None:
    come_back_late(seed)


@pytest.mark.parametrize("seed", range(SEED + 1, SEED + 3))
def test_subscribers_go_on_if_acknowledgements_do_not_wait_for_those_before(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "ACKS_FLYING_MAX", session.HANDED_FLYING_MAX)
    wandered(seed)
    come_back_late(seed)


def come_back_late(seed: int) -> None:
    """Let everybody go for so long that their ledgers are closed. What was confirmed is there when they come back."""
    world = ServiceWorld(seed, loss=0.08, slow_syncs=0.2)
    world.run(5.0)
    wander(world, 8.0)
    world.heal_keepers()
    for client in sorted(world.clients, key=lambda client: client.client_id):
        client.crash()  # those that share a subscription go first
        world.run(0.5)
    world.run(70.0)
    closed = {ledger for _, ledger, _ in world.model.undelivered()} & set(world.model.final)
    manager = world.manager
    assert manager is not None
    world.kill(manager)  # the next one hears no reports of closed ledgers
    world.check_end()
    assert closed
    assert world.model.counts["deliveries"]


def stopped(seed: int) -> ServiceWorld:
    """Stop programs with messages in their inboxes for longer than their leases, while others share the rest."""
    world = ServiceWorld(seed, loss=0.02)
    world.run(6.0)
    for _ in range(4):
        for number in (3, 6):  # one that shares a durable subscription, and one of another kind
            client = world.clients[number]
            for _ in range(40):
                if client.consumer is not None and client.consumer.unused:
                    break
                world.run(0.05)
            client.process.stop(5.0)
        world.run(6.0)
    return world


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
def test_programs_that_were_stopped_use_nothing_in_silence(seed: int) -> None:
    world = stopped(seed)
    assert world.model.counts["holds"]
    assert world.model.counts["lapses"]


def test_programs_that_ask_nothing_after_a_stop_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_services.trust_silent_sessions(monkeypatch)

    def stop_for_some_seeds() -> None:
        for seed in range(SEED, SEED + 5):
            stopped(seed)

    with pytest.raises(BrokenPromiseError, match="is used by consumer"):
        stop_for_some_seeds()


@pytest.mark.parametrize("seed", representatives([78, 1014], 1014))
def test_subscribers_get_what_they_are_promised_in_seeds_that_broke_that_once(seed: int) -> None:
    """A portion had numbers of delayed messages that nobody kept (78), and a snapshot both added a subscription and
    closed a ledger (1014)."""
    wandered(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_subscribers_get_what_they_are_promised_for_many_seeds(seed: int) -> None:
    wandered(seed, keepers=(1, 3, 3, 5)[seed % 4])


def test_random_faults_reach_what_is_promised() -> None:
    """The tests above mean something only if messages are delivered again, sessions lapse, and requests are refused."""
    wanted = {
        "deliveries",
        "redeliveries",
        "acknowledgements",
        "releases",
        "lapses",
        "late deliveries",
        "shared deliveries",
        "handed again",
        "gaps",
        "successors",
        "later ledgers",
        "subscriptions passed",
        "delayed deliveries",
        "stops",
        "holds",
        "uses",
    }
    wanted |= {Reason.CLIENT_ID_TAKEN, Reason.CONSUMER_ACTIVE, Reason.NOT_HELD}
    for seed in range(SEED, SEED + 5):
        model = kept(seed).model
        wanted -= {key for key, count in model.counts.items() if count} | set(model.refusals)
        if not wanted:
            return
    assert not wanted


FOUND_SOON = (
    "share client ids",
    "trust ended sessions",
    "release for one",
    "hand out twice",
    "apply without requests",
    "trust one keeper",
)
"""Rules of `make test`, one of each kind: of sessions, acknowledgements, hands, delays, requests and pages."""


@pytest.mark.parametrize("name", representatives(broken_services.BROKEN, *FOUND_SOON))
def test_a_broken_rule_of_the_service_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule is needed, and the simulator sees that."""
    broken_services.BROKEN[name](monkeypatch)
    for seed in range(SEEDS_TO_BREAK):
        try:
            wandered(seed)
        except BrokenPromiseError as error:
            print(f"{name}: {seed=}: {error}")
            return
    pytest.fail(f"{name}: nothing broke in {SEEDS_TO_BREAK} seeds")
