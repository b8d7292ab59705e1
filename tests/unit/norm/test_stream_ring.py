"""Tests of the ring of segments of a stream that is sent, whose length changes while it is written."""

from random import Random

import pytest
from representatives import representatives

from fjm2.norm.core.send.stream import StreamRing
from fjm2.norm.core.wire import Data, Fti, ObjectFlag

HEADER = Data(
    source_id=1,
    instance_id=2,
    grtt_q=3,
    backoff=4,
    gsize_q=5,
    flags=ObjectFlag.STREAM,
    fec_id=5,
    object_id=6,
    payload_id=0,
    payload=b"",
    extensions=(Fti(fec_id=5, object_bytes=1 << 20, segment_bytes=10, block_segments=4),),
)
SEGMENT_BYTES = 10
SIZES = (8, 40)


def written(ring: StreamRing, index: int) -> bytes:
    """Return the stream header and the payload of a segment."""
    return bytes(ring.symbols(index, 1)[0])


@pytest.mark.parametrize("seed", representatives(range(200), *range(50)))
def test_a_ring_that_changes_its_length_holds_what_one_of_constant_length_does(seed: int) -> None:
    random = Random(seed)
    ring, model = StreamRing(SEGMENT_BYTES, SIZES[0], HEADER), StreamRing(SEGMENT_BYTES, 1 << 10, HEADER)
    for _ in range(60):
        if random.random() < 0.2:
            before = ring.first
            ring.resize(random.choice(SIZES), HEADER)
            assert before <= ring.first <= max(before, ring.closed - ring.rows + 1)
        if random.random() < 0.3 and ring.fill:
            ring.close_segment()
            model.close_segment()
        size = min(random.randrange(1, 60), ring.room(ring.first + ring.rows - 1 + random.randrange(4)))
        data = random.randbytes(size)
        marks = sorted(random.sample(range(size), min(size, random.randrange(3))))
        for each in (ring, model):
            each.write(memoryview(data), marks)
        assert (ring.closed, ring.offset, ring.fill) == (model.closed, model.offset, model.fill)
        assert ring.closed - ring.first < ring.rows
        for index in range(ring.first, ring.closed):
            assert written(ring, index) == written(model, index)
            assert ring.length(index) == model.length(index)
