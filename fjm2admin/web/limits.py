"""Limits on how often: token buckets by key, in bounded memory."""

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Collection
from typing import Final

from fjm2.base.token_bucket import TokenBucket

from ..errors import Refusal
from .sockets import plain_host

_BURST_S: Final = 4
"""Seconds' worth of requests that may come at once: a page that loads asks for several things."""
_REQUEST: Final = 1.0
"""Credit that one request takes."""


class RateLimit:
    """A token bucket for each key, full at first. Forgets the key unused for longest if there are too many."""

    def __init__(self, per_s: float, keys_max: int = 16_384) -> None:
        self._per_s = per_s
        self._burst = per_s * _BURST_S
        self._keys_max = keys_max
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, key: str, now: float) -> float:
        """Admit a request: return 0, or else the seconds until one would be admitted."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._per_s, credit=self._burst)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._keys_max:
            self._buckets.popitem(last=False)
        credit = bucket.refill(now, self._burst)
        if credit < _REQUEST:
            return (_REQUEST - credit) / self._per_s
        bucket.spend(_REQUEST)
        return 0.0


def address_key(host: str) -> str:
    """What an address counts as: an IPv6 host has its whole /64 to choose from."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return host


class Doors:
    """How many connections there may be, in all and from one address; what is trusted may have all of them.

    Whoever is inside stays: those who come too late are sent away, whatever they are about to ask.
    """

    def __init__(self, most: int, most_each: int, trusted: Collection[str]) -> None:
        self._most = most
        self._most_each = most_each
        self._trusted = trusted
        self._inside: Counter[str] = Counter()
        self.count = 0

    def enter(self, host: str) -> bool:
        """Whether there is room. Either way, it leaves when it is closed."""
        host = plain_host(host)
        key = address_key(host)
        self._inside[key] += 1
        self.count += 1
        return self.count <= self._most and (self._inside[key] <= self._most_each or host in self._trusted)

    def leave(self, host: str) -> None:
        key = address_key(plain_host(host))
        self.count -= 1
        self._inside[key] -= 1
        if self._inside[key] <= 0:
            del self._inside[key]


class Seats:
    """How many may wait at a time, in all and each."""

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._taken: dict[str, int] = {}
        self.count = 0

    def take(self, key: str) -> None:
        """Refuses if there is none left."""
        if self._taken.get(key, 0) >= self._most_each:
            raise Refusal(429, "too_many_waiting", f"no more than {self._most_each} at a time with one token", 1)
        if self.count >= self._most:
            raise Refusal(503, "too_many_waiting", "too many wait already", 5)
        self._taken[key] = self._taken.get(key, 0) + 1
        self.count += 1

    def leave(self, key: str) -> None:
        self.count -= 1
        left = self._taken[key] - 1
        if left:
            self._taken[key] = left
        else:
            del self._taken[key]
