"""What the probes of a link show: its round trip, and what part of the datagrams gets lost, either way."""

from collections import OrderedDict
from typing import NamedTuple

from .rate import Report

_OPEN_MAX = 64
_RTT_WEIGHT = 1 / 8
_LOSS_WEIGHT = 1 / 4
_SAMPLE_MIN = 16
"""Of fewer datagrams no fraction is taken."""


class _Asked(NamedTuple):
    at: float
    sent: int
    sent_bytes: int
    size: int


class _Point(NamedTuple):
    """How far both sides were at some time."""

    at: float
    sent: int
    received: int
    sent_bytes: int


class Answered(NamedTuple):
    """What an answer tells."""

    size: int
    """Length of the question, as it was given to `ask`."""
    report: Report | None


class LinkMeter:
    """Questions and answers of one session after the other."""

    __slots__ = ("_asked", "_heard", "_number", "_told", "_was_limited", "loss_received", "loss_sent", "rtt_s")

    def __init__(self) -> None:
        self.rtt_s: float | None = None
        """Smoothed."""
        self.loss_sent = 0.0
        """Of what we send, 0 to 1; smoothed."""
        self.loss_received = 0.0
        """Of what we are sent."""
        self._number = 0
        self._asked: OrderedDict[int, _Asked] = OrderedDict()
        self._told: _Point | None = None
        """What the last answer said."""
        self._heard: tuple[int, int] | None = None
        """What the last question said that was sent, and what of it had been received."""
        self._was_limited = False

    def begin(self) -> None:
        """Another session: its counters begin anew."""
        self._asked.clear()
        self._told = None
        self._heard = None

    def note_limited(self) -> None:
        """The rate keeps data waiting."""
        self._was_limited = True

    def ask(self, now: float, sent: int, sent_bytes: int, size: int) -> int:
        """The number of a question that is about to be asked."""
        self._number = self._number + 1 & 0xFFFFFFFF
        self._asked[self._number] = _Asked(now, sent, sent_bytes, size)
        if len(self._asked) > _OPEN_MAX:
            self._asked.popitem(last=False)
        return self._number

    def question(self, sent: int, received: int) -> None:
        """A question has come: the other side had sent so many, and so many have been received."""
        before = self._heard
        if before is not None and sent - before[0] < _SAMPLE_MIN:
            return
        self._heard = (sent, received)
        if before is not None:
            loss = min(max(1 - (received - before[1]) / (sent - before[0]), 0.0), 1.0)
            self.loss_received += _LOSS_WEIGHT * (loss - self.loss_received)

    def answer(self, number: int, received: int, now: float) -> Answered | None:
        """An answer has come; None if it is to no question of this session's, or the second to one."""
        asked = self._asked.pop(number, None)
        if asked is None:
            return None
        rtt_s = now - asked.at
        self.rtt_s = rtt_s if self.rtt_s is None else self.rtt_s + _RTT_WEIGHT * (rtt_s - self.rtt_s)
        return Answered(asked.size, self._compare(asked, received, rtt_s))

    def _compare(self, asked: _Asked, received: int, rtt_s: float) -> Report | None:
        """What has happened between the last answer and this one."""
        before, point = self._told, _Point(asked.at, asked.sent, received, asked.sent_bytes)
        if before is None:
            self._told = point
            return None
        sent = point.sent - before.sent
        if sent < _SAMPLE_MIN or point.at <= before.at:
            return None
        self._told = point
        lost = min(max(sent - (point.received - before.received), 0), sent)
        loss = lost / sent
        self.loss_sent += _LOSS_WEIGHT * (loss - self.loss_sent)
        delivered_bps = 8 * (point.sent_bytes - before.sent_bytes) * (1 - loss) / (point.at - before.at)
        was_limited, self._was_limited = self._was_limited, False
        return Report(rtt_s, sent, lost, delivered_bps, was_limited)
