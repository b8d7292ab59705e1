"""Lines of files, read by the workers: JSON lines, whole files or parts, gzip, and packet captures.

This module needs pyarrow and FJM2 on the workers, but no Spark. It holds one block of a file at a time.
"""

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol, Self, cast

import numpy as np

from fjm2.base.errors import CaptureError
from fjm2.base.quantities import counted
from fjm2.errors import FJM2Error

from .schema import LINE_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES: Final = 4 << 20
"""Bytes read at once: enough to make the cost of a call small, and little memory for a task."""
KEPT_BYTES: Final = 1024
"""Bytes kept of a line that is too long: enough to see what it is."""
TO_ITS_END: Final = 1 << 62
"""End of a file whose length is known only after reading it."""
CAPTURE_INTERVAL_S: Final = 0.1
"""Length of a sample made of a capture, as recorders make them."""


@dataclass(frozen=True, slots=True)
class Split:
    """Part of a file: the lines that begin between `start` and `end`. Offsets are of the unpacked file."""

    file: str
    start: int
    end: int
    stop: int
    """Offset at which reading stops: the file may still grow."""
    begins_line: bool
    """True if a line is known to begin at `start`."""


def encode_splits(splits: Iterable[Split]) -> str:
    return json.dumps([asdict(split) for split in splits])


def decode_splits(text: str) -> list[Split]:
    return [Split(**split) for split in json.loads(text)]


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines of one file, laid end to end with their newlines."""

    data: bytes
    starts: "np.ndarray[tuple[int], np.dtype[np.int64]]"
    """Position in `data` of the beginning of each line, and then of the end of the last line."""
    offset: int
    """Offset of `data` in the file."""
    fault: str | None = None
    """Fault that all the lines have; None if they have none."""


def read_lines(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Read splits, for `mapInArrow`. Yield batches of `schema.LINES_TYPE`."""
    for batch in batches:
        for text in batch.column(0).to_pylist():
            for split in decode_splits(text):
                for lines in lines_of(split):
                    yield from _batches(split.file, lines)


def read_few(texts: Iterable[str], bytes_max: int) -> "pa.Table | None":
    """Read the splits of some tasks into memory. Return None if they have more than `bytes_max` bytes."""
    import pyarrow as pa

    batches, size = [], 0
    for text in texts:
        for batch in read_lines([pa.record_batch([[text]], ["splits"])]):
            batches.append(batch)
            size += batch.nbytes
            if size > bytes_max:
                return None
    return pa.Table.from_batches(batches) if batches else None


def lines_of(split: Split) -> Iterator[Lines]:
    """Yield the lines of a split. If the file cannot be read any further, the last line holds the error."""
    reached = split.start
    try:
        with open_file(split.file) as file:
            for lines in _cut(file, split):
                reached = lines.offset + len(lines.data)
                yield lines
    except (OSError, EOFError, zlib.error, FJM2Error) as error:
        data = str(error).encode()
        yield Lines(
            data, np.array([0, len(data)]), reached, "no_norm" if isinstance(error, _NoNormError) else "unreadable"
        )


def is_packed(file: str) -> bool:
    return file.endswith(".gz")


def is_capture(file: str) -> bool:
    return file.removesuffix(".gz").endswith((".pcap", ".pcapng"))


class Readable(Protocol):
    """A source of bytes."""

    def read(self, count: int, /) -> bytes: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: Any) -> None: ...


def open_file(file: str) -> Readable:
    """Open a trace file, unpacked. A capture is read as lines of JSON."""
    raw = _opened(file)
    if not is_capture(file):
        return raw
    try:
        return _CaptureLines(file, raw)
    except BaseException:
        raw.__exit__(None, None, None)
        raise


def open_here(file: str) -> BufferedReader:
    """Open a file, but no symbolic link: who writes traces must not choose which other files are read."""
    return open(file, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW))


def _opened(file: str) -> "BufferedReader | _Unpacked":
    if is_packed(file):
        return _Unpacked(file)
    try:
        return open_here(file)
    except FileNotFoundError:
        if not os.path.exists(f"{file}.gz"):
            raise
        return _Unpacked(f"{file}.gz")  # it was compressed after it was found


class _Unpacked:
    """A gzip file that returns all that can be unpacked before it raises an error."""

    def __init__(self, file: str) -> None:
        self._raw = open_here(file)
        self._file = gzip.GzipFile(fileobj=self._raw)
        self._error: Exception | None = None
        self.seek = self._file.seek
        self.readline = self._file.readline

    def read(self, count: int) -> bytes:
        if self._error is not None:
            raise self._error
        parts = []
        try:
            while count and (part := self._file.read1(count)):
                parts.append(part)
                count -= len(part)
        except (OSError, EOFError, zlib.error) as error:
            self._error = error
            if not parts:
                raise
        return b"".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._raw.close()


class _NoNormError(FJM2Error):
    """A capture has no NORM traffic."""


