"""Measurements from LAN to LAN: through FJM2's gateways, through plain relays, and without gateways."""

import asyncio
import itertools
import statistics
from dataclasses import asdict, dataclass, field, replace

from fjm2.errors import FJM2Error

from ..networks.gateways import running_gateways
from ..networks.wan import Wan
from .trial import FIRST_PORT, LAYER_OF, Task, Trial, TrialRunner

DIRECT, OURS, PLAIN, THREADS = WAYS = ("direct", "fjm2d", "plain-relay", "plain-relay-threads")
_PING_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class WanRun:
    """One measurement of one of the `WAYS` from LAN to LAN."""

    gbit_per_s: float
    """Throughput of messages, from the first until the last is confirmed."""
    gateway_cpu_s_per_gb: float
    """CPU time of both gateways, for each gigabyte of messages."""
    p50_us: float
    p99_us: float
    """Percentiles of round-trip times. In a round trip, a message crosses the line twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WanRow:
    """Medians of the measurements of one way, and their ratios to the other ways."""

    system: str
    gbit_per_s: float
    gateway_cpu_s_per_gb: float
    p50_us: float
    p99_us: float
    added_p50_us: float | None
    """Added latency of one crossing, against the direct cable. None if that was not measured."""
    of_plain: float | None
    """Throughput as a multiple of that of the plain relay on asyncio."""
    runs: list[WanRun] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WanPlan:
    """Parameters of the measurement."""

    layer: str
    size: int
    seconds: float
    round_trips: int
    settings: str


class WanError(FJM2Error):
    """A program of the comparison failed. The message names the way and the fault."""


def measure(plan: WanPlan, repeat: int) -> dict[str, list[WanRun]]:
    """Measure all ways `repeat` times, in turns. Return the measurements of each way."""
    return asyncio.run(measure_ways(plan, repeat))


async def measure_ways(plan: WanPlan, repeat: int) -> dict[str, list[WanRun]]:
    runs: dict[str, list[WanRun]] = {way: [] for way in WAYS}
    with Wan(None, 0.0, is_offloaded=True) as network:
        for turn in range(repeat):
            first = turn % len(WAYS)
            for way in WAYS[first:] + WAYS[:first]:
                runs[way].append(await _run(network, way, plan))
    return runs


def rows_of(runs: dict[str, list[WanRun]]) -> list[WanRow]:
    """Return the medians of each way, and their ratios."""
    middle = {way: _median_of(found) for way, found in runs.items() if found}
    plain, direct = middle.get(PLAIN), middle.get(DIRECT)
    return [
        WanRow(
            system=way,
            **asdict(run),
            added_p50_us=(run.p50_us - direct.p50_us) / 2 if direct and way != DIRECT else None,
            of_plain=run.gbit_per_s / plain.gbit_per_s if plain and way != PLAIN else None,
            runs=runs[way],
        )
        for way, run in middle.items()
    ]


def _median_of(runs: list[WanRun]) -> WanRun:
    names = asdict(runs[0])
    return WanRun(**{name: statistics.median(getattr(run, name) for run in runs) for name in names})


async def _run(network: Wan, way: str, plan: WanPlan) -> WanRun:
    """Measure throughput, then round trips, through the same gateways."""
    task = Task(
        form="stream",
        properties=0,
        round_trips=None,
        rate_bps=None,
        seconds=plan.seconds,
        is_offloaded=True,
        is_verified=False,
        settings=plan.settings,
        segment_bytes=0,
    )
    network.use(way)
    async with running_gateways(network, way, FIRST_PORT, None, None) as cpu_s:
        before_s = cpu_s()
        sent = await _trial(network, way, task, plan, plan.size)
        used_s = cpu_s() - before_s
        trips = await _trial(network, way, replace(task, round_trips=plan.round_trips), plan, _PING_BYTES)
    return WanRun(
        gbit_per_s=sent.msgs_per_s * plan.size * 8e-9,
        gateway_cpu_s_per_gb=used_s / (sent.processes[0].values["bytes"] * 1e-9),
        p50_us=trips.p50_us,
        p99_us=trips.p99_us,
    )


async def _trial(network: Wan, way: str, task: Task, plan: WanPlan, size: int) -> Trial:
    system = next(system for system, layer in LAYER_OF.items() if layer == plan.layer)
    trial = await TrialRunner(task, network, ports=itertools.repeat(FIRST_PORT)).run(system, size)
    if trial.fault:
        raise WanError(f"{way}: {trial.fault}")
    return trial
