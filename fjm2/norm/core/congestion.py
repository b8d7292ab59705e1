"""Congestion control as a receiver takes part in it: loss, rate and when to report them (RFC 5740, 5.5.2; RFC 5348)."""

import math
from collections import deque
from dataclasses import dataclass, field
from random import Random

from .backoff import exponential_backoff
from .quantize import quantize_loss, quantize_rate, quantize_rtt, rate_of, rtt_of
from .remote_sender import RemoteSender
from .wire import CcFeedback, CcFlag, CongestionControl, Rate

_WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2)
_SEQUENCE_RESTART = 0x2000
"""A jump of more than so many numbers tells nothing: of two trains that a queue has no room for, all are lost."""
_LATE_MOST = 100
"""Fewer numbers back is late, or comes twice; more is a sender that counts anew."""
_RTT_GUESS_S = 0.25
_SUPPRESSION = 0.9
_INTRODUCTIONS = 3
"""So many answers nobody else makes superfluous: a sender may wait for all whom it has heard of."""
_INTRODUCTIONS_A_PROBE = 50
"""When so many others have answered a probe, they wait for a later one: a large group does not speak all at once."""


def tfrc_rate(segment_bytes: float, rtt_s: float, loss: float) -> float:
    """Bytes per second that a TCP flow would reach (RFC 5348, 3.1, with RTO = 4 RTT)."""
    if loss <= 0.0:
        return math.inf
    root = math.sqrt(2.0 * loss / 3.0) + 12.0 * loss * math.sqrt(3.0 * loss / 8.0) * (1.0 + 32.0 * loss * loss)
    return segment_bytes / (rtt_s * root)


class LossHistory:
    """Loss events of one sender's messages by their sequence numbers, as TFRC counts them."""

    __slots__ = ("_event_at", "_expected", "_interval", "_intervals")

    def __init__(self) -> None:
        self._expected: int | None = None
        self._interval = 0
        """Messages since the last loss event."""
        self._intervals: deque[int] = deque(maxlen=len(_WEIGHTS))
        """Messages between loss events, the latest first."""
        self._event_at = -math.inf

    def note(self, first: int, count: int, last: int, now: float, rtt_s: float) -> bool:
        """A run of `count` messages has come, numbered from first to last. Whether a loss event begins."""
        lost = 0
        if self._expected is not None:
            ahead = (first - self._expected + 0x8000 & 0xFFFF) - 0x8000
            if ahead < 0 and ahead >= -_LATE_MOST:
                return False
            lost = ahead if 0 <= ahead <= _SEQUENCE_RESTART else 0
        within = ((last - first) & 0xFFFF) + 1 - count
        lost += within if 0 < within <= _SEQUENCE_RESTART else 0
        self._expected = (last + 1) & 0xFFFF
        is_event = lost > 0 and now - self._event_at > rtt_s
        if is_event:
            self._event_at = now
            self._intervals.appendleft(self._interval + 1)
            self._interval = 0
        self._interval += count
        return is_event

    def assume(self, interval: float) -> None:
        """Before the first loss event there was room for no fewer messages than this (RFC 5348, 6.3.1)."""
        if len(self._intervals) == 1:
            self._intervals[0] = max(self._intervals[0], int(interval))

    @property
    def fraction(self) -> float:
        """The loss event rate; 0 as long as nothing was lost."""
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
    """Bytes per second received, over about the last round-trip time or two."""

    _bytes: int = 0
    _since: float | None = None
    bytes_per_s: float = 0.0

    def note(self, size: int, now: float, rtt_s: float) -> None:
        if self._since is None:
            self._since = now
        self._bytes += size
        elapsed = now - self._since
        if elapsed >= max(rtt_s, 0.01):
            self.bytes_per_s = self._bytes / elapsed
            self._bytes, self._since = 0, now


@dataclass(slots=True)
class CcResponder:
    """Answers a sender's probes, for its round-trip estimate and its congestion control."""

    node_id: int
    remote: RemoteSender
    random: Random
    is_suppressible: bool
    loss: LossHistory = field(default_factory=LossHistory)
    rate: RateMeter = field(default_factory=RateMeter)
    segment_bytes: float = 1000.0
    rtt_s: float | None = None
    """Our own round-trip time, once the sender has told us."""
    due_at: float | None = None
    is_reporting: bool = False
    """Whether the sender wants to know of rate and loss."""
    _flags: int = 0
    _cc_sequence: int = 0
    _held_off_until: float = 0.0
    _introductions_left: int = _INTRODUCTIONS
    _overheard: int = 0
    """Answers of others to the latest probe."""

    def note_data(self, first: int, last: int, count: int, size: int, now: float) -> None:
        """A run of DATA has come, with sequence numbers from first to last."""
        self._note(first, count, last, now)
        self.rate.note(size, now, self.rtt_s or self.remote.grtt_s)
        self.segment_bytes += (size / count - self.segment_bytes) * 0.125

    def note_command(self, sequence: int, now: float) -> None:
        """Any other message of the sender's has come."""
        self._note(sequence, 1, sequence, now)

    def _note(self, first: int, count: int, last: int, now: float) -> None:
        rtt_s = self.rtt_s or self.remote.grtt_s
        if self.loss.note(first, count, last, now, rtt_s) and self.rate.bytes_per_s:
            # As if what came had been just what the equation allows.
            self.loss.assume((self.rate.bytes_per_s * rtt_s / self.segment_bytes) ** 2 / 1.5)

    def note_probe(self, probe: CongestionControl, now: float) -> None:
        """A probe has come: decide when to answer."""
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
            most_s = max(self.remote.backoff_factor, 4) * self.remote.grtt_s
            wait_s = exponential_backoff(self.random, most_s, self.remote.group_size)
            self.due_at = now + 0.25 * self.random.random() * most_s + 0.75 * wait_s

    def overhear(self, feedback: CcFeedback) -> None:
        """Another receiver reports: if it is the slower one, there is no need to."""
        self._overheard += 1
        if self.due_at is None or self._flags or feedback.flags & CcFlag.CLR:
            return
        if self._introductions_left:
            if self._overheard >= _INTRODUCTIONS_A_PROBE:
                self.due_at = None
            return
        if self.rtt_s is None and feedback.flags & CcFlag.RTT:
            return
        # As both are told: a rate of nothing is not the least that can be said.
        if rate_of(feedback.rate_q) <= rate_of(quantize_rate(self.rate_bytes_per_s)) / _SUPPRESSION:
            self.due_at = None

    def answer(self, now: float) -> None:
        """An answer is being sent."""
        self.due_at = None
        self._introductions_left = max(0, self._introductions_left - 1)
        self._held_off_until = now + self.remote.backoff_factor * self.remote.grtt_s

    @property
    def rate_bytes_per_s(self) -> float:
        """What this receiver can take: by the equation, but no more than twice what comes."""
        equation = tfrc_rate(self.segment_bytes, self.rtt_s or _RTT_GUESS_S, self.loss.fraction)
        return min(equation, 2.0 * self.rate.bytes_per_s)

    def feedback(self) -> CcFeedback:
        """The report that goes with NACKs and ACKs."""
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
