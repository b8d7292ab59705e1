"""Tests of Reed-Solomon codes.

A plain and slow Lagrange interpolation gives the expected parity. Round trips cover every pattern of losses.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import product

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fjm2.errors import ConfigError
from fjm2.norm.core.fec import ReedSolomon

Symbols = NDArray[np.uint8]
POLYNOMIALS = {8: 0x11D, 16: 0x1100B}


def times(left: int, right: int, bits: int) -> int:
    total = 0
    while right:
        total ^= left * (right & 1)
        left <<= 1
        left ^= (left >> bits) * POLYNOMIALS[bits]
        right >>= 1
    return total


def power(base: int, exponent: int, bits: int) -> int:
    result = 1
    for _ in range(exponent):
        result = times(result, base, bits)
    return result


def inverse(element: int, bits: int) -> int:
    """Return the inverse of a field element a, which is a^(2^bits - 2), by repeated squaring."""
    result, square = 1, element
    for _ in range(bits - 1):
        square = times(square, square, bits)
        result = times(result, square, bits)
    return result


def slow_parity(code: ReedSolomon, words: list[int]) -> list[int]:
    """Return the parity words of one column, by the textbook form of Lagrange's formula."""
    bits, k = code.bits, code.source_count
    points = [0] + [power(2, i, bits) for i in range(k + code.parity_count - 1)]
    words = words + [0] * (k - len(words))
    parity = []
    for x in points[k:]:
        value = 0
        for i, word in enumerate(words):
            others = points[:i] + points[i + 1 : k]
            above = reduce(lambda a, b: times(a, b, bits), (x ^ other for other in others), 1)
            below = reduce(lambda a, b: times(a, b, bits), (points[i] ^ other for other in others), 1)
            value ^= times(word, times(above, inverse(below, bits), bits), bits)
        parity.append(value)
    return parity


@pytest.mark.parametrize(
    ("k", "of", "p", "bits"),
    [
        (1, 1, 1, 8),
        (1, 4, 3, 8),
        (2, 2, 5, 8),
        (5, 5, 3, 8),
        (11, 17, 6, 8),
        (1, 2, 2, 16),
        (6, 6, 4, 16),
        (9, 12, 5, 16),
    ],
)
def test_parity_follows_the_formula(k: int, of: int, p: int, bits: int) -> None:
    code = ReedSolomon(of, p, bits)
    words = np.random.default_rng(k).integers(0, 1 << bits, (2, k, 3)).astype(f"<u{bits // 8}")
    parity = code.encode(words.view(np.uint8)).view(words.dtype)
    for block, column in product(range(2), range(3)):
        assert parity[block, :, column].tolist() == slow_parity(code, words[block, :, column].tolist())


def codeword(code: ReedSolomon, blocks: int, k: int, width: int, seed: int = 1) -> Symbols:
    """Return random source symbols of some blocks, each followed by its parity."""
    source = np.random.default_rng(seed).integers(0, 256, (blocks, k, width), dtype=np.uint8)
    return np.concatenate([source, code.encode(source)], axis=1)


def check_decode(code: ReedSolomon, whole: Symbols, present: NDArray[np.bool_]) -> None:
    """Overwrite the absent symbols and decode. Check the result, and that nothing else has changed."""
    k = whole.shape[1] - code.parity_count
    symbols = np.where(present[..., None], whole, np.uint8(0xA5))
    damaged = symbols.copy()
    complete = code.decode(symbols, present)
    enough = present.sum(axis=1) >= k
    assert np.array_equal(complete, enough)
    assert np.array_equal(symbols[enough, :k], whole[enough, :k])
    assert np.array_equal(symbols[~enough], damaged[~enough])
    assert np.array_equal(symbols[:, k:], damaged[:, k:])


@pytest.mark.parametrize("bits", [8, 16])
def test_every_pattern_of_every_small_code(bits: int) -> None:
    longest = 9 if bits == 8 else 7
    for k, p in product(range(1, longest), range(longest)):
        if k + p > longest:
            continue
        present = np.array(list(product([False, True], repeat=k + p)))
        for shortened_by in (0, 2):
            code = ReedSolomon(k + shortened_by, p, bits)
            check_decode(code, codeword(code, len(present), k, 6), present)


@st.composite
def losses(draw: st.DrawFn, longest: int, most_parity: int) -> tuple[ReedSolomon, NDArray[np.bool_], int]:
    """Draw a code, a mask of present symbols for some blocks, and a seed."""
    of = draw(st.integers(1, longest))
    p = draw(st.integers(0, most_parity))
    k = draw(st.one_of(st.just(of), st.integers(1, of)))
    code = ReedSolomon(of, p, draw(st.sampled_from([8, 8, 8, 16])))
    seed = draw(st.integers(0, 1 << 32))
    random = np.random.default_rng(seed)
    # Draw between no losses and slightly more than can be recovered.
    lost = draw(st.lists(st.integers(0, min(k + p, p + 2)), min_size=1, max_size=9))
    present = np.ones((len(lost), k + p), bool)
    for block, count in enumerate(lost):
        present[block, random.choice(k + p, count, replace=False)] = False
    return code, present, seed


