"""`fjm2-bench wan`: what crosses from LAN to LAN, through FJM2's gateways, plain relays of two makes, and none."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from . import netns
from .wan_network import (
    DIRECT_DEVICE,
    LAN_DEVICE,
    LEFT_LAN,
    LEFT_WAN,
    RIGHT_LAN,
    RIGHT_WAN,
    WanNetwork,
)

DIRECT, OURS, PLAIN, THREADS = "direct", "fjm2d", "plain relay", "plain relay, threads"
SYSTEMS = (DIRECT, OURS, PLAIN, THREADS)
_RELAYS = {PLAIN: "asyncio", THREADS: "threads"}
_GROUP, _PORT, _WAN_PORT = "239.192.57.40", 5740, 5741
_START_S, _STOP_S, _FINISH_S = 20.0, 5.0, 60.0
_PYTHON = (sys.executable, "-m")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One measurement."""

    gbit_per_s: float
    """Of messages, from the first until the last is confirmed."""
    gateway_cpu_s_per_gb: float
    """Of both gateways, for each gigabyte of messages."""
    p50_us: float
    p99_us: float
    """Of round trips: a message crosses twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One system: medians."""

    system: str
    gbit_per_s: float
    gateway_cpu_s_per_gb: float
    p50_us: float
    p99_us: float
    added_p50_us: float | None
    """What crossing once takes longer than without gateways; None where that was not measured."""
    of_plain: float | None
    """Throughput, as a multiple of the plain relay's by asyncio."""
    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    layer: str
    size: int
    seconds: float
    round_trips: int
    settings: str


