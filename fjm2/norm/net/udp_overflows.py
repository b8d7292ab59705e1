"""Datagrams that found the buffer of a socket full, of all sockets of this host (Linux)."""

import socket
from pathlib import Path
from typing import Final

_IPV4: Final = Path("/proc/net/snmp")
_IPV6: Final = Path("/proc/net/snmp6")


def overflows(family: socket.AddressFamily) -> int:
    """Return their number since the host, or its network namespace, began; 0 where the kernel does not tell."""
    try:
        return _of_ipv6(_IPV6.read_text()) if family == socket.AF_INET6 else _of_ipv4(_IPV4.read_text())
    except (OSError, ValueError, KeyError):
        return 0


def _of_ipv4(text: str) -> int:
    """Read the line of names that begins with "Udp:", and the line of values behind it."""
    names, values = (line.split() for line in text.splitlines() if line.startswith("Udp:"))
    return int(dict(zip(names, values, strict=True))["RcvbufErrors"])


def _of_ipv6(text: str) -> int:
    return int(dict(line.split() for line in text.splitlines())["Udp6RcvbufErrors"])
