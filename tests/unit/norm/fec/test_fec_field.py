"""Test of the tables of finite fields against the independent arithmetic of reedsolo."""

import numpy as np
import pytest
import reedsolo

from fjm2.norm.core.fec.field import POLYNOMIALS, Field, field_of


def product(field: Field, left: int, right: int) -> int:
    if left == 0 or right == 0:
        return 0
    return int(field.exp[(int(field.log[left]) + int(field.log[right])) % field.order])


def test_every_product_of_octets_is_reedsolos() -> None:
    reedsolo.init_tables()
    field = field_of(8)
    for left in range(256):
        for right in range(256):
            assert product(field, left, right) == reedsolo.gf_mul(left, right)


def test_products_of_16_bits_are_reedsolos() -> None:
    field = field_of(16)
    pairs = np.random.default_rng(1).integers(0, 1 << 16, (2000, 2)).tolist()
    for left, right in [*pairs, [0, 5], [5, 0], [0xFFFF, 0xFFFF], [1, 0x8000], [2, 0x8000]]:
        # Works without tables, so the module's tables are not replaced.
        expected = reedsolo.gf_mult_noLUT(left, right, POLYNOMIALS[16], 1 << 16)
        assert product(field, left, right) == expected


@pytest.mark.parametrize("bits", [8, 16])
def test_powers_are_all_elements_but_zero_and_repeat(bits: int) -> None:
    field = field_of(bits)
    period = field.exp[: field.order]
    assert period[0] == 1
    assert np.array_equal(np.sort(period), np.arange(1, 1 << bits))
    assert np.array_equal(field.exp, np.tile(period, 3))
    assert np.array_equal(field.power(np.array([-1])), period[-1:])


@pytest.mark.parametrize("bits", [8, 16])
def test_logarithms_undo_powers(bits: int) -> None:
    field = field_of(bits)
    assert field.log[0] == 0
    assert np.array_equal(field.log[field.exp[: field.order]], np.arange(field.order))


def test_tables_are_shared_and_cannot_be_changed() -> None:
    field = field_of(8)
    assert field_of(8) is field
    with pytest.raises(ValueError, match="read-only"):
        field.exp[0] = 7
