"""Parity at the receiver: a store of the symbols that have arrived, which also repairs blocks with them."""

import numpy as np
from numpy.typing import NDArray

from fjm2.base.ranges import RangeSet

from .fec import Code

_SYMBOL_OVERHEAD_BYTES = 512
"""Memory charged for a symbol in addition to its content. The estimate is generous: small symbols must not be free."""


class ParityStore:
    """Parity symbols of the incomplete blocks of one object."""

    def __init__(self, code: Code, symbol_bytes: int) -> None:
        self._code = code
        self._symbol_bytes = symbol_bytes
        self._blocks: dict[int, dict[int, bytes]] = {}
        self._first = 0
        """Number of a block before which no block has parity in this store."""
        self._symbols = 0

    @property
    def memory_bytes(self) -> int:
        """Memory of all parity symbols in the store, in bytes."""
        return self._symbols * (self._symbol_bytes + _SYMBOL_OVERHEAD_BYTES)

    @property
    def count(self) -> int:
        """Number of parity symbols that a block can have."""
        return self._code.parity_count

    def __contains__(self, block: int) -> bool:
        return block in self._blocks

    def add(self, block: int, row: int, payload: NDArray[np.uint8]) -> bool:
        """Add a parity symbol. Return False if it was there already."""
        rows = self._blocks.setdefault(block, {})
        if row in rows:
            return False
        rows[row] = payload.tobytes()
        self._symbols += 1
        return True

    def rows(self, block: int) -> set[int]:
        """Return the parity rows of a block that have arrived."""
        return set(self._blocks.get(block, ()))

    def drop(self, block: int) -> None:
        """Forget the parity of a block."""
        self._symbols -= len(self._blocks.pop(block, ()))

    def clear(self) -> None:
        """Forget all symbols."""
        self._blocks.clear()
        self._symbols = self._first = 0

    def drop_before(self, block: int) -> None:
        """Forget the parity of all blocks before `block`."""
        if block - self._first > len(self._blocks):
            for old in [number for number in self._blocks if number < block]:
                self.drop(old)
        else:
            for old in range(self._first, block):
                self.drop(old)
        self._first = max(self._first, block)

    def can_repair(self, block: int, missing: int) -> bool:
        """Return True if the parity of a block suffices to restore `missing` source symbols."""
        return 0 < missing <= len(self._blocks.get(block, ()))

    def repair(self, block: int, source: NDArray[np.uint8], received: RangeSet, first: int) -> None:
        """Restore the missing segments of a block, which are rows of `source`, and forget the block's parity.

        Row 0 is the segment with index `first`. Segments are missing if their index is not in `received`.
        """
        length = len(source)
        # No source symbol is longer than the parity. The bytes after that are zeros, and need not be decoded.
        shown = min(source.shape[1], max(len(payload) for payload in self._blocks[block].values()))
        width = max(2, shown + shown % 2)  # codes over 16 bits need whole words
        symbols = np.zeros((1, length + self._code.parity_count, width), np.uint8)
        symbols[0, :length, :shown] = source[:, :shown]
        present = np.zeros((1, symbols.shape[1]), np.bool_)
        for start, end in received.within(first, first + length):
            present[0, start - first : end - first] = True
        for row, payload in self._blocks[block].items():
            size = min(len(payload), width)
            symbols[0, length + row, :size] = np.frombuffer(payload, np.uint8, size)
            present[0, length + row] = True
        self.drop(block)
        self._code.decode(symbols, present)
        missing = np.flatnonzero(~present[0, :length])
        source[missing] = 0
        source[missing, :shown] = symbols[0, missing, :shown]
