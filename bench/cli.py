"""The `fjm2-bench` command."""

import json
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from .commands.compare import compare
from .commands.peer import peer
from .commands.ping import echo, ping
from .commands.pub import pub
from .commands.sub import sub
from .micro import fec, wire
from .scale import scale_command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Measure FJM2, always beside something to compare with."""


@main.command()
@click.option("--repeat", default=5, show_default=True, type=click.IntRange(min=1), help="Measurements a median is of.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def micro(repeat: int, as_json: bool) -> None:
    """What the inner functions cost: a train's headers, and Reed-Solomon beside its peers.

    \b
    Example: fjm2-bench micro --repeat 3
    """
    costs = wire.run(repeat)
    rows = fec.run(repeat)
    if as_json:
        result = {"train": [asdict(cost) for cost in costs], "fec": [asdict(row) for row in rows]}
        click.echo(json.dumps(result | {"missing": fec.missing()}))
        return
    console = Console()
    table = Table(title=f"A train of {wire.SEGMENTS} x {wire.SEGMENT_BYTES} B")
    table.add_column("step")
    table.add_column("us a train", justify="right")
    for cost in costs:
        table.add_row(cost.step, f"{cost.us:.2f}")
    console.print(table)
    fec.print_table(rows, console)


for command in (pub, sub, ping, echo, peer, compare, scale_command):
    main.add_command(command)

if __name__ == "__main__":
    main()
