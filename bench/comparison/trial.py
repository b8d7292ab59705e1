"""One system at a time at the task of a comparison: publisher and subscribers, or the two ends of round trips."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..networks import namespaces
from ..peers import RAW
from ..peers import SYSTEMS as PEERS

LAYER_OF = {"fjm2": "norm", "fjm2-jms": "jms"}
"""What is our own, and which of our APIs it is."""
OURS = tuple(LAYER_OF)
SYSTEMS = (*OURS, *PEERS)
FIRST_PORT = 5740
_START_S = 20.0
"""Longest time for a subscriber to be ready."""
_FINISH_S = 30.0
"""Longest time for what is under way to arrive, after the time for sending."""
_STOP_S = 3.0
_RATE_SHARE = 0.95
"""Of a shaped link's rate: for libnorm, which sends at a fixed one. The rest is for headers below, and for repairs."""
_PORTS_A_RUN = 4
_PORTS_END = 32_000
"""From there on the kernel gives ports to whoever asks for any."""
_COMMAND = (sys.executable, "-m", "fjm2bench")
Surroundings = Callable[[str, str], Mapping[str, str]]
"""What a process finds in its environment besides, by its role and its name in the run."""


def layer_of(system: str) -> str:
    """Which API a system is reached by: one of ours, "udp" for bare datagrams, "messages" for others'."""
    return LAYER_OF.get(system) or ("udp" if system in RAW else "messages")


class Ground(Protocol):
    """A network that runs take place in."""

    publisher: namespaces.Host
    subscribers: list[namespaces.Host]

    @property
    def device(self) -> str:
        """The interface of each of them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a system is to do in a run, whatever the size of messages."""

    form: str
    properties: int
    """Of each message, for systems that know such things."""
    round_trips: int | None
    """So many, one after the other, instead of throughput."""
    rate_bps: float | None
    """Of the publisher's link."""
    seconds: float
    is_offloaded: bool
    is_verified: bool
    settings: str
    """Of FJM2, as in a URI's query."""
    segment_bytes: int
    """Of libnorm."""

    def uri(self, port: int, device: str = namespaces.DEVICE) -> str:
        """Of FJM2."""
        return f"fjm2://:{port}?interface={device}&{self.settings}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Task):
    """What is compared."""

    systems: tuple[str, ...]
    sizes: tuple[int, ...]
    fanouts: tuple[int, ...]
    loss: float
    repeat: int


@dataclass(frozen=True, slots=True)
class Line:
    """What one process of a run says in the end."""

    role: str
    node: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One run."""

    msgs_per_s: float = 0.0
    """From the first message until the last subscriber has confirmed the last one: nothing can hide from that."""
    cpu_s_per_gb: float = 0.0
    """Of all processes together, for each gigabyte published."""
    p50_us: float = 0.0
    """Here and below, of round trips."""
    p99_us: float = 0.0
    p999_us: float = 0.0
    fault: str = ""
    """What went wrong, if anything; the rest is void then."""
    lines: tuple[Line, ...] = ()
    """As far as there were any: the publisher's comes first."""


