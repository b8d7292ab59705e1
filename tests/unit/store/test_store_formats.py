"""Tests of everything that is on disk as bytes: what is written is read again, and nothing else is."""

import subprocess
import sys
from dataclasses import astuple
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.store.contents import Contents
from fjm2.store.disk import SECTOR_BYTES
from fjm2.store.format.batches import (
    BATCH_HEAD,
    BatchHead,
    SegmentHead,
    encode_segment_head,
    parse_batch_head,
    parse_segment_head,
    seal_batch,
)
from fjm2.store.format.checkpoints import Position, Snapshot, decode, encode
from fjm2.store.format.checksums import PREFERRED, Algorithm, checksum_of
from fjm2.store.format.identity import VERSION, Identity, parse_identity
from fjm2.store.index import Entries
from fjm2.store.runs import Kind, Run, StoredRun, parse_runs
from fjm2.store.segments import Segment
from fjm2.store.sim_disk import SimDisk

U64, U32, U8 = (st.integers(0, 2**bits - 1) for bits in (64, 32, 8))
LEDGERS = st.builds(Ledger, U64, U32, U8)
FIRST = st.integers(1, 2**64 - 100)
RUNS = st.one_of(
    st.builds(Run.of, LEDGERS, FIRST, st.lists(st.binary(max_size=40), max_size=20)),
    st.builds(Run.counted, LEDGERS, FIRST, st.integers(0, 99)),
    st.builds(Run.promise, LEDGERS, FIRST, st.binary(min_size=16, max_size=16)),
)


def seal(runs: list[Run], lsn: int = 7, salt: int = 3, incarnation: int = 9) -> bytes:
    parts: list[bytes] = [part for run in runs for part in run.encode()]
    seal_batch(parts, BatchHead(PREFERRED, 0, 0, 5, lsn, salt, incarnation, len(runs)))
    return b"".join(parts)


def parse(data: bytes, count: int) -> list[StoredRun]:
    return list(parse_runs(lambda at, size: data[at : at + size], BATCH_HEAD.size, len(data), count))


@given(st.lists(RUNS, max_size=8))
def test_batches_are_read_as_they_were_written(runs: list[Run]) -> None:
    data = seal(runs)
    assert len(data) % SECTOR_BYTES == 0
    head = parse_batch_head(data, len(data))
    assert head is not None
    assert (head.length, head.previous, head.lsn, head.salt, head.incarnation) == (len(data), 5, 7, 3, 9)
    assert checksum_of(head.algorithm, [data[12:]]) == head.checksum
    for run, found in zip(runs, parse(data, head.runs), strict=True):
        assert (found.ledger, found.kind, found.first, found.count) == (run.ledger, run.kind, run.first, run.count)
        assert found.lengths.tolist() == run.lengths.tolist()
        assert data[found.data_offset :][: len(run.data)] == run.data


def test_a_batch_on_disk_is_as_documented() -> None:
    data = seal([Run.of(Ledger(1, 2, 3), 4, [b"ab", b""])])
    assert data[:4] == b"FJB%d" % PREFERRED
    assert data[4:8] == (512).to_bytes(4, "big")
    assert data[12:16] + data[16:24] + data[24:32] + data[32:40] == bytes.fromhex(
        "00000005000000000000000700000000000000030000000000000009"
    )
    assert data[40:64] == bytes.fromhex("00000001 00000000") + bytes(16)
    assert data[64:] == bytes.fromhex(
        "0000000000000001 00000002 03 00 0000 0000000000000004 00000002 00000002 00000002 00000000"
    ) + b"ab".ljust(512 - 64 - 40, b"\0")


def test_checksums_are_as_published() -> None:
    assert checksum_of(Algorithm.CRC32C, [b"12345", b"6789"]) == 0xE3069283  # the check value of CRC-32C
    assert checksum_of(Algorithm.ZLIB, [b"12345", b"6789"]) == 0xCBF43926


