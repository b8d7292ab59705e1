"""The destinations that the cell stores, as a publisher learns them."""

import math
from random import Random
from typing import Final

from ..wire.table import TableHashes

ASK_S: Final = 0.02
"""Longest time after which a missing table is asked for. It is random, so that publishers do not ask all at once."""
ASK_S_MAX: Final = 2.0
"""Longest time between two requests. The manager answers once in 100 ms, for all who ask."""
PARTS_MAX: Final = 1000
"""Most parts of a table: it has at most 100,000 subscriptions, which take 667."""
_FRAME_HASH_MAX: Final = 0xFFFF_FFFF
"""Largest hash that a frame has. Above are those of patterns, which match many topics."""
NEVER: Final = math.inf


class _Parts:
    """The parts of one version that have come."""

    def __init__(self, first: TableHashes) -> None:
        self.version = first.version
        self.count = first.parts
        self.by_number: dict[int, tuple[int, ...]] = {}

    def add(self, part: TableHashes) -> bool:
        """Add a part. Return True if all are there."""
        self.by_number[part.part] = part.hashes
        return len(self.by_number) == self.count


class StoredTable:
    """The newest table that is known whole, and the newest one that was heard of.

    As long as they differ, all destinations count as stored: sends wait a little, and none is lost.
    """

    def __init__(self, random: Random) -> None:
        self.version = 0
        """Version of the table that is known. Version 0 is empty."""
        self.newest = 0
        """Newest version heard of."""
        self._random = random
        self._hashes: frozenset[int] = frozenset()
        self._has_patterns = False
        self._wanted: _Parts | None = None
        self._ahead: _Parts | None = None
        """Parts of a version that no heartbeat has named yet: they come when the table changes, before it does."""
        self._ask_at = NEVER
        self._interval_s = 0.0

    def is_stored(self, frame_hash: int) -> bool:
        """Return True if keepers store what is sent to a destination, or if that is not known yet."""
        return self.version != self.newest or self._has_patterns or frame_hash in self._hashes

    def want(self, version: int, now: float) -> bool:
        """Note the version that a heartbeat names. Return True if that table is known at once."""
        if version <= self.newest:
            return False
        self.newest = version
        self._wanted = None
        if self._ahead is not None and self._ahead.version == version:
            self._wanted, self._ahead = self._ahead, None
            if len(self._wanted.by_number) == self._wanted.count:
                self._finish(self._wanted)
                return True
        self._interval_s = ASK_S
        self._ask_at = now + self._random.uniform(0.0, ASK_S)
        return False

    def receive(self, part: TableHashes) -> bool | None:
        """Take a part of a table. Return True if the newest table is known now, and None if the part is of no use."""
        if part.parts > PARTS_MAX:
            return None
        if part.version == self.newest and self.version != self.newest:
            self._wanted = self._parts_for(self._wanted, part)
            if self._wanted.add(part):
                self._finish(self._wanted)
                return True
            return False
        if part.version > self.newest:
            self._ahead = self._parts_for(self._ahead, part)
            self._ahead.add(part)
            return False
        return None

    @staticmethod
    def _parts_for(parts: _Parts | None, part: TableHashes) -> _Parts:
        """Return the parts that a part belongs to. Those of another version, or of another number, are given up."""
        is_same = parts is not None and parts.version == part.version and parts.count == part.parts
        return parts if parts is not None and is_same else _Parts(part)

    def _finish(self, parts: _Parts) -> None:
        self.version = parts.version
        self._hashes = frozenset(each for hashes in parts.by_number.values() for each in hashes)
        self._has_patterns = any(each > _FRAME_HASH_MAX for each in self._hashes)
        self._wanted = None
        self._ask_at = NEVER

    def poll_timeout(self) -> float:
        """Return the time at which to ask for the table, or NEVER."""
        return self._ask_at

    def poll_request(self, now: float) -> bool:
        """Return True if it is time to ask for the newest table. The time until the next request doubles."""
        if now < self._ask_at:
            return False
        self._interval_s = min(2 * self._interval_s, ASK_S_MAX)
        self._ask_at = now + self._interval_s * self._random.uniform(0.5, 1.0)
        return True
