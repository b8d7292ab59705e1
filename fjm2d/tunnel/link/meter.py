"""Round-trip time of a link, and its losses in both directions, measured by probes and their answers."""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from .rate import Report

_OPEN_QUESTIONS_MAX = 256
"""Maximum number of questions remembered: at the shortest probe interval, those of the last six seconds."""
_RTT_WEIGHT = 1 / 8
"""Weight of a new round trip in the average, as for TCP (RFC 6298, section 2)."""
_LOSS_WEIGHT = 1 / 4
"""Weight of a new loss sample: about four samples have to agree before the average follows."""
_SAMPLE_DATAGRAMS_MIN = 16
"""Least datagrams of a loss sample: fewer give too coarse a fraction."""
_SAMPLE_S_MIN = 0.2
"""Least time between two samples, so that a short burst of losses is one sample."""


class _Question(NamedTuple):
    at: float
    sent: int
    sent_bytes: int
    packet_bytes: int
    was_limited: bool


class _Point(NamedTuple):
    """Datagrams sent on one side, and received on the other, up to some time."""

    at: float
    sent: int
    received: int


class Answered(NamedTuple):
    """Result of a question that was answered."""

    packet_bytes: int
    """Length of the question, as passed to `ask`."""
    report: Report


class LinkMeter:
    """Measurements of one link, from the questions and answers of its sessions."""

    __slots__ = (
        "_draw",
        "_last_answer",
        "_last_question",
        "_questions",
        "_was_limited",
        "loss_received",
        "loss_sent",
        "rtt_s",
    )

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        """`draw` returns the given number of random bytes."""
        self._draw = draw
        self.rtt_s: float | None = None
        """Smoothed round-trip time; None before the first answer."""
        self.loss_sent = 0.0
        """Part of our datagrams that gets lost on the way to the peer, 0 to 1, smoothed."""
        self.loss_received = 0.0
        """Part of the peer's datagrams that gets lost on the way to us, 0 to 1, smoothed."""
        self._questions: OrderedDict[int, _Question] = OrderedDict()
        """Open questions by number, oldest first."""
        self._last_answer: _Point | None = None
        """Datagrams that we had sent, and the peer received, at the last sample."""
        self._last_question: _Point | None = None
        """Datagrams that the peer had sent, and we received, at the last sample."""
        self._was_limited = False

    def begin(self) -> None:
        """Forget open questions: a new session counts from zero, and another address answers none of them."""
        self._questions.clear()
        self._last_answer = None
        self._last_question = None

    def note_limited(self) -> None:
        """Record that the rate makes data wait."""
        self._was_limited = True

    def ask(self, now: float, sent: int, sent_bytes: int, packet_bytes: int) -> int:
        """Return the number for a question that is about to be sent. `sent_bytes` includes all headers."""
        number = int.from_bytes(self._draw(4))  # random, so that only whoever got the question can answer it
        self._questions[number] = _Question(now, sent, sent_bytes, packet_bytes, self._was_limited)
        self._was_limited = False
        if len(self._questions) > _OPEN_QUESTIONS_MAX:
            self._questions.popitem(last=False)
        return number

    def note_question(self, sent: int, received: int, now: float) -> None:
        """Record a question of the peer, which had sent `sent` datagrams, of which `received` arrived."""
        point, before = _Point(now, sent, received), self._last_question
        if before is None or _is_sample(before, point):
            if before is not None:
                self.loss_received += _LOSS_WEIGHT * (_loss(before, point) - self.loss_received)
            self._last_question = point

    def note_answer(self, number: int, received: int, now: float) -> Answered | None:
        """Record an answer. Return None if it answers no open question of this session."""
        question = self._questions.pop(number, None)
        if question is None:
            return None
        rtt_s = now - question.at
        self.rtt_s = rtt_s if self.rtt_s is None else self.rtt_s + _RTT_WEIGHT * (rtt_s - self.rtt_s)
        point, before = _Point(question.at, question.sent, received), self._last_answer
        if before is None or _is_sample(before, point):
            if before is not None:
                self.loss_sent += _LOSS_WEIGHT * (_loss(before, point) - self.loss_sent)
            self._last_answer = point
        report = Report(question.at, now, question.sent, question.sent_bytes, received, question.was_limited)
        return Answered(question.packet_bytes, report)


def _is_sample(before: _Point, point: _Point) -> bool:
    return point.sent - before.sent >= _SAMPLE_DATAGRAMS_MIN and point.at - before.at >= _SAMPLE_S_MIN


def _loss(before: _Point, point: _Point) -> float:
    return min(max(1 - (point.received - before.received) / (point.sent - before.sent), 0.0), 1.0)
