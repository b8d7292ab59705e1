"""The stage of a scenario with keepers: hosts behind a switch, a cell of three, and agents. All are real processes."""

import base64
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "system"), str(HERE.parent / "system" / "faults")]

from cell_agent import message_in  # noqa: E402
from durable_history import missing, read, read_all  # noqa: E402
from netns import Namespace  # noqa: E402
from stage import Agent, Stage  # noqa: E402

KEEPERS = ("a", "b", "c")
PUBLISHER_HOST, CONSUMER_HOST = 3, 4
GROUP = "239.192.57.98:5778"
STORE_BYTES = 16 << 20
"""Size of a store that is emptied by consumers. Its segments are short, so that all of them are in use soon."""
LARGE_STORE_BYTES = 128 << 20
"""Size of a store that nobody empties."""
_READY_S = 60.0
"""Longest wait for an agent. A consumer waits for the lease of the one before, and for publishers to know of it."""
_SETTLE_S = 30.0
"""Longest time until a cell that nobody harms serves. A founding takes 4 s, a takeover 2 s."""
_STALL_S = 30.0
"""Time without progress after which a consumer has stalled."""
_END_S = 20.0
_PROBE_S = 1.5
"""Time for which the last session waits for messages that it should not get."""
_POLL_S = 0.05
_STOPPED = 130
"""Exit status of a keeper that was asked to end."""
_DAMAGED = 4
_COMMAND_S = 60.0


