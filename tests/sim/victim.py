"""An engine that is given datagrams one by one, and fake senders of them."""

from collections.abc import Iterator
from random import Random

import numpy as np
from hostile.datagrams import Fake
from hostile.target import GROUP, TARGET

from fjm2.norm.core.config import ReceiverConfig, SenderConfig, SessionConfig
from fjm2.norm.core.engine import Engine
from fjm2.norm.core.stats import Drop
from fjm2.norm.core.train import Train
from fjm2.norm.core.wire import decode
from fjm2.norm.events import Event

NOW = 100.0
ME = TARGET.to_bytes(4, "big")


class Victim:
    """An engine, and what it says and tells."""

    def __init__(self, receiver: ReceiverConfig | None = None, sender: SenderConfig | None = None) -> None:
        config = SessionConfig(
            node_id=TARGET,
            sender=sender or SenderConfig(),
            receiver=receiver or ReceiverConfig(total_bytes_max=64 << 20),
        )
        self.engine = Engine(config, GROUP, random=Random(1))
        self.engine.own_address = ("me", 1)
        self.now = NOW
        self.sent: list[bytes] = []

    def take(self, fake: Fake, *datagrams: bytes, segment_bytes: int = 0) -> list[Event]:
        """Give it datagrams, one train if they are alike and a segment size is given."""
        trains = [b"".join(datagrams)] if segment_bytes else datagrams
        for data in trains:
            array = np.frombuffer(data, np.uint8)
            self.engine.receive_train(Train(array, segment_bytes or array.size, fake.address), self.now)
        return self.settle()

    def settle(self) -> list[Event]:
        while (train := self.engine.poll_train(self.now)) is not None:
            data = train.data.tobytes()
            self.sent += [data[at : at + train.segment_bytes] for at in range(0, len(data), train.segment_bytes)]
        return list(iter(self.engine.poll_event, None))

    def pass_time(self, seconds: float) -> list[Event]:
        """Let it act on its timers."""
        end, events = self.now + seconds, self.settle()
        while (at := self.engine.poll_timeout()) <= end:
            self.now = max(self.now + 1e-7, at)
            self.engine.handle_timeout(self.now)
            events += self.settle()
        self.now = end
        return events

    def sent_of(self, kind: type) -> list[bytes]:
        return [data for data in self.sent if isinstance(decode(data), kind)]

    def drops(self, reason: Drop) -> int:
        return self.engine.stats.drops[reason]


def fakes(count: int, **fields: int) -> Iterator[Fake]:
    for number in range(1, count + 1):
        yield Fake(number, 7, (f"10.0.{number >> 8}.{number & 255}", 6003), **fields)
