"""Tests of ingestion: every written line is in the warehouse once, despite changes of files and crashes."""

import gzip
import json
import os
import shutil
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fjm2bench.traces.warehouse as storage
import pytest
from fjm2bench.traces.files import find, tasks
from fjm2bench.traces.generate import generate
from fjm2bench.traces.ingest import Ingested, ingest, read_table
from fjm2bench.traces.lines import LINE_BYTES_MAX, TO_ITS_END, Lines, Split, decode_splits, lines_of, open_file
from fjm2bench.traces.refresh import aggregate
from fjm2bench.traces.stream import TraceReader, stream
from fjm2bench.traces.warehouse import Warehouse, WarehouseError
from pyspark.sql import SparkSession
from representatives import representatives
from trace_lines import T, encode, result, sample, write
from trace_tables import contents

VECTORS = Path(__file__).parents[1] / "vectors"


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(tmp_path / "warehouse")


def samples(count: int, first: int = 0, **keys: Any) -> list[Any]:
    return [sample(seq=seq, t=T + seq / 10, **keys) for seq in range(first, first + count)]


def seqs(spark: SparkSession, warehouse: Warehouse) -> list[int]:
    rows = read_table(spark, warehouse, "rows")
    return [] if rows is None else sorted(row["seq"] for row in rows.select("seq").collect())


# Files to lines, without Spark.


def cut(path: Path, *borders: int) -> list[bytes]:
    """Read a file in parts that begin at these offsets, and return its lines."""
    size = path.stat().st_size
    found = []
    for start, end in zip((0, *borders), (*borders, size), strict=True):
        for lines in lines_of(Split(str(path), start, end, size, start == 0)):
            found += _texts(lines, path)
    return found


def _texts(lines: Lines, path: Path) -> Iterator[bytes]:
    whole = path.read_bytes()
    for start, end in zip(lines.starts[:-1], lines.starts[1:], strict=True):
        text = lines.data[start:end]
        if lines.fault != "oversize":
            assert whole[lines.offset + start : lines.offset + end] == text
        yield text


@pytest.mark.parametrize("text", [b"", b"a", b"a\n", b"\n", b"\n\n", b"a\nbb\n\nccc\nd", b"aaaa\nb\n"])
def test_a_file_in_parts_is_the_file(folder: Path, text: bytes) -> None:
    path = folder / "x.jsonl"
    path.write_bytes(text)
    for first in range(1, len(text)):
        for second in range(first, len(text)):
            assert b"".join(cut(path, first, second)) == text


