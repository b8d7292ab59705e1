"""Congestion control as the sender does it: NORM-CC, which is TFMCC (RFC 5740, 5.5.2; RFC 4654).

The sender goes as fast as its slowest receiver can take. That one, the current limiting receiver (CLR), answers every
probe; a few others that might take its place, the potential ones (PLR), do so too.
"""

from dataclasses import dataclass

from .config import SenderConfig
from .congestion import tfrc_rate
from .quantize import loss_of, quantize_rate, quantize_rtt, rate_of, rtt_of
from .wire import CcFeedback, CcFlag, CcNode

_SEGMENTS_PER_GRTT_AT_START = 4
_BYTES_PER_S_MIN = 1000.0
_GROWTH_MAX = 2.0
_CLR_SILENT_RTTS = 20
_CLR_SILENT_MIN_S = 1.0
_CLOSE_RATE = 1.1
_PLR_MAX = 4
_NEWER_MASK = 0xFFFF


@dataclass(slots=True)
class Node:
    """A receiver that reports."""

    node_id: int
    rtt_s: float
    bytes_per_s: float
    reported_at: float
    cc_sequence: int
    is_starting: bool
    """It has seen no loss yet."""
    has_rtt: bool


class Tfmcc:
    """The rate that the group can take."""

    def __init__(self, config: SenderConfig, grtt_s: float) -> None:
        self._config = config
        self._most = config.rate_bps / 8 if config.rate_bps is not None else float("inf")
        start = _SEGMENTS_PER_GRTT_AT_START * config.segment_bytes / grtt_s
        self.bytes_per_s = min(max(start, _BYTES_PER_S_MIN), self._most)
        self._clr: Node | None = None
        self._plrs: dict[int, Node] = {}
        self._is_starting = True

    @property
    def clr_rtt_s(self) -> float | None:
        """The limiting receiver's round-trip time."""
        return None if self._clr is None else self._clr.rtt_s

    def report(self, node_id: int, feedback: CcFeedback, rtt_s: float | None, is_nack: bool, now: float) -> None:
        """A receiver has told how it fares; `rtt_s` is what its echo has measured."""
        clr = self._clr
        if clr is not None and clr.node_id == node_id:
            ahead = (feedback.cc_sequence - clr.cc_sequence) & _NEWER_MASK
            if not 0 < ahead < 0x8000:
                return
        if feedback.flags & CcFlag.LEAVE:
            self._forget(node_id)
            return
        node = self._node(node_id, feedback, rtt_s, is_nack, now)
        if clr is None or clr.node_id == node_id or self._is_slower(node, clr):
            if clr is not None and clr.node_id != node_id:
                self._plrs[clr.node_id] = clr
            self._plrs.pop(node_id, None)
            self._clr = node
            self._follow(node)
        else:
            self._plrs[node_id] = node
        while len(self._plrs) > _PLR_MAX:
            self._plrs.pop(max(self._plrs.values(), key=lambda plr: plr.bytes_per_s).node_id)

    def _node(self, node_id: int, feedback: CcFeedback, rtt_s: float | None, is_nack: bool, now: float) -> Node:
        known = self._clr if self._clr and self._clr.node_id == node_id else self._plrs.get(node_id)
        rtt = rtt_s or (known.rtt_s if known else rtt_of(feedback.rtt_q))
        rate = rate_of(feedback.rate_q)
        loss = loss_of(feedback.loss_q)
        is_starting = bool(feedback.flags & CcFlag.START)
        if loss > 0 and not is_starting and not is_nack:  # libnorm's NACKs carry half of the loss only
            rate = tfrc_rate(self._config.segment_bytes, rtt, loss)
        return Node(node_id, rtt, rate, now, feedback.cc_sequence, is_starting, rtt_s is not None or bool(known))

    @staticmethod
    def _is_slower(node: Node, clr: Node) -> bool:
        is_close = node.bytes_per_s <= clr.bytes_per_s * _CLOSE_RATE
        return node.bytes_per_s < clr.bytes_per_s or (is_close and node.rtt_s > clr.rtt_s)

    def _follow(self, clr: Node) -> None:
        if not clr.is_starting:
            self._is_starting = False
        rate = min(clr.bytes_per_s, self.bytes_per_s * _GROWTH_MAX)
        self.bytes_per_s = min(max(rate, _BYTES_PER_S_MIN), self._most)

    def _forget(self, node_id: int) -> None:
        self._plrs.pop(node_id, None)
        if self._clr is not None and self._clr.node_id == node_id:
            self._clr = min(self._plrs.values(), key=lambda plr: plr.bytes_per_s, default=None)
            if self._clr is not None:
                del self._plrs[self._clr.node_id]

    def check(self, now: float, is_sending: bool) -> None:
        """Before a probe: come down where the limiting receiver has fallen silent."""
        clr = self._clr
        if clr is None or not is_sending:
            return
        if now - clr.reported_at > max(_CLR_SILENT_RTTS * clr.rtt_s, _CLR_SILENT_MIN_S):
            self.bytes_per_s = max(self.bytes_per_s / 2, _BYTES_PER_S_MIN)
            self._forget(clr.node_id)

    def nodes(self) -> tuple[CcNode, ...]:
        """Whom the next probe speaks to: the limiting receiver first."""
        start = CcFlag.START if self._is_starting else 0
        listed = [] if self._clr is None else [_listed(self._clr, CcFlag.CLR | start)]
        return (*listed, *(_listed(plr, CcFlag.PLR | start) for plr in self._plrs.values()))


def _listed(node: Node, flags: int) -> CcNode:
    return CcNode(
        node_id=node.node_id,
        flags=flags | (CcFlag.RTT if node.has_rtt else 0),
        rtt_q=quantize_rtt(node.rtt_s),
        rate_q=quantize_rate(node.bytes_per_s),
    )
