"""Estimate of the rate of a link that has no configured rate, from what the probes report.

A round trip that stays longer than the shortest means that a queue fills somewhere on the path; loss means that a queue
is full. Until either happens the rate grows: at the start to twice what gets across, later slowly at first and then
ever faster. Then the rate falls once, until the queue is gone, and continues a little below what got across. A queue or
a loss that does not react to the fall is caused by others, and counts as a property of the path from then on.
"""

import math
from collections import deque
from typing import NamedTuple

START_BPS = 1e6
"""First rate, before anything is known: nearly every link carries it."""
_START_BPS_MAX = 10e6
"""Highest rate that the first round trip alone may suggest."""
_START_BITS = 192e3
"""Bits to send in the first round trip, at a rate from `START_BPS` to `_START_BPS_MAX`: sixteen datagrams."""
FLOOR_BPS = 100e3
"""Lowest rate, so that a link never stops: a full datagram takes 120 ms."""
REPORT_S = 0.025
"""Shortest interval of reports: several reports fit into the round trip of a wide-area path."""
_REPORT_BITS = 96e3
"""Least bits between two reports: with fewer than eight datagrams, a report shows nothing."""
_START_GAIN = 2.0
"""Highest rate after growth, as a multiple of the rate that gets across."""
_GROWTH = 200.0
"""Growth of the rate in a second, as a multiple of its square root. Links that share a bottleneck converge to equal
rates, because all of them fall by a fraction."""
_ACCELERATION = 0.02
"""Further growth in a second, as a part of the rate. It is multiplied by the square of the seconds since the last
fall."""
_GROWTH_MAX = 2.0
"""Largest further growth in a second that `_ACCELERATION` may cause, as a part of the rate."""
_RETURN = 1.0
"""Least growth in a second, as a part of the rate, while the rate is far below the rate before the last fall."""
_NEAR = 0.8
"""Part of the rate before the last fall up to which `_RETURN` applies."""
_AIM_KEPT = 0.5
"""Part of the rate aimed at that is kept if the rate falls again before it gets there."""
_DRAIN = 0.7
"""Rate while the queue drains, as a part of what got across."""
_RESUME = 0.92
"""Rate after the queue has drained, as a part of what got across."""
_QUEUE_S_MIN = 0.01
"""Lower bound of the queueing that is tolerated: schedulers of busy hosts cause as much."""
_QUEUE_S_MAX = 0.025
"""Upper bound of the queueing that is tolerated on a steady path: more would show in every latency."""
_QUEUE_PART = 0.2
"""Queueing that is tolerated, as a part of the shortest round trip, between `_QUEUE_S_MIN` and `_QUEUE_S_MAX`."""
_QUEUE_BITS = 36e3
"""Queueing that is tolerated on the slowest links, in bits that wait: three datagrams."""
_JITTERS = 4.0
"""Queueing that is tolerated on an unsteady path such as a radio link, as a multiple of the jitter."""
_JITTER_S_MAX = 0.06
"""Longest queueing that is tolerated on an unsteady path."""
_JITTER_WEIGHT = 1 / 32
"""Weight of a new difference in the average jitter: low, because our own queue grows slowly and must not count."""
_QUEUE_GONE = 0.5
"""Part of the tolerated queueing below which a queue counts as gone."""
_STEADY_S = 0.1
"""Time during which all probes must have waited to prove a queue. A busy host delays only some of the probes."""
_FALL_S = 1.0
"""Time in which a fall of the rate must show an effect."""
_BETTER_S = 0.05
_BETTER = 0.25
"""Reduction of a queue that proves that our traffic causes the queue: by `_BETTER_S` seconds, or by the part
`_BETTER`."""
_STAYING = 0.5
"""Part of the loss that may remain after the rate has fallen. If more remains, our rate does not cause the loss."""
_ACROSS = 0.9
"""Part of the data sent that must get across in the same time. If less does, the rate is too high."""
_ACROSS_SOON = 0.85
"""Part that must get across, as `_ACROSS`, soon after a fall: then an answer that is late by chance weighs more."""
_FALL_MOST = 0.7
"""Lower bound of the estimate of what got across, as a part of the rate, until it is certain that a queue stays."""
_WINDOW_S = 0.1
_LONG_WINDOW_S = 0.3
"""Times over which reports are compared, for a quick estimate and for a steadier one."""
_WINDOW_SENT = 16
_LOSS_SENT = 100
"""Least datagrams for an estimate of the rate, and of the loss: fewer give too coarse a fraction."""
_PAUSE_S = 1.5
"""Time without data waiting after which earlier reports are ignored."""
_LOSS_TOLERATED = 0.02
"""Part lost beyond the path's own that is tolerated, because NORM repairs it cheaply."""
_DEVIATIONS = 4.0
"""Standard deviations by which losses may exceed the tolerated loss. By chance they exceed that once in 30,000
cases."""
_LOSS_WEIGHT = 0.02
"""Weight of a new sample in the average of the path's own loss, if the sample is lower."""
_SHORT = 0.3
"""Least time in which datagrams are taken to arrive, as a part of the time in which they were sent."""
_POINTS_KEPT = 64
"""Maximum number of reports kept: at the shortest interval, those of 1.6 s."""


