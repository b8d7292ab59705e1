"""The Reed-Solomon code of FEC Encoding IDs 5, 129 (instance 0) and 2, with the same parity as libnorm."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fjm2.base.errors import ConfigError

from .code import Symbols, check_received, check_source
from .field import POLYNOMIALS
from .lagrange import Points, Recovery, parity_coefficients, points_of
from .multiply import BlockIndex, Picks, multiply

# Matrices are computed and used in panels of this size, which bounds memory for the largest codes of 16 bits.
_PANEL_ROWS = 64
_PANEL_COLUMNS = 256
_BATCH_COEFFICIENTS = 1 << 17
"""Coefficients of the blocks that are decoded together: enough to make numpy efficient, in a few MiB."""


@dataclass(frozen=True, slots=True)
class ReedSolomon:
    """A `Code` that restores a block from any k of its symbols. For a short block, k is its own length.

    Words of 16 bits are little-endian, and symbols then have an even number of bytes. Raises ConfigError for sizes that
    exceed the field.
    """

    source_count: int
    parity_count: int
    bits: int = 8

    def __post_init__(self) -> None:
        if self.bits not in POLYNOMIALS:
            raise ConfigError(f"bits={self.bits}: expected 8 or 16")
        most = (1 << self.bits) - 1
        if not 1 <= self.source_count <= most:
            raise ConfigError(f"source_count={self.source_count}: expected 1 to {most}")
        if not 0 <= self.parity_count <= most - self.source_count:
            raise ConfigError(f"parity_count={self.parity_count}: expected 0 to {most - self.source_count}")

    def encode(self, source: Symbols, rows: range | None = None) -> Symbols:
        """Return parity symbols `rows` of each block; None means all. Raise ValueError if an argument does not fit."""
        check_source(self, source)
        self._check_width(source)
        rows = range(self.parity_count) if rows is None else rows
        self._check_rows(rows)
        blocks, k, width = source.shape
        parity = np.zeros((blocks, len(rows), width), np.uint8)
        for out, columns in _panels(len(rows), k):
            picks = _parity_picks(self, rows[out], range(columns.start, columns.stop))
            multiply(self._points.field, picks, source, slice(0, blocks), columns.start, parity[:, out])
        return parity

    def decode(self, symbols: Symbols, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Restore absent source symbols in place, and return True for each block that is complete. See `Code`."""
        check_received(self, symbols, present)
        self._check_width(symbols)
        k = symbols.shape[1] - self.parity_count
        lost = k - np.count_nonzero(present[:, :k], axis=1)
        whole: NDArray[np.bool_] = np.count_nonzero(present, axis=1) >= k
        for count in sorted(set(lost[whole].tolist()) - {0}):
            blocks = np.flatnonzero(whole & (lost == count))
            step = max(1, _BATCH_COEFFICIENTS // (count * k))
            for start in range(0, len(blocks), step):
                self._recover(symbols, present, blocks[start : start + step], count)
        return whole

    def _recover(self, symbols: Symbols, present: NDArray[np.bool_], blocks: NDArray[np.intp], count: int) -> None:
        """Restore the `count` absent source symbols of each of `blocks`."""
        k = symbols.shape[1] - self.parity_count
        absent = np.nonzero(~present[blocks, :k])[1].reshape(-1, count)
        parity = np.argsort(~present[blocks, k:], axis=1, kind="stable")[:, :count]
        # Put each parity symbol in the place of the missing symbol that it replaces.
        symbols[blocks[:, None], absent] = symbols[blocks[:, None], k + parity]
        parity += self.source_count
        known = np.tile(np.arange(k), (len(blocks), 1))
        known[np.arange(len(blocks))[:, None], absent] = parity
        recovery = Recovery.of(self._points, known, absent, parity)
        found = np.zeros((len(blocks), count, symbols.shape[2]), np.uint8)
        for out, columns in _panels(count, k):
            picks = Picks.of(self._points.field, recovery.coefficients(out, columns))
            multiply(self._points.field, picks, symbols, _run(blocks), columns.start, found[:, out])
        symbols[blocks[:, None], absent] = found

    @property
    def _points(self) -> Points:
        return points_of(self.bits, self.source_count, self.source_count + self.parity_count)

    def _check_width(self, symbols: Symbols) -> None:
        width = symbols.shape[2]
        if width == 0 or width % (self.bits // 8):
            raise ValueError(f"symbols of {width} bytes: expected a multiple of {self.bits // 8}, not 0")

    def _check_rows(self, rows: range) -> None:
        if rows and not (rows.step == 1 and rows[0] >= 0 and rows[-1] < self.parity_count):
            raise ValueError(f"rows={rows}: expected a run within 0 to {self.parity_count - 1}")


@lru_cache(maxsize=64)  # up to 350 KiB each, commonly 50
def _parity_picks(code: ReedSolomon, rows: range, columns: range) -> Picks:
    points = points_of(code.bits, code.source_count, code.source_count + code.parity_count)
    parity, source = np.array(rows) + code.source_count, np.array(columns)
    return Picks.of(points.field, parity_coefficients(points, parity, source))


def _panels(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    for row in range(0, rows, _PANEL_ROWS):
        for column in range(0, columns, _PANEL_COLUMNS):
            yield (
                slice(row, min(row + _PANEL_ROWS, rows)),
                slice(column, min(column + _PANEL_COLUMNS, columns)),
            )


def _run(blocks: NDArray[np.intp]) -> BlockIndex:
    """Return block numbers as a slice if they are consecutive, so that the blocks need not be copied."""
    first, last = int(blocks[0]), int(blocks[-1])
    return slice(first, last + 1) if last - first + 1 == len(blocks) else blocks
