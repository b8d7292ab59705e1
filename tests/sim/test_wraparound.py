"""Tests of object ids, sequence numbers and block numbers that wrap around."""

from dataclasses import replace
from random import Random

import pytest
from groups import CODES, NAMES, PAYLOAD

from fjm2.norm.core.config import Fec, SenderConfig, SessionConfig
from fjm2.norm.core.engine import sender_of
from fjm2.norm.events import (
    ObjectCompleted,
    StreamEnded,
    StreamOpened,
)
from fjm2.norm.sim import Network


class Counting(Random):
    """A source of random numbers that lets all counters of an engine begin with the same number."""

    def __init__(self, first: int) -> None:
        super().__init__(first)
        self._first = first

    def getrandbits(self, k: int, /) -> int:
        return self._first & ((1 << k) - 1)


@pytest.mark.parametrize("config", CODES, ids=NAMES)
def test_object_ids_and_sequences_wrap(net: Network, config: SenderConfig) -> None:
    pub = net.node(SessionConfig(node_id=1, sender=config), random=Counting(65_533))
    sub = net.receiver()
    net.link(pub, sub).lose(0.1)
    contents = [bytes([number]) * 2000 for number in range(8)]
    numbers = [pub.send(content) for content in contents]
    assert numbers == [65_533, 65_534, 65_535, 0, 1, 2, 3, 4]
    net.run(until=10.0)
    assert sorted(sub.objects) == contents
    assert sorted(event.object_id for event in sub.events(ObjectCompleted)) == sorted(numbers)


def test_block_numbers_of_a_stream_wrap_at_16_bits(net: Network) -> None:
    config = SenderConfig(segment_bytes=64, block_segments=1, fec=Fec.NOCODE, stream_bytes=1 << 20, rate_bps=2e7)
    pub, sub = net.sender(config), net.receiver()
    net.link(pub, sub).lose(0.001)
    content = Random(3).randbytes(64 * 70_000)
    pub.write(content)
    pub.end_stream()
    assert net.run_until(lambda: bool(sub.events(StreamEnded)), deadline=60.0)
    assert sub.received == content
    assert sub.stats.nacks_sent


@pytest.mark.parametrize("config", CODES, ids=NAMES)
def test_block_numbers_of_a_stream_wrap(net: Network, config: SenderConfig) -> None:
    """The test skips the stream's first 2^24 - 20 blocks, or 2^16 - 20, as if they had been sent to nobody."""
    pub, sub = net.sender(replace(config, stream_bytes=1 << 18)), net.receiver()
    net.link(pub, sub).lose(0.1)
    stream = pub.open_stream()
    bits = 16 if config.fec is Fec.NOCODE else 24
    skipped = ((1 << bits) - 20) * config.block_segments
    item = sender_of(pub.engine).cache.get(stream)
    ring = item.ring
    skipped -= skipped % ring.rows  # keeps each row at the place of its index
    ring.closed = ring.first = item.next_index = skipped
    pub.write(PAYLOAD * 2)
    pub.end_stream()
    net.run(until=10.0)
    (opened,) = sub.events(StreamOpened)
    assert sub.received == (PAYLOAD * 2)[opened.start :]
    assert opened.start <= 2000
    assert sub.events(StreamEnded)
