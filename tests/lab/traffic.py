"""Traffic of the lab: a publisher in LAN A, subscribers in other LANs, and checks that all messages arrive."""

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from gateways import uri
from internet import Internet
from peers import READY_S, Peer, peers, until

MESSAGE_BYTES = 1_000
PER_S = 100


class Traffic:
    """Messages from the first host of LAN A to one host in each of the given LANs."""

    def __init__(self, lab: Internet, to: str, settings: dict[str, object]) -> None:
        self.subscribers = {name: Peer(lab[name].hosts[-1], "jms_peer.py", "subscribe", uri(**settings)) for name in to}
        self.publisher = Peer(
            lab["a"].hosts[0], "jms_peer.py", "publish", uri(**settings), MESSAGE_BYTES, PER_S, "waiting"
        )

    def begin(self) -> Self:
        """Start publishing, and wait until every subscriber has received a message."""
        for peer in (*self.subscribers.values(), self.publisher):
            peer.wait_for("ready")
        self.publisher.tell("begin")
        until(lambda: all(self.received(name) for name in self.subscribers), READY_S, lambda: f"{self}")
        return self

    def __str__(self) -> str:
        return f"sent {self.sent}, " + ", ".join(f"{name}: {self.received(name)}" for name in self.subscribers)

    @property
    def sent(self) -> int:
        return int(self.publisher.last("sent", 0))

    def received(self, name: str) -> int:
        return int(sum(self.subscribers[name].last("received", {}).values()))

    def longest_silence_s(self, name: str, since: float) -> float:
        """Return the longest time after `since` in which the subscriber reported no new messages."""
        times = [report["_at"] for report in list(self.subscribers[name].reports) if "received" in report]
        later = [since, *(at for at in times if at > since), time.monotonic()]
        return float(max(after - before for before, after in itertools.pairwise(later)))

    def end(self, timeout_s: float = READY_S) -> None:
        """Stop publishing, and check that every message arrived once and in order."""
        self.publisher.tell("pause")
        time.sleep(0.2)
        self.publisher.tell("close")
        assert self.publisher.wait(timeout_s) == 0, f"{self.publisher}"
        sent = self.sent
        until(lambda: all(self.received(name) >= sent for name in self.subscribers), timeout_s, lambda: f"{self}")
        for name, peer in self.subscribers.items():
            assert self.received(name) == sent
            assert peer.all("fault") == []
            assert peer.last("gaps") == 0


@contextmanager
def traffic(lab: Internet, to: str, **settings: object) -> Iterator[Traffic]:
    """Run traffic until the end of the block, or until `end` is called."""
    made = Traffic(lab, to, settings)
    with peers(*made.subscribers.values(), made.publisher):
        yield made.begin()
