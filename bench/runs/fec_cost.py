"""The cost of a code, as in table 4.3.1 of the thesis: the time to encode data in symbols of a given size."""

from collections.abc import Callable
from importlib import import_module
from statistics import median
from time import perf_counter

import numpy as np

from fjm2.norm.core.fec import ReedSolomon

from .plan import parity_of

_TIMES_MIN = 5
_SAMPLE_S = 0.05
"""Fewest repetitions of a measurement, and its shortest time."""


def missing(coder: str) -> str | None:
    """Return the reason why a coder cannot run on this machine, or None if it can."""
    if coder == "fjm2":
        return None
    try:
        import_module(coder)
    except ImportError:
        return f"{coder} is not installed"
    return None


def measure(coder: str, size: int, symbol: int) -> dict[str, float]:
    """Measure the time to make the parity of one block: one parity symbol for every four source symbols."""
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
    """Return the median time of one call, after a call that does not count."""
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
    """Return work for reedsolo's C extension, which encodes a column of bytes at a time."""
    codec = import_module("creedsolo").RSCodec(parity)
    columns = [column.tobytes() for column in block.T]
    return lambda: [codec.encode(column) for column in columns]


_WORK = {"fjm2": _fjm2, "zfec": _zfec, "creedsolo": _creedsolo}
