"""Whether a peer is there: when to ask it, and when to stop believing.

While data flows it is asked every `probe_s`; otherwise every `keepalive_s`, so that address translators on the way keep
the door open. An answer that stays away makes it `probe_s` again. Anything authentic is as good as an answer.
"""

import math

NEVER = math.inf
_UNCONFIRMED_S = 0.25
"""A session of which the other side may not know yet is confirmed so often."""
_SILENT = 2 / 3
"""Of the time to death: from then on a new handshake is tried as well, for the peer may have been restarted."""


class Liveness:
    """The clock of one peer."""

    __slots__ = (
        "_asked_at",
        "_dead_s",
        "_flowed_at",
        "_keepalive_s",
        "_unanswered_since",
        "heard_at",
        "is_unconfirmed",
        "probe_s",
    )

    def __init__(self, keepalive_s: float, probe_s: float, dead_s: float) -> None:
        self._keepalive_s = keepalive_s
        self.probe_s = probe_s
        self._dead_s = dead_s
        self.heard_at = -NEVER
        """When something authentic came last."""
        self._asked_at = -NEVER
        self._flowed_at = -NEVER
        self._unanswered_since = NEVER
        """When the first question was asked after that."""
        self.is_unconfirmed = False
        """Whether the session is new and the other side has not used it yet."""

    def begin(self, now: float) -> None:
        """There is a session: ask at once."""
        self.heard(now)
        self._asked_at = -NEVER
        self.is_unconfirmed = True

    def heard(self, now: float) -> None:
        """Something authentic has come."""
        self.heard_at = now
        self._unanswered_since = NEVER

    def flowed(self, now: float) -> bool:
        """Data has gone or come. Whether it had not for a while, so that the next question is due sooner."""
        was_idle = now - self._flowed_at >= self.probe_s
        self._flowed_at = now
        return was_idle

    def is_flowing(self, now: float) -> bool:
        """Whether data has gone or come of late."""
        return now - self._flowed_at < 2 * self.probe_s

    def asked(self, now: float) -> None:
        """A probe has been sent."""
        self._asked_at = now
        self._unanswered_since = min(self._unanswered_since, now)

    @property
    def is_answering(self) -> bool:
        """Whether no question is open."""
        return self._unanswered_since == NEVER

    def ask_at(self) -> float:
        """When the next probe is due."""
        if self.is_unconfirmed:
            return self._asked_at + _UNCONFIRMED_S
        is_busy = not self.is_answering or self._flowed_at + self.probe_s > self._asked_at
        return self._asked_at + (self.probe_s if is_busy else self._keepalive_s)

    def silent_at(self) -> float:
        """When to try a new handshake as well."""
        return self._silent_for(self._dead_s * _SILENT)

    def dead_at(self) -> float:
        """When to give the peer up."""
        return self._silent_for(self._dead_s)

    def _silent_for(self, silence_s: float) -> float:
        """When there will have been silence for so long, most of which an answer was awaited."""
        return max(self.heard_at + silence_s, self._unanswered_since + silence_s - self.probe_s)
