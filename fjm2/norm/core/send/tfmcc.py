"""Congestion control at the sender: NORM-CC, which is TFMCC (RFC 5740, 5.5.2; RFC 4654).

The sender is as fast as its slowest receiver allows. That receiver, the current limiting receiver (CLR), answers every
probe. The potential limiting receivers (PLR), a few that might take its place, answer every probe, too.
"""

from dataclasses import dataclass

from fjm2.norm.core.config import SenderConfig
from fjm2.norm.core.congestion import tfrc_rate
from fjm2.norm.core.quantize import loss_of, quantize_rate, quantize_rtt, rate_of, rtt_of
from fjm2.norm.core.wire import CcFeedback, CcFlag, CcNode

_START_SEGMENTS = 4
"""Segments in the first round trip, before anything is known of the path (RFC 5348, 4.2)."""
_BYTES_PER_S_MIN = 1000.0
"""Lowest rate in bytes per second: without any probes, the rate could never grow again."""
_GROWTH_MAX = 2.0
"""Largest factor of the rate in one step: slow start doubles the rate (RFC 5348, 4.3)."""
_SHRINK_MIN = 0.5
"""Smallest factor of the rate in one step. Each node reports once per probe, so that one false report does little."""
_SILENT_RTTS = 20
"""Round trips without a report after which a receiver is given up. It should answer once in a round trip."""
_SILENT_MIN_S = 1.0
"""Shortest silence in seconds after which a receiver is given up, however short its round trip is: a busy host may
answer late."""
_CLOSE_RATE = 1.1
"""Largest ratio of a receiver's rate to that of the limiting receiver at which it takes over if its round trip is
longer."""
_PLR_MAX = 4
"""Maximum number of potential limiting receivers. There are few, because each answers every probe."""
_SEQUENCE_MASK = 0xFFFF
"""Probe numbers have 16 bits."""


@dataclass(slots=True)
class ReportingReceiver:
    """A receiver that reports loss and rate, as of its last report."""

    node_id: int
    rtt_s: float
    bytes_per_s: float
    reported_at: float
    cc_sequence: int
    is_starting: bool
    """True if the receiver has seen no loss yet."""
    has_rtt: bool


