"""A TrainSocket that loses, doubles and delays what it receives, the same way each time for the same seed."""

from collections import deque
from collections.abc import Iterator
from random import Random

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.train import TRAIN_SEGMENTS_MAX, Address, Train
from fjm2.norm.net.udp_socket import TrainSocket

_Segment = NDArray[np.uint8]


class LossySocket:
    """Wraps any TrainSocket. What is sent goes through as it is; probabilities are for each datagram received."""

    def __init__(
        self, inner: TrainSocket, *, seed: int, lose: float = 0.0, duplicate: float = 0.0, delay: float = 0.0
    ) -> None:
        self.inner = inner
        self.lost = self.duplicated = self.delayed = 0
        """Datagrams."""
        self._random = Random(seed)
        self._lose, self._duplicate, self._delay = lose, duplicate, delay
        self._late: dict[Address, list[_Segment]] = {}
        self._ready: deque[Train] = deque()
        print(f"LossySocket: {seed=} {lose=} {duplicate=} {delay=}")  # pytest shows it when the test fails

    @property
    def address(self) -> Address:
        """The wrapped socket's."""
        return self.inner.address

    def fileno(self) -> int:
        """The wrapped socket's."""
        return self.inner.fileno()

    def send(self, train: Train) -> bool:
        """Nothing is lost on the way out: each receiver loses for itself."""
        return self.inner.send(train)

    def close(self) -> None:
        """The wrapped socket, too."""
        self.inner.close()

    def receive(self) -> Train | None:
        """The next train of what has survived.

        What is delayed comes behind the next train of its sender, or when there is nothing else. So it has to be
        called until it gives None: what is kept here makes no file readable.
        """
        while not self._ready:
            train = self.inner.receive()
            if train is not None:
                self._ready.extend(trains_of(self._survivors(train), train.address))
            elif self._late:
                address = next(iter(self._late))
                self._ready.extend(trains_of(self._late.pop(address), address))
            else:
                return None
        return self._ready.popleft()

    def _survivors(self, train: Train) -> list[_Segment]:
        overdue = self._late.pop(train.address, [])
        punctual: list[_Segment] = []
        for segment in segments_of(train):
            if self._happens(self._lose):
                self.lost += 1
                continue
            copies = 1 + self._happens(self._duplicate)
            self.duplicated += copies - 1
            for _ in range(copies):
                if self._happens(self._delay):
                    self.delayed += 1
                    self._late.setdefault(train.address, []).append(segment.copy())
                else:
                    punctual.append(segment)
        return punctual + overdue

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._random.random() < probability


def segments_of(train: Train) -> list[_Segment]:
    """Each datagram of a train, still in its buffer."""
    return [train.data[i : i + train.segment_bytes] for i in range(0, train.data.size, train.segment_bytes)]


def trains_of(segments: list[_Segment], address: Address) -> Iterator[Train]:
    """The fewest trains that hold these datagrams in this order. Copied."""
    run: list[_Segment] = []
    for segment in segments:
        is_next = run and segment.size <= run[0].size == run[-1].size and len(run) < TRAIN_SEGMENTS_MAX
        if run and not is_next:
            yield Train(np.concatenate(run), run[0].size, address)
            run = []
        run.append(segment)
    if run:
        yield Train(np.concatenate(run), run[0].size, address)
