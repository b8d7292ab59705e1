"""One peer of the tunnel: passes datagrams, commands and the time to its parts, and keeps the state of the peer."""

import math
from collections import deque
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.norm import Address

from ..kinds import Kind
from .config import PeerConfig
from .crypto.epochs import Epoch, Epochs
from .crypto.handshake import Pair
from .events import Event, PeerDown, PeerUp, Received
from .fragments import Reassembler
from .handshakes import Handshakes
from .link.liveness import Liveness
from .link.meter import LinkMeter
from .link.path import Path
from .link.prober import Prober
from .link.rate_control import RateControl
from .link_queue import LinkQueue
from .outbound import Outbound
from .peer_stats import Flow, PeerStats
from .sealer import Sealer
from .shared import Shared
from .wire import CARRIED, KINDS, OVERHEAD_BYTES, PART_FLAG, Drop, Initiation, Prefix, Probe, ProbeFlag, Response

Bytes = NDArray[np.uint8]

NEVER = math.inf


class PeerState(Enum):
    """Lifecycle of a peer."""

    CONNECTING = "connecting"
    """Nothing can be sent to the peer. It is called, and may still be heard under an old session."""
    UP = "up"
    """The peer hears us, and trains can be sent to it."""
    REMOVED = "removed"
    """The gateway is no longer a peer."""


LEGAL: Final = {
    PeerState.CONNECTING: {PeerState.UP, PeerState.REMOVED},
    PeerState.UP: {PeerState.CONNECTING, PeerState.REMOVED},
    PeerState.REMOVED: set[PeerState](),
}
"""Allowed changes of state: the states that may follow each state."""


