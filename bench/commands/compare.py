"""`fjm2-bench compare`: systems beside each other, in a network made for the purpose."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

import click
from click.core import ParameterSource
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fjm2.commands.support.common import Duration, run
from fjm2.errors import ConfigError
from fjm2.uri import BusConfig

from ..comparison.plan import ComparisonPlan
from ..comparison.standings import print_settings, print_table, rows_of
from ..comparison.trial import FIRST_PORT, OURS, SYSTEMS, Trial, TrialRunner
from ..networks import namespaces
from ..networks.lan import Lan
from ..peers import load
from ..rate import rate_bps
from ..workload.messages import PROPERTIES_MAX
from .options import Rate, object_option

# libnorm is fastest with segments that IP fragments: fewer system calls.
_SEGMENT_BYTES = 8000
# Where packets are lost, segments must not be fragmented. The kernel keeps the other fragments of an incomplete
# datagram for 30 s; soon its buffer is full, and no fragmented datagram arrives any more.
_SMALL_SEGMENT_BYTES = 1428


class Numbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers separated by commas."""

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
    """Names of systems, separated by commas."""

    name = "NAME,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(dict.fromkeys(str(value).split(",")))
        for name in names:
            if name not in SYSTEMS:
                self.fail(f"{name!r}: expected some of {', '.join(SYSTEMS)}, separated by commas", param, ctx)
        return names


_PRESETS: dict[str, dict[str, str | float]] = {
    "quick": {"sizes": "1024,8192", "fanout": "1", "seconds": 1.0, "repeat": 1},
    "full": {
        "sizes": "64,256,1024,4096,8192,16384,65536",
        "fanout": "1,2,4,8",
        "seconds": 2.0,
        "repeat": 3,
    },
}


