"""`fjm2-bench micro`: the cost of inner functions."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.box import HEAVY_HEAD
from rich.console import Console

from fjm2.base.tables import Column, Row, print_table

from ..micro import consumers, fec, jms, ledgers, store, surfaces, wire

if TYPE_CHECKING:
    from ..micro.tunnel import TunnelCost


@click.command()
@click.option(
    "--repeat",
    default=5,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of measurements; medians are reported.",
)
@click.option(
    "--surfaces",
    "has_surfaces",
    is_flag=True,
    help="Measure the ways to send and receive instead: asyncio and threads, session and context, all kinds of bodies.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def micro(repeat: int, has_surfaces: bool, as_json: bool) -> None:
    """Measure inner functions: trains' headers, JMS messages, ledgers, consumers, a store, a gateway, Reed-Solomon.

    \b
    Examples:
      fjm2-bench micro --repeat 3
      fjm2-bench micro --surfaces
    """
    if has_surfaces:
        _measure_surfaces(repeat, as_json)
        return
    costs = wire.run(repeat)
    messages = jms.run(repeat)
    numbers = ledgers.run(repeat)
    sessions = consumers.run(repeat)
    stored = store.run(repeat)
    carried = _tunnel_costs(repeat)
    rows = fec.run(repeat)
    if as_json:
        result = {"train": [asdict(cost) for cost in costs], "jms": [asdict(cost) for cost in messages]}
        result["ledgers"] = [asdict(cost) for cost in numbers]
        result["consumers"] = [asdict(cost) for cost in sessions]
        result["store"] = [asdict(cost) for cost in stored]
        result["tunnel"] = [asdict(cost) for cost in carried]
        click.echo(json.dumps(result | {"fec": [asdict(row) for row in rows], "missing": fec.missing()}))
        return
    console = Console()
    train = f"A train of {wire.SEGMENTS} x {wire.SEGMENT_BYTES} B"
    _print_costs(console, train, "us a train", [(cost.step, cost.us) for cost in costs])
    message = f"A message of {jms.SIZE} B with {jms.PROPERTIES} properties"
    _print_costs(console, message, "us a message", [(cost.step, cost.us) for cost in messages])
    for size in ledgers.SIZES:
        title = f"A message of {size} B in a ledger, with {ledgers.CHECKSUM}"
        _print_costs(console, title, "us a message", [(cost.step, cost.us) for cost in numbers if cost.size == size])
    _print_sessions(console, sessions)
    for size in store.SIZES:
        steps = [(cost.step, cost.us) for cost in stored if cost.size == size]
        _print_costs(console, f"A message of {size} B in a store", "us a message", steps)
    if carried:
        _print_costs(console, "A gateway", "us", [(cost.step, cost.us) for cost in carried])
    fec.print_table(rows, console)


def _measure_surfaces(repeat: int, as_json: bool) -> None:
    costs = surfaces.run(repeat)
    if as_json:
        click.echo(json.dumps({"surfaces": [asdict(cost) for cost in costs]}))
        return
    console = Console()
    for side, title in (("send", "Ways to send"), ("receive", "Ways to receive messages that wait")):
        columns = (
            Column("loop", is_text=True),
            Column("surface", is_text=True),
            Column(f"us a message of {surfaces.SIZE} B"),
            Column("to the cheapest"),
        )
        rows = [
            Row((cost.loop, cost.surface, f"{cost.us:.2f}", f"{cost.ratio:.2f} x"))
            for cost in costs
            if cost.side == side
        ]
        print_table(console, columns, rows, title=title, box=HEAVY_HEAD)


def _tunnel_costs(repeat: int) -> "list[TunnelCost]":
    """Return the costs of a gateway's functions; none if the gateway's packages are not installed."""
    try:
        from ..micro import tunnel
    except ModuleNotFoundError:
        return []
    return tunnel.run(repeat)


def _print_sessions(console: Console, costs: list[consumers.ConsumersCost]) -> None:
    title = "A session with consumers of different topics"
    columns = (
        Column("consumers"),
        Column("us a message"),
        Column("to one", 1),
        Column("us to create a consumer", 2),
        Column("us to close it", 3),
    )
    rows = [
        Row(
            (
                f"{cost.consumers:,}",
                f"{cost.us:.2f}",
                f"{cost.ratio:.2f} x",
                f"{cost.create_us:.1f}",
                f"{cost.close_us:.1f}",
            )
        )
        for cost in costs
    ]
    print_table(console, columns, rows, title=title, box=HEAVY_HEAD)


def _print_costs(console: Console, title: str, unit: str, costs: list[tuple[str, float]]) -> None:
    rows = [Row((step, f"{us:.2f}")) for step, us in costs]
    print_table(console, (Column("step", is_text=True), Column(unit)), rows, title=title, box=HEAVY_HEAD)
