"""`fjm2-bench compare`: systems beside each other, over a network made for the purpose."""

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from fjm2.commands.common import run
from fjm2.errors import ConfigError
from fjm2.uri import BusConfig

from .. import netns
from ..peers import SYSTEMS as PEERS
from ..peers import load
from .options import object_option

OURS = "fjm2"
SYSTEMS = (OURS, *PEERS)
_START_S = 20.0
"""Longest time for a subscriber to be ready."""
_FINISH_S = 30.0
"""Longest time for what is under way to arrive, after the time for sending."""
_STOP_S = 3.0
_RATE_SHARE = 0.95
"""Of a shaped link's rate: for libnorm, which sends at a fixed one. The rest is for headers below, and for repairs."""
_FIRST_PORT = 5740
_PORTS_A_RUN = 4
_PAGE_COLUMNS = 120
_SEGMENT_BYTES = 8000
# A lost fragment leaves the others of its datagram in the receiver's kernel for 30 s. Soon there is no room for more,
# and then no fragmented datagram arrives at all.
_SMALL_SEGMENT_BYTES = 1428
_COMMAND = (sys.executable, "-m", "fjm2bench.cli")


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers, separated by commas."""

    name = "N,..."

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            numbers = ()
        if not numbers or not all(self._least <= number <= self._most for number in numbers):
            self.fail(
                f"{value!r}: expected numbers from {self._least} to {self._most}, separated by commas", param, ctx
            )
        return tuple(dict.fromkeys(numbers))


class Names(click.ParamType[tuple[str, ...]]):
    """Systems, separated by commas."""

    name = "NAME,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(str(value).split(",")))
        for name in names:
            if name not in SYSTEMS:
                self.fail(f"{name!r}: expected some of {', '.join(SYSTEMS)}, separated by commas", param, ctx)
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is compared."""

    systems: tuple[str, ...]
    sizes: tuple[int, ...]
    fanouts: tuple[int, ...]
    form: str
    rate_bps: float | None
    loss: float
    seconds: float
    repeat: int
    is_offloaded: bool
    is_verified: bool
    settings: str
    """Of FJM2, as in a URI's query."""
    segment_bytes: int
    """Of libnorm."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run."""

    msgs_per_s: float = 0.0
    """From the first message until the last subscriber has confirmed the last one: nothing can hide from that."""
    cpu_s_per_gb: float = 0.0
    """Of all processes together, for each gigabyte published."""
    fault: str = ""
    """What went wrong, if anything; the rest is void then."""


@dataclass(frozen=True, slots=True)
class Row:
    """A system at one size and fan-out: the median of its samples."""

    system: str
    size: int
    fanout: int
    msgs_per_s: float | None
    gbit_per_s: float | None
    cpu_s_per_gb: float | None
    ratio: float | None
    """To the best of the other systems, in messages a second."""
    samples: tuple[float, ...]
    faults: tuple[str, ...]


