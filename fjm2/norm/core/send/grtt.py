"""Estimate of the group's greatest round-trip time, as the sender advertises it (RFC 5740, 5.5.1)."""

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.core.quantize import quantize_rtt

_GROWTH_WEIGHT = 0.75
"""Weight of a sample that is longer than the estimate: a few such samples suffice to reach it."""
_SHRINK_FACTOR = 0.9
"""Factor of the estimate after a probe without long answers: a lost answer must not shrink it at once."""
_PERIOD_MIN_S = 0.25
"""Shortest time after which an estimate that no answer came near is halved. Probes are rare while the estimate is long,
and a burst of answers to a busy host must not slow the group down for minutes."""
_PERIOD_RTTS = 2
"""The same in round trips as estimated: receivers that are waited for answer more often than that."""
_STRETCH_MAX = 4.0
"""Longest round-trip time that is believed of an answer, in multiples of the estimate. A longer one may be forged."""
_BELIEVED_MIN_S = 0.05
"""Round-trip time in seconds that is always believed: a busy receiver may take that long, however near it is."""
_MESSAGE_OVERHEAD_BYTES = 44
"""Length in bytes of the longest DATA header that this sender uses."""


class Grtt:
    """Estimate of the GRTT. It grows at once with a longer sample, and shrinks step by step with shorter ones."""

    __slots__ = ("_config", "_estimate_s", "_is_guess", "_peak_s", "_period_peak_s", "_period_until", "believed_max_s")

    def __init__(self, config: SenderConfig) -> None:
        self._config = config
        self._estimate_s = config.grtt_s
        self._is_guess = True
        self._peak_s = 0.0
        self._period_peak_s = 0.0
        """Longest sample since the last period ended."""
        self._period_until = 0.0
        self.believed_max_s = max(_STRETCH_MAX * config.grtt_s, _BELIEVED_MIN_S)
        """Longest round-trip time that is believed until the next probe, in seconds."""

    def sample(self, rtt_s: float, now: float) -> None:
        """Add the round-trip time of one receiver."""
        if now >= self._period_until and self._config.flow is not Flow.MAX:
            self._end_period(now)
        self._peak_s = max(self._peak_s, rtt_s)
        self._period_peak_s = max(self._period_peak_s, rtt_s)
        if rtt_s > self._estimate_s:
            self._estimate_s += _GROWTH_WEIGHT * (rtt_s - self._estimate_s)

    def _end_period(self, now: float) -> None:
        """Halve the estimate if no sample of the period that ends came near it."""
        if 0.0 < self._period_peak_s < self._estimate_s / 2 and not self._is_guess:
            self._estimate_s /= 2
            self.believed_max_s = max(_STRETCH_MAX * self._estimate_s, _BELIEVED_MIN_S)
        self._period_peak_s = 0.0
        self._period_until = now + max(_PERIOD_MIN_S, _PERIOD_RTTS * self._estimate_s)

    def end_probe(self) -> None:
        """End a probe: shrink the estimate towards the probe's longest sample.

        The first samples replace the configured guess.
        """
        if self._peak_s and self._peak_s < self._estimate_s:
            shrunk = 0.0 if self._is_guess else self._estimate_s * _SHRINK_FACTOR
            self._estimate_s = max(self._peak_s, shrunk)
        if self._peak_s:
            self._is_guess = False
        self._peak_s = 0.0
        self.believed_max_s = max(_STRETCH_MAX * self._estimate_s, _BELIEVED_MIN_S)

    def code(self, bytes_per_s: float) -> int:
        """Return the code of the estimate to advertise: at least the time that a segment takes at the given rate."""
        segment_s = (self._config.segment_bytes + _MESSAGE_OVERHEAD_BYTES) / bytes_per_s
        low, high = self._config.grtt_min_s, self._config.grtt_max_s
        return quantize_rtt(min(max(self._estimate_s, low, segment_s), high))
