"""Tests that parity computed from libnorm's source symbols equals libnorm's parity. See tests/vectors/README.md."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from fjm2.norm.core.fec import ReedSolomon

VECTORS = Path(__file__).parents[3] / "vectors"
STREAM_HEADER_BYTES = 8


class Block(NamedTuple):
    source: NDArray[np.uint8]
    """Source symbols of the block, as rows of bytes. Short payloads are padded with zeros."""
    complete: bool
    """True if the sender sent all of the block's source symbols."""
    parity: dict[int, bytes]
    """Parity symbols of the block by number, from 0."""


class Capture(NamedTuple):
    code: ReedSolomon
    blocks: list[Block]


def partition(object_bytes: int, segment_bytes: int, longest: int) -> list[int]:
    """Return the lengths of all blocks of an object, by the formula of RFC 5052 (section 9.1)."""
    segments = -(-object_bytes // segment_bytes)
    blocks = -(-segments // longest)
    return [segments // blocks + (number < segments % blocks) for number in range(blocks)]


def capture_of(name: str) -> Capture:
    packets = json.loads((VECTORS / f"{name}.json").read_text())["packets"]
    symbols: dict[tuple[int, int], dict[int, bytes]] = defaultdict(dict)
    lengths: dict[tuple[int, int], int] = {}
    for packet in packets:
        if packet["kind"] != "DATA":
            continue
        decoded = packet["decoded"]
        fti = next(e for e in decoded["extensions"] if e["name"] == "EXT_FTI")
        key = decoded["object_id"], decoded["source_block_number"]
        payload = bytes.fromhex(packet["hex"])[decoded["hdr_len"] :]
        symbols[key][decoded["encoding_symbol_id"]] = payload
        lengths[key] = block_length(decoded, fti)
    width = fti["segment_size"] + STREAM_HEADER_BYTES * ("STREAM" in decoded["flags"])
    code = ReedSolomon(fti["max_source_block_len"], fti["num_parity"], fti.get("m", 8))
    return Capture(code, [block_of(symbols[key], lengths[key], width) for key in symbols])


def block_length(decoded: dict[str, Any], fti: dict[str, Any]) -> int:
    if "STREAM" in decoded["flags"]:
        return int(fti["max_source_block_len"])
    lengths = partition(fti["object_size"], fti["segment_size"], fti["max_source_block_len"])
    length = lengths[int(decoded["source_block_number"])]
    assert decoded.get("source_block_length", length) == length
    return length


def block_of(symbols: dict[int, bytes], length: int, width: int) -> Block:
    source = np.zeros((length, width), np.uint8)
    for number in range(length):
        payload = symbols.get(number, b"")
        source[number, : len(payload)] = np.frombuffer(payload, np.uint8)
    parity = {number - length: payload for number, payload in symbols.items() if number >= length}
    assert all(len(payload) == width for payload in parity.values())
    return Block(source, all(number in symbols for number in range(length)), parity)


# Number of parity symbols in each capture. The captures contain all source symbols of their blocks.
PARITY_SENT = {
    "ack-watermark": 2,
    "cc-on": 1,
    "data-rs5-autoparity-loss": 10,
    "fec129": 8,
    "fec129-stream": 1,
    "fec2-m16": 10,
    "fec2-m8": 8,
    "loss-multicast-nack": 4,
    "loss-parity-exhausted": 7,
    "loss-stream": 4,
    "loss-unicast-nack": 9,
    "rs129-vector": 4,
    "rs5-short-blocks": 9,
    "rs5-vector": 4,
    "stream-passive-flush": 2,
}


@pytest.mark.parametrize(("name", "expected"), PARITY_SENT.items(), ids=PARITY_SENT)
def test_parity_is_libnorms_byte_for_byte(name: str, expected: int) -> None:
    code, blocks = capture_of(name)
    checked = 0
    for block in blocks:
        if not block.parity:
            continue
        assert block.complete
        ours = code.encode(block.source[None])[0]
        for number, theirs in block.parity.items():
            assert ours[number].tobytes() == theirs
            checked += 1
    assert checked == expected


@pytest.mark.parametrize("name", PARITY_SENT)
def test_libnorms_parity_brings_back_as_many_sources(name: str) -> None:
    code, blocks = capture_of(name)
    for block in blocks:
        k, width = block.source.shape
        symbols = np.full((1, k + code.parity_count, width), 0xAA, np.uint8)
        present = np.zeros((1, k + code.parity_count), bool)
        kept = k - len(block.parity)
        symbols[0, :kept] = block.source[:kept]
        present[0, :kept] = True
        for number, payload in block.parity.items():
            symbols[0, k + number] = np.frombuffer(payload, np.uint8)
            present[0, k + number] = True
        assert code.decode(symbols, present).all()
        assert np.array_equal(symbols[0, :k], block.source)


def test_vector_of_a_full_block() -> None:
    source = np.arange(6 * 16, dtype=np.uint8).reshape(1, 6, 16)
    assert [row.tobytes().hex() for row in ReedSolomon(6, 4).encode(source)[0]] == [
        "5f5e5d5c5b5a59585756555453525150",
        "05040706010003020d0c0f0e09080b0a",
        "c2c3c0c1c6c7c4c5cacbc8c9cecfcccd",
        "afaeadacabaaa9a8a7a6a5a4a3a2a1a0",
    ]


def test_vector_of_a_short_block() -> None:
    source = np.arange(0x50, 0x90, dtype=np.uint8).reshape(1, 4, 16)
    assert [row.tobytes().hex() for row in ReedSolomon(5, 3).encode(source)[0]] == [
        "f7e8c9d68b94b5aa0f10312e736c4d52",
        "22b21f8f58c865f5d646eb7bac3c9101",
        "f3285883b86313c865bece152ef5855e",
    ]
