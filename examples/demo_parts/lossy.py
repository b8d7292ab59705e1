"""A socket that loses what it receives, as a bad network would: the demo's subscribers have it in place of FJM2's."""

from collections.abc import Iterator
from random import Random

from fjm2.norm.core.train import Train
from fjm2.norm.net import udp


class LossySocket(udp.UdpSocket):
    """Each datagram is lost with the same probability, whatever is in it: data, repairs or questions."""

    probability = 0.0
    lost = 0
    """Datagrams, over all sockets of the process."""
    _random = Random()
    _left: Iterator[Train] = iter(())

    def receive(self) -> Train | None:
        """The next datagrams that were not lost."""
        while (left := next(self._left, None)) is None:
            train = super().receive()
            if train is None or not LossySocket.probability:
                return train
            self._left = survivors(train)
        return left


def survivors(train: Train) -> Iterator[Train]:
    """What is left of a train: the runs between the datagrams that are lost."""
    start, step = 0, train.segment_bytes
    for at in range(0, train.data.size, step):
        if LossySocket._random.random() < LossySocket.probability:
            LossySocket.lost += 1
            if at > start:
                yield Train(train.data[start:at], step, train.address)
            start = at + step
    if start < train.data.size:
        yield Train(train.data[start:], min(step, train.data.size - start), train.address)


def install() -> None:
    """From now on this process opens lossy sockets."""
    udp.UdpSocket = LossySocket
