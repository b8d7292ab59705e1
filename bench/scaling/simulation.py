"""Simulation of a group: NACKs, suppression, repairs and completion time by the number of receivers.

One sender and its receivers meet at a router. Losses before the router (`shared`) are losses of all receivers; losses
behind it are losses of one receiver. The engine is FJM2's own, and time is virtual.
"""

import gc
import math
import resource
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from fjm2.norm.core.config import Fec, SenderConfig
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import MessageType
from fjm2.norm.sim import Network, Node

from .analysis import expected_mixed_nacks, expected_nacks, rfc_nacks

RECEIVERS = (10, 100, 1000, 10_000)
DELAY_S = 0.005
"""Delay of each link. A round trip takes four of them. A NACK reaches the other receivers after two."""
BLOCK_SEGMENTS = 64
PARITY_SEGMENTS = 16
"""Parity segments of a block: a quarter of it, so that one repair cycle is enough at the losses that are simulated."""
_DEADLINE_S = 120.0
"""Virtual seconds after which a simulation ends in any case. Large groups complete within a few seconds."""
_TAIL = bytes(64)
"""Content of the second object."""


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """The results for one group size."""

    receivers: int
    completed: int
    """Receivers that received everything unaltered."""
    nacks_sent: int
    """NACK messages. A long NACK takes several messages."""
    nacks_suppressed: int
    suppression: float
    """Part of the NACKs due that were suppressed."""
    cycles: int
    """Repair cycles: times at which receivers began to send NACKs."""
    nacks_first_cycle: int
    expected_first_cycle: float
    """Expected by analysis: see `expected_nacks` and `expected_mixed_nacks`."""
    expected_by_rfc: float
    """Expected by RFC 5401's rule of thumb, which is for receivers that all miss the same data."""
    repair_segments: int
    """Source and parity segments sent as repairs."""
    completion_median_s: float
    completion_p99_s: float
    completion_max_s: float
    bytes_per_receiver: int | None
    """Resident memory per receiver. None if the system does not report it."""
    run_s: float
    """Real time of the simulation."""


def count_cycles(times: Sequence[float], span_s: float) -> list[int]:
    """Return the number of NACKs in each cycle.

    A cycle takes `span_s`. It begins with the first NACK after the end of the previous cycle.
    """
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
    """Return a network of a sender and its receivers around a router, with losses before or behind it."""
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
    """Return settings that match the simulated network: its round-trip time and group size are known."""
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
    """Send an object of `segments` segments to groups of several sizes. Return a row for each size."""
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
    # The second object shows at once that the first is complete. Otherwise receivers would NACK the last block later,
    # after the FLUSH, in a second wave of the same cycle.
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
    """Return a list that is filled with the times at which receivers send NACKs. Messages of one NACK count once."""
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
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * resource.getpagesize()
