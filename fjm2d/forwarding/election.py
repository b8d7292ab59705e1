"""Election of the gateway that forwards for a LAN. The gateways of a LAN show by beacons that they are alive.

A beacon is multicast on the LAN. It carries a MAC for each mate. The MAC covers the number of the mate's last beacon,
and its key can be computed by the two gateways only: this proves that the beacon is genuine and recent. Strangers can
neither forge a beacon nor replay one, and so they cannot silence a gateway.

Mates are gateways with the same LAN label, and gateways that prove to be on this LAN. To find the latter, a gateway
with peers now and then sends a beacon without mates. A gateway that hears it and knows the key answers as to a mate.

A beacon, big-endian: "FJMB", u8 version 1, u8 flags (1 forwards, 2 has peers that are up, 4 leaves), u8 number of
groups, u8 number of mates, u32 gateway id, 8 random bytes, the beacon's number · for each group u16 hash, u16 port from
which the gateway multicasts it · for each mate u32 gateway id, 8 bytes its last number (0: none), 16 bytes MAC.
"""

import hmac
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntFlag
from typing import Final, NamedTuple

from fjm2.norm import Address

INTERVAL_S: Final = 0.4
"""Beacon interval of a gateway that has mates. Four beacons fit into `DEAD_S`, so that losing one or two does no
harm."""
ANSWER_S: Final = 0.05
"""Least time between two beacons of a gateway, even if the next one is urgent."""
DEAD_S: Final = 1.6
"""Silence after which a mate counts as dead. Another gateway then forwards within three seconds of the failure."""
LISTEN_S: Final = 1.0
"""Time for which a gateway with mates listens before it forwards."""
GREET_S: Final = 0.3
"""Time for which a gateway that may have unknown mates listens before it forwards: a mate that runs answers sooner."""
ALONE_S: Final = 2.0
"""Beacon interval of a gateway that knows no mates."""
HERE_S: Final = 10.0
"""Time for which a gateway that proved to be on this LAN counts as being there, even if it is silent."""
PROVE_S: Final = 3.0
"""Time that a gateway has to prove that it is on this LAN."""
MATES_MAX: Final = 16
"""Maximum number of mates with our LAN label, and of mates without it: a beacon has to fit into one packet."""
OTHERS_MAX: Final = 16
"""Maximum number of gateways remembered that cannot be mates. Anyone on the LAN can invent gateways, so there is a
limit."""
OTHER_S: Final = 10.0
"""Time for which a gateway that cannot be a mate is remembered."""
LIST_S: Final = 5.0
"""Time for which a gateway that cannot be a mate must be heard before it is a fault: one that starts for the first time
may be heard before the node list that names it arrives."""
_MAGIC, _VERSION = b"FJMB", 1
_HEAD = struct.Struct("!4sBBBBI8s")
_GROUP = struct.Struct("!HH")
_MATE = struct.Struct("!I8s16s")
_MAC_BYTES: Final = 16
_NO_NUMBER: Final = bytes(8)
_NUMBERS_KEPT: Final = 256
"""Maximum number of beacon numbers kept. In `DEAD_S` there are at most 32 beacons, one every `ANSWER_S`."""
BEACON_BYTES_MAX: Final = 1400
"""Length of the longest beacon, which fits into an Ethernet frame."""


class Flag(IntFlag):
    FORWARDS = 1
    IS_USABLE = 2
    LEAVES = 4


class BeaconDrop(Enum):
    """Reasons to ignore a beacon."""

    MALFORMED = "no beacon"
    STRANGER = "of a gateway that is no mate"
    FORGED = "its MAC is wrong, or it has none for us"
    STALE = "bears no recent number of ours"
    REPLAYED = "received before"


@dataclass(slots=True)
class _Mate:
    """Another gateway of this LAN."""

    key: bytes
    is_labelled: bool
    """True if the mate has our LAN label. Others have to prove that they are on this LAN."""
    met_at: float
    number: bytes = _NO_NUMBER
    """Number of the mate's last beacon."""
    numbers: deque[bytes] = field(default_factory=lambda: deque(maxlen=_NUMBERS_KEPT))
    """Numbers of the mate's recent beacons. Another beacon with one of these numbers is a replay, and is ignored."""
    heard_at: float = float("-inf")
    flags: int = 0
    host: str = ""
    ports: tuple[tuple[int, int], ...] = ()


class Other(NamedTuple):
    """A gateway heard on this LAN that cannot be a mate. Nothing that it says is proved."""

    id: int
    host: str
    groups: frozenset[int]
    since: float
    """Time when it was first heard."""
    heard_at: float


