"""Fuzzer of the codec, which mutates packets of real captures.

For any bytes, `decode` returns a message, or raises a WireError whose offset lies in the datagram. Encoding and
decoding a message yields an equal message. A DataReader reads any train without an exception and each of its datagrams
once, and it agrees with `decode` on each.
"""

import argparse
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pcap

from fjm2.errors import WireError
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import STREAM_HEADER, Data, DataReader, Message, ObjectFlag, decode

VECTORS = Path(__file__).parent / "vectors"
ADDRESS = ("10.99.0.1", 6003)
TRAIN_SHARE = 0.3
"""Share of the cases that are trains. The others are single datagrams."""
HEADER_BYTES = 48
"""Length of the part of a packet that most mutations hit. A payload has no structure that could be broken."""

_DIGITS = re.compile(r"\d+")


class BrokenInvariantError(Exception):
    """Failure of a case that broke an invariant. The text contains the command that reproduces it."""

    def __init__(self, data: bytes, segment_bytes: int | None, cause: Exception) -> None:
        replay = f"--replay {data.hex()}" + ("" if segment_bytes is None else f" --segment-bytes {segment_bytes}")
        super().__init__(f"{type(cause).__name__}: {cause}\nto reproduce: python tests/fuzz.py {replay}")


def check_datagram(data: bytes) -> Message | WireError:
    """Decode a datagram, and check the invariants. Return the message or the error."""
    message = _decoded(data)
    if isinstance(message, WireError):
        assert message.what, "an error that says nothing"
        assert 0 <= message.offset <= len(data), f"offset {message.offset} in {len(data)} bytes"
        return message
    wire = message.encode()
    assert len(wire) <= len(data), f"{len(data)} bytes became {len(wire)}"
    assert decode(wire) == message, f"re-encoded as {wire.hex():.300}"
    return message


def _decoded(data: bytes) -> Message | WireError:
    try:
        return decode(data)
    except WireError as error:
        return error


def check_train(data: bytes, segment_bytes: int, reader: DataReader) -> int:
    """Check that a reader agrees with `decode` on each datagram of a train.

    Return how many datagrams the reader recognised as DATA.
    """
    train = Train(np.frombuffer(data, np.uint8), segment_bytes, ADDRESS)
    count = recognised = 0
    for datagram, item in zip(datagrams(data, segment_bytes), unrolled(reader, train), strict=True):
        count += 1
        message = _decoded(datagram)
        if isinstance(item, Data):
            recognised += 1
            assert item == message, f"datagram {count - 1}: {item!r:.300}, expected {message!r:.300}"
        else:
            assert item == datagram, f"datagram {count - 1}: {item.hex():.300}"
            assert not isinstance(message, Data) or is_stub(message), f"datagram {count - 1}: not taken for DATA"
    assert count == train.count
    return recognised


def datagrams(data: bytes, segment_bytes: int) -> Iterator[bytes]:
    """Yield the datagrams of a train."""
    return (data[start : start + segment_bytes] for start in range(0, len(data), segment_bytes))


def is_stub(message: Data) -> bool:
    """Return True if the DATA of a stream is too short to contain the stream header."""
    return bool(message.flags & ObjectFlag.STREAM) and len(message.payload) < STREAM_HEADER.size


def unrolled(reader: DataReader, train: Train) -> Iterator[Data | bytes]:
    """Yield what a reader finds in a train, one datagram at a time: a message, or the bytes that are not DATA."""
    for run in reader.read(train):
        if isinstance(run, bytes):
            yield run
            continue
        assert run.count >= 1, "a run of nothing"
        assert run.count - len(run.payloads) in (0, 1), "more than one segment is no full one"
        common = run.header.message
        for index in range(run.count):
            row = run.headers[index]
            payload = run.payloads[index].tobytes() if index < len(run.payloads) else run.tail.tobytes()
            if run.header.is_stream:
                numbers = row["length"], row["message_start"], row["offset"]
                assert numbers == STREAM_HEADER.unpack_from(payload), "the stream's header is not where it should be"
            yield Data(
                sequence=int(row["sequence"]),
                source_id=common.source_id,
                extensions=common.extensions,
                instance_id=common.instance_id,
                grtt_q=common.grtt_q,
                backoff=common.backoff,
                gsize_q=common.gsize_q,
                flags=common.flags,
                fec_id=common.fec_id,
                object_id=common.object_id,
                payload_id=int(row["payload_id"]),
                payload=payload,
            )