class Report(NamedTuple):
    """Result of a probe and its answer. Numbers count from the beginning of the session."""

    asked_at: float
    answered_at: float
    sent: int
    """Datagrams sent."""
    sent_bytes: int
    """Bytes sent, all headers included."""
    received: int
    """Datagrams that the peer received."""
    was_limited: bool
    """True if the rate made data wait since the last probe."""

    @property
    def trip_s(self) -> float:
        """Round-trip time of the probe and its answer."""
        return self.answered_at - self.asked_at


class _Flow:
    """Traffic between two reports."""

    __slots__ = ("arrived_bps", "left_bps", "loss", "part", "sent")

    def __init__(self, first: Report, last: Report) -> None:
        self.sent = last.sent - first.sent
        """Datagrams sent."""
        self.loss = min(max(1 - (last.received - first.received) / self.sent, 0.0), 1.0)
        sent_s = last.asked_at - first.asked_at
        took_s = last.answered_at - first.answered_at
        bits = 8 * (last.sent_bytes - first.sent_bytes) * (1 - self.loss)
        self.left_bps = bits / max(took_s, _SHORT * sent_s)
        """Rate at which the queue on the path was emptied, if there was a queue all the time."""
        self.arrived_bps = bits / max(took_s, sent_s)
        """Rate at which data got across."""
        self.part = (1 - self.loss) * sent_s / max(took_s, sent_s)
        """Part of the data sent that got across in the same time: below 1 if a queue grows or drops datagrams."""


class _Fall:
    """A fall of the rate: its cause, and its effect."""

    __slots__ = ("at", "before_bps", "first_bps", "is_ours", "least_s", "loss", "queue_s", "through_bps")

    def __init__(
        self, at: float, before_bps: float, through_bps: float, loss: float, first_bps: float | None = None
    ) -> None:
        self.at = at
        self.before_bps = before_bps
        self.first_bps = first_bps
        """Rate that got across before the first fall, if this is a second fall because the first had no effect."""
        self.through_bps = through_bps
        """Rate that got across before this fall."""
        self.loss = loss
        """Part that was lost before this fall; 0 once its effect on the loss is known."""
        self.is_ours = True
        """True if our own traffic is the cause."""
        self.queue_s: float | None = None
        """Time that the first probe after the fall waited in queues."""
        self.least_s = math.inf
        """Least time that a probe after the fall waited in queues."""

    def note_queue(self, queue_s: float) -> None:
        if self.queue_s is None:
            self.queue_s = queue_s
        self.least_s = min(self.least_s, queue_s)

    @property
    def is_queue_shorter(self) -> bool:
        return self.queue_s is not None and self.queue_s - self.least_s > min(_BETTER_S, _BETTER * self.queue_s)


