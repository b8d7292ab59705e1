"""Buses that no other process hears: then no keeper does either, and a connection need not listen for one."""

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fjm2.bus.config import BusConfig

_TABLES: Final = {4: Path("/proc/net/udp"), 6: Path("/proc/net/udp6")}
"""Tables of Linux with a line for each UDP socket of this host, or container, by version of the Internet Protocol."""
_LOCAL: Final = 1
"""Column with the address and the port that a socket is bound to, both in hexadecimal digits."""


def is_alone(config: "BusConfig") -> bool:
    """Return True if what an open bus sends stays on this host, and no other socket here is bound to its port. Return
    False if that is not known, as on systems without the table."""
    address = ipaddress.ip_address(config.group.partition("%")[0])
    if config.ttl > 0 or not address.is_multicast:
        return False
    try:
        lines = _TABLES[address.version].read_text("ascii").splitlines()[1:]
        places = [line.split()[_LOCAL] for line in lines]
    except (OSError, UnicodeDecodeError, IndexError):
        return False
    # The bus has one socket that is bound to its port. A keeper has another, in this process or elsewhere.
    return sum(place.endswith(f":{config.port:04X}") for place in places) == 1
