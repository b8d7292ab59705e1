"""Scratch memory that is kept from one call to the next.

Fresh memory of a few MiB comes from the kernel page by page, which takes up to four times as long as the work done in
it. Borrowed memory belongs to the borrower alone. Returned memory waits for the next borrower, in any thread.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Word = TypeVar("Word", bound=np.generic)

LINE_BYTES = 64
"""Length of a cache line in bytes. Rows that begin at a cache line are copied faster."""

_KEPT: deque[NDArray[np.uint8]] = deque(maxlen=2)


@contextmanager
def borrowed(*sizes: int) -> Iterator[list[NDArray[np.uint8]]]:
    """Yield a piece of memory for each of `sizes` in bytes. Each begins at a cache line, and may hold anything."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + padded(size))
    memory = _acquired(starts[-1])
    try:
        yield [memory[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    finally:
        _KEPT.append(memory)


def padded(size: int) -> int:
    """Return `size` rounded up to whole cache lines."""
    return -(-size // LINE_BYTES) * LINE_BYTES


def shaped(memory: NDArray[Word], *shape: int) -> NDArray[Word]:
    """Return the first part of `memory` as an array of the given shape."""
    return memory[: prod(shape)].reshape(shape)


def _acquired(size: int) -> NDArray[np.uint8]:
    try:
        memory = _KEPT.pop()
    except IndexError:
        return _aligned(size)
    return memory if memory.size >= size else _aligned(size)


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.empty(size + LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % LINE_BYTES
    return memory[start : start + size]
