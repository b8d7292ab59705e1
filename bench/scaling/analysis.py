"""Expected numbers of NACKs in a repair cycle, by analysis."""

import math
from random import Random

import numpy as np
from numpy.typing import NDArray

_MONTE_CARLO_RUNS = 20
"""Number of random runs over which the expected value is averaged."""


def rfc_nacks(group_size: int, backoff_factor: float) -> float:
    """Return RFC 5401's estimate of NACKs per cycle, for a back-off of up to `backoff_factor` true round-trip times.

    It is exp(1.2 L / (2 T / GRTT)) with L = ln(group size) + 1 and T, the longest back-off.
    """
    return math.exp(1.2 * (math.log(group_size) + 1) / (2 * backoff_factor))


def expected_nacks(losers: int, group_size: int, backoff_s: float, heard_after_s: float) -> float:
    """Return the expected number of NACKs if all losers miss the same data from the same moment on.

    A loser sends a NACK unless it has heard another's. That is the integral of n f(t) (1 - F(t - d))^(n - 1) over the
    truncated exponential distribution F of the back-off, where d is the time after which a NACK is heard.
    """
    decay = math.log(group_size) + 1
    times = np.linspace(0.0, backoff_s, 200_001)
    density = decay / backoff_s * np.exp(decay * times / backoff_s) / math.expm1(decay)
    heard = np.expm1(decay * np.clip(times - heard_after_s, 0.0, None) / backoff_s) / math.expm1(decay)
    return float(np.trapezoid(losers * density * (1 - heard) ** (losers - 1), times))


def expected_mixed_nacks(
    needs: NDArray[np.int64], group_size: int, backoff_s: float, heard_after_s: float, random: Random
) -> float:
    """Return the expected number of NACKs if each loser misses other data, estimated by random trials.

    `needs` holds the parity symbols that each receiver needs of each block. A receiver sends no NACK if others have
    asked for as many symbols of each block.
    """
    decay = math.log(group_size) + 1
    needs = needs[needs.any(axis=1)]
    draws = np.random.default_rng(random.getrandbits(32))
    sent = 0
    for _ in range(_MONTE_CARLO_RUNS):
        # Random back-offs, by inverting their distribution.
        times = backoff_s / decay * np.log1p(draws.random(len(needs)) * math.expm1(decay))
        order = np.argsort(times)
        heard = np.zeros(needs.shape[1], np.int64)
        under_way: list[tuple[float, NDArray[np.int64]]] = []
        for at, need in zip(times[order].tolist(), needs[order], strict=True):
            while under_way and under_way[0][0] <= at:
                np.maximum(heard, under_way.pop(0)[1], out=heard)
            if (need > heard).any():
                sent += 1
                under_way.append((at + heard_after_s, need))
    return sent / _MONTE_CARLO_RUNS
