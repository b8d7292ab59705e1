"""`fjm2-bench wan`: what crosses from LAN to LAN, through FJM2's gateways, plain relays of two makes, and none."""

import asyncio
import itertools
import json
import statistics
from dataclasses import asdict, dataclass, field, replace

import click
from rich.console import Console
from rich.table import Table

from fjm2.commands.support.common import run as run_to_its_end
from fjm2.errors import FJM2Error

from ..comparison.trial import FIRST_PORT, LAYER_OF, Contest, Sample, Task
from ..networks import namespaces
from ..networks.gateways import GatewayError, standing
from ..networks.selection import Sites

DIRECT, OURS, PLAIN, THREADS = WAYS = ("direct", "fjm2d", "plain-relay", "plain-relay-threads")
_PING_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement."""

    gbit_per_s: float
    """Of messages, from the first until the last is confirmed."""
    gateway_cpu_s_per_gb: float
    """Of both gateways, for each gigabyte of messages."""
    p50_us: float
    p99_us: float
    """Of round trips: a message crosses twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way: medians."""

    system: str
    gbit_per_s: float
    gateway_cpu_s_per_gb: float
    p50_us: float
    p99_us: float
    added_p50_us: float | None
    """What crossing once takes longer than without gateways; None where that was not measured."""
    of_plain: float | None
    """Throughput, as a multiple of the plain relay's by asyncio."""
    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    layer: str
    size: int
    seconds: float
    round_trips: int
    settings: str


@click.command()
@click.option(
    "--layer", default="jms", show_default=True, type=click.Choice(["jms", "norm"]), help="The API to go through."
)
@click.option("--size", default=8192, show_default=True, type=click.IntRange(64, 1 << 24), help="Bytes of a message.")
@click.option("--seconds", default=2.0, show_default=True, type=click.FloatRange(0.2, 60), help="Of each run.")
@click.option(
    "--round-trips", default=1000, show_default=True, type=click.IntRange(10, 100_000), help="Of 64 B, after the run."
)
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1, 20), help="Runs a median is of.")
@click.option(
    "--settings", default="rate=none&flow=min&loopback=off", show_default=True, help="The query of the bus's URI."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def wan(layer: str, size: int, seconds: float, round_trips: int, repeat: int, settings: str, as_json: bool) -> None:
    """Throughput and latency from LAN to LAN: through fjm2d, through plain relays, and without gateways. Needs root.

    The network is made for the purpose, as fast as this machine is. The plain relays seal nothing and go datagram by
    datagram, by asyncio or by a thread for each direction. They take turns.

    \b
    Example: fjm2-bench wan --size 8192 --seconds 2 --repeat 3
    """
    lack = namespaces.missing()
    if lack is not None:
        raise click.ClickException(lack)
    plan = Plan(layer=layer, size=size, seconds=seconds, round_trips=round_trips, settings=settings)
    run_to_its_end(_compare(plan, repeat, as_json))


async def _compare(plan: Plan, repeat: int, as_json: bool) -> int:
    try:
        rows = rows_of(await _measure(plan, repeat))
    except (namespaces.NetworkError, GatewayError) as error:
        raise WanError(str(error)) from error
    if as_json:
        click.echo(json.dumps({"plan": asdict(plan), "rows": [asdict(row) for row in rows]}))
    else:
        _print(rows, plan)
    return 0


class WanError(FJM2Error):
    """A program of the comparison failed; says what."""


def measure(plan: Plan, repeat: int) -> dict[str, list[Run]]:
    """All ways, in turns."""
    return asyncio.run(_measure(plan, repeat))


async def _measure(plan: Plan, repeat: int) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {way: [] for way in WAYS}
    with Sites(None, 0.0, is_offloaded=True) as network:
        for turn in range(repeat):
            first = turn % len(WAYS)
            for way in WAYS[first:] + WAYS[:first]:
                runs[way].append(await _run(network, way, plan))
    return runs


def rows_of(runs: dict[str, list[Run]]) -> list[Row]:
    """Medians, and how they compare."""
    middle = {way: _median_of(found) for way, found in runs.items() if found}
    plain, direct = middle.get(PLAIN), middle.get(DIRECT)
    return [
        Row(
            system=way,
            **asdict(run),
            added_p50_us=(run.p50_us - direct.p50_us) / 2 if direct and way != DIRECT else None,
            of_plain=run.gbit_per_s / plain.gbit_per_s if plain and way != PLAIN else None,
            runs=runs[way],
        )
        for way, run in middle.items()
    ]


def _median_of(runs: list[Run]) -> Run:
    names = asdict(runs[0])
    return Run(**{name: statistics.median(getattr(run, name) for run in runs) for name in names})


async def _run(network: Sites, way: str, plan: Plan) -> Run:
    """Throughput, then round trips, through the same gateways."""
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
    async with standing(network, way, FIRST_PORT, None, None) as cpu_s:
        before_s = cpu_s()
        sent = await _sample(network, way, task, plan, plan.size)
        used_s = cpu_s() - before_s
        trips = await _sample(network, way, replace(task, round_trips=plan.round_trips), plan, _PING_BYTES)
    return Run(
        gbit_per_s=sent.msgs_per_s * plan.size * 8e-9,
        gateway_cpu_s_per_gb=used_s / (sent.lines[0].values["bytes"] * 1e-9),
        p50_us=trips.p50_us,
        p99_us=trips.p99_us,
    )


async def _sample(network: Sites, way: str, task: Task, plan: Plan, size: int) -> Sample:
    system = next(system for system, layer in LAYER_OF.items() if layer == plan.layer)
    sample = await Contest(task, network, ports=itertools.repeat(FIRST_PORT)).run(system, size)
    if sample.fault:
        raise WanError(f"{way}: {sample.fault}")
    return sample


def _print(rows: list[Row], plan: Plan) -> None:
    table = Table(title=f"From LAN to LAN, messages of {plan.size} B")
    for head in ("through", "Gbit/s", "x plain", "gateways' CPU s/GB", "round trip p50 us", "p99 us", "added p50 us"):
        is_name = head == "through"
        table.add_column(head, justify="left" if is_name else "right", min_width=len(THREADS) if is_name else None)
    for row in rows:
        table.add_row(
            row.system,
            f"{row.gbit_per_s:.3f}",
            "" if row.of_plain is None else f"{row.of_plain:.1f}",
            f"{row.gateway_cpu_s_per_gb:.2f}",
            f"{row.p50_us:.0f}",
            f"{row.p99_us:.0f}",
            "" if row.added_p50_us is None else f"{row.added_p50_us:.0f}",
        )
    Console().print(table)
