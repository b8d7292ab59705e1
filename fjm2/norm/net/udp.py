"""The two sockets of a session on one interface. They are reopened when the interface changes.

The *group* socket is bound to the group (or, in a session between two nodes, to our address and the session's port) and
only receives. The *transmit* socket is bound to the interface's address and a port of its own; it sends everything, and
receives what peers send back to it. A session needs both: a host may have many sessions on the group's port, and an
answer has to reach the right session.
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
from .udp_filter import GroupFilter
from .udp_opening import UdpConfig, can_offload, find_place, leave, open_sockets
from .udp_socket import TrainSocket, UdpSocket, check_platform
from .udp_stats import UdpStats

__all__ = ["LinkState", "TrainSocket", "UdpConfig", "UdpSocket", "UdpStats", "UdpTransport"]

log = Log("fjm2.norm")


class LinkState(Enum):
    """State of the interface, compared with its state when the sockets were opened."""

    UP = "up"
    """The interface works, and has not changed."""
    DOWN = "down"
    """The interface is switched off, has no carrier or no usable address, or was removed."""
    CHANGED = "changed"
    """The interface works, but has changed: nothing is received until `reopen`."""


class UdpTransport:
    """A session's two sockets. Raises ConfigError for invalid settings, and OSError if the kernel refuses a socket."""

    def __init__(self, config: UdpConfig) -> None:
        check_platform()
        self.config = config
        """Settings of the sockets."""
        self.stats = UdpStats()
        """Counters of both sockets."""
        self.warnings: tuple[str, ...] = ()
        """Problems of this host, each with advice for its operator. They are logged as well."""
        self.offload = can_offload(config)
        """True if a whole train is sent or received by one system call."""
        self._watch = _watch_or_none()  # before the sockets open, so that no change is missed
        try:
            self._place = find_place(config, config.interface)
            # If the kernel chose the interface, keep that one: a changed route is no reason to move.
            self._chosen = config.interface or self._place.interface.name
            group, transmit = open_sockets(config, self._place, self._warn)
        except BaseException:
            self._stop_watching()
            raise
        self._filter = GroupFilter(config.family, cuts_own=config.loopback, is_kept_only=config.kept_only)
        self.group = UdpSocket(group, self.stats, offload=self.offload)
        """Socket that receives what is sent to the session."""
        self.transmit = UdpSocket(transmit, self.stats, offload=self.offload)
        """Socket that sends everything, and receives what peers send back."""
        self.destination: Address = (config.group, config.port)
        """Address to which trains for the session are sent."""
        self._ignore_own()
        self._is_closed = False
        self._must_reopen = False
        self._must_look = True
        self._state = LinkState.UP
        self.check()

    @property
    def address(self) -> Address:
        """Address of the transmit socket, as peers see it. `reopen` may change it."""
        return self.transmit.address

    @property
    def interface(self) -> Interface:
        """Interface as it was when the sockets were opened."""
        return self._place.interface

    @property
    def state(self) -> LinkState:
        """State of the interface as of the last `check` or `reopen`."""
        return self._state

    @property
    def is_down(self) -> bool:
        """True if nothing can be sent: the interface is down, or the last train found no route or was refused."""
        return self._state is LinkState.DOWN or self.transmit.is_failing

    @property
    def refusal(self) -> str | None:
        """The kernel's reason if the interface is up, but the kernel refused the last train; None otherwise."""
        return self.transmit.refusal if self._state is LinkState.UP else None

    def send(self, train: Train) -> bool:
        """Send a train by the transmit socket; see `UdpSocket.send`."""
        return self.transmit.send(train)

    def ignore(self, addresses: Iterable[Address]) -> None:
        """Ignore what these addresses send to the group. What we send ourselves is always ignored."""
        self._filter.ignored = frozenset(addresses)
        self._ignore_own()

    def receive_for(self, node_id: int) -> None:
        """Receive for a node from now on. With `kept_only`, the kernel drops what that one does not want."""
        self._filter.node_id = node_id
        self._ignore_own()

    def _ignore_own(self) -> None:
        if self.config.is_multicast:
            self.group.ignored = self._filter.ignored | {self.address}
            self._filter.attach(self.group.kernel, self.group.ignored)

    def kernel_drops(self) -> int:
        """Return the number of datagrams dropped since the sockets were opened because their buffers were full."""
        return self._filter.without_dropped(self.group.kernel_drops()) + self.transmit.kernel_drops()

    def check(self) -> LinkState:
        """Return the state of the interface. Call it every second or so; it takes a microsecond if nothing has changed.

        A session that only listens notices a change in no other way: its sockets stay silent, without an error.
        """
        if self._is_closed:
            return LinkState.DOWN
        removed = self._watch.poll() if self._watch else set()
        if removed is None and not self._must_look:
            return self._state
        if removed and not removed.isdisjoint((self._place.interface.index, LOST_COUNT)):
            self._must_reopen = True  # even if it is back with the same index, the membership is lost
        self._must_look = True
        with contextlib.suppress(OSError):  # such as no free file numbers: look again the next time
            self._state = self._look()
            self._must_look = False
        return self._state

    def reopen(self) -> LinkState:
        """Open new sockets on the interface as it is now, and join the group again. If the result is not UP, try later.

        The file descriptors change: stop watching the old ones before the call, and watch the new ones after it. A
        train that was half sent begins anew. The port stays the same if possible.
        """
        if self._is_closed:
            return LinkState.DOWN
        self._must_reopen = True
        leave(self.group.kernel, self.config, self._place)  # now: leaving later would end the new membership
        try:
            place = find_place(self.config, self._chosen)
            group, transmit = open_sockets(self.config, place, self._warn, (self.group.kernel, self.transmit.kernel))
        except (ConfigError, OSError) as error:
            text = (
                f"{self.config.group}: its sockets cannot be opened again yet: {error}; nothing to do, FJM2 will retry"
            )
            log.tell(logging.DEBUG, "reopen_failed", text, about=self.config.group)
            self._must_look = True
            self._state = LinkState.DOWN
            return self._state
        for ours, kernel in ((self.group, group), (self.transmit, transmit)):
            ours.close()
            ours.replace(kernel)
        self._place = place
        self._filter.begin()
        self._ignore_own()
        self._must_reopen, self._must_look = False, True
        return self.check()

    def close(self) -> None:
        """Leave the group and close the sockets. Harmless if they are closed already."""
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
        """Log a warning once, and keep it."""
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
        with contextlib.suppress(OSError):  # such as in a sandbox
            return InterfaceWatch()
    return None
