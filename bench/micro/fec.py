"""Reed-Solomon: encoding and decoding speed beside zfec (C) and reedsolo (pure Python, and its C extension).

For decoding, as many source symbols are lost as there are parity symbols, different ones in each block. All coders take
turns, so that a ratio compares coders that ran under the same conditions.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from statistics import median
from time import perf_counter
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from rich.box import HEAVY_HEAD
from rich.console import Console

from fjm2.base import tables
from fjm2.base.tables import Column
from fjm2.base.tables import Row as TableRow
from fjm2.norm.core.fec import ReedSolomon

SYMBOL_BYTES = 1400
SIZES = ((64, 8), (64, 32), (20, 4))
BLOCKS = (1, 16, 64)
# Blocks of one sample, coded together or one after another: enough for the resolution of the clock
SAMPLE_BLOCKS = 64
# reedsolo codes one column of a block at a time, so slowly that a few columns are enough
COLUMNS = 4
REFERENCE = "zfec"
RIVALS = (REFERENCE, "reedsolo", "creedsolo")

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Row:
    """Result of one coder at one task."""

    peer: str
    task: str
    """"encode" or "decode"."""
    k: int
    p: int
    blocks: int
    """Number of blocks that one call codes."""
    mb_per_s: float
    """Median, in millions of bytes of source data per second."""
    ratio: float | None
    """Speed relative to zfec: median of samples taken in turns. None without zfec."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block and the source symbols that are lost, as many as there are parity symbols."""

    source: NDArray[np.uint8]
    lost: list[int]


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work to time, and the number of bytes of source data that it processes."""

    peer: str
    name: str
    work: Work
    source_bytes: int

    def seconds_per_byte(self) -> float:
        """Run the work once and return its time per byte."""
        start = perf_counter()
        self.work()
        return (perf_counter() - start) / self.source_bytes


def run(repeat: int = 5) -> list[Row]:
    """Time all installed coders in `repeat` rounds."""
    modules = {name: module for name in RIVALS if (module := _found(name))}
    random = np.random.default_rng(1)
    rows: list[Row] = []
    for k, p in SIZES:
        for count in BLOCKS:
            blocks = [_random_block(random, k, p) for _ in range(count)]
            tasks = list(_tasks(blocks, p, modules))
            for name in ("encode", "decode"):
                rows += _measured([task for task in tasks if task.name == name], (k, p, count), repeat)
    return rows


def missing() -> list[str]:
    """Return the coders that are not installed."""
    return [name for name in RIVALS if _found(name) is None]


def print_table(rows: list[Row], console: Console | None = None) -> None:
    """Print a line for each task and a column for each coder."""
    peers = list(dict.fromkeys(row.peer for row in rows))
    columns = (
        Column("task", is_text=True),
        *(Column(heading) for heading in ("k", "p", "blocks")),
        *(Column(peer, rank) for rank, peer in enumerate(peers)),
    )
    found = {(row.peer, row.task, row.k, row.p, row.blocks): row for row in rows}
    lines = [
        TableRow((*map(str, task), *(_cell(found.get((peer, *task))) for peer in peers)))
        for task in dict.fromkeys((row.task, row.k, row.p, row.blocks) for row in rows)
    ]
    title = "Reed-Solomon, MB/s of source data (ratio to zfec)"
    tables.print_table(console or Console(), columns, lines, title=title, caption=_caption(), box=HEAVY_HEAD)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    rate = f"{row.mb_per_s:.0f}" if row.mb_per_s >= 10 else f"{row.mb_per_s:.2f}"
    if row.ratio is None or row.peer == REFERENCE:
        return rate
    return f"{rate} ({row.ratio:.2f})" if row.ratio >= 0.1 else f"{rate} ({row.ratio:.3f})"


def _caption() -> str:
    absent = missing()
    return f"not installed: {', '.join(absent)}" if absent else "all peers installed"


def _found(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


def _random_block(random: np.random.Generator, k: int, p: int) -> Block:
    source = random.integers(0, 256, (k, SYMBOL_BYTES), dtype=np.uint8)
    return Block(source, sorted(random.choice(k, p, replace=False).tolist()))


def _measured(tasks: list[Task], size: tuple[int, int, int], repeat: int) -> Iterator[Row]:
    """Time one sample of each task in each round. The first round warms up and does not count."""
    rounds = [[task.seconds_per_byte() for task in tasks] for _ in range(repeat + 1)][1:]
    peers = [task.peer for task in tasks]
    for index, peer in enumerate(peers):
        ratio = None
        if REFERENCE in peers:
            reference = peers.index(REFERENCE)
            ratio = median(times[reference] / times[index] for times in rounds)
        yield Row(peer, tasks[index].name, *size, 1e-6 / median(times[index] for times in rounds), ratio)


def _tasks(blocks: list[Block], p: int, modules: dict[str, ModuleType]) -> Iterator[Task]:
    yield from _fjm2_tasks(blocks, p)
    if REFERENCE in modules:
        yield from _zfec_tasks(modules[REFERENCE], blocks, p)
    if len(blocks) == 1:
        for name in ("reedsolo", "creedsolo"):
            if name in modules:
                yield from _reedsolo_tasks(modules[name], blocks[0], p)


def _task(peer: str, name: str, blocks: list[Block], work: Work) -> Task:
    """Return a task that repeats `work`, which processes all blocks once, to fill a sample."""
    times = max(1, SAMPLE_BLOCKS // len(blocks))

    def sample() -> None:
        for _ in range(times):
            work()

    return Task(peer, name, sample, times * sum(block.source.size for block in blocks))


def _fjm2_tasks(blocks: list[Block], p: int) -> Iterator[Task]:
    source = np.stack([block.source for block in blocks])
    code = ReedSolomon(source.shape[1], p)
    symbols = np.concatenate([source, code.encode(source)], axis=1)
    present = np.ones(symbols.shape[:2], bool)
    for row, block in zip(present, blocks, strict=True):
        row[block.lost] = False
    yield _task("fjm2", "encode", blocks, partial(code.encode, source))
    yield _task("fjm2", "decode", blocks, partial(code.decode, symbols, present))


def _zfec_tasks(zfec: ModuleType, blocks: list[Block], p: int) -> Iterator[Task]:
    k = len(blocks[0].source)
    encoder, decoder = zfec.Encoder(k, k + p), zfec.Decoder(k, k + p)
    wanted = list(range(k, k + p))
    sources = [[symbol.tobytes() for symbol in block.source] for block in blocks]
    damaged = []
    for block, source in zip(blocks, sources, strict=True):
        symbols, numbers = list(source), list(range(k))
        for lost, number, symbol in zip(block.lost, wanted, encoder.encode(source, wanted), strict=True):
            symbols[lost], numbers[lost] = symbol, number
        damaged.append((symbols, numbers))

    def encode() -> None:
        for source in sources:
            encoder.encode(source, wanted)

    def decode() -> None:
        for symbols, numbers in damaged:
            decoder.decode(symbols, numbers)

    yield _task(REFERENCE, "encode", blocks, encode)
    yield _task(REFERENCE, "decode", blocks, decode)


def _reedsolo_tasks(module: ModuleType, block: Block, p: int) -> Iterator[Task]:
    codec = module.RSCodec(p)
    columns = [block.source[:, column].tobytes() for column in range(COLUMNS)]
    damaged = [bytearray(codec.encode(column)) for column in columns]
    for column in damaged:
        for lost in block.lost:
            column[lost] = 0

    def encode() -> None:
        for column in columns:
            codec.encode(column)

    def decode() -> None:
        for column in damaged:
            codec.decode(column, erase_pos=block.lost, only_erasures=True)

    source_bytes = len(block.source) * COLUMNS
    yield Task(module.__name__, "encode", encode, source_bytes)
    yield Task(module.__name__, "decode", decode, source_bytes)


if __name__ == "__main__":
    print_table(run())