@settings(max_examples=examples(300), deadline=None)
@given(losses(200, 50), st.sampled_from([1, 13, 64, 255, 1400, 1408]))
def test_large_codes_with_another_pattern_in_each_block(
    case: tuple[ReedSolomon, NDArray[np.bool_], int], width: int
) -> None:
    code, present, seed = case
    width += width % (code.bits // 8)
    k = present.shape[1] - code.parity_count
    check_decode(code, codeword(code, len(present), k, width, seed), present)


@pytest.mark.parametrize(
    ("of", "k", "p", "bits", "blocks", "width"),
    [
        (64, 64, 8, 8, 40, 1400),  # several batches of blocks
        (200, 200, 50, 8, 2, 9000),  # several parts of the columns
        (1, 1, 1, 8, 1, 65_000),
        (100, 100, 155, 8, 3, 31),  # several panels of rows
        (700, 600, 150, 16, 2, 130),  # several panels of rows and columns
        (65_000, 300, 500, 16, 1, 2),
    ],
)
def test_worst_losses_of_sizes_beyond_one_piece_of_work(
    of: int, k: int, p: int, bits: int, blocks: int, width: int
) -> None:
    code = ReedSolomon(of, p, bits)
    random = np.random.default_rng(p)
    present = np.ones((blocks, k + p), bool)
    for block in present:
        block[random.choice(k, min(k, p), replace=False)] = False
    check_decode(code, codeword(code, blocks, k, width), present)


def test_blocks_that_do_not_follow_one_another() -> None:
    code = ReedSolomon(10, 3)
    present = np.ones((9, 13), bool)
    present[[0, 3, 4, 8], [1, 2, 9, 0]] = False
    present[6, :3] = False
    present[7, :4] = False
    check_decode(code, codeword(code, 9, 10, 100), present)


def test_symbols_may_lie_apart_in_memory() -> None:
    code = ReedSolomon(10, 3)
    whole = codeword(code, 4, 10, 100)
    spread = np.zeros((4, 13, 150), np.uint8)
    symbols = spread[:, :, 32:132]
    symbols[...] = whole
    assert np.array_equal(code.encode(symbols[:, :10]), whole[:, 10:])
    present = np.ones((4, 13), bool)
    present[:, [2, 5]] = False
    symbols[:, [2, 5]] = 0
    assert code.decode(symbols, present).all()
    assert np.array_equal(symbols, whole)
    assert not spread[:, :, :32].any()
    assert not spread[:, :, 132:].any()


def test_some_rows_of_parity_are_those_of_all() -> None:
    code = ReedSolomon(20, 7)
    whole = codeword(code, 3, 15, 40)
    for first, last in ((0, 7), (0, 1), (2, 5), (6, 7), (3, 3)):
        assert np.array_equal(code.encode(whole[:, :15], range(first, last)), whole[:, 15 + first : 15 + last])


def test_a_short_block_is_a_long_one_that_ends_in_zeros() -> None:
    code = ReedSolomon(12, 4)
    source = np.zeros((1, 12, 50), np.uint8)
    source[:, :7] = codeword(code, 1, 7, 50)[:, :7]
    assert np.array_equal(code.encode(source[:, :7]), code.encode(source))


def test_no_blocks_are_no_work() -> None:
    code = ReedSolomon(4, 2)
    assert code.encode(np.zeros((0, 4, 8), np.uint8)).shape == (0, 2, 8)
    assert code.decode(np.zeros((0, 6, 8), np.uint8), np.zeros((0, 6), bool)).shape == (0,)


def test_threads_do_not_disturb_each_other() -> None:
    code = ReedSolomon(32, 8)
    wholes = [codeword(code, 6, 32, 1400, seed) for seed in range(4)]
    present = np.ones((6, 40), bool)
    present[:, 3:11] = False

    def work(whole: Symbols) -> None:
        for _ in range(10):
            check_decode(code, whole, present)
            assert np.array_equal(code.encode(whole[:, :32]), whole[:, 32:])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, wholes))


@pytest.mark.parametrize(
    ("source_count", "parity_count", "bits", "message"),
    [
        (4, 2, 12, "bits=12: expected 8 or 16"),
        (0, 2, 8, "source_count=0: expected 1 to 255"),
        (256, 0, 8, "source_count=256: expected 1 to 255"),
        (200, 56, 8, "parity_count=56: expected 0 to 55"),
        (4, -1, 8, "parity_count=-1: expected 0 to 251"),
        (65_000, 536, 16, "parity_count=536: expected 0 to 535"),
    ],
)
def test_sizes_that_the_field_has_no_room_for(source_count: int, parity_count: int, bits: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ReedSolomon(source_count, parity_count, bits)


@pytest.mark.parametrize("rows", [range(1, 4), range(-1, 1), range(0, 3, 2), range(2, 0, -1)])
def test_rows_outside_the_code_are_refused(rows: range) -> None:
    with pytest.raises(ValueError, match="expected a run within 0 to 2"):
        ReedSolomon(4, 3).encode(np.zeros((1, 4, 8), np.uint8), rows)


@pytest.mark.parametrize(("bits", "width"), [(8, 0), (16, 0), (16, 7)])
def test_symbols_that_are_no_whole_words_are_refused(bits: int, width: int) -> None:
    with pytest.raises(ValueError, match=f"symbols of {width} bytes"):
        ReedSolomon(4, 3, bits).encode(np.zeros((1, 4, width), np.uint8))
    with pytest.raises(ValueError, match=f"symbols of {width} bytes"):
        ReedSolomon(4, 3, bits).decode(np.zeros((1, 7, width), np.uint8), np.ones((1, 7), bool))
