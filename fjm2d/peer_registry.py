"""Registry of the gateways that may connect: applies configuration and node list to the tunnel, and resolves names."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fjm2.base.logs import Log
from fjm2.errors import ConfigError
from fjm2.norm import Address

from .config import PEERS_MAX, GatewayConfig
from .keys import KeyPair, PublicKey
from .roster import Member, sides_of
from .tunnel import Endpoint, PeerConfig
from .values import Rate, show
from .wan import addresses_of

_RESOLVE_S: Final = 60.0
"""Interval of lookups for a gateway that is not connected. Its address may have changed."""
_BEACON_LABEL: Final = b"fjm2d beacon"
log = Log("fjm2d.peers")


class PeerRegistry:
    """The gateways that may connect, from the configuration and from the node list."""

    def __init__(
        self,
        config: GatewayConfig,
        keys: KeyPair,
        endpoint: Endpoint,
        families: frozenset[int],
        clock: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        self.mates: dict[int, bytes] = {}
        """Keys for the beacons of mates with our LAN label, by the mate's id."""
        self.lan_of: dict[int, str] = {}
        """LAN labels of the peers that have one, by id."""
        self._config = config
        self._keys = keys
        self._endpoint = endpoint
        self._families = families
        self._clock = clock
        self._on_change = on_change
        self._listed: Sequence[Member] = ()
        self._members: dict[int, Member] = {}
        self._beacon_keys: dict[int, tuple[PublicKey, bytes]] = {}
        self._lookups: dict[int, asyncio.Task[None]] = {}
        self._looked_at = clock()

    def configure(self, config: GatewayConfig) -> None:
        """Apply a new configuration to the peers and mates."""
        self._config = config
        self._apply()

    def list_members(self, members: Iterable[Member]) -> None:
        """Apply a new node list to the peers and mates."""
        self._listed = tuple(members)
        self._apply()

    def tick(self, now: float) -> None:
        """Look up the names of peers that are not connected, if `_RESOLVE_S` has passed since the last time."""
        if now - self._looked_at >= _RESOLVE_S:
            self._looked_at = now
            for identity, member in self._members.items():
                peer = self._endpoint.peers.get(identity)
                if peer is not None and not peer.is_up:
                    self._look_up(identity, member)

    def close(self) -> None:
        for task in self._lookups.values():
            task.cancel()

    def _apply(self) -> None:
        config, now = self._config, self._clock()
        static = (
            Member(
                public_key=peer.public_key,
                name=peer.name,
                endpoints=peer.endpoints,
                lan=peer.lan,
                rate=peer.rate,
                is_static=True,
            )
            for peer in config.peers
        )
        groups = frozenset(show(group.address) for group in config.groups)
        peers, mates, left_out = sides_of(self._keys.public, config.lan.label, groups, static, self._listed)
        if left_out:
            log.warning("list_too_long", left_out=left_out, peers_max=PEERS_MAX)
        for identity in set(self._endpoint.peers) - set(peers):
            peer = self._endpoint.peers[identity]
            log.info("peer_removed", peer=peer.name, id=f"{identity:08x}")
            self._endpoint.remove_peer(peer, now)
        self._beacon_keys = {one: key for one, key in self._beacon_keys.items() if one in peers or one in mates}
        keys = {identity: self._key(member) for identity, member in mates.items()}
        self.mates = {identity: key for identity, key in keys.items() if key}
        self.lan_of = {identity: member.lan for identity, member in peers.items() if member.lan}
        before, self._members = self._members, {}
        for identity, member in peers.items():
            if self._put(identity, member, before.get(identity), now):
                self._members[identity] = member
        self._on_change()

    def _put(self, identity: int, member: Member, before: Member | None, now: float) -> bool:
        rate = member.rate or self._config.wan.rate
        peer = self._endpoint.peers.get(identity)
        if peer is not None and peer.config.public_key != member.public_key:
            log.error("peer_refused", peer=member.name, problem="another peer has the same id")
            return False
        if peer is None:
            try:
                peer = self._endpoint.add_peer(self._peer_config(member, rate), now)
            except ConfigError as error:
                log.error("peer_refused", peer=member.name, problem=str(error))
                return False
            log.info("peer_added", peer=peer.name, id=f"{identity:08x}", static=member.is_static)
        peer.name = member.name or member.public_key.id_text
        if (peer.config.rate_bps, peer.config.is_measured) != (rate.bps, rate.is_measured):
            peer.set_rate(rate.bps, rate.is_measured, now)
            peer.config = replace(peer.config, rate_bps=rate.bps, is_measured=rate.is_measured)
        if before is None or before.endpoints != member.endpoints:
            self._look_up(identity, member)
        return True

    def _peer_config(self, member: Member, rate: Rate) -> PeerConfig:
        return PeerConfig(
            public_key=member.public_key,
            name=member.name,
            rate_bps=rate.bps,
            is_measured=rate.is_measured,
            queue_bytes=self._config.wan.queue_bytes,
        )

    def key_of(self, identity: int) -> bytes | None:
        """Return the key for the beacons of a peer that may be on this LAN.

        Return None for a gateway that is no peer, that has another LAN label, or that has a weak key.
        """
        member = self._members.get(identity)
        if member is None or (member.lan and self._config.lan.label):
            return None
        return self._key(member) or None

    def advice(self, identity: int) -> str:
        """Return advice for people on a gateway that is on this LAN, but is no mate."""
        if identity == self._keys.public.id:
            return "it has this gateway's key: give it one of its own"
        if identity in self._members:
            label, own = self.lan_of.get(identity, ""), self._config.lan.label
            if label and own:
                return f"its label is {label!r}, not {own!r}: give both the same"
            return "its key is weak, as it gives everybody the same secret: give it another one"
        return "make each a [[peer]] of the other, or list both, or let them carry different groups"

    def _key(self, member: Member) -> bytes:
        """Return the key for a gateway's beacons; empty if no secret can be derived from its public key."""
        known, key = self._beacon_keys.get(member.public_key.id, (None, b""))
        if known != member.public_key:
            key = self._made_key(member)
            self._beacon_keys[member.public_key.id] = member.public_key, key
        return key

    def _made_key(self, member: Member) -> bytes:
        try:
            secret = self._keys.exchange(member.public_key)
        except ValueError:
            log.error("mate_refused", mate=member.name, problem="its key is weak: it gives everybody the same secret")
            return b""
        return HKDF(hashes.SHA256(), 32, salt=None, info=_BEACON_LABEL).derive(secret)

    def _look_up(self, identity: int, member: Member) -> None:
        running = self._lookups.pop(identity, None)
        if running is not None:
            running.cancel()
        if all(endpoint.family for endpoint in member.endpoints):
            self._found(identity, [(one.host, one.port) for one in member.endpoints if one.family in self._families])
            return
        task = asyncio.get_running_loop().create_task(self._resolve(identity, member))
        self._lookups[identity] = task
        task.add_done_callback(lambda done: self._forget_lookup(identity, done))

    def _forget_lookup(self, identity: int, task: asyncio.Task[None]) -> None:
        if self._lookups.get(identity) is task:
            del self._lookups[identity]

    async def _resolve(self, identity: int, member: Member) -> None:
        addresses: list[Address] = []
        for endpoint in member.endpoints:
            found = await addresses_of(endpoint, self._families)
            if not found:
                log.warning("peer_not_resolved", peer=member.name, endpoint=str(endpoint))
            addresses += found
        self._found(identity, addresses)
        self._on_change()

    def _found(self, identity: int, addresses: Iterable[Address]) -> None:
        peer = self._endpoint.peers.get(identity)
        if peer is not None:
            peer.set_addresses(tuple(dict.fromkeys(addresses)), self._clock())
