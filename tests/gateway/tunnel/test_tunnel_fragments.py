"""Tests of splitting datagrams into parts, and of reassembling them."""

from collections import Counter
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fjm2d.tunnel import Drop
from fjm2d.tunnel.fragments import (
    PART_HEADER_BYTES,
    PARTS_MAX,
    REASSEMBLY_AGE_S,
    REASSEMBLY_BYTES_MAX,
    REASSEMBLY_COUNT_MAX,
    Parts,
    Reassembler,
    Splitter,
    part_bytes_of,
)


def rows(parts: Parts) -> list[np.ndarray]:
    return list(parts.data.reshape(-1, parts.segment_bytes))


def contents(wholes: list[tuple[np.ndarray, int]]) -> list[bytes]:
    return [data.tobytes()[start : start + length] for data, length in wholes for start in range(0, data.size, length)]


def split(splitter: Splitter, datagrams: list[bytes], room: int) -> list[Parts]:
    return splitter.split(np.frombuffer(b"".join(datagrams), np.uint8), len(datagrams[0]), room)


@given(st.integers(1, 65_535), st.integers(9, 9000))
def test_parts_are_as_few_and_as_equal_as_possible(length: int, room: int) -> None:
    part = part_bytes_of(length, room)
    most = room - PART_HEADER_BYTES
    if not part:
        assert -(-length // most) > PARTS_MAX
        return
    assert part <= most
    parts = -(-length // part)
    assert parts <= PARTS_MAX
    assert parts == -(-length // most)
    assert parts * part - length < parts


@given(st.data())
def test_trains_are_reassembled_in_any_order(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 4000))
    number = data.draw(st.integers(1, 8))
    room = data.draw(st.integers(size // 40 + PART_HEADER_BYTES + 1, 2000))
    random = Random(data.draw(st.integers(0, 1000)))
    datagrams = [random.randbytes(size) for _ in range(number)]
    if data.draw(st.booleans()):
        datagrams[-1] = datagrams[-1][: data.draw(st.integers(1, size))]
    trains = split(Splitter(), datagrams, room)
    assert all(train.segment_bytes <= room for train in trains)
    drops: Counter[Drop] = Counter()
    reassembler = Reassembler(drops)
    joined = [whole for train in trains for whole in reassembler.join(*train, 1, 3, 0.0)]
    assert contents(joined) == datagrams
    assert not reassembler.count
    singles = [(row, train.segment_bytes) for train in trains for row in rows(train)]
    random.shuffle(singles)
    joined = [whole for row, step in singles for whole in reassembler.join(row, step, 1, 3, 0.0)]
    assert sorted(contents(joined)) == sorted(datagrams)
    assert (reassembler.count, reassembler.size) == (0, 0)
    assert not drops


def test_datagram_numbers_wrap() -> None:
    splitter = Splitter()
    splitter._next_id = (1 << 32) - 2
    (parts,) = split(splitter, [bytes([number]) * 100 for number in range(4)], 60)
    assert contents(Reassembler(Counter()).join(*parts, 1, 3, 0.0)) == [bytes([number]) * 100 for number in range(4)]
    assert splitter._next_id == 2


def test_parts_of_different_sessions_and_kinds_are_not_mixed() -> None:
    drops: Counter[Drop] = Counter()
    reassembler = Reassembler(drops)
    (one,) = split(Splitter(), [b"1" * 100], 60)
    (two,) = split(Splitter(), [b"2" * 100], 60)
    for session, kind in ((1, 3), (2, 3), (1, 4)):
        assert not reassembler.join(rows(one)[0], one.segment_bytes, session, kind, 0.0)
    assert contents(reassembler.join(rows(two)[1], two.segment_bytes, 2, 3, 0.0)) == [b"1" * 50 + b"2" * 50]
    assert reassembler.count == 2


def test_incomplete_datagrams_are_dropped_after_a_timeout() -> None:
    drops: Counter[Drop] = Counter()
    reassembler = Reassembler(drops)
    (parts,) = split(Splitter(), [bytes(300)], 110)
    first, second, third = rows(parts)
    reassembler.join(first, parts.segment_bytes, 1, 3, 10.0)
    reassembler.join(second, parts.segment_bytes, 1, 3, 10.5)
    assert reassembler.next_at == 10.0 + REASSEMBLY_AGE_S
    reassembler.expire(10.9)
    assert reassembler.count == 1
    reassembler.expire(11.0)
    assert (reassembler.count, reassembler.size) == (0, 0)
    assert drops == {Drop.REASSEMBLY_TIMEOUT: 2}
    assert not reassembler.join(third, parts.segment_bytes, 1, 3, 11.1), "the last part comes too late"


@given(st.lists(st.tuples(st.integers(2, 64), st.integers(100, 60_000)), min_size=1, max_size=400))
def test_memory_is_bounded(kinds: list[tuple[int, int]]) -> None:
    drops: Counter[Drop] = Counter()
    reassembler = Reassembler(drops)
    splitter = Splitter()
    for parts, length in kinds:
        (train,) = splitter.split(np.zeros(length, np.uint8), length, length // parts + PART_HEADER_BYTES + 1)
        reassembler.join(rows(train)[0], train.segment_bytes, 1, 3, 0.0)
        assert reassembler.count <= REASSEMBLY_COUNT_MAX
        assert reassembler.size <= REASSEMBLY_BYTES_MAX
        assert reassembler.size == sum(partial.size for partial in reassembler._partials.values())
    assert reassembler.count + drops[Drop.REASSEMBLY_FULL] >= len(kinds) - drops[Drop.BAD_CONTENT] - 1


def test_new_parts_displace_the_oldest() -> None:
    drops: Counter[Drop] = Counter()
    reassembler, splitter = Reassembler(drops), Splitter()
    trains = [split(splitter, [bytes(100)], 60)[0] for _ in range(REASSEMBLY_COUNT_MAX + 10)]
    for train in trains:
        reassembler.join(rows(train)[0], train.segment_bytes, 1, 3, 0.0)
    assert drops == {Drop.REASSEMBLY_FULL: 10}
    assert not reassembler.join(rows(trains[9])[1], trains[9].segment_bytes, 1, 3, 0.0)
    assert contents(reassembler.join(rows(trains[-1])[1], trains[-1].segment_bytes, 1, 3, 0.0)) == [bytes(100)]


@given(st.binary(min_size=1, max_size=400), st.integers(1, 100))
def test_any_content_is_joined_or_counted(content: bytes, segment_bytes: int) -> None:
    drops: Counter[Drop] = Counter()
    reassembler = Reassembler(drops)
    for _ in range(2):
        reassembler.join(np.frombuffer(content, np.uint8), segment_bytes, 1, 3, 0.0)
    assert reassembler.size <= 2 * len(content)
    assert reassembler.size == sum(partial.size for partial in reassembler._partials.values())


def test_the_same_part_twice_is_counted() -> None:
    drops: Counter[Drop] = Counter()
    reassembler = Reassembler(drops)
    (parts,) = split(Splitter(), [b"x" * 100], 60)
    for _ in range(2):
        assert not reassembler.join(rows(parts)[0], parts.segment_bytes, 1, 3, 0.0)
    assert drops == {Drop.BAD_CONTENT: 1}
    assert contents(reassembler.join(rows(parts)[1], parts.segment_bytes, 1, 3, 0.0)) == [b"x" * 100]
