"""A socket that drops received datagrams at random, as a bad network does.

The demo's subscribers use it in place of FJM2's socket.
"""

from random import Random

import numpy as np

from fjm2.norm.core.train import Train
from fjm2.norm.net import udp


class LossySocket(udp.UdpSocket):
    """A socket that drops each received datagram with the same probability: data, repairs and requests alike.

    Over the loopback interface, a train of datagrams travels as one packet. On a network they travel one by one, each
    can be lost alone, and the receiving kernel joins the others to a train again. So a train loses single datagrams
    here, too, and is received as one train without them.
    """

    probability = 0.0
    lost = 0
    """Datagrams dropped by all sockets of this process."""
    random = Random()

    def receive(self) -> Train | None:
        """Return the next train without the datagrams that are dropped, or None if nothing has arrived."""
        while (train := super().receive()) is not None:
            left = survivors(train) if LossySocket.probability else train
            if left is not None:
                return left
        return None


def survivors(train: Train) -> Train | None:
    """Drop datagrams of a train at random. Return the rest as one train, or None if nothing is left."""
    step = train.segment_bytes
    pieces, start = [], 0
    for at in range(0, train.data.size, step):
        if LossySocket.random.random() < LossySocket.probability:
            LossySocket.lost += 1
            pieces.append(train.data[start:at])
            start = at + step
    if not pieces:
        return train
    left = np.concatenate([*pieces, train.data[start:]])
    return Train(left, min(step, left.size), train.address) if left.size else None


def install() -> None:
    """Make all sockets that this process opens later drop datagrams."""
    udp.UdpSocket = LossySocket  # type: ignore[misc]
