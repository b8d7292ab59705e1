"""Whether a peer is there and hears us: when to ask it, and when to stop believing.

While data flows it is asked every `probe_s`; otherwise every `keepalive_s`, so that address translators on the way keep
the door open. An answer that stays away makes it more often than either. That something comes from a peer does not mean
that it hears us: only answers do, and what it says in its own questions of how much it has received.
"""

import math

NEVER = math.inf
_UNCONFIRMED_S = 0.25
"""A session of which the other side may not know yet is confirmed so often."""
_LIMITED_S = 0.5
"""So long after the rate has kept data waiting it is still of interest what the link takes."""
_ANXIOUS = 1 / 4
"""Of `probe_s`: so often it is asked while an answer stays away, until it is given up."""
_SILENT = 2 / 3
"""Of the time to death: from then on a new handshake is tried as well, for the peer may have been restarted."""


class Liveness:
    """The clock of one peer."""

    __slots__ = (
        "_answered_at",
        "_anxious_s",
        "_asked_at",
        "_dead_s",
        "_flowed_at",
        "_keepalive_s",
        "_limited_at",
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
        self._anxious_s = _ANXIOUS * probe_s
        self._dead_s = dead_s
        self.heard_at = -NEVER
        """When something authentic came last."""
        self._answered_at = -NEVER
        """When it showed last that it hears us."""
        self._remote_received = 0
        """What it said last that it had received of this session."""
        self.report_s = probe_s
        """The same while the rate of a measured link limits."""
        self._asked_at = -NEVER
        self._flowed_at = -NEVER
        self._limited_at = -NEVER
        self._unanswered_since = NEVER
        """When the first question was asked after that."""
        self.is_unconfirmed = False
        """Whether the session is new and the other side has not used it yet."""

    def begin(self, now: float) -> None:
        """There is a session, in which both have heard the other: ask at once."""
        self.heard(now)
        self._answered(now)
        self._remote_received = 0
        self._asked_at = -NEVER
        self.is_unconfirmed = True

    def heard(self, now: float) -> None:
        """Something authentic has come."""
        self.heard_at = now

    def told(self, received: int, now: float) -> bool:
        """A probe says how many datagrams the peer has received. Whether any of them is news, and so it hears us."""
        is_news = received > self._remote_received
        if is_news:
            self._remote_received = received
            self._answered(now)
        return is_news

    def _answered(self, now: float) -> None:
        self._answered_at = now
        self._unanswered_since = NEVER

    def flowed(self, now: float) -> bool:
        """Data has gone or come. Whether it had not for a while, so that the next question is due sooner."""
        was_idle = now - self._flowed_at >= self.probe_s
        self._flowed_at = now
        return was_idle

    def limited(self, now: float) -> bool:
        """The rate keeps data waiting. Whether it had not of late, so that the next question is due sooner."""
        was_free = now - self._limited_at >= _LIMITED_S
        self._limited_at = now
        return was_free

    def is_flowing(self, now: float) -> bool:
        """Whether data has gone or come of late."""
        return now - self._flowed_at < 2 * self.probe_s

    def asked(self, now: float) -> None:
        """A probe has been sent."""
        self._asked_at = now
        self._unanswered_since = min(self._unanswered_since, now)

    def is_answering(self, now: float, timeout_s: float) -> bool:
        """Whether no question has been open for so long."""
        return now - self._unanswered_since < timeout_s

    @property
    def is_deaf(self) -> bool:
        """Whether it is heard, long after the question that it should have answered."""
        return self.heard_at > self._unanswered_since + self.probe_s

    def ask_at(self) -> float:
        """When the next probe is due."""
        if self.is_unconfirmed:
            return self._asked_at + _UNCONFIRMED_S
        if self._limited_at + _LIMITED_S > self._asked_at:
            return self._asked_at + self.report_s
        if self._unanswered_since < NEVER:
            is_new = self._asked_at < self._unanswered_since + self._dead_s
            return self._asked_at + (min(self._anxious_s, self.probe_s) if is_new else self.probe_s)
        is_busy = self._flowed_at + self.probe_s > self._asked_at
        return self._asked_at + (self.probe_s if is_busy else self._keepalive_s)

    def ask_soon_at(self) -> float:
        """The earliest time for a question that there is a reason for."""
        return self._asked_at + self._anxious_s

    def silent_at(self) -> float:
        """When to try a new handshake as well."""
        return self._silent_for(self._dead_s * _SILENT)

    def dead_at(self) -> float:
        """When to give the peer up."""
        return self._silent_for(self._dead_s)

    def _silent_for(self, silence_s: float) -> float:
        """When it will not have heard us for so long, most of which an answer was awaited."""
        return max(self._answered_at + silence_s, self._unanswered_since + silence_s - self.probe_s)
