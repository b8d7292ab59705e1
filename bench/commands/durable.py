"""`fjm2-bench durable`: durable topics beside systems that keep messages on disks, too."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import click

from fjm2.base.interrupts import INTERRUPTED
from fjm2.base.quantities import counted
from fjm2.commands.support.common import Duration
from fjm2.errors import FJM2Error

from ..durable.bystanders import CELLS, cell_buses, measure_bystander
from ..durable.comparison import Standing, as_rows, compare, print_table
from ..durable.disk import DISK, measure_disk
from ..durable.replacement import measure_replacement
from ..durable.roles import PORTS, Role, RoleOptions, tell, wait_for_word
from ..durable.systems import SYSTEMS, load
from ..durable.trial import PORT, measure_awaited, measure_throughput
from ..durable.waiting import measure_waiting
from ..networks import namespaces
from ..networks.namespaces import NetworkError
from ..peers.base import PeerTimeoutError
from ..runs import machine
from .options import json_option, size_option, timeout_option

_F = TypeVar("_F", bound=Callable[..., Any])


class Systems(click.ParamType[tuple[str, ...]]):
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


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def durable() -> None:
    """Measure durable topics of FJM2 beside those of NATS JetStream and ActiveMQ. Needs root.

    All processes of a run are in a network namespace of their own, on one host. Systems take turns.

    \b
    Example: fjm2-bench durable throughput --repeat 5
    """


def _measuring_options(count: int, warm_up: int, repeat: int, timeout_s: float) -> Callable[[_F], _F]:
    """Return a decorator that adds the options of every measurement."""
    options = [
        size_option(1024),
        click.option(
            "--count", default=count, show_default=True, type=click.IntRange(1, 100_000_000), help="Messages of a run."
        ),
        click.option(
            "--warm-up",
            default=warm_up,
            show_default=True,
            type=click.IntRange(1, 10_000_000),
            help="Messages before them that do not count.",
        ),
        click.option(
            "--repeat",
            default=repeat,
            show_default=True,
            type=click.IntRange(1, 99),
            help="Number of runs; medians are reported.",
        ),
        click.option(
            "--folder",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            default=tempfile.gettempdir,
            show_default="the folder for temporary files",
            help="Folder whose disk is used. What is written there is removed.",
        ),
        click.option("--cores", type=click.IntRange(1, 1024), help="Cores for all processes together.  [default: all]"),
        timeout_option(timeout_s, "Give up a run after this time."),
        json_option,
    ]

    def add(function: _F) -> _F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _systems_option(default: Sequence[str]) -> Callable[[_F], _F]:
    return click.option(
        "--systems", type=Systems(), default=",".join(default), show_default=True, help="Systems to compare."
    )


@durable.command()
@_systems_option([name for name in SYSTEMS if name != "fjm2-one"])
@click.option(
    "--subscribers", default=1, show_default=True, type=click.IntRange(1, 64), help="Durable subscribers, all there."
)
@_measuring_options(200_000, 20_000, 3, 180.0)
def throughput(systems: tuple[str, ...], subscribers: int, as_json: bool, repeat: int, **settings: Any) -> None:
    """Measure a publisher and durable subscribers: messages a second until all are acknowledged.

    Every message is persistent, and counts when all subscribers have acknowledged it. The publisher waits for no
    message by itself, but all are confirmed. A subscriber acknowledges 256 messages at once, and waits for that.

    `copies` tells what went over the wire, as a multiple of the messages sent once: for FJM2 as it sends them when
    nobody hears them, for brokers the bodies alone.

    \b
    Example: fjm2-bench durable throughput --systems fjm2,jetstream --repeat 5
             fjm2-bench durable throughput --systems fjm2 --subscribers 8
    """
    options = _options(settings)
    standings = _compare(systems, repeat, lambda system: measure_throughput(system, options, subscribers))
    titles = {
        "msgs_per_s": ("messages/s", ",.0f"),
        "confirmed_per_s": ("confirmed/s", ",.0f"),
        "publisher_us": ("publisher us", ".1f"),
        "servers_us": ("servers us", ".1f"),
        "subscribers_us": ("subscribers us", ".1f"),
        "copies": ("copies", ".2f"),
    }
    title = f"{counted(options.count, 'message')} of {options.size} B to {subscribers}; us are of CPU, a message"
    _show(standings, "msgs_per_s", titles, title, as_json, options)


@durable.command()
@_systems_option(SYSTEMS)
@_measuring_options(2_000, 200, 3, 120.0)
def awaited(systems: tuple[str, ...], as_json: bool, repeat: int, **settings: Any) -> None:
    """Measure awaited sends of persistent messages, one after another, beside the disk's own time to sync.

    \b
    Example: fjm2-bench durable awaited --systems fjm2,activemq-kahadb
    """
    options = _options(settings)
    measured = (DISK, *systems)
    standings = _compare(
        measured,
        repeat,
        lambda system: measure_disk(options) if system == DISK else measure_awaited(system, options),
    )
    titles = {
        "count": ("sends", ",.0f"),
        "p50_us": ("p50 us", ",.0f"),
        "p99_us": ("p99 us", ",.0f"),
        "max_us": ("max us", ",.0f"),
    }
    _show(standings, "p50_us", titles, f"awaited sends of {options.size} B", as_json, options)


@durable.command()
@_systems_option(["fjm2"])
@_measuring_options(1_000_000, 1, 1, 900.0)
def waiting(systems: tuple[str, ...], as_json: bool, repeat: int, **settings: Any) -> None:
    """Measure messages that wait for a durable subscriber: memory, a restart of all servers, and catching up.

    \b
    Example: fjm2-bench durable waiting --count 100000
    """
    options = _options(settings)
    standings = _compare(systems, repeat, lambda system: measure_waiting(system, options))
    titles = {
        "stored_per_s": ("stored/s", ",.0f"),
        "resident_mb": ("MB", ",.0f"),
        "restart_s": ("restart s", ".2f"),
        "restarted_mb": ("MB then", ",.0f"),
        "caught_up_per_s": ("caught up/s", ",.0f"),
    }
    _show(
        standings,
        "caught_up_per_s",
        titles,
        f"{counted(options.count, 'message')} of {options.size} B, while the subscriber is away",
        as_json,
        options,
    )


@durable.command()
@click.option("--seconds", default="2s", show_default=True, type=Duration(0.1, 600), help="Duration of each run.")
@_measuring_options(1, 1, 5, 120.0)
def bystanders(seconds: float, as_json: bool, repeat: int, **settings: Any) -> None:
    """Measure NON_PERSISTENT messages to an ordinary subscriber on a bus without keepers, with one, and with three.

    \b
    Example: fjm2-bench durable bystanders --seconds 1
    """
    options = _options(settings)
    try:
        with _until_interrupted(), cell_buses(options) as buses:
            standings = _compare(tuple(CELLS), repeat, lambda cell: measure_bystander(buses[cell], options, seconds))
    except (PeerTimeoutError, NetworkError) as error:
        raise click.ClickException(str(error)) from error
    titles = {"msgs_per_s": ("messages/s", ",.0f"), "cpu_us": ("us", ".1f"), "keepers_us": ("keepers us", ".1f")}
    title = f"messages of {options.size} B beside a cell; us of CPU a message, of publisher and subscriber"
    _show(standings, "msgs_per_s", titles, title, as_json, options)


def _options(settings: dict[str, Any]) -> RoleOptions:
    """Return the task of the roles. Restrict this process and its children to the cores that were asked for."""
    lack = namespaces.missing()
    if lack is not None:
        raise click.ClickException(lack)
    cores = settings.pop("cores")
    if cores is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    return RoleOptions(port=PORT, number=0, **settings)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the command once what it made is removed."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _compare(systems: Sequence[str], repeat: int, measure: Callable[[str], Any]) -> list[Standing]:
    present = []
    for system in systems:
        lack = load(system).missing() if system in SYSTEMS else None
        if lack is None:
            present.append(system)
        else:
            click.echo(f"{system}: {lack}", err=True)
    if not present:
        raise click.ClickException("none of the systems is installed")

    def say(system: str) -> None:
        if sys.stderr.isatty():
            click.echo(system, err=True)

    with _until_interrupted():
        return compare(present, repeat, measure, say)


def _show(
    standings: list[Standing],
    figure: str,
    titles: dict[str, tuple[str, str]],
    title: str,
    as_json: bool,
    options: RoleOptions,
) -> None:
    described = [standing.system for standing in standings if standing.system in SYSTEMS]
    versions = {system: machine.version_of(system) for system in described}
    settings = {system: load(system).settings for system in described}
    if as_json:
        labels = {**machine.description(), "load": machine.load()}
        result = {"rows": as_rows(standings, figure), "versions": versions, "settings": settings, "machine": labels}
        click.echo(json.dumps({"count": options.count, "size": options.size, **result}))
    else:
        print_table(standings, figure, titles, title)
        for system in described:
            click.echo(f"{system}: {versions[system]}; {settings[system]}")
        click.echo(f"load: {machine.load()}")
    sys.exit(0 if all(not standing.faults for standing in standings) else 1)


@durable.command()
@click.option(
    "--per-s", default=5000, show_default=True, type=click.IntRange(100, 1_000_000), help="Messages a second."
)
@_measuring_options(200_000, 1, 1, 300.0)
def replacement(as_json: bool, repeat: int, **settings: Any) -> None:
    """Measure a new keeper that takes the place of a lost one under traffic, and what the traffic has of it.

    COUNT messages wait for a subscriber that is away, and the new keeper gets them all.

    \b
    Example: fjm2-bench durable replacement --per-s 2000
    """
    options = _options(settings)
    standings = _compare(("fjm2",), repeat, lambda _: measure_replacement(options))
    titles = {"follower_s": ("follower s", ".1f"), "caught_up_s": ("all s", ".1f")}
    for name in ("confirmed", "delivered"):
        titles |= {
            f"{name}_before": (f"{name}/s before", ",.0f"),
            f"{name}_meanwhile": ("meanwhile", ",.0f"),
            f"{name}_worst": ("worst second", ",.0f"),
        }
    title = f"a keeper is lost under {options.per_s:,} messages/s of {options.size} B, with {options.count:,} kept"
    _show(standings, "caught_up_s", titles, title, as_json, options)


@durable.command()
@click.argument("system", type=click.Choice(SYSTEMS))
@click.argument("role", type=click.Choice([each.value for each in Role]))
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(1, 65_535 - PORTS), help="First port.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    show_default=True,
    help="Folder for the data of servers.",
)
@size_option(1024)
@click.option("--warm-up", default=0, type=click.IntRange(min=0), help="Messages that do not count.")
@click.option("--count", default=1000, show_default=True, type=click.IntRange(min=0), help="Messages that count.")
@click.option("--number", default=0, show_default=True, type=click.IntRange(min=0), help="Number of the subscriber.")
@click.option("--per-s", default=0, type=click.IntRange(min=0), help="Messages a second of a steady publisher.")
@timeout_option(60.0)
@click.option("--json", "as_json", is_flag=True, help="Has no effect: the lines are always JSON.")
def role(system: str, role: str, as_json: bool, timeout_s: float, **settings: Any) -> None:  # noqa: ARG001
    """Run one process of a run by hand: servers, a durable subscriber, a publisher, or awaited sends.

    Every process prints lines of JSON. A publisher begins, and every process ends, when it is given a line.

    \b
    Example: fjm2-bench durable role jetstream serve --folder /tmp & fjm2-bench durable role jetstream awaited
    """
    found = load(system)
    lack = found.missing()
    if lack is not None:
        raise click.ClickException(f"{system}: {lack}")
    signal.signal(signal.SIGTERM, _terminate)
    options = RoleOptions(timeout_s=timeout_s, **settings)
    try:
        if Role(role) is Role.SERVE:
            with found.serve(options) as pids:
                tell(ready=True, pids=pids)
                wait_for_word()
        else:
            found.run(Role(role), options)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except (PeerTimeoutError, FJM2Error, OSError) as error:
        raise click.ClickException(f"{system}: {error}") from error


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """Exit with the code for interruption, and clean up on the way."""
    sys.exit(INTERRUPTED)
