"""Scenarios of harm: what runs, what is done to it, and how long others may be held up.

A scenario draws everything that may vary from one seeded random source: moments, sizes, rates, victims. It runs real
processes in network namespaces behind a switch, and ends with the logs of all of them.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from agent import PRIORITIES, TOPICS
from history import Life, Verdict, check, read
from netns import Namespace, Network

GROUP = "239.192.57.99:5777"
_AGENT = str(Path(__file__).with_name("agent.py"))
_READY_S = 30.0
_CLOSE_S = 40.0
_DRAIN_S = 60.0
_QUIET_S = 2.0
_POLL_S = 0.05


@dataclass
class Agent:
    """A running agent."""

    name: str
    host: Namespace
    process: "subprocess.Popen[str]"
    log: Path

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        """Wait until a closing agent has ended."""
        try:
            _, said = self.process.communicate(timeout=_CLOSE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {_CLOSE_S:g} s of its close") from None
        assert self.process.returncode == 0, f"{self.name}: {said}"

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


@dataclass
class Run:
    """One run of a scenario: hosts behind a switch, and the agents on them."""

    network: Network
    folder: Path
    random: Random
    agents: list[Agent] = field(default_factory=list)
    hosts: list[Namespace] = field(default_factory=list)

    def add_hosts(self, count: int, mtu: int = 1500) -> None:
        """Make hosts behind one switch."""
        self.hosts = [self.network.namespace() for _ in range(count)]
        self.network.switch(*self.hosts, mtu=mtu)
        for host in self.hosts:
            host.cut_trains("veth0")

    def start(self, host: int, role: str, uri: str = "", **settings: object) -> Agent:
        """Start an agent on a host, and wait until it is ready."""
        name = f"{role}{len(self.agents)}"
        log = self.folder / f"{name}.jsonl"
        words = [f"{key}={value}" for key, value in settings.items()]
        target = f"fjm2://{GROUP}?interface=veth0{uri}"
        process = self.hosts[host].start(sys.executable, _AGENT, target, str(log), name, role, *words)
        agent = Agent(name, self.hosts[host], process, log)
        self.agents.append(agent)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=_READY_S)
        return agent

    def publish(self, *publishers: Agent) -> None:
        for publisher in publishers:
            publisher.tell("begin")

    def wait(self, least_s: float, most_s: float | None = None) -> None:
        """Wait for a time, drawn at random if there are two bounds."""
        time.sleep(least_s if most_s is None else self.random.uniform(least_s, most_s))

    def finish(self, settle_s: float = 0.5) -> list[Life]:
        """Close publishers, then subscribers, and return the logs of all."""
        running = [agent for agent in self.agents if agent.is_running]
        time.sleep(settle_s)
        for role in ("publish", "subscribe"):
            closing = [agent for agent in running if agent.name.startswith(role)]
            if role == "subscribe":
                self._drain(closing)
            for agent in closing:
                if role == "publish":
                    agent.tell("pause")
                agent.tell("close")
            for agent in closing:
                agent.end()
        return [read(agent.log) for agent in self.agents]

    def _drain(self, subscribers: list[Agent]) -> None:
        """Wait until subscribers have received nothing for a while."""
        quiet_since, sizes = time.monotonic(), [0]
        deadline = quiet_since + _DRAIN_S
        while time.monotonic() - quiet_since < _QUIET_S and time.monotonic() < deadline:
            now = [agent.log.stat().st_size for agent in subscribers]
            if now != sizes:
                quiet_since, sizes = time.monotonic(), now
            time.sleep(_POLL_S)


@dataclass(frozen=True)
class Scenario:
    """A way to harm a bus."""

    harm: Callable[[Run], list[Life]]
    may_lose: bool
    """False if nobody who lives may lose anything."""
    held_s_max: float | None = None
    """Longest time that a send may be held; None if the harm itself holds senders up."""

    @property
    def name(self) -> str:
        return self.harm.__name__


def run(scenario: Scenario, seed: int, folder: Path) -> Verdict:
    """Run a scenario once, and judge it."""
    with Network() as network:
        lives = scenario.harm(Run(network, folder, Random(f"{scenario.name} {seed}")))
    verdict = check(lives, [(topic, priority) for topic in TOPICS for priority in PRIORITIES])
    if verdict.losses and not scenario.may_lose:
        verdict.broken.append(f"{len(verdict.losses)} losses, first {verdict.losses[0]}")
    longest = max((held_s for life in lives for held_s in life.held_s), default=0.0)
    if scenario.held_s_max is not None and longest > scenario.held_s_max:
        verdict.broken.append(f"a send was held for {longest:.2f} s, and may be for {scenario.held_s_max:g} s")
    return verdict


# Processes.


def subscriber_killed(run: Run) -> list[Life]:
    """A subscriber is killed, and started again, some times."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    victim = run.start(2, "subscribe")
    publisher = run.start(0, "publish", per_s=run.random.choice([600, 6000]))
    run.publish(publisher)
    for _ in range(3):
        run.wait(0.5, 1.5)
        victim.kill()
        run.wait(0.2, 1.0)
        victim = run.start(2, "subscribe")
    run.wait(1.0)
    return run.finish()


