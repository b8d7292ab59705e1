"""Limits: requests a second, connections, and requests that are served at the same time. Memory is bounded."""

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
    """Token buckets by key, full at first. If there are too many, the key that was unused for longest is forgotten."""

    def __init__(self, per_s: float, keys_max: int = 16_384) -> None:
        self._per_s = per_s
        self._burst = per_s * _BURST_S
        self._keys_max = keys_max
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, key: str, now: float) -> float:
        """Admit a request and return 0, or refuse it and return the seconds until a request would be admitted."""
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
    """Return the key by which an address is limited. For IPv6 this is its /64, in which a host can choose addresses."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
    return host


class ConnectionLimit:
    """Limit of connections, in all and from one address. A trusted address may have as many as there may be in all.

    New connections beyond the limit are refused; existing connections stay.
    """

    def __init__(self, connections_max: int, per_address_max: int, trusted: Collection[str]) -> None:
        self._connections_max = connections_max
        self._per_address_max = per_address_max
        self._trusted = trusted
        self._per_address: Counter[str] = Counter()
        self.count = 0

    def admit(self, host: str) -> bool:
        """Count a connection. Return False if there is no room for it. Either way, `release` it when it is closed."""
        host = plain_host(host)
        key = address_key(host)
        self._per_address[key] += 1
        self.count += 1
        return self.count <= self._connections_max and (
            self._per_address[key] <= self._per_address_max or host in self._trusted
        )

    def release(self, host: str) -> None:
        """Count a connection no longer, because it was closed."""
        key = address_key(plain_host(host))
        self.count -= 1
        self._per_address[key] -= 1
        if self._per_address[key] <= 0:
            del self._per_address[key]


class ConcurrencyLimit:
    """Limit of requests that are open at the same time, in all and with one token."""

    def __init__(self, requests_max: int, per_token_max: int) -> None:
        self._requests_max = requests_max
        self._per_token_max = per_token_max
        self._taken: dict[str, int] = {}
        self.count = 0

    def acquire(self, key: str) -> None:
        """Count a request with this key. Raise Refusal if there are too many."""
        if self._taken.get(key, 0) >= self._per_token_max:
            raise Refusal(429, "too_many_waiting", f"no more than {self._per_token_max} at a time with one token", 1)
        if self.count >= self._requests_max:
            raise Refusal(503, "too_many_waiting", "too many requests are waiting already", 5)
        self._taken[key] = self._taken.get(key, 0) + 1
        self.count += 1

    def release(self, key: str) -> None:
        """Count a request no longer, because it has ended."""
        self.count -= 1
        left = self._taken[key] - 1
        if left:
            self._taken[key] = left
        else:
            del self._taken[key]
