"""The cost of the numbers and checksums that frames get for keepers (docs/frames.md, section 7)."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from fjm2.base.checksums import IS_CRC32C_FAST
from fjm2.jms import Topic
from fjm2.messages.batches.array_writer import write_frames
from fjm2.messages.batches.frame_array import FrameSettings
from fjm2.messages.batches.frame_run import find_run
from fjm2.messages.batches.property_columns import PropertyColumns
from fjm2.messages.frame import FRAME_BYTES_MAX, FrameReader, FrameWriter
from fjm2.messages.header import HEADER, PERSISTENT, Kind
from fjm2.messages.ledgers.ledger_number import LedgerNumber, is_intact, ledger_number_of, with_ledger_number
from fjm2.messages.ledgers.number_columns import are_intact, ledger_sections_of, with_ledger_numbers
from fjm2.messages.ledgers.run_columns import columns_of

SIZES = (64, 1024)
CHECKSUM = "CRC-32C" if IS_CRC32C_FAST else "zlib's CRC-32"
_MESSAGES = 500
_RUNS = 20
"""Runs of `_MESSAGES` messages in one measurement: 10,000 messages, which take some milliseconds."""
_TOPIC = Topic("fjm2-bench.micro")
_FIRST = LedgerNumber(1, 0, 1)


@dataclass(frozen=True, slots=True)
class LedgerCost:
    """Cost of one step, in microseconds of processor time per message."""

    step: str
    size: int
    """Bytes of a body."""
    us: float


def run(repeat: int = 5) -> list[LedgerCost]:
    """Return the median of `repeat` measurements of each step, taken in turns."""
    steps = {(step, size): function for size in SIZES for step, function in _steps(size).items()}
    times: dict[tuple[str, int], list[float]] = {step: [] for step in steps}
    for _ in range(repeat):
        for step, function in steps.items():
            times[step].append(_us(function))
    return [LedgerCost(step, size, median(taken)) for (step, size), taken in times.items()]


def _us(function: Callable[[], object]) -> float:
    function()
    start = time.process_time()
    for _ in range(_RUNS):
        function()
    return (time.process_time() - start) / (_RUNS * _MESSAGES) * 1e6


def _steps(size: int) -> dict[str, Callable[[], object]]:
    bodies = [bytes([place % 256]) * size for place in range(_MESSAGES)]
    writer, settings = FrameWriter(1), FrameSettings(_TOPIC, int(Kind.BYTES), PERSISTENT, 4, 0, 0, b"")
    singles = [writer.write_body(int(Kind.BYTES), b"", body, _TOPIC, PERSISTENT, 4, 0) for body in bodies]
    columns = PropertyColumns({}, _MESSAGES)
    (array,) = write_frames(writer, settings, bodies, columns)
    data = with_ledger_numbers(array, _FIRST).data
    frames = FrameReader().feed(data, (0,))
    alike = find_run(data, 0, HEADER.unpack_from(data), FRAME_BYTES_MAX)
    assert alike is not None
    run, producer_id, producer_epoch, sequence = alike, *_FIRST

    def check_run() -> None:
        sections = ledger_sections_of(run)
        assert sections is not None
        are_intact(run, sections)

    return {
        "frame": lambda: [writer.write_body(2, b"", body, _TOPIC, PERSISTENT, 4, 0) for body in bodies],
        "number": lambda: [with_ledger_number(parts, producer_id, producer_epoch, sequence) for parts in singles],
        "frame a batch": lambda: write_frames(writer, settings, bodies, columns),
        "number a batch": lambda: with_ledger_numbers(array, _FIRST),
        "read the number": lambda: [ledger_number_of(buffer, header, start) for buffer, start, _, _, header in frames],
        "check": lambda: [is_intact(buffer, header, start) for buffer, start, _, _, header in frames],
        "read the numbers of a run": lambda: ledger_sections_of(run),
        "read and check a run": check_run,
        "a keeper's run": lambda: [one.pieces(one.has_number) for one in columns_of(frames)],
        "a keeper's run, checked": lambda: [one.pieces(one.intact()) for one in columns_of(frames)],
    }