class _CaptureLines:
    """A packet capture, read as the lines of JSON that a recorder would have written.

    After the last line, reading raises an error if the capture breaks off or has no NORM traffic: it may have no line.
    """

    def __init__(self, file: str, raw: Readable) -> None:
        from fjm2.record import Labels
        from fjm2.traces.capture import CaptureSampler

        self._raw = raw
        run, node = names_of(file)
        labels = Labels(run=run, node=node, system="fjm2", layer="norm", role="capture")
        self._sampler = CaptureSampler(cast(BinaryIO, raw), labels, CAPTURE_INTERVAL_S)
        self._samples = self._sampler.samples()
        self._rest = b""

    def read(self, count: int) -> bytes:
        parts, size = [self._rest], len(self._rest)
        while size < count and (sample := next(self._samples, None)) is not None:
            parts.append(json.dumps(sample, separators=(",", ":")).encode() + b"\n")
            size += len(parts[-1])
        data = b"".join(parts)
        self._rest = data[count:]
        if not data:
            self._check()
        return data[:count]

    def _check(self) -> None:
        """Raise an error if the capture, which was read to its end, is not a whole capture of NORM traffic."""
        if self._sampler.problem:
            raise CaptureError(self._sampler.problem)
        if not self._sampler.senders:
            drops = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self._sampler.drops.most_common())
            packets = self._sampler.packets
            raise _NoNormError(
                f"no NORM datagram in {counted(packets, 'packet')}: {drops}" if packets else "no packets"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._raw.__exit__(None, None, None)


def names_of(file: str) -> tuple[str, str]:
    """Return the run and the node of a capture, from its path `run=RUN/node=NODE.pcap` or else from its name."""
    path = Path(file.removesuffix(".gz"))
    name = _as_name(path.stem.removeprefix("node="))
    folder = path.parent.name
    return (_as_name(folder.removeprefix("run=")) if folder.startswith("run=") else name), name


def _as_name(text: str) -> str:
    good = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "._:+-") else "-" for letter in text)
    return good[:128] or "capture"


def _cut(file: Readable, split: Split) -> Iterator[Lines]:
    """Yield blocks of lines, cut at line ends."""
    offset = _go_to(file, split)
    kept, length = b"", 0  # the incomplete line: its bytes, as far as they are kept, and its length
    while offset < split.end:
        block = file.read(min(BLOCK_BYTES, split.stop - offset - length))
        if not block:
            break
        last = block.rfind(b"\n") + 1
        if not last:
            kept, length = _keep(kept, length, block)
            continue
        if length > LINE_BYTES_MAX:  # the rest of a long line belongs to it
            first = block.find(b"\n") + 1
            yield _one(kept, offset, "oversize")
            offset += length + first
            block, last = block[first:], last - first
        else:
            block, last = kept + block, last + length
        if last and offset < split.end:
            yield _within(block[:last], offset, split.end)
            offset += last
        kept, length = _keep(b"", 0, block[last:])
        if offset >= split.end:
            return
    if length:
        yield _one(kept, offset, "oversize" if length > LINE_BYTES_MAX else "torn")


def _go_to(file: Readable, split: Split) -> int:
    """Move to the split's first line and return its offset."""
    if not split.start:
        return 0
    assert isinstance(file, BufferedReader | _Unpacked), "captures are read from their beginning"
    if split.begins_line:
        return file.seek(split.start)
    offset = file.seek(split.start - 1)
    while part := file.readline(min(BLOCK_BYTES, split.stop - offset)):
        offset += len(part)
        if part.endswith(b"\n"):
            break
    return offset


def _keep(kept: bytes, length: int, more: bytes) -> tuple[bytes, int]:
    length += len(more)
    kept += more
    return (kept[:KEPT_BYTES] if length > LINE_BYTES_MAX else kept), length


def _one(data: bytes, offset: int, fault: str) -> Lines:
    return Lines(data, np.array([0, len(data)]), offset, fault)


def _within(data: bytes, offset: int, end: int) -> Lines:
    """Return whole lines, without those that begin at `end` or later."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10) + 1
    starts = np.concatenate(([0], ends))
    count = int(np.searchsorted(starts[:-1], end - offset))
    return Lines(data, starts[: count + 1], offset)


def _batches(file: str, lines: Lines) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    count = len(lines.starts) - 1
    if not count:
        return
    buffers = [None, pa.py_buffer(lines.starts.astype(np.int32)), pa.py_buffer(lines.data)]
    raw = pa.Array.from_buffers(pa.binary(), count, buffers)
    faults: list[str | None] = [lines.fault] * count
    too_long = np.flatnonzero(np.diff(lines.starts) > LINE_BYTES_MAX + 1)  # the newline does not count
    try:
        if lines.fault is not None or len(too_long):
            raise pa.ArrowInvalid
        text = raw.cast(pa.string())
    except pa.ArrowInvalid:
        text = _mend(raw, faults, set(too_long.tolist()))
    columns = [
        pa.repeat(pa.scalar(_as_text(file)), count),
        pa.array(lines.starts[:-1] + lines.offset, pa.int64()),
        text,
        pa.array(faults, pa.string()),
    ]
    yield pa.RecordBatch.from_arrays(columns, names=["file", "offset", "text", "fault"])


def _as_text(path: str) -> str:
    """Return a path, which may be any bytes, as text."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _mend(
    raw: "pa.Array[pa.BinaryScalar]", faults: list[str | None], too_long: set[int]
) -> "pa.Array[pa.StringScalar]":
    """Convert lines to texts one by one, and note the fault of each that is not valid."""
    import pyarrow as pa

    texts = []
    for index, line in enumerate(raw.to_pylist()):
        if index in too_long or faults[index] == "oversize":
            faults[index] = "oversize"
            line = line[:KEPT_BYTES]
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            faults[index] = faults[index] if faults[index] in ("oversize", "unreadable") else "utf8"
            texts.append(line.decode(errors="backslashreplace"))
    return pa.array(texts, pa.string())
