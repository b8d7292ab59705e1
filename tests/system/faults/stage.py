"""The stage of a scenario: hosts behind a switch, and agents on them. The agents are real processes."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from agent import PRIORITIES, TOPICS
from history import Life, read, were_told
from netns import Namespace, Network

SEQUENCES = [(topic, priority) for topic in TOPICS for priority in PRIORITIES]
"""Topics and priorities of every publisher."""
GROUP = "239.192.57.99:5777"
_AGENT = str(Path(__file__).with_name("agent.py"))
_ATTACKER = str(Path(__file__).with_name("attacker.py"))
_RELAY = str(Path(__file__).with_name("relay.py"))
_READY_S = 30.0
_CLOSE_S = 100.0
"""Time after which an agent that closes hangs. It may wait for a consumer that has to take 100 MB, 3 MB a second."""
_DRAIN_S = 60.0
_QUIET_S = 2.0
_TOLD_S = 110.0
"""Time after which a subscriber that lacks messages must have been told: a sender whose goodbye it did not hear is gone
after 100 s of silence (`inactivity_s`)."""
_POLL_S = 0.05


@dataclass
class Agent:
    """A running agent."""

    name: str
    host: Namespace
    process: "subprocess.Popen[str]"
    log: Path
    said: Path | None = None
    """File with what it said on stderr; None if that is a pipe. An agent that says much stands still when its pipe is
    full."""

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the agent, and write down when."""
        self._note("killed")
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stop the agent until `go_on`."""
        self._note("stopped")
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def _note(self, event: str) -> None:
        """Add a line to the agent's log. It begins with a line break, as a kill may have cut the last line short."""
        with self.log.open("a") as file:
            file.write(f"\n{json.dumps({'at': time.monotonic(), 'event': event})}\n")

    def end(self) -> None:
        """Wait until a closing agent has ended."""
        try:
            _, said = self.process.communicate(timeout=_CLOSE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {_CLOSE_S:g} s of its close") from None
        if self.said is not None:
            said = self.said.read_text()[-2000:]
        assert self.process.returncode == 0, f"{self.name}: {said}"

    @property
    def node_id(self) -> int:
        return read(self.log).node_id

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


@dataclass
class Stage:
    """Hosts behind a switch, and the agents on them."""

    network: Network
    folder: Path
    random: Random
    agents: list[Agent] = field(default_factory=list)
    hosts: list[Namespace] = field(default_factory=list)
    switch: Namespace | None = None
    attackers: "list[subprocess.Popen[str]]" = field(default_factory=list)

    def add_hosts(self, count: int) -> None:
        """Make hosts behind one switch."""
        self.hosts = [self.network.namespace() for _ in range(count)]
        self.switch = self.network.switch(*self.hosts)
        for host in self.hosts:
            host.cut_trains("veth0")

    def add_trio(
        self, victim: Mapping[str, Any] | None = None, hosts: int = 3, **publisher: Any
    ) -> tuple[Agent, Agent]:
        """Start a subscriber that stays unharmed, a second one, and a publisher that sends at once.

        Each has a host of its own: 1, 2 and 0. Return the publisher and the second subscriber.
        """
        self.add_hosts(hosts)
        self.start(1, "subscribe")
        subscriber = self.start(2, "subscribe", **(victim or {}))
        return self.start_publisher(0, **publisher), subscriber

    def start(self, host: int, role: str, *, uri: str = "", tmpfs: Path | None = None, **settings: object) -> Agent:
        """Start an agent on a host, and wait until it is ready.

        `tmpfs` is a folder that is a small disk of its own for the agent, and only there.
        """
        name = f"{role}{len(self.agents)}"
        log = self.folder / f"{name}.jsonl"
        words = [f"{key}={value}" for key, value in settings.items()]
        target = f"fjm2://{GROUP}?interface=veth0{uri}"
        command = [sys.executable, _AGENT, target, str(log), name, role, *words]
        if tmpfs is not None:  # `ip netns exec` has made a mount namespace that ends with the agent
            command = ["sh", "-c", 'mount -t tmpfs -o size=8m none "$0" && exec "$@"', str(tmpfs), *command]
        process = self.hosts[host].start(*command)
        agent = Agent(name, self.hosts[host], process, log)
        self.agents.append(agent)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=_READY_S)
        return agent

    def start_publisher(self, host: int, *, uri: str = "", **settings: Any) -> Agent:
        """Start a publisher, and let it send."""
        publisher = self.start(host, "publish", uri=uri, **settings)
        publisher.tell("begin")
        return publisher

    def wait(self, least_s: float, most_s: float | None = None) -> None:
        """Wait for a time, drawn at random if there are two bounds."""
        time.sleep(least_s if most_s is None else self.random.uniform(least_s, most_s))

    def block(self, host: int, *others: int) -> None:
        """Drop what a host receives from others, or all that it receives and sends if none are named."""
        self._filter("-I", host, others)

    def unblock(self, host: int, *others: int) -> None:
        """End `block` with the same arguments."""
        self._filter("-D", host, others)

    def _filter(self, action: str, host: int, others: tuple[int, ...]) -> None:
        for other in others:
            self.hosts[host].run("iptables", action, "INPUT", "-s", f"10.57.1.{other + 1}", "-j", "DROP")
        if not others:
            self.hosts[host].run("iptables", action, "INPUT", "-i", "veth0", "-j", "DROP")
            self.hosts[host].run("iptables", action, "OUTPUT", "-o", "veth0", "-j", "DROP")

    def disturb(self, host: int, *, delay: float, duplicate: float) -> None:
        """Put a relay into a host's cable that delays and duplicates single packets, with these probabilities."""
        assert self.switch is not None
        port, inner, outer = f"port{host + 1}", f"inner{host}", f"outer{host}"
        self.switch.ip("link", "set", port, "nomaster")
        self.switch.ip("link", "add", inner, "type", "veth", "peer", "name", outer)
        self.switch.ip("link", "set", outer, "master", "br0")
        for device in (inner, outer):
            self.switch.ip("link", "set", device, "up")
        settings = [str(self.random.randrange(1 << 30)), str(delay), str(duplicate)]
        relay = self.switch.start(sys.executable, _RELAY, port, inner, *settings)
        assert relay.stdout is not None
        assert relay.stdout.readline() == "ready\n", relay.communicate(timeout=_READY_S)

    def start_attacker(self, host: int, rate: float) -> "subprocess.Popen[str]":
        """Start an attacker on a host that sends `rate` forged datagrams a second."""
        group, port = GROUP.split(":")
        words = [f"10.57.1.{host + 1}", group, port, str(self.random.randrange(1 << 30)), str(rate)]
        attacker = self.hosts[host].start(sys.executable, _ATTACKER, *words)
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == "ready\n", attacker.communicate(timeout=_READY_S)
        self.attackers.append(attacker)
        return attacker

    def end_attackers(self) -> None:
        """End the attackers. An attack that failed is a failure of the test."""
        for attacker in self.attackers:
            _, said = attacker.communicate(timeout=_READY_S)  # closes its stdin
            assert attacker.returncode == 0, said
        self.attackers.clear()

    def finish(self, settle_s: float = 0.5) -> list[Life]:
        """Close publishers, then subscribers, and return the logs of all."""
        running = [agent for agent in self.agents if agent.is_running]
        time.sleep(settle_s)
        for role in ("publish", "subscribe"):
            closing = [agent for agent in running if agent.name.startswith(role)]
            if role == "subscribe":
                self._drain(closing)
                self._wait_until_told()
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

    def _wait_until_told(self) -> None:
        """Wait until each subscriber has everything, or was told of a loss. One that is quiet may be busy to find out
        what it lost, or wait for its sender."""
        deadline = time.monotonic() + _TOLD_S
        while not were_told([read(agent.log) for agent in self.agents], SEQUENCES) and time.monotonic() < deadline:
            time.sleep(_QUIET_S)
