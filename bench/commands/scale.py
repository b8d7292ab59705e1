"""`fjm2-bench scale`: how a group scales with its receivers."""

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.progress import Progress

from fjm2.base import tables
from fjm2.base.missing_extras import install_text
from fjm2.base.tables import Column, Row
from fjm2.norm.core.config import Fec

from ..scaling.simulation import RECEIVERS, ScaleRow, run


def print_table(rows: Sequence[ScaleRow], console: Console) -> None:
    """Print the rows as tables."""
    asked = [
        Row(
            (
                f"{row.receivers:,}",
                f"{row.nacks_sent:,}",
                f"{row.suppression:.1%}",
                f"{row.cycles}",
                f"{row.nacks_first_cycle}",
                f"{row.expected_first_cycle:.1f}",
                f"{row.expected_by_rfc:.1f}",
                f"{row.repair_segments:,}",
            )
        )
        for row in rows
    ]
    done = [
        Row(
            (
                f"{row.receivers:,}",
                f"{row.completed:,}",
                f"{row.completion_median_s:.3f}",
                f"{row.completion_p99_s:.3f}",
                f"{row.completion_max_s:.3f}",
                "-" if row.bytes_per_receiver is None else f"{row.bytes_per_receiver / 1000:.1f}",
                f"{row.run_s:.1f}",
            )
        )
        for row in rows
    ]
    tables.print_table(console, _ASKED, asked, title="NACKs and repairs", box=HEAVY_HEAD)
    tables.print_table(console, _DONE, done, title="Completion", box=HEAVY_HEAD)


_ASKED = (
    Column("receivers"),
    Column("NACKs"),
    Column("suppressed", 1),
    Column("cycles", 5),
    Column("first cycle", 2),
    Column("expected", 3),
    Column("RFC 5401", 4),
    Column("repairs"),
)
_DONE = (
    Column("receivers"),
    Column("complete"),
    Column("median s", 2),
    Column("p99 s", 1),
    Column("max s"),
    Column("kB each", 3),
    Column("run s", 4),
)


def plot(rows: Sequence[ScaleRow], path: str, title: str) -> None:
    """Draw NACKs and suppression by the number of receivers. Raise ImportError without matplotlib."""
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=(8, 5), layout="constrained")
    receivers = [row.receivers for row in rows]
    nacks = figure.add_subplot()
    nacks.plot(receivers, [row.nacks_sent for row in rows], "o-", label="NACKs, all cycles")
    nacks.plot(receivers, [row.nacks_first_cycle for row in rows], "s-", label="NACKs, first cycle")
    nacks.plot(receivers, [row.expected_first_cycle for row in rows], "--", label="expected, first cycle")
    nacks.set(xscale="log", yscale="log", xlabel="receivers", ylabel="NACKs", title=title)
    ratio = nacks.twinx()
    ratio.plot(receivers, [100 * row.suppression for row in rows], "^:", color="tab:gray", label="suppressed")
    ratio.set(ylabel="suppressed (%)", ylim=(0, 100))
    figure.legend(loc="outside lower center", ncols=4)
    figure.savefig(path)


def _counts(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(part) for part in value.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise click.BadParameter(f"{value!r}: expected numbers of 1 or more, separated by commas")
    return counts


@click.command()
@click.option(
    "--receivers",
    default=",".join(map(str, RECEIVERS)),
    show_default=True,
    callback=_counts,
    help="Group sizes, separated by commas.",
)
@click.option(
    "--loss", default=0.01, show_default=True, type=click.FloatRange(0, 0.9), help="Probability that a segment is lost."
)
@click.option(
    "--shared/--independent",
    default=False,
    show_default=True,
    help="Lose segments for all receivers at once, or for each by itself.",
)
@click.option("--fec", default="rs", show_default=True, type=click.Choice([fec.value for fec in Fec]), help="FEC code.")
@click.option(
    "--segments", default=320, show_default=True, type=click.IntRange(min=1), help="Length of the object in segments."
)
@click.option(
    "--segment-bytes", default=64, show_default=True, type=click.IntRange(64, 1400), help="Payload of a segment."
)
@click.option("--seed", default=1, show_default=True, help="Seed of all random numbers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option(
    "--plot",
    "plot_path",
    metavar="FILE.png",
    type=click.Path(dir_okay=False, writable=True),
    help="Draw the result to a file.",
)
def scale(
    receivers: tuple[int, ...],
    loss: float,
    shared: bool,
    fec: str,
    segments: int,
    segment_bytes: int,
    seed: int,
    as_json: bool,
    plot_path: str | None,
) -> None:
    """Simulate groups of receivers: NACKs, suppression and repair time by group size.

    \b
    Example: fjm2-bench scale --receivers 10,100,1000 --shared --plot scale.png
    """
    if plot_path is not None and importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError(f"--plot needs matplotlib: {install_text('bench')}")
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as progress:
        task = progress.add_task("receivers", total=sum(receivers))
        rows = run(
            receivers,
            loss=loss,
            shared=shared,
            fec=fec,
            segments=segments,
            segment_bytes=segment_bytes,
            seed=seed,
            on_row=lambda row: progress.advance(task, row.receivers),
        )
    settings = {"loss": loss, "shared": shared, "fec": fec, "segments": segments, "segment_bytes": segment_bytes}
    if as_json:
        click.echo(json.dumps({**settings, "seed": seed, "rows": [asdict(row) for row in rows]}))
    else:
        print_table(rows, Console())
    if plot_path is not None:
        plot(rows, plot_path, f"{loss:.1%} {'shared' if shared else 'independent'} loss, fec={fec}")
        click.echo(f"drawn to {os.fspath(plot_path)}", err=True)
