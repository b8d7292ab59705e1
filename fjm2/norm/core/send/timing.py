"""How long a sender's way to its group is, and how fast it goes: both follow what receivers answer to its probes."""

from collections.abc import Callable

from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.events import Event, GrttUpdated
from fjm2.norm.core.quantize import RTT_MIN_S, quantize_rate, rtt_of
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.timers import NEVER, time_of_wire
from fjm2.norm.core.wire import CcFeedback, CcNode, FromReceiver, Nack

from .grtt import Grtt
from .pacing import Pacer
from .tfmcc import Tfmcc

_FIRST_S = 0.03
_MIN_S = 0.001
_MAX_S = 10.0
"""Also a sign of life: receivers give a sender up that they have not heard for 30 s, unless told otherwise."""
_SENDING_MAX_S = 0.5
"""While data flow, a round-trip time that has become shorter is not to go unnoticed for longer."""
_GROWTH = 1.5
_RECENT_PROBES = 1000
_ROUNDING_S = 0.001
_UNLIMITED_BYTES_PER_S = 1.25e9
"""What is advertised where nothing limits the rate."""


class Timing:
    """Round-trip time, rate, and when to probe for them."""

    def __init__(self, config: SenderConfig, stats: Stats, emit: Callable[[Event], None]) -> None:
        self._config = config
        self._stats = stats
        self._emit = emit
        self._grtt = Grtt(config)
        self._tfmcc = Tfmcc(config, config.grtt_s) if config.cc else None
        self.pacer = Pacer(self._tfmcc.bytes_per_s * 8 if self._tfmcc else config.rate_bps)
        self._interval_s = _FIRST_S
        self._first_probe_at = NEVER
        self.cc_sequence = 0
        """Of the last probe."""
        self.grtt_q = self._grtt.code(self.bytes_per_s)
        """The code of the round-trip time that every message carries."""
        stats.grtt_s = self.grtt_s

    @property
    def grtt_s(self) -> float:
        """The group's round-trip time as advertised: all timers of both sides follow it."""
        return rtt_of(self.grtt_q)

    @property
    def bytes_per_s(self) -> float:
        """The rate as advertised."""
        rate = self.pacer.bytes_per_s
        return _UNLIMITED_BYTES_PER_S if rate == NEVER else rate

    @property
    def rate_q(self) -> int:
        """The rate as a probe carries it."""
        return quantize_rate(self.bytes_per_s)

    @property
    def nodes(self) -> tuple[CcNode, ...]:
        """Whom a probe speaks to; nobody without congestion control."""
        return self._tfmcc.nodes() if self._tfmcc is not None else ()

    @property
    def is_paced(self) -> bool:
        """Whether there is a rate to keep."""
        return self.pacer.bytes_per_s != NEVER

    @property
    def follows_receivers(self) -> bool:
        """Whether the rate depends on answers, so that data never go without probes."""
        return self._tfmcc is not None

    def probe(self, now: float, is_sending: bool) -> float:
        """A probe goes out. The time until the next."""
        self._first_probe_at = min(self._first_probe_at, now)
        self.cc_sequence = (self.cc_sequence + 1) & 0xFFFF
        self._grtt.end_probe()
        self._stats.probes_sent += 1
        if self._tfmcc is not None:
            self._tfmcc.check(now, is_sending)
            self.pacer.set_rate(self._tfmcc.bytes_per_s, now)
        self._update()
        if self._tfmcc is not None and is_sending:
            return max(min(self.grtt_s, self._tfmcc.clr_rtt_s or self.grtt_s), _MIN_S)
        most_s = _SENDING_MAX_S if is_sending else _MAX_S
        self._interval_s = min(self._interval_s * _GROWTH, most_s)
        # Receivers take up to K round trips for their answers.
        return max(self._interval_s, (self._config.backoff_factor + 2) * self.grtt_s)

    def note_feedback(self, message: FromReceiver, now: float) -> bool:
        """What every answer tells: how long the way is, and how the receiver fares. Whether it answers a probe."""
        rtt_s = self._rtt_of(message, now)
        if rtt_s is not None:
            self._grtt.sample(rtt_s)
            self._update()
        tfmcc = self._tfmcc
        if tfmcc is None:
            return rtt_s is not None
        for extension in message.extensions:
            if isinstance(extension, CcFeedback) and self._is_recent(extension.cc_sequence):
                tfmcc.report(message.source_id, extension, rtt_s, self._grtt.most_s, isinstance(message, Nack), now)
                self.pacer.set_rate(tfmcc.bytes_per_s, now)
        return rtt_s is not None

    def _is_recent(self, cc_sequence: int) -> bool:
        """Whether a probe of this number was sent not long ago."""
        return (self.cc_sequence - cc_sequence) & 0xFFFF < _RECENT_PROBES

    def _rtt_of(self, message: FromReceiver, now: float) -> float | None:
        """What an echo measures: None if it is of no probe that was sent, and no more than is plausible."""
        if not (message.grtt_response_s or message.grtt_response_us):
            return None
        sent_at = time_of_wire(message.grtt_response_s, message.grtt_response_us)
        rtt_s = now - sent_at
        is_ours = -_ROUNDING_S < rtt_s <= self._config.grtt_max_s and sent_at > self._first_probe_at - _ROUNDING_S
        return min(max(rtt_s, RTT_MIN_S), self._grtt.most_s) if is_ours else None

    def _update(self) -> None:
        code = self._grtt.code(self.bytes_per_s)
        if code != self.grtt_q:
            self.grtt_q = code
            self._stats.grtt_s = self.grtt_s
            self._emit(GrttUpdated(self.grtt_s))
