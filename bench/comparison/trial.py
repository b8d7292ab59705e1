"""One run of one system: a publisher and subscribers, or the two ends of round trips, as processes in a network."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..networks.namespaces import EnvironmentOf, Host
from ..networks.network import DEVICE, Network
from ..peers import RAW
from ..peers import SYSTEMS as PEERS

LAYER_OF = {"fjm2": "norm", "fjm2-jms": "jms"}
"""FJM2's own systems, and the API that each goes through."""
OURS = tuple(LAYER_OF)
SYSTEMS = (*OURS, *PEERS)
FIRST_PORT = 5740
"""FJM2's default port."""
_START_S = 20.0
"""Longest time for a subscriber to be ready. A Java virtual machine takes seconds on a busy machine."""
_FINISH_S = 30.0
"""Longest time for messages under way to arrive and be confirmed, after the time for sending."""
_STOP_S = 3.0
"""Time for a process to end by itself before it gets a signal, and then before it is killed."""
_RATE_SHARE = 0.95
"""Share of a limited link's rate for libnorm, which sends at a fixed rate. The rest is for headers and repairs."""
_PORTS_A_RUN = 4
"""Distance between the ports of two runs. A run uses two ports; its sockets may linger while the next run begins."""
_PORTS_END = 32_000
"""End of the ports for runs. Linux gives ports from 32768 on to sockets that ask for any port."""
_COMMAND = (sys.executable, "-m", "fjm2bench")


