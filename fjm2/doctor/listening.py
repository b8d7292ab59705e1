"""Listening to a bus for a few seconds: records the members that answer when asked, and other traffic, on all
interfaces."""

import contextlib
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from fjm2.base.errors import ConfigError
from fjm2.bus.presence import Announcement, Flag
from fjm2.norm import Train, UdpConfig, UdpSocket, UdpTransport
from fjm2.norm.core.wire import Application

from .observations import Observations
from .scene import Scene
from .tap import Tap, open_tap

LISTEN_S: Final = 2.0
"""Seconds to listen on our interface."""
_ASK_AT_S: Final = (0.0, 0.4, 0.8)
"""Times at which members are asked, in seconds. Packets get lost, and two nodes with one id are only told apart if both
are heard twice."""
_INTERFACES_MAX: Final = 8  # bounds sockets on hosts with many virtual interfaces
_TRAINS_PER_TURN: Final = 16  # so that no busy socket starves the others
_POLL_S: Final = 0.05  # greatest delay of a question
_VALID_S: Final = 5  # how long members remember the doctor if its goodbye is lost
GATEWAYS: Final = ("239.192.57.41", 5742)
"""Multicast group of the gateways of one LAN: the default of fjm2d's setting `lan.beacon`."""
_BEACON: Final = b"FJMB"
_BEACON_ID_AT: Final = 8  # place of the gateway id in a beacon
_PKTINFO: Final = 8  # Linux's IP_PKTINFO, and the struct in_pktinfo: interface, our address, destination
_PKTINFO_BYTES: Final = 12


@dataclass(slots=True)
class ListeningResult:
    """Observations by interface, and other signs of members and of lost packets."""

    heard: Observations
    others: dict[str, Observations] = field(default_factory=dict)
    """Observations on other interfaces of this host, by name."""
    gateways: dict[int, str] = field(default_factory=dict)
    """Addresses of gateways, by gateway id."""
    groups: set[str] = field(default_factory=set)
    """Groups that are used with our port."""
    wire: dict[str, int] | None = None
    """Datagrams or trains of other hosts for our group that reached the interface, by sender; None if that cannot be
    seen."""
    seconds: float = 0.0

    @property
    def lost(self) -> list[str]:
        """Senders whose datagrams reached the interface, but not the socket."""
        return sorted(set(self.wire or ()) - self.heard.sources)


class PresenceQuery:
    """The doctor as a node of the bus: subscribes to nothing, asks who is present, and says goodbye."""

    def __init__(self) -> None:
        self.node_id = secrets.randbelow(0xFFFFFFFE) + 1
        self._instance_id = secrets.randbelow(1 << 16)
        self._connection_id = secrets.randbits(64)
        self._sequence = 0

    def ask(self, transport: UdpTransport) -> None:
        self._say(transport, Flag.ASKS)

    def leave(self, transport: UdpTransport) -> None:
        self._say(transport, Flag.GOODBYE)

    def _say(self, transport: UdpTransport, flags: Flag) -> None:
        content = Announcement(self._connection_id, flags=flags, valid_s=_VALID_S).encode(512)
        message = Application(
            sequence=self._sequence,
            source_id=self.node_id,
            instance_id=self._instance_id,
            grtt_q=0,
            backoff=4,
            gsize_q=0,
            content=content,
        )
        self._sequence += 1
        data = np.frombuffer(message.encode(), np.uint8)
        transport.send(Train(data, data.size, transport.destination))


