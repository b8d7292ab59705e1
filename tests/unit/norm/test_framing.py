"""Tests that messages are found in a stream, however its bytes arrive, and again after gaps and nonsense."""

from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.norm.net.framing import LENGTH, MESSAGE_BYTES_MAX, MessageReader

SEGMENT_BYTES = 50
sizes = st.one_of(
    st.lists(st.integers(0, 200), max_size=60),
    st.builds(lambda size, count: [size] * count, st.integers(0, 60), st.integers(0, 200)),
)


def framed(messages: list[bytes]) -> tuple[bytes, list[int]]:
    """Return the stream of some messages, and where each begins."""
    frames = [LENGTH.pack(len(message)) + message for message in messages]
    return b"".join(frames), list(accumulate(map(len, frames), initial=0))[:-1]


def wire_marks(starts: list[int]) -> list[int]:
    """Return the places that receivers are told: the first in each segment."""
    return list({start // SEGMENT_BYTES: start for start in reversed(starts)}.values())[::-1]


def read(reader: MessageReader, data: bytes, marks: list[int], start: int, end: int) -> list[bytes]:
    return reader.read(data[start:end], tuple(mark - start for mark in marks if start <= mark < end))


def messages_of(lengths: list[int]) -> list[bytes]:
    random = Random(len(lengths))
    return [random.randbytes(length) for length in lengths]


@given(sizes, st.lists(st.integers(0, 10_000), max_size=40))
def test_messages_are_found_however_the_stream_is_cut(lengths: list[int], cuts: list[int]) -> None:
    messages = messages_of(lengths)
    data, starts = framed(messages)
    marks, reader, found = wire_marks(starts), MessageReader(), list[bytes]()
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for start, end in pairwise(places):
        found += read(reader, data, marks, start, end)
    assert found == messages
    assert (reader.held_bytes, reader.bytes_skipped) == (0, 0)


@given(sizes, st.integers(0, 4000), st.integers(1, 2000), st.integers(1, 300))
def test_after_a_gap_reading_goes_on_at_the_next_mark(lengths: list[int], first: int, lost: int, step: int) -> None:
    messages = messages_of(lengths)
    data, starts = framed(messages)
    marks, reader, found = wire_marks(starts), MessageReader(), list[bytes]()
    first = min(first, len(data))
    last = min(first + lost, len(data))
    for start in range(0, first, step):
        found += read(reader, data, marks, start, min(start + step, first))
    reader.reset()
    for start in range(last, len(data), step):
        found += read(reader, data, marks, start, min(start + step, len(data)))
    whole = sum(start + LENGTH.size + len(message) <= first for start, message in zip(starts, messages, strict=True))
    later = next((mark for mark in marks if mark >= last), None)
    rest = [] if later is None else messages[starts.index(later) :]
    assert found == messages[:whole] + rest


def test_reading_begins_at_the_first_mark() -> None:
    data, starts = framed([b"cut", b"first", b"second"])
    assert read(MessageReader(), data, starts[1:], 2, len(data)) == [b"first", b"second"]


def test_a_stream_of_something_else_yields_nothing_and_is_not_kept() -> None:
    reader = MessageReader()
    for _ in range(100):
        assert reader.read(b"\xff" * 1000, (0, 500)) == []
    assert reader.held_bytes == 0
    assert reader.bytes_skipped > 50_000


def test_a_length_that_is_too_large_costs_no_message_behind_the_next_mark() -> None:
    good, starts = framed([b"one", b"two"])
    bad = LENGTH.pack(MESSAGE_BYTES_MAX + 1) + b"?"
    reader = MessageReader()
    assert reader.read(bad + good, (0, *(len(bad) + start for start in starts))) == [b"one", b"two"]
    assert reader.bytes_skipped == len(bad)


@pytest.mark.parametrize("step", [1, 3, 7, 100])
def test_a_message_that_claims_the_place_of_others_is_given_up(step: int) -> None:
    good, starts = framed([b"one" * 30, b"two" * 30])
    bad = LENGTH.pack(100_000) + b"?"
    data, marks, reader, found = (
        bad + good,
        (0, *(len(bad) + start for start in starts)),
        MessageReader(),
        list[bytes](),
    )
    for start in range(0, len(data), step):
        found += read(reader, data, list(marks), start, start + step)
    assert set(found) <= {b"one" * 30, b"two" * 30}
    if step < len(bad):
        assert found == [b"one" * 30, b"two" * 30]
        assert reader.bytes_skipped == len(bad)


def test_a_message_in_many_pieces_is_kept_once() -> None:
    message = Random(1).randbytes(100_000)
    data, starts = framed([message])
    reader, found = MessageReader(), list[bytes]()
    for start in range(0, len(data), 10):
        found += read(reader, data, starts, start, start + 10)
    assert found == [message]


@given(st.lists(st.tuples(st.binary(max_size=100), st.lists(st.integers(0, 120), max_size=3)), max_size=30))
def test_nothing_that_arrives_raises(runs: list[tuple[bytes, list[int]]]) -> None:
    reader, size = MessageReader(), 0
    for run, marks in runs:
        reader.read(run, tuple(sorted(set(marks))))
        size += len(run)
        assert 0 <= reader.held_bytes <= size
