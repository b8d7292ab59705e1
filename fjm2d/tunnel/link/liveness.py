"""Liveness of a peer: when to probe it, and when to give it up.

While data flows, a probe is sent every `probe_s`; otherwise every `keepalive_s`, so that address translators on the
way keep their entry. While an answer is overdue, probes are sent more often still. A datagram from the peer does not
prove that the peer hears us: only an answer does, or a question that reports more received datagrams than before.
"""

import math

NEVER = math.inf
_UNCONFIRMED_PROBE_S = 0.25
"""Probe interval while the peer may not know yet that the session exists: data waits for its first use of the keys."""
_LIMITED_S = 0.5
"""Time for which the link is still measured after the rate last made data wait: traffic comes in bursts."""
_OVERDUE_PART = 1 / 4
"""Probe interval while an answer is overdue, as a part of `probe_s`: several probes fit in before `dead_s` is over."""
_SILENT_PART = 2 / 3
"""Part of `dead_s` after which a handshake is tried as well, in case the peer has been restarted."""


class Liveness:
    """Times of one peer: when to probe it, and when to give it up."""

    __slots__ = (
        "_answered_at",
        "_asked_at",
        "_dead_s",
        "_flowed_at",
        "_keepalive_s",
        "_limited_at",
        "_overdue_s",
        "_remote_received",
        "_unanswered_since",
        "heard_at",
        "is_unconfirmed",
        "probe_s",
        "report_s",
    )

    def __init__(self, keepalive_s: float, probe_s: float, dead_s: float) -> None:
        self._keepalive_s = keepalive_s
        self.probe_s = probe_s
        """Probe interval while data flows."""
        self.report_s = probe_s
        """Probe interval while the rate of a measured link makes data wait."""
        self._overdue_s = _OVERDUE_PART * probe_s
        self._dead_s = dead_s
        self.heard_at = -NEVER
        """Time of the newest authentic datagram."""
        self.is_unconfirmed = False
        """True if the session is new and the peer has not used it yet."""
        self._answered_at = -NEVER
        """Time at which the peer last proved that it hears us."""
        self._unanswered_since = NEVER
        """Time of the first probe sent after the peer last proved that it hears us."""
        self._remote_received = 0
        """Datagrams of this session that the peer last reported as received."""
        self._asked_at = -NEVER
        self._flowed_at = -NEVER
        self._limited_at = -NEVER

    def begin(self, now: float) -> None:
        """Start a session, in which both sides have heard each other. A probe is due at once."""
        self.note_heard(now)
        self._note_answered(now)
        self._remote_received = 0
        self._asked_at = -NEVER
        self.is_unconfirmed = True

    def note_heard(self, now: float) -> None:
        """Record an authentic datagram."""
        self.heard_at = now

    def note_report(self, received: int, now: float) -> bool:
        """Record the number of datagrams that the peer has received. Return True if it has grown: the peer hears us."""
        is_news = received > self._remote_received
        if is_news:
            self._remote_received = received
            self._note_answered(now)
        return is_news

    def _note_answered(self, now: float) -> None:
        self._answered_at = now
        self._unanswered_since = NEVER

    def note_flow(self, now: float) -> bool:
        """Record that data flowed. Return True if none did for a while, so that the next probe is due sooner."""
        was_idle = now - self._flowed_at >= self.probe_s
        self._flowed_at = now
        return was_idle

    def note_limited(self, now: float) -> bool:
        """Record that the rate makes data wait. Return True if that is new, so that the next probe is due sooner."""
        was_free = now - self._limited_at >= _LIMITED_S
        self._limited_at = now
        return was_free

    def is_flowing(self, now: float) -> bool:
        """Return True if data was sent or received recently."""
        return now - self._flowed_at < 2 * self.probe_s

    def note_asked(self, now: float) -> None:
        """Record that a probe is sent."""
        self._asked_at = now
        self._unanswered_since = min(self._unanswered_since, now)

    def is_answering(self, now: float, timeout_s: float) -> bool:
        """Return True unless a probe has been without an answer for `timeout_s`."""
        return now - self._unanswered_since < timeout_s

    @property
    def is_deaf(self) -> bool:
        """True if the peer was heard long after a probe that it should have answered."""
        return self.heard_at > self._unanswered_since + self.probe_s

    def ask_at(self) -> float:
        """Return the time at which the next probe is due."""
        if self.is_unconfirmed:
            return self._asked_at + _UNCONFIRMED_PROBE_S
        if self._limited_at + _LIMITED_S > self._asked_at:
            return self._asked_at + self.report_s
        if self._unanswered_since < NEVER:
            is_new = self._asked_at < self._unanswered_since + self._dead_s
            return self._asked_at + (min(self._overdue_s, self.probe_s) if is_new else self.probe_s)
        is_busy = self._flowed_at + self.probe_s > self._asked_at
        return self._asked_at + (self.probe_s if is_busy else self._keepalive_s)

    def can_ask(self, now: float) -> bool:
        """Return True if a probe may be sent before it is due."""
        return now >= self._asked_at + self._overdue_s

    def silent_at(self) -> float:
        """Return the time at which to try a handshake besides the probes."""
        return self._silent_for(self._dead_s * _SILENT_PART)

    def dead_at(self) -> float:
        """Return the time at which to give the peer up."""
        return self._silent_for(self._dead_s)

    def _silent_for(self, silence_s: float) -> float:
        """Return the time at which the silence is this long, and a probe was unanswered for most of it."""
        return max(self._answered_at + silence_s, self._unanswered_since + silence_s - self.probe_s)