@click.command()
@click.option("--systems", type=Names(), default=",".join(SYSTEMS), show_default=True, help="Whom to compare.")
@click.option("--sizes", type=Numbers(8, 1 << 28), default="64,1024,8192,65536", show_default=True, help="Of messages.")
@click.option("--fanout", type=Numbers(1, 64), default="1,8", show_default=True, help="Numbers of subscribers.")
@object_option
@click.option("--rate", help="Of the publisher's link, as in 100mbit.  [default: as fast as it goes]")
@click.option(
    "--loss", default=0.0, show_default=True, type=click.FloatRange(0, 0.5), help="Part of packets lost on arrival."
)
@click.option("--seconds", default=2.0, show_default=True, type=click.FloatRange(0.1, 600), help="Of each run.")
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1, 99), help="Runs a median is of.")
@click.option("--no-gso", is_flag=True, help="Each packet crosses the network alone, and FJM2 sends one at a time.")
@click.option("--no-verify", is_flag=True, help="Do not look into messages: measure the transports alone.")
@click.option(
    "--settings", default="rate=none&flow=min&loopback=off", show_default=True, help="Of FJM2: the query of its URI."
)
@click.option(
    "--segment-size",
    type=click.IntRange(64, 65_000),
    help=f"Of libnorm.  [default: {_SEGMENT_BYTES}, or {_SMALL_SEGMENT_BYTES} with --loss]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def compare(
    systems: tuple[str, ...],
    sizes: tuple[int, ...],
    fanout: tuple[int, ...],
    form: str,
    rate: str | None,
    loss: float,
    seconds: float,
    repeat: int,
    no_gso: bool,
    no_verify: bool,
    settings: str,
    segment_size: int | None,
    as_json: bool,
) -> None:
    """FJM2 and its peers at the same task, each in a network namespace of its own. Needs root.

    Every system publishes for some seconds to all subscribers; systems take turns, and each repeat begins with another.
    Time runs until the last subscriber has confirmed the last message. Who loses, doubles or damages anything gets no
    figure. Each message counts once, however many subscribers get it.

    \b
    Example: fjm2-bench compare --systems fjm2,zenoh --sizes 1024,8192 --fanout 1 --seconds 1
    """
    lack = netns.missing()
    if lack is not None:
        raise click.ClickException(lack)
    plan = Plan(
        systems=systems,
        sizes=sizes,
        fanouts=fanout,
        form=form,
        rate_bps=_bits(rate),
        loss=loss,
        seconds=seconds,
        repeat=repeat,
        is_offloaded=not no_gso,
        is_verified=not no_verify,
        settings=settings,
        segment_bytes=segment_size or (_SMALL_SEGMENT_BYTES if loss else _SEGMENT_BYTES),
    )
    try:
        _bus(plan, netns.DEVICE, _FIRST_PORT)
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--settings") from error
    run(_compare(plan, as_json))


def _bits(rate: str | None) -> float | None:
    if rate is None:
        return None
    try:
        return BusConfig.from_uri(f"fjm2://?rate={rate}").sender.rate_bps
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--rate") from error


def _bus(plan: Plan, interface: str, port: int) -> str:
    """FJM2's URI."""
    return BusConfig.from_uri(f"fjm2://:{port}?interface={interface}&{plan.settings}").to_uri()


async def _compare(plan: Plan, as_json: bool) -> int:
    missing = {system: lack for system in plan.systems if (lack := _missing(system))}
    systems = [system for system in plan.systems if system not in missing]
    samples: dict[tuple[str, int, int], list[Sample]] = {}
    try:
        with _progress(len(systems) * len(plan.fanouts) * len(plan.sizes) * plan.repeat) as advance:
            for fanout in plan.fanouts:
                await _compare_to(fanout, plan, systems, samples, advance)
    except netns.NetworkError as error:
        raise OSError(str(error)) from error
    rows = list(_rows(samples))
    if as_json:
        click.echo(json.dumps({"plan": asdict(plan), "rows": [asdict(row) for row in rows], "missing": missing}))
    else:
        _print_table(plan, rows, missing)
    return 0 if rows and not any(row.faults for row in rows) else 1


async def _compare_to(
    fanout: int,
    plan: Plan,
    systems: list[str],
    samples: dict[tuple[str, int, int], list[Sample]],
    advance: Callable[[str], None],
) -> None:
    """All sizes to so many subscribers, on a network with just these: multicast is flooded to whoever is there."""
    with netns.Lab(fanout, rate_bps=plan.rate_bps, loss=plan.loss, is_offloaded=plan.is_offloaded) as lab:
        bench = Bench(plan, lab)
        for size, turn in itertools.product(plan.sizes, range(plan.repeat)):
            first = turn % len(systems) if systems else 0
            for system in systems[first:] + systems[:first]:
                advance(f"{system}, {size} B to {fanout}")
                samples.setdefault((system, size, fanout), []).append(await bench.run(system, size))


def _missing(system: str) -> str | None:
    return None if system == OURS else load(system).missing()


