"""Tests of the rules of a cell: every case ends as the table says, and the decision record says the same."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import decisions, handing, ledgers, membership, transactions
from .__main__ import main
from .cases import CASES, GROWTH, LOSS, Case
from .decisions import Decisions
from .explorer import Model, State, Step, explore, replay
from .handing import Handing
from .ledgers import Ledgers
from .membership import Membership
from .transactions import Transactions

RECORD = Path(__file__).parents[2] / "docs/decisions/0016-cell-rules.md"
QUICK = [name for name, case in CASES.items() if case.is_quick]
LONG = [name for name, case in CASES.items() if not case.is_quick]


class WithoutSymmetry:
    """A model in which all keepers are told apart."""

    def __init__(self, model: Model) -> None:
        self.rule = model.rule
        self._model = model

    def start(self) -> State:
        return self._model.start()

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        return self._model.steps(state)

    def violation(self, state: State) -> str | None:
        return self._model.violation(state)

    def canonical(self, state: State) -> State:
        return state


class Counter:
    """A model that counts to a bad number."""

    rule = "none"

    def __init__(self, bad: int) -> None:
        self._bad = bad

    def start(self) -> State:
        return ((0,),)

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        number = state[0][0]
        yield ("add", 1), ((number + 1,),)
        yield ("add", 3), ((number + 3,),)

    def violation(self, state: State) -> str | None:
        return "bad" if state[0][0] == self._bad else None

    def canonical(self, state: State) -> State:
        return state


def check(case: Case) -> None:
    found = explore(case.model)
    assert (found.violated, found.steps, found.states) == (case.violated, case.steps, case.states)
    assert len(list(replay(case.model, found.path))) == case.steps


@pytest.mark.parametrize("name", QUICK)
def test_quick_case_ends_as_the_table_says(name: str) -> None:
    check(CASES[name])


@pytest.mark.nightly
@pytest.mark.timeout(900)  # Minutes of processor time; other tests run beside them.
@pytest.mark.parametrize("name", LONG)
def test_long_case_ends_as_the_table_says(name: str) -> None:
    check(CASES[name])


def test_search_finds_the_shortest_way() -> None:
    found = explore(Counter(7))
    assert (found.violated, found.steps) == ("bad", 3)
    assert [step for step, _ in replay(Counter(7), found.path)] == [("add", 1), ("add", 3), ("add", 3)]


def test_search_is_bounded() -> None:
    assert explore(Counter(-1), states_max=100)[:2] == ("limit", 0)


@pytest.mark.parametrize(
    "model",
    [
        Decisions("ack-before-fsync", 2, 1, False),
        Membership("none", LOSS._replace(epochs=1)),
        Membership("no-backfill", GROWTH),
        Handing("none", 1),
        Ledgers("none", 1),
        Transactions("none", 1),
        Transactions("unknown-unrecorded", 2),
    ],
)
def test_symmetry_changes_no_outcome(model: Model) -> None:
    with_symmetry, without = explore(model), explore(WithoutSymmetry(model))
    assert with_symmetry[:2] == without[:2]
    assert with_symmetry.states <= without.states


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (Decisions, decisions.RULES),
        (Membership, membership.RULES),
        (Handing, handing.RULES),
        (Ledgers, ledgers.RULES),
        (Transactions, transactions.RULES),
    ],
)
def test_every_rule_has_a_case(kind: type, rules: dict[str, str]) -> None:
    assert {case.model.rule for case in CASES.values() if isinstance(case.model, kind)} == set(rules)


def test_all_rules_together_hold() -> None:
    kept = [case for case in CASES.values() if case.model.rule == "none"]
    assert {type(case.model) for case in kept} == {Decisions, Membership, Handing, Ledgers, Transactions}
    assert [case.name for case in kept if case.violated] == []


def test_decision_record_names_every_counterexample() -> None:
    rows = re.findall(r"^\| (\d+) \| `([a-z-]+)` \| (\S+) \| (\d*) ?\|$", RECORD.read_text(), re.MULTILINE)
    recorded = {name: (violated, steps) for _, name, violated, steps in rows}
    left_out = [case for case in CASES.values() if case.model.rule != "none"]
    assert recorded == {case.name: (case.violated or "holds", str(case.steps or "")) for case in left_out}


def test_decision_record_gives_the_lengths_in_its_rules() -> None:
    text = RECORD.read_text()
    rows = re.findall(r"^\| (\d+) \| `[a-z-]+` \| (\S+) \| (\d+) \|$", text, re.MULTILINE)
    rules = re.findall(r"^(\d+)\. ((?:.+\n)+?)(?=\d+\. |\n)", text, re.MULTILINE)
    stated = {(number, *pair) for number, rule in rules for pair in re.findall(r"\b([A-Z]\d?), (\d+)", rule)}
    assert stated <= set(rows)
    assert {number for number, *_ in rows} == {number for number, *_ in stated}


def test_command_prints_the_counterexample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--case", "growth-no-backfill", "--trace"]) == 0
    printed = capsys.readouterr().out
    assert "S1 breaks after 14 steps" in printed
    assert re.search(r"^ +14 commit", printed, re.MULTILINE)
