"""`fjm2 doctor --listen`: answers probes of other hosts until it is stopped."""

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Callable
from typing import Final, Self

import numpy as np

from fjm2.norm import Train, UdpSocket, UdpStats, UdpTransport

from .probe import Answerer, Probe, Way
from .scene import Scene

_BEACON_S: Final = 1.0  # a prober that looks for listeners waits 1.5 s
_TURN_S: Final = 0.25  # how late `--timeout` and beacons may be
_IN_USE_ADVICE: Final = "; `ss -ulpn` shows the program that has it, such as a gateway: stop it, and listen again"


def open_unicast_socket(scene: Scene, port: int) -> UdpSocket:
    """Return a unicast socket at our address; port 0 is any port. Raise OSError if another program has the port."""
    assert scene.place is not None
    kernel = socket.socket(scene.udp.family, socket.SOCK_DGRAM)
    try:
        host = scene.place.address.partition("%")[0]
        kernel.bind((host, port, 0, scene.interface.index) if scene.is_ipv6 else (host, port))
    except OSError as error:
        kernel.close()
        where = f"{scene.place.address} port {port}"
        advice = _IN_USE_ADVICE if error.errno == errno.EADDRINUSE else ""
        raise OSError(
            error.errno, f"cannot bind to {where}, which probes are sent to: {error.strerror}{advice}"
        ) from error
    return UdpSocket(kernel, UdpStats(), offload=False)


class Listener:
    """A member of the group that answers probes. It also has a second port, for unicast probes."""

    def __init__(self, scene: Scene) -> None:
        with contextlib.ExitStack() as opened:
            self._transport = opened.enter_context(UdpTransport(scene.udp))
            self._unicast = open_unicast_socket(scene, scene.door_port)
            opened.callback(self._unicast.close)
            self._selector = opened.enter_context(selectors.DefaultSelector())
            self._opened = opened.pop_all()
        self.answerer = Answerer(self._unicast.address[1])
        """Part of the listener that decides on answers, and counts them."""
        self.hosts: set[str] = set()
        """Hosts that the listener has answered."""
        transport = self._transport
        for source, is_multicast, reply_by in (
            (transport.group, True, self._unicast),
            (transport.transmit, False, transport.transmit),
            (self._unicast, False, self._unicast),
        ):
            self._selector.register(source.fileno(), selectors.EVENT_READ, (source, is_multicast, reply_by))

    @property
    def address(self) -> str:
        """Address of the listener, which a prober is told on its command line."""
        return self._unicast.address[0]

    def run(self, seconds: float | None, on_host: Callable[[str], None]) -> None:
        """Answer probes for `seconds`, or without end if that is None. `on_host` is called once for each host that
        probes."""
        began = time.monotonic()
        beacon_at = began
        while seconds is None or time.monotonic() < began + seconds:
            now = time.monotonic()
            if now >= beacon_at:
                beacon_at = now + _BEACON_S
                self._multicast(self.answerer.beacon())
            left = _TURN_S if seconds is None else min(_TURN_S, max(0.0, began + seconds - now))
            for key, _ in self._selector.select(left):
                source, is_multicast, reply_by = key.data
                self._receive(source, is_multicast, reply_by, on_host)

    def _receive(
        self, source: UdpSocket, is_multicast: bool, reply_by: UdpSocket, on_host: Callable[[str], None]
    ) -> None:
        while (train := source.receive()) is not None:
            for start in range(0, train.data.size, train.segment_bytes):
                datagram = train.data[start : start + train.segment_bytes].tobytes()
                host = train.address[0]
                answer = self.answerer.answer(datagram, host, is_multicast, time.time_ns(), time.monotonic())
                if answer is None:
                    continue
                if host not in self.hosts and len(self.hosts) < 1024:
                    self.hosts.add(host)
                    on_host(host)
                probe = Probe.decode(datagram)
                if probe is not None and probe.way & Way.MULTICAST:
                    self._multicast(answer)
                else:
                    reply_by.send(Train(np.frombuffer(answer, np.uint8), len(answer), train.address))

    def _multicast(self, datagram: bytes) -> None:
        data = np.frombuffer(datagram, np.uint8)
        self._transport.send(Train(data, data.size, self._transport.destination))

    def close(self) -> None:
        """Leave the group, and stop answering. Safe to call more than once."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
