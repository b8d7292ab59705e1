"""One system at a time at the task of a comparison: publisher and subscribers, or the two ends of round trips."""

import asyncio
import itertools
import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

from . import netns
from .peers import SYSTEMS as PEERS

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
_COMMAND = (sys.executable, "-m", "fjm2bench.cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared."""

    systems: tuple[str, ...]
    sizes: tuple[int, ...]
    fanouts: tuple[int, ...]
    form: str
    properties: int
    """Of each message, for systems that know such things."""
    round_trips: int | None
    """So many, one after the other, instead of throughput."""
    rate_bps: float | None
    loss: float
    seconds: float
    repeat: int
    is_offloaded: bool
    is_verified: bool
    settings: str
    """Of FJM2, as in a URI's query."""
    segment_bytes: int
    """Of libnorm."""

    def uri(self, port: int) -> str:
        """Of FJM2."""
        return f"fjm2://:{port}?interface={netns.DEVICE}&{self.settings}"


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


class Contest:
    """Runs one system once at a time."""

    def __init__(self, plan: Plan, lab: netns.Lab) -> None:
        self._plan = plan
        self._lab = lab
        self._ports = itertools.count(FIRST_PORT, _PORTS_A_RUN)
        # Packages are found as they are here, wherever the namespaces' processes begin.
        self._environment = dict(os.environ) | ({} if plan.is_offloaded else {"FJM2_NO_GSO": "1"})

    async def run(self, system: str, size: int) -> Sample:
        """From beginning to end. Whatever goes wrong is in the sample."""
        port = next(self._ports)
        processes: list[asyncio.subprocess.Process] = []
        try:
            for host in self._lab.subscribers:
                process = await self._start(host, *self._listening_command(system, size, port))
                processes.append(process)
            listening = list(processes)
            async with asyncio.timeout(_START_S):
                for process in listening:
                    text = await _line(process)
                    if _parsed(text) is None:
                        return Sample(fault=text)
            speaking = await self._start(self._lab.publisher, *self._speaking_command(system, size, port))
            processes.append(speaking)
            async with asyncio.timeout(self._plan.seconds + 2 * _FINISH_S):
                lines = []
                for process in (speaking, *listening):
                    text = await _line(process)
                    line = _parsed(text)
                    if line is None:
                        return Sample(fault=text)
                    lines.append(line)
            async with asyncio.timeout(_STOP_S):
                for process in processes:
                    await process.wait()
        except TimeoutError:
            return Sample(fault="not done in time")
        finally:
            await _stop(processes)
        if self._plan.round_trips is not None:
            return Sample(**{name: lines[0][name] for name in ("p50_us", "p99_us", "p999_us")})
        return _throughput(lines[0], lines[1:], size)

    def _listening_command(self, system: str, size: int, port: int) -> list[str]:
        """Of sub or echo."""
        plan = self._plan
        role = "sub" if plan.round_trips is None else "echo"
        command = self._command(system, role, port)
        command += ["--timeout", str(plan.seconds + _START_S + _FINISH_S)]
        if role == "sub" or system not in OURS:
            command += ["--size", str(size)]
        if role == "sub":
            command += [*self._properties(system), *([] if plan.is_verified else ["--no-verify"])]
        return command

    def _speaking_command(self, system: str, size: int, port: int) -> list[str]:
        """Of pub or ping."""
        plan = self._plan
        role = "pub" if plan.round_trips is None else "ping"
        command = self._command(system, role, port)
        command += ["--size", str(size), "--timeout", str(plan.seconds + _FINISH_S)]
        if plan.round_trips is not None:
            return [*command, "--count", str(plan.round_trips)]
        command += ["--seconds", str(plan.seconds), "--receivers", str(len(self._lab.subscribers))]
        if LAYER_OF.get(system) != "jms":
            command += ["--object", plan.form]
        if system not in OURS and plan.rate_bps is not None:
            command += ["--rate", f"{plan.rate_bps * _RATE_SHARE:.0f}"]
        return [*command, *self._properties(system)]

    def _command(self, system: str, role: str, port: int) -> list[str]:
        if system in OURS:
            return [role, "--layer", LAYER_OF[system], "--uri", self._plan.uri(port), "--json"]
        place = ["--publisher", self._lab.publisher.address, "--interface", netns.DEVICE, "--port", str(port)]
        return ["peer", system, role, *place, "--segment-size", str(self._plan.segment_bytes), "--json"]

    def _properties(self, system: str) -> list[str]:
        return [] if LAYER_OF.get(system) == "norm" else ["--properties", str(self._plan.properties)]

    async def _start(self, host: netns.Host, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *host.inside(*_COMMAND, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for us; they are told when their time has come
        )


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


def _throughput(pub: dict[str, Any], subs: list[dict[str, Any]], size: int) -> Sample:
    """What a run's lines amount to."""
    faults = []
    if pub["not_acked"]:
        faults.append(f"{len(pub['not_acked'])} did not confirm")
    for name in ("lost", "duplicated", "corrupt", "loss_reports"):
        count = sum(sub.get(name) or 0 for sub in subs)
        if count:
            faults.append(f"{count} {name.replace('_', ' ')}")
    if not all(sub["ended"] and sub["messages"] == pub["messages"] for sub in subs) and not faults:
        faults.append("the end was not seen by all")
    if faults:
        return Sample(fault=", ".join(faults))
    cpu_s = pub["cpu_s"] + sum(sub["cpu_s"] for sub in subs)
    return Sample(msgs_per_s=pub["msgs_per_s"], cpu_s_per_gb=cpu_s / (pub["messages"] * size / 1e9))
