"""Congestion control at the receiver: loss, rate, and when to report them (RFC 5740, 5.5.2; RFC 5348)."""

import math
from collections import deque
from dataclasses import dataclass, field
from random import Random

from .backoff import exponential_backoff
from .quantize import quantize_loss, quantize_rate, quantize_rtt, rate_of, rtt_of
from .remote_sender import RemoteSender
from .wire import CcFeedback, CcFlag, CongestionControl, Rate

_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2)
"""Weights of the last loss intervals, latest first (RFC 5348, 5.4)."""
_SEQUENCE_JUMP_MAX = 0x2000
"""Largest jump of sequence numbers that counts as loss: whole trains can be lost. A larger jump is ignored."""
_SEQUENCE_LATE_MAX = 100
"""Largest step backwards in sequence numbers of a late or duplicate message. After a larger step, the sender has
restarted its sequence."""
_RTT_GUESS_S = 0.25
"""Round-trip time in seconds to assume until the sender has told ours. It is pessimistic, so that the rate starts
low."""
_SUPPRESSION_RATIO = 0.9
"""Ratio that tells if another receiver's report makes ours unnecessary: the rate in it must be at most our rate divided
by this ratio."""
_INTRODUCTIONS_MIN = 3
"""Number of our first answers that the answers of other receivers do not suppress: the sender may still be collecting
its acking set."""
_INTRODUCTIONS_PER_PROBE_MAX = 50
"""Number of other receivers' answers to one probe after which a first answer of ours waits for a later probe, so that
a large group does not answer all at once."""
_RATE_INTERVAL_MIN_S = 0.01
"""Shortest time in seconds over which the rate is measured. A shorter time would measure bursts."""
_SEGMENT_WEIGHT = 0.125
"""Weight of the latest run of DATA in the moving mean of the segment size."""
_BACKOFF_FACTOR_MIN = 4
"""Smallest back-off factor (K) of reports. Even if a sender asks for prompt NACKs (K = 0), reports must be spread."""


def tfrc_rate(segment_bytes: float, rtt_s: float, loss: float) -> float:
    """Return the bytes per second that a TCP flow would reach (RFC 5348, 3.1, with RTO = 4 RTT)."""
    if loss <= 0.0:
        return math.inf
    root = math.sqrt(2.0 * loss / 3.0) + 12.0 * loss * math.sqrt(3.0 * loss / 8.0) * (1.0 + 32.0 * loss * loss)
    return segment_bytes / (rtt_s * root)


class LossHistory:
    """Loss events in the sequence numbers of one sender's messages, as TFRC counts them."""

    __slots__ = ("_event_at", "_expected", "_interval", "_intervals")

    def __init__(self) -> None:
        self._expected: int | None = None
        self._interval = 0
        """Number of messages since the last loss event."""
        self._intervals: deque[int] = deque(maxlen=len(_WEIGHTS))
        """Numbers of messages between loss events, latest first."""
        self._event_at = -math.inf

    def note(self, first: int, count: int, last: int, now: float, rtt_s: float) -> bool:
        """Note a run of `count` messages, numbered from first to last. Return True if a loss event begins."""
        if first == self._expected and (last - first) & 0xFFFF == count - 1:  # as nearly always
            self._expected = (last + 1) & 0xFFFF
            self._interval += count
            return False
        lost = 0
        if self._expected is not None:
            ahead = (first - self._expected + 0x8000 & 0xFFFF) - 0x8000
            if ahead < 0 and ahead >= -_SEQUENCE_LATE_MAX:
                return False
            lost = ahead if 0 <= ahead <= _SEQUENCE_JUMP_MAX else 0
        within = ((last - first) & 0xFFFF) + 1 - count
        lost += within if 0 < within <= _SEQUENCE_JUMP_MAX else 0
        self._expected = (last + 1) & 0xFFFF
        is_event = lost > 0 and now - self._event_at > rtt_s
        if is_event:
            self._event_at = now
            self._intervals.appendleft(self._interval + 1)
            self._interval = 0
        self._interval += count
        return is_event

    def assume(self, interval: float) -> None:
        """Make the first loss interval at least `interval` messages long (RFC 5348, 6.3.1).

        Its measured length says little, as it depends on when reception began.
        """
        if len(self._intervals) == 1:
            self._intervals[0] = max(self._intervals[0], int(interval))

    @property
    def fraction(self) -> float:
        """Loss event rate, from 0 to 1; 0 until something is lost."""
        if not self._intervals:
            return 0.0
        with_open = [self._interval, *self._intervals][: len(_WEIGHTS)]
        mean = max(_mean(with_open), _mean(list(self._intervals)))
        return 1.0 / max(mean, 1.0)


def _mean(intervals: list[int]) -> float:
    weights = _WEIGHTS[: len(intervals)]
    return sum(w * i for w, i in zip(weights, intervals, strict=True)) / sum(weights)


@dataclass(slots=True)
class RateMeter:
    """Meter of the rate of reception, which it measures over about one round trip."""

    _bytes: int = 0
    _since: float | None = None
    bytes_per_s: float = 0.0

    def note(self, size: int, now: float, rtt_s: float) -> None:
        """Count bytes received."""
        if self._since is None:
            self._since = now
        self._bytes += size
        elapsed = now - self._since
        if elapsed >= rtt_s and elapsed >= _RATE_INTERVAL_MIN_S:
            self.bytes_per_s = self._bytes / elapsed
            self._bytes, self._since = 0, now


