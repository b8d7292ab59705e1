"""Tests of frames that lie end to end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.base.ledger import Ledger
from fjm2.store.laid_frames import LaidFrames
from fjm2.store.runs import Run

FRAMES = st.lists(st.binary(max_size=20), max_size=12)


def laid(frames: list[bytes]) -> LaidFrames:
    return LaidFrames(b"".join(frames), np.cumsum([len(frame) for frame in frames], dtype=np.int64))


@given(FRAMES, st.integers(0, 12), st.integers(0, 12))
def test_they_are_a_sequence_like_a_list(frames: list[bytes], first: int, end: int) -> None:
    assert list(laid(frames)) == frames
    part = laid(frames)[first:end]
    assert list(part) == frames[first:end]
    assert bytes(part.data) == b"".join(frames[first:end])
    assert part.lengths.tolist() == [len(frame) for frame in frames[first:end]]


@given(FRAMES.filter(len))
def test_a_run_of_them_is_that_of_their_copies(frames: list[bytes]) -> None:
    ledger = Ledger(1, 0, 0)
    head, data = Run.of(ledger, 1, laid(frames)).encode()
    assert (head, bytes(data)) == Run.of(ledger, 1, frames).encode()


def test_the_buffer_has_nothing_but_the_frames() -> None:
    with pytest.raises(ValueError, match="frames of 3 bytes: expected 4, as the buffer has"):
        LaidFrames(b"abcd", np.array([1, 3]))
    with pytest.raises(ValueError, match="step=2: expected 1"):
        laid([b"a", b"b"])[::2]
