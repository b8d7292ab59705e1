"""Groups of simulated nodes that tests share: the settings of their senders, and the content that they send."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

from fjm2.norm.core.config import Fec, SenderConfig
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import (
    Message,
    decode,
)
from fjm2.norm.sim import Network, Node

Chooser = Callable[..., Callable[[bytes], bool]]

PAYLOAD = Random(7).randbytes(40_000)
SMALL = SenderConfig(segment_bytes=100, block_segments=16, stream_bytes=1 << 16)
PARITY = SenderConfig(segment_bytes=100, block_segments=16, stream_bytes=1 << 16, fec=Fec.RS, parity_segments=8)
CODES = [
    SMALL,
    SenderConfig(segment_bytes=100, block_segments=16, stream_bytes=1 << 16, fec=Fec.NOCODE),
    PARITY,
    SenderConfig(
        segment_bytes=100, block_segments=16, stream_bytes=1 << 16, fec=Fec.RS, parity_segments=8, auto_parity=2
    ),
    replace(SMALL, backoff_factor=0),
]
WIDE = SenderConfig(segment_bytes=100, block_segments=16, fec=Fec.RS, parity_segments=8, grtt_s=0.02)
"""Settings of a sender whose first estimate of the round-trip time is right for the groups in this file."""
NAMES = ["none", "nocode", "rs", "rs-auto", "prompt"]


class Tap:
    """A record of all messages that are sent, with time and sender."""

    def __init__(self, net: Network) -> None:
        self.messages: list[tuple[float, Node, Message]] = []
        self._net = net
        net.on_send = self._note

    def _note(self, node: Node, train: Train) -> None:
        for at in range(0, train.data.size, train.segment_bytes):
            message = decode(bytes(train.data[at : at + train.segment_bytes]))
            self.messages.append((self._net.now, node, message))

    def all(self, kind: type[Message]) -> list[Message]:
        return [message for _, _, message in self.messages if isinstance(message, kind)]


def behind_router(net: Network, count: int, sender: SenderConfig = SMALL) -> tuple[Node, list[Node]]:
    """Make a sender and receivers behind a router, so that they share the link from the sender to the router."""
    pub, router = net.sender(sender), net.router()
    net.link(pub, router)
    subs = [net.receiver() for _ in range(count)]
    for sub in subs:
        net.link(router, sub)
    return pub, subs


SLOW = SenderConfig(segment_bytes=100, block_segments=16, grtt_s=0.1, grtt_min_s=0.1, rate_bps=1e5, backoff_factor=0)
"""Settings of a slow sender.

It sends a segment about every 13 ms, and thus many segments while a receiver waits for a repair.
"""
HOLD_OFF_S = 0.2
