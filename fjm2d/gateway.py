"""The gateway on an asyncio loop: opens and closes its parts, and does at intervals what need not be done at once."""

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Mapping
from random import Random, SystemRandom
from typing import Final

from fjm2.base.logs import Log

from .config import GatewayConfig, GroupConfig
from .forwarding.election import Election, Other
from .forwarding.forwarder import Forwarder
from .forwarding.interest import STATUS_S
from .keys import KeyPair
from .lan.groups import Lan, LanGroup
from .lan.mates import Mates
from .lan.presence_query import PresenceQuery
from .peer_registry import PeerRegistry
from .relay import Relay
from .tunnel import Endpoint, EndpointConfig, Peer
from .tunnel.events import ClockBehind, Event, PathMtuChanged, PathTooNarrow, PeerDown, PeerMoved, PeerUp
from .tunnel.link.path_mtu import MTU_MIN
from .values import show
from .wan import WanSockets

TICK_S: Final = 0.1
"""Interval of tasks that have to be done soon. Several ticks fit into a beacon interval (`INTERVAL_S`, 0.4 s)."""
_SLOW_TICK_S: Final = 1.0
"""Interval of tasks that may be done late: expiry, interfaces, throughput."""
_NARROW_CURE: Final = "give `mtu` in [wan] the longest packet that the path carries, such as 1200, and restart"

log = Log("fjm2d.gateway")


