"""Scratch memory that is kept from one call to the next.

Fresh memory of this size comes from the kernel page by page, and takes up to four times as long as the work done
in it. Whoever borrows has the memory alone; what is given back waits for the next one, in whatever thread.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Word = TypeVar("Word", bound=np.generic)

LINE = 64
"""Bytes of a cache line: rows that begin with one are copied faster."""

_KEPT: deque[NDArray[np.uint8]] = deque(maxlen=2)


@contextmanager
def borrowed(*sizes: int) -> Iterator[list[NDArray[np.uint8]]]:
    """Memory of these sizes in bytes, each from the start of a cache line on, holding anything."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + padded(size))
    memory = _taken(starts[-1])
    try:
        yield [memory[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    finally:
        _KEPT.append(memory)


def padded(size: int) -> int:
    """`size` rounded up to whole cache lines."""
    return -(-size // LINE) * LINE


def shaped(memory: NDArray[Word], *shape: int) -> NDArray[Word]:
    """The first part of `memory` in this shape."""
    return memory[: prod(shape)].reshape(shape)


def _taken(size: int) -> NDArray[np.uint8]:
    try:
        memory = _KEPT.pop()
    except IndexError:
        return _aligned(size)
    return memory if memory.size >= size else _aligned(size)


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size]
