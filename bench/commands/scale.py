"""How a group scales with its receivers: NACKs, suppression, repairs and time, in a simulated network.

One sender and its receivers meet at a router. What is lost before the router is lost for all (`shared`), what is lost
behind it for one. The engine is the real one; time is virtual.
"""

import gc
import importlib
import importlib.util
import json
import math
import os
import resource
import statistics
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from fjm2.norm.core.config import Fec, SenderConfig
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import MessageType
from fjm2.norm.sim import Network, Node

RECEIVERS = (10, 100, 1000, 10_000)
DELAY_S = 0.005
"""Of each link: a round trip takes four of them, and a NACK reaches the others after two, half of it."""
BLOCK_SEGMENTS = 64
PARITY_SEGMENTS = 16
_MONTE_CARLO_RUNS = 20
_DEADLINE_S = 120.0
_TAIL = bytes(64)


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """One group size."""

    receivers: int
    completed: int
    """Receivers that got all of it, unaltered."""
    nacks_sent: int
    """Messages: where one is too short for all that is missing, it takes several."""
    nacks_suppressed: int
    suppression: float
    """Of all NACKs that were about to be sent, the fraction that was not."""
    cycles: int
    """Repair cycles: times at which receivers began to ask."""
    nacks_first_cycle: int
    expected_first_cycle: float
    """By the analysis: see `expected_nacks` and `expected_mixed_nacks`."""
    expected_by_rfc: float
    """RFC 5401's rule of thumb, which is for receivers that all miss the same."""
    repair_segments: int
    """Source and parity segments sent because somebody asked."""
    completion_median_s: float
    completion_p99_s: float
    completion_max_s: float
    bytes_per_receiver: int | None
    """Resident memory of one more receiver; None where it can't be had."""
    run_s: float
    """How long the simulation took."""


def rfc_nacks(group_size: int, backoff_factor: float) -> float:
    """RFC 5401's estimate of NACKs per cycle, for a back-off of up to `backoff_factor` true round-trip times.

    It is exp(1.2 L / (2 T / GRTT)) with L = ln(group size) + 1 and T, the longest back-off.
    """
    return math.exp(1.2 * (math.log(group_size) + 1) / (2 * backoff_factor))


def expected_nacks(losers: int, group_size: int, backoff_s: float, heard_after_s: float) -> float:
    """NACKs to be expected where all losers miss the same from the same moment on.

    One speaks unless another has spoken so long before that it was heard: the integral of n f(t) (1 - F(t - d))^(n - 1)
    over the truncated exponential distribution F of the back-off.
    """
    decay = math.log(group_size) + 1
    times = np.linspace(0.0, backoff_s, 200_001)
    density = decay / backoff_s * np.exp(decay * times / backoff_s) / math.expm1(decay)
    heard = np.expm1(decay * np.clip(times - heard_after_s, 0.0, None) / backoff_s) / math.expm1(decay)
    return float(np.trapezoid(losers * density * (1 - heard) ** (losers - 1), times))


def expected_mixed_nacks(
    needs: NDArray[np.int64], group_size: int, backoff_s: float, heard_after_s: float, random: Random
) -> float:
    """The same where each loser misses something else, by trying it out.

    `needs` are parity symbols by receiver and block. A NACK is not sent if others have asked for as many of each block.
    """
    decay = math.log(group_size) + 1
    needs = needs[needs.any(axis=1)]
    draws = np.random.default_rng(random.getrandbits(32))
    sent = 0
    for _ in range(_MONTE_CARLO_RUNS):
        # The back-off's distribution, inverted.
        times = backoff_s / decay * np.log1p(draws.random(len(needs)) * math.expm1(decay))
        order = np.argsort(times)
        heard = np.zeros(needs.shape[1], np.int64)
        under_way: list[tuple[float, NDArray[np.int64]]] = []
        for at, need in zip(times[order].tolist(), needs[order], strict=True):
            while under_way and under_way[0][0] <= at:
                np.maximum(heard, under_way.pop(0)[1], out=heard)
            if (need > heard).any():
                sent += 1
                under_way.append((at + heard_after_s, need))
    return sent / _MONTE_CARLO_RUNS