def layer_of(system: str) -> str:
    """Return the API of a system: "norm" or "jms" for FJM2, "udp" for bare datagrams, "messages" for the others."""
    return LAYER_OF.get(system) or ("udp" if system in RAW else "messages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The work of a system in a run, except for the size of the messages."""

    form: str
    """"stream" or "data": how FJM2's NORM layer and libnorm send messages."""
    properties: int
    """Number of properties of each message, for systems that have properties."""
    round_trips: int | None
    """Number of round trips to measure, one after another. None measures throughput."""
    rate_bps: float | None
    """Rate of the publisher's link. None if it is not limited."""
    seconds: float
    """Seconds for which the publisher publishes."""
    is_offloaded: bool
    """True if the kernel may carry trains of datagrams as one packet."""
    is_verified: bool
    """True if subscribers check the content of messages."""
    settings: str
    """Query of FJM2's bus URI."""
    segment_bytes: int
    """Segment size of libnorm."""

    def uri(self, port: int, device: str = DEVICE) -> str:
        """Return the bus URI for FJM2."""
        return f"fjm2://:{port}?interface={device}&{self.settings}"


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """The result line that one process of a run prints."""

    role: str
    node: str
    """Name of the process in the run, such as "sub2"."""
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of one run."""

    msgs_per_s: float = 0.0
    """Messages divided by the time from the first message until the last subscriber has confirmed the last message.

    For bare UDP: the lowest rate at which a subscriber received.
    """
    cpu_s_per_gb: float = 0.0
    """CPU time of all processes together, for each gigabyte published."""
    p50_us: float = 0.0
    """Median round-trip time."""
    p99_us: float = 0.0
    p999_us: float = 0.0
    fault: str = ""
    """Description of the first failure; empty if there was none. The figures are void after a failure."""
    processes: tuple[ProcessResult, ...] = ()
    """Results of those processes that printed a result. That of the publisher comes first."""


class TrialRunner:
    """Runner of one system at a time on a network."""

    def __init__(
        self,
        task: Task,
        network: Network,
        *,
        ports: Iterator[int] | None = None,
        environment_of: EnvironmentOf | None = None,
    ) -> None:
        self._task = task
        self._network = network
        self._ports = ports or free_ports()
        self._environment_of = environment_of
        # Processes in namespaces inherit our environment, so that they find the same packages.
        self._environment = dict(os.environ) | ({} if task.is_offloaded else {"FJM2_NO_GSO": "1"})

    async def run(self, system: str, size: int) -> Trial:
        """Run a system once. The result reports failures; none is raised."""
        port = next(self._ports)
        processes: list[asyncio.subprocess.Process] = []
        results: list[ProcessResult] = []
        speaks, listens = ("pub", "sub") if self._task.round_trips is None else ("ping", "echo")
        try:
            for number, host in enumerate(self._network.subscribers, 1):
                command = self._listening_command(listens, system, size, port)
                processes.append(await self._start(host, listens, f"{listens}{number}", *command))
            listening = list(processes)
            async with asyncio.timeout(_START_S):
                for process in listening:
                    text = await _line(process)
                    if _parsed(text) is None:
                        return Trial(fault=text)
            command = self._speaking_command(speaks, system, size, port)
            speaking = await self._start(self._network.publisher, speaks, speaks, *command)
            processes.append(speaking)
            async with asyncio.timeout(self._task.seconds + 2 * _FINISH_S):
                for number, process in enumerate((speaking, *listening)):
                    text = await _line(process)
                    values = _parsed(text)
                    if values is None:
                        return Trial(fault=text, processes=tuple(results))
                    role, node = (listens, f"{listens}{number}") if number else (speaks, speaks)
                    results.append(ProcessResult(role, node, values))
            async with asyncio.timeout(_STOP_S):
                for process in processes:
                    await process.wait()
        except TimeoutError:
            return Trial(fault="not done in time", processes=tuple(results))
        finally:
            await _stop(processes)
        if self._task.round_trips is not None:
            trips = {name: results[0].values[name] for name in ("p50_us", "p99_us", "p999_us")}
            return Trial(**trips, processes=tuple(results))
        return _throughput(system, results, size)

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
        command += ["--seconds", str(task.seconds), "--receivers", str(len(self._network.subscribers))]
        if LAYER_OF.get(system) != "jms":
            command += ["--object", task.form]
        if system not in OURS and task.rate_bps is not None:
            command += ["--rate", f"{task.rate_bps * _RATE_SHARE:.0f}"]
        return [*command, *self._properties(system)]

    def _command(self, system: str, role: str, port: int) -> list[str]:
        device = self._network.device
        if system in OURS:
            return [role, "--layer", LAYER_OF[system], "--uri", self._task.uri(port, device), "--json"]
        place = ["--publisher", self._network.publisher.address, "--interface", device, "--port", str(port)]
        return ["peer", system, role, *place, "--segment-size", str(self._task.segment_bytes), "--json"]

    def _properties(self, system: str) -> list[str]:
        return [] if LAYER_OF.get(system) == "norm" else ["--properties", str(self._task.properties)]

    async def _start(self, host: Host, role: str, node: str, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *host.inside(*_COMMAND, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**self._environment, **(self._environment_of(role, node) if self._environment_of else {})},
            start_new_session=True,  # Ctrl-C reaches only us; we end the processes
        )


def free_ports() -> Iterator[int]:
    """Yield the first port of each run."""
    return itertools.cycle(range(FIRST_PORT, _PORTS_END, _PORTS_A_RUN))


async def _line(process: asyncio.subprocess.Process) -> str:
    """Return the next line of a process's output, or if it has ended, the last line of its error output."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = await process.stdout.readline()
    if line:
        return line.decode()
    said = (await process.stderr.read()).decode().strip().splitlines()
    return said[-1] if said else f"a process ended with {await process.wait()} and said nothing"


def _parsed(text: str) -> dict[str, Any] | None:
    """Return the values of a result line, or None if the text is something else."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


async def _stop(processes: list[asyncio.subprocess.Process]) -> None:
    """Terminate the processes that still run, and kill those that do not end."""
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


def _throughput(system: str, results: list[ProcessResult], size: int) -> Trial:
    """Combine the results of a publisher and its subscribers."""
    pub, *subs = [result.values for result in results]
    if system in RAW:
        rate = min(sub["msgs_per_s"] for sub in subs)
        fault = "" if rate else "nothing arrived"
    else:
        rate = pub["msgs_per_s"]
        fault = ", ".join(_faults(pub, subs))
    if fault:
        return Trial(fault=fault, processes=tuple(results))
    cpu_s = pub["cpu_s"] + sum(sub["cpu_s"] for sub in subs)
    return Trial(msgs_per_s=rate, cpu_s_per_gb=cpu_s / (pub["messages"] * size / 1e9), processes=tuple(results))


def _faults(pub: Mapping[str, Any], subs: list[Mapping[str, Any]]) -> list[str]:
    """Return texts that tell how a reliable system failed to deliver every message once and unaltered."""
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
