"""One peer: its handshakes, its epochs, where it is, and what its link is like.

Whoever has no session begins a handshake, and goes on with it for as long as it takes. A session is begun by the one
who gets the response; the other uses it as soon as something authentic comes under it. If both begin at once, either
handshake may complete; the one whose public key is greater withdraws its own when it sees the other's, so that no
more than one does.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fjm2.norm import Address, Train

from .attempts import Calls, Doorkeeper
from .config import EndpointConfig, PeerConfig
from .crypto.epochs import Epoch, Epochs
from .crypto.handshake import Entropy, Opening, Pair, answer, draw_index
from .events import ClockBehind, Event, PathMtuChanged, PeerDown, PeerMoved, PeerUp
from .fragments import Reassembler, Splitter
from .link_queue import LinkBucket, LinkQueue, Parcel
from .liveness import Liveness
from .meter import LinkMeter
from .path_mtu import PathMtu, timeout_s
from .peer_stats import Flow, PeerStats
from .pieces import is_one_piece, pieces, wire_bytes
from .rate import RateEstimate
from .session import CounterExhausted
from .wire import (
    CARRIED,
    GROUP_NONE,
    KINDS,
    OVERHEAD_BYTES,
    PART_FLAG,
    PROBE_BYTES,
    Drop,
    Initiation,
    Kind,
    Prefix,
    Probe,
    ProbeFlag,
    Response,
)
from .workspace import Workspace

Bytes = NDArray[np.uint8]

NEVER = math.inf
IPV4_BYTES = 28
IPV6_BYTES = 48
"""IP and UDP headers."""
_MEASURED_PROBE_S = 0.2
_RTT_S_UNKNOWN = 0.3
_BEHIND_S = 10.0
"""Handshakes that are stamped so long before they could be accepted are not just late."""
_TELL_S = 1.0
"""That a peer has moved is told no more often."""


class PeerState(Enum):
    """Whether a peer can be sent to."""

    CONNECTING = "connecting"
    UP = "up"


class Received(NamedTuple):
    """A train that has come from a peer."""

    peer: "Peer"
    kind: Kind
    group: int
    hop_limit: int
    data: Bytes
    """Borrowed until the endpoint is given the next train."""
    segment_bytes: int


@dataclass(slots=True)
class Surroundings:
    """What all peers of an endpoint share."""

    config: EndpointConfig
    random: Random
    entropy: Entropy
    wall_ns: Callable[[], int]
    started_ns: int
    indexes: "dict[int, Peer]"
    """Whose session an index stands for."""
    messages: "deque[tuple[Peer, Address, bytes]]"
    """Handshakes and probes that are to be sent."""
    busy: "dict[Peer, None]"
    """Who has data waiting, in the order of turns."""
    events: deque[Event]
    workspace: Workspace
    uplink: LinkBucket | None
    """What all of them together draw from."""


class Peer:
    """A gateway that we share secrets with."""

    def __init__(self, pair: Pair, config: PeerConfig, around: Surroundings, now: float) -> None:
        self.config = config
        self.id = config.public_key.id
        self.name = config.name or config.public_key.id_text
        self.stats = PeerStats()
        self.flow = Flow(now)
        self.address: Address | None = None
        """Where it was last heard of, authentically."""
        self.up_since: float | None = None
        self.wake_at = NEVER
        """When `handle_timeout` has something to do."""
        self.pair = pair
        self._around = around
        own = around.config
        self._live = Liveness(own.keepalive_s, own.probe_s, own.dead_s)
        self._meter = LinkMeter(around.entropy)
        self._path = PathMtu(own.mtu_bytes, own.mtu_max_bytes)
        self._splitter = Splitter()
        self._reassembler = Reassembler(self.stats.drops)
        self._estimate: RateEstimate | None = None
        self.queue = LinkQueue(config.rate_bps, self.stats.drops, queue_bytes=config.queue_bytes, shared=around.uplink)
        self._addresses = config.addresses
        self._state = PeerState.CONNECTING
        self._epochs: Epochs[Peer] = Epochs(self, around.indexes, around.workspace, own.rekey_s)
        self._calls = Calls(around.wall_ns, around.random, self._forget_index)
        self._door = Doorkeeper(around.started_ns - int(own.skew_s * 1e9))
        self._is_warned = False
        self._move_told_at = -NEVER
        self._is_removed = False
        if config.is_measured:
            self._measure(config.rate_bps, now)

    def __repr__(self) -> str:
        return f"<Peer {self.name} {self._state.value} {self.address}>"

    # What it is like.

    @property
    def state(self) -> PeerState:
        """Whether it can be sent to."""
        return self._state

    @property
    def is_up(self) -> bool:
        """The same in short."""
        return self._state is PeerState.UP

    @property
    def rtt_s(self) -> float | None:
        """Round trip, smoothed; None before the first."""
        return self._meter.rtt_s

    @property
    def loss_sent(self) -> float:
        """Part of what we send that does not arrive, smoothed."""
        return self._meter.loss_sent

    @property
    def loss_received(self) -> float:
        """Part of what the peer sends that does not arrive, smoothed."""
        return self._meter.loss_received

    @property
    def heard_at(self) -> float | None:
        """When something authentic came last."""
        return self._live.heard_at if self._live.heard_at > -NEVER else None

    @property
    def rate_bps(self) -> float | None:
        """What it is paced to; None without a limit."""
        return self.queue.rate_bps

    @property
    def queued_bytes(self) -> int:
        """What waits for the link."""
        return self.queue.queued_bytes

    @property
    def epoch_began_at(self) -> float | None:
        """Since when the keys of today are used."""
        return None if self._epochs.current is None else self._epochs.current.began_at

    @property
    def mtu_bytes(self) -> int:
        """Longest IP packet that it is sent."""
        return self._path.mtu

    @property
    def datagram_bytes(self) -> int:
        """Longest datagram that is carried to it in one piece."""
        return self._path.mtu - self._ip_bytes - OVERHEAD_BYTES

    @property
    def _ip_bytes(self) -> int:
        return IPV6_BYTES if self.address is not None and ":" in self.address[0] else IPV4_BYTES

    # Commands.

    def set_addresses(self, addresses: tuple[Address, ...], now: float) -> None:
        """It may be found elsewhere. A session that works is not touched."""
        if addresses != self._addresses:
            self._addresses = addresses
            if not self.is_up:
                self.connect(now)

    def set_rate(self, rate_bps: float | None, is_measured: bool, now: float) -> None:
        """Pace it otherwise from now on."""
        self.queue.set_rate(rate_bps, now)
        self._estimate = None
        self._live.probe_s = self._live.report_s = self._around.config.probe_s
        if is_measured:
            self._measure(rate_bps, now)

    def connect(self, now: float) -> None:
        """Begin a handshake, unless one is under way."""
        if self._calls.opening is None and not self._is_removed:
            self._calls.attempts = 0
            self._call(now)
        self._plan(now)

    def close(self, reason: str, now: float) -> None:
        """Say goodbye, and forget everything."""
        self._is_removed = True
        if self.is_up:
            self._send_probe(ProbeFlag.GOODBYE, now)
        self._go_down(reason, now)
        self._epochs.forget()
        self._calls.stop()
        self.wake_at = NEVER

    def _measure(self, most_bps: float | None, now: float) -> None:
        """Find out what the link takes: that needs more reports than liveness does."""
        self._estimate = RateEstimate(most_bps)
        self._live.probe_s = min(self._live.probe_s, _MEASURED_PROBE_S)
        self._pace(self._estimate, now)

    def _pace(self, estimate: RateEstimate, now: float) -> None:
        self._live.report_s = min(estimate.report_s, self._live.probe_s)
        self.queue.set_rate(estimate.bps, now)

    # Data out.

    def offer(
        self,
        kind: int,
        group: int,
        data: Bytes,
        segment_bytes: int,
        now: float,
        source: int,
        is_urgent: bool,
        hops: int,
    ) -> None:
        """Let a train wait for the link."""
        if not self.is_up:
            self.stats.drops[Drop.NOT_UP] += -(-data.size // segment_bytes)
            return
        cost = wire_bytes(segment_bytes, self.datagram_bytes, self._ip_bytes)
        if not cost:
            self.stats.drops[Drop.TOO_LONG] += -(-data.size // segment_bytes)
            return
        self.queue.offer(Parcel(data, segment_bytes, kind, group, hops, source, is_urgent, cost))
        self._around.busy[self] = None
        self._note_flow(now)

    def pass_through(
        self, kind: int, group: int, data: Bytes, segment_bytes: int, now: float, hops: int
    ) -> Train | None:
        """A train sealed from where it lies, if it may go this moment and as it is; None: it has to wait."""
        if not self.is_up or not is_one_piece(data.size, segment_bytes, self.datagram_bytes):
            return None
        datagram_bytes = segment_bytes + OVERHEAD_BYTES + self._ip_bytes
        if not self.queue.pass_by(-(-data.size // segment_bytes) * datagram_bytes, datagram_bytes, now):
            return None
        self._note_flow(now)
        return self._seal_piece(data, segment_bytes, kind, group, hops, now)

    def poll(self, now: float) -> Iterator[Train] | None:
        """The trains of what may go next; None when nothing may."""
        parcel = self.queue.poll(now)
        if parcel is None:
            if self.queue.queued_bytes:
                self._meter.note_limited()
                if self._live.limited(now):
                    self._plan(now)
            else:
                self._around.busy.pop(self, None)
            return None
        return self._seal(parcel, now)

    def _seal(self, parcel: Parcel, now: float) -> Iterator[Train]:
        is_split = parcel.segment_bytes > self.datagram_bytes
        count = 0
        for piece in pieces(parcel, self.datagram_bytes, self._splitter):
            train = self._seal_piece(piece.data, piece.segment_bytes, piece.kind, parcel.group, parcel.hop_limit, now)
            if train is None:
                return
            count += 1
            yield train
        if not count:  # the path has become narrower meanwhile
            self.stats.drops[Drop.TOO_LONG] += parcel.count
        elif is_split:
            self.stats.split += parcel.count

    def _seal_piece(
        self, data: Bytes, segment_bytes: int, kind: int, group: int, hops: int, now: float
    ) -> Train | None:
        """None when there is no session any more."""
        epoch, address = self._epochs.current, self.address
        if epoch is None or address is None:
            return None
        before = epoch.session.sent
        try:
            sealed = epoch.session.seal_train(data, segment_bytes, kind, group, hops)
        except CounterExhausted:
            self._go_down("expired", now)
            return None
        self.stats.note_sent(epoch.session.sent - before, sealed.size)
        return Train(sealed, min(segment_bytes + OVERHEAD_BYTES, sealed.size), address)

    # Sealed datagrams in.

    def receive_sealed(
        self, prefix: Prefix, data: Bytes, segment_bytes: int, address: Address, now: float
    ) -> list[Received]:
        """Datagrams with an index of ours."""
        epoch = self._epochs.find(prefix.index)
        if epoch is None or now >= epoch.ends_at:
            self.stats.drops[Drop.EPOCH_OVER] += -(-data.size // segment_bytes)
            return []
        opened = epoch.session.open_train(data, segment_bytes, self.stats.drops)
        if opened is None:
            return []
        self.stats.note_received(opened.count, opened.data.size + opened.count * OVERHEAD_BYTES)
        self._note_authentic(epoch, opened.is_newest, address, now)
        if not opened.segment_bytes:
            self.stats.drops[Drop.BAD_CONTENT] += opened.count
            return []
        if prefix.kind == Kind.PROBE:
            for start in range(0, opened.data.size, opened.segment_bytes):
                self._take_probe(epoch, opened.data[start : start + opened.segment_bytes].tobytes(), now)
            return []
        self._note_flow(now)
        return self._carry_up(prefix, opened.data, opened.segment_bytes, now)

    def _carry_up(self, prefix: Prefix, data: Bytes, segment_bytes: int, now: float) -> list[Received]:
        kind, group, hops = prefix.kind, prefix.group, prefix.hop_limit
        if not hops:
            self.stats.drops[Drop.BAD_CONTENT] += -(-data.size // segment_bytes)
            return []
        if kind in CARRIED:
            return [Received(self, KINDS[kind], group, hops, data, segment_bytes)]
        kind ^= PART_FLAG
        wholes = self._reassembler.join(data, segment_bytes, prefix.index, kind << 16 | group, now)
        self._wake(self._reassembler.next_at)
        return [Received(self, KINDS[kind], group, hops, whole, length) for whole, length in wholes]

    def _note_authentic(self, epoch: Epoch, is_newest: bool, address: Address, now: float) -> None:
        """Something has proved to come from the peer."""
        if epoch is self._epochs.next:
            self._epochs.confirmed(now)
            self._begin_epoch(address, now)
        self._live.heard(now)
        if epoch is not self._epochs.current:
            return
        self._live.is_unconfirmed = False
        if is_newest and address != self.address:
            self._move(address, now)
        if not self.is_up and now >= self._live.ask_soon_at():
            self._ask(now)  # whether it hears us as well

    def _move(self, address: Address, now: float) -> None:
        before, self.address = self.address, address
        if before is not None:
            self.stats.moves += 1
            if now - self._move_told_at >= _TELL_S:
                self._move_told_at = now
                self._around.events.append(PeerMoved(self, before, address))
            self._meter.begin()
            self._path.begin()
            if self._estimate is not None:
                self._estimate.begin(is_path_new=True)
            if now >= self._live.ask_soon_at():
                self._ask(now)  # whether it is there: only then is anything long sent
            self._plan(now)

    # Probes.

    def _take_probe(self, epoch: Epoch, content: bytes, now: float) -> None:
        probe = Probe.decode(content)
        if probe is None:
            self.stats.drops[Drop.BAD_CONTENT] += 1
        elif epoch is not self._epochs.current:
            return
        elif probe.flags & ProbeFlag.GOODBYE:
            self._end_session(now)
        else:
            self._take_news(probe, epoch, now)

    def _take_news(self, probe: Probe, epoch: Epoch, now: float) -> None:
        if self._live.told(probe.received, now):
            self._note_heard(now)
        if probe.flags & ProbeFlag.ANSWER:
            self._take_answer(probe, now)
        else:
            self._meter.question(probe.sent, epoch.session.received, now)
            self._send_probe(ProbeFlag.ANSWER, now, number=probe.number)

    def _note_heard(self, now: float) -> None:
        """The peer hears us."""
        if not self.is_up:
            self._come_up(now)
        if self._calls.is_calling and now < self._epochs.rekey_at():
            self._calls.stop()

    def _take_answer(self, probe: Probe, now: float) -> None:
        answered = self._meter.answer(probe.number, probe.received, now)
        if answered is None:
            return
        self.stats.probes_answered += 1
        if self.is_up:
            self._path.proven(now)
        if self._estimate is not None:
            self._estimate.take(answered.report)
            self._pace(self._estimate, now)
        if answered.size and self._path.answered(answered.size, now):
            self._around.events.append(PathMtuChanged(self, self._path.mtu))
        self._plan(now)

    def _send_probe(self, flags: int, now: float, *, number: int | None = None, packet_bytes: int = 0) -> None:
        """A question, padded to a packet of so many bytes; an answer, if there is a number; or a goodbye."""
        epoch, address = self._epochs.current, self.address
        if epoch is None or address is None:
            return
        session = epoch.session
        content_bytes = max(PROBE_BYTES, packet_bytes - self._ip_bytes - OVERHEAD_BYTES)
        if number is None:
            link_bytes = self.stats.bytes_sent + self.stats.datagrams_sent * self._ip_bytes
            number = self._meter.ask(now, session.sent + 1, link_bytes, packet_bytes)
            self.stats.probes_sent += 1
        probe = Probe(flags, number, session.sent + 1, session.received)
        try:
            sealed = bytes(session.seal_one(probe.encode(content_bytes), Kind.PROBE, GROUP_NONE, 0))
        except CounterExhausted:
            self._go_down("expired", now)
            return
        self.stats.note_sent(1, len(sealed))
        self._around.messages.append((self, address, sealed))

    def note_too_long(self, datagram_bytes: int, now: float) -> None:
        """The kernel would not send a UDP datagram of this length, its headers not counted."""
        if self._path.too_long(datagram_bytes + self._ip_bytes, now):
            self._around.events.append(PathMtuChanged(self, self._path.mtu))
        self._plan(now)

    def _note_flow(self, now: float) -> None:
        if self._live.flowed(now):
            self._plan(now)

    # Handshakes.

    def receive_initiation(self, message: Initiation, address: Address, now: float) -> None:
        """A handshake that the peer has begun, with a genuine MAC."""
        reason = self._door.refusal(message.timestamp_ns, now)
        if reason is not None:
            self.stats.drops[reason] += 1
            if reason in (Drop.HANDSHAKE_STALE, Drop.HANDSHAKE_REPLAYED):
                self._warn_of_clock(self._door.behind_s(message.timestamp_ns))
            return
        index = draw_index(self._around.entropy, self._around.indexes.__contains__)
        result = answer(self.pair, message, index, self._calls.timestamp_ns, self._around.entropy)
        if result is None:
            self.stats.drops[Drop.HANDSHAKE_FORGED] += 1
            return
        agreed, response = result
        self._door.answered(message.timestamp_ns, now)
        self._epochs.answered(agreed, now)
        if self._calls.opening is not None and self.pair.own.public.raw > self.pair.other.raw:
            self._calls.give_way(now)
        self.stats.handshakes_answered += 1
        self._around.messages.append((self, address, response))
        self._plan(now)

    def receive_response(self, message: Response, address: Address, now: float) -> None:
        """The peer has answered, with a genuine MAC."""
        opening = self._calls.opening
        if opening is None or opening.index != message.receiver_index:
            self.stats.drops[Drop.HANDSHAKE_REPLAYED] += 1
            return
        agreed = opening.finish(message)
        if agreed is None:
            # The MAC is genuine, so this is of the peer's making; the state of this handshake is spent.
            self.stats.drops[Drop.HANDSHAKE_FORGED] += 1
            self._calls.stop()
            self._calls.wait(now)
            self._plan(now)
            return
        self._calls.opening = None
        self._door.has_seen(agreed.stamped_ns)
        self._epochs.completed(agreed, now)
        self._begin_epoch(address, now)
        self._ask(now)
        self._plan(now)

    def _warn_of_clock(self, behind_s: float) -> None:
        """Whoever is connected has no need to be called: that is a replay."""
        if not self._is_warned and not self.is_up and behind_s > _BEHIND_S:
            self._is_warned = True
            self._around.events.append(ClockBehind(self, behind_s))

    def _call(self, now: float) -> None:
        """Begin a handshake, in place of one that was not answered."""
        calls, around = self._calls, self._around
        calls.stop()
        # Where it was last heard of, and every other address that it may have, in turn.
        known = [*([self.address] if self.address else []), *(a for a in self._addresses if a != self.address)]
        if known:
            address = known[calls.attempts % len(known)]
            index = draw_index(around.entropy, around.indexes.__contains__)
            calls.opening = Opening(self.pair, index, calls.timestamp_ns(), around.entropy)
            around.indexes[index] = self
            self.stats.handshakes_sent += 1
            around.messages.append((self, address, calls.opening.message))
        calls.wait(now)

    def _forget_index(self, index: int) -> None:
        self._around.indexes.pop(index, None)

    def _begin_epoch(self, address: Address, now: float) -> None:
        """There are new keys, and this is where the peer used them first."""
        self._calls.stop()
        self._calls.attempts = 0
        self.stats.handshakes_completed += 1
        self._meter.begin()
        if self._estimate is not None:
            self._estimate.begin(is_path_new=False)
        if address != self.address:
            self._move(address, now)
        self._live.begin(now)
        if not self.is_up:
            self._come_up(now)
        self._plan(now)

    # Up and down.

    def _come_up(self, now: float) -> None:
        self._state = PeerState.UP
        self.up_since = now
        self._path.begin()
        if self.address is not None:
            self._around.events.append(PeerUp(self, self.address))
        self._plan(now)

    def _go_down(self, reason: str, now: float) -> None:
        """It cannot be sent to. Its session stays: it may be heard again."""
        if not self.is_up:
            return
        self._state = PeerState.CONNECTING
        self.up_since = None
        self._path.stop()
        self.stats.drops[Drop.NOT_UP] += self.queue.clear()
        self._around.busy.pop(self, None)
        self._around.events.append(PeerDown(self, reason))
        if reason == "goodbye":
            self._calls.wait(now)  # it knows that it goes; when it is back it will call
        else:
            self.connect(now)

    def _end_session(self, now: float) -> None:
        """The peer has said goodbye."""
        self._epochs.forget()
        self._go_down("goodbye", now)
        self._plan(now)

    # Time.

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        if self._is_removed:
            return
        if self._epochs.expire(now):
            self._go_down("expired", now)
        self._reassembler.expire(now)
        if self._epochs.current is not None:
            self._watch(now)
        if now >= self._calls.next_at:
            self._call(now)
        self._plan(now)

    def _watch(self, now: float) -> None:
        """A session is there: ask, renew, give up."""
        if now >= self._live.ask_at():
            self._ask(now)
        if self.is_up:
            if now >= self._live.dead_at():
                self._go_down("deaf" if self._live.is_deaf else "silent", now)
            elif not self._calls.is_calling and (now >= self._live.silent_at() or now >= self._epochs.rekey_at()):
                self.connect(now)
            self._probe_path(now)

    def _ask(self, now: float) -> None:
        self._live.asked(now)
        self._send_probe(0, now)

    def _probe_path(self, now: float) -> None:
        before = self._path.mtu
        rtt_s = _RTT_S_UNKNOWN if self.rtt_s is None else self.rtt_s
        is_answering = self._live.is_answering(now, timeout_s(rtt_s))
        size = self._path.poll(now, rtt_s, self._live.is_flowing(now), is_answering)
        if self._path.mtu < before:
            self._around.events.append(PathMtuChanged(self, self._path.mtu))
        if size is not None:
            self._send_probe(0, now, packet_bytes=size)

    def _plan(self, now: float) -> None:
        """Find the next thing that is due."""
        times = [self._calls.next_at, self._reassembler.next_at, self._epochs.end_at()]
        if self._epochs.current is not None:
            times.append(self._live.ask_at())
            if self.is_up:
                times.extend((self._live.dead_at(), self._path.next_at))
                if not self._calls.is_calling:
                    times.extend((self._live.silent_at(), self._epochs.rekey_at()))
        self.wake_at = NEVER if self._is_removed else max(min(times), now)

    def _wake(self, at: float) -> None:
        self.wake_at = min(self.wake_at, at)
