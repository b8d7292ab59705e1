"""Attacks on a target, with checks of the engine's invariants after each shot. Expensive checks run less often.

`attack` runs in epochs. Each epoch has its own arena, in which four campaigns take turns. `fire` and `check` raise
Broken if an invariant does not hold.
"""

import gc
import time
from collections.abc import Callable, Iterator
from itertools import count

import numpy as np

from fjm2.norm.core.train import Train

from .arena import QUIET_S, START, Arena
from .figures import Figures
from .limits import (
    AMPLIFICATION_FREE,
    AMPLIFICATION_MOST,
    EVENTS_AT_ONCE,
    MEAN_MOST_S,
    RESIDENT_FREE,
    SLOWEST_PER_BYTE_S,
    SLOWEST_S,
    Broken,
    count_elements,
    elements_allowed,
    resident_bytes,
)
from .target import GROUP, Shot

EPOCH_CASES = 100_000
"""Number of shots in one arena."""


def attack(
    cases: int,
    seed: int,
    *,
    only: str | None = None,
    is_forging: bool | None = None,
    figures: Figures | None = None,
    progress: Callable[[int], None] | None = None,
) -> Figures:
    """Fire `cases` datagrams or trains at targets.

    Raise Broken if an invariant does not hold. Its text contains the command that reproduces the failure.
    """
    figures = figures or Figures()
    done = 0
    for epoch in count():
        if done >= cases:
            break
        number = min(EPOCH_CASES, cases - done)
        epoch_seed = seed + epoch
        is_forged = epoch % 3 == 2 if is_forging is None else is_forging
        _attack_once(number, epoch_seed, only, is_forged, figures, done, progress)
        done += number
    mean_s = sum(figures.seconds.values()) / max(1, figures.kinds.total())
    if mean_s > MEAN_MOST_S and cases >= 10_000 and only is None:
        raise Broken(f"{mean_s * 1e6:.0f} us a datagram on average; seed {seed}")
    return figures


def _attack_once(
    cases: int,
    seed: int,
    only: str | None,
    is_forging: bool,
    figures: Figures,
    before: int,
    progress: Callable[[int], None] | None,
) -> None:
    gc.collect()
    gc.freeze()  # so that collecting the objects of other tests costs no time here
    arena = Arena(seed, is_forging=is_forging, figures=figures)
    attacker = arena.attacker
    names = [only] if only else list(attacker.campaigns)
    under_way: list[tuple[str, Iterator[Shot], list[int]]] = []
    name, shot = "", None
    try:
        arena.work()
        while arena.now < START + QUIET_S:
            arena.now += 1e-3
            arena.work()
        for number in range(cases):
            while len(under_way) < 4:
                name = attacker.random.choice(names)
                length = attacker.random.choice((20, 200, 2000, 8000))
                under_way.append((name, attacker.campaigns[name](), [length]))
            at = attacker.random.randrange(4)
            name, shots, left = under_way[at]
            left[0] -= 1
            if left[0] <= 0:
                del under_way[at]
            shot = next(shots)
            fire(arena, name, shot)
            arena.now += arena.settings.step_s
            arena.work()
            if number % 4096 == 4095:
                check(arena)
                if progress is not None:
                    progress(before + number + 1)
        check(arena)
        name, shot = "the end", None
        arena.end()
    except Exception as error:
        what = str(error) if isinstance(error, Broken) else f"{type(error).__name__}: {error}"
        only_text = f" --only {only}" if only else ""
        options = f"--seed {seed} --cases {cases}{only_text}{' --forging' if is_forging else ' --honest'}"
        last = "" if shot is None else f"\nlast: {shot.data[:200].hex()} ({len(shot.data)} bytes, {shot.segment_bytes})"
        raise Broken(f"{name}: {what}\nto reproduce: python tests/hostile {options}{last}") from error
    finally:
        gc.unfreeze()


def fire(arena: Arena, kind: str, shot: Shot) -> None:
    """Fire one shot at the target, and check how the target reacts."""
    data = np.frombuffer(shot.data, np.uint8)
    train = Train(data, shot.segment_bytes or data.size, shot.address)
    target = arena.target
    arena.tally.note_in(train)
    arena.sight.now = arena.now + 1.0  # as the target's probes announce the time
    decoded = target.stats.segments_decoded
    started = time.thread_time()
    target.receive_train(train, arena.now, shot.by_unicast)
    target.poll_timeout()
    elapsed = time.thread_time() - started
    if target.poll_timeout() <= arena.now:
        target.handle_timeout(arena.now)
        target.poll_timeout()
        elapsed = time.thread_time() - started
    number = arena.settle(target)
    if number > EVENTS_AT_ONCE + 4 * train.count:
        raise Broken(f"{number} events after one train")
    slowest = SLOWEST_S + SLOWEST_PER_BYTE_S * data.size + 50e-6 * train.count
    slowest += 0.3 if target.stats.segments_decoded > decoded else 0.0
    arena.figures.note_time(kind, elapsed, slowest)
    if target.memory_bytes > arena.settings.receiver.total_bytes_max:
        raise Broken(f"{target.memory_bytes:,} bytes used, {arena.settings.receiver.total_bytes_max:,} allowed")


def check(arena: Arena) -> None:
    """Check the invariants that are too expensive to check after every shot."""
    figures, tally = arena.figures, arena.tally
    elements, array_bytes = count_elements(arena.target)
    config = arena.settings.receiver
    if array_bytes > (config.senders_max + 2) * config.total_bytes_max:
        raise Broken(f"arrays of {array_bytes:,} bytes, {config.senders_max} senders may exist")
    if (resident := resident_bytes() - tally.resident_at_start) > 1.5 * config.total_bytes_max + RESIDENT_FREE:
        raise Broken(f"{resident:,} bytes more are resident than at the start")
    figures.elements_most = max(figures.elements_most, elements)
    figures.used_most = max(figures.used_most, arena.target.memory_bytes)
    if elements > elements_allowed(arena.target.config):
        raise Broken(f"{elements:,} elements, {elements_allowed(arena.target.config):,} allowed")
    kind = "unicast" if config.unicast_nack else "group"
    group_in = tally.bytes_in.total() + 10_000
    for address, size in tally.bytes_out.items():
        if address in arena.addresses.values():
            continue
        came = group_in if address == GROUP else tally.bytes_in[address]
        if size > AMPLIFICATION_FREE:
            figures.amplification[kind] = max(figures.amplification.get(kind, 0.0), size / max(came, 1))
        if size > AMPLIFICATION_MOST * came + AMPLIFICATION_FREE:
            raise Broken(f"{size:,} bytes to {address}, {came:,} came from there")
    sent, elapsed = arena.target.stats.bytes_sent, arena.now - START
    rate = (arena.settings.sender.rate_bps or 0) / 8
    # Commands and answers are not paced. They are few, or bounded by the bytes received.
    if sent > rate * (elapsed + 0.1) + 2 * sum(tally.bytes_out.values()) + 50_000 + 30_000 * elapsed:
        raise Broken(f"{sent:,} bytes sent in {elapsed:.2f} s")
