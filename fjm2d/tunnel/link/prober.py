"""Probes between two gateways. They show that the peer is alive, and measure the link to it."""

from collections import deque

from fjm2.norm import Address

from ..peer_stats import PeerStats
from ..sealer import Sealer
from ..session import Session
from ..wire import OVERHEAD_BYTES, PROBE_BYTES, Probe, ProbeFlag
from .liveness import Liveness
from .meter import Answered, LinkMeter
from .path import Path
from .rate_control import RateControl


class Prober:
    """Probes to one peer, and evaluation of the peer's answers."""

    __slots__ = ("_messages", "_path", "_sealer", "_stats", "liveness", "meter", "rate")

    def __init__(
        self,
        liveness: Liveness,
        meter: LinkMeter,
        rate: RateControl,
        path: Path,
        sealer: Sealer,
        stats: PeerStats,
        messages: deque[tuple[Address, bytes]],
    ) -> None:
        self.liveness = liveness
        self.meter = meter
        self.rate = rate
        self._path = path
        self._sealer = sealer
        self._stats = stats
        self._messages = messages

    def begin_session(self) -> None:
        """Forget open questions: another session counts from zero."""
        self.meter.begin()
        self.rate.begin(is_path_new=False)

    def begin_path(self) -> None:
        """Forget open questions and measurements: the peer is at another address."""
        self.meter.begin()
        self.rate.begin(is_path_new=True)

    def ask(self, now: float) -> None:
        """Send a question, and record it for the liveness of the peer."""
        self.liveness.note_asked(now)
        self.send_question(now)

    def send_question(self, now: float, *, packet_bytes: int = 0) -> None:
        """Send a question, padded to an IP packet of this length if it is given."""
        self._send_numbered(0, now, packet_bytes)

    def say_goodbye(self, now: float) -> None:
        """Tell the peer that the session is over."""
        self._send_numbered(ProbeFlag.GOODBYE, now, 0)

    def answer(self, question: Probe, now: float) -> None:
        """Answer a question, and note what it says about losses on the way from the peer."""
        session = self._sealer.session
        if session is not None:
            self.meter.note_question(question.sent, session.received, now)
            self._send(session, ProbeFlag.ANSWER, question.number, PROBE_BYTES, now)

    def receive_answer(self, answer: Probe, now: float) -> Answered | None:
        """Evaluate an answer. Return None if it answers no open question."""
        answered = self.meter.note_answer(answer.number, answer.received, now)
        if answered is not None:
            self._stats.probes_answered += 1
            self.rate.receive_report(answered.report, now)
        return answered

    def _send_numbered(self, flags: int, now: float, packet_bytes: int) -> None:
        session = self._sealer.session
        if session is None:
            return
        stats, ip_bytes = self._stats, self._path.ip_bytes
        link_bytes = stats.bytes_sent + stats.datagrams_sent * ip_bytes
        number = self.meter.ask(now, session.sent + 1, link_bytes, packet_bytes)
        stats.probes_sent += 1
        content_bytes = max(PROBE_BYTES, packet_bytes - ip_bytes - OVERHEAD_BYTES)
        self._send(session, flags, number, content_bytes, now)

    def _send(self, session: Session, flags: int, number: int, content_bytes: int, now: float) -> None:
        probe = Probe(flags, number, session.sent + 1, session.received)
        sealed = self._sealer.seal_probe(probe.encode(content_bytes), now)
        if sealed is not None:
            self._messages.append(sealed)
