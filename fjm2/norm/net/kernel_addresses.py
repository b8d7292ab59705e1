"""Translation of addresses between the kernel, where a scope is a number, and FJM2, where it is part of the host."""

import socket
from typing import Final, TypeVar

from fjm2.norm.core.train import Address

from .interfaces import is_link_scoped

_CACHED_ADDRESSES_MAX: Final = 1024
"""Maximum number of addresses remembered in each direction. Anyone may send from any address, so there must be a bound.
"""

KernelAddress = tuple[str, int, int, int]
"""IPv6 address in the form of the kernel: host, port, flow and scope."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class KernelAddresses:
    """Translator of the addresses of one socket, which remembers recent translations."""

    __slots__ = ("_from_kernel", "_to_kernel", "is_ipv4")

    def __init__(self, family: int) -> None:
        self.is_ipv4 = family == socket.AF_INET
        """True if addresses of the kernel need no translation."""
        self._to_kernel: dict[Address, KernelAddress] = {}
        self._from_kernel: dict[KernelAddress, Address] = {}

    def to_kernel(self, address: Address) -> KernelAddress:
        """Return an IPv6 address in the form of the kernel. Raises OSError if its scope is no interface's name."""
        found = self._to_kernel.get(address)
        if found is None:
            host, _, scope = address[0].partition("%")
            found = (host, address[1], 0, socket.if_nametoindex(scope) if scope else 0)
            _remember(self._to_kernel, address, found)
        return found

    def from_kernel(self, sender: KernelAddress) -> Address:
        """Return the host and port of an address that the kernel gave, with the scope as part of the host."""
        if self.is_ipv4:
            return sender[:2]
        found = self._from_kernel.get(sender)
        if found is None:
            host, port, _, index = sender
            found = (f"{host}%{_interface_name(index)}" if index and is_link_scoped(host) else host, port)
            _remember(self._from_kernel, sender, found)
        return found


def _remember(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(cache) >= _CACHED_ADDRESSES_MAX:
        cache.clear()
    cache[key] = value


def _interface_name(index: int) -> str:
    try:
        return socket.if_indextoname(index)
    except OSError:  # the interface is gone already
        return str(index)
