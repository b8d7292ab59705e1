"""`fjm2 doctor --probe`: probes the listeners on other hosts, and measures multicast and unicast in each direction.

Multicast may fail while unicast works, in one direction or in both. So each question is sent by multicast and by
unicast, and answered by both, from sockets for which no earlier packet has opened a firewall:

    group           to the group, answered to the socket that sent it, as a member answers a multicast sender
    both            to the group, answered to the group
    unicast         to the listener's unicast port, answered from there
    answered        to the listener's unicast port, answered to the group
    way_back        to the socket that the listener multicasts from, as a member would answer it
"""

import contextlib
import math
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np

from fjm2.norm import Address, Train, UdpSocket, UdpTransport

from .listener import open_unicast_socket
from .probe import PROBE_BYTES_MIN, Kind, Probe, Way
from .scene import Scene

_HELLO_S: Final = 1.5  # longer than the second between two beacons
_HELLO_EVERY_S: Final = 0.25  # six times in all, since probes get lost
_PINGS: Final = 100  # shows losses of a percent
_PACE_S: Final = 0.004  # 250 a second: no burst that a small buffer would lose, and below the listener's limit
_WAIT_S: Final = 0.25  # for the answers to the last pings; longer round trips than this are no LAN's
_TRIES_MIN, _TRIES_MAX = 3, 20
_CHANCE: Final = 1e-4
"""Accepted probability that all tries of a size that fits are lost by chance."""
_TRY_S: Final = 0.08  # a LAN answers within a few milliseconds
_BISECTIONS: Final = 7  # between two sizes of a path: 500 bytes down to 4
_LISTENERS_MAX: Final = 4  # measured, at about five seconds each
_KNOWN_MAX: Final = 64  # bounds memory against forged beacons
_WATCH_EVERY_S: Final = 0.5  # three pings each time, far below the listener's limits
_MISSED_MAX: Final = 4
"""Number of unanswered pings in a row that are more than chance."""
_SIZES: Final = (256, 548, 1000, 1232, 1400)  # 548 and 1232 fit the smallest packets of IPv4 and IPv6
# Linux's numbers (linux/in.h, linux/in6.h): set "don't fragment", and ignore what routers report of MTUs.
_MTU_DISCOVER: Final = {socket.AF_INET: (socket.IPPROTO_IP, 10), socket.AF_INET6: (socket.IPPROTO_IPV6, 23)}
_MTU_DISCOVER_PROBE: Final = 3


@dataclass(slots=True)
class Series:
    """Pings of one kind, and the answers to them."""

    sent: int = 0
    times_ms: list[float] = field(default_factory=list)

    @property
    def received(self) -> int:
        return len(self.times_ms)


@dataclass(slots=True)
class Watched:
    """Result of a long watch: seconds after which each direction stopped; None if it did not."""

    seconds: float
    stopped_out_s: float | None = None
    stopped_in_s: float | None = None
    unicast_stopped_s: float | None = None


@dataclass(slots=True)
class ProbedListener:
    """A listener, and what was measured between it and this host."""

    listener: int
    host: str
    """Address of the listener's host."""
    unicast: Address | None = None
    transmit: Address | None = None
    """Address that the listener multicasts from."""
    cookie: bytes = bytes(8)
    series: dict[str, Series] = field(default_factory=dict)
    by_multicast: int = 0
    """Our pings that the listener received by multicast, by its own count."""
    multicast_sent: int = 0
    passed_out: int | None = None
    """Size of the largest datagram that arrives at the listener; None if none was tried."""
    lost_out: int | None = None
    """Size of the smallest datagram that does not arrive at the listener; None if all do."""
    passed_back: int | None = None
    lost_back: int | None = None
    clock_offset_s: float | None = None
    """Seconds by which the listener's clock is ahead of ours."""
    watched: Watched | None = None

    def got(self, kind: str) -> int:
        return self.series[kind].received if kind in self.series else 0