@click.command()
@click.option(
    "--layer", default="jms", show_default=True, type=click.Choice(["jms", "norm"]), help="The API to go through."
)
@click.option("--size", default=8192, show_default=True, type=click.IntRange(64, 1 << 24), help="Bytes of a message.")
@click.option("--seconds", default=2.0, show_default=True, type=click.FloatRange(0.2, 60), help="Of each run.")
@click.option(
    "--round-trips", default=1000, show_default=True, type=click.IntRange(10, 100_000), help="Of 64 B, after the run."
)
@click.option("--repeat", default=3, show_default=True, type=click.IntRange(1, 20), help="Runs a median is of.")
@click.option(
    "--settings", default="rate=none&flow=min&loopback=off", show_default=True, help="The query of the bus's URI."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def wan(layer: str, size: int, seconds: float, round_trips: int, repeat: int, settings: str, as_json: bool) -> None:
    """Throughput and latency from LAN to LAN: through fjm2d, through plain relays, and without gateways. Needs root.

    The network is made for the purpose, as fast as this machine is. The plain relays seal nothing and go datagram by
    datagram, by asyncio or by a thread for each direction. Systems take turns.

    \b
    Example: fjm2-bench wan --size 8192 --seconds 2 --repeat 3
    """
    lack = netns.missing()
    if lack is not None:
        raise click.ClickException(lack)
    plan = Plan(layer=layer, size=size, seconds=seconds, round_trips=round_trips, settings=settings)
    try:
        rows = rows_of(measure(plan, repeat))
    except (netns.NetworkError, WanError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps({"plan": asdict(plan), "rows": [asdict(row) for row in rows]}))
    else:
        _print(rows, plan)


class WanError(Exception):
    """A program of the comparison failed; says what."""


def measure(plan: Plan, repeat: int) -> dict[str, list[Run]]:
    """All systems, in turns."""
    runs: dict[str, list[Run]] = {system: [] for system in SYSTEMS}
    with WanNetwork() as network:
        for turn in range(repeat):
            first = turn % len(SYSTEMS)
            for system in SYSTEMS[first:] + SYSTEMS[:first]:
                runs[system].append(_run(network, system, plan))
    return runs


def rows_of(runs: dict[str, list[Run]]) -> list[Row]:
    """Medians, and how they compare."""
    middle = {system: _median_of(found) for system, found in runs.items() if found}
    plain, direct = middle.get(PLAIN), middle.get(DIRECT)
    return [
        Row(
            system=system,
            **asdict(run),
            added_p50_us=(run.p50_us - direct.p50_us) / 2 if direct and system != DIRECT else None,
            of_plain=run.gbit_per_s / plain.gbit_per_s if plain and system != PLAIN else None,
            runs=runs[system],
        )
        for system, run in middle.items()
    ]


def _median_of(runs: list[Run]) -> Run:
    names = asdict(runs[0])
    return Run(**{name: statistics.median(getattr(run, name) for run in runs) for name in names})


def _run(network: WanNetwork, system: str, plan: Plan) -> Run:
    device = DIRECT_DEVICE if system == DIRECT else LAN_DEVICE
    ends = ("--layer", plan.layer, "--uri", f"fjm2://{_GROUP}:{_PORT}?interface={device}&{plan.settings}", "--json")
    with _gateways(network, system) as gateways:
        before_s = sum(map(_cpu_s, gateways))
        size = ("--size", str(plan.size))
        sent = _pair(
            network,
            ("sub", *ends, *size, "--no-verify", "--timeout", str(plan.seconds + _FINISH_S)),
            ("pub", *ends, *size, "--seconds", str(plan.seconds), "--timeout", str(plan.seconds + _FINISH_S)),
        )
        used_s = sum(map(_cpu_s, gateways)) - before_s
        trips = _pair(network, ("echo", *ends), ("ping", *ends, "--count", str(plan.round_trips), "--warm-up", "200"))
    return Run(
        gbit_per_s=sent["gbit_per_s"],
        gateway_cpu_s_per_gb=used_s / (sent["bytes"] * 1e-9),
        p50_us=trips["p50_us"],
        p99_us=trips["p99_us"],
    )


def _pair(network: WanNetwork, listening: tuple[str, ...], speaking: tuple[str, ...]) -> dict[str, Any]:
    """What the speaking one says in the end. Both have to end well."""
    with _started(network.subscriber, "fjm2bench.cli", *listening) as listener:
        _line(listener)
        with _started(network.publisher, "fjm2bench.cli", *speaking) as speaker:
            result = _line(speaker)
            for name, process in ((listening[0], listener), (speaking[0], speaker)):
                try:
                    code = process.wait(_START_S)
                except subprocess.TimeoutExpired:
                    raise WanError(f"{name} does not end") from None
                if code != 0:
                    raise WanError(f"{name} ended with {code}: {_said(process)}")
    return result


@contextlib.contextmanager
def _gateways(network: WanNetwork, system: str) -> Iterator[list[subprocess.Popen[str]]]:
    with contextlib.ExitStack() as stack:
        if system == OURS:
            yield _start_ours(network, stack)
        elif system in _RELAYS:
            yield _start_plain(network, _RELAYS[system], stack)
        else:
            yield []


def _start_plain(network: WanNetwork, way: str, stack: contextlib.ExitStack) -> list[subprocess.Popen[str]]:
    started = []
    for host, addresses in (
        (network.left, (LEFT_LAN, LEFT_WAN, RIGHT_WAN)),
        (network.right, (RIGHT_LAN, RIGHT_WAN, LEFT_WAN)),
    ):
        process = stack.enter_context(
            _started(host, "fjm2bench.peers.plain_relay", way, _GROUP, str(_PORT), *addresses)
        )
        _line(process)
        started.append(process)
    return started


def _start_ours(network: WanNetwork, stack: contextlib.ExitStack) -> list[subprocess.Popen[str]]:
    """Gateways with keys of their own, that have each other in their configurations."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fjm2-bench-")))
    left, right = folder / "left", folder / "right"
    keys = {side: _keygen(side) for side in (left, right)}
    _configure(left, keys[right], RIGHT_WAN)
    _configure(right, keys[left], LEFT_WAN)
    sides = ((network.left, left), (network.right, right))
    started = [stack.enter_context(_started(host, "fjm2d", "run", "--config", f"{side}.toml")) for host, side in sides]
    for process in started:
        _until_said(process, "peer_up")
    return started


def _keygen(file: Path) -> str:
    """The public key of a new pair."""
    done = subprocess.run((*_PYTHON, "fjm2d", "keygen", str(file)), capture_output=True, text=True, timeout=_START_S)
    if done.returncode != 0:
        raise WanError(f"fjm2d keygen: {done.stderr.strip()}")
    return done.stdout.strip()


def _configure(side: Path, peer_key: str, peer_address: str) -> None:
    side.with_suffix(".toml").write_text(f"""\
name = "{side.name}"
key_file = "{side}"
state_directory = ""
wan.rate = "none"
lan.interface = "{LAN_DEVICE}"
[[group]]
address = "{_GROUP}:{_PORT}"
carry = "always"
[[peer]]
name = "peer"
public_key = "{peer_key}"
endpoints = ["{peer_address}:{_WAN_PORT}"]
""")


def _until_said(process: subprocess.Popen[str], word: str) -> None:
    """Read its log until this comes."""
    assert process.stderr is not None
    for line in process.stderr:
        if word in line:
            return
    raise WanError(f"{' '.join(map(str, process.args))}: ended without {word}")  # type: ignore[arg-type]


@contextlib.contextmanager
def _started(host: netns.Host, module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python program in a namespace. It ends with the block at the latest."""
    with subprocess.Popen(
        host.inside(*_PYTHON, module, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for us; they are told when their time has come
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The next line that a program says."""
    assert process.stdout is not None
    try:
        found: dict[str, Any] = json.loads(process.stdout.readline())
    except ValueError:
        raise WanError(f"{' '.join(map(str, process.args))}: {_said(process)}") from None  # type: ignore[arg-type]
    return found


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    process.terminate()
    return process.stderr.read().strip()[-1000:] or "nothing said"


def _cpu_s(process: subprocess.Popen[str]) -> float:
    """CPU time that a program has used so far."""
    values = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / _TICKS_PER_S


def _print(rows: list[Row], plan: Plan) -> None:
    table = Table(title=f"From LAN to LAN, messages of {plan.size} B")
    for head in ("through", "Gbit/s", "x plain", "gateways' CPU s/GB", "round trip p50 us", "p99 us", "added p50 us"):
        table.add_column(head, justify="left" if head == "through" else "right")
    for row in rows:
        table.add_row(
            row.system,
            f"{row.gbit_per_s:.3f}",
            "" if row.of_plain is None else f"{row.of_plain:.1f}",
            f"{row.gateway_cpu_s_per_gb:.2f}",
            f"{row.p50_us:.0f}",
            f"{row.p99_us:.0f}",
            "" if row.added_p50_us is None else f"{row.added_p50_us:.0f}",
        )
    Console().print(table)