class Peer:
    """A gateway with which we share secrets.

    `Handshakes` makes keys, `Epochs` holds them, `Outbound` sends trains, `Prober` watches the link, `Path` knows the
    address and the path MTU, and `Reassembler` joins datagrams that had to be split.
    """

    def __init__(self, pair: Pair, config: PeerConfig, shared: Shared, now: float) -> None:
        own = shared.config
        self.config = config
        self.id = config.public_key.id
        self.name = config.name or config.public_key.id_text
        self.stats = PeerStats()
        self.flow = Flow(now)
        self.up_since: float | None = None
        """Time at which the peer came up; None while it is down."""
        self.wake_at = NEVER
        """Time at which to call `handle_timeout`."""
        self._state = PeerState.CONNECTING
        self._events: deque[Event] = shared.events
        self.path = Path(self, shared.events, own.mtu_bytes, own.mtu_max_bytes)
        self._epochs = Epochs(self, shared.indexes, shared.workspace, own.rekey_s)
        self._handshakes = Handshakes(self, pair, config.addresses, self.path, self._epochs, shared)
        self._reassembler = Reassembler(self.stats.drops)
        queue = LinkQueue(config.rate_bps, self.stats.drops, queue_bytes=config.queue_bytes, shared=shared.uplink)
        liveness = Liveness(own.keepalive_s, own.probe_s, own.dead_s)
        meter, rate = LinkMeter(shared.entropy), RateControl(queue, liveness)
        sealer = Sealer(self._epochs, self.path, self.stats, self._expire_keys)
        self._prober = Prober(liveness, meter, rate, self.path, sealer, self.stats, shared.messages)
        self.outbound = Outbound(
            queue, self.path, liveness, meter, self.stats, sealer.seal_train, shared.busy, self._plan
        )
        if config.is_measured:
            rate.measure(config.rate_bps, now)

    def __repr__(self) -> str:
        return f"<Peer {self.name} {self._state.value} {self.path.address}>"

    @property
    def state(self) -> PeerState:
        """State of the peer in its lifecycle."""
        return self._state

    @property
    def is_up(self) -> bool:
        """True if the peer can be sent to."""
        return self._state is PeerState.UP

    @property
    def rtt_s(self) -> float | None:
        """Smoothed round-trip time; None before it is first measured."""
        return self._prober.meter.rtt_s

    @property
    def loss_sent(self) -> float:
        """Part of our datagrams that gets lost on the way to the peer, 0 to 1, smoothed."""
        return self._prober.meter.loss_sent

    @property
    def loss_received(self) -> float:
        """Part of the peer's datagrams that gets lost on the way to us, 0 to 1, smoothed."""
        return self._prober.meter.loss_received

    @property
    def epoch_began_at(self) -> float | None:
        """Time at which the current keys came into use; None without keys."""
        return None if self._epochs.current is None else self._epochs.current.began_at

    def set_addresses(self, addresses: tuple[Address, ...], now: float) -> None:
        """Call the peer at these addresses. A session that works is not touched."""
        if addresses != self._handshakes.addresses:
            self._handshakes.addresses = addresses
            if not self.is_up:
                self.connect(now)

    def set_rate(self, rate_bps: float | None, is_measured: bool, now: float) -> None:
        """Pace the link to this rate, or measure the rate up to this maximum."""
        self._prober.rate.set_rate(rate_bps, now)
        if is_measured:
            self._prober.rate.measure(rate_bps, now)

    def connect(self, now: float) -> None:
        """Begin a handshake, unless one is under way."""
        if self._state is not PeerState.REMOVED:
            self._handshakes.begin_first(now)
        self._plan(now)

    def close(self, reason: str, now: float) -> None:
        """Say goodbye, and forget everything."""
        was_up = self.is_up
        self._move_to(PeerState.REMOVED)
        if was_up:
            self._prober.say_goodbye(now)
            self._stop_sending(reason)
        self._epochs.forget()
        self._handshakes.stop()
        self.wake_at = NEVER

    def note_too_long(self, datagram_bytes: int, now: float) -> None:
        """Record that the kernel refused a UDP payload of this length (EMSGSIZE)."""
        self.path.note_too_long(datagram_bytes, now)
        self._plan(now)

    def receive_initiation(self, initiation: Initiation, message: bytes, address: Address, now: float) -> None:
        """Answer an initiation that claims to come from the peer, if it proves to."""
        if self._handshakes.receive_initiation(initiation, message, address, now):
            self._plan(now)

    def receive_response(self, response: Response, message: bytes, address: Address, now: float) -> None:
        """Finish our handshake with a response that claims to come from the peer, if it proves to."""
        if self._handshakes.receive_response(response, message, now):
            self._begin_epoch(address, now)
            self._prober.ask(now)
            self._plan(now)
        else:
            self.wake_at = min(self.wake_at, self._handshakes.next_at)

    def receive_sealed(
        self, prefix: Prefix, data: Bytes, segment_bytes: int, address: Address, now: float
    ) -> list[Received]:
        """Open datagrams that bear the index of a session with this peer, and return their contents for the LAN."""
        stats = self.stats
        epoch = self._epochs.find(prefix.index)
        if epoch is None or now >= epoch.ends_at:
            stats.drops[Drop.EPOCH_OVER] += -(-data.size // segment_bytes)
            return []
        opened = epoch.session.open_train(data, segment_bytes, stats.drops)
        if opened is None:
            return []
        stats.note_received(opened.count, opened.data.size + opened.count * OVERHEAD_BYTES)
        self._note_authentic(epoch, opened.is_newest, address, now)
        if not opened.segment_bytes:
            stats.drops[Drop.BAD_CONTENT] += opened.count
            return []
        if prefix.kind == Kind.PROBE:
            for start in range(0, opened.data.size, opened.segment_bytes):
                self._receive_probe(epoch, opened.data[start : start + opened.segment_bytes].tobytes(), now)
            return []
        if self._prober.liveness.note_flow(now):
            self._plan(now)
        return self._received(prefix, opened.data, opened.segment_bytes, now)

    def _received(self, prefix: Prefix, data: Bytes, segment_bytes: int, now: float) -> list[Received]:
        """Return an opened train for the LAN, joined if it consists of parts."""
        kind, group, hop_limit = prefix.kind, prefix.group, prefix.hop_limit
        if not hop_limit:
            self.stats.drops[Drop.BAD_CONTENT] += -(-data.size // segment_bytes)
            return []
        if kind in CARRIED:
            return [Received(self, KINDS[kind], group, hop_limit, data, segment_bytes)]
        kind ^= PART_FLAG
        wholes = self._reassembler.join(data, segment_bytes, prefix.index, kind << 16 | group, now)
        self.wake_at = min(self.wake_at, self._reassembler.next_at)
        return [Received(self, KINDS[kind], group, hop_limit, whole, length) for whole, length in wholes]

    def _note_authentic(self, epoch: Epoch, is_newest: bool, address: Address, now: float) -> None:
        """Act on the proof that a datagram came from the peer."""
        if epoch is self._epochs.next:
            self._epochs.adopt_next(now)
            self._begin_epoch(address, now)
        liveness = self._prober.liveness
        liveness.note_heard(now)
        if epoch is not self._epochs.current:
            return
        liveness.is_unconfirmed = False
        if is_newest and address != self.path.address:
            self._move(address, now)
        if self._state is not PeerState.UP and liveness.can_ask(now):
            self._prober.ask(now)  # the peer is heard: find out if it hears us as well

    def _move(self, address: Address, now: float) -> None:
        """Send to this address from now on."""
        if not self.path.move_to(address, now):
            return
        self.stats.moves += 1
        self._prober.begin_path()
        if self._prober.liveness.can_ask(now):
            self._prober.ask(now)  # no long packets are sent before an answer comes from the new address
        self._plan(now)

    def _receive_probe(self, epoch: Epoch, content: bytes, now: float) -> None:
        probe = Probe.decode(content)
        if probe is None:
            self.stats.drops[Drop.BAD_CONTENT] += 1
        elif epoch is not self._epochs.current:
            return
        elif probe.flags & ProbeFlag.GOODBYE:
            self._epochs.forget()
            self._go_down("goodbye", now)
            self._plan(now)
        else:
            if self._prober.liveness.note_report(probe.received, now):  # the peer hears us
                if not self.is_up:
                    self._come_up(now)
                if self._handshakes.is_needed and now < self._epochs.rekey_at():
                    self._handshakes.stop()
            if probe.flags & ProbeFlag.ANSWER:
                self._receive_answer(probe, now)
            else:
                self._prober.answer(probe, now)

    def _receive_answer(self, probe: Probe, now: float) -> None:
        answered = self._prober.receive_answer(probe, now)
        if answered is None:
            return
        if self.is_up:
            self.path.confirm(now)
        if answered.packet_bytes:
            self.path.note_arrived(answered.packet_bytes, now)
        self._plan(now)

    def _begin_epoch(self, address: Address, now: float) -> None:
        """Use new keys, which the peer first used from this address."""
        self._handshakes.note_success()
        self.stats.handshakes_completed += 1
        self._prober.begin_session()
        if address != self.path.address:
            self._move(address, now)
        self._prober.liveness.begin(now)
        if not self.is_up:
            self._come_up(now)
        self._plan(now)

    def _move_to(self, state: PeerState) -> None:
        if state not in LEGAL[self._state]:
            raise AssertionError(f"{self._state} to {state}")
        self._state = state

    def _come_up(self, now: float) -> None:
        self._move_to(PeerState.UP)
        self.up_since = now
        self.path.begin()
        self.outbound.open()
        if self.path.address is not None:
            self._events.append(PeerUp(self, self.path.address))
        self._plan(now)

    def _go_down(self, reason: str, now: float) -> None:
        """Stop sending, if the peer is up, and call it. The session stays, because the peer may be heard again."""
        if not self.is_up:
            return
        self._move_to(PeerState.CONNECTING)
        self._stop_sending(reason)
        if reason == "goodbye":
            self._handshakes.wait(now)  # the peer stops on purpose, and calls when it is back
        else:
            self.connect(now)

    def _stop_sending(self, reason: str) -> None:
        self.up_since = None
        self.path.stop()
        self.outbound.close()
        self._events.append(PeerDown(self, reason))

    def _expire_keys(self, now: float) -> None:
        """Go down: the current keys have no counters left."""
        self._go_down("expired", now)

    def handle_timeout(self, now: float) -> None:
        """Do what is due: expire keys and parts, watch the link, and begin handshakes. Call it at `wake_at`."""
        if self._state is PeerState.REMOVED:
            return
        if self._epochs.expire(now):
            self._go_down("expired", now)
        self._reassembler.expire(now)
        if self._epochs.current is not None:
            self._watch(now)
        if now >= self._handshakes.next_at:
            self._handshakes.begin(now)
        self._plan(now)

    def _watch(self, now: float) -> None:
        """Probe a peer that we have a session with, renew its keys, or give it up."""
        prober, liveness = self._prober, self._prober.liveness
        if now >= liveness.ask_at():
            prober.ask(now)
        if not self.is_up:
            return
        if now >= liveness.dead_at():
            self._go_down("deaf" if liveness.is_deaf else "silent", now)
        elif not self._handshakes.is_needed and (now >= liveness.silent_at() or now >= self._epochs.rekey_at()):
            self.connect(now)
        packet_bytes = self.path.poll(now, self.rtt_s, liveness)
        if packet_bytes is not None:
            prober.send_question(now, packet_bytes=packet_bytes)

    def _plan(self, now: float) -> None:
        """Set `wake_at` to the next time at which something is due."""
        times = [self._handshakes.next_at, self._reassembler.next_at, self._epochs.end_at()]
        if self._epochs.current is not None:
            liveness = self._prober.liveness
            times.append(liveness.ask_at())
            if self.is_up:
                times.extend((liveness.dead_at(), self.path.next_at))
                if not self._handshakes.is_needed:
                    times.extend((liveness.silent_at(), self._epochs.rekey_at()))
        self.wake_at = NEVER if self._state is PeerState.REMOVED else max(min(times), now)