class Tfmcc:
    """Rate that the whole group can receive, adapted to the reports of receivers."""

    def __init__(self, config: SenderConfig, grtt_s: float) -> None:
        self._config = config
        self._most = config.rate_bps / 8 if config.rate_bps is not None else float("inf")
        self._start = max(_START_SEGMENTS * config.segment_bytes / grtt_s, _BYTES_PER_S_MIN)
        """Rate at which to start, and to resume after a pause, in bytes per second (RFC 5348, 4.3)."""
        self.bytes_per_s = min(self._start, self._most)
        self._clr: ReportingReceiver | None = None
        self._plrs: dict[int, ReportingReceiver] = {}
        self._is_starting = True

    @property
    def clr_rtt_s(self) -> float | None:
        """Round-trip time of the limiting receiver in seconds; None if no receiver limits the rate."""
        return None if self._clr is None else self._clr.rtt_s

    def report(
        self, node_id: int, feedback: CcFeedback, rtt_s: float | None, rtt_most_s: float, is_nack: bool, now: float
    ) -> None:
        """Process a receiver's report. `rtt_s` is the round-trip time that its echo measured.

        If `rtt_s` is None, the last time known counts, or else the time that the receiver claims, up to `rtt_most_s`.
        """
        known = self._known(node_id)
        if (
            known is not None
            and not 0 < (feedback.cc_sequence - known.cc_sequence) & _SEQUENCE_MASK < _SEQUENCE_MASK // 2
        ):
            return
        if feedback.flags & CcFlag.LEAVE:
            self._forget(node_id)
            return
        has_rtt = rtt_s is not None or known is not None
        rtt_s = rtt_s or (known.rtt_s if known else min(rtt_of(feedback.rtt_q), rtt_most_s))
        rate = self._rate(feedback, rtt_s, is_nack)
        is_starting = bool(feedback.flags & CcFlag.START)
        node = ReportingReceiver(node_id, rtt_s, rate, now, feedback.cc_sequence, is_starting, has_rtt)
        if self._clr is None or self._clr.node_id == node_id or self._takes_over(node, known, self._clr):
            self._limit_by(node)
        else:
            self._plrs[node_id] = node
        while len(self._plrs) > _PLR_MAX:
            self._plrs.pop(max(self._plrs.values(), key=lambda plr: plr.bytes_per_s).node_id)

    def _known(self, node_id: int) -> ReportingReceiver | None:
        return self._clr if self._clr is not None and self._clr.node_id == node_id else self._plrs.get(node_id)

    def _rate(self, feedback: CcFeedback, rtt_s: float, is_nack: bool) -> float:
        reported = rate_of(feedback.rate_q)
        loss = loss_of(feedback.loss_q)
        if loss <= 0 or feedback.flags & CcFlag.START:
            return max(reported, self._start)
        if is_nack:  # libnorm's NACKs carry only half of the loss
            return reported
        rate = tfrc_rate(self._config.segment_bytes, rtt_s, loss)
        return min(rate, max(reported, self._start)) if feedback.flags & CcFlag.LIMIT else rate

    def _takes_over(self, node: ReportingReceiver, known: ReportingReceiver | None, clr: ReportingReceiver) -> bool:
        """Return True if a node becomes the limiting one. If that more than halves the rate, it must report twice."""
        return self._is_slower(node, clr) and (known is not None or node.bytes_per_s >= clr.bytes_per_s * _SHRINK_MIN)

    @staticmethod
    def _is_slower(node: ReportingReceiver, clr: ReportingReceiver) -> bool:
        is_close = node.bytes_per_s <= clr.bytes_per_s * _CLOSE_RATE
        return node.bytes_per_s < clr.bytes_per_s or (is_close and node.rtt_s > clr.rtt_s)

    def _limit_by(self, clr: ReportingReceiver) -> None:
        if self._clr is not None and self._clr.node_id != clr.node_id:
            self._plrs[self._clr.node_id] = self._clr
        self._plrs.pop(clr.node_id, None)
        self._clr = clr
        if not clr.is_starting:
            self._is_starting = False
        rate = min(max(clr.bytes_per_s, self.bytes_per_s * _SHRINK_MIN), self.bytes_per_s * _GROWTH_MAX)
        self.bytes_per_s = min(max(rate, _BYTES_PER_S_MIN), self._most)

    def _forget(self, node_id: int) -> None:
        self._plrs.pop(node_id, None)
        if self._clr is not None and self._clr.node_id == node_id:
            self._clr = min(self._plrs.values(), key=lambda plr: plr.bytes_per_s, default=None)
            if self._clr is not None:
                del self._plrs[self._clr.node_id]

    def check(self, now: float, is_sending: bool) -> None:
        """Forget receivers that have fallen silent, before a probe. If the limiting receiver has, halve the rate."""
        clr = self._clr
        if clr is None or not is_sending:
            return
        self._plrs = {node_id: plr for node_id, plr in self._plrs.items() if not _is_silent(plr, now)}
        if _is_silent(clr, now):
            self.bytes_per_s = max(self.bytes_per_s / 2, _BYTES_PER_S_MIN)
            self._forget(clr.node_id)

    def nodes(self) -> tuple[CcNode, ...]:
        """Return the receivers to list in the next probe, the limiting receiver first."""
        start = CcFlag.START if self._is_starting else 0
        listed = [] if self._clr is None else [_listed(self._clr, CcFlag.CLR | start)]
        return (*listed, *(_listed(plr, CcFlag.PLR | start) for plr in self._plrs.values()))


def _is_silent(node: ReportingReceiver, now: float) -> bool:
    return now - node.reported_at > max(_SILENT_RTTS * node.rtt_s, _SILENT_MIN_S)


def _listed(node: ReportingReceiver, flags: int) -> CcNode:
    return CcNode(
        node_id=node.node_id,
        flags=flags | (CcFlag.RTT if node.has_rtt else 0),
        rtt_q=quantize_rtt(node.rtt_s),
        rate_q=quantize_rate(node.bytes_per_s),
    )