PROGRAM = """
import sys
sys.modules["crc32c"] = None  # as if it were not installed
from fjm2.store.format.batches import parse_batch_head
from fjm2.store.format.checksums import checksum_of
from fjm2.store.format.identity import parse_identity
identity, batch = map(bytes.fromhex, sys.argv[1:])
head = parse_batch_head(batch, len(batch))
print(parse_identity(identity).incarnation, checksum_of(head.algorithm, [batch[12:]]) == head.checksum)
written = parse_identity(identity).encode()
print(written[:4].decode(), parse_identity(written) == parse_identity(identity))
"""


def test_without_the_package_a_store_is_read_and_written() -> None:
    """Structures with CRC-32C can be checked, and new ones get zlib's CRC-32."""
    if PREFERRED is not Algorithm.CRC32C:
        pytest.skip("the package crc32c is not installed")
    identity, batch = Identity(bytes(16), 7).encode(), seal([Run.of(Ledger(1, 2, 3), 4, [bytes(1000)])])
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, identity.hex(), batch.hex()],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (run.stdout.split(), run.returncode) == (["7", "True", "FJI2", "True"], 0), run.stderr


@given(st.lists(RUNS, max_size=3), st.data())
def test_any_flipped_bit_of_a_batch_is_seen(runs: list[Run], data: st.DataObject) -> None:
    good = seal(runs)
    bad = bytearray(good)
    bad[data.draw(st.integers(0, len(bad) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    head = parse_batch_head(bytes(bad), len(bad))
    assert head is None or checksum_of(head.algorithm, [bytes(bad[12 : head.length])]) != head.checksum


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_bytes_that_are_no_runs_are_refused(data: bytes, count: int) -> None:
    padded = bytes(BATCH_HEAD.size) + data
    try:
        runs = parse(padded, count)
    except ValueError:
        return
    assert len(runs) == count


@given(RUNS, st.integers(0, 35), st.integers(0, 255))
def test_a_broken_run_is_refused_or_stays_within_its_batch(run: Run, at: int, value: int) -> None:
    data = bytearray(seal([run]))
    data[BATCH_HEAD.size + at % 32] = value
    try:
        runs = parse(bytes(data), 1)
    except ValueError:
        return
    assert runs[0].data_offset + int(runs[0].lengths.sum()) <= len(data)
    assert runs[0].kind in Kind


@given(U32, U64, U64, U64)
def test_segment_heads(number: int, salt: int, lsn: int, size: int) -> None:
    head = SegmentHead(number, salt, lsn, size)
    data = encode_segment_head(head)
    assert len(data) == SECTOR_BYTES
    assert parse_segment_head(data) == head
    assert parse_segment_head(data[:-1] + b"x") is None
    assert parse_segment_head(data[:20] + bytes([data[20] ^ 1]) + data[21:]) is None


@given(st.binary(max_size=600))
def test_other_bytes_are_no_heads(data: bytes) -> None:
    assert parse_segment_head(data) is None
    assert parse_batch_head(data, len(data)) is None
    assert parse_identity(data) is None


@given(st.binary(min_size=16, max_size=16), U64, U64, st.data())
def test_identities(keeper_id: bytes, incarnation: int, cell_id: int, data: st.DataObject) -> None:
    identity = Identity(keeper_id, incarnation, cell_id)
    good = identity.encode()
    assert parse_identity(good) == identity
    at = data.draw(st.integers(0, len(good) - 1))
    assert parse_identity(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :]) is None


def test_an_identity_of_a_newer_format_is_refused() -> None:
    good = bytearray(Identity(bytes(16), 1).encode() + b"more")
    good[8:12] = (VERSION + 1).to_bytes(4, "big")
    good[4:8] = checksum_of(PREFERRED, [bytes(good[8:])]).to_bytes(4, "big")
    with pytest.raises(ConfigError, match="identity: format 2 at offset 8: expected 1 at most"):
        parse_identity(bytes(good))


def snapshot_of(seed: int) -> Snapshot:
    random = Random(seed)
    contents = Contents()
    segments = [Segment(n, -1, 1 << 20, random.getrandbits(64), n + 1, n + 2, 4096) for n in range(5)]
    for _ in range(random.randint(0, 30)):
        ledger = Ledger(random.randint(0, 3), 0, 0)
        lengths = np.array([random.randint(0, 99) for _ in range(random.randint(1, 50))], np.uint32)
        run = StoredRun(ledger, Kind.FRAMES, random.randint(1, 3000), len(lengths), lengths, 0)
        contents.apply(run, random.randrange(5), random.randint(512, 1 << 19))
        contents.promise(ledger, random.randint(1, 9), random.randbytes(16))
        contents.release(ledger, random.randint(1, 3000), 3000)
    state = random.randbytes(random.choice((0, 10, 3 << 20)))
    snapshot = Snapshot(random.getrandbits(64), Position(3, 4, 2, 1024), contents, segments, {1, 3}, state)
    snapshot.freeze()
    return snapshot


def joined(parts: list[Entries]) -> list[list[int]]:
    return [place for part in parts for place in part.places.tolist()]


@pytest.mark.parametrize("seed", range(10))
def test_checkpoints_are_read_as_they_were_written(seed: int) -> None:
    snapshot = snapshot_of(seed)
    before = [joined(parts) for _, _, parts in snapshot.entries]
    data = b"".join(encode(snapshot))
    disk = SimDisk(seed)
    disk.put("checkpoint-1", data)
    found = decode(disk, "checkpoint-1")
    assert found is not None
    assert (found.incarnation, found.position, found.state) == (snapshot.incarnation, snapshot.position, snapshot.state)
    assert list(map(astuple, found.segments)) == list(map(astuple, snapshot.segments))
    assert found.dead == snapshot.dead
    assert found.contents.promises == snapshot.contents.promises
    assert found.contents.live == snapshot.contents.live
    for ledger, index in snapshot.contents.ledgers.items():
        assert found.contents.ledgers[ledger].known == index.known
        assert found.contents.ledgers[ledger].count == index.count
    after = [joined(index.snapshot()) for index in found.contents.ledgers.values()]
    assert after == before


def test_a_checkpoint_with_any_byte_changed_is_bad() -> None:
    data = b"".join(encode(snapshot_of(3)))
    random = Random(1)
    for at in [*range(80), *(random.randrange(len(data)) for _ in range(100)), len(data) - 1]:
        disk = SimDisk(1)
        disk.put("checkpoint-1", data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert decode(disk, "checkpoint-1") is None


def test_a_checkpoint_that_was_cut_is_bad() -> None:
    data = b"".join(encode(snapshot_of(4)))
    for size in [*range(0, 200, 7), len(data) - 1]:
        disk = SimDisk(1)
        disk.put("checkpoint-1", data[:size])
        assert decode(disk, "checkpoint-1") is None


@given(st.integers(0, 10_000), U8)
def test_a_checkpoint_with_a_right_checksum_and_wrong_content_is_bad_or_harmless(at: int, value: int) -> None:
    data = bytearray(_SOME)
    data[4 + at % (len(data) - 8)] = value
    data[-4:] = checksum_of(PREFERRED, [bytes(data[:-4])]).to_bytes(4, "big")
    disk = SimDisk(1)
    disk.put("checkpoint-1", bytes(data))
    try:
        found = decode(disk, "checkpoint-1")
    except ConfigError:
        return
    if found is not None:
        sizes = {segment.number: segment.size for segment in found.segments}
        for index in found.contents.ledgers.values():
            for entries in index.snapshot():
                for number, offset, length in entries.places.tolist():
                    assert offset + length <= sizes[number]


_SOME = b"".join(encode(snapshot_of(6)))