class Bench:
    """Runs one system once at a time."""

    def __init__(self, plan: Plan, lab: netns.Lab) -> None:
        self._plan = plan
        self._lab = lab
        self._ports = itertools.count(_FIRST_PORT, _PORTS_A_RUN)
        # Packages are found as they are here, wherever the namespaces' processes begin.
        self._environment = dict(os.environ) | ({} if plan.is_offloaded else {"FJM2_NO_GSO": "1"})

    async def run(self, system: str, size: int) -> Sample:
        """Publisher and subscribers, from beginning to end. Whatever goes wrong is in the sample."""
        port = next(self._ports)
        processes: list[asyncio.subprocess.Process] = []
        try:
            for host in self._lab.subscribers:
                process = await self._start(host, *self._sub_command(system, size, port))
                processes.append(process)
            subscribers = list(processes)
            async with asyncio.timeout(_START_S):
                for process in subscribers:
                    text = await _line(process)
                    if _parsed(text) is None:
                        return Sample(fault=text)
            publisher = await self._start(self._lab.publisher, *self._pub_command(system, size, port))
            processes.append(publisher)
            async with asyncio.timeout(self._plan.seconds + 2 * _FINISH_S):
                lines = []
                for process in (publisher, *subscribers):
                    text = await _line(process)
                    line = _parsed(text)
                    if line is None:
                        return Sample(fault=text)
                    lines.append(line)
            async with asyncio.timeout(_STOP_S):
                for process in processes:
                    await process.wait()
            return _sample(lines[0], lines[1:], size)
        except TimeoutError:
            return Sample(fault="not done in time")
        finally:
            await _stop(processes)

    def _sub_command(self, system: str, size: int, port: int) -> tuple[str, ...]:
        plan = self._plan
        timeout = plan.seconds + _START_S + _FINISH_S
        more = (
            "--size",
            str(size),
            "--timeout",
            str(timeout),
            "--json",
            *([] if plan.is_verified else ["--no-verify"]),
        )
        if system == OURS:
            return ("sub", "--uri", _bus(plan, netns.DEVICE, port), *more)
        return ("peer", system, "sub", *self._place(port), *more)

    def _pub_command(self, system: str, size: int, port: int) -> tuple[str, ...]:
        plan = self._plan
        timeout = plan.seconds + _FINISH_S
        more = ["--size", str(size), "--seconds", str(plan.seconds), "--receivers", str(len(self._lab.subscribers))]
        more += ["--object", plan.form, "--timeout", str(timeout), "--json"]
        if system == OURS:
            return ("pub", "--uri", _bus(plan, netns.DEVICE, port), *more)
        if plan.rate_bps is not None:
            more += ["--rate", f"{plan.rate_bps * _RATE_SHARE:.0f}"]
        return ("peer", system, "pub", *self._place(port), *more)

    def _place(self, port: int) -> tuple[str, ...]:
        place = ("--publisher", self._lab.publisher.address, "--interface", netns.DEVICE, "--port", str(port))
        return (*place, "--segment-size", str(self._plan.segment_bytes))

    async def _start(self, host: netns.Host, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *host.inside(*_COMMAND, *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,  # Ctrl-C is for us; they are told when their time has come
        )


async def _line(process: asyncio.subprocess.Process) -> str:
    """The next line of a process, or what it said instead."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = await process.stdout.readline()
    if line:
        return line.decode()
    said = (await process.stderr.read()).decode().strip().splitlines()
    return said[-1] if said else f"a process ended with {await process.wait()} and said nothing"


def _parsed(text: str) -> dict[str, Any] | None:
    """None for what is no line of a result."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


async def _stop(processes: list[asyncio.subprocess.Process]) -> None:
    """End those that have not ended themselves."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        alive = [process for process in processes if process.returncode is None]
        for process in alive:
            process.send_signal(number)
        try:
            async with asyncio.timeout(_STOP_S):
                for process in alive:
                    await process.communicate()
        except TimeoutError:
            pass


def _sample(pub: dict[str, Any], subs: list[dict[str, Any]], size: int) -> Sample:
    """What a run's lines amount to."""
    faults = []
    if pub["not_acked"]:
        faults.append(f"{len(pub['not_acked'])} did not confirm")
    for name in ("lost", "duplicated", "corrupt"):
        count = sum(sub[name] for sub in subs)
        if count:
            faults.append(f"{count} {name}")
    if not all(sub["ended"] and sub["messages"] == pub["messages"] for sub in subs) and not faults:
        faults.append("the end was not seen by all")
    if faults:
        return Sample(fault=", ".join(faults))
    cpu_s = pub["cpu_s"] + sum(sub["cpu_s"] for sub in subs)
    return Sample(pub["msgs_per_s"], cpu_s / (pub["messages"] * size / 1e9))


def _rows(samples: dict[tuple[str, int, int], list[Sample]]) -> Iterator[Row]:
    medians = {
        key: median(rates)
        for key, taken in samples.items()
        if (rates := [sample.msgs_per_s for sample in taken if not sample.fault])
    }
    for (system, size, fanout), runs in samples.items():
        rate = medians.get((system, size, fanout))
        others = [value for key, value in medians.items() if key[1:] == (size, fanout) and key[0] != system]
        good = [sample for sample in runs if not sample.fault]
        yield Row(
            system=system,
            size=size,
            fanout=fanout,
            msgs_per_s=rate,
            gbit_per_s=None if rate is None else rate * size * 8e-9,
            cpu_s_per_gb=median(sample.cpu_s_per_gb for sample in good) if good else None,
            ratio=rate / max(others) if rate and others and max(others) else None,
            samples=tuple(sample.msgs_per_s for sample in runs),
            faults=tuple(sample.fault for sample in runs if sample.fault),
        )


def _print_table(plan: Plan, rows: list[Row], missing: dict[str, str]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = _PAGE_COLUMNS
    table = Table(title=_title(plan), caption=f"median of {plan.repeat}; ratio: to the best of the others")
    for heading in ("bytes", "to", "system", "messages/s", "Gbit/s", "ratio", "CPU s/GB", "spread", "remarks"):
        table.add_column(heading, justify="left" if heading in ("system", "remarks") else "right")
    before: tuple[int, int] | None = None
    for row in sorted(rows, key=lambda row: (row.fanout, row.size, plan.systems.index(row.system))):
        if before not in (None, (row.size, row.fanout)):
            table.add_section()
        before = (row.size, row.fanout)
        table.add_row(str(row.size), str(row.fanout), row.system, *_cells(row))
    console.print(table)
    for system, lack in missing.items():
        console.print(f"{system}: {lack}", highlight=False)


def _cells(row: Row) -> list[str]:
    remarks = "; ".join(dict.fromkeys(row.faults)) + (f" ({len(row.faults)} x)" if row.faults else "")
    if row.msgs_per_s is None or row.gbit_per_s is None:
        return ["", "", "", "", "", remarks]
    good = [value for value in row.samples if value]
    spread = f"{min(good) / row.msgs_per_s:.2f}-{max(good) / row.msgs_per_s:.2f}" if good else ""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    cpu = "" if row.cpu_s_per_gb is None else f"{row.cpu_s_per_gb:.2f}"
    return [f"{row.msgs_per_s:,.0f}", f"{row.gbit_per_s:.3f}", ratio, cpu, spread, remarks]


def _title(plan: Plan) -> str:
    link = "an unlimited link" if plan.rate_bps is None else f"a link of {plan.rate_bps / 1e6:g} Mbit/s"
    offload = "" if plan.is_offloaded else ", without offload"
    loss = f", {plan.loss:.2%} lost" if plan.loss else ""
    checked = "every message checked" if plan.is_verified else "content not checked"
    return f"{plan.form}, {plan.seconds:g} s over {link}{offload}{loss}; {checked}"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A line on the terminal that tells which run it is."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = itertools.count()
        yield lambda text: bar.update(task, description=text, completed=next(begun))