class Gateway:
    """A gateway, from `open` to `close`."""

    def __init__(self, config: GatewayConfig, keys: KeyPair) -> None:
        self.config = config
        self.keys = keys
        self.started_at = self.now()
        self.endpoint = Endpoint(keys, _endpoint_config(config), wall_ns=time.time_ns, random=Random())
        node_id = SystemRandom().randrange(1, 0xFFFFFFFF)
        self.forwarder = Forwarder[Peer](self.endpoint.peers, self._is_same_lan, node_id)
        self._lan = Lan(config.lan, self._settle)
        self.relay = Relay(self.endpoint, self.forwarder, self._lan.groups, self._dispatch)
        self._presence = PresenceQuery(node_id, self._lan.groups)
        self.election = Election(keys.public.id, os.urandom, self.started_at, self._key_of)
        self._mates = Mates(self.election, self.forwarder, self.endpoint, self._lan, self._presence.request)
        self._tick_handle: asyncio.TimerHandle | None = None
        self._slow_at = float("-inf")
        self._is_open = False

    @staticmethod
    def now() -> float:
        """Return the gateway's time in seconds. The loop's own clock may have a resolution of only a millisecond."""
        return time.monotonic()

    @property
    def groups(self) -> Mapping[int, LanGroup]:
        """Groups carried, by hash."""
        return self._lan.groups

    @property
    def kernel_sends_blocked(self) -> int:
        """Number of times that the kernel had no room for a train to a peer."""
        return self.relay.sends_blocked

    def open(self) -> None:
        """Open all sockets and begin. Raise GatewayError, ConfigError or OSError if something prevents that."""
        loop = asyncio.get_running_loop()
        self.wan = WanSockets(self.config.wan.listen)
        self.registry = PeerRegistry(
            self.config, self.keys, self.endpoint, self.wan.families, self.now, self._note_peers
        )
        try:
            self._lan.open_beacons(self._mates.receive)
            self._set_groups(self.config.groups)
        except BaseException:
            self._shut()
            raise
        self._is_open = True
        self.relay.open(self.wan, loop)
        self.registry.configure(self.config)
        self._tick()
        log.info(
            "started",
            name=self.config.shown_name,
            id=self.keys.public.id_text,
            wan=[show(socket.address) for socket in self.wan.sockets],
            groups=[show(group.address) for group in self.groups.values()],
            offload=self.wan.offload,
        )

    async def close(self) -> None:
        """Say goodbye to peers and mates, and close everything."""
        if not self._is_open:
            return
        now = self.now()
        self._mates.say_goodbye(now)
        self.endpoint.close(now)
        self.relay.drain(now)
        self._shut()
        await asyncio.sleep(0)  # lets cancelled lookups end
        log.info("stopped")

    def _shut(self) -> None:
        self._is_open = False
        self.registry.close()
        self.relay.close()
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        self._lan.close()
        self.wan.close()

    def reconfigure(self, config: GatewayConfig) -> tuple[str, ...]:
        """Use another configuration. If settings differ that only a restart can change, return their keys instead."""
        fixed = _fixed_differences(self.config, config)
        if fixed:
            return fixed
        self._set_groups(config.groups)
        self.config = config
        self.registry.configure(config)
        return ()

    def _set_groups(self, groups: tuple[GroupConfig, ...]) -> None:
        self._lan.set_groups(groups, self.relay.receive_multicast, self.relay.receive_unicast)
        self.forwarder.set_groups({group.hash: group.is_always for group in groups})
        self._presence.request()

    def faults(self) -> Iterator[str]:
        """Yield a text for each fault that keeps the gateway from working."""
        if not self._is_open:
            yield "it is closed"
        for group in self.groups.values():
            if group.is_down:
                yield f"the network interface of {show(group.address)} is down"
        for peer in self.endpoint.peers.values():
            if peer.path.is_too_narrow:
                name = peer.name
                yield f"packets of {MTU_MIN} bytes do not get through to {name}: longer ones vanish; {_NARROW_CURE}"
        for other in self.others():
            yield f"another gateway, {other.id:08x} at {other.host}, is on this LAN; {self.registry.advice(other.id)}"

    def wan_failures(self) -> dict[str, int]:
        """Return how often the kernel refused or dropped datagrams on the Internet's side, by reason."""
        return self.wan.failures() if self._is_open else {}

    def others(self) -> list[Other]:
        """Return gateways on this LAN that carry a group of ours although they are no mates."""
        return self._mates.rivals(self.now())

    def _settle(self, began_at: float) -> None:
        self.relay.settle(began_at)

    def _dispatch(self) -> None:
        while (event := self.endpoint.poll_event()) is not None:
            self._handle_event(event)

    def _handle_event(self, event: Event) -> None:
        match event:
            case PeerUp(peer, address):
                log.info("peer_up", peer=peer.name, address=show(address))
                self._presence.request()
                self._note_peers()
            case PeerDown(peer, reason):
                log.warning("peer_down", peer=peer.name, reason=reason)
                self.forwarder.forget_peer(peer.id)
                self._note_peers()
            case PeerMoved(peer, before, address):
                log.info("peer_moved", peer=peer.name, before=show(before), address=show(address))
            case PathMtuChanged(peer, mtu_bytes):
                log.info("path_mtu", peer=peer.name, bytes=mtu_bytes)
            case PathTooNarrow(peer, is_over):
                if is_over:
                    log.info("path_wide_again", peer=peer.name)
                else:
                    log.warning("path_too_narrow", peer=peer.name, bytes=MTU_MIN, do=_NARROW_CURE)
            case ClockBehind(peer, behind_s):
                log.warning("peer_clock_behind", peer=peer.name, seconds=round(behind_s, 1))

    def _note_peers(self) -> None:
        """Act on a change of the peers: of their list, or of their states."""
        now = self.now()
        self.forwarder.note_peers()
        self.election.set_mates(self.registry.mates, now)
        self.election.look(bool(self.endpoint.peers), now)
        self._mates.update(now)
        self.relay.wake()

    def _key_of(self, identity: int) -> bytes | None:
        return self.registry.key_of(identity)

    def _is_same_lan(self, one: int, other: int) -> bool:
        lan = self.registry.lan_of.get(one)
        return lan is not None and lan == self.registry.lan_of.get(other)

    def _tick(self) -> None:
        """Do the tasks that have to be done soon, but not at once. Schedule the next tick."""
        self._tick_handle = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        now = self.now()
        self._mates.tick(now)
        if now - self._slow_at >= _SLOW_TICK_S:
            self._slow_at = now
            self._tick_slowly(now)
        if now - self.relay.status_sent_at >= STATUS_S:
            self.relay.send_status(now)
        if self.forwarder.is_presence_wanted:
            self.forwarder.is_presence_wanted = False
            self._presence.request()
        if self.forwarder.is_forwarder:
            self._presence.poll(now)
        self.relay.settle(now)

    def _tick_slowly(self, now: float) -> None:
        self.forwarder.expire(now)
        self._report_trouble()
        self.registry.tick(now)
        for peer in self.endpoint.peers.values():
            peer.flow.look(peer.stats, now)
        for lan in self._lan.check():
            log.warning("interface_down" if lan.is_down else "interface_up", group=show(lan.address))

    def _report_trouble(self) -> None:
        """Log other gateways and loops on the LAN, each at most once a minute."""
        for other in self.others():
            about = f"{other.id:08x}"
            log.seldom(
                logging.ERROR, "another_gateway", None, id=about, address=other.host, do=self.registry.advice(other.id)
            )
        loop, self.forwarder.loop = self.forwarder.loop, None
        if loop is not None and loop.group in self.groups:
            group = show(self.groups[loop.group].address)
            log.seldom(logging.WARNING, "loop", None, group=group, node=f"{loop.node:08x}", heard_from=loop.place)


def _endpoint_config(config: GatewayConfig) -> EndpointConfig:
    wan = config.wan
    return EndpointConfig(
        keepalive_s=wan.keepalive_s, mtu_bytes=wan.mtu, mtu_max_bytes=wan.mtu_max, uplink_bps=wan.uplink
    )


def _fixed_differences(old: GatewayConfig, new: GatewayConfig) -> tuple[str, ...]:
    """Return the keys that differ and that only a restart can change."""
    pairs = {
        "key_file": (old.key_file, new.key_file),
        "wan.listen": (old.wan.listen, new.wan.listen),
        "wan.mtu": (old.wan.mtu, new.wan.mtu),
        "wan.mtu_max": (old.wan.mtu_max, new.wan.mtu_max),
        "wan.keepalive_s": (old.wan.keepalive_s, new.wan.keepalive_s),
        "wan.queue_bytes": (old.wan.queue_bytes, new.wan.queue_bytes),
        "wan.uplink": (old.wan.uplink, new.wan.uplink),
        "lan.interface": (old.lan.interface, new.lan.interface),
        "lan.ttl": (old.lan.ttl, new.lan.ttl),
        "lan.beacon": (old.lan.beacon, new.lan.beacon),
    }
    return tuple(key for key, (before, after) in pairs.items() if before != after)
