"""A socket that loses datagrams like a bad network. The demo's subscribers use it in the place of FJM2's socket."""

from collections.abc import Iterator
from random import Random

from fjm2.norm.core.train import Train
from fjm2.norm.net import udp


class LossySocket(udp.UdpSocket):
    """Loses each datagram with the same probability, whether it is data, a repair or a request."""

    probability = 0.0
    lost = 0
    """Datagrams lost by all sockets of the process."""
    random = Random()
    _left: Iterator[Train] = iter(())

    def receive(self) -> Train | None:
        """Return the next datagrams that are not lost."""
        while (left := next(self._left, None)) is None:
            train = super().receive()
            if train is None or not LossySocket.probability:
                return train
            self._left = survivors(train)
        return left


def survivors(train: Train) -> Iterator[Train]:
    """Yield the runs of datagrams between the lost ones."""
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
    """Make this process open lossy sockets from now on."""
    udp.UdpSocket = LossySocket
