"""Which of a LAN's gateways forwards: they tell each other by beacons that they live, and one of them does it.

A beacon is multicast in the LAN, and proves to each mate that it is genuine and of now: it has a MAC for it, by a key
that only the two can compute, over the number that the mate's last beacon bore. Strangers can neither make one nor use
an old one, so they can silence no gateway.

A beacon, big-endian: "FJMB", u8 version 1, u8 flags (1 forwards, 2 has peers that are up, 4 leaves), u8 number of
groups, u8 number of mates, u32 gateway id, 8 bytes drawn for this beacon · for each group u16 hash, u16 port that we
multicast it from · for each mate u32 gateway id, 8 bytes its last number (0: none), 16 bytes MAC.
"""

import hmac
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, IntFlag
from typing import Final

from fjm2.norm import Address

INTERVAL_S: Final = 0.4
ANSWER_S: Final = 0.05
"""A mate that has no number of ours yet is answered at once, but no more often than this."""
DEAD_S: Final = 1.6
"""A mate that was silent for so long is taken to be dead. With what follows, well under three seconds."""
LISTEN_S: Final = 1.0
"""Who has mates listens so long before it forwards."""
MATES_MAX: Final = 16
_MAGIC, _VERSION = b"FJMB", 1
_HEAD = struct.Struct("!4sBBBBI8s")
_GROUP = struct.Struct("!HH")
_MATE = struct.Struct("!I8s16s")
_MAC_BYTES: Final = 16
_NO_NUMBER: Final = bytes(8)
BEACON_BYTES_MAX: Final = 1400


class Flag(IntFlag):
    FORWARDS = 1
    IS_USABLE = 2
    LEAVES = 4


class BeaconDrop(Enum):
    """Why a beacon was not believed."""

    MALFORMED = "no beacon"
    STRANGER = "of a gateway that is not of this LAN"
    FORGED = "its MAC is wrong, or there is none for us"
    STALE = "does not bear a number of ours of late"


@dataclass(slots=True)
class _Mate:
    """Another gateway of the LAN."""

    key: bytes
    number: bytes = _NO_NUMBER
    """That of its last beacon."""
    heard_at: float = float("-inf")
    flags: int = 0
    host: str = ""
    ports: tuple[tuple[int, int], ...] = ()


