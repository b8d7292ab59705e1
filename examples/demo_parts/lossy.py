"""A socket that drops received datagrams at random, as a bad network does.

The demo's subscribers use it in place of FJM2's socket.
"""

from collections.abc import Iterator
from random import Random

from fjm2.norm.core.train import Train
from fjm2.norm.net import udp


class LossySocket(udp.UdpSocket):
    """A socket that drops each received datagram with the same probability: data, repairs and requests alike."""

    probability = 0.0
    lost = 0
    """Datagrams dropped by all sockets of this process."""
    random = Random()
    _left: Iterator[Train] = iter(())

    def receive(self) -> Train | None:
        """Return the next datagrams that are not dropped, or None if nothing has arrived."""
        while (left := next(self._left, None)) is None:
            train = super().receive()
            if train is None or not LossySocket.probability:
                return train
            self._left = survivors(train)
        return left


def survivors(train: Train) -> Iterator[Train]:
    """Drop datagrams of a train at random. Yield the runs of datagrams that remain."""
    start, step = 0, train.segment_bytes
    for at in range(0, train.data.size, step):
        if LossySocket.random.random() < LossySocket.probability:
            LossySocket.lost += 1
            if at > start:
                yield Train(train.data[start:at], step, train.address)
            start = at + step
    if start < train.data.size:
        yield Train(train.data[start:], min(step, train.data.size - start), train.address)


def install() -> None:
    """Make all sockets that this process opens later drop datagrams."""
    udp.UdpSocket = LossySocket  # type: ignore[misc]
