"""Interface of block codes, and checks of arguments that all codes share."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fjm2.base.quantities import counted

Symbols = NDArray[np.uint8]


class Code(Protocol):
    """A systematic erasure code for blocks of at most `source_count` symbols of equal length."""

    @property
    def source_count(self) -> int:
        """Number of source symbols in the longest block: the sender's maximum, even if some blocks are shorter."""

    @property
    def parity_count(self) -> int:
        """Number of parity symbols that a block can have."""

    def encode(self, source: Symbols, rows: range | None = None) -> Symbols:
        """Return the parity of `[blocks, k, bytes]` as `[blocks, len(rows), bytes]`.

        Row 0 is the first parity symbol; None stands for all rows. Raise ValueError if shape or rows do not fit the
        code.
        """

    def decode(self, symbols: Symbols, present: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Restore absent source symbols in place, and return True for each block that is complete now.

        `symbols` is `[blocks, k + parity_count, bytes]`. Symbols that are not `present` may hold anything. A block with
        fewer than k symbols is left as it is. Raise ValueError if a shape does not fit.
        """


def check_source(code: Code, source: Symbols) -> None:
    """Raise ValueError unless `source` holds blocks that `code` can protect."""
    if source.dtype != np.uint8 or source.ndim != 3:
        raise ValueError(f"source of {source.dtype}{list(source.shape)}: expected uint8[blocks, k, bytes]")
    if not 1 <= source.shape[1] <= code.source_count:
        raise ValueError(f"source of {counted(source.shape[1], 'symbol')} a block: expected 1 to {code.source_count}")


def check_received(code: Code, symbols: Symbols, present: NDArray[np.bool_]) -> None:
    """Raise ValueError unless `symbols` and `present` describe the same blocks of `code`."""
    if symbols.dtype != np.uint8 or symbols.ndim != 3:
        raise ValueError(f"symbols of {symbols.dtype}{list(symbols.shape)}: expected uint8[blocks, k + p, bytes]")
    if not 1 <= symbols.shape[1] - code.parity_count <= code.source_count:
        fewest, most = code.parity_count + 1, code.parity_count + code.source_count
        raise ValueError(f"symbols of {symbols.shape[1]} a block: expected {fewest} to {most}")
    if present.dtype != np.bool_ or present.shape != symbols.shape[:2]:
        expected = list(symbols.shape[:2])
        raise ValueError(f"present of {present.dtype}{list(present.shape)}: expected bool{expected}")