@dataclass
class KeeperHost:
    """A host with a keeper, which may be running."""

    name: str
    host: Namespace
    directory: Path
    folder: Path
    """Folder for what the keeper says."""
    store_bytes: int
    eats_data: bool = False
    """True if the keeper's syncs do nothing."""
    process: "subprocess.Popen[str] | None" = None
    starts: int = 0
    has_lost: bool = False
    """True if a loss was accepted: what is damaged stays so until its segment is used again."""
    faults: list[str] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return f"fjm2://{GROUP}?interface=veth0"

    @property
    def said(self) -> Path:
        return self.folder / f"keeper-{self.name}-{self.starts}.out"

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "fjm2", "keep", *map(str, arguments)]

    def start(self, *options: object) -> None:
        self.starts += 1
        keep = self.command(self.directory, "--uri", self.uri, "--store-bytes", self.store_bytes, "--json", *options)
        words = ["eatmydata", *keep] if self.eats_data else keep
        self.process = self.host.start("sh", "-c", 'exec "$@" >"$0" 2>&1', str(self.said), *words)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def state(self) -> str:
        """The state that the keeper has told last, or an empty text."""
        if not self.is_running or not self.said.exists():
            return ""
        states = [line for line in self.said.read_text().splitlines() if line.startswith("{")]
        with contextlib.suppress(ValueError):
            return str(json.loads(states[-1])["state"]) if states else ""
        return ""

    def send(self, number: int) -> None:
        """Send a signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the keeper. One that has ended by itself before is a fault."""
        self.note_end()
        if self.is_running:
            self.send(signal.SIGKILL)
            self.wait()
        self.process = None

    def note_end(self) -> None:
        """Note a fault if the keeper has ended by itself."""
        if self.process is not None and self.process.poll() is not None:
            self._fault(f"ended by itself with {self.process.returncode}")

    def wait(self) -> int:
        """Wait until the keeper has ended, and return its exit status."""
        assert self.process is not None
        self.process.communicate(timeout=_END_S)
        if "Traceback" in self.said.read_text():
            self._fault("died of an exception")
        return self.process.returncode

    def end(self) -> None:
        """Ask the keeper to end, and check its store."""
        self.note_end()
        if self.is_running:
            self.send(signal.SIGINT)
            if (code := self.wait()) != _STOPPED:
                self._fault(f"ended with {code} instead of {_STOPPED}")
        self.process = None

    def _fault(self, text: str) -> None:
        said = self.said.read_text()[-1000:] if self.said.exists() else ""
        self.faults.append(f"keeper {self.name} {text}: {said}")

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Run a command of `fjm2 keep` to its end."""
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=_COMMAND_S)

    def flip_bit(self, random: Random) -> None:
        """Flip a bit of the store where something was written. The keeper is not running."""
        path = random.choice(sorted(self.directory.glob("segment-*")))
        content = bytearray(path.read_bytes())
        written = len(content.rstrip(b"\0"))
        if written:
            content[random.randrange(written)] ^= 1 << random.randrange(8)
            path.write_bytes(content)

    def accept_loss(self) -> None:
        """Make a store usable again whose keeper has refused it as damaged."""
        assert self.process is not None
        if self.wait() != _DAMAGED:
            self._fault(f"ended with {self.process.returncode} instead of {_DAMAGED}")
        self.process = None
        assert self.run("check", self.directory, "--accept-loss").returncode == 1
        self.has_lost = True

    def check(self) -> None:
        """Verify the store, which nobody has open."""
        found = self.run("check", self.directory)
        if found.returncode and not self.has_lost:
            self.faults.append(f"store {self.name}: {found.stdout}{found.stderr}")


@contextlib.contextmanager
def forgetful(mount: Path, seed: str) -> Iterator[Path]:
    """Mount a file system that forgets what was not synced, with a folder for each keeper."""
    mount.mkdir()
    command = [sys.executable, str(HERE / "forgetful.py"), str(mount), seed, *KEEPERS]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        assert server.stdout.readline() == "ready\n"
        yield mount
    finally:
        server.stdin.close()
        server.stdout.close()
        assert server.wait(_END_S) == 0


def await_line(agent: Agent, expected: str) -> None:
    """Wait until an agent says a word. It says each at once, so that nothing of the next one is in the pipe."""
    stdout = agent.process.stdout
    assert stdout is not None
    line, deadline = "", time.monotonic() + _READY_S
    while line != expected:
        is_there = select.select([stdout], [], [], max(deadline - time.monotonic(), 0.0))[0]
        assert is_there, f"{agent.name} did not say {expected!r} within {_READY_S:g} s: {agent.log.read_text()[-1000:]}"
        line = stdout.readline().strip()
        assert line or agent.is_running, f"{agent.name} ended: {agent.said and agent.said.read_text()[-1000:]}"


@dataclass
class CellStage(Stage):
    """Three keepers on hosts of their own, a host for publishers, and one for consumers."""

    keepers: list[KeeperHost] = field(default_factory=list)
    mount: Path | None = None
    """Mount of the forgetful file system, if the stores are on it."""
    store_bytes: ClassVar[int] = STORE_BYTES
    stalls: list[str] = field(default_factory=list)
    harms: int = 1
    """Times that a scenario does harm."""
    eats_data: bool = False
    """True if the keepers' syncs do nothing."""

    def add_cell(self) -> None:
        """Start three keepers, and wait until they have founded a cell."""
        self.add_hosts(len(KEEPERS) + 2)
        for name, host in zip(KEEPERS, self.hosts, strict=False):
            directory = (self.mount or self.folder / "stores") / name
            self.keepers.append(KeeperHost(name, host, directory, self.folder, self.store_bytes))
        for keeper in self.keepers:
            keeper.start()
        self.until_whole()
        if self.eats_data:
            for keeper in self.keepers:
                keeper.end()
                keeper.eats_data = True
            self.heal()

    def until(self, is_true: Callable[[], object], timeout_s: float = _SETTLE_S) -> None:
        """Wait until something is true."""
        deadline = time.monotonic() + timeout_s
        while not is_true():
            assert time.monotonic() < deadline, self.describe()
            time.sleep(_POLL_S)

    def describe(self) -> str:
        """Return the states of the keepers, and what they tell when they are asked."""
        states = ", ".join(f"{each.name} {each.state or 'gone'}" for each in self.keepers)
        return f"keepers: {states}; {json.dumps(self.ask())}"

    def ask(self) -> list[dict[str, Any]]:
        """Ask all keepers for their status, and return the answers."""
        words = self.keepers[0].command("status", "--uri", self.keepers[0].uri, "--json", "--duration", "400ms")
        host = self.hosts[PUBLISHER_HOST].name
        found = subprocess.run(
            ("ip", "netns", "exec", host, *words), capture_output=True, text=True, timeout=_COMMAND_S
        )
        return list(json.loads(found.stdout)["keepers"])

    def until_whole(self) -> None:
        """Wait until one keeper serves and the others follow it."""
        self.until(lambda: sorted(each.state for each in self.keepers) == ["follower", "follower", "serving"])

    @property
    def manager(self) -> KeeperHost | None:
        return next((each for each in self.keepers if each.state == "serving"), None)

    def run_agent(self, host: int, program: str, role: str, **settings: object) -> Agent:
        """Start an agent, and wait until it is ready."""
        name = f"{role}{len(self.agents)}"
        log = self.folder / "logs" / f"{name}.jsonl"
        log.parent.mkdir(exist_ok=True)
        log.touch()
        words = [f"{key}={value}" for key, value in settings.items()]
        command = [sys.executable, str(HERE / program), self.keepers[0].uri, str(log), name, role, *words]
        said = self.folder / f"{name}.err"
        process = self.hosts[host].start("sh", "-c", 'exec "$@" 2>"$0"', str(said), *command)
        agent = Agent(name, self.hosts[host], process, log, said)
        self.agents.append(agent)
        await_line(agent, "ready")
        return agent

    def is_equal(self) -> bool:
        """Return True if no keeper lags."""
        found = self.ask()
        return len(found) == len(KEEPERS) and not any(each["lag"] for each in found)

    def until_caught_up(self) -> None:
        """Wait until each keeper has what one of them has now."""
        newest = max(each["messages"] for each in self._ask_all())
        self.until(lambda: all(each["messages"] >= newest for each in self._ask_all()))

    def _ask_all(self) -> list[dict[str, Any]]:
        """Ask for the status until all keepers answer in time."""
        answers: list[dict[str, Any]] = []

        def are_all() -> bool:
            answers[:] = self.ask()
            return len(answers) == len(self.keepers)

        self.until(are_all)
        return answers

    # Harm

    def cut_power(self) -> None:
        """Kill all keepers at once, and forget what they have not synced."""
        from forgetful import CUT  # needs libfuse, which is not everywhere

        assert self.mount is not None
        for keeper in self.keepers:
            keeper.note_end()
        for keeper in self.keepers:
            if keeper.process is not None:
                keeper.send(signal.SIGKILL)
        for keeper in self.keepers:
            if keeper.process is not None:
                keeper.wait()
                keeper.process = None
        os.setxattr(self.mount, CUT, b"")

    def give_room(self, room_bytes: int) -> None:
        """Bound the disk of each keeper."""
        from forgetful import ROOM

        assert self.mount is not None
        os.setxattr(self.mount, ROOM, b"%d" % room_bytes)

    def used_bytes(self) -> int:
        """Return the bytes of the largest store. Files come and go meanwhile."""
        sizes: list[int] = []
        for keeper in self.keepers:
            sizes.append(0)
            for path in keeper.directory.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    sizes[-1] += path.stat().st_size
        return max(sizes)

    # The end

    def heal(self) -> None:
        """Start the keepers that are not running, and wait until the cell is whole."""
        for keeper in self.keepers:
            keeper.note_end()
            if not keeper.is_running:
                keeper.start()
        self.until_whole()

    def rest(self) -> None:
        """Have all publishers stop, and wait until they know the outcome of each send."""
        for agent in self.running("publish"):
            agent.tell("pause")
        for agent in self.running("publish"):
            await_line(agent, "pause")

    def running(self, role: str) -> list[Agent]:
        return [agent for agent in self.agents if agent.is_running and agent.name.startswith(role)]

    def end_all(self, role: str) -> None:
        """Close agents."""
        for agent in self.running(role):
            agent.tell("close")
            agent.end()

    def end_keepers(self) -> None:
        """End the keepers, and verify their stores."""
        for keeper in self.keepers:
            keeper.end()
        for keeper in self.keepers:
            keeper.check()

    def end_everything(self) -> None:
        """Kill whatever is still running, so that the stores can be unmounted."""
        for process in [*(agent.process for agent in self.agents), *(each.process for each in self.keepers)]:
            if process is not None and process.poll() is None:
                process.kill()
                process.communicate(timeout=_END_S)

    @property
    def faults(self) -> list[str]:
        """Faults of keepers, of consumers that stall, and of agents in which something failed that nobody handled."""
        failures = [
            f"{agent.name}: {text[text.index('Traceback') :][:1000]}"
            for agent in self.agents
            if agent.said is not None and "Traceback" in (text := agent.said.read_text())
        ]
        return [*self.stalls, *failures, *(fault for keeper in self.keepers for fault in keeper.faults)]