@pytest.mark.parametrize("blocks", [16, 1 << 20])
def test_lines_that_are_too_long_cost_no_memory_and_no_other_line(
    folder: Path, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fjm2bench.traces.lines.BLOCK_BYTES", blocks * 1024)
    long = b"x" * (LINE_BYTES_MAX * 5)
    path = write(folder, "x.jsonl", [b"one", long, b"two", b"y" * LINE_BYTES_MAX, long])
    faults = []
    for lines in lines_of(Split(str(path), 0, path.stat().st_size, path.stat().st_size, True)):
        assert len(lines.data) <= blocks * 1024 + LINE_BYTES_MAX
        faults += [
            lines.fault or ("long" if size > LINE_BYTES_MAX + 1 else None)
            for size in lines.starts[1:] - lines.starts[:-1]
        ]
    assert [fault is not None for fault in faults] == [False, True, False, False, True]


def test_a_broken_archive_gives_its_whole_lines_and_a_fault(folder: Path) -> None:
    path = folder / "x.jsonl.gz"
    path.write_bytes(gzip.compress(encode(samples(2000)))[:-2000])
    *good, last = list(lines_of(Split(str(path), 0, 1 << 62, 1 << 62, True)))
    assert last.fault == "unreadable"
    assert sum(len(lines.starts) - 1 for lines in good) > 100


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_a_file_compressed_after_it_was_found_is_still_read(folder: Path, name: str) -> None:
    """The file is read in parts, which may begin in the middle of a line."""
    plain, text = folder / "x.jsonl", encode(samples(50))
    (folder / "x.jsonl.gz").write_bytes(gzip.compress(text))
    found = b""
    for start, end in ((0, 1000), (1000, 1001), (1001, len(text))):
        for lines in lines_of(Split(str(folder / name), start, end, len(text), start == 0)):
            assert lines.fault is None
            found += lines.data[: lines.starts[-1]]
    assert found == text
    assert not plain.exists()


def test_a_file_that_is_gone_is_a_bad_line(folder: Path) -> None:
    (gone,) = lines_of(Split(str(folder / "x.jsonl"), 0, 100, 100, True))
    assert gone.fault == "unreadable"
    assert b"x.jsonl" in gone.data


# Files to tables.


def test_rows_and_bad_lines_are_all_lines(spark: SparkSession, folder: Path, warehouse: Warehouse) -> None:
    made = generate(folder, 3000, broken=0.2)
    write(folder, "odd.jsonl", [b"x" * 100_000, b"\xff\xfe", sample(run="odd")])
    with (folder / "odd.jsonl").open("ab") as file:
        file.write(b'{"v":1,"kind":"sam')
    written = sum(len(_open(path).splitlines()) for path in folder.rglob("*.jsonl*"))
    done = ingest(spark, folder, warehouse, settle_s=0)
    assert done.lines == written
    assert done.counts == {"rows": made.good + 1, "results": made.results, "bad": made.bad.total() + 3}
    made.bad.update(oversize=1, utf8=1, torn=1)
    assert done.reasons == made.bad
    bad = read_table(spark, warehouse, "bad")
    assert bad is not None
    torn = bad.where("reason = 'torn'").first()
    assert torn is not None
    assert torn["text"] == '{"v":1,"kind":"sam'
    assert (folder / "odd.jsonl").read_bytes()[torn["offset"] :] == torn["text"].encode()


def _open(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_only_what_is_new_is_read(spark: SparkSession, folder: Path, warehouse: Warehouse) -> None:
    path = write(folder, "run=r1/node=n1.jsonl", samples(5))
    assert ingest(spark, folder, warehouse).counts == {"rows": 5}
    assert ingest(spark, folder, warehouse).batch is None
    with path.open("ab") as file:  # the file grows; its last line is not complete yet
        file.write(encode(samples(3, 5)) + encode(samples(1, 8))[:40])
    grown = ingest(spark, folder, warehouse, settle_s=3600)
    assert (grown.counts, grown.pending) == ({"rows": 3}, [str(path)])
    with path.open("ab") as file:
        file.write(encode(samples(1, 8))[40:])
    assert ingest(spark, folder, warehouse, settle_s=3600).counts == {"rows": 1}
    (path.parent / "node=n1.jsonl.gz").write_bytes(gzip.compress(path.read_bytes() + encode(samples(2, 9))))
    path.unlink()  # an operator has compressed the file, after two more lines
    assert ingest(spark, folder, warehouse, settle_s=0).counts == {"rows": 2}
    assert ingest(spark, folder, warehouse, settle_s=0).batch is None
    assert seqs(spark, warehouse) == list(range(11))


def test_a_shrunk_file_is_reported(folder: Path) -> None:
    path = write(folder, "x.jsonl", samples(2))
    done = find(folder, {}, 0).done
    os.truncate(path, path.stat().st_size - 10)
    found = find(folder, done, 0)
    assert (found.splits, found.shrunk) == ([], [str(path)])


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.pcap", "x.jsonl"])
def test_files_removed_before_they_are_read_stop_nothing(folder: Path, name: str) -> None:
    gone = Split(str(folder / name), 0, TO_ITS_END, TO_ITS_END, True)
    (text,) = tasks([gone])
    assert decode_splits(text) == [gone]
    assert [lines.fault for lines in lines_of(gone)] == ["unreadable"]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_another_file_of_the_same_name_is_read_from_its_beginning(folder: Path, count: int) -> None:
    """The new file may be smaller or larger than the removed one."""
    path = write(folder, "x.jsonl", samples(5))
    done = find(folder, {}, 0).done
    path.unlink()
    write(folder, "x.jsonl", samples(count, first=100))
    size = path.stat().st_size
    again = find(folder, done, 0)
    assert (again.splits, again.shrunk) == ([Split(str(path), 0, size, size, True)], [])
    assert find(folder, again.done, 0).splits == []
    with path.open("ab") as file:
        file.write(encode(samples(1, first=200)))
    assert [split.start for split in find(folder, again.done, 0).splits] == [size]


def test_after_a_crash_a_stream_reads_the_same_batch_again(folder: Path) -> None:
    """The batch contains a file that grew, a new file, and a file that replaced another."""
    reader = TraceReader({"path": str(folder), "settle_s": "0", "batch_bytes": str(1 << 20)})
    for name in ("grows", "goes", "stays"):
        write(folder, f"{name}.jsonl", samples(5))
    write(folder, "packed.jsonl.gz", [gzip.compress(encode(samples(5)))])
    _, start = reader.read(reader.initialOffset())
    with (folder / "grows.jsonl").open("ab") as file:
        file.write(encode(samples(2, first=5)))
    (folder / "goes.jsonl").unlink()
    write(folder, "goes.jsonl", samples(9, first=100))
    write(folder, "new.jsonl", samples(3))
    rows, end = reader.read(start)
    splits = list(rows)
    assert [start, end] == json.loads(json.dumps([start, end]))  # as the checkpoint stores them
    assert _splits(reader.readBetweenOffsets(start, end)) == _splits(splits)
    begins = {Path(split.file).stem: split.start > 0 for split in _splits(reader.readBetweenOffsets(start, end))}
    assert begins == {"grows": True, "goes": False, "new": False}
    for name in ("new", "goes", "grows"):  # all of them are compressed before the batch is read again
        (folder / f"{name}.jsonl.gz").write_bytes(gzip.compress((folder / f"{name}.jsonl").read_bytes()))
        (folder / f"{name}.jsonl").unlink()
    assert _splits(reader.readBetweenOffsets(start, end)) == _splits(splits)


def _splits(rows: Iterable[tuple[str]]) -> list[Split]:
    return sorted((split for (text,) in rows for split in decode_splits(text)), key=lambda split: split.file)


def test_names_of_files_may_be_any_bytes(spark: SparkSession, folder: Path, warehouse: Warehouse) -> None:
    for index, name in enumerate((b"\xff\xfe", "\u00fc \U0001f600".encode(), b"%20 [*]'\"#?\n:")):
        (folder / os.fsdecode(name + b".jsonl")).write_bytes(encode(samples(1, index)))
    assert ingest(spark, folder, warehouse, settle_s=0).counts == {"rows": 3}
    rows = read_table(spark, warehouse, "rows")
    assert rows is not None
    names = {Path(row["file"]).name for row in rows.select("file").collect()}
    assert names == {"\\xff\\xfe.jsonl", "\u00fc \U0001f600.jsonl", "%20 [*]'\"#?\n:.jsonl"}
    assert ingest(spark, folder, warehouse, settle_s=0).batch is None


def test_captures_become_samples(spark: SparkSession, folder: Path, warehouse: Warehouse) -> None:
    (folder / "run=lossy").mkdir()
    shutil.copy(VECTORS / "loss-stream.pcap", folder / "run=lossy" / "node=tap.pcap")
    (folder / "no.pcap").write_bytes(b"this is no capture at all")
    done = ingest(spark, folder, warehouse, settle_s=0)
    rows = read_table(spark, warehouse, "rows")
    assert rows is not None
    found = rows.where("source like 'sender:%'").selectExpr("run", "node", "role", "datagrams_sent").collect()
    assert {row[:3] for row in found} == {("lossy", "tap", "capture")}
    assert sum(row["datagrams_sent"] or 0 for row in found) > 10
    assert done.reasons == {"unreadable": 1}


def test_captures_are_read_in_a_time_that_grows_as_they_do(folder: Path) -> None:
    """The capture has one packet a minute, which makes many lines."""
    vector = (VECTORS / "loss-stream.pcap").read_bytes()
    captured, length = struct.unpack_from("<II", vector, 32)
    path = folder / "x.pcap"

    def cpu_s(packets: int) -> float:
        records = (struct.pack("<IIII", int(T) + 50 * number, 0, captured, length) for number in range(packets))
        path.write_bytes(vector[:24] + b"".join(record + vector[40 : 40 + captured] for record in records))
        begun = time.process_time()
        with open_file(str(path)) as lines:
            assert lines.read(1 << 28).count(b"\n") > 90 * packets
        return time.process_time() - begun

    assert cpu_s(400) < 80 * cpu_s(20)


# Crashes.


class _Died(Exception):  # noqa: N818
    pass


@pytest.mark.parametrize("moves", representatives([None, 0, 1], 1))
def test_a_crash_at_any_point_leaves_each_line_once(
    spark: SparkSession, folder: Path, warehouse: Warehouse, moves: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies before the journal is written, before anything is moved, or between two moves."""
    write(folder, "a.jsonl", [*samples(3), sample(t=T + 86_400, seq=3), "broken"])
    write_state, move = storage.write_json, storage.move
    left = [moves]

    def dying_move(source: Path, target: Path) -> None:
        if left[0] == 0:
            raise _Died
        left[0] = None if left[0] is None else left[0] - 1
        move(source, target)

    def dying_write(path: Path, value: Any) -> None:
        if moves is None and path.name == "journal.json" and value["moves"]:
            raise _Died
        write_state(path, value)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "move", dying_move)
        patch.setattr(storage, "write_json", dying_write)
        with pytest.raises(_Died):
            ingest(spark, folder, warehouse, settle_s=0)
    again = ingest(spark, folder, warehouse, settle_s=0)
    assert (again.batch is None) == (moves is not None)
    assert seqs(spark, warehouse) == [0, 1, 2, 3]
    bad = read_table(spark, warehouse, "bad")
    assert bad is not None
    assert bad.count() == 1


def test_one_at_a_time(spark: SparkSession, folder: Path, warehouse: Warehouse) -> None:
    with warehouse.opened(), pytest.raises(WarehouseError, match="in use"):
        ingest(spark, folder, Warehouse(warehouse.path))
    with warehouse.streamed(), pytest.raises(WarehouseError, match="in use"), Warehouse(warehouse.path).streamed():
        pass


def test_figures_are_updated_while_a_stream_runs(spark: SparkSession, folder: Path, warehouse: Warehouse) -> None:
    """Aggregation and the stream's batches take turns."""
    with warehouse.streamed():
        query = stream(spark, folder, warehouse, lambda: T + 3600, settle_s=0, trigger_s=0)
        try:
            for count in (1, 2):
                write(folder, f"{count}.jsonl", samples(3, run=f"r{count}"))
                query.processAllAvailable()
                assert aggregate(spark, warehouse).tables["by_run"] == count
        finally:
            query.stop()


# Figures.


def two_days(run: str, first: int) -> list[Any]:
    return [sample(run=run, seq=first + index, t=T + index * 30_000) for index in range(6)]


def test_figures_are_updated_where_lines_are_new(spark: SparkSession, folder: Path, warehouse: Warehouse) -> None:
    write(folder, "a.jsonl", [*two_days("a", 0), *two_days("b", 0), result(run="a")])
    ingest(spark, folder, warehouse, settle_s=0)
    first = aggregate(spark, warehouse)
    assert (len(first.days), first.runs) == (3, 2)
    assert isinstance(first.tables["by_run"], int)
    before = os.stat(warehouse.path / "aggregates" / "by_minute" / f"day={first.days[0]}").st_ino
    write(folder, "b.jsonl", [sample(run="b", seq=9, t=T + 150_001), result(run="b")])
    ingest(spark, folder, warehouse, settle_s=0)
    second = aggregate(spark, warehouse)
    assert (second.days, second.runs) == (first.days[2:], 1)
    assert os.stat(warehouse.path / "aggregates" / "by_minute" / f"day={first.days[0]}").st_ino == before
    assert aggregate(spark, warehouse).batches == 0


@pytest.mark.nightly
def test_updated_figures_equal_those_computed_anew(
    spark: SparkSession, folder: Path, warehouse: Warehouse, tmp_path: Path
) -> None:
    write(folder, "a.jsonl", [*two_days("a", 0), *two_days("b", 0), result(run="a")])
    ingest(spark, folder, warehouse, settle_s=0)
    aggregate(spark, warehouse)
    write(folder, "b.jsonl", [sample(run="b", seq=9, t=T + 150_001), result(run="b")])
    ingest(spark, folder, warehouse, settle_s=0)
    aggregate(spark, warehouse)
    anew = Warehouse(tmp_path / "anew")
    ingest(spark, folder, anew, settle_s=0)
    aggregate(spark, anew)
    found = contents(spark, warehouse)
    assert found == contents(spark, anew)
    aggregate(spark, warehouse, anew=True)
    assert contents(spark, warehouse) == found


def test_nothing_is_nothing(spark: SparkSession, folder: Path, warehouse: Warehouse) -> None:
    assert ingest(spark, folder, warehouse) == Ingested()
    assert aggregate(spark, warehouse).tables == {}
