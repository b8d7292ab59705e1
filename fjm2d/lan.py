"""A group on the LAN: a transport, and what waits for it where the kernel was full."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.base.loop import SocketReaders
from fjm2.norm import Address, LinkState, Train, UdpConfig, UdpTransport

Bytes = NDArray[np.uint8]
HELD_BYTES_MAX: Final = 4 << 20
TRAINS_PER_TURN: Final = 8
"""So much is taken before others get their turn."""

Take = Callable[["LanGroup", Train, float], None]
"""Takes a train, with the time its turn began."""


class LanGroup:
    """One group's two sockets on the loop. What the kernel has no room for waits, bounded."""

    def __init__(
        self,
        group_hash: int,
        address: Address,
        interface: str | None,
        ttl: int,
        take: Take,
        take_unicast: Take,
        settle: Callable[[float], None],
    ) -> None:
        """`take` gets what is multicast to the group, `take_unicast` what is sent to us; `settle` ends each turn.

        ConfigError for what cannot be meant, OSError for what the kernel refuses.
        """
        self.hash = group_hash
        self.address = address
        self.datagrams_received = self.bytes_received = self.datagrams_sent = self.bytes_sent = 0
        self.dropped = 0
        """Datagrams that did not find room to wait in."""
        self.is_down = False
        self._transport = UdpTransport(UdpConfig(group=address[0], port=address[1], interface=interface, ttl=ttl))
        self._take = take
        self._take_unicast = take_unicast
        self._held: deque[Train] = deque()
        self._held_bytes = 0
        self._ignored: frozenset[Address] = frozenset()
        self._loop = asyncio.get_running_loop()
        self._readers = SocketReaders[Train](self._loop, settle, trains_per_turn=TRAINS_PER_TURN)
        self._is_closed = False
        self._watch()

    @property
    def transport(self) -> UdpTransport:
        return self._transport

    @property
    def own_address(self) -> Address:
        """Where what we multicast comes from."""
        return self._transport.address

    def ignore(self, addresses: frozenset[Address]) -> bool:
        """Other gateways send from these: nothing of that is the LAN's own. Whether they are others than before."""
        if addresses == self._ignored:
            return False
        self._ignored = addresses
        self._transport.ignore(addresses)
        return True

    def send(self, data: Bytes, segment_bytes: int, address: Address | None) -> None:
        """Multicast a train, or send it to one address. It is copied if it has to wait."""
        train = Train(data, segment_bytes, address or self._transport.destination)
        self.datagrams_sent += train.count
        self.bytes_sent += data.size
        if not self._held and self._transport.send(train):
            return
        if self._held_bytes + data.size > HELD_BYTES_MAX:
            self.dropped += train.count
            return
        if not self._held:
            self._loop.add_writer(self._transport.transmit.fileno(), self._on_writable)
        self._held.append(Train(data.copy(), segment_bytes, train.address))
        self._held_bytes += data.size

    def send_bytes(self, datagram: bytes) -> None:
        """Multicast one datagram."""
        self.send(np.frombuffer(datagram, np.uint8), len(datagram), None)

    def check(self) -> bool:
        """Look at the interface, and open the sockets again where it is another. Whether its state has changed."""
        state = self._transport.check()
        if state is LinkState.CHANGED:
            self._unwatch()
            self._drop_held()
            state = self._transport.reopen()
            self._watch()
        was_down, self.is_down = self.is_down, state is not LinkState.UP
        return was_down != self.is_down

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._unwatch()
            self._transport.close()

    def _watch(self) -> None:
        self._readers.watch(self._transport.group, self._receive)
        self._readers.watch(self._transport.transmit, self._receive_unicast)

    def _unwatch(self) -> None:
        self._readers.clear()
        self._loop.remove_writer(self._transport.transmit.fileno())

    def _receive(self, train: Train, now: float) -> None:
        self.datagrams_received += train.count
        self.bytes_received += train.data.size
        self._take(self, train, now)

    def _receive_unicast(self, train: Train, now: float) -> None:
        self.datagrams_received += train.count
        self.bytes_received += train.data.size
        self._take_unicast(self, train, now)

    def _on_writable(self) -> None:
        while self._held:
            # The same train until it is gone: a part of it may have been sent.
            if not self._transport.send(self._held[0]):
                return
            self._held_bytes -= self._held.popleft().data.size
        self._loop.remove_writer(self._transport.transmit.fileno())

    def _drop_held(self) -> None:
        self.dropped += sum(train.count for train in self._held)
        self._held.clear()
        self._held_bytes = 0