class SocketPoller:
    """Polls the sockets of one examination."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self._selector = stack.enter_context(selectors.DefaultSelector())

    def add(self, transport: UdpTransport, receive: Callable[[Train], None]) -> None:
        """Pass the trains for the transport's group to `receive`."""
        self._watch(transport.group, lambda: _drain(transport.group, receive))

    def add_tap(self, tap: Tap) -> None:
        self._stack.callback(tap.close)
        self._watch(tap, tap.poll)

    def add_socket(self, kernel: socket.socket, poll: Callable[[], None]) -> None:
        self._stack.enter_context(kernel)
        self._watch(kernel, poll)

    def _watch(self, source: UdpSocket | Tap | socket.socket, poll: Callable[[], None]) -> None:
        self._selector.register(source.fileno(), selectors.EVENT_READ, poll)

    def turn(self, seconds: float) -> None:
        """Wait until sockets are readable, for `seconds` at most, and read them."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            key.data()


def _drain(source: UdpSocket, receive: Callable[[Train], None]) -> None:
    for _ in range(_TRAINS_PER_TURN):
        train = source.receive()
        if train is None:
            return
        receive(train)


def listen(scene: Scene, transport: UdpTransport, seconds: float = LISTEN_S) -> ListeningResult:
    """Listen on our interface for `seconds`, and half as long on the others if nothing is heard on ours."""
    query = PresenceQuery()
    own = frozenset((query.node_id,))
    found = ListeningResult(Observations(own))
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        poller = SocketPoller(stack)
        poller.add(transport, found.heard.receive)
        others = _open_others(scene, stack)
        for name, other in others.items():
            found.others[name] = Observations(own)
            poller.add(other, found.others[name].receive)
        _add_gateways(scene, poller, stack, found)
        tap = _add_port(scene, poller, found)
        try:
            _ask_around(poller, query, [transport], seconds)
            if found.heard.is_silent and others:
                _ask_around(poller, query, list(others.values()), seconds / 2)
        finally:
            for one in (transport, *others.values()):
                query.leave(one)
    if tap is not None:
        found.groups |= {group for _, group in tap.seen}
        # Not what this host sent on another interface of the same LAN: the kernel drops that, and nobody needs it.
        ours = {address.partition("%")[0] for one in scene.interfaces for address in (*one.ipv4, *one.ipv6)}
        seen = {source: count for (source, group), count in tap.seen.items() if group == scene.group}
        found.wire = {source: count for source, count in seen.items() if source not in ours}
    found.groups.update(_bound_groups(scene))
    found.seconds = time.monotonic() - began
    return found


def _ask_around(poller: SocketPoller, query: PresenceQuery, transports: list[UdpTransport], seconds: float) -> None:
    began = time.monotonic()
    due = list(_ASK_AT_S)
    while (elapsed := time.monotonic() - began) < seconds:
        if due and elapsed >= due[0]:
            due.pop(0)
            for transport in transports:
                query.ask(transport)
        poller.turn(min(_POLL_S, seconds - elapsed))


def _open_others(scene: Scene, stack: contextlib.ExitStack) -> dict[str, UdpTransport]:
    """Open the same group on the host's other interfaces."""
    found: dict[str, UdpTransport] = {}
    if scene.interface.is_loopback:
        return found
    for other in scene.candidates():
        if other.name != scene.interface.name and other.is_up and len(found) < _INTERFACES_MAX:
            with contextlib.suppress(ConfigError, OSError):
                found[other.name] = stack.enter_context(UdpTransport(scene.on(other.name)))
    return found


def _add_gateways(scene: Scene, poller: SocketPoller, stack: contextlib.ExitStack, found: ListeningResult) -> None:
    def receive_beacon(train: Train) -> None:
        beacon = train.data[: train.segment_bytes].tobytes()
        if beacon.startswith(_BEACON) and len(beacon) >= _BEACON_ID_AT + 4 and len(found.gateways) < 64:
            gateway_id = int.from_bytes(beacon[_BEACON_ID_AT : _BEACON_ID_AT + 4])
            found.gateways[gateway_id] = train.address[0]

    group, port = GATEWAYS
    with contextlib.suppress(ConfigError, OSError):
        config = UdpConfig(group=group, port=port, interface=scene.interface.name, ttl=scene.udp.ttl)
        poller.add(stack.enter_context(UdpTransport(config)), receive_beacon)


def _add_port(scene: Scene, poller: SocketPoller, found: ListeningResult) -> Tap | None:
    """Record groups used with our port, by packet capture or by a wildcard socket."""
    port = scene.udp.port
    is_loopback = scene.interface.is_loopback  # only this host sends there
    tap = None if is_loopback else open_tap(scene.interface.name, port, scene.is_ipv6)
    if tap is not None:
        poller.add_tap(tap)
    elif not scene.is_ipv6:
        with contextlib.suppress(OSError):
            _add_wildcard(port, poller, found)
    return tap


def _add_wildcard(port: int, poller: SocketPoller, found: ListeningResult) -> None:
    """Open a socket that receives all groups joined by programs of this host."""
    kernel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        kernel.setblocking(False)
        kernel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kernel.setsockopt(socket.IPPROTO_IP, _PKTINFO, 1)
        kernel.bind(("", port))
    except OSError:
        kernel.close()
        raise

    def poll() -> None:
        for _ in range(_TRAINS_PER_TURN):
            try:
                _, ancillary, _, _ = kernel.recvmsg(1, socket.CMSG_SPACE(_PKTINFO_BYTES))
            except OSError:
                return
            for _, kind, info in ancillary:
                if kind == _PKTINFO and len(info) >= _PKTINFO_BYTES and 224 <= info[8] < 240:
                    found.groups.add(socket.inet_ntoa(info[8:12]))

    poller.add_socket(kernel, poll)


def _bound_groups(scene: Scene) -> Iterator[str]:
    """Yield groups that programs of this host listen to at our port."""
    for line in scene.kernel.udp_sockets(scene.is_ipv6) or ():
        first = int(line.host.split(".")[0]) if "." in line.host else 0
        if line.port == scene.udp.port and (224 <= first < 240 or line.host.startswith("ff")):
            yield line.host
