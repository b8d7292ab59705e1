"""Keepers as processes on the loopback interface, and a writer whose messages they store."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from fjm2.base.ledger import Ledger
from fjm2.bus.bus import BUS_DEFAULTS, Bus
from fjm2.bus.lane import LANE_OF_PRIORITY
from fjm2.bus.ledgers.ledger_gate import LedgerGate
from fjm2.bus.ledgers.ledger_room import LedgerRoom
from fjm2.cell.stored_tracker import StoredTracker
from fjm2.cell.wire.commands import Heartbeat, HeartbeatFlag, Kind, decode_command
from fjm2.cell.wire.stored import STORED_TYPE, decode_stored
from fjm2.jms import Queue, Topic
from fjm2.messages.destination import Destination
from fjm2.messages.frame import FrameWriter
from fjm2.messages.header import PERSISTENT
from fjm2.messages.header import Kind as MessageKind
from fjm2.norm.events import AckReceived
from fjm2.uri import BusConfig

GROUP = "239.192.57.67"
DEADLINE_S = 12.0
"""Longest wait for anything. A founding takes 4 s, a takeover 2 s."""
STORE_BYTES = 16 << 20
"""Size of the stores: their segments are short, so that a busy disk prepares them soon."""
QUEUE, TOPIC = Queue("orders"), Topic("prices")
_PRIORITY = 4


def uri_of(port: int) -> str:
    return f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0"


def command(*arguments: object) -> tuple[str, ...]:
    return (sys.executable, "-W", "error", "-m", "fjm2", "keep", *map(str, arguments))


class KeeperProcess:
    """A running `fjm2 keep DIRECTORY`."""

    def __init__(self, directory: Path, port: int, *options: object) -> None:
        self.directory = directory
        self.states: list[str] = []
        """States that it has told so far."""
        self.said: list[str] = []
        settings = ("--uri", uri_of(port), "--store-bytes", STORE_BYTES, "--json", *options)
        self.popen = subprocess.Popen(
            command(directory, *settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._threads = [threading.Thread(target=read) for read in (self._read_states, self._read_errors)]
        for thread in self._threads:
            thread.start()

    def _read_states(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.states.append(json.loads(line)["state"])

    def _read_errors(self) -> None:
        assert self.popen.stderr is not None
        self.said += self.popen.stderr

    @property
    def state(self) -> str:
        """The present state, or an empty text."""
        return self.states[-1] if self.states else ""

    def end(self, number: int = signal.SIGKILL) -> int:
        """Send a signal, and return the exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        code = self.popen.wait(DEADLINE_S)
        for thread in self._threads:
            thread.join(DEADLINE_S)
        for stream in (self.popen.stdout, self.popen.stderr):
            assert stream is not None
            stream.close()
        assert not any("Traceback" in line for line in self.said), "".join(self.said)
        return code