class RateEstimate:
    """Estimate of the rate of one link."""

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
        """Rate to return to: the one before the last fall, or the rate that got across if the former was too high."""
        self._base_s = math.inf
        """Shortest round-trip time so far."""
        self._last_trip_s: float | None = None
        self._jitter_s = 0.0
        """Average difference between successive round trips."""
        self._own_loss = 0.0
        """Part of the datagrams that the path itself loses, however low the rate is."""
        self._points: deque[Report] = deque(maxlen=_POINTS_KEPT)
        self._queued_since = math.inf
        """Time of the first of the latest probes that have all waited in a queue."""
        self._limited_at = -math.inf
        self._grown_s = 0.0
        """Time during which the rate was fully used since it last fell."""
        self._fall: _Fall | None = None
        """The fall that is not over yet."""
        self._fell_at = -math.inf

    @property
    def report_s(self) -> float:
        """Interval of reports while the rate makes data wait."""
        return max(REPORT_S, _REPORT_BITS / self.bps)

    def begin(self, *, is_path_new: bool) -> None:
        """Start over: the numbers of a new session begin at zero, and the path may be another one."""
        self._points.clear()
        self._queued_since = math.inf
        if is_path_new:
            self._base_s = math.inf
            self._own_loss = self._aim_bps = self._jitter_s = 0.0
            self._last_trip_s = None

    def receive_report(self, report: Report) -> float:
        """Adjust the rate to a report, and return the rate."""
        self._note_jitter(report.trip_s)
        if report.asked_at < self._fell_at:
            return self.bps  # the question was asked before the fall
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
        path_s = min(max(_QUEUE_PART * self._base_s, _QUEUE_S_MIN), _QUEUE_S_MAX)
        return max(path_s, min(_JITTERS * self._jitter_s, _JITTER_S_MAX), _QUEUE_BITS / self.bps)

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
        """Act on a probe that waited in a queue, perhaps by chance. At the start there is no time to find out."""
        if not self._is_starting:
            return
        flow = self._flow(_WINDOW_S)
        if flow is not None:
            self._set(min(self.bps, max(self._across_bps(flow), START_BPS)))
        elif self.bps <= _START_BPS_MAX:
            self._set(min(self.bps, START_BPS))

    def _across_bps(self, flow: "_Flow") -> float:
        """Return the rate that gets across, or would if it were used up: a busy host sends less than it may."""
        return max(flow.arrived_bps, self.bps * flow.part)

    def _begin_fall(self, report: Report, loss: float) -> None:
        short, long = self._flow(_WINDOW_S), self._flow(_LONG_WINDOW_S)
        if short is None or (long is not None and long.part >= _ACROSS):
            through_bps = self.bps
        else:
            through_bps = max(short.arrived_bps, _FALL_MOST * self.bps)
        self._aim_at(through_bps if loss else self.bps)
        self._fall_to(through_bps, report.answered_at, loss)

    def _aim_at(self, reached_bps: float) -> None:
        """Aim at the rate before this fall; or at half the old aim, if the rate was still far below that."""
        is_far = self.bps < _NEAR * self._aim_bps
        self._aim_bps = max(reached_bps, _AIM_KEPT * self._aim_bps) if is_far else reached_bps

    def _fall_to(self, through_bps: float, now: float, loss: float, first_bps: float | None = None) -> None:
        self._fell_at = now
        self._fall = _Fall(now, self.bps, through_bps, loss, first_bps)
        self._points.clear()
        self._set(_DRAIN * through_bps)

    def _drain(self, fall: _Fall, report: Report, queue_s: float) -> None:
        """Keep the rate low until the queue is gone, or until that proves to have no effect."""
        is_queue_gone = queue_s <= _QUEUE_GONE * self._queue_allowed_s
        if fall.queue_s is None and is_queue_gone and not fall.loss:
            # No queue drains at once, so there was no queue: a host was busy.
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
            # The queue may be ours although the fall was too small to show it: fall once more.
            self._fall_to(self.bps, report.answered_at, fall.loss, fall.through_bps)
        elif is_late:
            self._base_s = report.trip_s
            self._end_fall(fall.first_bps or fall.through_bps)

    def _judge_loss(self, fall: _Fall, flow: _Flow) -> None:
        """Find out if the fall has reduced the loss. If not, the path itself causes the loss."""
        if flow.loss > _STAYING * fall.loss:
            self._own_loss = max(self._own_loss, flow.loss)
            fall.is_ours = False
        fall.loss = 0.0

    def _end_fall(self, bps: float, *, grown_s: float = 0.0) -> None:
        self._fall = None
        self._queued_since = math.inf
        self._grown_s = grown_s
        self._set(bps)

    def _flow(self, span_s: float, sent: int = _WINDOW_SENT) -> "_Flow | None":
        """Return the traffic of the last reports that span this much time and this many datagrams, if any do."""
        last = self._points[-1]
        for first in reversed(self._points):
            if last.sent - first.sent >= sent and last.asked_at - first.asked_at >= span_s:
                return _Flow(first, last)
        return None

    def _excessive_loss(self) -> float:
        """Return the part lost if it is more than the path's own loss and chance explain; otherwise 0."""
        flow = self._flow(_WINDOW_S, _LOSS_SENT)
        if flow is None:
            return 0.0
        if flow.loss < self._own_loss:
            self._own_loss += _LOSS_WEIGHT * (flow.loss - self._own_loss)
        tolerated = (self._own_loss + _LOSS_TOLERATED) * flow.sent
        is_excessive = flow.loss * flow.sent > tolerated + _DEVIATIONS * math.sqrt(tolerated)
        return flow.loss if is_excessive else 0.0
