"""`fjm2 trace`: makes traces from packet captures, and shows traces."""

import contextlib
import gzip
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from fjm2.base.errors import ConfigError, FJM2Error
from fjm2.base.interrupts import INTERRUPTED
from fjm2.base.quantities import counted
from fjm2.base.tables import Column, Row, print_table
from fjm2.traces import Labels, TraceWriter
from fjm2.traces.capture import CaptureSampler
from fjm2.traces.lines import encode
from fjm2.traces.summary import SeriesSummary, TraceSummary, summarize, trace_files

from .support.common import Duration, is_quiet

_UNBOUNDED_BYTES = 1 << 60  # no limit: the trace of a capture drops nothing
_GZIP = b"\x1f\x8b"
_SAMPLES_PER_UPDATE = 1000  # samples between two updates of the progress bar


@click.group()
def trace() -> None:
    """Traces: samples of the counters of sessions, connections and gateways.

    Any program writes them if FJM2_TRACE_DIR is set. These commands make them from packet captures, and show them.

    \b
    Example: FJM2_TRACE_DIR=traces fjm2 sub prices --count 1000
             fjm2 trace show traces
    """


@trace.command()
@click.option(
    "--pcap",
    "source",
    required=True,
    type=click.Path(allow_dash=True, dir_okay=False),
    help="Capture file; - for stdin.",
)
@click.option(
    "--to",
    "directory",
    default="traces",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for traces.",
)
@click.option(
    "--interval", default="100ms", show_default=True, type=Duration(0.001, 3600), help="Time between samples."
)
@click.option("--port", "ports", multiple=True, type=click.IntRange(1, 65_535), help="Only this UDP port (repeatable).")
@click.option("--run", help="Name of the run.  [default: name of the file]")
@click.option("--node", default="capture", show_default=True, help="Name of the place of the capture.")
@click.option("--system", help="Captured software, such as fjm2 or libnorm.  [default: fjm2]")
@click.option("--scenario", help="Scenario, such as lan or wan.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def record(
    source: str,
    directory: Path,
    interval: float,
    ports: tuple[int, ...],
    run: str | None,
    node: str,
    system: str | None,
    scenario: str | None,
    as_json: bool,
) -> None:
    """Make a trace of the NORM traffic in a packet capture (pcap or pcapng, also gzipped).

    The trace has a series for each sender: datagrams by kind, segments, repairs, parity, NACKs, acknowledgements, the
    round-trip time that it advertises, and what the capture misses. A truncated capture is read as far as possible.

    \b
    Example: tcpdump -i eth0 -s 128 -w lan.pcap udp port 5740
             fjm2 trace record --pcap lan.pcap --to traces
             fjm2 trace show traces
    """
    try:
        labels = Labels(run=run or _run_of(source), node=node, system=system, scenario=scenario, role="capture")
        code = _record(source, directory, labels, interval, ports, as_json)
    except OSError as error:
        raise click.ClickException(f"{error.filename or source}: {error.strerror or error}") from error
    except FJM2Error as error:
        raise click.ClickException(
            f"{source}: {error}" if not isinstance(error, ConfigError) else str(error)
        ) from error
    sys.exit(code)


def _run_of(source: str) -> str:
    name = Path(source).name.removesuffix(".gz")
    stem = re.sub(r"\.(pcap|pcapng|cap)$", "", name)
    return re.sub(r"[^A-Za-z0-9._:+-]+", "-", stem)[:128].strip("-") or "capture"


def _record(
    source: str, directory: Path, labels: Labels, interval_s: float, ports: tuple[int, ...], as_json: bool
) -> int:
    with _opened(source) as (stream, raw), TraceWriter(directory, labels, bytes_max=_UNBOUNDED_BYTES) as writer:
        sampler = CaptureSampler(stream, labels, interval_s, ports)
        if writer.path.exists():
            raise ConfigError(f"{writer.path} exists already: choose another --run or --node, or remove it")
        is_interrupted, samples = False, 0
        try:
            for samples, line in enumerate(_shown(sampler, raw, is_quiet(as_json)), 1):
                if not writer.append([encode(line)]):
                    raise click.ClickException(
                        f"{writer.path}: cannot be written, after {counted(samples - 1, 'sample')}"
                    )
        except KeyboardInterrupt:
            is_interrupted = True
        _tell(sampler, writer, samples, as_json)
    return INTERRUPTED if is_interrupted else 0


@contextlib.contextmanager
def _opened(source: str) -> Iterator[tuple[BinaryIO, IO[bytes] | None]]:
    """Open a capture file. Yield its unpacked data, and the file whose position tells the progress; None for stdin."""
    if source == "-":
        piped = io.BufferedReader(cast(io.RawIOBase, sys.stdin.buffer))
        with _unpacked(piped) as stream:
            yield stream, None
        return
    with open(source, "rb") as file, _unpacked(file) as stream:
        yield stream, file


