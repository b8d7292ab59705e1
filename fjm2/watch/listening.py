"""Listening to a bus: joins its group and receives, but sends nothing at all."""

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Callable
from typing import Final, Self

from fjm2.base.errors import ConfigError
from fjm2.bus.config import BusConfig
from fjm2.norm import LinkState, Train, UdpConfig, UdpTransport

from .bus import BusWatch
from .gateways import BEACONS

_TRAINS_PER_TURN: Final = 16
"""Greatest number of trains read in one turn of the event loop, so that the screen is drawn even on a busy bus."""
_CHECK_S: Final = 1.0
"""Seconds between two checks of the interface. `top` shows the result once a second."""


class Listening:
    """Passes the packets of a bus to a watch, on asyncio, in the body of an `async with` statement.

    Entering the body raises ConfigError or OSError if the group cannot be joined.
    """

    def __init__(self, config: BusConfig, watch: BusWatch) -> None:
        if not ipaddress.ip_address(config.group.partition("%")[0]).is_multicast:
            raise ConfigError(
                f"group={config.group}: expected a multicast group, since traffic between two hosts cannot be observed"
            )
        self._config = config
        self._watch = watch
        self._ears: list[_Ear] = []

    async def __aenter__(self) -> Self:
        config = self._config
        try:
            self._bus = self._open(config.group, config.port, config.interface, self._watch.take)
            with contextlib.suppress(ConfigError, OSError):
                self._open(*BEACONS, self.interface, self._watch.take_beacon)
        except BaseException:
            self._close()
            raise
        self._check_handle = asyncio.get_running_loop().call_later(_CHECK_S, self._check)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._check_handle.cancel()
        self._close()

    @property
    def interface(self) -> str:
        """Name of the network interface."""
        return self._bus.transport.interface.name

    @property
    def is_down(self) -> bool:
        """True if the interface is down."""
        return self._bus.transport.state is not LinkState.UP

    def _open(self, group: str, port: int, interface: str | None, take: Callable[[Train, float], None]) -> "_Ear":
        config = UdpConfig(group=group, port=port, interface=interface, ttl=self._config.ttl)
        ear = _Ear(UdpTransport(config), take)
        self._ears.append(ear)
        return ear

    def _close(self) -> None:
        for ear in self._ears:
            ear.close()

    def _check(self) -> None:
        self._check_handle = asyncio.get_running_loop().call_later(_CHECK_S, self._check)
        for ear in self._ears:
            ear.check()
        self._watch.overruns = self._bus.transport.kernel_drops()


class _Ear:
    """The sockets of one group. Only the receiving socket is used."""

    def __init__(self, transport: UdpTransport, take: Callable[[Train, float], None]) -> None:
        self.transport = transport
        self._take = take
        self._is_closed = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(transport.group.fileno(), self._receive)

    def _receive(self) -> None:
        if self._is_closed:
            return
        source, now = self.transport.group, time.monotonic()
        for _ in range(_TRAINS_PER_TURN):
            train = source.receive()
            if train is None:
                break
            self._take(train, now)
        if source.has_taken:
            # Datagrams already read from the kernel do not make the file descriptor readable again.
            self._loop.call_soon(self._receive)

    def check(self) -> None:
        """Reopen the sockets if the interface was replaced or came back."""
        if self.transport.check() is LinkState.CHANGED:
            self._loop.remove_reader(self.transport.group.fileno())
            self.transport.reopen()
            self._loop.add_reader(self.transport.group.fileno(), self._receive)

    def close(self) -> None:
        self._is_closed = True
        self._loop.remove_reader(self.transport.group.fileno())
        self.transport.close()