def subscriber_paused(run: Run) -> list[Life]:
    """A subscriber is stopped for up to a second, some times: it loses nothing."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    victim = run.start(2, "subscribe")
    publisher = run.start(0, "publish", per_s=3000, size=run.random.choice([200, 8000]))
    run.publish(publisher)
    for _ in range(3):
        run.wait(0.5, 1.0)
        victim.signal(signal.SIGSTOP)
        run.wait(0.1, 1.0)
        victim.signal(signal.SIGCONT)
    run.wait(1.0)
    return run.finish(settle_s=1.0)


def subscriber_hung(run: Run) -> list[Life]:
    """A subscriber is stopped for longer than it is waited for, and goes on."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    victim = run.start(2, "subscribe")
    publisher = run.start(0, "publish", per_s=6000, size=4000)
    run.publish(publisher)
    run.wait(0.5, 1.5)
    victim.signal(signal.SIGSTOP)
    run.wait(6.0, 8.0)
    victim.signal(signal.SIGCONT)
    run.wait(2.0)
    return run.finish(settle_s=1.0)


def publisher_killed(run: Run) -> list[Life]:
    """One of two publishers is killed while both send, and started again."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    run.start(2, "subscribe")
    first, second = (run.start(0, "publish", per_s=1500) for _ in range(2))
    run.publish(first, second)
    run.wait(0.5, 1.5)
    first.kill()
    run.publish(run.start(0, "publish", per_s=1500))
    run.wait(1.0)
    return run.finish()


def comings_and_goings(run: Run) -> list[Life]:
    """Subscribers come and close cleanly while a publisher sends."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    publisher = run.start(0, "publish", per_s=3000)
    run.publish(publisher)
    for _ in range(6):
        guest = run.start(2, "subscribe")
        run.wait(0.0, 0.5)
        guest.tell("close")
        guest.end()
    return run.finish()


# Networks.


def lossy_network(run: Run) -> list[Life]:
    """Datagrams are lost on arrival, at subscribers and at the publisher."""
    run.add_hosts(4)
    for host in run.hosts:
        host.lose(run.random.choice([0.01, 0.05, 0.1]))
    for host in (1, 2, 3):
        run.start(host, "subscribe")
    publisher = run.start(0, "publish", per_s=3000, persistent=1)
    run.publish(publisher)
    run.wait(3.0)
    return run.finish(settle_s=1.0)


def cut_off(run: Run) -> list[Life]:
    """A subscriber's cable is pulled for some time."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    run.start(2, "subscribe")
    publisher = run.start(0, "publish", per_s=6000, size=2000, persistent=run.random.choice([0, 1]))
    run.publish(publisher)
    run.wait(0.5, 1.5)
    run.hosts[2].run("iptables", "-I", "INPUT", "-i", "veth0", "-j", "DROP")
    run.hosts[2].run("iptables", "-I", "OUTPUT", "-o", "veth0", "-j", "DROP")
    run.wait(0.2, 8.0)
    run.hosts[2].run("iptables", "-D", "INPUT", "-i", "veth0", "-j", "DROP")
    run.hosts[2].run("iptables", "-D", "OUTPUT", "-o", "veth0", "-j", "DROP")
    run.wait(2.0)
    return run.finish(settle_s=1.0)


def narrow_path(run: Run) -> list[Life]:
    """A subscriber's path becomes too narrow for data while small packets pass: it can make no progress."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    run.start(2, "subscribe")
    publisher = run.start(0, "publish", per_s=6000, size=2000)
    run.publish(publisher)
    run.wait(0.5, 1.5)
    too_long = "INPUT -p udp -m length --length 1301:65535 -j DROP"
    run.hosts[2].run("iptables", "-I", *too_long.split())
    run.wait(14.0)
    return run.finish()


# Consumers.


def unread_consumer(run: Run) -> list[Life]:
    """A consumer that nobody reads does not stop the others for good."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    run.start(2, "subscribe", unread=1, messages_max=1000)
    publisher = run.start(0, "publish", per_s=3000, size=2000)
    run.publish(publisher)
    run.wait(3.0, 5.0)
    return run.finish(settle_s=1.0)


def slow_consumer(run: Run) -> list[Life]:
    """A consumer that takes long for each message holds the sender back, and loses nothing."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    run.start(2, "subscribe", work_ms=run.random.choice([0.5, 2.0]), messages_max=run.random.choice([100, 2000]))
    publisher = run.start(0, "publish", per_s=2000, size=8000)
    run.publish(publisher)
    run.wait(7.0, 9.0)
    return run.finish(settle_s=1.0)


def dropping_consumer(run: Run) -> list[Life]:
    """A full consumer drops: others are not held up, and each gap is flagged."""
    run.add_hosts(3)
    run.start(1, "subscribe")
    overflow = run.random.choice(["drop_oldest", "drop_newest"])
    run.start(2, "subscribe", work_ms=1.0, messages_max=100, overflow=overflow)
    publisher = run.start(0, "publish", per_s=3000)
    run.publish(publisher)
    run.wait(2.0, 4.0)
    return run.finish(settle_s=1.0)


SCENARIOS = (
    Scenario(subscriber_killed, may_lose=False, held_s_max=1.0),
    Scenario(subscriber_paused, may_lose=False, held_s_max=1.0),
    Scenario(subscriber_hung, may_lose=True, held_s_max=1.0),
    Scenario(publisher_killed, may_lose=True, held_s_max=1.0),
    Scenario(comings_and_goings, may_lose=False, held_s_max=0.5),
    Scenario(lossy_network, may_lose=False),
    Scenario(cut_off, may_lose=True),
    Scenario(narrow_path, may_lose=True, held_s_max=12.0),
    Scenario(slow_consumer, may_lose=False),
    Scenario(unread_consumer, may_lose=True),
    Scenario(dropping_consumer, may_lose=True, held_s_max=1.0),
)
"""All scenarios. Bounds on held sends are generous: the machine that tests them is busy."""