@dataclass(slots=True)
class CcResponder:
    """Schedule and content of this receiver's answers to a sender's probes.

    The sender needs the answers to estimate round-trip times, and for congestion control.
    """

    node_id: int
    remote: RemoteSender
    random: Random
    is_suppressible: bool
    loss: LossHistory = field(default_factory=LossHistory)
    rate: RateMeter = field(default_factory=RateMeter)
    segment_bytes: float = 1000.0
    rtt_s: float | None = None
    """Our own round-trip time in seconds; None until the sender has told it."""
    due_at: float | None = None
    """Time to answer the latest probe; None if no answer is due."""
    is_reporting: bool = False
    """True if the sender wants reports of rate and loss."""
    _flags: int = 0
    _cc_sequence: int = 0
    _held_off_until: float = 0.0
    _introductions_left: int = _INTRODUCTIONS_MIN
    _overheard: int = 0
    """Number of answers of other receivers to the latest probe."""

    def note_data(self, first: int, last: int, count: int, size: int, now: float) -> None:
        """Note a run of `count` DATA with `size` bytes of payload, and sequence numbers from first to last."""
        rtt_s = self.rtt_s or self.remote.grtt_s
        if self.loss.note(first, count, last, now, rtt_s):
            self._begin_loss(rtt_s)
        self.rate.note(size, now, rtt_s)
        self.segment_bytes += (size / count - self.segment_bytes) * _SEGMENT_WEIGHT

    def note_command(self, sequence: int, now: float) -> None:
        """Note the sequence number of a message of the sender that is not DATA."""
        rtt_s = self.rtt_s or self.remote.grtt_s
        if self.loss.note(sequence, 1, sequence, now, rtt_s):
            self._begin_loss(rtt_s)

    def _begin_loss(self, rtt_s: float) -> None:
        """Start as if the rate so far had been exactly what the equation allows."""
        if self.rate.bytes_per_s:
            self.loss.assume((self.rate.bytes_per_s * rtt_s / self.segment_bytes) ** 2 / 1.5)

    def note_probe(self, probe: CongestionControl, now: float) -> None:
        """Note a probe, and decide when to answer it."""
        self._cc_sequence = probe.cc_sequence
        self._overheard = 0
        self.is_reporting = any(isinstance(extension, Rate) for extension in probe.extensions)
        mine = next((node for node in probe.nodes if node.node_id == self.node_id), None)
        self._flags = 0
        if mine is not None:
            self.rtt_s = rtt_of(mine.rtt_q)
            self._flags = mine.flags & (CcFlag.CLR | CcFlag.PLR)
        if not self.is_reporting:
            return
        if self._flags or not self.is_suppressible:
            self.due_at = now
        elif self.due_at is None and now >= self._held_off_until:
            most_s = max(self.remote.backoff_factor, _BACKOFF_FACTOR_MIN) * self.remote.grtt_s
            wait_s = exponential_backoff(self.random, most_s, self.remote.group_size)
            self.due_at = now + 0.25 * self.random.random() * most_s + 0.75 * wait_s

    def overhear(self, feedback: CcFeedback) -> None:
        """Note the report of another receiver, which makes ours unnecessary if that receiver is slower."""
        self._overheard += 1
        if self.due_at is None or self._flags or feedback.flags & CcFlag.CLR:
            return
        if self._introductions_left:
            if self._overheard >= _INTRODUCTIONS_PER_PROBE_MAX:
                self.due_at = None
            return
        if self.rtt_s is None and feedback.flags & CcFlag.RTT:
            return
        # Compare rates as they are written on the wire, where 0 is not the smallest.
        if rate_of(feedback.rate_q) <= rate_of(quantize_rate(self.rate_bytes_per_s)) / _SUPPRESSION_RATIO:
            self.due_at = None

    def answer(self, now: float) -> None:
        """Note that our answer to the probe is sent now."""
        self.due_at = None
        self._introductions_left = max(0, self._introductions_left - 1)
        self._held_off_until = now + self.remote.backoff_factor * self.remote.grtt_s

    @property
    def rate_bytes_per_s(self) -> float:
        """Rate that this receiver can take: that of the TCP equation, but at most twice the rate of reception."""
        equation = tfrc_rate(self.segment_bytes, self.rtt_s or _RTT_GUESS_S, self.loss.fraction)
        return min(equation, 2.0 * self.rate.bytes_per_s)

    def feedback(self) -> CcFeedback:
        """Return the report that accompanies NACKs and ACKs."""
        loss = self.loss.fraction
        rate = self.rate_bytes_per_s
        flags = self._flags | (CcFlag.RTT if self.rtt_s is not None else 0) | (0 if loss else CcFlag.START)
        if loss and rate == 2.0 * self.rate.bytes_per_s:
            flags |= CcFlag.LIMIT
        return CcFeedback(
            cc_sequence=self._cc_sequence,
            flags=flags,
            rtt_q=quantize_rtt(self.rtt_s or _RTT_GUESS_S),
            loss_q=quantize_loss(loss),
            rate_q=quantize_rate(rate),
        )
