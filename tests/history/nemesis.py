"""Scenarios of harm to a cell of keepers, its publishers and its consumers.

A scenario draws everything that may vary from one seeded random source: moments, victims, rates. The schedule of the
processes themselves is the machine's, so that a seed repeats the harm and not each step.
"""

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cell_stage import CellStage, DurableStage, StoreStage, forgetful
from durable_history import Verdict, check, read, read_all
from netns import Network


def store_power_cuts(stage: StoreStage) -> None:
    """The power of all keepers goes, again and again, while a publisher has messages stored.

    At times the publisher goes with them. One that lives repairs what keepers forgot, as long as its buffer has it.
    """
    stage.add_cell()
    per_s = stage.random.choice([100, 500])
    publisher = stage.start_publisher(per_s=per_s)
    stage.until(lambda: any(entry["event"] == "sent" for entry in read(publisher.log)))
    for _ in range(stage.harms):
        stage.wait(0.2, 3.0)
        is_publisher_out = stage.random.random() < 0.5
        stage.cut_power()
        if is_publisher_out:
            publisher.kill()
            publisher = stage.start_publisher(per_s=per_s)
        stage.wait(0.0, 0.5)
        for keeper in stage.keepers:
            keeper.start()
        if stage.random.random() < 0.7:
            stage.until(lambda: stage.manager)
    stage.finish()


def kills(stage: DurableStage) -> None:
    """Keepers, the manager, the publisher and the consumer are killed, and started again."""
    stage.begin()
    for _ in range(stage.harms):
        stage.wait(0.3, 2.0)
        match stage.random.choice(["publisher", "consumer", "manager", "keeper", "cell"]):
            case "publisher":
                stage.publisher.kill()
                stage.wait(0.0, 1.0)
                stage.start_publisher()
            case "consumer":
                stage.consumer.kill()
                stage.wait(0.0, 1.0)
                stage.start_consumer()
            case word:
                killed = stage.choose(word)
                for keeper in killed:
                    keeper.kill()
                stage.wait(0.0, 3.0)
                for keeper in killed:
                    keeper.start()
    stage.finish()


def pauses(stage: DurableStage) -> None:
    """Processes are stopped for a while, and go on: shorter and longer than others wait for them."""
    stage.begin()
    for _ in range(stage.harms):
        stage.wait(0.3, 2.0)
        word = stage.random.choice(["publisher", "consumer", "manager", "keeper"])
        agents = {"publisher": [stage.publisher.process], "consumer": [stage.consumer.process]}
        stopped = agents.get(word) or [each.process for each in stage.choose(word)]
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        stage.wait(0.1, stage.random.choice([1.0, 8.0]))
        for process in stopped:
            process.send_signal(signal.SIGCONT)
    stage.finish()


def partitions(stage: DurableStage) -> None:
    """Hosts are cut off from others, in one direction or both, and joined again."""
    stage.begin()
    for _ in range(stage.harms):
        stage.wait(0.3, 2.0)
        hosts = list(range(len(stage.hosts)))
        stage.random.shuffle(hosts)
        cut = stage.random.randint(1, 2)
        pairs = [(one, other) for one in hosts[:cut] for other in hosts[cut:]]
        if stage.random.random() < 0.7:
            pairs += [(other, one) for one, other in pairs]
        for one, other in pairs:
            stage.block(one, other)
        stage.wait(0.3, stage.random.choice([2.0, 8.0]))
        for one, other in pairs:
            stage.unblock(one, other)
    stage.finish()


def power_cuts(stage: DurableStage) -> None:
    """The power of all keepers goes, at times that of the publisher and of the consumer with it."""
    stage.begin()
    for _ in range(stage.harms):
        stage.wait(0.2, 3.0)
        stage.cut_power()
        others = [each for each in ("publisher", "consumer") if stage.random.random() < 0.3]
        if "publisher" in others:
            stage.publisher.kill()
        if "consumer" in others:
            stage.consumer.kill()
        stage.wait(0.0, 0.5)
        for keeper in stage.keepers:
            keeper.start()
        if "publisher" in others:
            stage.start_publisher()
        if "consumer" in others:
            stage.start_consumer()
        if stage.random.random() < 0.7:
            stage.until(lambda: stage.manager)
    stage.finish()


def bit_flips(stage: DurableStage) -> None:
    """Bits flip in the store of a keeper that is not running: it gets what it lost from the others, or says so."""
    stage.begin()
    for _ in range(stage.harms):
        stage.wait(0.5, 2.0)
        keeper = stage.random.choice(stage.keepers)
        keeper.kill()
        for _ in range(stage.random.choice([1, 1, 3, 20])):
            keeper.flip_bit(stage.random)
        keeper.start()
        stage.until(lambda keeper=keeper: keeper.state or not keeper.is_running)
        if not keeper.is_running:
            keeper.accept_loss()
            keeper.start()
        stage.until_whole()
        stage.until_caught_up()
    stage.finish()


def full_disks(stage: DurableStage) -> None:
    """The consumer is away until the disks are full: publishers are told, and the consumer gets everything."""
    stage.begin(per_s=1000)
    for _ in range(stage.harms):
        stage.wait(0.5, 1.0)
        used = stage.used_bytes()
        stage.give_room(used + stage.random.choice([0, 1 << 20, 3 << 20]))
        stage.consumer.kill()
        stage.until(lambda: any(each["is_full"] for each in stage.ask()), timeout_s=60.0)
        stage.until(stage.was_told_of_a_full_store, timeout_s=20.0)
        stage.start_consumer()
        stage.wait(1.0, 3.0)
        stage.give_room(1 << 40)
    stage.finish()


@dataclass(frozen=True)
class Scenario:
    """A way to harm a cell."""

    harm: Callable[..., None]
    stage: type[CellStage]
    harms: int
    """Times that `make nightly` does the harm, over all seeds."""
    needs_forgetful: bool = False
    """True if the stores are on a file system that forgets what was not synced."""

    @property
    def name(self) -> str:
        return self.harm.__name__


SCENARIOS = (
    Scenario(store_power_cuts, StoreStage, 50, needs_forgetful=True),
    Scenario(kills, DurableStage, 200),
    Scenario(pauses, DurableStage, 50),
    Scenario(partitions, DurableStage, 50),
    Scenario(power_cuts, DurableStage, 200, needs_forgetful=True),
    Scenario(bit_flips, DurableStage, 50),
    Scenario(full_disks, DurableStage, 20, needs_forgetful=True),
)


@dataclass
class Outcome:
    """Results of one run."""

    broken: list[str]
    verdict: Verdict


def run(scenario: Scenario, seed: int, folder: Path, harms: int, *, eats_data: bool = False) -> Outcome:
    """Run a scenario once with so many harms, and judge it. With `eats_data`, the keepers' syncs do nothing."""
    broken: list[str] = []
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(Network())
        stage = scenario.stage(network, folder, Random(f"{scenario.name} {seed}"))
        stage.harms, stage.eats_data = harms, eats_data
        if scenario.needs_forgetful:
            stage.mount = stack.enter_context(forgetful(folder / "mount", f"{scenario.name} {seed}"))
        stack.callback(stage.end_everything)
        try:
            scenario.harm(stage)
        except AssertionError as error:
            broken.append(str(error))
            for keeper in stage.keepers:
                keeper.note_end()
    verdict = check(read_all(folder / "logs"))
    return Outcome([*broken, *stage.faults, *verdict.broken], verdict)
