"""Round-trip time and rate of a sender. Both follow the answers of receivers to its probes."""

from collections.abc import Callable

from fjm2.base.token_bucket import UNLIMITED
from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.events import Event, GrttUpdated
from fjm2.norm.core.quantize import RTT_MIN_S, quantize_rate, rtt_of
from fjm2.norm.core.stats import Stats
from fjm2.norm.core.timers import NEVER, time_of_wire
from fjm2.norm.core.wire import CcFeedback, CcNode, FromReceiver, Nack

from .grtt import Grtt
from .pacing import Pacer
from .tfmcc import Tfmcc

_FIRST_INTERVAL_S = 0.03
"""First interval between probes in seconds. It is short, so that a new sender knows its round-trip time soon."""
_INTERVAL_MIN_S = 0.001
"""Shortest interval between probes in seconds, to spare receivers."""
_INTERVAL_MAX_S = 10.0
"""Longest interval between probes in seconds. Probes also show that the sender is alive: many receivers give up after
30 s."""
_SENDING_INTERVAL_MAX_S = 0.5
"""Longest interval between probes in seconds while data are sent, so that a shorter round-trip time is noticed soon."""
_INTERVAL_GROWTH = 1.5
"""Factor by which the interval grows from probe to probe."""
_RECENT_PROBES = 1000
"""Number of latest probes. A report that answers one of them counts as current."""
_ROUNDING_S = 0.001
"""Error in seconds that the conversion of times to and from the wire may add."""
_UNLIMITED_BYTES_PER_S = 1.25e9
"""Rate to advertise if the rate is not limited: 10 Gbit/s."""


class Timing:
    """Round-trip time and rate of a sender, and the schedule of the probes that measure them."""

    def __init__(self, config: SenderConfig, stats: Stats, emit: Callable[[Event], None]) -> None:
        self._config = config
        self._stats = stats
        self._emit = emit
        self._grtt = Grtt(config)
        self._tfmcc = Tfmcc(config, config.grtt_s) if config.cc else None
        self.follows_receivers = config.cc
        """True if the rate depends on receivers' answers, so that probes must accompany data."""
        self.pacer = Pacer(self._tfmcc.bytes_per_s * 8 if self._tfmcc else config.rate_bps)
        self._interval_s = _FIRST_INTERVAL_S
        self._first_probe_at = NEVER
        self.cc_sequence = 0
        """Number of the last probe."""
        self.grtt_q = self._grtt.code(self.bytes_per_s)
        """Code of the round-trip time that every message carries."""
        self.grtt_s = rtt_of(self.grtt_q)
        """Round-trip time of the group as advertised, in seconds. The timers of sender and receivers depend on it."""
        stats.grtt_s = self.grtt_s

    @property
    def bytes_per_s(self) -> float:
        """Rate as advertised, in bytes per second."""
        rate = self.pacer.bytes_per_s
        return _UNLIMITED_BYTES_PER_S if rate == NEVER else rate

    @property
    def rate_q(self) -> int:
        """Code of the rate that probes carry."""
        return quantize_rate(self.bytes_per_s)

    @property
    def nodes(self) -> tuple[CcNode, ...]:
        """Receivers that the next probe lists; none without congestion control."""
        return self._tfmcc.nodes() if self._tfmcc is not None else ()

    @property
    def is_paced(self) -> bool:
        """True if the rate is limited."""
        return self.pacer.per_s != UNLIMITED

    def probe(self, now: float, is_sending: bool) -> float:
        """Give a new probe its number, and adapt to the answers so far. Return the seconds until the next probe."""
        self._first_probe_at = min(self._first_probe_at, now)
        self.cc_sequence = (self.cc_sequence + 1) & 0xFFFF
        self._grtt.end_probe()
        self._stats.probes_sent += 1
        if self._tfmcc is not None:
            self._tfmcc.check(now, is_sending)
            self.pacer.set_rate(self._tfmcc.bytes_per_s, now)
        self._update()
        if self._tfmcc is not None and is_sending:
            return max(min(self.grtt_s, self._tfmcc.clr_rtt_s or self.grtt_s), _INTERVAL_MIN_S)
        most_s = _SENDING_INTERVAL_MAX_S if is_sending else _INTERVAL_MAX_S
        self._interval_s = min(self._interval_s * _INTERVAL_GROWTH, most_s)
        # Receivers spread their answers over up to K round trips.
        return max(self._interval_s, (self._config.backoff_factor + 2) * self.grtt_s)

    def note_feedback(self, message: FromReceiver, now: float, is_measured: bool) -> bool:
        """Process the round-trip time and the report in a message of a receiver. Return True if it answers a probe.

        The round-trip time counts if `is_measured`: somebody who is not waited for must not slow the group down.
        """
        rtt_s = self._rtt_of(message, now)
        if rtt_s is not None and is_measured:
            self._grtt.sample(rtt_s, now)
            self._update()
        tfmcc = self._tfmcc
        if tfmcc is None:
            return rtt_s is not None
        for extension in message.extensions:
            if isinstance(extension, CcFeedback) and self._is_recent(extension.cc_sequence):
                tfmcc.report(
                    message.source_id, extension, rtt_s, self._grtt.believed_max_s, isinstance(message, Nack), now
                )
                self.pacer.set_rate(tfmcc.bytes_per_s, now)
        return rtt_s is not None

    def _is_recent(self, cc_sequence: int) -> bool:
        """Return True if the probe with this number was sent recently."""
        return (self.cc_sequence - cc_sequence) & 0xFFFF < _RECENT_PROBES

    def _rtt_of(self, message: FromReceiver, now: float) -> float | None:
        """Return the round-trip time that an echo measures, up to the longest believed; None if no probe was echoed."""
        sent_at = self.asked_at(message, now)
        return None if sent_at == -NEVER else min(max(now - sent_at, RTT_MIN_S), self._grtt.believed_max_s)

    def asked_at(self, message: FromReceiver, now: float) -> float:
        """Return when something must have been sent to reach a receiver just as it sent this message, as its echo of a
        probe tells; -NEVER if it echoes none."""
        if not (message.grtt_response_s or message.grtt_response_us):
            return -NEVER
        sent_at = time_of_wire(message.grtt_response_s, message.grtt_response_us)
        rtt_s = now - sent_at
        is_ours = -_ROUNDING_S < rtt_s <= self._config.grtt_max_s and sent_at > self._first_probe_at - _ROUNDING_S
        return sent_at if is_ours else -NEVER

    def _update(self) -> None:
        code = self._grtt.code(self.bytes_per_s)
        if code != self.grtt_q:
            self.grtt_q = code
            self._stats.grtt_s = self.grtt_s = rtt_of(code)
            self._emit(GrttUpdated(self.grtt_s))