def _preset(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
    """Change the defaults of the options that are not given."""
    if is_given and ctx.default_map:
        raise click.UsageError("give one of --quick and --full")
    if is_given:
        ctx.default_map = dict(_PRESETS[str(param.name)])


def _preset_option(name: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    settings = " ".join(f"--{option} {value}" for option, value in _PRESETS[name].items())
    return click.option(
        f"--{name}",
        is_flag=True,
        is_eager=True,  # before the options whose defaults it changes
        expose_value=False,
        callback=_preset,
        help=f"{text}: {settings}, unless given.",
    )


@click.command()
@_preset_option("quick", "Takes about two minutes")
@_preset_option("full", "Takes hours")
@click.option("--systems", type=Names(), default=",".join(SYSTEMS), show_default=True, help="Systems to compare.")
@click.option(
    "--sizes", type=Numbers(8, 1 << 28), default="64,1024,8192,65536", show_default=True, help="Message sizes in bytes."
)
@click.option("--fanout", type=Numbers(1, 64), default="1,8", show_default=True, help="Numbers of subscribers.")
@object_option
@click.option(
    "--properties",
    default=0,
    show_default=True,
    type=click.IntRange(0, PROPERTIES_MAX),
    help="Properties of each message, for fjm2-jms and ActiveMQ.",
)
@click.option(
    "--round-trips",
    type=click.IntRange(1, 1_000_000),
    help="Measure this many round trips to one echo instead of throughput.",
)
@click.option("--rate", type=Rate(), help="Rate of the publisher's link, such as 100mbit.  [default: unlimited]")
@click.option(
    "--loss",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 0.5),
    help="Probability that a packet is lost on arrival.",
)
@click.option("--seconds", default="2s", show_default=True, type=Duration(0.1, 600), help="Duration of each run.")
@click.option(
    "--repeat", default=3, show_default=True, type=click.IntRange(1, 99), help="Number of runs; medians are reported."
)
@click.option("--no-gso", is_flag=True, help="Carry each datagram as a packet of its own; FJM2 sends one at a time.")
@click.option("--no-verify", is_flag=True, help="Do not check the content of messages: measure only the transports.")
@click.option(
    "--settings", default="rate=none&flow=min&loopback=off", show_default=True, help="Query of FJM2's bus URI."
)
@click.option(
    "--segment-size",
    type=click.IntRange(64, 65_000),
    help=f"Segment size of libnorm.  [default: {_SEGMENT_BYTES}, or {_SMALL_SEGMENT_BYTES} with --loss]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def compare(
    systems: tuple[str, ...],
    sizes: tuple[int, ...],
    fanout: tuple[int, ...],
    form: str,
    properties: int,
    round_trips: int | None,
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
    """Compare FJM2 and its peers at the same task, each process in a network namespace of its own. Needs root.

    Each system publishes for some seconds to all subscribers. Systems take turns, and each repeat begins with another
    one. The time ends when the last subscriber has confirmed the last message. A system that loses, duplicates or
    corrupts a message gets no figure. Each message counts once, however many subscribers receive it. A broker's CPU
    time counts as the publisher's. The figure of bare UDP, which guarantees nothing, is the lowest rate that a
    subscriber received. Systems that are not installed are named. The settings of each system follow the table.

    \b
    Example: fjm2-bench compare --quick

    \b
    Example: fjm2-bench compare --systems fjm2,zenoh --sizes 1024,8192 --fanout 1 --seconds 1
    \b
    Example: fjm2-bench compare --systems fjm2-jms,activemq --sizes 64 --round-trips 5000
    """
    is_fanout_given = click.get_current_context().get_parameter_source("fanout") is ParameterSource.COMMANDLINE
    if round_trips is not None and is_fanout_given:
        raise click.UsageError("--fanout is for throughput: round trips need one echo")
    lack = namespaces.missing()
    if lack is not None:
        raise click.ClickException(lack)
    plan = ComparisonPlan(
        systems=systems,
        sizes=sizes,
        fanouts=fanout if round_trips is None else (1,),
        form=form,
        properties=properties,
        round_trips=round_trips,
        rate_bps=None if rate is None else rate_bps(rate),
        loss=loss,
        seconds=seconds,
        repeat=repeat,
        is_offloaded=not no_gso,
        is_verified=not no_verify,
        settings=settings,
        segment_bytes=segment_size or (_SMALL_SEGMENT_BYTES if loss else _SEGMENT_BYTES),
    )
    try:
        BusConfig.from_uri(plan.uri(FIRST_PORT))
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--settings") from error
    run(_compare(plan, as_json))


async def _compare(plan: ComparisonPlan, as_json: bool) -> int:
    missing = {system: lack for system in plan.systems if (lack := _missing(system))}
    systems = [system for system in plan.systems if system not in missing]
    trials: dict[tuple[str, int, int], list[Trial]] = {}
    try:
        with _progress(len(systems) * len(plan.fanouts) * len(plan.sizes) * plan.repeat) as advance:
            for fanout in plan.fanouts:
                await _compare_to(fanout, plan, systems, trials, advance)
    except namespaces.NetworkError as error:
        raise OSError(str(error)) from error
    rows = list(rows_of(plan, trials))
    settings = {system: load(system).settings for system in systems if system not in OURS}
    if as_json:
        result = {"plan": asdict(plan), "rows": [asdict(row) for row in rows], "missing": missing}
        click.echo(json.dumps(result | {"settings": settings}))
    else:
        print_table(plan, rows, missing)
        print_settings(settings)
    return 0 if rows and not any(row.faults for row in rows) else 1


async def _compare_to(
    fanout: int,
    plan: ComparisonPlan,
    systems: list[str],
    trials: dict[tuple[str, int, int], list[Trial]],
    advance: Callable[[str], None],
) -> None:
    """Measure all sizes with this many subscribers, on a network with just these: multicast is flooded to all."""
    with Lan(fanout, rate_bps=plan.rate_bps, loss=plan.loss, is_offloaded=plan.is_offloaded) as network:
        runner = TrialRunner(plan, network)
        for size, turn in itertools.product(plan.sizes, range(plan.repeat)):
            first = turn % len(systems) if systems else 0
            for system in systems[first:] + systems[:first]:
                advance(f"{system}, {size} B to {fanout}")
                trials.setdefault((system, size, fanout), []).append(await runner.run(system, size))


def _missing(system: str) -> str | None:
    return None if system in OURS else load(system).missing()


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Show the progress on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        begun = itertools.count()
        yield lambda text: bar.update(task, description=text, completed=next(begun))
