"""The rate of one link: as configured, or measured from the answers to probes."""

from ..link_queue import LinkQueue
from .liveness import Liveness
from .rate import RateEstimate, Report

_MEASURED_PROBE_S = 0.2
"""Longest probe interval of a measured link: an estimate needs more reports than liveness does."""


class RateControl:
    """Control of one link's rate: sets the pace of its queue, and the probe interval for measuring."""

    __slots__ = ("_estimate", "_liveness", "_probe_s", "_queue")

    def __init__(self, queue: LinkQueue, liveness: Liveness) -> None:
        self._queue = queue
        self._liveness = liveness
        self._probe_s = liveness.probe_s
        """Probe interval of a link that is not measured."""
        self._estimate: RateEstimate | None = None

    def measure(self, rate_max_bps: float | None, now: float) -> None:
        """Measure the rate from now on. It never exceeds `rate_max_bps`."""
        self._estimate = RateEstimate(rate_max_bps)
        self._liveness.probe_s = min(self._liveness.probe_s, _MEASURED_PROBE_S)
        self._apply(self._estimate, now)

    def set_rate(self, rate_bps: float | None, now: float) -> None:
        """Use a configured rate from now on; None for no limit."""
        self._queue.set_rate(rate_bps, now)
        self._estimate = None
        self._liveness.probe_s = self._liveness.report_s = self._probe_s

    def begin(self, *, is_path_new: bool) -> None:
        """Start over with the counters of a new session, and forget the path if it is another one."""
        if self._estimate is not None:
            self._estimate.begin(is_path_new=is_path_new)

    def receive_report(self, report: Report, now: float) -> None:
        """Adjust the rate to what an answer shows."""
        if self._estimate is not None:
            self._estimate.receive_report(report)
            self._apply(self._estimate, now)

    def _apply(self, estimate: RateEstimate, now: float) -> None:
        self._liveness.report_s = min(estimate.report_s, self._liveness.probe_s)
        self._queue.set_rate(estimate.bps, now)
