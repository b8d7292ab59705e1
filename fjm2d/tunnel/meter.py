"""What the probes of a link show: its round trip, and what part of the datagrams gets lost, either way."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from .rate import Report

_OPEN_MAX = 256
_RTT_WEIGHT = 1 / 8
_LOSS_WEIGHT = 1 / 4
_SAMPLE_MIN = 16
"""Of fewer datagrams no fraction is taken,"""
_SAMPLE_S_MIN = 0.2
"""nor more often than this."""


class _Asked(NamedTuple):
    at: float
    sent: int
    sent_bytes: int
    size: int
    was_limited: bool


class _Point(NamedTuple):
    """How far both sides were at some time."""

    at: float
    sent: int
    received: int


class Answered(NamedTuple):
    """What an answer tells."""

    size: int
    """Length of the question, as it was given to `ask`."""
    report: Report


class LinkMeter:
    """Questions and answers of one session after the other."""

    __slots__ = ("_asked", "_draw", "_heard", "_told", "_was_limited", "loss_received", "loss_sent", "rtt_s")

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        """`draw` gives so many random bytes."""
        self._draw = draw
        self.rtt_s: float | None = None
        """Smoothed."""
        self.loss_sent = 0.0
        """Of what we send, 0 to 1; smoothed."""
        self.loss_received = 0.0
        """Of what we are sent."""
        self._asked: OrderedDict[int, _Asked] = OrderedDict()
        self._told: _Point | None = None
        """What the last answer said."""
        self._heard: _Point | None = None
        """What the last question said that was sent, and what of it had been received."""
        self._was_limited = False

    def begin(self) -> None:
        """Another session, whose counters begin anew, or another address: older questions have no answer."""
        self._asked.clear()
        self._told = None
        self._heard = None

    def note_limited(self) -> None:
        """The rate keeps data waiting."""
        self._was_limited = True

    def ask(self, now: float, sent: int, sent_bytes: int, size: int) -> int:
        """The number of a question that is about to be asked. `sent_bytes`: all headers included."""
        number = int.from_bytes(self._draw(4))  # nobody can answer but who is at the address that it was sent to
        self._asked[number] = _Asked(now, sent, sent_bytes, size, self._was_limited)
        self._was_limited = False
        if len(self._asked) > _OPEN_MAX:
            self._asked.popitem(last=False)
        return number

    def question(self, sent: int, received: int, now: float) -> None:
        """A question has come: the other side had sent so many, and so many have been received."""
        point = _Point(now, sent, received)
        if self._heard is None or _is_sample(self._heard, point):
            if self._heard is not None:
                self.loss_received += _LOSS_WEIGHT * (_loss(self._heard, point) - self.loss_received)
            self._heard = point

    def answer(self, number: int, received: int, now: float) -> Answered | None:
        """An answer has come; None if it is to no question of this session's, or the second to one."""
        asked = self._asked.pop(number, None)
        if asked is None:
            return None
        rtt_s = now - asked.at
        self.rtt_s = rtt_s if self.rtt_s is None else self.rtt_s + _RTT_WEIGHT * (rtt_s - self.rtt_s)
        point = _Point(asked.at, asked.sent, received)
        if self._told is None or _is_sample(self._told, point):
            if self._told is not None:
                self.loss_sent += _LOSS_WEIGHT * (_loss(self._told, point) - self.loss_sent)
            self._told = point
        report = Report(asked.at, now, asked.sent, asked.sent_bytes, received, asked.was_limited)
        return Answered(asked.size, report)


def _is_sample(before: _Point, point: _Point) -> bool:
    return point.sent - before.sent >= _SAMPLE_MIN and point.at - before.at >= _SAMPLE_S_MIN


def _loss(before: _Point, point: _Point) -> float:
    return min(max(1 - (point.received - before.received) / (point.sent - before.sent), 0.0), 1.0)