class Contest:
    """Runs one system once at a time."""

    def __init__(
        self, task: Task, ground: Ground, *, ports: Iterator[int] | None = None, around: Surroundings | None = None
    ) -> None:
        self._task = task
        self._ground = ground
        self._ports = ports or free_ports()
        self._around = around
        # Packages are found as they are here, wherever the namespaces' processes begin.
        self._environment = dict(os.environ) | ({} if task.is_offloaded else {"FJM2_NO_GSO": "1"})

    async def run(self, system: str, size: int) -> Sample:
        """From beginning to end. Whatever goes wrong is in the sample."""
        port = next(self._ports)
        processes: list[asyncio.subprocess.Process] = []
        lines: list[Line] = []
        speaks, listens = ("pub", "sub") if self._task.round_trips is None else ("ping", "echo")
        try:
            for number, host in enumerate(self._ground.subscribers, 1):
                command = self._listening_command(listens, system, size, port)
                processes.append(await self._start(host, listens, f"{listens}{number}", *command))
            listening = list(processes)
            async with asyncio.timeout(_START_S):
                for process in listening:
                    text = await _line(process)
                    if _parsed(text) is None:
                        return Sample(fault=text)
            command = self._speaking_command(speaks, system, size, port)
            speaking = await self._start(self._ground.publisher, speaks, speaks, *command)
            processes.append(speaking)
            async with asyncio.timeout(self._task.seconds + 2 * _FINISH_S):
                for number, process in enumerate((speaking, *listening)):
                    text = await _line(process)
                    values = _parsed(text)
                    if values is None:
                        return Sample(fault=text, lines=tuple(lines))
                    lines.append(
                        Line(listens if number else speaks, f"{listens}{number}" if number else speaks, values)
                    )
            async with asyncio.timeout(_STOP_S):
                for process in processes:
                    await process.wait()
        except TimeoutError:
            return Sample(fault="not done in time", lines=tuple(lines))
        finally:
            await _stop(processes)
        if self._task.round_trips is not None:
            trips = {name: lines[0].values[name] for name in ("p50_us", "p99_us", "p999_us")}
            return Sample(**trips, lines=tuple(lines))
        return _throughput(system, lines, size)

    def _listening_command(self, role: str, system: str, size: int, port: int) -> list[str]:
        task = self._task
        command = self._command(system, role, port)
        command += ["--timeout", str(task.seconds + _START_S + _FINISH_S)]
        if role == "sub" or system not in OURS:
            command += ["--size", str(size)]
        if role == "sub":
            command += [*self._properties(system), *([] if task.is_verified else ["--no-verify"])]
        return command

    def _speaking_command(self, role: str, system: str, size: int, port: int) -> list[str]:
        task = self._task
        command = self._command(system, role, port)
        command += ["--size", str(size), "--timeout", str(task.seconds + _FINISH_S)]
        if task.round_trips is not None:
            return [*command, "--count", str(task.round_trips)]
        command += ["--seconds", str(task.seconds), "--receivers", str(len(self._ground.subscribers))]
        if LAYER_OF.get(system) != "jms":
            command += ["--object", task.form]
        if system not in OURS and task.rate_bps is not None:
            command += ["--rate", f"{task.rate_bps * _RATE_SHARE:.0f}"]
        return [*command, *self._properties(system)]

    def _command(self, system: str, role: str, port: int) -> list[str]:
        device = self._ground.device
        if system in OURS:
            return [role, "--layer", LAYER_OF[system], "--uri", self._task.uri(port, device), "--json"]
        place = ["--publisher", self._ground.publisher.address, "--interface", device, "--port", str(port)]
        return ["peer", system, role, *place, "--segment-size", str(self._task.segment_bytes), "--json"]

    def _properties(self, system: str) -> list[str]:
        return [] if LAYER_OF.get(system) == "norm" else ["--properties", str(self._task.properties)]

    async def _start(self, host: namespaces.Host, role: str, node: str, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *host.inside(*_COMMAND, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._environment, **(self._around(role, node) if self._around else {})},
            start_new_session=True,  # Ctrl-C is for us; they are told when their time has come
        )


def free_ports() -> Iterator[int]:
    """The first port of each run, one after the other."""
    return itertools.cycle(range(FIRST_PORT, _PORTS_END, _PORTS_A_RUN))


async def _line(process: asyncio.subprocess.Process) -> str:
    """The next line of a process, or what it said instead."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = await process.stdout.readline()
    if line:
        return line.decode()
    said = (await process.stderr.read()).decode().strip().splitlines()
    return said[-1] if said else f"a process ended with {await process.wait()} and said nothing"


def _parsed(text: str) -> dict[str, Any] | None:
    """None for what is no line of a result."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


async def _stop(processes: list[asyncio.subprocess.Process]) -> None:
    """End those that have not ended themselves."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        alive = [process for process in processes if process.returncode is None]
        for process in alive:
            process.send_signal(number)
        try:
            async with asyncio.timeout(_STOP_S):
                for process in alive:
                    await process.communicate()
        except TimeoutError:
            pass


def _throughput(system: str, lines: list[Line], size: int) -> Sample:
    """What a run's lines amount to."""
    pub, *subs = [line.values for line in lines]
    if system in RAW:
        rate = min(sub["msgs_per_s"] for sub in subs)
        fault = "" if rate else "nothing arrived"
    else:
        rate = pub["msgs_per_s"]
        fault = ", ".join(_faults(pub, subs))
    if fault:
        return Sample(fault=fault, lines=tuple(lines))
    cpu_s = pub["cpu_s"] + sum(sub["cpu_s"] for sub in subs)
    return Sample(msgs_per_s=rate, cpu_s_per_gb=cpu_s / (pub["messages"] * size / 1e9), lines=tuple(lines))


def _faults(pub: Mapping[str, Any], subs: list[Mapping[str, Any]]) -> list[str]:
    """Of a system that is to lose nothing."""
    faults = []
    if pub["not_acked"]:
        faults.append(f"{len(pub['not_acked'])} did not confirm")
    for name in ("lost", "duplicated", "corrupt", "loss_reports"):
        count = sum(sub.get(name) or 0 for sub in subs)
        if count:
            faults.append(f"{count} {name.replace('_', ' ')}")
    if not all(sub["ended"] and sub["messages"] == pub["messages"] for sub in subs) and not faults:
        faults.append("the end was not seen by all")
    return faults
