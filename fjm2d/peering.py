"""Keeps the tunnel's peers, and the mates of this LAN, as the roster has them; looks up where they are."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fjm2.errors import ConfigError
from fjm2.norm import Address

from .config import GatewayConfig
from .keys import KeyPair
from .logs import Log
from .reading import Rate, show
from .roster import Member, sides_of
from .tunnel import Endpoint, PeerConfig
from .wan import addresses_of

_RESOLVE_S: Final = 60.0
"""Names are looked up so often, for as long as their gateway is not connected."""
_BEACON_LABEL: Final = b"fjm2d beacon"
log = Log("peers")


class Peering:
    """Who may connect. Changes come from the configuration and from the node list."""

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
        """Key for beacons, by id."""
        self.lan_of: dict[int, str] = {}
        """Label of each peer's LAN, where it has one."""
        self._config = config
        self._keys = keys
        self._endpoint = endpoint
        self._families = families
        self._clock = clock
        self._on_change = on_change
        self._listed: Sequence[Member] = ()
        self._members: dict[int, Member] = {}
        self._mate_keys: dict[int, bytes] = {}
        self._lookups: dict[int, asyncio.Task[None]] = {}
        self._looked_at = clock()

    def configure(self, config: GatewayConfig) -> None:
        """Another configuration."""
        self._config = config
        self._apply()

    def list_members(self, members: Iterable[Member]) -> None:
        """Another node list."""
        self._listed = tuple(members)
        self._apply()

    def tick(self, now: float) -> None:
        """Look up again where those are that are not connected."""
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
        peers, mates = sides_of(self._keys.public, config.lan.label, groups, static, self._listed)
        for identity in set(self._endpoint.peers) - set(peers):
            peer = self._endpoint.peers[identity]
            log.info("peer_removed", peer=peer.name, id=f"{identity:08x}")
            self._endpoint.remove_peer(peer, now)
        self._mate_keys = {identity: self._mate_keys.get(identity) or self._key(m) for identity, m in mates.items()}
        self.mates = {identity: key for identity, key in self._mate_keys.items() if key}
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

    def _key(self, member: Member) -> bytes:
        try:
            secret = self._keys.exchange(member.public_key)
        except ValueError:
            log.error("mate_refused", mate=member.name, problem="its key gives everybody the same secret")
            return b""
        return HKDF(hashes.SHA256(), 32, salt=None, info=_BEACON_LABEL).derive(secret)

    # Addresses.

    def _look_up(self, identity: int, member: Member) -> None:
        running = self._lookups.pop(identity, None)
        if running is not None:
            running.cancel()
        task = asyncio.get_running_loop().create_task(self._resolve(identity, member))
        self._lookups[identity] = task
        task.add_done_callback(lambda done: self._forget_lookup(identity, done))

    def _forget_lookup(self, identity: int, task: asyncio.Task[None]) -> None:
        if self._lookups.get(identity) is task:
            del self._lookups[identity]

    async def _resolve(self, identity: int, member: Member) -> None:
        addresses: dict[Address, None] = {}
        for endpoint in member.endpoints:
            found = await addresses_of(endpoint, self._families)
            if not found:
                log.warning("peer_not_resolved", peer=member.name, endpoint=str(endpoint))
            addresses.update(dict.fromkeys(found))
        peer = self._endpoint.peers.get(identity)
        if peer is not None:
            peer.set_addresses(tuple(addresses), self._clock())
            self._on_change()
