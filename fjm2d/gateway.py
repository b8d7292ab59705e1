"""The gateway on an asyncio loop: sockets, one timer for the tunnel, and a tick for all that is slow."""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from random import Random, SystemRandom
from typing import Final

from fjm2.base.logs import Log
from fjm2.base.loop import LoopDriver, SocketReaders, Waitable
from fjm2.bus.presence import Announcement
from fjm2.bus.presence import Flag as PresenceFlag
from fjm2.errors import ConfigError
from fjm2.norm import Address, Train

from .config import GatewayConfig, GroupConfig
from .forwarding.election import Election, Other
from .forwarding.forwarder import Forwarder, Outward
from .forwarding.headers import application
from .forwarding.interest import STATUS_S
from .keys import KeyPair
from .lan import LanGroup, Take
from .peer_registry import Peering
from .tunnel import Endpoint, EndpointConfig, Kind, Peer
from .tunnel.events import ClockBehind, Event, PathMtuChanged, PeerDown, PeerMoved, PeerUp
from .tunnel.wire import GROUP_NONE
from .values import show
from .wan import WanSockets

TRAINS_PER_TURN: Final = 16
"""So many are taken from the Internet before others get their turn."""
_TIMER_MIN_S: Final = 0.001
"""The endpoint goes on naming the deadline of what is due while the kernel is full."""
TICK_S: Final = 0.1
_SLOW_TICK_S: Final = 1.0
_ASK_S: Final = 1.0
"""The LAN is asked who is there no more often."""
_OWN_WORD_BYTES: Final = 1024
_ADVERT: Final = b"FJM2"

log = Log("fjm2d.gateway")


