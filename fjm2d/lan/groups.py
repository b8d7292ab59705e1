"""Groups on the LAN: each has a multicast transport, and a bounded backlog of trains that wait for the kernel."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fjm2.base.loop import TrainReader
from fjm2.errors import ConfigError
from fjm2.norm import Address, LinkState, Train, UdpConfig, UdpTransport

from ..config import GroupConfig, LanConfig

Bytes = NDArray[np.uint8]
BACKLOG_BYTES_MAX: Final = 4 << 20
"""Maximum number of bytes kept for a group while the kernel's send buffer is full: 30 ms at 1 Gbit/s. The buffer rarely
stays full for longer."""
TRAINS_PER_TURN: Final = 8
"""Trains read from a socket before other tasks get their turn: with 64 datagrams each, about a millisecond of work."""

Receive = Callable[["LanGroup", Train, float], None]
"""Callback for a train of a group. The last argument is the time at which the turn began."""


@dataclass(slots=True)
class LanStats:
    """Counters of one group on the LAN."""

    datagrams_received: int = 0
    bytes_received: int = 0
    datagrams_sent: int = 0
    bytes_sent: int = 0
    dropped: int = 0
    """Datagrams that found no room in the backlog."""


class SendBacklog:
    """Trains that the kernel had no room for. They are sent as soon as it has room again."""

    __slots__ = ("_bytes", "_loop", "_transport", "trains")

    def __init__(self, transport: UdpTransport, loop: asyncio.AbstractEventLoop) -> None:
        self.trains: deque[Train] = deque()
        """Copies of the trains, oldest first."""
        self._bytes = 0
        self._transport = transport
        self._loop = loop

    def add(self, train: Train) -> bool:
        """Keep a copy of a train. Return False if there is no room."""
        size = train.data.size
        if self._bytes + size > BACKLOG_BYTES_MAX:
            return False
        if not self.trains:
            self._loop.add_writer(self._transport.transmit.fileno(), self._on_writable)
        self.trains.append(Train(train.data.copy(), train.segment_bytes, train.address))
        self._bytes += size
        return True

    def stop(self) -> None:
        """Stop waiting for the socket to become writable. Call this before the socket is closed or opened again."""
        self._loop.remove_writer(self._transport.transmit.fileno())

    def drop(self) -> int:
        """Forget all trains. Return the number of their datagrams."""
        count = sum(train.count for train in self.trains)
        self.trains.clear()
        self._bytes = 0
        return count

    def _on_writable(self) -> None:
        while self.trains:
            # Offer the same object until all of it is sent: the transport remembers how far it came.
            if not self._transport.send(self.trains[0]):
                return
            self._bytes -= self.trains.popleft().data.size
        self.stop()


class LanGroup:
    """One group on the LAN: its two sockets, its backlog and its counters."""

    def __init__(
        self,
        group_hash: int,
        address: Address,
        config: LanConfig,
        receive: Receive,
        receive_unicast: Receive,
        settle: Callable[[float], None],
    ) -> None:
        """`receive` gets trains multicast to the group, `receive_unicast` trains sent to us. `settle` ends each turn.

        Raise ConfigError for settings that cannot work, and OSError if the kernel refuses them.
        """
        self.hash = group_hash
        self.address = address
        self.stats = LanStats()
        self.is_down = False
        """True if the network interface is down."""
        self._transport = UdpTransport(
            UdpConfig(group=address[0], port=address[1], interface=config.interface, ttl=config.ttl)
        )
        self._receive = receive
        self._receive_unicast = receive_unicast
        loop = asyncio.get_running_loop()
        self._backlog = SendBacklog(self._transport, loop)
        self._ignored: frozenset[Address] = frozenset()
        self._reader = TrainReader[Train](loop, settle, trains_per_turn=TRAINS_PER_TURN)
        self._is_closed = False
        self._watch()

    @property
    def transport(self) -> UdpTransport:
        return self._transport

    @property
    def own_address(self) -> Address:
        """Source address of the datagrams that this gateway multicasts."""
        return self._transport.address

    def ignore(self, addresses: frozenset[Address]) -> bool:
        """Ignore datagrams from these addresses of other gateways. Return True if the addresses have changed."""
        if addresses == self._ignored:
            return False
        self._ignored = addresses
        self._transport.ignore(addresses)
        return True

    def send(self, data: Bytes, segment_bytes: int, address: Address | None) -> None:
        """Send a train to `address`, or multicast it if that is None. The train is copied if it has to wait."""
        train = Train(data, segment_bytes, address or self._transport.destination)
        stats = self.stats
        stats.datagrams_sent += train.count
        stats.bytes_sent += data.size
        if not self._backlog.trains and self._transport.send(train):
            return
        if not self._backlog.add(train):
            stats.dropped += train.count

    def send_bytes(self, datagram: bytes) -> None:
        """Multicast one datagram."""
        self.send(np.frombuffer(datagram, np.uint8), len(datagram), None)

    def check(self) -> bool:
        """Check the interface, and open the sockets again if it was replaced. Return True if it went up or down."""
        state = self._transport.check()
        if state is LinkState.CHANGED:
            self._unwatch()
            self.stats.dropped += self._backlog.drop()
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
        self._reader.watch(self._transport.group, self._on_multicast)
        self._reader.watch(self._transport.transmit, self._on_unicast)

    def _unwatch(self) -> None:
        self._reader.clear()
        self._backlog.stop()

    def _on_multicast(self, train: Train, now: float) -> None:
        self.stats.datagrams_received += train.count
        self.stats.bytes_received += train.data.size
        self._receive(self, train, now)

    def _on_unicast(self, train: Train, now: float) -> None:
        self.stats.datagrams_received += train.count
        self.stats.bytes_received += train.data.size
        self._receive_unicast(self, train, now)


class Lan:
    """The groups that a gateway carries, and the group of the beacons."""

    def __init__(self, config: LanConfig, settle: Callable[[float], None]) -> None:
        self.groups: dict[int, LanGroup] = {}
        """Groups carried, by hash. The dictionary stays the same for as long as the gateway runs."""
        self.beacons: LanGroup | None = None
        self._config = config
        self._settle = settle

    def open_beacons(self, receive: Receive) -> None:
        """Join the group of the beacons. Raise ConfigError or OSError as `LanGroup` does."""
        self.beacons = LanGroup(0, self._config.beacon, self._config, receive, _ignore, self._settle)

    def set_groups(self, groups: tuple[GroupConfig, ...], receive: Receive, receive_unicast: Receive) -> None:
        """Join the groups that are new, then leave those that are not in `groups`.

        Raise ConfigError or OSError as `LanGroup` does. All groups are then as they were before.
        """
        opened: dict[int, LanGroup] = {}
        try:
            for group in groups:
                if group.hash not in self.groups:
                    opened[group.hash] = LanGroup(
                        group.hash, group.address, self._config, receive, receive_unicast, self._settle
                    )
        except (ConfigError, OSError):
            for lan in opened.values():
                lan.close()
            raise
        for gone in set(self.groups) - {group.hash for group in groups}:
            self.groups.pop(gone).close()
        self.groups.update(opened)

    def ports(self) -> list[tuple[int, int]]:
        """Return hash and source port of each group, for beacons."""
        return [(group.hash, group.own_address[1]) for group in self.groups.values()]

    def check(self) -> Iterator[LanGroup]:
        """Check the interfaces. Yield the groups whose interface went up or down."""
        return (group for group in self._all() if group.check())

    def close(self) -> None:
        for group in self._all():
            group.close()

    def _all(self) -> tuple[LanGroup, ...]:
        return (*self.groups.values(), *([self.beacons] if self.beacons else []))


def _ignore(_group: LanGroup, _train: Train, _now: float) -> None:
    """Ignore a train sent by unicast in the group of the beacons, which has no feedback."""
