"""Tests of the files that are read, and of those that are not: symbolic links, and captures without NORM traffic."""

import os
import shutil
import struct
from pathlib import Path
from random import Random

import pytest
from fjm2bench.traces.clean import cleaned
from fjm2bench.traces.files import find
from fjm2bench.traces.lines import TO_ITS_END, Split, lines_of, read_lines
from fjm2bench.traces.schema import LINES_TYPE, REASONS, SPLITS_TYPE
from pyspark.sql import SparkSession
from trace_lines import T, sample, write

VECTORS = Path(__file__).parents[1] / "vectors"
_HEADER = (VECTORS / "loss-stream.pcap").read_bytes()[:24]
"""Header of a pcap file of Ethernet packets."""


def names_of(folder: Path) -> list[str]:
    return [Path(split.file).name for split in find(folder, {}, 0).splits]


def test_symbolic_links_in_a_folder_are_not_followed(folder: Path, tmp_path: Path) -> None:
    secret = write(tmp_path, "elsewhere/secret.jsonl", [sample()])
    write(folder, "run=a/node=a.jsonl", [sample()])
    os.symlink("/etc/passwd", folder / "run=a" / "node=b.jsonl")
    os.symlink(secret, folder / "link.jsonl")
    os.symlink(secret.parent, folder / "run=b")
    os.symlink(folder / "run=a", folder / "again")
    os.symlink(folder / "nothing", folder / "broken.pcap")
    os.symlink("/etc/passwd", folder / "notes.txt")  # no name of a trace
    assert names_of(folder) == ["node=a.jsonl"]
    links = {str(folder / name) for name in ("run=a/node=b.jsonl", "link.jsonl", "run=b", "again", "broken.pcap")}
    found = find(folder, {}, 0)
    assert (set(found.links), len(found.links)) == (links, len(links))


def test_a_compressed_link_hides_no_file(folder: Path) -> None:
    """A link beside the compressed file it was made from does not stand for it."""
    (folder / "x.jsonl.gz").write_bytes(b"")
    write(folder, "x.jsonl.gz", [sample()])
    os.symlink("/etc/passwd", folder / "x.jsonl")
    assert names_of(folder) == ["x.jsonl.gz"]


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    path = write(folder, "run=a/node=a.jsonl", [sample()])
    os.symlink(folder, tmp_path / "other")
    assert names_of(tmp_path / "other") == ["node=a.jsonl"]
    os.symlink(path, tmp_path / "one.jsonl")
    assert [split.file for split in find(tmp_path / "one.jsonl", {}, 0).splits] == [str(path)]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz", "x.pcap"])
def test_a_file_replaced_by_a_link_after_it_was_found_is_not_read(folder: Path, name: str) -> None:
    path = folder / name
    path.write_bytes(b"one\n")
    (split,) = find(folder, {}, 0).splits
    path.unlink()
    os.symlink("/etc/passwd", path)
    (lines,) = lines_of(split)
    assert lines.fault == "unreadable"
    assert b"root:" not in lines.data


@pytest.mark.parametrize(
    ("content", "reason", "said"),
    [
        (_HEADER + Random(1).randbytes(4096), "unreadable", b"a packet of "),
        (_HEADER + b"\0" * 7, "unreadable", b"breaks off at byte 31"),
        (_HEADER, "no_norm", b"no packets"),
        (_HEADER + struct.pack("<IIII", int(T), 0, 60, 60) + bytes(60), "no_norm", b"1 packet: 1 not udp"),
    ],
    ids=["noise", "cut", "no packets", "no NORM"],
)
def test_a_capture_without_norm_traffic_is_a_bad_line(folder: Path, content: bytes, reason: str, said: bytes) -> None:
    path = folder / "x.pcap"
    path.write_bytes(content)
    *_, last = lines_of(Split(str(path), 0, TO_ITS_END, TO_ITS_END, True))
    assert last.fault == reason
    assert last.fault in REASONS
    assert said in last.data


def test_a_capture_that_breaks_off_gives_its_samples_and_a_fault(folder: Path) -> None:
    path = folder / "x.pcap"
    whole = (VECTORS / "loss-stream.pcap").read_bytes()
    path.write_bytes(whole[:-5])
    *good, last = lines_of(Split(str(path), 0, TO_ITS_END, TO_ITS_END, True))
    assert sum(len(lines.starts) - 1 for lines in good) > 5
    assert (last.fault, last.data) == ("unreadable", f"breaks off at byte {len(whole) - 5}".encode())
    shutil.copy(VECTORS / "loss-stream.pcap", path)
    assert {lines.fault for lines in lines_of(Split(str(path), 0, TO_ITS_END, TO_ITS_END, True))} == {None}


def test_captures_without_rows_are_in_the_table_of_bad_lines(spark: SparkSession, folder: Path) -> None:
    for name, content in (("noise", _HEADER + Random(1).randbytes(4096)), ("nothing", _HEADER)):
        (folder / f"{name}.pcap").write_bytes(content)
    splits = [Split(str(path), 0, TO_ITS_END, TO_ITS_END, True) for path in sorted(folder.iterdir())]
    from fjm2bench.traces.lines import encode_splits

    texts = spark.createDataFrame([(encode_splits(splits),)], SPLITS_TYPE)
    rows = cleaned(texts.mapInArrow(read_lines, LINES_TYPE), T).collect()
    assert [(Path(row["file"]).stem, row["table"], row["reason"]) for row in rows] == [
        ("noise", "bad", "unreadable"),
        ("nothing", "bad", "no_norm"),
    ]
