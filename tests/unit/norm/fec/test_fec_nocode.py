"""Tests of the code without parity, and of the arguments that all codes refuse."""

import numpy as np
import pytest

from fjm2.errors import ConfigError
from fjm2.norm.core.fec import Code, NoCode, ReedSolomon

BOTH = pytest.mark.parametrize("code", [NoCode(4), ReedSolomon(4, 0)], ids=["none", "rs without parity"])


@BOTH
def test_there_is_no_parity(code: Code) -> None:
    assert code.parity_count == 0
    assert code.encode(np.ones((2, 3, 5), np.uint8)).shape == (2, 0, 5)
    assert code.encode(np.ones((2, 3, 5), np.uint8), range(0)).shape == (2, 0, 5)


@BOTH
def test_a_block_is_whole_when_nothing_is_absent(code: Code) -> None:
    symbols = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)
    before = symbols.copy()
    present = np.array([[True, True, True], [True, False, True]])
    assert code.decode(symbols, present).tolist() == [True, False]
    assert np.array_equal(symbols, before)


@BOTH
def test_rows_that_do_not_exist_are_refused(code: Code) -> None:
    with pytest.raises(ValueError, match=r"rows=range\(0, 1\)"):
        code.encode(np.ones((1, 1, 1), np.uint8), range(1))


def test_block_length_below_1_is_refused() -> None:
    with pytest.raises(ConfigError, match="source_count=0: expected 1 or more"):
        NoCode(0)


CODES = pytest.mark.parametrize("code", [NoCode(4), ReedSolomon(4, 2)], ids=["none", "rs"])


@CODES
@pytest.mark.parametrize("shape", [(4, 8), (1, 0, 8), (1, 5, 8)], ids=str)
def test_source_of_another_shape_is_refused(code: Code, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"source of .* expected"):
        code.encode(np.zeros(shape, np.uint8))


@CODES
def test_source_of_other_numbers_is_refused(code: Code) -> None:
    with pytest.raises(ValueError, match="int16"):
        code.encode(np.zeros((1, 2, 8), np.int16))


@CODES
@pytest.mark.parametrize(("symbols", "present"), [((5, 8), (5,)), ((1, 7, 8), (1, 7)), ((2, 4, 8), (2, 5))], ids=str)
def test_received_of_another_shape_is_refused(code: Code, symbols: tuple[int, ...], present: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="expected"):
        code.decode(np.zeros(symbols, np.uint8), np.zeros(present, bool))


@CODES
def test_received_with_numbers_for_flags_is_refused(code: Code) -> None:
    with pytest.raises(ValueError, match=r"present of uint8\[1, 4\]: expected bool\[1, 4\]"):
        code.decode(np.zeros((1, 4, 8), np.uint8), np.zeros((1, 4), np.uint8))
