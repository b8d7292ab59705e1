"""The two sockets of a session, on one interface: opened, watched, and opened again when the interface is another.

The *group* socket is bound to the group (or, between two, to our address and the session's port) and only receives.
The *transmit* socket is bound to the interface's address and a port of its own; it sends everything, and receives what
peers send back to it. A session needs both: on the group's port a host has many sessions, and an answer must find one.
"""

import contextlib
import logging
from collections.abc import Iterable
from enum import Enum
from typing import Self

from fjm2.base.errors import ConfigError
from fjm2.base.logs import Log
from fjm2.norm.core.train import Address, Train

from .interfaces import HAS_NETLINK, LOST_COUNT, Interface, InterfaceWatch
from .udp_filter import shorten
from .udp_opening import UdpConfig, can_offload, find_place, leave, open_sockets
from .udp_socket import TrainSocket, UdpSocket, check_platform
from .udp_stats import UdpStats

__all__ = ["LinkState", "TrainSocket", "UdpConfig", "UdpSocket", "UdpStats", "UdpTransport"]

log = Log("fjm2.norm")


class LinkState(Enum):
    """What has become of the interface since the sockets were opened."""

    UP = "up"
    """As it was."""
    DOWN = "down"
    """Switched off, without a carrier, without our address, or gone."""
    CHANGED = "changed"
    """There, but no longer the same: it takes a `reopen` to hear anything."""


class UdpTransport:
    """A session's two sockets. Raises ConfigError for what cannot be meant, OSError for what the kernel refuses."""

    def __init__(self, config: UdpConfig) -> None:
        check_platform()
        self.config = config
        """What was asked for."""
        self.stats = UdpStats()
        """What both sockets have done."""
        self.warnings: tuple[str, ...] = ()
        """What an operator should know, with what to do about it. Logged as well."""
        self.offload = can_offload(config)
        """Whether a train is one system call, each way."""
        self._watch = _watch_or_none()  # first, so that nothing is missed
        try:
            self._place = find_place(config, config.interface)
            # Where the kernel chose, the choice stands: a route that changes is no reason to move.
            self._chosen = config.interface or self._place.interface.name
            group, transmit = open_sockets(config, self._place, self._warn)
        except BaseException:
            self._stop_watching()
            raise
        self.group = UdpSocket(group, self.stats, offload=self.offload)
        """Receives what is sent to the session."""
        self.transmit = UdpSocket(transmit, self.stats, offload=self.offload)
        """Sends all, and receives what peers send back."""
        self.destination: Address = (config.group, config.port)
        """Where trains for the session go."""
        self._ignored: frozenset[Address] = frozenset()
        self._ignore_own()
        self._is_closed = False
        self._must_reopen = False
        self._must_look = True
        self._state = LinkState.UP
        self.check()

    @property
    def address(self) -> Address:
        """Our own, as peers see it: that of the transmit socket. It may be another after `reopen`."""
        return self.transmit.address

    @property
    def interface(self) -> Interface:
        """As it was when the sockets were opened."""
        return self._place.interface

    @property
    def state(self) -> LinkState:
        """As of the last `check` or `reopen`."""
        return self._state

    @property
    def is_down(self) -> bool:
        """Whether there is no way out: the interface is down, or the last send found none."""
        return self._state is LinkState.DOWN or self.transmit.is_failing

    def send(self, train: Train) -> bool:
        """As `transmit.send`."""
        return self.transmit.send(train)

    def ignore(self, addresses: Iterable[Address]) -> None:
        """Receive nothing of what these send to the group; what we send ourselves never is."""
        self._ignored = frozenset(addresses)
        self._ignore_own()

    def _ignore_own(self) -> None:
        if self.config.is_multicast:
            self.group.ignored = self._ignored | {self.address}
            if self.config.loopback:
                shorten(self.group.kernel, self.group.ignored)

    def kernel_drops(self) -> int:
        """Datagrams that came, since the sockets were opened, and found no room in their buffers."""
        return self.group.kernel_drops() + self.transmit.kernel_drops()

    def check(self) -> LinkState:
        """What has become of the interface. To be asked every second or so: when nothing has, it costs a microsecond.

        A receiver that only listens learns of it here and nowhere else: its sockets stay silent, without an error.
        """
        if self._is_closed:
            return LinkState.DOWN
        removed = self._watch.poll() if self._watch else set()
        if removed is None and not self._must_look:
            return self._state
        if removed and not removed.isdisjoint((self._place.interface.index, LOST_COUNT)):
            self._must_reopen = True  # even if it is back with the same index, the membership is not
        self._must_look = True
        with contextlib.suppress(OSError):  # no more file numbers, or the like: look again the next time
            self._state = self._look()
            self._must_look = False
        return self._state

    def reopen(self) -> LinkState:
        """Sockets anew on the interface as it is now, and in the group again. Not UP: it was in vain; try it later.

        The file numbers change: stop waiting for the old ones before, wait for the new ones after. A train that was
        half sent is begun again. The port stays the same, if it can.
        """
        if self._is_closed:
            return LinkState.DOWN
        self._must_reopen = True
        leave(self.group.kernel, self.config, self._place)  # an old membership must not end when the new one is there
        try:
            place = find_place(self.config, self._chosen)
            group, transmit = open_sockets(self.config, place, self._warn, (self.group.kernel, self.transmit.kernel))
        except (ConfigError, OSError) as error:
            text = (
                f"{self.config.group}: its sockets cannot be opened again yet: {error}; nothing to do, it is tried on"
            )
            log.tell(logging.DEBUG, "reopen_failed", text, about=self.config.group)
            self._must_look = True
            self._state = LinkState.DOWN
            return self._state
        for ours, kernel in ((self.group, group), (self.transmit, transmit)):
            ours.close()
            ours.replace(kernel)
        self._place = place
        self._ignore_own()
        self._must_reopen, self._must_look = False, True
        return self.check()

    def close(self) -> None:
        """Leave the group and close everything. More than once does no harm."""
        leave(self.group.kernel, self.config, self._place)
        self.group.close()
        self.transmit.close()
        self._stop_watching()
        self._is_closed = True
        self._state = LinkState.DOWN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _warn(self, event: str, text: str) -> None:
        """Say it once, and keep it."""
        if text not in self.warnings:
            self.warnings += (text,)
            log.tell(logging.WARNING, event, text, about=text)

    def _look(self) -> LinkState:
        try:
            place = find_place(self.config, self._chosen)
        except ConfigError:
            self._must_reopen = True
            return LinkState.DOWN
        if not place.interface.is_up:
            return LinkState.DOWN
        is_same = place.interface.index == self._place.interface.index
        has_address = not HAS_NETLINK or self._place.address in place.interface.addresses(self.config.family)
        return LinkState.UP if is_same and has_address and not self._must_reopen else LinkState.CHANGED

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.close()


def _watch_or_none() -> InterfaceWatch | None:
    if HAS_NETLINK:
        with contextlib.suppress(OSError):  # as in a sandbox
            return InterfaceWatch()
    return None
