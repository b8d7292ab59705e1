"""Times of awaited sends, one after another."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from .roles import RoleOptions, tell


class AwaitedTimes:
    """The times of sends. Those of the warm-up do not count."""

    def __init__(self, options: RoleOptions) -> None:
        self._warm_up = options.warm_up
        self._times_ns: list[int] = []

    @contextmanager
    def one(self) -> Iterator[None]:
        """Take the time of one send."""
        began_ns = time.perf_counter_ns()
        yield
        self._times_ns.append(time.perf_counter_ns() - began_ns)

    def tell(self) -> None:
        """Print the result. Percentiles are measured values, not interpolated."""
        ordered = sorted(self._times_ns[self._warm_up :])

        def at(part: float) -> float:
            return ordered[min(len(ordered) - 1, int(len(ordered) * part))] / 1000

        tell(count=len(ordered), p50_us=at(0.5), p99_us=at(0.99), max_us=at(1.0))
