"""The greatest round-trip time of the group, as its sender estimates and advertises it (RFC 5740, 5.5.1)."""

from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.quantize import quantize_rtt

_GROWTH_WEIGHT = 0.75
_SHRINK_FACTOR = 0.9
_STRETCH_MAX = 4.0
"""Longer than so many times the estimate, no answer is believed before the next probe: it may be a forged one."""
_BELIEVED_S = 0.05
"""What a busy receiver may take for an answer, however near it is."""
_MESSAGE_OVERHEAD_BYTES = 44


class Grtt:
    """Grows at once with a longer sample, shrinks step by step when probes bring none."""

    __slots__ = ("_config", "_estimate_s", "_is_guess", "_peak_s", "most_s")

    def __init__(self, config: SenderConfig) -> None:
        self._config = config
        self._estimate_s = config.grtt_s
        self._is_guess = True
        self._peak_s = 0.0
        self.most_s = max(_STRETCH_MAX * config.grtt_s, _BELIEVED_S)
        """The longest round-trip time that is believed until the next probe."""

    def sample(self, rtt_s: float) -> None:
        """Take account of one receiver's round-trip time, as far as it is believed."""
        self._peak_s = max(self._peak_s, rtt_s)
        if rtt_s > self._estimate_s:
            self._estimate_s += _GROWTH_WEIGHT * (rtt_s - self._estimate_s)

    def end_probe(self) -> None:
        """A probe's time is over: come down towards the longest answer. The first answers replace the guess."""
        if self._peak_s and self._peak_s < self._estimate_s:
            shrunk = 0.0 if self._is_guess else self._estimate_s * _SHRINK_FACTOR
            self._estimate_s = max(self._peak_s, shrunk)
        if self._peak_s:
            self._is_guess = False
        self._peak_s = 0.0
        self.most_s = max(_STRETCH_MAX * self._estimate_s, _BELIEVED_S)

    def code(self, bytes_per_s: float) -> int:
        """What is advertised at this rate: no less than a segment takes, within the configured bounds."""
        segment_s = (self._config.segment_bytes + _MESSAGE_OVERHEAD_BYTES) / bytes_per_s
        low, high = self._config.grtt_min_s, self._config.grtt_max_s
        return quantize_rtt(min(max(self._estimate_s, low, segment_s), high))