class Keepers:
    """Keepers of one bus, in directories of their own."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.running: list[KeeperProcess] = []

    def start(self, name: str, *options: object) -> KeeperProcess:
        keeper = KeeperProcess(self.folder / name, self.port, *options)
        self.running.append(keeper)
        return keeper

    @property
    def serving(self) -> list[KeeperProcess]:
        return [keeper for keeper in self.running if keeper.popen.poll() is None and keeper.state == "serving"]

    def describe(self) -> str:
        return "; ".join(f"{each.directory.name}: {each.states} {''.join(each.said)}" for each in self.running)

    def until(self, is_true: Callable[[], object], timeout_s: float = DEADLINE_S) -> float:
        """Wait until a condition is true. Return the time that it took."""
        began = time.monotonic()
        while not is_true():
            assert time.monotonic() - began < timeout_s, self.describe()
            time.sleep(0.01)
        return time.monotonic() - began


@contextlib.contextmanager
def keeping(folder: Path, port: int) -> Iterator[Keepers]:
    """Yield keepers, which are killed at the end."""
    keepers = Keepers(folder, port)
    try:
        yield keepers
    finally:
        for keeper in keepers.running:
            keeper.end()


def start_three(keepers: Keepers, *options: object) -> list[KeeperProcess]:
    """Start three keepers, and wait until one of them serves."""
    three = [keepers.start(name, *options) for name in "abc"]
    keepers.until(lambda: keepers.serving and all(each.state in ("serving", "follower") for each in three))
    return three


class Writer:
    """A publisher whose sends wait until they are stored. It hears the cell as clients do."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._loop = asyncio.get_running_loop()
        producer_id = Random().getrandbits(64)
        self.ledger = Ledger(producer_id, 0, LANE_OF_PRIORITY[_PRIORITY])
        self.tracker = StoredTracker(producer_id, 10.0)
        self.gate = LedgerGate(producer_id, 0, LedgerRoom(bus.config.sender.stream_bytes))
        self.gate.is_stored = lambda destination: destination != TOPIC.frame_hash
        self.managers: dict[int, float] = {}
        """Time at which each node was first heard to serve."""
        self.epochs: set[int] = set()
        self.answers: dict[bytes, int] = {}
        """Sequence that each keeper has on disk, by keeper id."""
        self.on_heartbeat: Callable[[int, Heartbeat], None] = lambda _node, _heartbeat: None
        self._frames = FrameWriter(producer_id)
        signals = bus.lanes.signals
        signals.hear_commands(int(Kind.HEARTBEAT), self._hear)
        signals.hear_acks(STORED_TYPE, self._hear_stored)

    def _hear(self, node_id: int, content: bytes) -> None:
        heartbeat = decode_command(content)
        assert isinstance(heartbeat, Heartbeat)
        if heartbeat.flags & HeartbeatFlag.SERVING:
            self.managers.setdefault(node_id, self._loop.time())
            self.epochs.add(heartbeat.epoch)
        self.tracker.receive_heartbeat(heartbeat, self._loop.time())
        self.on_heartbeat(node_id, heartbeat)
        self._confirm()

    def _hear_stored(self, _: int, event: AckReceived) -> None:
        stored = decode_stored(event.content)
        assert stored is not None
        self.tracker.receive_stored(stored, self._loop.time())
        for progress in stored.progresses():
            if progress.ledger == self.ledger:
                self.answers[stored.keeper_id] = progress.on_disk
        self._confirm()

    def _confirm(self) -> None:
        self.gate.confirmed_through(self.ledger, self.tracker.confirmed(self.ledger))

    def send(self, body: bytes, destination: Destination = QUEUE) -> "asyncio.Future[None]":
        """Send a message. The future is done when it is stored."""
        now_ms = time.time_ns() // 1_000_000
        parts = self._frames.write_body(int(MessageKind.BYTES), b"", body, destination, PERSISTENT, _PRIORITY, now_ms)
        admitted = self.gate.admit(destination, parts)
        assert admitted is not None
        numbered, stored = admitted
        assert stored is not None
        self._append(*numbered)
        return stored

    def publish(self, body: bytes) -> None:
        """Send a message that is numbered, and that no keeper has to keep."""
        now_ms = time.time_ns() // 1_000_000
        parts = self._frames.write_body(int(MessageKind.BYTES), b"", body, TOPIC, PERSISTENT, _PRIORITY, now_ms)
        admitted = self.gate.admit(TOPIC, parts)
        assert admitted is not None
        self._append(*admitted[0])

    def _append(self, head: bytes, body: bytes) -> None:
        lane = self.bus.lanes.of_priority[_PRIORITY]
        (lane.stream or self.bus.publisher.open_lane(lane, QUEUE)).append(head, body)
        self.tracker.note_sent(self.ledger, self.gate.newest(lane.number).sequence, self._loop.time())

    async def stored(self, future: "asyncio.Future[None]", timeout_s: float = DEADLINE_S) -> float:
        """Wait until a message is stored, and ask as publishers do. Return the time that it took."""
        began = self._loop.time()
        lane = self.bus.lanes.of_priority[_PRIORITY]
        while not future.done():
            assert self._loop.time() - began < timeout_s, f"confirmed {self.tracker.confirmed(self.ledger)}"
            await asyncio.wait([future], timeout=0.02)
            if self.tracker.poll_request(self._loop.time()):
                lane.session.request_acks(STORED_TYPE)
        return self._loop.time() - began

    async def until(self, is_true: Callable[[], object], timeout_s: float = DEADLINE_S) -> None:
        """Wait until a condition is true, and ask for STORED meanwhile."""
        ends_at = self._loop.time() + timeout_s
        while not is_true():
            assert self._loop.time() < ends_at, self.answers
            self.bus.lanes.of_priority[_PRIORITY].session.request_acks(STORED_TYPE)
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def writing(port: int) -> AsyncIterator[Writer]:
    """Yield a writer that has heard the cell."""
    bus = await Bus.open(BusConfig.from_uri(uri_of(port), BUS_DEFAULTS))
    try:
        bus.announce(Random().getrandbits(64), "writer", frozenset())
        yield Writer(bus)
    finally:
        await bus.close(bus.close_deadline(0.5, 0.5))


def run_command(*arguments: object, **settings: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command of `fjm2 keep` to its end."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ | settings
    )