@contextlib.contextmanager
def _unpacked(packed: "io.BufferedReader[Any]") -> Iterator[BinaryIO]:
    """Yield the data of a file or a pipe, which may be gzipped."""
    if packed.peek(2)[:2] == _GZIP:
        with gzip.open(packed) as unpacked:
            yield unpacked  # type: ignore[misc]
    else:
        yield packed


def _shown(sampler: CaptureSampler, raw: IO[bytes] | None, is_hidden: bool) -> Iterator[dict[str, Any]]:
    """Yield the samples. Show a progress bar meanwhile, unless `is_hidden`."""
    if is_hidden:
        yield from sampler.samples()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        total = None if raw is None else os.fstat(raw.fileno()).st_size
        task = bar.add_task("reading", total=total)
        for number, line in enumerate(sampler.samples()):
            if number % _SAMPLES_PER_UPDATE == 0:
                at = 0 if raw is None else raw.tell()
                bar.update(task, description=counted(sampler.packets, "packet"), completed=at)
            yield line


def _tell(sampler: CaptureSampler, writer: TraceWriter, samples: int, as_json: bool) -> None:
    drops = dict(sampler.drops.most_common())
    if as_json:
        found = {"packets": sampler.packets, "senders": sampler.senders, "samples": samples, "drops": drops}
        click.echo(json.dumps(found | {"problem": sampler.problem or None, "path": str(writer.path)}))
        return
    click.echo(
        f"{counted(sampler.packets, 'packet')}, {counted(sampler.senders, 'NORM sender')}, "
        f"{counted(samples, 'sample')} in {writer.path}",
        err=True,
    )
    if drops:
        left_out = ", ".join(f"{count} {reason.replace('_', ' ')}" for reason, count in drops.items())
        click.echo(f"skipped: {left_out}", err=True)
    if sampler.problem:
        click.echo(f"warning: the capture {sampler.problem}", err=True)


@trace.command()
@click.argument("places", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(places: tuple[Path, ...], as_json: bool) -> None:
    """Show the contents of traces: files, or directories with everything below them.

    The exit code is 1 if there is no trace, or if lines are invalid.

    \b
    Example: fjm2 trace show traces/run=lan
    """
    files = [path for place in places for path in trace_files(place)]
    try:
        summary = summarize(files)
    except FileNotFoundError as error:
        raise click.ClickException(
            f"{error.filename}: no such file or directory: expected a trace, or a directory with traces, as programs "
            "write them to the directory that FJM2_TRACE_DIR names"
        ) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror or error}") from error
    if as_json:
        click.echo(json.dumps(_as_json(summary)))
    else:
        _print(summary)
    sys.exit(0 if summary.lines and not summary.bad_lines else 1)


def _as_json(summary: TraceSummary) -> dict[str, Any]:
    series = [
        {"run": run, "node": node, "source": source, **_figures(one)}
        for (run, node, source), one in sorted(summary.series.items())
    ]
    counts = {"files": summary.files, "lines": summary.lines, "bad_lines": summary.bad_lines}
    return {**counts, "results": len(summary.results), "series": series}


def _figures(one: SeriesSummary) -> dict[str, Any]:
    return {
        "system": one.system,
        "layer": one.layer,
        "role": one.role,
        "samples": one.samples,
        "samples_missing": one.samples_missing,
        "seconds": round(one.seconds, 6),
        "counters": {name: round(value, 6) for name, value in sorted(one.counters.items())},
        "gauges": one.gauges,
    }


_COLUMNS = (
    ("Mb/s out", "bytes_sent", 8e-6),
    ("Mb/s in", "bytes_received", 8e-6),
    ("msg/s out", "messages_sent", 1.0),
    ("msg/s in", "messages_received", 1.0),
)
_TABLE = (
    Column("series", is_text=True),
    Column("seconds", 4),
    *(Column(title, 1 if title.startswith("msg") else 0) for title, _, _ in _COLUMNS),
    Column("repairs", 2),
    Column("NACKs", 3),
    Column("lost"),
    Column("missing", 5),
)
_TOTALS = ("repair_segments_sent", "nacks_sent", "nacks_received", "objects_lost", "messages_lost")


def _print(summary: TraceSummary) -> None:
    console = Console()
    rows: list[Row] = []
    shown = None
    for (run, node, source), one in sorted(summary.series.items()):
        if (run, node) != shown:
            shown = run, node
            rows.append(Row([f"{run} {node}"], is_heading=True))
        rates = [f"{one.rate(counter) * factor:,.1f}" for _, counter, factor in _COLUMNS]
        repairs, sent, received, objects, messages = (int(one.counters[name]) for name in _TOTALS)
        totals = (repairs, sent + received, objects + messages, one.samples_missing)
        rows.append(Row([f"  {source}", f"{one.seconds:,.1f}", *rates, *(f"{number:,}" for number in totals)]))
    if rows:
        print_table(console, _TABLE, rows)
    console.print(
        f"{counted(summary.files, 'file')}, {counted(summary.lines, 'line')}, "
        f"{counted(len(summary.results), 'result')}",
        highlight=False,
    )
    if summary.bad_lines:
        console.print(f"invalid: {counted(summary.bad_lines, 'line')}", highlight=False)