class Gateway:
    """All of it, from `open` to `close`."""

    def __init__(self, config: GatewayConfig, keys: KeyPair) -> None:
        self.config = config
        self.keys = keys
        self.started_at = self.now()
        self.on_advert: Callable[[bytes], None] | None = None
        """Takes what seems to come from the node-list service."""
        self.endpoint = Endpoint(keys, _endpoint_config(config), wall_ns=time.time_ns, random=Random())
        self._node_id = SystemRandom().randrange(1, 0xFFFFFFFF)
        """What our own words on the LAN bear as source."""
        self.forwarder = Forwarder[Peer](self.endpoint.peers, self._is_same_lan, self._node_id)
        self.election = Election(keys.public.id, os.urandom, self.started_at, self._key_of)
        self.groups: dict[int, LanGroup] = {}
        self._beacons: LanGroup | None = None
        self._turns = LoopDriver(
            self.endpoint, self._transmit, self._dispatch, prepare=self._prepare, timer_min_s=_TIMER_MIN_S
        )
        self._tick_handle: asyncio.TimerHandle | None = None
        self._slow_at = self._status_at = self._asked_at = float("-inf")
        self._is_asking = True
        self._questions = 0
        """Asked of the LAN."""
        self._is_closed = True

    @staticmethod
    def now() -> float:
        """The gateway's clock. The loop's own may be a millisecond coarse."""
        return time.monotonic()

    @property
    def kernel_sends_blocked(self) -> int:
        """Times that the kernel was full."""
        return self._turns.sends_blocked

    # Life.

    def open(self) -> None:
        """Open all sockets and begin. GatewayError, ConfigError or OSError tell what is in the way."""
        self._loop = asyncio.get_running_loop()
        self._readers = SocketReaders[Train](self._loop, self._settle, trains_per_turn=TRAINS_PER_TURN)
        self.wan = WanSockets(self.config.wan.listen)
        self.peering = Peering(self.config, self.keys, self.endpoint, self.wan.families, self.now, self._peers_changed)
        try:
            self._beacons = self._open_lan(0, self.config.lan.beacon, self._take_beacon)
            self._set_groups(self.config.groups)
        except BaseException:
            self._shut()
            raise
        self._is_closed = False
        self._turns.open(self._loop)
        for socket in self.wan.sockets:
            self._readers.watch(socket, self._receive_wan)
        self.peering.configure(self.config)
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
        if self._is_closed:
            return
        now = self.now()
        self._say_goodbye(now)
        self.endpoint.close(now)
        for _ in range(TRAINS_PER_TURN * 64):
            train = self.endpoint.poll_train(now)
            if train is None:
                break
            self.wan.send(train)
        self._shut()
        await asyncio.sleep(0)  # cancelled lookups end
        log.info("stopped")

    def _shut(self) -> None:
        self._is_closed = True
        self.peering.close()
        self._turns.close()
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        for group in (*self.groups.values(), *([self._beacons] if self._beacons else [])):
            group.close()
        self._readers.clear()
        self.wan.close()

    def reconfigure(self, config: GatewayConfig) -> tuple[str, ...]:
        """Go on with another configuration. The keys of what only a restart can change, which stays as it was."""
        fixed = _fixed_differences(self.config, config)
        if fixed:
            return fixed
        self._set_groups(config.groups)
        self.config = config
        self.peering.configure(config)
        return ()

    def faults(self) -> Iterator[str]:
        """What keeps it from its work, for people."""
        if self._is_closed:
            yield "it is closed"
        for group in self.groups.values():
            if group.is_down:
                yield f"the network interface of {show(group.address)} is down"
        for other in self.others():
            yield f"another gateway, {other.id:08x} at {other.host}, is on this LAN; {self.peering.advice(other.id)}"

    def wan_failures(self) -> dict[str, int]:
        """What the kernel did not take from, or give to, the Internet's side, by reason."""
        return {} if self._is_closed else self.wan.failures()

    def others(self) -> list[Other]:
        """Those that carry a group of ours beside us."""
        return [other for other in self.election.others(self.now()) if other.groups & self.groups.keys()]

    # The LAN.

    def _open_lan(self, group: int, address: Address, take: Take) -> LanGroup:
        lan = self.config.lan
        return LanGroup(group, address, lan.interface, lan.ttl, take, self._take_unicast, self._settle)

    def _set_groups(self, groups: tuple[GroupConfig, ...]) -> None:
        """Open what is new first: if that fails, all stays as it was."""
        opened: dict[int, LanGroup] = {}
        try:
            for group in groups:
                if group.hash not in self.groups:
                    opened[group.hash] = self._open_lan(group.hash, group.address, self._take_lan)
        except (ConfigError, OSError):
            for lan in opened.values():
                lan.close()
            raise
        wanted = {group.hash for group in groups}
        for gone in set(self.groups) - wanted:
            self.groups.pop(gone).close()
        self.groups.update(opened)
        self.forwarder.set_groups({group.hash: group.is_always for group in groups})
        self._is_asking = True

    def _take_lan(self, lan: LanGroup, train: Train, now: float) -> None:
        for outward in self.forwarder.from_lan(lan.hash, train, now):
            self._send_out(outward, now)

    def _take_unicast(self, lan: LanGroup, train: Train, now: float) -> None:
        if lan.hash == GROUP_NONE:
            return
        for outward in self.forwarder.from_receivers(lan.hash, train, now):
            self._send_out(outward, now)

    def _send_out(self, outward: Outward[Peer], now: float) -> None:
        """From where it lies, if nothing is in the way. Otherwise it is copied and waits."""
        waiting = [peer for peer in outward.peers if not self._pass_through(peer, outward, now)]
        if not waiting:
            return
        self.endpoint.send(
            waiting,
            outward.kind,
            outward.group,
            outward.data,
            outward.segment_bytes,
            now,
            source=outward.source,
            is_urgent=outward.is_feedback,
        )

    def _pass_through(self, peer: Peer, outward: Outward[Peer], now: float) -> bool:
        if self._turns.held is not None:
            return False
        train = self.endpoint.pass_through(peer, outward.kind, outward.group, outward.data, outward.segment_bytes, now)
        if train is None:
            return False
        full = self._transmit(train, now)
        if full is not None:
            self._turns.hold(train, full)
        return True

    def _take_beacon(self, _: LanGroup, train: Train, now: float) -> None:
        for start in range(0, train.data.size, train.segment_bytes):
            beacon = train.data[start : start + train.segment_bytes].tobytes()
            self.election.receive(beacon, train.address, now)
        self._elect(now)

    def _elect(self, now: float) -> None:
        """Act on what the election has come to, and have our say in it."""
        here = self.election.here(now)
        self.forwarder.note_same_lan(here)
        self.election.is_usable = any(peer.is_up and peer.id not in here for peer in self.endpoint.peers.values())
        for group in self.groups.values():
            mates = self.election.addresses(group.hash)
            if group.ignore(mates):
                self.forwarder.note_mates(group.hash, mates)
        if self.forwarder.is_forwarder != self.election.is_forwarder:
            self.forwarder.is_forwarder = self.election.is_forwarder
            self._is_asking = self._is_asking or self.election.is_forwarder
            event = "forwarding_began" if self.election.is_forwarder else "forwarding_ended"
            log.info(event, mates=[f"{mate:08x}" for mate in self.election.live_mates(now)])
        beacon = self.election.poll_beacon(self._ports(), now)
        if beacon is not None:
            self._say(self._beacons, beacon)

    def _ports(self) -> list[tuple[int, int]]:
        return [(group.hash, group.own_address[1]) for group in self.groups.values()]

    def _say_goodbye(self, now: float) -> None:
        beacon = self.election.goodbye(self._ports(), now)
        if beacon is not None:
            self._say(self._beacons, beacon)

    @staticmethod
    def _say(lan: LanGroup | None, content: bytes) -> None:
        if lan is not None:
            lan.send_bytes(content)

    def _ask_lan(self, now: float) -> None:
        """Let all connections on the LAN announce themselves: a goodbye of nobody that asks who is there."""
        self._is_asking = False
        self._asked_at = now
        flags = PresenceFlag.ASKS | PresenceFlag.GOODBYE
        content = Announcement(self._node_id, flags=flags).encode(_OWN_WORD_BYTES)
        for group in self.groups.values():
            self._say(group, application(self._node_id, self._questions, content))
        self._questions += 1

    # The Internet.

    def _receive_wan(self, train: Train, now: float) -> None:
        if train.segment_bytes == train.data.size == 24 and train.data[:4].tobytes() == _ADVERT:
            if self.on_advert is not None:
                self.on_advert(train.data.tobytes())
            return
        for received in self.endpoint.receive_train(train, now):
            for inward in self.forwarder.from_wan(received, now):
                self.groups[inward.group].send(inward.data, inward.segment_bytes, inward.address)

    def _send_status(self, now: float) -> None:
        self._status_at = now
        peers = [peer for peer in self.endpoint.peers.values() if peer.is_up]
        content = self.forwarder.status().encode()
        self.endpoint.send(peers, Kind.CONTROL, GROUP_NONE, content, len(content), now, is_urgent=True)

    # Turns.

    def _settle(self, _began_at: float) -> None:
        """End a turn that read trains, at the time it is now: handling them may have taken milliseconds."""
        self._turns.settle(self.now())

    def _prepare(self, now: float) -> None:
        if self.forwarder.is_status_due:
            self._send_status(now)

    def _transmit(self, train: Train, now: float) -> Waitable | None:
        """Give a train to the kernel. Returns the socket to wait for if the kernel is full."""
        full = self.wan.send(train)
        if self.wan.take_too_long():
            self.endpoint.note_too_long(train.address, train.segment_bytes, now)
        return full

    def _dispatch(self) -> None:
        while (event := self.endpoint.poll_event()) is not None:
            self._take_event(event)

    def _take_event(self, event: Event) -> None:
        match event:
            case PeerUp(peer, address):
                log.info("peer_up", peer=peer.name, address=show(address))
                self._is_asking = True
                self._peers_changed()
            case PeerDown(peer, reason):
                log.warning("peer_down", peer=peer.name, reason=reason)
                self.forwarder.forget_peer(peer.id)
                self._peers_changed()
            case PeerMoved(peer, before, address):
                log.info("peer_moved", peer=peer.name, before=show(before), address=show(address))
            case PathMtuChanged(peer, mtu_bytes):
                log.info("path_mtu", peer=peer.name, bytes=mtu_bytes)
            case ClockBehind(peer, behind_s):
                log.warning("peer_clock_behind", peer=peer.name, seconds=round(behind_s, 1))

    def _peers_changed(self) -> None:
        now = self.now()
        self.forwarder.note_peers()
        self.election.set_mates(self.peering.mates, now)
        self.election.look(bool(self.endpoint.peers), now)
        self._elect(now)
        self._turns.wake()

    def _key_of(self, identity: int) -> bytes | None:
        return self.peering.key_of(identity)

    def _is_same_lan(self, one: int, other: int) -> bool:
        lan = self.peering.lan_of.get(one)
        return lan is not None and lan == self.peering.lan_of.get(other)

    def _tick(self) -> None:
        """What need not be done at once."""
        self._tick_handle = self._loop.call_later(TICK_S, self._tick)
        now = self.now()
        self.election.handle_timeout(now)
        self._elect(now)
        if now - self._slow_at >= _SLOW_TICK_S:
            self._slow_at = now
            self._tick_slowly(now)
        if now - self._status_at >= STATUS_S:
            self._send_status(now)
        if self.forwarder.is_presence_wanted:
            self.forwarder.is_presence_wanted = False
            self._is_asking = True
        if self._is_asking and now - self._asked_at >= _ASK_S and self.forwarder.is_forwarder:
            self._ask_lan(now)
        self._turns.settle(self.now())

    def _tick_slowly(self, now: float) -> None:
        self.forwarder.expire(now)
        self._tell_of_trouble()
        self.peering.tick(now)
        for peer in self.endpoint.peers.values():
            peer.flow.look(peer.stats, now)
        for lan in (*self.groups.values(), *([self._beacons] if self._beacons else [])):
            if lan.check():
                event = "interface_down" if lan.is_down else "interface_up"
                log.warning(event, group=show(lan.address))

    def _tell_of_trouble(self) -> None:
        """Of what others may cause, once a minute."""
        for other in self.others():
            about = f"{other.id:08x}"
            log.seldom(
                logging.ERROR, "another_gateway", None, id=about, address=other.host, do=self.peering.advice(other.id)
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
    """Keys of what was bound at the start."""
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
