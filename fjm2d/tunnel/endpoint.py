"""One gateway's tunnel to all its peers, without sockets.

A sealed datagram is assigned to a session by its index, a handshake to a peer by its sender's id and its MAC. Whatever
fits neither is counted and dropped: no datagram of a stranger is ever answered.
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
from ..kinds import Kind
from .config import EndpointConfig, PeerConfig
from .crypto.handshake import Entropy, Pair
from .events import Event, Received
from .link_queue import LinkBucket
from .peer import Peer
from .session import Bytes, common_prefix, count_of, prefixes_of
from .session_owner import SessionOwner
from .shared import Shared
from .wire import (
    CARRIED,
    HOP_LIMIT_MAX,
    INITIATION_BYTES,
    OVERHEAD_BYTES,
    RESPONSE_BYTES,
    SEALED,
    Drop,
    Initiation,
    Prefix,
    Response,
)
from .workspace import Workspace

NEVER = math.inf
_MESSAGES_MAX = 4096
"""Maximum number of handshakes and probes kept while the kernel's send buffer is full. Older ones are dropped as
useless."""


class Endpoint:
    """All peers of a gateway, without I/O. Times are monotonic seconds. No received datagram raises an exception.

    After any input, send the trains of `poll_train` until it returns None, handle the events of `poll_event`, and call
    `handle_timeout` at `poll_timeout`.
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
        """Received datagrams that belong to no peer, by reason."""
        self._peers: dict[int, Peer] = {}
        self.peers: Mapping[int, Peer] = MappingProxyType(self._peers)
        """Peers by id."""
        self._indexes: dict[int, SessionOwner] = {}
        self.indexes: Mapping[int, SessionOwner] = MappingProxyType(self._indexes)
        """Peers by the session indexes that their datagrams bear."""
        self._sealing: Iterator[Train] = iter(())
        """The sealed trains of the parcel that is being sent."""
        self._paced_at = NEVER
        """Time at which the rates allow more of the waiting data to be sent."""
        self._shared = Shared(
            config,
            random,
            entropy,
            wall_ns,
            wall_ns(),
            self._indexes,
            deque(maxlen=_MESSAGES_MAX),
            {},
            deque(),
            Workspace(),
            None if config.uplink_bps is None else LinkBucket(config.uplink_bps),
        )

    def add_peer(self, config: PeerConfig, now: float) -> Peer:
        """Accept a peer, and call it if its address is known.

        Raise ConfigError if the key is weak, is our own, or has the id of a known peer.
        """
        key = config.public_key
        if key == self.keys.public:
            raise ConfigError(f"public_key={key.text}: is this gateway's own; expected another gateway's")
        if key.id in self._peers:
            raise ConfigError(
                f"public_key={key.text}: there is already a peer with the id {key.id_text}; remove one of them"
            )
        try:
            pair = Pair(self.keys, key)
        except ValueError:
            raise ConfigError(f"public_key={key.text}: is a weak key, which gives everybody the same secret") from None
        peer = self._peers[key.id] = Peer(pair, config, self._shared, now)
        peer.connect(now)
        return peer

    def remove_peer(self, peer: Peer, now: float) -> None:
        """Say goodbye to a peer, and accept it no more."""
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
        """Queue a train for some peers. It is copied once for all of them.

        Datagrams that find no room in a peer's queue are dropped, and counted in the statistics of that peer.

        `source` identifies the sender: senders share a link fairly. Urgent trains overtake the others.
        """
        if kind not in CARRIED or not 1 <= hop_limit <= HOP_LIMIT_MAX or segment_bytes < 1:
            raise ValueError(
                f"{kind!r}, hop_limit={hop_limit}, segment_bytes={segment_bytes}: expected a kind of CARRIED, "
                f"hop_limit 1 to {HOP_LIMIT_MAX}, segment_bytes > 0"
            )
        content = np.array(np.frombuffer(data, np.uint8))
        if not content.size:
            return
        segment_bytes = min(segment_bytes, content.size)
        for peer in peers:
            peer.outbound.offer(kind, group, content, segment_bytes, now, source, is_urgent, hop_limit)

    def pass_through(
        self, peer: Peer, kind: Kind, group: int, data: Bytes, segment_bytes: int, now: float, *, hop_limit: int = 1
    ) -> Train | None:
        """Return a train sealed without a copy, if it may go to a peer at once; otherwise None: use `send` then.

        The result is borrowed until the next call. If the kernel has no room for the train, call again only after it
        is sent.
        """
        if self._shared.busy or self._shared.messages:
            return None
        return peer.outbound.pass_through(kind, group, data, min(segment_bytes, data.size), now, hop_limit)

    def note_too_long(self, address: Address, datagram_bytes: int, now: float) -> None:
        """Record that the kernel refused a UDP payload of this length (EMSGSIZE)."""
        for peer in self._peers.values():
            if peer.path.address == address:
                peer.note_too_long(datagram_bytes, now)

    def close(self, now: float) -> None:
        """Say goodbye to all peers. `poll_train` returns what is still to be sent."""
        for peer in list(self._peers.values()):
            self.remove_peer(peer, now)
        self._sealing = iter(())

    def receive_train(self, train: Train, now: float) -> list[Received]:
        """Open a train from the Internet, and return its contents for the LAN, borrowed until the next call."""
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
        return self._receive_mixed(data, segment_bytes, whole, train.address, now)

    def _receive_mixed(
        self, data: Bytes, segment_bytes: int, whole: int, address: Address, now: float
    ) -> list[Received]:
        """Open a train whose datagrams have different prefixes. Each run of equal prefixes is opened by itself."""
        prefixes = prefixes_of(data, segment_bytes)
        received: list[Received] = []
        starts = [0, *(np.flatnonzero(prefixes[1:] != prefixes[:-1]) + 1).tolist(), whole]
        for start, end in pairwise(starts):
            run = data[start * segment_bytes : end * segment_bytes]
            # The next run is opened into the same memory, so copy what the earlier ones gave.
            received = [item._replace(data=item.data.copy()) for item in received]
            received += self._receive_run(int(prefixes[start]), run, segment_bytes, address, now)
        return received

    def handle_timeout(self, now: float) -> None:
        """Let each peer do what is due. Call this at the time that `poll_timeout` returns."""
        for peer in list(self._peers.values()):
            if now >= peer.wake_at:
                peer.handle_timeout(now)

    def poll_train(self, now: float) -> Train | None:
        """Return the next train to send, borrowed until the next call.

        If the kernel has no room for the train, call again only after it is sent.
        """
        messages = self._shared.messages
        if messages:
            address, message = messages.popleft()
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
        """Return the next event; None if there are no more."""
        events = self._shared.events
        return events.popleft() if events else None

    def poll_timeout(self) -> float:
        """Return the time at which to call `handle_timeout`, and `poll_train` for paced data; infinite for never."""
        at = min((peer.wake_at for peer in self._peers.values()), default=NEVER)
        return min(at, self._paced_at)

    def _next_trains(self, now: float) -> Iterator[Train] | None:
        """Return the sealed trains of the first link in turn whose rate allows them; None if no link may send.

        A link that waits for the uplink keeps its turn: otherwise shorter trains of other links would use it up.
        """
        busy = self._shared.busy
        self._paced_at = NEVER
        for link in list(busy):
            trains = link.poll(now)
            if trains is not None:
                del busy[link]
                busy[link] = None  # to the end
                return trains
            self._paced_at = min(self._paced_at, link.queue.ready_at(now))
            if link.queue.waits_for_others(now):
                break
        return None

    def _receive_run(
        self, number: int, data: Bytes, segment_bytes: int, address: Address, now: float
    ) -> list[Received]:
        """Open datagrams that all begin with the same seven bytes, which `number` holds."""
        prefix = Prefix.of_number(number)
        count = -(-data.size // segment_bytes)
        if prefix is not None and prefix.kind in SEALED:
            peer = self._indexes.get(prefix.index)
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
        else:
            peer.receive_initiation(initiation, message, address, now)

    def _receive_response(self, message: bytes, address: Address, now: float) -> None:
        response = Response.decode(message)
        if response is None:
            self.drops[Drop.MALFORMED] += 1
            return
        peer = self._indexes.get(response.receiver_index)
        if peer is None:
            self.drops[Drop.UNKNOWN_INDEX] += 1
        else:
            peer.receive_response(response, message, address, now)
