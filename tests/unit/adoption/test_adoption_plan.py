"""Tests of the plan of an adoption: every message has one place, whatever runs did before they were killed."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.adoption.plan import LANES, Part, Plan, read_plan, write_plan
from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger, carrier_of
from fjm2.base.ranges import RangeSet

CELL = 0xFEDC_BA98_7654_3210
LEDGERS = [Ledger(producer, epoch, lane) for producer in (1, (1 << 64) - 1) for epoch in (0, 2) for lane in (0, 1, 6)]


def parts_of(messages: set[tuple[Ledger, int]]) -> list[Part]:
    """Return messages as a store lists them."""
    found: dict[Ledger, RangeSet] = {}
    for ledger, sequence in messages:
        found.setdefault(ledger, RangeSet()).add(sequence, sequence + 1)
    return [Part(ledger, first, end) for ledger in sorted(found) for first, end in found[ledger]]


def messages_of(parts: list[Part]) -> list[tuple[Ledger, int]]:
    return [(ledger, sequence) for ledger, first, end in parts for sequence in range(first, end)]


MESSAGES = st.sets(st.tuples(st.sampled_from(LEDGERS), st.integers(1, 12)), max_size=40)
SHARES = st.lists(st.floats(0, 1), min_size=LANES, max_size=LANES)


@given(st.lists(st.tuples(MESSAGES, SHARES), min_size=1, max_size=5), MESSAGES)
def test_each_message_is_accepted_once_however_often_runs_are_killed(
    runs: list[tuple[set[tuple[Ledger, int]], list[float]]], last: set[tuple[Ledger, int]]
) -> None:
    """The store may change between runs: its keeper may have been started again."""
    plan, accepted = Plan(CELL), [0] * LANES
    sent: list[list[tuple[Ledger, int]]] = [[] for _ in range(LANES)]
    for found, shares in (*runs, (last, [1.0] * LANES)):
        plan = plan.extended(accepted, parts_of(found))
        for lane, share in enumerate(shares):
            through = accepted[lane] + round(share * (plan.count(lane) - accepted[lane]))
            sent[lane] += messages_of(list(plan.within(lane, accepted[lane], through)))
            accepted[lane] = through
    every = [message for lane in sent for message in lane]
    assert len(every) == len(set(every))
    assert set(every) >= last
    assert set(every) <= last.union(*(found for found, _ in runs))
    for lane, messages in enumerate(sent):
        assert {carrier_of(ledger.lane) for ledger, _ in messages} <= {lane}
        assert messages == messages_of(list(plan.within(lane, 0, plan.count(lane))))


@given(MESSAGES)
def test_a_run_keeps_the_order_of_each_ledger(found: set[tuple[Ledger, int]]) -> None:
    plan = Plan(CELL).extended([0] * LANES, parts_of(found))
    assert plan.total == len(found)
    for lane in range(LANES):
        messages = messages_of(plan.lanes[lane])
        assert messages == sorted(messages)


def test_a_plan_comes_back_as_it_was(tmp_path: Path) -> None:
    plan = Plan(CELL).extended([0] * LANES, [Part(LEDGERS[0], 1, 4), Part(LEDGERS[-1], (1 << 64) - 2, (1 << 64) - 1)])
    write_plan(tmp_path, plan)
    assert os.listdir(tmp_path) == ["plan"]
    again = read_plan(tmp_path, CELL)
    assert (again.cell_id, again.lanes) == (CELL, plan.lanes)


def test_a_folder_without_a_plan_has_an_empty_one(tmp_path: Path) -> None:
    assert read_plan(tmp_path / "missing", CELL).total == 0


def test_a_plan_of_another_cell_is_refused(tmp_path: Path) -> None:
    write_plan(tmp_path, Plan(CELL))
    with pytest.raises(ConfigError, match=f"belongs to the cell {CELL:016x}"):
        read_plan(tmp_path, CELL + 1)


def test_a_damaged_plan_is_refused_wherever_the_damage_is(tmp_path: Path) -> None:
    write_plan(tmp_path, Plan(CELL).extended([0] * LANES, [Part(LEDGERS[0], 1, 4)]))
    path = tmp_path / "plan"
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x81,)) + whole[at + 1 :])
        with pytest.raises(ConfigError, match="damaged"):
            read_plan(tmp_path, CELL)
    for length in range(len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ConfigError, match="damaged"):
            read_plan(tmp_path, CELL)