def count_cycles(times: Sequence[float], span_s: float) -> list[int]:
    """NACKs of each cycle: one begins with the first NACK after the last one's span."""
    counts: list[int] = []
    start = -math.inf
    for at in times:
        if at > start + span_s:
            start = at
            counts.append(0)
        counts[-1] += 1
    return counts


def star(
    receivers: int,
    *,
    loss: float,
    shared: bool,
    config: SenderConfig,
    seed: int = 1,
    delay_s: float = DELAY_S,
) -> tuple[Network, Node, list[Node]]:
    """A sender and its receivers around a router, with losses before it or behind it."""
    net = Network(seed, delay_s=delay_s)
    pub, router = net.sender(config), net.router()
    trunk = net.link(pub, router)
    if shared:
        trunk.lose(loss)
    nodes = [net.receiver() for _ in range(receivers)]
    for node in nodes:
        node.log.keep = False
        branch = net.link(router, node)
        if not shared:
            branch.lose(loss)
    return net, pub, nodes


def sender_config(receivers: int, fec: str = "rs", segment_bytes: int = 64) -> SenderConfig:
    """Settings that fit the star: its round-trip time and its size are known."""
    is_rs = fec == "rs"
    return SenderConfig(
        segment_bytes=segment_bytes,
        block_segments=BLOCK_SEGMENTS,
        fec=Fec(fec),
        parity_segments=PARITY_SEGMENTS if is_rs else 0,
        grtt_s=4 * DELAY_S,
        group_size=receivers,
    )


def run(
    receivers: Sequence[int] = RECEIVERS,
    *,
    loss: float = 0.01,
    shared: bool = False,
    fec: str = "rs",
    segments: int = 320,
    segment_bytes: int = 64,
    seed: int = 1,
    on_row: Callable[[ScaleRow], None] | None = None,
) -> list[ScaleRow]:
    """Send an object of so many segments to groups of several sizes."""
    rows = []
    for count in receivers:
        row = _run_one(count, loss, shared, sender_config(count, fec, segment_bytes), segments, seed)
        rows.append(row)
        if on_row is not None:
            on_row(row)
    return rows


def _run_one(receivers: int, loss: float, shared: bool, config: SenderConfig, segments: int, seed: int) -> ScaleRow:
    gc.collect()
    memory = _resident_bytes()
    started = time.perf_counter()
    net, pub, nodes = star(receivers, loss=loss, shared=shared, config=config, seed=seed)
    asked_at = tap_nacks(net)
    content = Random(seed).randbytes(segments * config.segment_bytes)
    pub.send(content)
    # A second object tells at once that the first is whole. Else its last block would be asked for later, after the
    # FLUSH, in a second wave of the same cycle.
    pub.send(_TAIL)
    waiting = list(nodes)

    def is_done() -> bool:
        while waiting and waiting[-1].log.objects_completed == 2:
            waiting.pop()
        return not waiting

    net.run_until(is_done, _DEADLINE_S)
    run_s = time.perf_counter() - started
    gc.collect()
    grown = _resident_bytes() - memory if memory else None
    whole = {zlib.crc32(content + _TAIL), zlib.crc32(_TAIL + content)}
    done = [node for node in nodes if node.log.digest in whole]
    times = sorted(node.log.completed_at for node in done) or [math.nan]
    sent = sum(node.stats.nacks_sent for node in nodes)
    suppressed = sum(node.stats.nacks_suppressed for node in nodes)
    cycles = count_cycles(asked_at, (config.backoff_factor + 1) * pub.engine.grtt_s)
    backoff_s = config.backoff_factor * pub.engine.grtt_s
    return ScaleRow(
        receivers=receivers,
        completed=len(done),
        nacks_sent=sent,
        nacks_suppressed=suppressed,
        suppression=suppressed / (sent + suppressed) if sent else 0.0,
        cycles=len(cycles),
        nacks_first_cycle=cycles[0] if cycles else 0,
        expected_first_cycle=_expected(receivers, loss, shared, config, segments, backoff_s, seed),
        expected_by_rfc=rfc_nacks(receivers, backoff_s / (4 * DELAY_S)),
        repair_segments=pub.stats.repair_segments_sent + pub.stats.parity_segments_sent,
        completion_median_s=statistics.median(times),
        completion_p99_s=times[min(len(times) - 1, int(len(times) * 0.99))],
        completion_max_s=times[-1],
        bytes_per_receiver=None if grown is None else max(0, grown) // receivers,
        run_s=run_s,
    )


