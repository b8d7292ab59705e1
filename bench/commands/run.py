"""`fjm2-bench run`: a whole plan of experiments, which can be interrupted and continued."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from fjm2.base.quantities import counted
from fjm2.commands.support.common import run as run_to_its_end
from fjm2.errors import FJM2Error

from ..networks import namespaces
from ..runs.matrix import Cell, cells_of
from ..runs.plan import RunPlan, load
from ..runs.result_folder import ResultFolder, ResultFolderError, ownership
from ..runs.runner import Progress as CellProgress
from ..runs.runner import Result, Runner, Summary
from ..runs.values import PlanError


@click.command()
@click.argument("plan_file", metavar="[PLAN.toml]", required=False, type=click.Path(path_type=Path))
@click.option("--quick", "builtin", flag_value="quick", help="The built-in plan that takes some minutes.")
@click.option("--full", "builtin", flag_value="full", help="The built-in plan with all experiments. Takes hours.")
@click.option(
    "--to",
    "folder",
    default="bench-traces",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for traces and results. Runs that have a result there are not repeated.",
)
@click.option("--only", metavar="NAME,...", help="Run only these experiments of the plan.")
@click.option("--again", is_flag=True, help="Repeat runs that have a result. Both results count.")
@click.option("--list", "is_listed", is_flag=True, help="List the runs and an estimate of the time, and run nothing.")
def run(
    plan_file: Path | None, builtin: str | None, folder: Path, only: str | None, again: bool, is_listed: bool
) -> None:
    """Run the experiments of a plan: systems by message size, fan-out, loss, rate and network. Needs root.

    Each run takes place in a network of namespaces made for it. FJM2's programs record traces. If the command is
    interrupted or killed, the same command continues where it stopped. Systems that are not installed are named and
    left out. A run that fails is recorded with its fault.

    \b
    Example: fjm2-bench run --quick --to traces
    \b
    Example: fjm2-bench run mine.toml --to traces --only lan-sizes --again
    """
    plan = _plan(plan_file, builtin)
    cells = _chosen(plan, only)
    if is_listed:
        _list(cells)
        return
    lack = namespaces.missing()
    if lack is not None and any(cell.network for cell in cells):
        raise click.ClickException(lack)
    run_to_its_end(_run(plan, cells, folder, again))


def _plan(path: Path | None, builtin: str | None) -> RunPlan:
    if (path is None) == (builtin is None):
        raise click.UsageError("give a plan: a file, --quick or --full")
    try:
        if path is not None:
            return load(path)
        with as_file(files("fjm2bench") / "plans" / f"{builtin}.toml") as built_in:
            return load(built_in)
    except PlanError as error:
        raise click.UsageError(str(error)) from error


def _chosen(plan: RunPlan, only: str | None) -> list[Cell]:
    cells = cells_of(plan)
    if only is None:
        return cells
    names = [experiment.name for experiment in plan.experiments]
    wanted = only.split(",")
    for name in wanted:
        if name not in names:
            raise click.BadParameter(f"{name!r}: expected some of {', '.join(names)}", param_hint="--only")
    return [cell for cell in cells if cell.experiment.name in wanted]


def _list(cells: list[Cell]) -> None:
    for cell in cells:
        click.echo(str(cell))
    click.echo(f"{len(cells)} runs, {_duration(sum(cell.expected_s for cell in cells))}", err=True)


async def _run(plan: RunPlan, cells: list[Cell], folder: Path, again: bool) -> int:
    try:
        with ownership(folder):
            results = ResultFolder(folder, plan.name)
            done = set() if again else results.done()
            left = [cell for cell in cells if cell.key not in done]
            before = len(cells) - len(left)
            if before:
                click.echo(f"{before} of {len(cells)} runs are in {folder} already; --again repeats them", err=True)
            return await _run_cells(left, results, before)
    except (ResultFolderError, namespaces.NetworkError) as error:
        raise FJM2Error(str(error)) from error


async def _run_cells(wanted: list[Cell], results: ResultFolder, before: int) -> int:
    runner = Runner(results)
    cells = runner.present(wanted)
    is_over = False
    with _progress(cells) as progress:
        try:
            await runner.run(cells, progress)
            is_over = True
        finally:
            if not is_over:
                kept = f"{runner.summary.done} of {len(cells)} runs are done and kept"
                click.echo(f"{kept}; the same command goes on from there", err=True)
    _print(runner.summary, results)
    return 0 if before or runner.summary.done > len(runner.summary.faults) else 1


def _print(summary: Summary, results: ResultFolder) -> None:
    for fault in summary.faults:
        click.echo(f"fault: {fault}", err=True)
    for system, reason in summary.missing.items():
        click.echo(f"missing: {system}: {reason}", err=True)
    click.echo(
        f"{counted(summary.done, 'run')}, {len(summary.faults)} with faults, "
        f"{counted(len(summary.missing), 'system')} missing; results are in {results.folder}",
        err=True,
    )


@contextmanager
def _progress(cells: list[Cell]) -> Iterator[CellProgress]:
    """Show a progress bar on a terminal, or else print a line for each run."""
    if not cells:
        yield lambda _cell, _result: None
        return
    left = _TimeLeft(cells)
    if not sys.stderr.isatty():
        yield left.print
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
    times = (TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=left.total_s, count="")

        def update(cell: Cell, result: Result | None) -> None:
            if result is not None:
                left.note(cell)
            count = f"{left.done}/{len(cells)}"
            bar.update(task, description=str(cell), completed=left.total_s - left.seconds, count=count)

        yield update


class _TimeLeft:
    """Estimate of the time that the remaining runs take."""

    def __init__(self, cells: list[Cell]) -> None:
        self.total_s = self.seconds = sum(cell.expected_s for cell in cells)
        self.done = 0
        self._count = len(cells)

    def note(self, cell: Cell) -> None:
        self.done += 1
        self.seconds -= cell.expected_s

    def print(self, cell: Cell, result: Result | None) -> None:
        if result is not None:
            self.note(cell)
            left = _duration(self.seconds)
            click.echo(f"{self.done}/{self._count} {cell}: {result} ({left} left)", err=True)


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"about {minutes} min" if minutes else "less than a minute"
