"""`fjm2-bench wan`: throughput and latency from LAN to LAN, with and without gateways."""

import json
from dataclasses import asdict

import click
from rich.box import HEAVY_HEAD
from rich.console import Console

from fjm2.base.tables import Column, Row, print_table
from fjm2.commands.support.common import Duration
from fjm2.commands.support.common import run as run_to_its_end

from ..comparison.wan import WanError, WanPlan, WanRow, measure_ways, rows_of
from ..networks import namespaces
from ..networks.gateways import GatewayError


@click.command()
@click.option(
    "--layer", default="jms", show_default=True, type=click.Choice(["jms", "norm"]), help="The API to go through."
)
@click.option("--size", default=8192, show_default=True, type=click.IntRange(64, 1 << 24), help="Bytes of a message.")
@click.option("--seconds", default="2s", show_default=True, type=Duration(0.2, 60), help="Duration of each run.")
@click.option(
    "--round-trips",
    default=1000,
    show_default=True,
    type=click.IntRange(10, 100_000),
    help="Round trips of 64 B, measured after the throughput.",
)
@click.option(
    "--repeat", default=3, show_default=True, type=click.IntRange(1, 20), help="Number of runs; medians are reported."
)
@click.option(
    "--settings", default="rate=none&flow=min&loopback=off", show_default=True, help="The query of the bus's URI."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def wan(layer: str, size: int, seconds: float, round_trips: int, repeat: int, settings: str, as_json: bool) -> None:
    """Measure throughput and latency from LAN to LAN: by fjm2d, by plain relays, and without gateways. Needs root.

    The network is made of namespaces and is as fast as this machine. The plain relays forward datagrams one by one and
    do not encrypt them: one on asyncio, one with a thread for each direction. The ways take turns.

    \b
    Example: fjm2-bench wan --size 8192 --seconds 2 --repeat 3
    """
    lack = namespaces.missing()
    if lack is not None:
        raise click.ClickException(lack)
    plan = WanPlan(layer=layer, size=size, seconds=seconds, round_trips=round_trips, settings=settings)
    run_to_its_end(_compare(plan, repeat, as_json))


async def _compare(plan: WanPlan, repeat: int, as_json: bool) -> int:
    try:
        rows = rows_of(await measure_ways(plan, repeat))
    except (namespaces.NetworkError, GatewayError) as error:
        raise WanError(str(error)) from error
    if as_json:
        click.echo(json.dumps({"plan": asdict(plan), "rows": [asdict(row) for row in rows]}))
    else:
        _print(rows, plan)
    return 0


def _print(rows: list[WanRow], plan: WanPlan) -> None:
    columns = (
        Column("through", is_text=True),
        Column("Gbit/s"),
        Column("x plain", 3),
        Column("gateways' CPU s/GB", 4),
        Column("round trip p50 us", 1),
        Column("p99 us", 2),
        Column("added p50 us", 5),
    )
    lines = [
        Row(
            (
                row.system,
                f"{row.gbit_per_s:.3f}",
                "" if row.of_plain is None else f"{row.of_plain:.1f}",
                f"{row.gateway_cpu_s_per_gb:.2f}",
                f"{row.p50_us:.0f}",
                f"{row.p99_us:.0f}",
                "" if row.added_p50_us is None else f"{row.added_p50_us:.0f}",
            )
        )
        for row in rows
    ]
    print_table(Console(), columns, lines, title=f"From LAN to LAN, messages of {plan.size} B", box=HEAVY_HEAD)
