import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.norm.core.partition import UNBOUNDED, ObjectPartition, Partition, StreamPartition, locate

partitions = st.builds(
    ObjectPartition,
    object_bytes=st.integers(1, 5000),
    segment_bytes=st.integers(1, 300),
    block_segments=st.integers(1, 40),
)
large_partitions = st.builds(
    ObjectPartition,
    object_bytes=st.integers(1, 2**48 - 1),
    segment_bytes=st.integers(1, 65535),
    block_segments=st.integers(1, 65535),
)


def blocks_by_dealing(object_bytes: int, segment_bytes: int, block_segments: int) -> list[int]:
    """Return block lengths.

    They are computed by dealing segments one by one to the fewest blocks that can hold them.
    """
    segments = len(range(0, object_bytes, segment_bytes))
    blocks = [0] * len(range(0, segments, block_segments))
    for segment in range(segments):
        blocks[segment % len(blocks)] += 1
    return blocks


def places_of(partition: ObjectPartition) -> list[tuple[int, int]]:
    """Return the block and symbol of every segment, in order."""
    return [(block, symbol) for block in range(partition.blocks) for symbol in range(partition.block_length(block))]


def index_of(partition: Partition, block: int, symbol: int) -> int:
    return int(partition.indexes(np.array([block]), np.array([symbol]))[0])


@pytest.mark.parametrize(
    ("object_bytes", "segment_bytes", "block_segments", "segments", "lengths", "last"),
    [
        (300, 1024, 64, 1, [1], 300),
        (205, 16, 5, 13, [5, 4, 4], 13),
        (5050, 100, 8, 51, [8, 8, 7, 7, 7, 7, 7], 50),
        (20000, 256, 16, 79, [16, 16, 16, 16, 15], 32),
        (8000, 256, 10, 32, [8, 8, 8, 8], 64),
        (20000, 128, 250, 157, [157], 32),
        (33333, 500, 20, 67, [17, 17, 17, 16], 333),
        (2560, 256, 10, 10, [10], 256),
        (2561, 256, 10, 11, [6, 5], 1),
    ],
)
def test_partitions_of_the_reference(
    object_bytes: int, segment_bytes: int, block_segments: int, segments: int, lengths: list[int], last: int
) -> None:
    partition = ObjectPartition(object_bytes, segment_bytes, block_segments)
    assert partition.segments == segments
    assert [partition.block_length(block) for block in range(partition.blocks)] == lengths
    assert partition.segment_length(segments - 1) == last


@given(st.integers(0, 5000), st.integers(1, 300), st.integers(1, 40))
def test_segments_are_dealt_evenly_to_the_fewest_blocks(
    object_bytes: int, segment_bytes: int, block_segments: int
) -> None:
    partition = ObjectPartition(object_bytes, segment_bytes, block_segments)
    lengths = [partition.block_length(block) for block in range(partition.blocks)]
    assert lengths == blocks_by_dealing(object_bytes, segment_bytes, block_segments)


@given(partitions)
def test_blocks_follow_each_other_and_cover_every_segment(partition: ObjectPartition) -> None:
    at = 0
    for block in range(partition.blocks):
        assert partition.first_segment(block) == at
        at += partition.block_length(block)
    assert at == partition.segments


@given(partitions)
def test_locating_is_the_inverse_of_indexing(partition: ObjectPartition) -> None:
    places = [locate(partition, index) for index in range(partition.segments)]
    assert places == places_of(partition)
    blocks, symbols = np.array(places).T
    assert partition.indexes(blocks, symbols).tolist() == list(range(partition.segments))


@given(partitions, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1))
def test_symbols_beyond_a_block_or_the_object_have_no_index(
    partition: ObjectPartition, places: list[tuple[int, int]]
) -> None:
    known = {place: index for index, place in enumerate(places_of(partition))}
    blocks, symbols = np.array(places).T
    for place, index in zip(places, partition.indexes(blocks, symbols).tolist(), strict=True):
        assert index == known[place] if place in known else index < 0


@given(partitions)
def test_regions_are_blocks_of_one_length(partition: ObjectPartition) -> None:
    at = 0
    while at < partition.segments:
        region = start, end, first_block, block_segments = partition.region(at)
        assert (start, partition.first_segment(first_block)) == (at, at)
        assert partition.region(end - 1) == region
        blocks, rest = divmod(end - start, block_segments)
        assert rest == 0
        lengths = {partition.block_length(block) for block in range(first_block, first_block + blocks)}
        assert lengths == {block_segments}
        at = end


@given(partitions)
def test_segments_hold_every_byte_once_and_only_the_last_is_short(partition: ObjectPartition) -> None:
    lengths = [partition.segment_length(index) for index in range(partition.segments)]
    assert sum(lengths) == partition.object_bytes
    assert set(lengths[:-1]) <= {partition.segment_bytes}
    assert 1 <= lengths[-1] <= partition.segment_bytes


@given(large_partitions, st.data())
def test_large_objects_are_cut_by_the_same_rules(partition: ObjectPartition, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, partition.segments - 1))
    block, symbol = locate(partition, index)
    assert partition.first_segment(block) + symbol == index == index_of(partition, block, symbol)
    assert 0 <= symbol < partition.block_length(block)
    assert 0 <= block < partition.blocks
    last = partition.blocks - 1
    assert partition.first_segment(last) + partition.block_length(last) == partition.segments


def test_an_empty_object_has_neither_segments_nor_blocks() -> None:
    partition = ObjectPartition(0, 1024, 64)
    assert (partition.segments, partition.blocks) == (0, 0)
    assert index_of(partition, 0, 0) < 0


@pytest.mark.parametrize("sizes", [(-1, 1, 1), (1, 0, 1), (1, 1, 0), (1, -5, 1)])
def test_errors_for_invalid_sizes_name_them(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(sizes))):
        ObjectPartition(*sizes)


@given(st.integers(1, 65535), st.integers(0, 2**40))
def test_streams_have_endless_blocks_of_one_length(block_segments: int, index: int) -> None:
    partition = StreamPartition(block_segments)
    block, symbol = locate(partition, index)
    assert (block, symbol) == (index // block_segments, index % block_segments)
    assert partition.first_segment(block) + symbol == index == index_of(partition, block, symbol)
    assert partition.block_length(block) == block_segments
    assert partition.segments == UNBOUNDED
    assert index_of(partition, block, block_segments) < 0
