"""Which of a LAN's gateways forwards: they tell each other by beacons that they live, and one of them does it.

A beacon is multicast in the LAN, and proves to each mate that it is genuine and of now: it has a MAC for it, by a key
that only the two can compute, over the number that the mate's last beacon bore. Strangers can neither make one nor use
an old one, so they can silence no gateway.

Mates are the gateways that are known to be of this LAN by its label, and those that prove to be: whoever has peers says
so now and then in a beacon without mates, and who hears it, and knows the key, answers as it would answer a mate.

A beacon, big-endian: "FJMB", u8 version 1, u8 flags (1 forwards, 2 has peers that are up, 4 leaves), u8 number of
groups, u8 number of mates, u32 gateway id, 8 bytes drawn for this beacon · for each group u16 hash, u16 port that we
multicast it from · for each mate u32 gateway id, 8 bytes its last number (0: none), 16 bytes MAC.
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
ANSWER_S: Final = 0.05
"""A mate that has no number of ours yet is answered at once, but no more often than this."""
DEAD_S: Final = 1.6
"""A mate that was silent for so long is taken to be dead. With what follows, well under three seconds."""
LISTEN_S: Final = 1.0
"""Who has mates listens so long before it forwards."""
GREET_S: Final = 0.3
"""Who may have some that it does not know of does: a gateway that runs has answered by then."""
ALONE_S: Final = 2.0
"""A beacon is sent so often where there are no mates."""
HERE_S: Final = 10.0
"""Who has proved to be on this LAN counts as being there for so long, even if nothing more is heard of it."""
PROVE_S: Final = 3.0
"""For so long we try to have it proved."""
MATES_MAX: Final = 16
"""By label, and as many that prove to be."""
OTHERS_MAX: Final = 16
OTHER_S: Final = 10.0
"""Another gateway, which can be no mate, is remembered for so long."""
_MAGIC, _VERSION = b"FJMB", 1
_HEAD = struct.Struct("!4sBBBBI8s")
_GROUP = struct.Struct("!HH")
_MATE = struct.Struct("!I8s16s")
_MAC_BYTES: Final = 16
_NO_NUMBER: Final = bytes(8)
_NUMBERS_KEPT: Final = 256
"""Of beacons, which are good for `DEAD_S` and come no more often than `ANSWER_S`, with room to spare."""
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
    REPLAYED = "came before"


@dataclass(slots=True)
class _Mate:
    """Another gateway of the LAN."""

    key: bytes
    is_labelled: bool
    """Known to be of this LAN. Others have to prove it."""
    met_at: float
    number: bytes = _NO_NUMBER
    """That of its last beacon."""
    numbers: deque[bytes] = field(default_factory=lambda: deque(maxlen=_NUMBERS_KEPT))
    """Those of its last ones: each counts once."""
    heard_at: float = float("-inf")
    flags: int = 0
    host: str = ""
    ports: tuple[tuple[int, int], ...] = ()


class Other(NamedTuple):
    """A gateway that is heard on this LAN, as it says, and can be no mate."""

    id: int
    host: str
    groups: frozenset[int]
    heard_at: float


class Election:
    """One gateway's view of it. Commands and inputs first, then `is_forwarder` and `poll_beacon`."""

    def __init__(
        self,
        own_id: int,
        entropy: Callable[[int], bytes],
        now: float,
        key_of: Callable[[int], bytes | None] = lambda _: None,
    ) -> None:
        """`key_of` tells the key that only we and a gateway have, if it may be a mate without being known as one."""
        self.own_id = own_id
        self.drops: Counter[BeaconDrop] = Counter()
        self.is_usable = False
        """Whether any peer of ours is up: who has none does not forward while another has."""
        self.is_forwarder = True
        self._entropy = entropy
        self._key_of = key_of
        self._is_looking = False
        self._mates: dict[int, _Mate] = {}
        self._others: dict[int, Other] = {}
        self._numbers: deque[tuple[bytes, float]] = deque(maxlen=_NUMBERS_KEPT)
        """Those of our last beacons."""
        self._listen_until = now
        self._next_at = now
        self._last_at = float("-inf")

    # Commands.

    def set_mates(self, keys: Mapping[int, bytes], now: float) -> None:
        """These gateways are of this LAN, by id, each with the key that only it and we have."""
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
        """Whether there are peers: then a mate that is not known as one would do harm, and has to be found."""
        if is_looking and not self._is_looking and not self._mates:
            self._listen(GREET_S, now)
        self._is_looking = is_looking
        self._decide(now)

    def _listen(self, seconds: float, now: float) -> None:
        self.is_forwarder = False
        self._listen_until = now + seconds
        self._next_at = now

    # Inputs.

    def receive(self, beacon: bytes, address: Address, now: float) -> None:
        """Something has come to the beacons' group."""
        drop = self._take(beacon, address, now)
        if drop is not None:
            self.drops[drop] += 1
        self._decide(now)

    def handle_timeout(self, now: float) -> None:
        """To be called every tenth of a second or so."""
        late = [mate for mate, known in self._mates.items() if not known.is_labelled and not _is_met(known, now)]
        for mate in late:
            del self._mates[mate]
        self._decide(now)

    # Outputs.

    def poll_beacon(self, ports: Iterable[tuple[int, int]], now: float) -> bytes | None:
        """What is to be multicast now; `ports` tells of each group its hash and the port that we send from."""
        if not (self._mates or self._is_looking) or now < self._next_at:
            return None
        self._next_at, self._last_at = now + (INTERVAL_S if self._mates else ALONE_S), now
        return self._beacon(ports, 0, now)

    def goodbye(self, ports: Iterable[tuple[int, int]], now: float) -> bytes | None:
        """We leave: another may forward at once. None where there is no other."""
        return self._beacon(ports, Flag.LEAVES, now) if self._mates else None

    def live_mates(self, now: float) -> list[int]:
        """Those that have been heard of late."""
        return [mate for mate, known in self._mates.items() if now - known.heard_at < DEAD_S]

    def here(self, now: float) -> frozenset[int]:
        """Mates that have proved it, not long ago: they are on this LAN, whatever else they are."""
        return frozenset(mate for mate, known in self._mates.items() if now - known.heard_at < HERE_S)

    def others(self, now: float) -> list[Other]:
        """Other gateways on this LAN that can be no mates, as somebody says who need not tell the truth."""
        return [other for other in self._others.values() if now - other.heard_at < OTHER_S]

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
        head, place = beacon[:end], address[0]
        mate = self._mates.get(sender) or self._meet(sender, number, now)
        if mate is None:
            self._note_other(Other(sender, place, frozenset(hash_ for hash_, _ in _groups_of(head)), now), number)
            return BeaconDrop.STRANGER
        ours = next((row for row in _MATE.iter_unpack(beacon[end:]) if row[0] == self.own_id), None)
        if ours is None and not mate.is_labelled:
            self._answer(mate, number, now)
            return None
        if ours is None or not hmac.compare_digest(ours[2], _mac(mate.key, head, self.own_id, ours[1])):
            return BeaconDrop.FORGED
        if not self._is_of_late(ours[1], now):
            # It is genuine, but may be old.
            self._answer(mate, number, now)
            return BeaconDrop.STALE
        if number in mate.numbers:
            return BeaconDrop.REPLAYED
        if now - mate.heard_at >= DEAD_S:
            self._say_soon(now)  # it may know of nobody yet
        mate.number = number
        mate.numbers.append(number)
        mate.flags = flags
        mate.host = place
        mate.ports = tuple(_groups_of(head))
        mate.heard_at = float("-inf") if flags & Flag.LEAVES else now
        return None

    def _answer(self, mate: _Mate, number: bytes, now: float) -> None:
        """Let a mate prove that its beacons are its own, and of now. That this is its last number is not believed
        where another is known to be."""
        if now - mate.heard_at >= DEAD_S:
            mate.number = number
            self._say_soon(now)

    def _say_soon(self, now: float) -> None:
        self._next_at = min(self._next_at, max(now, self._last_at + ANSWER_S))

    def _meet(self, sender: int, number: bytes, now: float) -> _Mate | None:
        """Who may be a mate, as far as there is room for such."""
        key = self._key_of(sender)
        if key is None or sum(not mate.is_labelled for mate in self._mates.values()) >= MATES_MAX:
            return None
        self._say_soon(now)
        return self._mates.setdefault(sender, _Mate(key, False, now, number))

    def _note_other(self, other: Other, number: bytes) -> None:
        if any(number == own for own, _ in self._numbers) or self._key_of(other.id) is not None:
            return  # our own voice, or one for whom there is no room
        self._others = {known.id: known for known in self.others(other.heard_at)}
        if other.id in self._others or len(self._others) < OTHERS_MAX:
            self._others[other.id] = other

    def _is_of_late(self, number: bytes, now: float) -> bool:
        return any(number == own and now - at < DEAD_S for own, at in self._numbers)

    # Who forwards.

    def _decide(self, now: float) -> None:
        before = self.is_forwarder
        self.is_forwarder = self._should_forward(now)
        if self.is_forwarder != before:
            self._next_at = now  # the others should know at once

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
            # Whoever does it goes on. If two do, as when a torn LAN is whole again, the lower id stays.
            return self.is_forwarder and self.own_id < min(forwarding)
        return self.is_forwarder or all(self.own_id < mate for mate in rivals)


def _is_met(mate: _Mate, now: float) -> bool:
    """Whether one that has to prove to be here has done so, or has had no time to."""
    return now - mate.heard_at < HERE_S or now - mate.met_at < PROVE_S


def _groups_of(head: bytes) -> Iterator[tuple[int, int]]:
    """Hash and port of each group."""
    return _GROUP.iter_unpack(head[_HEAD.size :])


def _mac(key: bytes, head: bytes, mate: int, number: bytes) -> bytes:
    return hmac.digest(key, head + mate.to_bytes(4) + number, "sha256")[:_MAC_BYTES]
