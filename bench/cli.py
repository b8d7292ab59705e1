"""The `fjm2-bench` command."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from fjm2 import __version__
from fjm2.lacking import end_for_lack_of

try:
    from .commands.compare import compare
    from .commands.peer import peer
    from .commands.ping import echo, ping
    from .commands.pub import pub
    from .commands.run import run
    from .commands.sub import sub
    from .micro import fec, jms, wire
    from .scale import scale_command
    from .traces.cli import traces
    from .wan import wan
except ImportError as error:
    end_for_lack_of(error, "fjm2-bench", "bench")

if TYPE_CHECKING:
    from .micro.tunnel import TunnelCost


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fjm2-bench")
def main() -> None:
    """Measure FJM2, always beside something to compare with.

    \b
    Example: fjm2-bench micro                        # what inner functions cost
             fjm2-bench compare --quick              # beside other systems, as root
             fjm2-bench run --quick --to traces      # a plan of experiments, as root
    """


@main.command()
@click.option("--repeat", default=5, show_default=True, type=click.IntRange(min=1), help="Measurements a median is of.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def micro(repeat: int, as_json: bool) -> None:
    """What the inner functions cost: a train's headers, a message of JMS, a gateway, and Reed-Solomon beside its peers.

    \b
    Example: fjm2-bench micro --repeat 3
    """
    costs = wire.run(repeat)
    messages = jms.run(repeat)
    carried = _tunnel_costs(repeat)
    rows = fec.run(repeat)
    if as_json:
        result = {"train": [asdict(cost) for cost in costs], "jms": [asdict(cost) for cost in messages]}
        result["tunnel"] = [asdict(cost) for cost in carried]
        click.echo(json.dumps(result | {"fec": [asdict(row) for row in rows], "missing": fec.missing()}))
        return
    console = Console()
    train = f"A train of {wire.SEGMENTS} x {wire.SEGMENT_BYTES} B"
    _print_costs(console, train, "us a train", [(cost.step, cost.us) for cost in costs])
    message = f"A message of {jms.SIZE} B with {jms.PROPERTIES} properties"
    _print_costs(console, message, "us a message", [(cost.step, cost.us) for cost in messages])
    if carried:
        _print_costs(console, "A gateway", "us", [(cost.step, cost.us) for cost in carried])
    fec.print_table(rows, console)


def _tunnel_costs(repeat: int) -> "list[TunnelCost]":
    """Nothing where the gateway's packages are not installed."""
    try:
        from .micro import tunnel
    except ModuleNotFoundError:
        return []
    return tunnel.run(repeat)


def _print_costs(console: Console, title: str, unit: str, costs: list[tuple[str, float]]) -> None:
    table = Table(title=title)
    table.add_column("step")
    table.add_column(unit, justify="right")
    for step, us in costs:
        table.add_row(step, f"{us:.2f}")
    console.print(table)


for command in (run, compare, pub, sub, ping, echo, peer, scale_command, traces, wan):
    main.add_command(command)

if __name__ == "__main__":
    main()
