"""What sealing and opening a train costs: `python tests/gateway/tunnel_speed.py`."""

import os
import time
from collections import Counter
from collections.abc import Callable

import numpy as np

from fjm2d.tunnel.session import Session
from fjm2d.tunnel.wire import OVERHEAD_BYTES, Drop, Kind

RUNS = 400


def best_us(run: Callable[[], object], count: int) -> float:
    """Microseconds a datagram, at best: anything else is somebody else's time."""
    least = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
    return 1e6 * least / count


def measure(count: int, size: int) -> tuple[float, float]:
    one, two = os.urandom(32), os.urandom(32)
    here, there = Session(one, two, 1, 2), Session(two, one, 2, 1)
    data = np.frombuffer(os.urandom(count * size), np.uint8)
    trains = [here.seal_train(data, size, Kind.NORM, 7).copy() for _ in range(RUNS)]
    drops: Counter[Drop] = Counter()
    waiting = iter(trains)
    opened = best_us(lambda: there.open_train(next(waiting), size + OVERHEAD_BYTES, drops), count)
    assert not drops
    assert there.received == RUNS * count
    return best_us(lambda: here.seal_train(data, size, Kind.NORM, 7), count), opened


if __name__ == "__main__":
    print("datagrams x bytes      seal      open   (us a datagram)")
    for count, size in ((44, 1444), (22, 1444), (8, 1444), (1, 1444), (64, 500), (1, 60)):
        sealed, opened = measure(count, size)
        print(f"{count:6} x {size:5} {sealed:12.2f} {opened:9.2f}")