def tap_nacks(net: Network) -> list[float]:
    """A list that fills with the times at which somebody NACKs; one NACK may be several messages."""
    times: list[float] = []
    last: tuple[Node, float] | None = None

    def note(node: Node, train: Train) -> None:
        nonlocal last
        if train.data[0] & 0x0F == MessageType.NACK and last != (node, net.now):
            last = node, net.now
            times.append(net.now)

    net.on_send = note
    return times


def _expected(
    receivers: int, loss: float, shared: bool, config: SenderConfig, segments: int, backoff_s: float, seed: int
) -> float:
    if shared:
        return expected_nacks(receivers, config.group_size, backoff_s, 2 * DELAY_S)
    draws = np.random.default_rng(seed)
    if config.parity_segments:
        needs = draws.binomial(config.block_segments, loss, (receivers, -(-segments // config.block_segments)))
    else:
        needs = draws.binomial(1, loss, (receivers, segments))
    return expected_mixed_nacks(needs, config.group_size, backoff_s, 2 * DELAY_S, Random(seed))


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()


def print_table(rows: Sequence[ScaleRow], console: Console) -> None:
    """The rows for people."""
    asked = Table(title="What was asked")
    for title in ("receivers", "NACKs", "suppressed", "cycles", "first cycle", "expected", "RFC 5401", "repairs"):
        asked.add_column(title, justify="right")
    done = Table(title="How it went")
    for title in ("receivers", "complete", "median s", "p99 s", "max s", "kB each", "run s"):
        done.add_column(title, justify="right")
    for row in rows:
        asked.add_row(
            f"{row.receivers:,}",
            f"{row.nacks_sent:,}",
            f"{row.suppression:.1%}",
            f"{row.cycles}",
            f"{row.nacks_first_cycle}",
            f"{row.expected_first_cycle:.1f}",
            f"{row.expected_by_rfc:.1f}",
            f"{row.repair_segments:,}",
        )
        done.add_row(
            f"{row.receivers:,}",
            f"{row.completed:,}",
            f"{row.completion_median_s:.3f}",
            f"{row.completion_p99_s:.3f}",
            f"{row.completion_max_s:.3f}",
            "-" if row.bytes_per_receiver is None else f"{row.bytes_per_receiver / 1000:.1f}",
            f"{row.run_s:.1f}",
        )
    console.print(asked)
    console.print(done)


def plot(rows: Sequence[ScaleRow], path: str, title: str) -> None:
    """Draw NACKs and suppression over the number of receivers; an ImportError without matplotlib."""
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
@click.option("--loss", default=0.01, show_default=True, type=click.FloatRange(0, 0.9), help="Fraction of segments.")
@click.option(
    "--shared/--independent", default=False, show_default=True, help="Lost for all at once, or each by itself."
)
@click.option("--fec", default="rs", show_default=True, type=click.Choice([fec.value for fec in Fec]), help="The code.")
@click.option("--segments", default=320, show_default=True, type=click.IntRange(min=1), help="Length of the object.")
@click.option("--segment-bytes", default=64, show_default=True, type=click.IntRange(64, 1400), help="Payload of each.")
@click.option("--seed", default=1, show_default=True, help="All that is random follows from it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option(
    "--plot", "plot_path", metavar="FILE.png", type=click.Path(dir_okay=False, writable=True), help="Draw it."
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
    """NACKs, suppression and repair time against the number of receivers, in a simulated network.

    \b
    Example: fjm2-bench scale --receivers 10,100,1000 --shared --plot scale.png
    """
    if plot_path is not None and importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError("--plot needs matplotlib: pip install 'fjm2[bench]'")
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
