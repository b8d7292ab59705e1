"""Configurations: numbered lists of the members of a cell, and the majorities of those that count."""

import hashlib
from collections.abc import Set
from dataclasses import dataclass
from typing import Final

from .wire.fields import Member
from .wire.records import ConfigureRecord

_ID_BITS: Final = 128
_RING: Final = 1 << _ID_BITS
NUMBERS_OF_AN_EPOCH: Final = 256
"""A configuration's number is its epoch times this, and a count: no two managers give the same number."""
EPOCH_MAX: Final = (1 << 32) // NUMBERS_OF_AN_EPOCH - 1
"""Last epoch whose configurations have numbers."""
EPOCH_LEAP_MAX: Final = 1 << 20
"""Furthest that an epoch may be ahead to be believed: an election a second for twelve days. A forged one cannot use up
all epochs."""


def bus_key(group: str, port: int) -> int:
    """Return H(bus): the point of the ring of ids that a bus's members are close to."""
    return int.from_bytes(hashlib.sha256(f"{group}:{port}".encode()).digest()[: _ID_BITS // 8])


def distance(keeper_id: bytes, key: int) -> tuple[int, bytes]:
    """Return the distance of a keeper from a point of the ring. The id itself makes it unique."""
    gap = (int.from_bytes(keeper_id) - key) % _RING
    return min(gap, _RING - gap), keeper_id


@dataclass(frozen=True, slots=True)
class Membership:
    """The configurations that count: one, or the old and the new one while a change is begun."""

    configurations: tuple[ConfigureRecord, ...] = ()

    @property
    def newest(self) -> ConfigureRecord | None:
        return self.configurations[-1] if self.configurations else None

    @property
    def number(self) -> int:
        """Number of the newest configuration; 0 without one."""
        return self.configurations[-1].number if self.configurations else 0

    @property
    def members(self) -> frozenset[Member]:
        """Members of all configurations that count."""
        return frozenset(member for each in self.configurations for member in each.members)

    @property
    def size(self) -> int:
        """Number of members, each counted once."""
        return len(self.members)

    def has_majority(self, members: Set[Member]) -> bool:
        """Return True if W members of each configuration are among `members`."""
        return bool(self.configurations) and all(
            _common(each, members) >= len(each.members) // 2 + 1 for each in self.configurations
        )

    def can_read(self, members: Set[Member]) -> bool:
        """Return True if K - W + 1 members of each configuration are among `members`.

        At least one of them has whatever W members have.
        """
        return bool(self.configurations) and all(
            _common(each, members) >= len(each.members) - len(each.members) // 2 for each in self.configurations
        )

    def __contains__(self, member: Member) -> bool:
        return any(member in each.members for each in self.configurations)

    def names(self, keeper_id: bytes) -> bool:
        """Return True if a keeper is a member, in whatever incarnation."""
        return any(member.keeper_id == keeper_id for each in self.configurations for member in each.members)

    def rank(self, keeper_id: bytes, key: int) -> int:
        """Return the number of members that are closer to the bus."""
        ids = {member.keeper_id for each in self.configurations for member in each.members}
        return sum(distance(other, key) < distance(keeper_id, key) for other in ids)


def _common(configuration: ConfigureRecord, members: Set[Member]) -> int:
    return sum(member in members for member in configuration.members)
