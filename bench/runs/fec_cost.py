"""What a code costs, as the thesis's table 4.3.1 has it: the time to encode so many bytes in symbols of a size."""

from collections.abc import Callable
from importlib import import_module
from statistics import median
from time import perf_counter

import numpy as np

from fjm2.norm.core.fec import ReedSolomon

from .plan import parity_of

_TIMES_MIN = 5
_SAMPLE_S = 0.05
"""A measurement is of so many times, and so long, at least."""


def missing(coder: str) -> str | None:
    """What a coder lacks here, or None."""
    if coder == "fjm2":
        return None
    try:
        import_module(coder)
    except ImportError:
        return f"{coder} is not installed"
    return None


def measure(coder: str, size: int, symbol: int) -> dict[str, float]:
    """Seconds to make the parity of one block, one symbol of it for every four of the data."""
    sources = -(-size // symbol)
    parity = parity_of(sources)
    block = np.zeros(sources * symbol, np.uint8)
    block[:size] = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    work = _WORK[coder](block.reshape(sources, symbol), parity)
    seconds = _seconds(work)
    return {
        "encode_s": seconds,
        "encode_mb_per_s": size / seconds / 1e6,
        "source_symbols": float(sources),
        "parity_symbols": float(parity),
    }


def _seconds(work: Callable[[], object]) -> float:
    """Of one time: the median of many, after one that does not count."""
    work()
    times: list[float] = []
    while len(times) < _TIMES_MIN or sum(times) < _SAMPLE_S:
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return median(times)


def _fjm2(block: np.ndarray[tuple[int, int], np.dtype[np.uint8]], parity: int) -> Callable[[], object]:
    code, blocks = ReedSolomon(len(block), parity), block[None]
    return lambda: code.encode(blocks)


def _zfec(block: np.ndarray[tuple[int, int], np.dtype[np.uint8]], parity: int) -> Callable[[], object]:
    count = len(block)
    encoder = import_module("zfec").Encoder(count, count + parity)
    symbols, wanted = [row.tobytes() for row in block], list(range(count, count + parity))
    return lambda: encoder.encode(symbols, wanted)


def _creedsolo(block: np.ndarray[tuple[int, int], np.dtype[np.uint8]], parity: int) -> Callable[[], object]:
    """It encodes a column of bytes at a time."""
    codec = import_module("creedsolo").RSCodec(parity)
    columns = [column.tobytes() for column in block.T]
    return lambda: [codec.encode(column) for column in columns]


_WORK = {"fjm2": _fjm2, "zfec": _zfec, "creedsolo": _creedsolo}