class DurableStage(CellStage):
    """A cell with a durable subscription: publishers and consumers use the JMS API."""

    mode = "client"
    """How consumers acknowledge."""

    def begin(self, per_s: float = 0.0) -> None:
        """Start a cell, a consumer, and a publisher that sends."""
        self.add_cell()
        self.mode = self.random.choice(["client", "transacted"])
        self.per_s = per_s or self.random.choice([100, 400])
        self.start_consumer()
        self.start_publisher()

    def start_publisher(self) -> None:  # type: ignore[override]
        """Start a publisher that sends, when a keeper is on the bus. On a bus without keepers nothing is kept."""
        self.until(lambda: any(keeper.state for keeper in self.keepers))
        self.publisher = self.run_agent(PUBLISHER_HOST, "cell_agent.py", "publish", per_s=self.per_s)
        self.publisher.tell("begin")
        await_line(self.publisher, "begin")

    def start_consumer(self) -> None:
        """Start a consumer, which waits for its session as long as an earlier one has it."""
        batch = self.random.choice([5, 50, 200])
        self.consumer = self.run_agent(CONSUMER_HOST, "cell_agent.py", "consume", mode=self.mode, batch=batch)

    def choose(self, word: str) -> list[KeeperHost]:
        """Return the manager, any keeper, or all keepers of the cell."""
        if word == "cell":
            return self.keepers
        return [(self.manager if word == "manager" else None) or self.random.choice(self.keepers)]

    def was_told_of_a_full_store(self) -> bool:
        """Return True if the publisher was told that a store is full."""
        return any(entry.get("code") == "store_full" for entry in read(self.publisher.log))

    def finish(self) -> None:  # type: ignore[override]
        """Heal everything, and wait until the consumer has everything. Then look for what comes again."""
        self.heal()
        self.rest()
        if lacking := self._drain():
            self.stalls.append(f"{self.consumer.name} lacks {lacking} messages, and got none for {_STALL_S:g} s")
        self.end_all("consume")
        self.start_consumer()
        if lacking:
            self._drain()
        time.sleep(_PROBE_S)
        self.end_all("consume")
        self.end_all("publish")
        self.end_keepers()

    def _drain(self) -> int:
        """Wait until the consumer has everything, or gets nothing more. Return the number of messages that it lacks."""
        logs = self.folder / "logs"
        lacking, moved_at = missing(read_all(logs)), time.monotonic()
        while lacking and time.monotonic() < moved_at + _STALL_S:
            time.sleep(1.0)
            before, lacking = lacking, missing(read_all(logs))
            if lacking < before:
                moved_at = time.monotonic()
        return lacking


