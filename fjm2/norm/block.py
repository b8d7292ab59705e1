"""Parity on the receiving side: what has come of it, and the blocks that it makes whole."""

import numpy as np
from numpy.typing import NDArray

from .fec import Code
from .ranges import RangeSet


class ParityStore:
    """Parity symbols of the blocks of one object that are not whole yet."""

    def __init__(self, code: Code, symbol_bytes: int) -> None:
        self._code = code
        self._symbol_bytes = symbol_bytes
        self._blocks: dict[int, dict[int, bytes]] = {}

    @property
    def memory_bytes(self) -> int:
        return sum(map(len, self._blocks.values())) * self._symbol_bytes

    @property
    def count(self) -> int:
        """Parity symbols that a block can have."""
        return self._code.parity_count

    def __contains__(self, block: int) -> bool:
        return block in self._blocks

    def add(self, block: int, row: int, payload: NDArray[np.uint8]) -> bool:
        """Take a parity symbol; False if it was there already."""
        rows = self._blocks.setdefault(block, {})
        if row in rows:
            return False
        rows[row] = payload.tobytes()
        return True

    def rows(self, block: int) -> set[int]:
        """The parity rows that have come of a block."""
        return set(self._blocks.get(block, ()))

    def drop(self, block: int) -> None:
        """The block needs no parity any more."""
        self._blocks.pop(block, None)

    def drop_before(self, block: int) -> None:
        """Forget the parity of all earlier blocks."""
        for old in [number for number in self._blocks if number < block]:
            del self._blocks[old]

    def can_repair(self, block: int, missing: int) -> bool:
        """Whether so many source symbols can be made from what has come."""
        return 0 < missing <= len(self._blocks.get(block, ()))

    def repair(self, block: int, source: NDArray[np.uint8], received: RangeSet, first: int) -> None:
        """Fill in the rows of `source` whose indexes, from `first` on, are not in `received`."""
        length = len(source)
        width = max(source.shape[1], *(len(payload) for payload in self._blocks[block].values()))
        width += width % 2  # codes over 16 bits take whole words
        symbols = np.zeros((1, length + self._code.parity_count, width), np.uint8)
        symbols[0, :length, : source.shape[1]] = source
        present = np.zeros((1, symbols.shape[1]), np.bool_)
        for start, end in received.within(first, first + length):
            present[0, start - first : end - first] = True
        for row, payload in self._blocks.pop(block).items():
            symbols[0, length + row, : len(payload)] = np.frombuffer(payload, np.uint8)
            present[0, length + row] = True
        self._code.decode(symbols, present)
        source[:] = symbols[0, :length, : source.shape[1]]