class Prober:
    """Probes listeners with three sockets: one in the group, one to multicast from, and one for unicast."""

    def __init__(self, scene: Scene, address: str | None) -> None:
        self._scene = scene
        self._address = address
        self._session = secrets.token_bytes(8)
        self._number = 0
        self._found: dict[int, ProbedListener] = {}
        self._pongs: dict[int, tuple[float, Probe]] = {}
        self.beacons: set[str] = set()
        """Hosts whose listeners were heard, whether or not they answered."""
        with contextlib.ExitStack() as opened:
            self._transport = opened.enter_context(UdpTransport(scene.udp))
            self._own = open_unicast_socket(scene, 0)
            opened.callback(self._own.close)
            self._selector = opened.enter_context(selectors.DefaultSelector())
            self._opened = opened.pop_all()
        self._sources: tuple[UdpSocket, ...] = (self._transport.group, self._transport.transmit, self._own)
        for source in self._sources:
            self._selector.register(source.fileno(), selectors.EVENT_READ, source)
        for source in (self._transport.transmit, self._own):
            _dont_fragment(source.kernel)

    def find(self) -> list[ProbedListener]:
        """Ask for listeners by multicast, and by unicast where an address is known. Return the listeners found."""
        began = time.monotonic()
        number = 0
        while (elapsed := time.monotonic() - began) < _HELLO_S:
            if elapsed >= number * _HELLO_EVERY_S:
                self._hello(number)
                number += 1
            self._turn(0.02)
        return sorted(self._found.values(), key=lambda one: one.host)[:_LISTENERS_MAX]

    def _hello(self, number: int) -> None:
        for way in (Way(0), Way.MULTICAST):
            hello = Probe(kind=Kind.HELLO, session=self._session, way=way).encode()
            if number % 2 == int(way):
                self._send(self._transport.transmit, hello, self._transport.destination)
            addresses = {
                one.unicast for one in self._found.values() if one.unicast is not None and one.cookie == bytes(8)
            }
            if self._address is not None:
                addresses.add((self._address, self._scene.door_port))
            for address in addresses:
                self._send(self._own, hello, address)

    def measure(self, listening: ProbedListener) -> None:
        """Measure everything except the long watch. Takes about three seconds."""
        transmit, group = self._transport.transmit, self._transport.destination
        self._series(listening, "group", transmit, group, Way(0))
        self._series(listening, "both", transmit, group, Way.MULTICAST)
        if listening.unicast is not None:
            self._series(listening, "unicast", self._own, listening.unicast, Way(0))
            self._series(listening, "answered", self._own, listening.unicast, Way.MULTICAST, _PINGS // 2)
        if listening.transmit is not None:
            self._series(listening, "way_back", transmit, listening.transmit, Way(0), 5)
        self._sizes(listening)

    def _series(
        self, listening: ProbedListener, kind: str, by: UdpSocket, to: Address, way: Way, count: int = _PINGS
    ) -> None:
        series = listening.series[kind] = Series()
        numbers = []
        for _ in range(count):
            numbers.append(self._ping(listening, by, to, way))
            self._until(lambda: False, _PACE_S)
        series.sent = count
        if to == self._transport.destination:
            listening.multicast_sent += count
        self._until(lambda: all(number in self._pongs for number in numbers), _WAIT_S)
        offsets = []
        for number in numbers:
            if number in self._pongs:
                milliseconds, pong = self._pongs.pop(number)
                series.times_ms.append(milliseconds)
                middle = pong.sent_at_ns + int(milliseconds * 5e5)
                offsets.append((milliseconds, (pong.clock_ns - self._wall_ns(middle)) / 1e9))
        if offsets:
            listening.clock_offset_s = min(offsets)[1]

    @staticmethod
    def _wall_ns(monotonic_ns: int) -> int:
        return time.time_ns() - (time.monotonic_ns() - monotonic_ns)

    def _sizes(self, listening: ProbedListener) -> None:
        """Find the largest datagrams that arrive at the listener and back here: by unicast if it works, otherwise by
        multicast."""
        if listening.got("unicast") and listening.unicast is not None:
            kind, by, to, way = "unicast", self._own, listening.unicast, Way(0)
        elif listening.got("both"):
            kind, by, to, way = "both", self._transport.transmit, self._transport.destination, Way.MULTICAST
        elif listening.got("group"):
            kind, by, to, way = "group", self._transport.transmit, self._transport.destination, Way(0)
        else:
            return
        tries = tries_for(listening.series[kind])
        mtu = self._scene.interface.mtu
        most = (mtu or 1500) - self._scene.ip_bytes
        rungs = sorted(
            {size for size in (*_SIZES, self._scene.datagram_bytes, most) if PROBE_BYTES_MIN <= size <= most}
        )

        def passes(size: int, how: Way) -> bool:
            for _ in range(tries):
                number = self._ping(listening, by, to, how, size)
                if to == self._transport.destination:
                    listening.multicast_sent += 1
                if self._until(lambda: number in self._pongs, _TRY_S):  # noqa: B023
                    return True
            return False

        listening.passed_out, listening.lost_out = climb(rungs, lambda size: passes(size, way | Way.SHORT))
        back = [size for size in rungs if listening.lost_out is None or size < listening.lost_out]
        listening.passed_back, listening.lost_back = climb(back, lambda size: passes(size, way))

    def watch(self, listening: ProbedListener, seconds: float, tell: Callable[[float], None]) -> None:
        """Watch whether multicast continues to arrive: switches forget members after minutes."""
        watched = listening.watched = Watched(seconds)
        began = time.monotonic()
        missed = {"out": 0, "in": 0, "unicast": 0}
        heard = listening.by_multicast
        while (elapsed := time.monotonic() - began) < seconds:
            out = self._ping(listening, self._transport.transmit, self._transport.destination, Way.MULTICAST)
            self._until(lambda: out in self._pongs, _WATCH_EVERY_S / 2)  # noqa: B023
            answered = by_unicast = out
            if listening.unicast is not None:
                answered = self._ping(listening, self._own, listening.unicast, Way.MULTICAST)
                by_unicast = self._ping(listening, self._own, listening.unicast, Way(0))
            self._until(lambda: {answered, by_unicast} <= set(self._pongs), _WATCH_EVERY_S / 2)  # noqa: B023
            outcome = {
                "out": listening.by_multicast > heard,
                "in": out in self._pongs or answered in self._pongs,
                "unicast": by_unicast in self._pongs,
            }
            heard = listening.by_multicast
            self._pongs.clear()
            for name, came in outcome.items():
                missed[name] = 0 if came else missed[name] + 1
            tell(elapsed)
            if not self._note(watched, missed, elapsed) and missed["unicast"] >= _MISSED_MAX:
                return
            if watched.stopped_out_s is not None or watched.stopped_in_s is not None:
                return
            self._until(lambda: False, max(0.0, _WATCH_EVERY_S - (time.monotonic() - began - elapsed)))

    @staticmethod
    def _note(watched: Watched, missed: dict[str, int], elapsed: float) -> bool:
        """Record the time at which a direction stopped. If unicast stopped too, return False: multicast is not to
        blame."""
        since = max(0.0, elapsed - _MISSED_MAX * _WATCH_EVERY_S)
        if missed["unicast"] >= _MISSED_MAX:
            watched.unicast_stopped_s = since
            return False
        if missed["unicast"] == 0:
            watched.stopped_out_s = since if missed["out"] >= _MISSED_MAX else None
            watched.stopped_in_s = since if missed["in"] >= _MISSED_MAX else None
        return True

    def _ping(self, listening: ProbedListener, by: UdpSocket, to: Address, way: Way, size: int = 0) -> int:
        self._number += 1
        ping = Probe(
            kind=Kind.PING,
            way=way,
            session=self._session,
            cookie=listening.cookie,
            number=self._number,
            listener=listening.listener,
            sent_at_ns=time.monotonic_ns(),
        )
        self._send(by, ping.encode(size), to)
        return self._number

    def _send(self, by: UdpSocket, datagram: bytes, to: Address) -> None:
        by.send(Train(np.frombuffer(datagram, np.uint8), len(datagram), to))

    def _until(self, is_done: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not is_done():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._turn(left)
        return True

    def _turn(self, seconds: float) -> None:
        """Wait until sockets are readable, for `seconds` at most, and handle what they receive."""
        for key, _ in self._selector.select(seconds):
            source: UdpSocket = key.data
            while (train := source.receive()) is not None:
                for start in range(0, train.data.size, train.segment_bytes):
                    datagram = train.data[start : start + train.segment_bytes].tobytes()
                    self._handle(datagram, train.address, source is self._transport.group)

    def _handle(self, datagram: bytes, address: Address, is_multicast: bool) -> None:
        probe = Probe.decode(datagram)
        if probe is None:
            return
        if probe.kind is Kind.BEACON:
            if self._has_room(probe):
                self.beacons.add(address[0])
                self._listening(probe, address, is_multicast)
        elif probe.session == self._session and probe.kind is Kind.CHALLENGE and self._has_room(probe):
            self._listening(probe, address, is_multicast).cookie = probe.cookie
        elif probe.session == self._session and probe.kind is Kind.PONG and probe.listener in self._found:
            self._listening(probe, address, is_multicast)
            listening = self._found[probe.listener]
            listening.by_multicast = max(listening.by_multicast, probe.by_multicast)
            if probe.cookie == listening.cookie:
                milliseconds = (time.monotonic_ns() - probe.sent_at_ns) / 1e6
                self._pongs.setdefault(probe.number, (milliseconds, probe))

    def _has_room(self, probe: Probe) -> bool:
        return probe.listener in self._found or len(self._found) < _KNOWN_MAX

    def _listening(self, probe: Probe, address: Address, is_multicast: bool) -> ProbedListener:
        found = self._found.setdefault(probe.listener, ProbedListener(probe.listener, address[0]))
        if probe.unicast_port:
            found.unicast = (address[0], probe.unicast_port)
        if is_multicast:
            found.transmit = address
        return found

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tries_for(series: Series) -> int:
    """Return the number of tries for a size of datagrams, so that measured loss is not mistaken for a limit of size."""
    loss = 1 - series.received / series.sent
    needed = math.ceil(math.log(_CHANCE) / math.log(loss)) if 0 < loss < 1 else _TRIES_MIN
    return min(max(needed, _TRIES_MIN), _TRIES_MAX)


def climb(rungs: list[int], passes: Callable[[int], bool]) -> tuple[int | None, int | None]:
    """Return the largest size that passes and the smallest size that does not, found by stepping up, then by
    bisection."""
    passed: int | None = None
    for size in rungs:
        if passes(size):
            passed = size
            continue
        lost = size
        for _ in range(_BISECTIONS if passed is not None else 0):
            middle = ((passed or 0) + lost) // 2
            if middle == passed:
                break
            if passes(middle):
                passed = middle
            else:
                lost = middle
        return passed, lost
    return passed, None


def _dont_fragment(kernel: socket.socket) -> None:
    """Forbid fragmentation where the system allows it. Otherwise large datagrams would arrive in fragments."""
    level, option = _MTU_DISCOVER[kernel.family]
    with contextlib.suppress(OSError):
        kernel.setsockopt(level, option, _MTU_DISCOVER_PROBE)


def percentile(values: list[float], part: float) -> float:
    """Return a percentile of a non-empty list."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def all_times(listening: ProbedListener) -> Iterator[float]:
    for series in listening.series.values():
        yield from series.times_ms
