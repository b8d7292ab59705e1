"""Tests of hundreds of receivers.

All of them get everything, few of them send NACKs, and the sender keeps nothing for each of them.
"""

import gc
import json
import types
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from statistics import mean

import numpy as np
import pytest
from click.testing import CliRunner
from fjm2bench.cli import main
from fjm2bench.scaling.analysis import expected_mixed_nacks, expected_nacks, rfc_nacks
from fjm2bench.scaling.simulation import BLOCK_SEGMENTS, DELAY_S, count_cycles, run, sender_config, star, tap_nacks
from representatives import representatives

from fjm2.norm.core import engine
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import Ack, CongestionControl, decode
from fjm2.norm.sim import Node

SEGMENTS = 320
CYCLES = 12
GROUPS = pytest.mark.parametrize("receivers", [200, pytest.param(1000, marks=pytest.mark.nightly)])
"""Numbers of receivers in a group. Each receiver is simulated as a separate node."""


@pytest.fixture(autouse=True)
def all_in_one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Avoid two costs of running a thousand nodes in one process.

    Every node decodes the same bytes, so decoded messages are cached. The garbage collector would visit all nodes again
    and again, so it is switched off.
    """
    monkeypatch.setattr(engine, "decode", lru_cache(64)(engine.decode))
    gc.disable()
    yield
    gc.enable()
    gc.collect()


@GROUPS
@pytest.mark.parametrize("shared", representatives([False, True], False), ids=["independent", "shared"])
def test_all_receivers_get_everything_and_few_ask(shared: bool, receivers: int) -> None:
    seeds = range(1, 7) if shared else range(1, 3)
    rows = [run([receivers], loss=0.01, shared=shared, segments=SEGMENTS, seed=seed)[0] for seed in seeds]
    for row in rows:
        print(row)
        assert row.completed == receivers
    measured = mean(row.nacks_first_cycle for row in rows)  # in later cycles fewer receivers lack anything
    expected = mean(row.expected_first_cycle for row in rows)
    print(f"NACKs of a cycle: {measured=:.1f} {expected=:.1f} by_rfc={rows[0].expected_by_rfc:.1f}")
    assert measured <= 2 * expected


@GROUPS
def test_a_cycle_has_as_many_nacks_as_the_analysis_says(receivers: int) -> None:
    """All receivers lose the same segment, many times over."""
    config = sender_config(receivers)
    net, pub, nodes = star(receivers, loss=0.0, shared=True, config=config)
    asked_at = tap_nacks(net)
    # One segment of every block is lost. The parity that repairs it is DATA as well, and counts.
    pub.links[0].lose(segments=range(10, CYCLES * (BLOCK_SEGMENTS + 1), BLOCK_SEGMENTS + 1))
    for number in range(CYCLES):
        pub.write(bytes([number]) * config.segment_bytes * BLOCK_SEGMENTS)
        net.run(until=net.now + 0.3)
    assert all(node.log.stream_bytes == CYCLES * BLOCK_SEGMENTS * config.segment_bytes for node in nodes)
    assert len({node.log.digest for node in nodes}) == 1
    backoff_s = config.backoff_factor * pub.engine.grtt_s
    counts = count_cycles(asked_at, backoff_s + 0.05)
    expected = expected_nacks(receivers, receivers, backoff_s, 2 * DELAY_S)
    by_rfc = rfc_nacks(receivers, backoff_s / (4 * DELAY_S))
    print(f"NACKs per cycle: {mean(counts):.2f}, expected {expected:.2f}, by RFC 5401 {by_rfc:.2f}; {counts}")
    assert len(counts) == CYCLES
    assert mean(counts) <= 2 * expected
    assert mean(counts) <= 2 * by_rfc
    assert sum(node.stats.nacks_suppressed for node in nodes) >= 0.99 * receivers * len(counts) - sum(counts)


def test_a_large_group_introduces_itself_little_by_little() -> None:
    """All receivers answer the sender's probes, so that it can wait for them, but not all at once."""
    net, pub, _ = star(300, loss=0.0, shared=False, config=sender_config(300))
    answers: list[int] = []
    heard_of: set[int] = set()

    def look(_: Node, train: Train) -> None:
        message = decode(bytes(train.data[: train.segment_bytes]))
        if isinstance(message, CongestionControl):
            answers.append(0)
        elif isinstance(message, Ack):
            answers[-1] += 1
            heard_of.add(message.source_id)

    net.on_send = look
    pub.send(bytes(64 * 64))
    net.run(until=60.0)
    print(answers)
    assert max(answers) <= 200
    assert max(answers[-5:]) <= 10  # a receiver the sender knows suppresses its answer
    assert net.run_until(lambda: len(heard_of) == 300, deadline=600.0)


def test_both_analyses_agree_if_all_receivers_miss_the_same_segment() -> None:
    needs = np.ones((200, 1), np.int64)
    by_integral = expected_nacks(200, 1000, 0.08, 0.01)
    by_trial = mean(expected_mixed_nacks(needs, 1000, 0.08, 0.01, Random(seed)) for seed in range(20))
    assert by_trial == pytest.approx(by_integral, rel=0.2)
    assert expected_nacks(1000, 1000, 0.08, 0.01) == pytest.approx(rfc_nacks(1000, 4), rel=0.25)


@GROUPS
def test_the_sender_does_not_grow_with_its_receivers(receivers: int) -> None:
    sizes = []
    for count in (10, receivers):
        config = sender_config(100)
        net, pub, nodes = star(count, loss=0.01, shared=False, config=config)
        pub.send(bytes(SEGMENTS * config.segment_bytes))
        net.run(until=10.0)
        assert all(node.log.objects_completed == 1 for node in nodes)
        sizes.append(_sizes_of_containers(pub.engine))
    print(sizes)
    assert sum(sizes[1].values()) <= sum(sizes[0].values()) + 100
    assert max(sizes[1].values()) <= max(sizes[0].values()) + 100


def _sizes_of_containers(root: object) -> dict[str, int]:
    """Return the number of entries in all containers reachable from `root`, by kind of container."""
    sizes: dict[str, int] = {}
    code = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)
    seen, todo = {id(root)}, [root]
    while todo:
        item = todo.pop()
        if isinstance(item, dict | list | set | tuple) or hasattr(item, "maxlen"):
            kind = type(item).__name__
            sizes[kind] = sizes.get(kind, 0) + len(item)
        for other in gc.get_referents(item):
            if id(other) not in seen and not isinstance(other, code):
                seen.add(id(other))
                todo.append(other)
    return sizes


def test_command_prints_and_draws(tmp_path: Path) -> None:
    plot = tmp_path / "scale.png"
    result = CliRunner().invoke(
        main, ["scale", "--receivers", "5,20", "--segments", "100", "--json", "--plot", str(plot)]
    )
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert [row["receivers"] for row in printed["rows"]] == [5, 20]
    assert plot.read_bytes().startswith(b"\x89PNG")
