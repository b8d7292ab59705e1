"""Tests of parsing the kernel's files: values are read correctly, and any content is handled."""

import ipaddress
import sys
from collections.abc import Callable
from pathlib import Path
from string import ascii_letters, ascii_lowercase, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.doctor.kernel import Kernel, changes, parse_counters, parse_counters6, parse_igmp, parse_igmp6, parse_udp
from fjm2.doctor.network import parse_routes


def words_of(first: str, others: str, most: int) -> st.SearchStrategy[str]:
    """Draw words of one character of `first` and up to `most` characters of `others`.

    Drawing words by a regular expression takes ten times as long.
    """
    return st.builds(str.__add__, st.sampled_from(first), st.text(others, max_size=most))


NAMES = words_of(ascii_letters, ascii_letters + digits, 12)
INTERFACES = words_of(ascii_lowercase, ascii_lowercase + digits + ".-", 10)
GROUPS4 = st.ip_addresses(v=4, network="224.0.0.0/4").map(str)
GROUPS6 = st.ip_addresses(v=6, network="ff00::/8").map(str)
COUNTS = st.integers(0, (1 << 64) - 1)

NETSTAT = """TcpExt: SyncookiesSent IPReversePathFilter
TcpExt: 0 17
IpExt: InNoRoutes
IpExt: 3
"""
UDP = """   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode drops
  117: 2839C0EF:166C 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 8812 2 0000000000000000 41
"""


def words(packed: bytes) -> str:
    """Return an address as the kernel writes it: 32-bit words in the machine's byte order, in hexadecimal."""
    step = -1 if sys.byteorder == "little" else 1
    return "".join(packed[at : at + 4][::step].hex().upper() for at in range(0, len(packed), 4))


def test_counters_are_read_by_protocol_and_name() -> None:
    counters = parse_counters(NETSTAT)
    assert counters == {"TcpExt.SyncookiesSent": 0, "TcpExt.IPReversePathFilter": 17, "IpExt.InNoRoutes": 3}


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, COUNTS, min_size=1), max_size=4))
def test_counters_are_parsed_as_written(made: dict[str, dict[str, int]]) -> None:
    text = "".join(
        f"{protocol}: {' '.join(counts)}\n{protocol}: {' '.join(map(str, counts.values()))}\n"
        for protocol, counts in made.items()
    )
    expected = {f"{protocol}.{name}": count for protocol, counts in made.items() for name, count in counts.items()}
    assert parse_counters(text) == expected


@given(st.dictionaries(NAMES, COUNTS), st.dictionaries(NAMES, COUNTS))
def test_only_increases_are_changes(before: dict[str, int], after: dict[str, int]) -> None:
    risen = changes(before, after)
    assert all(amount > 0 and before[name] + amount == after[name] for name, amount in risen.items())
    assert {name for name in before.keys() & after.keys() if after[name] > before[name]} == set(risen)


def test_ipv6_counters_are_parsed() -> None:
    assert parse_counters6("Udp6RcvbufErrors   \t 41\nSomethingElse 2\n") == {"Udp6.RcvbufErrors": 41}


@given(st.dictionaries(INTERFACES, st.tuples(st.sampled_from(["V1", "V2", "V3"]), st.frozensets(GROUPS4)), max_size=5))
def test_memberships_are_parsed_as_written(made: dict[str, tuple[str, frozenset[str]]]) -> None:
    lines = ["Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter"]
    for index, (name, (version, groups)) in enumerate(made.items(), start=1):
        lines.append(f"{index}\t{name:<10}: {len(groups):5d}      {version}")
        packed = (ipaddress.ip_address(group).packed for group in groups)
        lines += [f"\t\t\t\t{words(one)}     1 0:00000000\t\t0" for one in packed]
    found = parse_igmp("\n".join(lines))
    assert {name: (one.version, one.groups) for name, one in found.items()} == made


@given(st.dictionaries(INTERFACES, st.frozensets(GROUPS6, min_size=1), max_size=5))
def test_ipv6_memberships_are_parsed_as_written(made: dict[str, frozenset[str]]) -> None:
    text = "".join(
        f"{index:<4} {name:<15} {ipaddress.ip_address(group).packed.hex()} {1:5} 0000000C 0\n"
        for index, (name, groups) in enumerate(made.items())
        for group in groups
    )
    assert parse_igmp6(text) == made


@pytest.mark.skipif(sys.byteorder != "little", reason="the sample is of a little-endian machine")
def test_sockets_are_parsed_with_their_drops() -> None:
    (line,) = parse_udp(UDP)
    assert (line.host, line.port, line.drops, line.inode) == ("239.192.57.40", 5740, 41, 8812)


def test_multicast_routes_are_recognised() -> None:
    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    text = head + "eth0\t00000000\t010010AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
    text += "eth1\t000000E0\t00000000\t0001\t0\t0\t0\t000000F0\t0\t0\t0\n"
    assert [str(network) for network in parse_routes(text)] == ["0.0.0.0/0", "224.0.0.0/4"]


@pytest.mark.parametrize("parse", [parse_counters, parse_counters6, parse_igmp, parse_igmp6, parse_udp, parse_routes])
@given(text=st.text() | st.text("0123456789ABCDEFabcdef: \t\nV-"))
def test_parsers_accept_any_file(parse: Callable[[str], object], text: str) -> None:
    parse(text)


def test_missing_files_are_unknown(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    assert kernel.text("proc/net/igmp") is None
    assert kernel.number("proc/sys/net/core/rmem_max") is None
    assert kernel.groups("eth0", is_ipv6=False) is None
    assert kernel.udp_sockets(is_ipv6=False) is None
    assert kernel.igmp_version("eth0") is None
    assert kernel.counters() == {}
