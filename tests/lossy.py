"""A TrainSocket that loses, duplicates and delays received datagrams, reproducibly for a seed."""

from collections import deque
from collections.abc import Iterator
from random import Random

import numpy as np
from numpy.typing import NDArray

from fjm2.norm.core.train import TRAIN_SEGMENTS_MAX, Address, Train
from fjm2.norm.net.udp_socket import TrainSocket

_Segment = NDArray[np.uint8]


class LossySocket:
    """A wrapper of any TrainSocket that disturbs reception.

    The probabilities apply to each received datagram. Datagrams are sent unchanged.
    """

    def __init__(
        self, inner: TrainSocket, *, seed: int, lose: float = 0.0, duplicate: float = 0.0, delay: float = 0.0
    ) -> None:
        self.inner = inner
        self.lost = self.duplicated = self.delayed = 0
        """Numbers of received datagrams that were lost, duplicated and delayed."""
        self._random = Random(seed)
        self._lose, self._duplicate, self._delay = lose, duplicate, delay
        self._late: dict[Address, list[_Segment]] = {}
        self._ready: deque[Train] = deque()
        print(f"LossySocket: {seed=} {lose=} {duplicate=} {delay=}")  # pytest shows this line if the test fails

    @property
    def address(self) -> Address:
        """Address of the wrapped socket."""
        return self.inner.address

    def fileno(self) -> int:
        """Return the file descriptor of the wrapped socket."""
        return self.inner.fileno()

    def send(self, train: Train) -> bool:
        """Send a train through the wrapped socket, without losses. Losses happen at the receivers."""
        return self.inner.send(train)

    def close(self) -> None:
        """Close the wrapped socket."""
        self.inner.close()

    def receive(self) -> Train | None:
        """Return the next train of datagrams that were not lost, or None.

        A delayed datagram is returned after the next train of its sender, or when nothing else has arrived. Call this
        method until it returns None: datagrams held here do not make the file descriptor readable.
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
    """Return views of a train's datagrams, without copying."""
    return [train.data[i : i + train.segment_bytes] for i in range(0, train.data.size, train.segment_bytes)]


def trains_of(segments: list[_Segment], address: Address) -> Iterator[Train]:
    """Yield copies of these datagrams in this order, joined into as few trains as possible."""
    run: list[_Segment] = []
    for segment in segments:
        is_next = run and segment.size <= run[0].size == run[-1].size and len(run) < TRAIN_SEGMENTS_MAX
        if run and not is_next:
            yield Train(np.concatenate(run), run[0].size, address)
            run = []
        run.append(segment)
    if run:
        yield Train(np.concatenate(run), run[0].size, address)
