"""One gateway's side of the Internet: all its peers behind one UDP socket, without the socket.

What comes is laid to a session by its index, handshakes to a peer by their sender's id and MAC. What can't be is
counted and forgotten: there is no datagram that a stranger gets an answer to.
"""

import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from random import Random
from types import MappingProxyType

import numpy as np

from fjm2.errors import ConfigError
from fjm2.norm import Address, Train

from ..keys import KeyPair
from .config import EndpointConfig, PeerConfig
from .crypto.handshake import Entropy, Pair
from .events import Event
from .link_queue import LinkBucket
from .peer import Peer, Received, Surroundings
from .session import Bytes, common_prefix, count_of, prefixes_of
from .wire import (
    CARRIED,
    HOP_LIMIT_MAX,
    INITIATION_BYTES,
    OVERHEAD_BYTES,
    RESPONSE_BYTES,
    SEALED,
    Drop,
    Initiation,
    Kind,
    Prefix,
    Response,
)
from .workspace import Workspace

NEVER = math.inf
_MESSAGES_MAX = 4096
"""Handshakes and probes that wait for the kernel; older ones are of no use any more."""


class Endpoint:
    """All peers of a gateway. Times are monotonic seconds; nothing here waits, and nothing received is raised.

    After any input send what `poll_train` gives until it gives None, take what `poll_event` gives, and come back at
    `poll_timeout`.
    """

    def __init__(
        self,
        keys: KeyPair,
        config: EndpointConfig,
        *,
        wall_ns: Callable[[], int],
        random: Random,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.keys = keys
        self.config = config
        self.drops: Counter[Drop] = Counter()
        """What came and could not be laid to a peer."""
        self._peers: dict[int, Peer] = {}
        self.peers: Mapping[int, Peer] = MappingProxyType(self._peers)
        """By id."""
        uplink = None if config.uplink_bps is None else LinkBucket(config.uplink_bps)
        self._sealing: Iterator[Train] = iter(())
        self._paced_at = NEVER
        """When the rates allow more of what waits."""
        self._around = Surroundings(
            config,
            random,
            entropy,
            wall_ns,
            wall_ns(),
            {},
            deque(maxlen=_MESSAGES_MAX),
            {},
            deque(),
            Workspace(),
            uplink,
        )

    # Commands.

    def add_peer(self, config: PeerConfig, now: float) -> Peer:
        """Let a gateway in, and call it if its address is known. Raises ConfigError for our own key, and one twice."""
        key = config.public_key
        if key == self.keys.public:
            raise ConfigError(f"public_key={key.text}: is this gateway's own; expected another gateway's")
        if key.id in self._peers:
            raise ConfigError(f"public_key={key.text}: there is a peer with the id {key.id_text} already")
        try:
            pair = Pair(self.keys, key)
        except ValueError:
            raise ConfigError(f"public_key={key.text}: is a key that gives everybody the same secret") from None
        peer = self._peers[key.id] = Peer(pair, config, self._around, now)
        peer.connect(now)
        return peer

    def remove_peer(self, peer: Peer, now: float) -> None:
        """Say goodbye to it, and let it in no more."""
        if self._peers.pop(peer.id, None) is not None:
            peer.close("removed", now)

    def send(
        self,
        peers: Iterable[Peer],
        kind: Kind,
        group: int,
        data: Bytes | bytes | bytearray | memoryview,
        segment_bytes: int,
        now: float,
        *,
        source: int = 0,
        is_urgent: bool = False,
        hop_limit: int = 1,
    ) -> None:
        """Let a train wait for the links to some peers. It is copied, once; what finds no room is counted at the peer.

        `source` is whoever sent it: senders share a link fairly. What is urgent overtakes what is not.
        """
        if kind not in CARRIED or not 1 <= hop_limit <= HOP_LIMIT_MAX or segment_bytes < 1:
            raise ValueError(
                f"{kind!r}, hop_limit={hop_limit}, segment_bytes={segment_bytes}: expected a kind of CARRIED"
            )
        content = np.array(np.frombuffer(data, np.uint8))
        if not content.size:
            return
        segment_bytes = min(segment_bytes, content.size)
        for peer in peers:
            peer.offer(kind, group, content, segment_bytes, now, source, is_urgent, hop_limit)

    def pass_through(
        self, peer: Peer, kind: Kind, group: int, data: Bytes, segment_bytes: int, now: float, *, hop_limit: int = 1
    ) -> Train | None:
        """A train sealed from where it lies, if it may go to a peer this moment and as it is; else None: `send` it.

        Borrowed until the next call. If the kernel is full, keep it and do not call.
        """
        if self._around.busy or self._around.messages:
            return None
        return peer.pass_through(kind, group, data, min(segment_bytes, data.size), now, hop_limit)

    def note_too_long(self, address: Address, datagram_bytes: int, now: float) -> None:
        """The kernel would not send a UDP datagram of this length, its headers not counted (EMSGSIZE)."""
        for peer in self._peers.values():
            if peer.address == address:
                peer.note_too_long(datagram_bytes, now)

    def close(self, now: float) -> None:
        """Say goodbye to all. `poll_train` gives what is still to be sent."""
        for peer in list(self._peers.values()):
            self.remove_peer(peer, now)
        self._sealing = iter(())

    # Inputs.

    def receive_train(self, train: Train, now: float) -> list[Received]:
        """What has come for the LAN. Borrowed until the next call."""
        data, segment_bytes = train.data, train.segment_bytes
        whole = count_of(data.size, segment_bytes)
        if whole < train.count or segment_bytes < OVERHEAD_BYTES:
            self.drops[Drop.MALFORMED] += train.count if segment_bytes < OVERHEAD_BYTES else 1
            if segment_bytes < OVERHEAD_BYTES or not whole:
                return []
            data = data[: whole * segment_bytes]
        if whole == 1:
            return self._receive_run(int.from_bytes(data[:7].tobytes()), data, segment_bytes, train.address, now)
        prefix = common_prefix(data, segment_bytes)
        if prefix is not None:
            return self._receive_run(prefix, data, segment_bytes, train.address, now)
        prefixes = prefixes_of(data, segment_bytes)
        received: list[Received] = []
        starts = [0, *(np.flatnonzero(prefixes[1:] != prefixes[:-1]) + 1).tolist(), whole]
        for start, end in pairwise(starts):
            run = data[start * segment_bytes : end * segment_bytes]
            # The next run is opened where this one lies.
            received = [item._replace(data=item.data.copy()) for item in received]
            received += self._receive_run(int(prefixes[start]), run, segment_bytes, train.address, now)
        return received

    def handle_timeout(self, now: float) -> None:
        """It is later than `poll_timeout` said."""
        for peer in list(self._peers.values()):
            if now >= peer.wake_at:
                peer.handle_timeout(now)

    # Outputs.

    def poll_train(self, now: float) -> Train | None:
        """The next train to be sent; borrowed until the next call. If the kernel is full, keep it and do not call."""
        messages = self._around.messages
        if messages:
            _, address, message = messages.popleft()
            data = np.frombuffer(message, np.uint8)
            return Train(data, data.size, address)
        while True:
            train = next(self._sealing, None)
            if train is not None:
                return train
            trains = self._next_trains(now)
            if trains is None:
                return None
            self._sealing = trains

    def poll_event(self) -> Event | None:
        """What has happened; None when that is all."""
        events = self._around.events
        return events.popleft() if events else None

    def poll_timeout(self) -> float:
        """When to call `handle_timeout`, or `poll_train` for what is paced; infinite for never."""
        at = min((peer.wake_at for peer in self._peers.values()), default=NEVER)
        return min(at, self._paced_at)

    def _next_trains(self, now: float) -> Iterator[Train] | None:
        """Whoever's turn it is and whose rate allows it.

        Who waits for the uplink keeps its turn: shorter trains of others would take all of it for ever.
        """
        busy = self._around.busy
        self._paced_at = NEVER
        for peer in list(busy):
            trains = peer.poll(now)
            if trains is not None:
                del busy[peer]
                busy[peer] = None  # to the end
                return trains
            self._paced_at = min(self._paced_at, peer.queue.ready_at(now))
            if peer.queue.waits_for_others(now):
                break
        return None

    def _receive_run(
        self, number: int, data: Bytes, segment_bytes: int, address: Address, now: float
    ) -> list[Received]:
        """Datagrams whose headers begin alike."""
        prefix = Prefix.of_number(number)
        count = -(-data.size // segment_bytes)
        if prefix is not None and prefix.kind in SEALED:
            peer = self._around.indexes.get(prefix.index)
            if peer is not None:
                return peer.receive_sealed(prefix, data, segment_bytes, address, now)
            self.drops[Drop.UNKNOWN_INDEX] += count
        elif prefix is not None and prefix.kind in (Kind.INITIATION, Kind.RESPONSE):
            for start in range(0, data.size, segment_bytes):
                self._receive_handshake(prefix.kind, data[start : start + segment_bytes].tobytes(), address, now)
        else:
            self.drops[Drop.MALFORMED] += count
        return []

    def _receive_handshake(self, kind: int, message: bytes, address: Address, now: float) -> None:
        if kind == Kind.INITIATION and len(message) == INITIATION_BYTES:
            self._receive_initiation(message, address, now)
        elif kind == Kind.RESPONSE and len(message) == RESPONSE_BYTES:
            self._receive_response(message, address, now)
        else:
            self.drops[Drop.MALFORMED] += 1

    def _receive_initiation(self, message: bytes, address: Address, now: float) -> None:
        initiation = Initiation.decode(message)
        if initiation is None:
            self.drops[Drop.MALFORMED] += 1
            return
        peer = self._peers.get(initiation.sender_id)
        if peer is None:
            self.drops[Drop.UNKNOWN_PEER] += 1
        elif not peer.pair.is_genuine(message):
            peer.stats.drops[Drop.HANDSHAKE_FORGED] += 1
        else:
            peer.receive_initiation(initiation, address, now)

    def _receive_response(self, message: bytes, address: Address, now: float) -> None:
        response = Response.decode(message)
        if response is None:
            self.drops[Drop.MALFORMED] += 1
            return
        peer = self._around.indexes.get(response.receiver_index)
        if peer is None:
            self.drops[Drop.UNKNOWN_INDEX] += 1
        elif not peer.pair.is_genuine(message):
            peer.stats.drops[Drop.HANDSHAKE_FORGED] += 1
        else:
            peer.receive_response(response, address, now)
