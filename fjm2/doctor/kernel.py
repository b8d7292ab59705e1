"""Readers of Linux's files of counters, memberships, sockets and settings. They return None where there are no such
files."""

import ipaddress
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

Counters = Mapping[str, int]
"""Counters by name, such as "Udp.RcvbufErrors" and "TcpExt.IPReversePathFilter"."""

_DIGITS = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class UdpSocketLine:
    """A UDP socket of this host."""

    host: str
    port: int
    drops: int
    inode: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel's files, below a root directory that tests can replace."""

    root: Path = Path("/")

    def text(self, path: str) -> str | None:
        """Return the text of a file; None if it does not exist, or is not readable."""
        try:
            return (self.root / path).read_text(errors="replace")
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        text = (self.text(path) or "").strip()
        return int(text) if _DIGITS.fullmatch(text) else None

    def counters(self) -> Counters:
        """Return all protocol counters."""
        found: dict[str, int] = {}
        for name in ("snmp", "netstat"):
            found |= parse_counters(self.text(f"proc/net/{name}") or "")
        return found | parse_counters6(self.text("proc/net/snmp6") or "")

    def groups(self, interface: str, is_ipv6: bool) -> frozenset[str] | None:
        """Return the groups joined by programs of this host on an interface; None if that cannot be read."""
        text = self.text("proc/net/igmp6" if is_ipv6 else "proc/net/igmp")
        if text is None:
            return None
        if is_ipv6:
            return parse_igmp6(text).get(interface, frozenset())
        return parse_igmp(text).get(interface, Membership()).groups

    def igmp_version(self, interface: str) -> str | None:
        """Return the IGMP version now in use, such as "V3". The kernel adapts it to the querier on the network."""
        found = parse_igmp(self.text("proc/net/igmp") or "").get(interface)
        return found.version if found else None

    def udp_sockets(self, is_ipv6: bool) -> tuple[UdpSocketLine, ...] | None:
        text = self.text("proc/net/udp6" if is_ipv6 else "proc/net/udp")
        return None if text is None else parse_udp(text)


def changes(before: Counters, after: Counters) -> dict[str, int]:
    """Return the increase of each counter that has increased."""
    return {name: after[name] - before[name] for name in after if after[name] > before.get(name, after[name])}


def parse_counters(text: str) -> dict[str, int]:
    """Parse /proc/net/snmp and netstat: a line of names, then a line of numbers, both beginning with the protocol."""
    found: dict[str, int] = {}
    for names, numbers in pairwise(text.splitlines()):
        protocol, _, rest = names.partition(":")
        same, _, values = numbers.partition(":")
        fields, counts = rest.split(), values.split()
        if protocol == same and len(fields) == len(counts) and all(map(_DIGITS.fullmatch, counts)):
            found |= {f"{protocol}.{name}": int(count) for name, count in zip(fields, counts, strict=True)}
    return found


def parse_counters6(text: str) -> dict[str, int]:
    """Parse /proc/net/snmp6: "Udp6RcvbufErrors 17" becomes Udp6.RcvbufErrors."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r"(Ip6|Icmp6|Udp6)(\w+)\s+([0-9]+)", line.strip())
        if match:
            found[f"{match[1]}.{match[2]}"] = int(match[3])
    return found


@dataclass(frozen=True, slots=True)
class Membership:
    """IGMP version and groups of an interface, from /proc/net/igmp."""

    version: str = ""
    groups: frozenset[str] = frozenset()


def parse_igmp(text: str) -> dict[str, Membership]:
    """Parse /proc/net/igmp: a line for each interface, followed by an indented line for each group."""
    found: dict[str, Membership] = {}
    name = ""
    for line in text.splitlines()[1:]:
        words = line.split()
        if not words:
            continue
        if not line[0].isspace():
            match = re.fullmatch(r"[0-9]+\s+(\S+)\s*:\s*[0-9]+\s+(V[0-9])\s*", line)
            name = match[1] if match else ""
            if match:
                found[name] = Membership(match[2])
        elif name and re.fullmatch(r"[0-9A-Fa-f]{8}", words[0]):
            group = str(ipaddress.IPv4Address(bytes.fromhex(words[0])[:: _step()]))
            found[name] = Membership(found[name].version, found[name].groups | {group})
    return found


def parse_igmp6(text: str) -> dict[str, frozenset[str]]:
    """Parse /proc/net/igmp6: index, interface and group on each line."""
    found: dict[str, frozenset[str]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and re.fullmatch(r"[0-9A-Fa-f]{32}", words[2]):
            group = str(ipaddress.IPv6Address(bytes.fromhex(words[2])))
            found[words[1]] = found.get(words[1], frozenset()) | {group}
    return found


_UDP_LINE = re.compile(r"\s*[0-9]+:\s+([0-9A-Fa-f]{32}|[0-9A-Fa-f]{8}):([0-9A-Fa-f]{4})\s+\S+\s+.*")


def parse_udp(text: str) -> tuple[UdpSocketLine, ...]:
    """Parse /proc/net/udp or /proc/net/udp6."""
    found = []
    for line in text.splitlines():
        match = _UDP_LINE.fullmatch(line)
        words = line.split()
        if match and len(words) >= 13 and words[-1].isdigit() and words[9].isdigit():
            found.append(UdpSocketLine(_host(match[1]), int(match[2], 16), int(words[-1]), int(words[9])))
    return tuple(found)


def _host(digits: str) -> str:
    """Return the address that `digits` stand for. The digits are words in the machine's byte order."""
    packed = b"".join(bytes.fromhex(digits[at : at + 8])[:: _step()] for at in range(0, len(digits), 8))
    return str(ipaddress.ip_address(packed))


def _step() -> int:
    return -1 if sys.byteorder == "little" else 1
