"""How fast a link may be used where nobody has said it: found out from what the probes report.

A round trip that stays longer than the shortest means that a queue fills somewhere on the path, loss that one is full.
Until either happens the rate grows: at the start it is twice what gets across, later it grows slowly at first and then
ever faster. When it happens, the rate falls once, until the queue is gone, and then goes on a little below what got
across. A queue or a loss that does not care is somebody else's, and from then on taken for the path's own.
"""

import math
from collections import deque
from typing import NamedTuple

START_BPS = 1e6
_START_BPS_MAX = 10e6
_START_BITS = 192e3
"""Sixteen datagrams: sent in the first round trip, between those two rates."""
FLOOR_BPS = 100e3
REPORT_S = 0.025
_REPORT_BITS = 96e3
"""Reports that come more often than every eight datagrams show nothing."""
_START_GAIN = 2.0
"""Times what gets across; more than that the rate never grows to."""
_GROWTH = 200.0
"""Times the root of the rate, a second: those who share a link come to have alike, since all fall by a fraction."""
_ACCELERATION = 0.02
"""Of the rate, a second, times the square of the seconds since the last fall."""
_GROWTH_MAX = 2.0
"""Of the rate, a second."""
_RETURN = 1.0
"""Of the rate, a second: it grows so fast at least towards what it was before it fell,"""
_NEAR = 0.8
"""up to this part of that,"""
_AIM_KEPT = 0.5
"""and if it does not get there, so much of it remains what it was."""
_DRAIN = 0.7
"""Of what got across: the rate while the queue drains."""
_RESUME = 0.92
"""The same: the rate afterwards."""
_QUEUE_S_MIN = 0.01
_QUEUE_S_MAX = 0.025
_QUEUE_OF_BASE = 0.2
"""Of the shortest round trip, between those two: so much longer a round trip may be."""
_QUEUE_BITS = 36e3
"""Three datagrams may wait for each other on the slowest link."""
_JITTERS = 4.0
"""It may be longer by so many times what one differs from the next, as on a radio link,"""
_JITTER_S_MAX = 0.06
"""up to this."""
_JITTER_WEIGHT = 1 / 32
_QUEUE_GONE = 0.5
"""Of what may be."""
_STEADY_S = 0.1
"""Questions asked throughout so long a time have waited: then it was a queue, and not a host that was busy."""
_FALL_S = 1.0
"""What has not become better by then will not."""
_BETTER_S = 0.05
_BETTER = 0.25
"""A queue of ours gets shorter by so much meanwhile, or by such a part."""
_STAYING = 0.5
"""Loss of which more than this part stays is not of our making."""
_ACROSS = 0.9
"""Where less than this part of what is sent gets across in the same time, too much is sent."""
_ACROSS_SOON = 0.85
"""The same of 300 ms, in which answers that are late by chance weigh more."""
_FALL_MOST = 0.7
"""Lower than this part of the rate what got across is not believed to be, before the queue has been seen to stay."""
_WINDOW_S = 0.1
_LONG_WINDOW_S = 0.3
_WINDOW_SENT = 16
_LOSS_SENT = 100
"""Datagrams without which nothing is said about rate and loss."""
_PAUSE_S = 1.5
"""When the rate has limited nothing for so long, what got across before shows nothing."""
_LOSS_TOLERATED = 0.02
_DEVIATIONS = 4.0
"""So far above what is tolerated the number of those lost may lie by chance."""
_LOSS_WEIGHT = 0.02
_SHORT = 0.3
"""In less than this part of the time in which they were sent, datagrams do not arrive."""
_POINTS_KEPT = 64


class Report(NamedTuple):
    """What a probe and its answer have shown. Numbers count from the beginning of the session."""

    asked_at: float
    answered_at: float
    sent: int
    """Datagrams."""
    sent_bytes: int
    """All headers included."""
    received: int
    was_limited: bool
    """Whether the rate kept data waiting since the last question."""

    @property
    def trip_s(self) -> float:
        return self.answered_at - self.asked_at


class _Flow:
    """What happened between two reports."""

    __slots__ = ("arrived_bps", "left_bps", "loss", "part", "sent")

    def __init__(self, first: Report, last: Report) -> None:
        self.sent = last.sent - first.sent
        """Datagrams."""
        self.loss = min(max(1 - (last.received - first.received) / self.sent, 0.0), 1.0)
        sent_s = last.asked_at - first.asked_at
        took_s = last.answered_at - first.answered_at
        bits = 8 * (last.sent_bytes - first.sent_bytes) * (1 - self.loss)
        self.left_bps = bits / max(took_s, _SHORT * sent_s)
        """How fast the queue was emptied, if there was one throughout."""
        self.arrived_bps = bits / max(took_s, sent_s)
        self.part = (1 - self.loss) * sent_s / max(took_s, sent_s)
        """Of what was sent, that got across in the same time: less than all where a queue grows, or drops."""


