"""Functions that make trains for tests on sockets, and that receive trains with a timeout."""

import select
import time
from random import Random

import numpy as np

from fjm2.norm.core.train import Address, Train
from fjm2.norm.net.udp_socket import TrainSocket

ARRIVAL_TIMEOUT_S = 5.0
SILENCE_S = 0.2


def make_train(seed: int, size: int, segment_bytes: int, address: Address) -> Train:
    """Make a train of random bytes. They are the same for the same seed."""
    return Train(np.frombuffer(Random(seed).randbytes(size), np.uint8), segment_bytes, address)


def datagrams_of(train: Train) -> list[bytes]:
    """Return copies of a train's datagrams."""
    data = train.data.tobytes()
    return [data[i : i + train.segment_bytes] for i in range(0, len(data), train.segment_bytes)]


def receive_train(source: TrainSocket, timeout_s: float = ARRIVAL_TIMEOUT_S) -> Train | None:
    """Return the next train, still in the socket's buffer, or None after the timeout."""
    deadline = time.monotonic() + timeout_s
    while (train := source.receive()) is None and (left := deadline - time.monotonic()) > 0:
        select.select([source.fileno()], [], [], left)
    return train


def receive_datagrams(source: TrainSocket, count: int, timeout_s: float = ARRIVAL_TIMEOUT_S) -> list[bytes]:
    """Receive trains until there are `count` datagrams, or until no train arrives before the timeout.

    Return all datagrams that have arrived, which may be more than `count`.
    """
    gathered: list[bytes] = []
    while len(gathered) < count and (train := receive_train(source, timeout_s)) is not None:
        gathered += datagrams_of(train)
    return gathered


def hears_nothing(source: TrainSocket) -> bool:
    """Return True if no train arrives within `SILENCE_S`."""
    return receive_train(source, SILENCE_S) is None
