"""The cost of a train, and of a single datagram, in a gateway: sealing, opening, and the whole way without sockets."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from statistics import median

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from fjm2.norm import Address, Train
from fjm2d.forwarding.forwarder import Forwarder
from fjm2d.keys import KeyPair
from fjm2d.tunnel import OVERHEAD_BYTES, Drop, Endpoint, EndpointConfig, Kind, Peer, PeerConfig
from fjm2d.tunnel.session import Session

from .wire import stamped_train

SEGMENTS = 44
"""Number of datagrams that fill a train after they are sealed."""
_TURNS = 300
"""Repetitions in one measurement, which take some hundredths of a second."""
_GROUP = 7
_LEFT: Address = ("192.0.2.1", 5741)
_RIGHT: Address = ("192.0.2.2", 5741)
_SENDER: Address = ("10.0.0.1", 40_000)
_WINDOW_BYTES = 1 << 17

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TunnelCost:
    """Cost of one step in a gateway, in microseconds per train and per datagram."""

    step: str
    us: float
    us_a_datagram: float


def run(repeat: int = 5) -> list[TunnelCost]:
    """Return the median of `repeat` measurements of each step."""
    buffer, segment_bytes = stamped_train(SEGMENTS)
    lone = buffer[:segment_bytes]
    costs = [_cost(f"the cipher alone, {SEGMENTS} datagrams", SEGMENTS, _cipher(buffer, segment_bytes), repeat)]
    for name, data in ((f"a train of {SEGMENTS}", buffer), ("a lone datagram", lone)):
        count = data.size // segment_bytes
        costs += [
            _cost(f"seal {name}", count, _sealing(data, segment_bytes), repeat),
            _cost(f"open {name}", count, _opening(data, segment_bytes), repeat),
            _cost(f"forward {name} from LAN to peer", count, _outward(data, segment_bytes), repeat),
            _cost(f"forward {name} from peer to LAN", count, _inward(data, segment_bytes), repeat),
        ]
    return costs


Step = Callable[[], float]
"""Function that runs a step once and returns the seconds that it took."""


def _cost(step: str, count: int, once: Step, repeat: int) -> TunnelCost:
    once()
    us = median(sum(once() for _ in range(_TURNS)) / _TURNS * 1e6 for _ in range(repeat))
    return TunnelCost(step, us, us / count)


def _cipher(data: Bytes, segment_bytes: int) -> Step:
    """Return the step of the least possible cost: it calls the cipher for each datagram, with slices made before."""
    seal, header = AESGCM(os.urandom(32)).encrypt_into, os.urandom(12)
    plain = [data.data[start : start + segment_bytes] for start in range(0, data.size, segment_bytes)]
    room = memoryview(bytearray(segment_bytes + 16))

    def once() -> float:
        start = time.perf_counter()
        for content in plain:
            seal(header, content, None, room)
        return time.perf_counter() - start

    return once


def _sessions() -> tuple[Session, Session]:
    one, two = os.urandom(32), os.urandom(32)
    return Session(one, two, 1, 2), Session(two, one, 2, 1)


def _sealing(data: Bytes, segment_bytes: int) -> Step:
    here, _ = _sessions()

    def once() -> float:
        start = time.perf_counter()
        here.seal_train(data, segment_bytes, Kind.NORM, _GROUP)
        return time.perf_counter() - start

    return once


def _opening(data: Bytes, segment_bytes: int) -> Step:
    here, there = _sessions()
    box = _Box()
    drops: Counter[Drop] = Counter()

    def once() -> float:
        train = box.put(here.seal_train(data, segment_bytes, Kind.NORM, _GROUP))
        start = time.perf_counter()
        opened = there.open_train(train, segment_bytes + OVERHEAD_BYTES, drops)
        taken = time.perf_counter() - start
        assert opened is not None
        return taken

    return once


def _outward(data: Bytes, segment_bytes: int) -> Step:
    gateways = _Gateways()

    def once() -> float:
        start = time.perf_counter()
        train = gateways.send(data, segment_bytes)
        taken = time.perf_counter() - start
        gateways.receive(train)
        return taken

    return once


def _inward(data: Bytes, segment_bytes: int) -> Step:
    gateways = _Gateways()
    box = _Box()

    def once() -> float:
        train = gateways.send(data, segment_bytes)
        train = Train(box.put(train.data), train.segment_bytes, train.address)
        start = time.perf_counter()
        gateways.receive(train)
        return time.perf_counter() - start

    return once


class _Box:
    """Buffer in which trains arrive, like that of a socket."""

    def __init__(self) -> None:
        self._room = np.zeros(_WINDOW_BYTES, np.uint8)

    def put(self, train: Bytes) -> Bytes:
        self._room[: train.size] = train
        return self._room[: train.size]


class _Gateways:
    """Two connected gateways."""

    def __init__(self) -> None:
        self._now = time.monotonic()
        keys = KeyPair(os.urandom(32)), KeyPair(os.urandom(32))
        self._left, self._right = (
            Endpoint(pair, EndpointConfig(mtu_bytes=1500), wall_ns=time.time_ns, random=Random(1)) for pair in keys
        )
        self._peer = self._left.add_peer(PeerConfig(public_key=keys[1].public, addresses=(_RIGHT,)), self._now)
        self._right.add_peer(PeerConfig(public_key=keys[0].public), self._now)
        self._exchange()
        self._out, self._in = self._forwarder(self._left), self._forwarder(self._right)

    def _exchange(self) -> None:
        """Exchange handshakes until the gateways have nothing to send."""
        waiting = True
        while waiting:
            waiting = False
            for one, other, address in ((self._left, self._right, _LEFT), (self._right, self._left, _RIGHT)):
                while (train := one.poll_train(self._now)) is not None:
                    other.receive_train(Train(train.data.copy(), train.segment_bytes, address), self._now)
                    waiting = True
        assert self._peer.is_up

    @staticmethod
    def _forwarder(endpoint: Endpoint) -> Forwarder[Peer]:
        forwarder = Forwarder[Peer](endpoint.peers, lambda _one, _other: False)
        forwarder.set_groups({_GROUP: True})
        forwarder.is_forwarder = True
        for peer in endpoint.peers.values():
            forwarder.peer_interest.note(peer.id, forwarder.status(), time.monotonic())
        return forwarder

    def send(self, data: Bytes, segment_bytes: int) -> Train:
        """Return the train that the left gateway sends to the right gateway for a train of its LAN."""
        (sealed,) = self._sealed(data, segment_bytes)
        return sealed

    def _sealed(self, data: Bytes, segment_bytes: int) -> Iterator[Train]:
        for out in self._out.from_lan(_GROUP, Train(data, segment_bytes, _SENDER), self._now):
            for peer in out.peers:
                train = self._left.pass_through(peer, out.kind, out.group, out.data, out.segment_bytes, self._now)
                assert train is not None
                yield train

    def receive(self, train: Train) -> None:
        """Have the right gateway receive a train and forward it to its LAN."""
        count = 0
        for received in self._right.receive_train(Train(train.data, train.segment_bytes, _LEFT), self._now):
            for inward in self._in.from_wan(received, self._now):
                count += inward.data.size
        assert count