class _Fall:
    """What it was for, and whether it helps."""

    __slots__ = ("at", "before_bps", "first_bps", "is_ours", "least_s", "loss", "queue_s", "through_bps")

    def __init__(
        self, at: float, before_bps: float, through_bps: float, loss: float, first_bps: float | None = None
    ) -> None:
        self.at = at
        self.before_bps = before_bps
        self.first_bps = first_bps
        """What got across before the first fall, if that one did not help."""
        self.through_bps = through_bps
        """What got across before."""
        self.loss = loss
        """What was lost, while it is not known yet whether that helps."""
        self.is_ours = True
        """Whether it is we who send too much."""
        self.queue_s: float | None = None
        """How long it was when the rate had fallen."""
        self.least_s = math.inf
        """The shortest since."""

    def note_queue(self, queue_s: float) -> None:
        if self.queue_s is None:
            self.queue_s = queue_s
        self.least_s = min(self.least_s, queue_s)

    @property
    def is_queue_shorter(self) -> bool:
        return self.queue_s is not None and self.queue_s - self.least_s > min(_BETTER_S, _BETTER * self.queue_s)


class RateEstimate:
    """The rate of one link."""

    __slots__ = (
        "_aim_bps",
        "_base_s",
        "_fall",
        "_fell_at",
        "_grown_s",
        "_is_starting",
        "_jitter_s",
        "_last_trip_s",
        "_limited_at",
        "_most_bps",
        "_own_loss",
        "_points",
        "_queued_since",
        "bps",
    )

    def __init__(self, most_bps: float | None) -> None:
        self._most_bps = most_bps or math.inf
        self.bps = min(START_BPS, self._most_bps)
        self._is_starting = True
        self._aim_bps = 0.0
        """The rate from which it fell, or what got across if that was too much."""
        self._base_s = math.inf
        """The shortest round trip."""
        self._last_trip_s: float | None = None
        self._jitter_s = 0.0
        """What a round trip differs from the one before. A queue of ours grows and goes bit by bit."""
        self._own_loss = 0.0
        """What the path loses whatever is sent."""
        self._points: deque[Report] = deque(maxlen=_POINTS_KEPT)
        self._queued_since = math.inf
        """When the first of the questions was asked that have all waited."""
        self._limited_at = -math.inf
        self._grown_s = 0.0
        """How long the rate has been made use of since it fell."""
        self._fall: _Fall | None = None
        """The one that is not over yet."""
        self._fell_at = -math.inf

    @property
    def report_s(self) -> float:
        """How often a report is wanted while the rate limits."""
        return max(REPORT_S, _REPORT_BITS / self.bps)

    def begin(self, *, is_path_new: bool) -> None:
        """Numbers begin anew, and perhaps on another path."""
        self._points.clear()
        self._queued_since = math.inf
        if is_path_new:
            self._base_s = math.inf
            self._own_loss = self._aim_bps = self._jitter_s = 0.0
            self._last_trip_s = None

    def receive_report(self, report: Report) -> float:
        """The rate from now on."""
        self._note_jitter(report.trip_s)
        if report.asked_at < self._fell_at:
            return self.bps  # that is of the time before
        if report.was_limited:
            if report.asked_at - self._limited_at > _PAUSE_S:
                self._points.clear()
            self._limited_at = report.asked_at
        elapsed_s = report.asked_at - self._points[-1].asked_at if self._points else 0.0
        self._points.append(report)
        self._base_s = min(self._base_s, report.trip_s)
        queue_s = report.trip_s - self._base_s
        if queue_s <= self._queue_allowed_s:
            self._queued_since = math.inf
        else:
            self._queued_since = min(self._queued_since, report.asked_at)
        if self._fall is not None:
            self._drain(self._fall, report, queue_s)
        elif (loss := self._excessive_loss()) or report.asked_at - self._queued_since >= _STEADY_S:
            self._begin_fall(report, loss)
        elif self._queued_since < math.inf:
            self._hesitate()
        elif report.was_limited:
            self._grow(min(elapsed_s, _WINDOW_S))
        return self.bps

    def _note_jitter(self, trip_s: float) -> None:
        if self._last_trip_s is not None:
            self._jitter_s += _JITTER_WEIGHT * (abs(trip_s - self._last_trip_s) - self._jitter_s)
        self._last_trip_s = trip_s

    def _set(self, bps: float) -> None:
        self.bps = min(max(bps, FLOOR_BPS), self._most_bps)

    @property
    def _queue_allowed_s(self) -> float:
        path_s = min(max(_QUEUE_OF_BASE * self._base_s, _QUEUE_S_MIN), _QUEUE_S_MAX)
        return max(path_s, min(_JITTERS * self._jitter_s, _JITTER_S_MAX), _QUEUE_BITS / self.bps)

    # Up.

    def _grow(self, elapsed_s: float) -> None:
        flow = self._flow(_WINDOW_S)
        most = 0.0 if flow is None else _START_GAIN * flow.arrived_bps
        if self._is_starting:
            self._set(max(self.bps, most, min(_START_BITS / self._base_s, _START_BPS_MAX)))
            return
        self._grown_s += elapsed_s
        faster = min(_ACCELERATION * self._grown_s**2, _GROWTH_MAX) * self.bps
        if self.bps < _NEAR * self._aim_bps:
            faster = max(faster, _RETURN * self.bps)
        grown = self.bps + elapsed_s * (_GROWTH * math.sqrt(self.bps) + faster)
        self._set(max(self.bps, min(grown, most)))

    def _hesitate(self) -> None:
        """A question has waited, which may mean nothing. At the start there is no time to find out."""
        if not self._is_starting:
            return
        flow = self._flow(_WINDOW_S)
        if flow is not None:
            self._set(min(self.bps, max(self._across_bps(flow), START_BPS)))
        elif self.bps <= _START_BPS_MAX:
            self._set(min(self.bps, START_BPS))

    def _across_bps(self, flow: "_Flow") -> float:
        """What gets across, or would if the rate were made use of: a host that is busy sends less than it may."""
        return max(flow.arrived_bps, self.bps * flow.part)

    # Down.

    def _begin_fall(self, report: Report, loss: float) -> None:
        short, long = self._flow(_WINDOW_S), self._flow(_LONG_WINDOW_S)
        if short is None or (long is not None and long.part >= _ACROSS):
            through_bps = self.bps
        else:
            through_bps = max(short.arrived_bps, _FALL_MOST * self.bps)
        self._aim_at(through_bps if loss else self.bps)
        self._fall_to(through_bps, report.answered_at, loss)

    def _aim_at(self, reached_bps: float) -> None:
        """Back to where it is about to fall from; or half way to where it was before, if it was still on its way."""
        is_far = self.bps < _NEAR * self._aim_bps
        self._aim_bps = max(reached_bps, _AIM_KEPT * self._aim_bps) if is_far else reached_bps

    def _fall_to(self, through_bps: float, now: float, loss: float, first_bps: float | None = None) -> None:
        self._fell_at = now
        self._fall = _Fall(now, self.bps, through_bps, loss, first_bps)
        self._points.clear()
        self._set(_DRAIN * through_bps)

    def _drain(self, fall: _Fall, report: Report, queue_s: float) -> None:
        """Stay low until the queue is gone, as long as that helps."""
        is_queue_gone = queue_s <= _QUEUE_GONE * self._queue_allowed_s
        if fall.queue_s is None and is_queue_gone and not fall.loss:
            # No queue drains at once: a host was busy for long.
            self._end_fall(fall.before_bps, grown_s=self._grown_s)
            return
        fall.note_queue(queue_s)
        flow = self._flow(_LONG_WINDOW_S, _LOSS_SENT if fall.loss else _WINDOW_SENT)
        if is_queue_gone and fall.loss and flow is not None:
            self._judge_loss(fall, flow)
        if not is_queue_gone and flow is not None:
            fall.through_bps = min(fall.through_bps, max(flow.left_bps, self.bps))
        is_late = report.asked_at - fall.at >= _FALL_S
        enough = _ACROSS if is_late else _ACROSS_SOON
        if is_queue_gone and (is_late or not fall.loss):
            self._is_starting = self._is_starting and not fall.is_ours
            self._end_fall((_RESUME if fall.is_ours else 1.0) * fall.through_bps)
        elif not is_queue_gone and flow is not None and flow.part < enough * (1 - self._own_loss):
            self._fall_to(self._across_bps(flow), report.answered_at, fall.loss)
        elif is_late and fall.is_queue_shorter:
            self._fall = _Fall(report.asked_at, fall.before_bps, fall.through_bps, fall.loss)
        elif is_late and fall.first_bps is None:
            # It may be ours nearly to the last bit: see whether still less helps.
            self._fall_to(self.bps, report.answered_at, fall.loss, fall.through_bps)
        elif is_late:
            self._base_s = report.trip_s
            self._end_fall(fall.first_bps or fall.through_bps)

    def _judge_loss(self, fall: _Fall, flow: _Flow) -> None:
        """Whether there is less of it than before."""
        if flow.loss > _STAYING * fall.loss:
            self._own_loss = max(self._own_loss, flow.loss)
            fall.is_ours = False
        fall.loss = 0.0

    def _end_fall(self, bps: float, *, grown_s: float = 0.0) -> None:
        self._fall = None
        self._queued_since = math.inf
        self._grown_s = grown_s
        self._set(bps)

    # What the last reports say together.

    def _flow(self, span_s: float, sent: int = _WINDOW_SENT) -> "_Flow | None":
        """Of the last that span so much time, and so many datagrams."""
        last = self._points[-1]
        for first in reversed(self._points):
            if last.sent - first.sent >= sent and last.asked_at - first.asked_at >= span_s:
                return _Flow(first, last)
        return None

    def _excessive_loss(self) -> float:
        """Part of what is sent that does not arrive, if it is more than the path's own and chance explain; else 0."""
        flow = self._flow(_WINDOW_S, _LOSS_SENT)
        if flow is None:
            return 0.0
        if flow.loss < self._own_loss:
            self._own_loss += _LOSS_WEIGHT * (flow.loss - self._own_loss)
        tolerated = (self._own_loss + _LOSS_TOLERATED) * flow.sent
        is_excessive = flow.loss * flow.sent > tolerated + _DEVIATIONS * math.sqrt(tolerated)
        return flow.loss if is_excessive else 0.0
