"""The way of trains through the gateway: from the LAN to the peers, from the peers into the LAN."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from fjm2.base.loop import LoopDriver, TrainReader, Waitable
from fjm2.norm import Train

from .forwarding.forwarder import Forwarder, Outward
from .lan.groups import LanGroup
from .tunnel import Endpoint, Kind, Peer
from .tunnel.wire import GROUP_NONE
from .wan import WanSockets

TRAINS_PER_TURN: Final = 16
"""Trains read from the Internet before other tasks get their turn: with 44 datagrams each, about a millisecond."""
_TIMER_MIN_S: Final = 0.001
"""Least wait of the timer: while the kernel's send buffer is full, the endpoint names deadlines that have passed."""
_DRAIN_TRAINS_MAX: Final = 1024
"""Maximum number of trains that `Relay.drain` sends: enough for a goodbye to each peer."""
_ADVERT: Final = b"FJM2"
_ADVERT_BYTES: Final = 24
"""Start and length of an advertisement of the node-list service (docs/admin.md). No tunnel datagram starts like it."""


class Relay:
    """The way of trains between the LAN and the peers, and the end of each turn of the loop."""

    def __init__(
        self,
        endpoint: Endpoint,
        forwarder: Forwarder[Peer],
        groups: Mapping[int, LanGroup],
        dispatch: Callable[[], None],
    ) -> None:
        """`dispatch` is called once in each turn, to handle the endpoint's events."""
        self.on_advert: Callable[[bytes], None] | None = None
        """Callback for a datagram that looks like an advertisement of the node-list service."""
        self.status_sent_at = float("-inf")
        self._endpoint = endpoint
        self._forwarder = forwarder
        self._groups = groups
        self._driver = LoopDriver[Train](
            endpoint, self._transmit, dispatch, prepare=self._prepare, timer_min_s=_TIMER_MIN_S
        )
        self._wan: WanSockets | None = None
        self._reader: TrainReader[Train] | None = None

    @property
    def sends_blocked(self) -> int:
        """Number of times that the kernel had no room for a train to a peer."""
        return self._driver.sends_blocked

    def open(self, wan: WanSockets, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read from the sockets of the Internet's side, and to send through them."""
        self._wan = wan
        self._driver.open(loop)
        self._reader = TrainReader[Train](loop, self.settle, trains_per_turn=TRAINS_PER_TURN)
        for socket in wan.sockets:
            self._reader.watch(socket, self._receive_wan)

    def close(self) -> None:
        """Remove all callbacks from the loop. The sockets must still be open."""
        self._driver.close()
        if self._reader is not None:
            self._reader.clear()

    def drain(self, now: float) -> None:
        """Send the endpoint's last trains. Those that the kernel does not accept at once are lost."""
        for _ in range(_DRAIN_TRAINS_MAX):
            train = self._endpoint.poll_train(now)
            if train is None or self._wan is None:
                break
            self._wan.send(train)

    def settle(self, _began_at: float) -> None:
        """End a turn. The time is read again, because the turn's trains may have taken milliseconds."""
        self._driver.settle(time.monotonic())

    def wake(self) -> None:
        """Make a turn end soon, so that the endpoint's trains are sent."""
        self._driver.wake()

    def receive_multicast(self, lan: LanGroup, train: Train, now: float) -> None:
        """Forward a train that was multicast on the LAN."""
        for outward in self._forwarder.from_lan(lan.hash, train, now):
            self._send_out(outward, now)

    def receive_unicast(self, lan: LanGroup, train: Train, now: float) -> None:
        """Forward feedback that a receiver on the LAN sent to this gateway."""
        for outward in self._forwarder.from_receivers(lan.hash, train, now):
            self._send_out(outward, now)

    def send_status(self, now: float) -> None:
        """Tell the peers which groups are wanted here."""
        self.status_sent_at = now
        peers = [peer for peer in self._endpoint.peers.values() if peer.is_up]
        content = self._forwarder.status().encode()
        self._endpoint.send(peers, Kind.CONTROL, GROUP_NONE, content, len(content), now, is_urgent=True)

    def _send_out(self, outward: Outward[Peer], now: float) -> None:
        """Send a train to peers: without a copy if nothing is in the way, or else copied once and queued."""
        waiting = [peer for peer in outward.peers if not self._pass_through(peer, outward, now)]
        if not waiting:
            return
        self._endpoint.send(
            waiting,
            outward.kind,
            outward.group,
            outward.data,
            outward.segment_bytes,
            now,
            source=outward.source,
            is_urgent=outward.is_feedback,
        )

    def _pass_through(self, peer: Peer, outward: Outward[Peer], now: float) -> bool:
        if self._driver.held is not None:
            return False
        train = self._endpoint.pass_through(peer, outward.kind, outward.group, outward.data, outward.segment_bytes, now)
        if train is None:
            return False
        full = self._transmit(train, now)
        if full is not None:
            self._driver.hold(train, full)
        return True

    def _receive_wan(self, train: Train, now: float) -> None:
        if train.segment_bytes == train.data.size == _ADVERT_BYTES and train.data[:4].tobytes() == _ADVERT:
            if self.on_advert is not None:
                self.on_advert(train.data.tobytes())
            return
        for received in self._endpoint.receive_train(train, now):
            for inward in self._forwarder.from_wan(received, now):
                self._groups[inward.group].send(inward.data, inward.segment_bytes, inward.address)

    def _prepare(self, now: float) -> None:
        if self._forwarder.is_status_due:
            self.send_status(now)

    def _transmit(self, train: Train, now: float) -> Waitable | None:
        """Give a train to the kernel. Return the socket to wait for if its send buffer is full."""
        wan = self._wan
        if wan is None:
            return None
        full = wan.send(train)
        if wan.take_too_long():
            self._endpoint.note_too_long(train.address, train.segment_bytes, now)
        return full
