"""The durable and shared subscriptions, as committed TABLE records leave them."""

from collections import Counter
from typing import Final, NamedTuple

from .wire.ranges import Position
from .wire.records import Subscription, TableRecord
from .wire.requests import SubscriptionFlag

SUBSCRIPTIONS_MAX: Final = 100_000
"""Most subscriptions. A manager refuses further ones before they become decisions."""


class SubscriptionKey(NamedTuple):
    """Identity of a subscription: its name is unique for a client id, which may be empty.

    A subscription that is durable and one that is not may have the same name.
    """

    client_id: str
    name: str
    is_durable: bool = True


class TableState(NamedTuple):
    """Content of a table: the subscriptions with their start positions, in the order in which they were added."""

    version: int
    subscriptions: list[tuple[Subscription, tuple[Position, ...]]]


class SubscriptionTable:
    """Subscriptions by name, with a version that counts the changes."""

    def __init__(self) -> None:
        self.version = 0
        self._heard: int | None = None
        self._subscriptions: dict[SubscriptionKey, tuple[Subscription, tuple[Position, ...]]] = {}
        self._hashes: Counter[int] = Counter()
        """Number of subscriptions to each destination, by its hash."""

    def __len__(self) -> int:
        return len(self._subscriptions)

    def hear(self, version: int) -> None:
        """Note the version of a manager's table."""
        self._heard = max(version, self._heard or 0)

    @property
    def newest_heard(self) -> int | None:
        """Newest version heard of since the start."""
        return self._heard

    @property
    def is_current(self) -> bool:
        """True if the table is as new as the newest one heard of since the start.

        Until then a keeper has to keep the frames of all destinations: it cannot know which ones nobody asked for.
        """
        return self._heard is not None and self.version >= self._heard

    def apply(self, record: TableRecord) -> bool:
        """Apply a committed record. Return False for one that does not follow the version: a table never goes back."""
        if record.version != self.version + 1:
            return False
        self.version = record.version
        key = key_of(record.subscription)
        self._drop(key)
        if record.is_added:
            self._subscriptions[key] = record.subscription, record.starts
            self._hashes[record.subscription.destination.frame_hash] += 1
        return True

    @property
    def state(self) -> TableState:
        """Content of the table."""
        return TableState(self.version, list(self._subscriptions.values()))

    @state.setter
    def state(self, state: TableState) -> None:
        self.version = state.version
        self._subscriptions = {key_of(each[0]): each for each in state.subscriptions}
        self._hashes = Counter(subscription.destination.frame_hash for subscription, _ in state.subscriptions)

    def _drop(self, key: SubscriptionKey) -> None:
        dropped = self._subscriptions.pop(key, None)
        if dropped is not None:
            frame_hash = dropped[0].destination.frame_hash
            self._hashes[frame_hash] -= 1
            if not self._hashes[frame_hash]:
                del self._hashes[frame_hash]

    def stores(self, frame_hash: int) -> bool:
        """Return True if the frames of a destination are to be kept."""
        return frame_hash in self._hashes

    def hashes(self) -> list[int]:
        """Return the hashes of all destinations whose frames are to be kept, in ascending order."""
        return sorted(self._hashes)

    def find(self, key: SubscriptionKey) -> Subscription | None:
        """Return a subscription, or None."""
        found = self._subscriptions.get(key)
        return None if found is None else found[0]

    def starts(self, key: SubscriptionKey) -> tuple[Position, ...]:
        """Return the positions at which a subscription begins; none for an unknown one."""
        found = self._subscriptions.get(key)
        return () if found is None else found[1]

    @property
    def subscriptions(self) -> list[Subscription]:
        """All subscriptions, in the order in which they were added."""
        return [subscription for subscription, _ in self._subscriptions.values()]


def key_of(subscription: Subscription) -> SubscriptionKey:
    """Return the identity of a subscription."""
    return key_for(subscription.client_id, subscription.name, subscription.flags)


def key_for(client_id: str, name: str, flags: int) -> SubscriptionKey:
    """Return the identity of a subscription with some flags."""
    return SubscriptionKey(client_id, name, bool(flags & SubscriptionFlag.DURABLE))