class StoreStage(CellStage):
    """A cell without subscriptions: publishers write to a queue, and each store has to have everything in the end."""

    store_bytes = LARGE_STORE_BYTES

    def start_publisher(self, **settings: object) -> Agent:  # type: ignore[override]
        publisher = self.run_agent(PUBLISHER_HOST, "store_agent.py", "publish", **settings)
        publisher.tell("begin")
        await_line(publisher, "begin")
        return publisher

    def finish(self) -> None:  # type: ignore[override]
        """Heal everything, wait until all keepers have the same, and look into their stores."""
        self.heal()
        self.rest()
        self.end_all("publish")
        self.until(self.is_equal)
        self.end_keepers()
        for keeper in self.keepers:
            self._export(keeper)

    def _export(self, keeper: KeeperHost) -> None:
        """Write down what a store has, as if a consumer had got it."""
        found = keeper.run("export", keeper.directory)
        assert found.returncode == 0, found.stderr
        log, now = self.folder / "logs" / f"store-{keeper.name}.jsonl", time.monotonic()
        with log.open("w") as file:
            begin = {"at": 0.0, "event": "session", "subscription": keeper.name}
            file.write(f"{json.dumps(begin)}\n")
            for line in found.stdout.splitlines():
                producer, lane, number, is_whole = message_in(base64.b64decode(json.loads(line)["body"]))
                entry = {"at": now, "event": "got", "producer": producer, "lane": lane, "number": number}
                file.write(json.dumps(entry | {"redelivered": False, "whole": is_whole}) + "\n")
            file.write(json.dumps({"at": now, "event": "acknowledge"}) + "\n")
