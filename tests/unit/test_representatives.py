"""Tests of the choice between `make test` and `make nightly`."""

import pytest
from representatives import representatives


def nightly(cases: list[object], *chosen: object) -> list[tuple[tuple[object, ...], bool]]:
    return [(case.values, bool(case.marks)) for case in representatives(cases, *chosen)]


def test_cases_that_are_not_chosen_are_nightly() -> None:
    assert nightly([1, 2, 3], 2) == [((1,), True), ((2,), False), ((3,), True)]
    assert nightly([(1, "a"), (2, "b")], (2, "b")) == [((1, "a"), True), ((2, "b"), False)]
    assert nightly(["one", "two"], "one", "two") == [(("one",), False), (("two",), False)]


def test_the_mark_is_that_of_the_nightly_tests() -> None:
    ((_, (mark,), _), _) = representatives([1, 2], 2)
    assert mark == pytest.mark.nightly


def test_a_test_without_a_case_by_day_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"no case is chosen: expected one of \[1, 2\]"):
        representatives([1, 2])
    with pytest.raises(ValueError, match=r"^\['fjm3'\]: expected some of \['fjm2', 'nats'\]$"):
        representatives(["fjm2", "nats"], "fjm2", "fjm3")