@cache
def golden_datagrams() -> tuple[bytes, ...]:
    """Return all datagrams of the captures in `tests/vectors`."""
    return tuple(packet.payload for path in sorted(VECTORS.glob("*.pcap")) for packet in pcap.read(path))


@cache
def golden_trains() -> tuple[tuple[bytes, int], ...]:
    """Return the DATA of `tests/vectors` as trains with their segment sizes, with and without header extensions."""
    trains: list[tuple[bytes, int]] = []
    for path in sorted(VECTORS.glob("*.pcap")):
        messages = [decode(packet.payload) for packet in pcap.read(path)]
        data = [message for message in messages if isinstance(message, Data)]
        trains += as_trains([message.encode() for message in data])
        trains += as_trains([replace(message, extensions=()).encode() for message in data])
    return tuple(trains)


def as_trains(data: list[bytes]) -> Iterator[tuple[bytes, int]]:
    """Join datagrams into trains as a sender would.

    Only the last datagram of a train may be shorter than the others.
    """
    start = 0
    while start < len(data):
        size, end = len(data[start]), start + 1
        while end < len(data) and len(data[end]) == size:
            end += 1
        if end < len(data) and len(data[end]) < size:
            end += 1
        yield b"".join(data[start:end]), size
        start = end


class Mutator:
    """A generator of cases, made by mutating packets of real captures. The same seed makes the same cases."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random
        kinds: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for data in golden_datagrams():
            # Group packets by type, header length, flavor or flags, and FEC id: most packets are DATA, and most DATA
            # are alike.
            kinds[data[:2] + data[12:14]].append(data)
        self._kinds = list(kinds.values())
        self._trains = golden_trains()
        self._same_length: tuple[Callable[[bytearray], None], ...] = (self._flip_bit, self._set_byte, self._lie)
        self._mutations = (
            *self._same_length,
            self._retype,
            self._truncate,
            self._delete,
            self._insert,
            self._repeat,
            self._splice,
        )

    def datagram(self) -> bytes:
        """Return one packet with up to four random faults. Some packets have none."""
        data = bytearray(self._golden())
        for _ in range(self._below(5)):
            self._mutations[self._below(len(self._mutations))](data)
        return bytes(data)

    def train(self) -> tuple[bytes, int]:
        """Return a train of a few segments with random faults, and its segment size, which may be wrong."""
        joined, segment_bytes = self._trains[self._below(len(self._trains))]
        start = segment_bytes * self._below(len(joined) // segment_bytes)
        data = bytearray(joined[start : start + segment_bytes * (1 + self._below(6))])
        for _ in range(self._below(4)):
            at = segment_bytes * self._below(len(data) // segment_bytes + 1)
            segment = data[at : at + segment_bytes]
            if self._random() < 0.8:
                self._same_length[self._below(len(self._same_length))](segment)
            else:
                self._mutations[self._below(len(self._mutations))](segment)
            data[at : at + segment_bytes] = segment
        if self._random() < 0.1:
            segment_bytes += self._below(9) - 4
        elif self._random() < 0.1:
            segment_bytes = 1 + self._below(80)
            del data[16 * segment_bytes :]
        return bytes(data), max(segment_bytes, 1)

    def _golden(self) -> bytes:
        packets = self._kinds[self._below(len(self._kinds))]
        return packets[self._below(len(packets))]

    def _below(self, limit: int) -> int:
        return int(self._random() * limit)

    def _place(self, data: bytearray) -> int:
        return self._below(min(len(data), HEADER_BYTES) if self._random() < 0.8 else len(data))

    def _flip_bit(self, data: bytearray) -> None:
        if data:
            data[self._place(data)] ^= 1 << self._below(8)

    def _set_byte(self, data: bytearray) -> None:
        if data:
            data[self._place(data)] = (0, 1, 2, 3, 5, 64, 128, 129, 255, self._below(256))[self._below(10)]

    def _retype(self, data: bytearray) -> None:
        if len(data) > 12:
            data[0] = 0x10 | self._below(8)
            data[12] = self._below(9)

    def _truncate(self, data: bytearray) -> None:
        del data[self._place(data) :]

    def _delete(self, data: bytearray) -> None:
        at = self._place(data)
        del data[at : at + 1 + self._below(8)]

    def _insert(self, data: bytearray) -> None:
        at = self._place(data)
        data[at:at] = bytes(self._below(256) for _ in range(1 + self._below(8)))

    def _repeat(self, data: bytearray) -> None:
        at = self._place(data) & ~3
        data[at:at] = data[at : at + 4 * (1 + self._below(6))]

    def _splice(self, data: bytearray) -> None:
        other = self._golden()
        at = self._place(data)
        data[at:] = other[at if self._random() < 0.5 else self._below(len(other)) :]

    def _lie(self, data: bytearray) -> None:
        """Falsify a length field: that of the header, or of a header extension or repair request."""
        if len(data) > 1 and self._random() < 0.4:
            data[1] = self._below(16) if self._random() < 0.5 else data[1] + self._below(5) - 2 & 255
        elif len(data) > 24:
            at = 4 * self._below(min(len(data), HEADER_BYTES) // 4)
            data[at + (1 if self._random() < 0.5 else 3)] = self._below(24)


def outcomes(cases: int, seed: int) -> Iterator[str]:
    """Yield the outcome of each case. Raise BrokenInvariantError if a case breaks an invariant."""
    mutator = Mutator(seed)
    chance = Random(~seed).random
    for _ in range(cases):
        if chance() < TRAIN_SHARE:
            yield _try_train(*mutator.train())
        else:
            yield _try_datagram(mutator.datagram())


def _try_datagram(data: bytes) -> str:
    try:
        outcome = check_datagram(data)
    except Exception as error:
        raise BrokenInvariantError(data, None, error) from error
    return f"error: {_DIGITS.sub('N', outcome.what)}" if isinstance(outcome, WireError) else type(outcome).__name__


def _try_train(data: bytes, segment_bytes: int) -> str:
    try:
        # A new reader for each case, so that a failure can be reproduced without the cases before it.
        recognised = check_train(data, segment_bytes, DataReader())
    except Exception as error:
        raise BrokenInvariantError(data, segment_bytes, error) from error
    if not recognised:
        return "train without DATA"
    return "train of DATA" if recognised * segment_bytes >= len(data) else "train of DATA and others"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="fuzz.py",
        description=__doc__,
        epilog="Exit status: 0 if all went as promised, 1 if not (the case is printed), 130 if interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--cases", type=int, default=1_000_000, metavar="N", help="how many to try (default: 1,000,000)")
    add("--seed", type=int, metavar="S", help="makes the same cases again (default: a new one, which is printed)")
    add("--replay", type=bytes.fromhex, metavar="HEX", help="try these bytes and nothing else, as a failure says")
    add("--segment-bytes", type=int, metavar="N", help="with --replay: the bytes are a train of such segments")
    options = parser.parse_args(arguments)
    if options.cases < 1:
        parser.error(f"--cases {options.cases}: expected 1 at least")
    if options.segment_bytes is not None and (options.replay is None or options.segment_bytes < 1):
        parser.error("--segment-bytes: expected 1 at least, together with --replay")
    try:
        if options.replay is not None:
            print(_replay(options.replay, options.segment_bytes))
            return 0
        return _fuzz(options.cases, Random().getrandbits(32) if options.seed is None else options.seed)
    except BrokenInvariantError as error:
        print(error, file=sys.stderr)
        return 1


def _replay(data: bytes, segment_bytes: int | None) -> str:
    return _try_datagram(data) if segment_bytes is None else _try_train(data, segment_bytes)


def _fuzz(cases: int, seed: int) -> int:
    print(f"seed {seed}, {cases:,} cases", flush=True)
    counts: Counter[str] = Counter()
    show_progress = sys.stderr.isatty()
    started = time.perf_counter()
    status = 0
    try:
        for done, outcome in enumerate(outcomes(cases, seed), 1):
            counts[outcome] += 1
            if show_progress and done % 8192 == 0:
                rate = done / (time.perf_counter() - started)
                print(
                    f"\r{done:,} cases, {rate:,.0f} cases/s, {done / cases:.0%} ", end="", file=sys.stderr, flush=True
                )
    except KeyboardInterrupt:
        status = 130
    finally:
        if show_progress:
            print("\r\x1b[K", end="", file=sys.stderr)
        if status:
            print("interrupted", file=sys.stderr)
        _print_summary(counts, time.perf_counter() - started)
    return status


def _print_summary(counts: Counter[str], elapsed_s: float) -> None:
    for outcome, count in sorted(counts.items(), key=lambda item: (item[0].startswith("error"), -item[1])):
        print(f"{count:>10,}  {outcome}")
    print(f"{counts.total():>10,}  cases in {elapsed_s:.1f} s, {counts.total() / elapsed_s:,.0f} cases/s")


if __name__ == "__main__":
    sys.exit(main())
