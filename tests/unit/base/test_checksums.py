"""Tests of checksums: published values, and one implementation against the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.checksums import Checksum, crc32c, crc32c_by_tables

BOTH = pytest.mark.parametrize("checksum", [crc32c, crc32c_by_tables], ids=["chosen", "by tables"])

# RFC 3720, B.4, and the check value of the catalogue of parametrised CRC algorithms.
PUBLISHED = [
    (bytes(32), 0x8A9136AA),
    (bytes([255] * 32), 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
    (b"123456789", 0xE3069283),
    (b"", 0),
]


@BOTH
@pytest.mark.parametrize(("data", "expected"), PUBLISHED)
def test_published_values(checksum: Checksum, data: bytes, expected: int) -> None:
    assert checksum(data, 0) == expected


@BOTH
@given(st.binary(max_size=2000), st.integers(0, 2000))
def test_a_checksum_continues(checksum: Checksum, data: bytes, cut: int) -> None:
    assert checksum(data[cut:], checksum(data[:cut], 0)) == checksum(data, 0)


@BOTH
@pytest.mark.parametrize("items", [0, 3, 200])
def test_an_array_counts_as_its_bytes(checksum: Checksum, items: int) -> None:
    array = np.arange(items, dtype=np.uint32)
    assert checksum(memoryview(array), 5) == checksum(bytearray(array.tobytes()), 5) == checksum(array.tobytes(), 5)


@given(st.integers(0, 200_000), st.integers(0, 255), st.integers(0, 0xFFFFFFFF))
def test_tables_agree_with_the_package(size: int, seed: int, value: int) -> None:
    if crc32c is crc32c_by_tables:
        pytest.skip("the package crc32c is not installed")
    data = memoryview(bytes((seed + place * place) % 251 for place in range(size % 3000)) * (1 + size // 3000))
    assert crc32c_by_tables(data, value) == crc32c(data, value)
