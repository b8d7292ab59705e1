"""`fjm2-bench traces`: from recorded lines to figures and reports."""

import functools
import json
import logging
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fjm2.base.interrupts import INTERRUPTED
from fjm2.base.missing_extras import lack_of
from fjm2.base.quantities import counted, duration_text
from fjm2.commands.support.common import Duration
from fjm2.errors import FJM2Error

from .files import SETTLE_S, find
from .progress import Progress, Tell, untold
from .warehouse import Warehouse, WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .ingest import Ingested
    from .scale import Scaled

_F = TypeVar("_F", bound=Callable[..., Any])
_LINKS_SHOWN_MAX = 10
"""Maximum number of symbolic links that are named one by one."""
_MEMORY_MIN_MIB = 512
"""Spark needs about this much to start."""
_ENDED = "its process has ended, perhaps killed for lack of memory: try another --memory"
_FOLDER = click.Path(path_type=Path)
_ROOM = click.Path(exists=True, file_okay=False, path_type=Path)
_WAREHOUSE = click.Path(file_okay=False, path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def traces() -> None:
    """Turn traces of benchmarks and of production into tables and figures, on Spark: on this machine or on a cluster.

    \b
    Example:
      FJM2_TRACE_DIR=traces fjm2 pub TOPIC - < messages   # any FJM2 program can record itself
      fjm2-bench traces all traces warehouse --to report
    """


def _master(_context: click.Context, _option: click.Parameter, value: str) -> str:
    if not re.fullmatch(r"local(\[.+\])?|spark://.+|yarn|k8s://.+", value):
        raise click.BadParameter(f"{value!r}: expected local[N], local[*], spark://HOST:PORT, yarn or k8s://...")
    return value


def _memory(_context: click.Context, _option: click.Parameter, value: str) -> str:
    match = re.fullmatch(r"([1-9][0-9]{0,6})([mg])", value)
    if match is None or (match[2] == "m" and int(match[1]) < _MEMORY_MIN_MIB):
        raise click.BadParameter(f"{value!r}: expected {_MEMORY_MIN_MIB}m or more, as in 2g")
    return value


def spark_options(function: _F) -> _F:
    """Add the options for Spark: where it runs, and its memory."""
    options = [
        click.option(
            "--master",
            default="local[*]",
            show_default=True,
            callback=_master,
            help="Spark master: local[N], spark://HOST:PORT or yarn.",
        ),
        click.option(
            "--memory",
            default="2g",
            show_default=True,
            callback=_memory,
            help="Memory of this process if local, else of each executor.",
        ),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
        click.option("--quiet", is_flag=True, help="Do not show progress."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _reporting_errors(function: _F) -> _F:
    """Report errors in one line, and Ctrl-C without a traceback."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except FJM2Error as error:
            raise click.ClickException(str(error)) from error
        except ImportError as error:
            raise click.ClickException(lack_of(error, "fjm2-bench traces", "spark")) from error
        except OSError as error:
            raise click.ClickException(f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")) from error
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # we end soon
            click.echo("interrupted: what was not finished is done again next time", err=True)
            sys.exit(INTERRUPTED)

    return wrapped  # type: ignore[return-value]


@traces.command()
@click.argument("folder", type=_FOLDER)
@click.argument("warehouse", type=_WAREHOUSE)
@click.option(
    "--settle",
    default=duration_text(SETTLE_S),
    show_default=True,
    type=Duration(),
    help="Read captures, and incomplete last lines, only if the file has not changed for this long.",
)
@spark_options
@_reporting_errors
def ingest(folder: Path, warehouse: Path, settle: float, **spark_args: Any) -> None:
    """Read what is new in FOLDER (run=RUN/node=NODE.jsonl, .jsonl.gz, .pcap, .pcapng) into WAREHOUSE.

    Bad lines are kept in WAREHOUSE/bad, with the reason. Repeating the command does no harm: only new lines are read.
    All workers must reach FOLDER and WAREHOUSE by the same path.

    \b
    Examples:
      fjm2-bench traces ingest traces warehouse
      fjm2-bench traces ingest /srv/traces /srv/warehouse --master spark://HOST:7077 --memory 4g
    """
    _check_present(folder)
    with _spark(**spark_args) as (start, progress):
        _ingest(folder, Warehouse(warehouse), settle, start, progress)


def _ingest(
    folder: Path, store: Warehouse, settle: float, start: "_Start", progress: Tell, more_bytes: int = 0
) -> None:
    """Ingest and tell. `more_bytes` is the size of the work for which the session is used after that."""
    from .ingest import ingest as run
    from .ingest import new_in

    progress("ingest: look for new lines")
    result, work = new_in(folder, store, settle)
    if result.files:
        spark, begun = start(work + more_bytes), time.monotonic()
        result = run(spark, folder, store, settle_s=settle, progress=progress)
        _tell(result, time.monotonic() - begun)
    else:
        _tell(result)


@traces.command()
@click.argument("warehouse", type=_WAREHOUSE)
@click.option("--anew", is_flag=True, help="Compute all figures again, not only new ones.")
@spark_options
@_reporting_errors
def aggregate(warehouse: Path, anew: bool, **spark_args: Any) -> None:
    """Bring the figures in WAREHOUSE/aggregates up to date, for the days and runs with new rows.

    \b
    Example: fjm2-bench traces aggregate warehouse
    """
    store = _existing(warehouse)
    with _spark(**spark_args) as (start, progress):
        _aggregate(store, anew, start, progress)


def _aggregate(store: Warehouse, anew: bool, start: "_Start", progress: Tell) -> None:
    from .refresh import aggregate as run
    from .refresh import up_to_date

    result = up_to_date(store, anew=anew)
    if result is not None:
        click.echo("nothing new")
    else:
        spark, begun = start(store.lines_bytes()), time.monotonic()
        result = run(spark, store, anew=anew, progress=progress)
        seconds = time.monotonic() - begun
        touched = f"{counted(len(result.days), 'day')}, {counted(result.runs, 'run')}"
        click.echo(f"{counted(result.batches, 'batch')}: {touched} in {seconds:.1f} s")
    for name, count in result.tables.items():
        click.echo(f"  {name:22} {count:>12,} rows")


@traces.command("all")
@click.argument("folder", type=_FOLDER)
@click.argument("warehouse", type=_WAREHOUSE)
@click.option("--to", default="report", show_default=True, type=_WAREHOUSE, help="Folder for the report.")
@click.option("--settle", default=duration_text(SETTLE_S), show_default=True, type=Duration(), help="As for ingest.")
@spark_options
@_reporting_errors
def all_(folder: Path, warehouse: Path, to: Path, settle: float, **spark_args: Any) -> None:
    """Ingest, aggregate and report in a row, which starts Spark once: from FOLDER by WAREHOUSE to a page of plots.

    \b
    Example: fjm2-bench traces all traces warehouse --to report
    """
    _check_present(folder)
    store = Warehouse(warehouse)
    with _spark(**spark_args) as (start, progress):
        _ingest(folder, store, settle, start, progress, store.lines_bytes())
        _aggregate(store, False, start, progress)
        progress("report: draw")
        _report(store.path, to)


def _report(warehouse: Path, to: Path) -> None:
    from ..report import build  # first: what is not installed is told before what is wrong with the folder

    click.echo(build(_existing(warehouse).path, to))


@traces.command()
@click.argument("folder", type=_FOLDER)
@click.argument("warehouse", type=_WAREHOUSE)
@click.option(
    "--every",
    default="10s",
    show_default=True,
    type=Duration(),
    help="Time between batches.",
)
@click.option("--once", is_flag=True, help="Read what there is, then exit.")
@click.option("--settle", default=duration_text(SETTLE_S), show_default=True, type=Duration(), help="As for ingest.")
@click.option(
    "--batch-mib", default=256, show_default=True, type=click.IntRange(min=1), help="Approximate size of a batch."
)
@spark_options
@_reporting_errors
def stream(
    folder: Path, warehouse: Path, every: float, once: bool, settle: float, batch_mib: int, **spark_args: Any
) -> None:
    """Ingest continuously: what programs write to FOLDER is in WAREHOUSE seconds later, each line once.

    It can be stopped or killed at any time, and continues from there when it is started again. `aggregate` can run at
    the same time. A warehouse is fed either by stream or by ingest.

    \b
    Example: fjm2-bench traces stream /srv/traces /srv/warehouse --every 60
    """
    _check_present(folder)
    store = Warehouse(warehouse)
    _tell_links(find(folder, {}, settle, bytes_max=0).links)
    with _spark(**spark_args) as (start, _), store.streamed():
        from .stream import stream as run

        spark = start(None)

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        query = run(
            spark,
            folder,
            store,
            time.time,
            settle_s=settle,
            trigger_s=every,
            batch_bytes=batch_mib << 20,
            on_batch=_tell,
        )
        if once:
            query.processAllAvailable()
            query.stop()
        else:
            query.awaitTermination()


@traces.command()
@click.argument("warehouse", type=_WAREHOUSE)
@click.option("--to", default="report", show_default=True, type=_WAREHOUSE, help="Folder for the report.")
@_reporting_errors
def report(warehouse: Path, to: Path) -> None:
    """Write a report of WAREHOUSE: one HTML page with plots, and PNG and CSV files.

    \b
    Example: fjm2-bench traces report warehouse --to report
    """
    _report(warehouse, to)


@traces.command()
@click.argument("folder", type=_WAREHOUSE)
@click.option(
    "--rows", default=100_000, show_default=True, type=click.IntRange(min=1), help="Number of lines to write."
)
@click.option("--broken", default=0.05, show_default=True, type=click.FloatRange(0, 1), help="Share of bad lines.")
@click.option("--seed", default=1, show_default=True, type=int, help="The same seed gives the same lines.")
@_reporting_errors
def generate(folder: Path, rows: int, broken: float, seed: int) -> None:
    """Write example traces to FOLDER, as recorders write them. A line takes about 500 bytes.

    \b
    Example: fjm2-bench traces generate traces --rows 1000000
    """
    from .generate import generate as run

    done = run(folder, rows, broken, seed)
    made = f"{counted(done.good, 'sample')}, {counted(done.results, 'result')}"
    click.echo(f"{counted(done.files, 'file')}, {done.bytes / 1e6:,.1f} MB: {made}")
    for reason, count in sorted(done.bad.items()):
        click.echo(f"  bad: {reason:12} {count:>10,}")


@traces.command()
@click.option(
    "--rows", multiple=True, type=click.IntRange(min=1000), help="Number of lines; may be repeated.  [default: 2000000]"
)
@click.option("--broken", default=0.05, show_default=True, type=click.FloatRange(0, 1), help="Share of bad lines.")
@click.option("--master", default="local[*]", show_default=True, callback=_master, help="As for ingest.")
@click.option("--memory", default="4g", show_default=True, callback=_memory, help="As for ingest.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Compare with DuckDB (extra `dev`).")
@click.option(
    "--folder", default=".", show_default=True, type=_ROOM, help="Folder for temporary files: 600 bytes per line."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
@_reporting_errors
def scale(
    rows: tuple[int, ...], broken: float, master: str, memory: str, verify: bool, folder: Path, as_json: bool
) -> None:
    """Measure how the pipeline scales: generate, ingest and aggregate. Report times and peak memory, and check figures.

    \b
    Example: fjm2-bench traces scale --rows 2000000 --rows 20000000 --folder /var/tmp
    """
    from .scale import exponent
    from .scale import scale as run

    if verify and find_spec("duckdb") is None:
        raise click.UsageError("--verify needs duckdb: pip install duckdb, or give --no-verify")
    with tempfile.TemporaryDirectory(prefix="fjm2-scale-", dir=folder) as place:
        sizes = [run(Path(place), count, broken, memory, master, verify, _progress) for count in rows or (2_000_000,)]
    if as_json:
        grown = exponent(sizes) if len(sizes) > 1 else None
        click.echo(json.dumps({"sizes": [asdict(size) for size in sizes], "exponent": grown}))
    else:
        _show_sizes(sizes)
    if any(size.differences for size in sizes):
        sys.exit(1)


def _show_sizes(sizes: "list[Scaled]") -> None:
    from .scale import exponent

    for size in sizes:
        click.echo(
            f"{size.lines:>12,} lines, {size.raw_bytes / 1e9:.2f} GB: ingest {size.ingest.seconds:.1f} s, "
            f"{size.ingest.peak_bytes / 1e9:.1f} GB; aggregate {size.aggregate.seconds:.1f} s, "
            f"{size.aggregate.peak_bytes / 1e9:.1f} GB; {size.lines / size.seconds:,.0f} lines/s"
        )
        for difference in (size.differences or [])[:20]:
            click.echo(f"  differs: {difference}")
    if len(sizes) > 1:
        click.echo(f"grows with exponent {exponent(sizes):.2f}")


def _check_present(folder: Path) -> None:
    if not folder.exists():
        raise click.UsageError(f"there is no {folder}: expected a folder of traces, as FJM2_TRACE_DIR makes it")


_Start = Callable[[int | None], "SparkSession"]
"""A function that starts Spark for lines of so many bytes, or of no known number. The second call returns the same."""


@contextmanager
def _spark(master: str, memory: str, conf: tuple[str, ...], quiet: bool) -> "Iterator[tuple[_Start, Tell]]":
    """Check what Spark needs. Yield a function that starts it, and one to be told of phases. Stop it at the end."""
    from .session import (
        SparkFailedError,
        check_master,
        check_spark,
        children,
        has_ended,
        kill_all_but,
        reason_of,
        spark_session,
        suited,
    )

    settings = {}
    for setting in conf:
        key, equals, value = setting.partition("=")
        if not equals:
            raise click.UsageError(f"--conf {setting}: expected KEY=VALUE")
        settings[key] = value
    check_spark()
    check_master(master)
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    logging.disable(logging.CRITICAL)  # py4j logs tracebacks on Ctrl-C
    others = children()
    spark: SparkSession | None = None

    with ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        progress = None if quiet else stack.enter_context(Progress())

        def start(work_bytes: int | None) -> "SparkSession":
            nonlocal spark
            if spark is None:
                place, suitable = (master, {}) if work_bytes is None else suited(master, work_bytes)
                if progress and work_bytes is not None:
                    progress(f"start Spark at {place}")
                spark = spark_session(place, memory=memory, settings=suitable | settings)
                if progress and work_bytes is not None:
                    progress.watch(spark)
            return spark

        try:
            try:
                yield start, progress or untold
            except (Py4JError, PySparkException, ConnectionError) as error:
                if spark is None:
                    raise
                raise SparkFailedError(f"Spark failed: {_ENDED if has_ended(spark) else reason_of(error)}") from error
            if spark is not None:
                spark.stop()
        except BaseException:
            kill_all_but(others)
            raise


def _existing(path: Path) -> Warehouse:
    store = Warehouse(path)
    if not store.exists():
        raise WarehouseError(f"{path} is not a warehouse: `fjm2-bench traces ingest FOLDER {path}` makes one")
    store.check()
    return store


def _tell(result: "Ingested", seconds: float | None = None) -> None:
    if result.batch is None:
        click.echo("nothing new")
    else:
        took = "" if seconds is None else f" in {seconds:.1f} s ({result.lines / seconds:,.0f} lines/s)"
        counts = ", ".join(f"{result.counts[name]:,} {name}" for name in ("rows", "results", "bad"))
        click.echo(f"{result.batch}: {counted(result.lines, 'line')}{took}: {counts}")
    for reason, count in sorted(result.reasons.items()):
        click.echo(f"  bad: {reason:12} {count:>10,}")
    for path in result.pending:
        click.echo(f"  for later, as it may still be written to: {path}", err=True)
    for path in result.shrunk:
        click.echo(f"  left out, as it is shorter than what was read of it: {path}", err=True)
    _tell_links(result.links)


def _tell_links(links: list[str]) -> None:
    for path in links[:_LINKS_SHOWN_MAX]:
        click.echo(f"  skipped, as it is a symbolic link: {path}", err=True)
    if len(links) > _LINKS_SHOWN_MAX:
        click.echo(f"  skipped in all: {counted(len(links), 'symbolic link')}", err=True)


def _progress(text: str) -> None:
    click.echo(text, err=True)