class Election:
    """One gateway's part in the election. The outcome is `is_forwarder`."""

    def __init__(
        self,
        own_id: int,
        entropy: Callable[[int], bytes],
        now: float,
        key_of: Callable[[int], bytes | None] = lambda _: None,
    ) -> None:
        """`key_of` returns the key shared with a gateway that may be a mate without our label, or None."""
        self.own_id = own_id
        self.drops: Counter[BeaconDrop] = Counter()
        self.is_usable = False
        """True if this gateway has a peer that is up. Without such a peer, it lets a mate forward that has one."""
        self.is_forwarder = True
        self._entropy = entropy
        self._key_of = key_of
        self._is_looking = False
        self._mates: dict[int, _Mate] = {}
        self._others: dict[int, Other] = {}
        self._numbers: deque[tuple[bytes, float]] = deque(maxlen=_NUMBERS_KEPT)
        """Numbers of our last beacons, with their times."""
        self._listen_until = now
        self._next_at = now
        self._last_at = float("-inf")

    def set_mates(self, keys: Mapping[int, bytes], now: float) -> None:
        """Set the mates that have our LAN label. `keys` holds the key shared with each, by id."""
        known = dict(list(keys.items())[:MATES_MAX])
        labelled = {mate: self._mates.get(mate) or _Mate(key, True, now) for mate, key in known.items()}
        if known and not self._mates:
            self._listen(LISTEN_S, now)
        for mate in labelled.values():
            mate.is_labelled = True
        proved = {mate: one for mate, one in self._mates.items() if mate not in known and self._key_of(mate) == one.key}
        for one in proved.values():
            one.is_labelled = False
        self._mates = labelled | proved
        self._decide(now)

    def look(self, is_looking: bool, now: float) -> None:
        """Start or stop the search for unknown mates.

        Search while the gateway has peers: an unknown mate that forwards too would cause duplicates.
        """
        if is_looking and not self._is_looking and not self._mates:
            self._listen(GREET_S, now)
        self._is_looking = is_looking
        self._decide(now)

    def _listen(self, seconds: float, now: float) -> None:
        self.is_forwarder = False
        self._listen_until = now + seconds
        self._next_at = now

    def receive(self, beacon: bytes, address: Address, now: float) -> None:
        """Receive a datagram of the beacons' group."""
        drop = self._check(beacon, address, now)
        if drop is not None:
            self.drops[drop] += 1
        self._decide(now)

    def handle_timeout(self, now: float) -> None:
        """Forget mates that have not proved to be on this LAN in time, and decide again. Call it about every 0.1 s."""
        late = [mate for mate, known in self._mates.items() if not known.is_labelled and not _is_met(known, now)]
        for mate in late:
            del self._mates[mate]
        self._decide(now)

    def poll_beacon(self, ports: Iterable[tuple[int, int]], now: float) -> bytes | None:
        """Return the beacon to multicast now; None if none is due. `ports` holds hash and source port of each group."""
        if not (self._mates or self._is_looking) or now < self._next_at:
            return None
        self._next_at, self._last_at = now + (INTERVAL_S if self._mates else ALONE_S), now
        return self._beacon(ports, 0, now)

    def goodbye(self, ports: Iterable[tuple[int, int]], now: float) -> bytes | None:
        """Return a beacon that tells the mates that this gateway leaves, so that another forwards at once.

        Return None if there are no mates.
        """
        return self._beacon(ports, Flag.LEAVES, now) if self._mates else None

    def live_mates(self, now: float) -> list[int]:
        """Return the ids of mates heard recently."""
        return [mate for mate, known in self._mates.items() if now - known.heard_at < DEAD_S]

    def here(self, now: float) -> frozenset[int]:
        """Return the ids of gateways that recently proved to be on this LAN."""
        return frozenset(mate for mate, known in self._mates.items() if now - known.heard_at < HERE_S)

    def others(self, now: float) -> list[Other]:
        """Return gateways heard on this LAN that cannot be mates. Nothing proves that they exist.

        A gateway whose key has become known since then may be a mate, so it is none of them.
        """
        return [
            other
            for other in self._others.values()
            if now - other.heard_at < OTHER_S and other.id not in self._mates and self._key_of(other.id) is None
        ]

    def strangers(self, now: float) -> list[Other]:
        """Return the others that have been heard for so long that a node list would have named them."""
        return [other for other in self.others(now) if now - other.since >= LIST_S]

    def addresses(self, group: int) -> frozenset[Address]:
        """Return the addresses from which mates multicast a group."""
        return frozenset(
            (mate.host, port) for mate in self._mates.values() for hash_, port in mate.ports if hash_ == group
        )

    def _beacon(self, ports: Iterable[tuple[int, int]], flags: int, now: float) -> bytes:
        number = self._entropy(8)
        self._numbers.append((number, now))
        flags |= Flag.FORWARDS * (self.is_forwarder and not flags) | Flag.IS_USABLE * self.is_usable
        groups = [_GROUP.pack(*pair) for pair in ports]
        head = _HEAD.pack(_MAGIC, _VERSION, flags, len(groups), len(self._mates), self.own_id, number) + b"".join(
            groups
        )
        return head + b"".join(
            _MATE.pack(mate, known.number, _mac(known.key, head, mate, known.number))
            for mate, known in self._mates.items()
        )

    def _check(self, beacon: bytes, address: Address, now: float) -> BeaconDrop | None:
        if not _HEAD.size <= len(beacon) <= BEACON_BYTES_MAX:
            return BeaconDrop.MALFORMED
        magic, version, flags, groups, mates, sender, number = _HEAD.unpack_from(beacon)
        end = _HEAD.size + groups * _GROUP.size
        if (magic, version) != (_MAGIC, _VERSION) or len(beacon) != end + mates * _MATE.size:
            return BeaconDrop.MALFORMED
        head, place = beacon[:end], address[0]
        mate = self._mates.get(sender) or self._meet(sender, number, now)
        if mate is None:
            self._note_other(Other(sender, place, frozenset(hash_ for hash_, _ in _groups_of(head)), now, now), number)
            return BeaconDrop.STRANGER
        ours = next((row for row in _MATE.iter_unpack(beacon[end:]) if row[0] == self.own_id), None)
        if ours is None and not mate.is_labelled:
            self._answer(mate, number, now)
            return None
        if ours is None or not hmac.compare_digest(ours[2], _mac(mate.key, head, self.own_id, ours[1])):
            return BeaconDrop.FORGED
        if not self._is_recent(ours[1], now):
            # The beacon is genuine, but may be a replay.
            self._answer(mate, number, now)
            return BeaconDrop.STALE
        if number in mate.numbers:
            return BeaconDrop.REPLAYED
        if now - mate.heard_at >= DEAD_S:
            self._send_soon(now)  # the mate may have no number of ours yet
        mate.number = number
        mate.numbers.append(number)
        mate.flags = flags
        mate.host = place
        mate.ports = tuple(_groups_of(head))
        mate.heard_at = float("-inf") if flags & Flag.LEAVES else now
        return None

    def _answer(self, mate: _Mate, number: bytes, now: float) -> None:
        """Send the number of a mate's beacon back to it soon, so that it can prove that its next beacons are recent.

        Ignore the number while the mate has a proved one that is recent: this beacon may be a replay.
        """
        if now - mate.heard_at >= DEAD_S:
            mate.number = number
            self._send_soon(now)

    def _send_soon(self, now: float) -> None:
        self._next_at = min(self._next_at, max(now, self._last_at + ANSWER_S))

    def _meet(self, sender: int, number: bytes, now: float) -> _Mate | None:
        """Return a new mate for the sender of a beacon, if it may be a mate and there is room; otherwise None."""
        key = self._key_of(sender)
        if key is None or sum(not mate.is_labelled for mate in self._mates.values()) >= MATES_MAX:
            return None
        self._send_soon(now)
        return self._mates.setdefault(sender, _Mate(key, False, now, number))

    def _note_other(self, other: Other, number: bytes) -> None:
        if any(number == own for own, _ in self._numbers) or self._key_of(other.id) is not None:
            return  # our own beacon, or a possible mate for which there was no room
        self._others = {known.id: known for known in self.others(other.heard_at)}
        known = self._others.get(other.id)
        if known is not None or len(self._others) < OTHERS_MAX:
            self._others[other.id] = other if known is None else other._replace(since=known.since)

    def _is_recent(self, number: bytes, now: float) -> bool:
        return any(number == own and now - at < DEAD_S for own, at in self._numbers)

    def _decide(self, now: float) -> None:
        before = self.is_forwarder
        self.is_forwarder = self._should_forward(now)
        if self.is_forwarder != before:
            self._next_at = now  # the mates should know at once

    def _should_forward(self, now: float) -> bool:
        if now < self._listen_until:
            return False
        live = {mate: known.flags for mate, known in self._mates.items() if now - known.heard_at < DEAD_S}
        usable = {mate for mate, flags in live.items() if flags & Flag.IS_USABLE}
        if usable and not self.is_usable:
            return False
        rivals = usable if self.is_usable else set(live)
        forwarding = {mate for mate in live if live[mate] & Flag.FORWARDS and mate in rivals}
        if forwarding:
            # The gateway that forwards goes on. If two do, as after a split of the LAN, the lower id wins.
            return self.is_forwarder and self.own_id < min(forwarding)
        return self.is_forwarder or all(self.own_id < mate for mate in rivals)


def _is_met(mate: _Mate, now: float) -> bool:
    """Return True if a mate without label has proved to be on this LAN, or still has time to."""
    return now - mate.heard_at < HERE_S or now - mate.met_at < PROVE_S


def _groups_of(head: bytes) -> Iterator[tuple[int, int]]:
    """Return hash and source port of each group in the head of a beacon."""
    return _GROUP.iter_unpack(head[_HEAD.size :])


def _mac(key: bytes, head: bytes, mate: int, number: bytes) -> bytes:
    return hmac.digest(key, head + mate.to_bytes(4) + number, "sha256")[:_MAC_BYTES]