class Election:
    """One gateway's view of it. Commands and inputs first, then `is_forwarder` and `poll_beacon`."""

    def __init__(self, own_id: int, entropy: Callable[[int], bytes], now: float) -> None:
        self.own_id = own_id
        self.drops: Counter[BeaconDrop] = Counter()
        self.is_usable = False
        """Whether any peer of ours is up: who has none does not forward while another has."""
        self.is_forwarder = True
        self.takeovers = 0
        """Times that we began to forward."""
        self._entropy = entropy
        self._mates: dict[int, _Mate] = {}
        self._numbers: deque[tuple[bytes, float]] = deque(maxlen=256)
        """Those of our last beacons."""
        self._listen_until = now
        self._next_at = now
        self._last_at = float("-inf")

    # Commands.

    def set_mates(self, keys: Mapping[int, bytes], now: float) -> None:
        """These gateways are of this LAN, by id, each with the key that only it and we have."""
        known = dict(list(keys.items())[:MATES_MAX])
        if self._mates.keys() == known.keys():
            return
        is_first = not self._mates and known
        self._mates = {mate: self._mates.get(mate) or _Mate(key) for mate, key in known.items()}
        if is_first:
            self.is_forwarder = False
            self._listen_until = now + LISTEN_S
            self._next_at = now
        self._decide(now)

    # Inputs.

    def receive(self, beacon: bytes, address: Address, now: float) -> None:
        """Something has come to the beacons' group."""
        drop = self._take(beacon, address, now)
        if drop is not None:
            self.drops[drop] += 1
        self._decide(now)

    def handle_timeout(self, now: float) -> None:
        """To be called every tenth of a second or so."""
        self._decide(now)

    # Outputs.

    def poll_beacon(self, ports: Iterable[tuple[int, int]], now: float) -> bytes | None:
        """What is to be multicast now; `ports` tells of each group its hash and the port that we send from."""
        if not self._mates or now < self._next_at:
            return None
        self._next_at, self._last_at = now + INTERVAL_S, now
        return self._beacon(ports, 0, now)

    def goodbye(self, ports: Iterable[tuple[int, int]], now: float) -> bytes | None:
        """We leave: another may forward at once. None where there is no other."""
        return self._beacon(ports, Flag.LEAVES, now) if self._mates else None

    def live_mates(self, now: float) -> list[int]:
        """Those that have been heard of late."""
        return [mate for mate, known in self._mates.items() if now - known.heard_at < DEAD_S]

    def addresses(self, group: int) -> frozenset[Address]:
        """Where mates multicast a group from."""
        return frozenset(
            (mate.host, port) for mate in self._mates.values() for hash_, port in mate.ports if hash_ == group
        )

    # Beacons.

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

    def _take(self, beacon: bytes, address: Address, now: float) -> BeaconDrop | None:
        if not _HEAD.size <= len(beacon) <= BEACON_BYTES_MAX:
            return BeaconDrop.MALFORMED
        magic, version, flags, groups, mates, sender, number = _HEAD.unpack_from(beacon)
        end = _HEAD.size + groups * _GROUP.size
        if (magic, version) != (_MAGIC, _VERSION) or len(beacon) != end + mates * _MATE.size:
            return BeaconDrop.MALFORMED
        mate = self._mates.get(sender)
        if mate is None:
            return BeaconDrop.STRANGER
        head = beacon[:end]
        ours = next((row for row in _MATE.iter_unpack(beacon[end:]) if row[0] == self.own_id), None)
        if ours is None or not hmac.compare_digest(ours[2], _mac(mate.key, head, self.own_id, ours[1])):
            return BeaconDrop.FORGED
        if not self._is_of_late(ours[1], now):
            # It is genuine, but may be old. Our answer lets the mate prove that it is not; that it is
            # the mate's last number is not believed yet where another is known to be.
            if now - mate.heard_at >= DEAD_S:
                mate.number = number
                self._next_at = min(self._next_at, max(now, self._last_at + ANSWER_S))
            return BeaconDrop.STALE
        mate.number = number
        mate.flags = flags
        mate.host = address[0]
        mate.ports = tuple(_GROUP.iter_unpack(head[_HEAD.size :]))
        mate.heard_at = float("-inf") if flags & Flag.LEAVES else now
        return None

    def _is_of_late(self, number: bytes, now: float) -> bool:
        return any(number == own and now - at < DEAD_S for own, at in self._numbers)

    # Who forwards.

    def _decide(self, now: float) -> None:
        before = self.is_forwarder
        self.is_forwarder = self._should_forward(now)
        if self.is_forwarder != before:
            self.takeovers += self.is_forwarder
            self._next_at = now  # the others should know at once

    def _should_forward(self, now: float) -> bool:
        if not self._mates:
            return True
        if now < self._listen_until:
            return False
        live = {mate: known.flags for mate, known in self._mates.items() if now - known.heard_at < DEAD_S}
        usable = {mate for mate, flags in live.items() if flags & Flag.IS_USABLE}
        if usable and not self.is_usable:
            return False
        rivals = usable if self.is_usable else set(live)
        forwarding = {mate for mate in live if live[mate] & Flag.FORWARDS and mate in rivals}
        if forwarding:
            # Whoever does it goes on. If two do, as when a torn LAN is whole again, the lower id stays.
            return self.is_forwarder and self.own_id < min(forwarding)
        return self.is_forwarder or all(self.own_id < mate for mate in rivals)


def _mac(key: bytes, head: bytes, mate: int, number: bytes) -> bytes:
    return hmac.digest(key, head + mate.to_bytes(4) + number, "sha256")[:_MAC_BYTES]
