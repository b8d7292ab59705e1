"""The roles of a run. Each is a process, which prints lines of JSON and goes on when it is given a line."""

import asyncio
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

import click

from ..peers.base import Deadline, PeerTimeoutError
from ..workload.reception import Reception

ACKNOWLEDGE_EVERY = 256
"""Messages of one acknowledgement."""
FLYING_MAX = 16
"""Acknowledgements that are on their way while the subscriber goes on. Then it waits for the oldest one."""
PORTS = 8
"""Ports of a run at most: three servers with two each."""
TOPIC = "fjm2-bench.durable"
SUBSCRIPTION = "fjm2-bench"
"""Beginning of the names of subscriptions. A number follows."""


class Role(Enum):
    """The processes of a run."""

    SERVE = "serve"
    SUB = "sub"
    PUB = "pub"
    AWAITED = "awaited"
    STEADY = "steady"
    """A publisher of a fixed rate. Only FJM2 has this one and the next."""
    FOLLOW = "follow"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """The task of a role."""

    port: int
    """First of PORTS ports on 127.0.0.1."""
    folder: Path
    """Folder for the data of servers."""
    size: int
    warm_up: int
    """Messages before those that count. They let compilers and caches warm up."""
    count: int
    """Messages that count, or awaited sends."""
    number: int
    """Number of the subscriber."""
    timeout_s: float
    per_s: int = 0
    """Messages a second of a steady publisher."""

    @property
    def total(self) -> int:
        return self.warm_up + self.count


class DurableSystem(Protocol):
    """A system that keeps messages on disks for durable subscribers."""

    name: str
    is_brokerless: bool
    """True if a publisher needs no server to send."""
    settings: str
    """The system's settings, and what makes the comparison fair."""

    def missing(self) -> str | None:
        """Return the reason why the system cannot run on this machine, or None if it can."""
        ...

    def serve(self, options: RoleOptions) -> AbstractContextManager[list[int]]:
        """Run the servers in a context. It yields their process ids as soon as they serve.

        Servers that were there before in the same folder go on with what they have.
        """
        ...

    def run(self, role: Role, options: RoleOptions) -> None:
        """Subscribe, publish, or measure awaited sends."""
        ...


def tell(**values: object) -> None:
    """Print a line for the parent."""
    click.echo(json.dumps(values))
    sys.stdout.flush()


def wait_for_word() -> None:
    """Wait until the parent writes a line, or has ended."""
    sys.stdin.readline()


async def word() -> None:
    """Wait as `wait_for_word` does, while the event loop goes on."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()

    def wait() -> None:
        wait_for_word()
        loop.call_soon_threadsafe(came.set)

    # A daemon, as nothing else ends a thread that reads.
    threading.Thread(target=wait, daemon=True).start()
    await came.wait()


async def until_set(event: asyncio.Event, deadline: Deadline, doing: str) -> None:
    """Wait for an event. Raise PeerTimeoutError when the time is over."""
    try:
        async with asyncio.timeout(deadline.left_s):
            await event.wait()
    except TimeoutError:
        raise PeerTimeoutError(f"{doing}: not done in time") from None


class Consumption:
    """A subscriber's messages: checked in batches of one acknowledgement, and counted."""

    def __init__(self, system: str, options: RoleOptions) -> None:
        self._options = options
        self._reception = Reception(system, options.size, is_verified=True)
        self._reception.begin(0)
        self._gathered: list[bytes] = []
        self._flying: deque[tuple[asyncio.Future[object], list[bytes]]] = deque()
        """Acknowledgements that are on their way, oldest first, and their messages."""
        self._total, self._stops = options.total, {options.warm_up, options.total}
        self._count = 0
        self._began_ns = 0
        self.is_complete = False
        """True when all messages are acknowledged."""
        self.deadline = Deadline(options.timeout_s)

    def take(self, body: bytes) -> bool:
        """Take a message. Return True if it is time to acknowledge."""
        gathered = self._gathered
        gathered.append(body)
        self._count += 1
        if self._count == 1:
            self._began_ns = time.monotonic_ns()
        return len(gathered) >= ACKNOWLEDGE_EVERY or self._count in self._stops

    async def acknowledge(self, answer: Awaitable[object]) -> None:
        """Take the answer to an acknowledgement of all messages so far. Wait for the oldest while too many are on their
        way, and for all when the warm-up or the run is over, and tell the parent then."""
        self._flying.append((asyncio.ensure_future(answer), self._gathered))
        self._gathered = []
        is_stop, ended_ns = self._count in self._stops, 0
        while len(self._flying) > (0 if is_stop else FLYING_MAX):
            decided, messages = self._flying.popleft()
            await decided
            ended_ns = time.monotonic_ns()
            self._reception.take_many(messages)
        if self._count == self._options.warm_up:
            tell(warm=True)
        if self._count == self._total:
            self._tell_result(ended_ns)
            self.is_complete = True

    def _tell_result(self, ended_ns: int) -> None:
        self._reception.total = self._total
        result = self._reception.result()
        tell(
            began_ns=self._began_ns,
            ended_ns=ended_ns,
            messages=result.messages,
            lost=result.lost,
            duplicated=result.duplicated,
            out_of_order=result.out_of_order,
            corrupt=result.corrupt,
        )
