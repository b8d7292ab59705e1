"""Tests of `fjm2 doctor` on hosts whose firewall drops datagrams.

The doctor names each rule, and the remedy that it proposes helps.
"""

import select
from collections.abc import Callable

import numpy as np
import pytest
from doctoring import GROUP, PORT, doctor, subscriber, two_hosts, unprivileged
from netns import Namespace, Network

from fjm2.norm import Train, UdpConfig, UdpTransport


@pytest.mark.root
@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("-A OUTPUT -p igmp -j DROP", "igmp_dropped"),
        pytest.param("-A INPUT -p igmp -j DROP", "igmp_dropped", marks=pytest.mark.nightly),
        pytest.param(f"-A INPUT -d {GROUP} -j DROP", "group_dropped", marks=pytest.mark.nightly),
        pytest.param(f"-A INPUT -p udp --dport {PORT} -j DROP", "group_dropped", marks=pytest.mark.nightly),
        pytest.param(f"-A OUTPUT -p udp -d {GROUP} -j REJECT", "group_dropped", marks=pytest.mark.nightly),
        ("-A INPUT -p udp -m addrtype ! --dst-type MULTICAST -j DROP", "way_back_dropped"),
        pytest.param(f"-A INPUT -i veth0 -p udp ! -d {GROUP} -j DROP", "way_back_dropped", marks=pytest.mark.nightly),
    ],
)
def test_the_rule_of_iptables_that_is_in_the_way_is_named(network: Network, rule: str, problem: str) -> None:
    pair = two_hosts(network)
    host = pair[0]
    host.run("iptables", *rule.split())
    found = doctor(host)
    finding = found.of(problem)
    assert found.code == 2
    assert finding["verdict"] == "fault"
    assert rule.split()[-1] in finding["text"]
    (remedy,) = finding["advice"]
    host.run("sh", "-c", remedy)
    assert problem not in doctor(host).problems()


@pytest.mark.root
def test_counters_tell_of_a_rule_that_is_not_understood(network: Network) -> None:
    pair = two_hosts(network)
    match = "-A INPUT -p udp -m statistic --mode nth --every 2 --packet 0"
    pair[0].run("iptables", *f"{match} -j DROP".split())
    finding = doctor(pair[0]).of("group_dropped")
    assert finding["figures"]["packets"] > 10
    assert "statistic" in finding["text"]


@pytest.mark.root
def test_a_drop_policy_and_its_exceptions_are_understood(network: Network) -> None:
    pair = two_hosts(network)
    host = pair[0]
    host.run("iptables", "-P", "INPUT", "DROP")
    found = doctor(host)
    assert {"group_dropped", "way_back_dropped", "igmp_dropped"} <= found.problems("fault")
    for finding in found.findings:
        if finding["check"] == "firewall":
            host.run("sh", "-c", finding["advice"][0])
    assert not {"group_dropped", "way_back_dropped", "igmp_dropped"} & doctor(host).problems()


@pytest.mark.root
def test_rules_of_nft_are_read_as_well(network: Network, require_tool: Callable[[str], str]) -> None:
    pair = two_hosts(network)
    nft, host = require_tool("nft"), pair[0]
    host.run(nft, "add table inet guard; add chain inet guard i { type filter hook input priority 0; }")
    host.run(nft, f"add rule inet guard i ip daddr 239.0.0.0/8 udp dport {{ 1000-2000, {PORT} }} drop")
    finding = doctor(host).of("group_dropped")
    host.run("sh", "-c", finding["advice"][0])
    assert "group_dropped" not in doctor(host).problems()


INPUT_DROPS = "iptables -P INPUT DROP"
OWN_TABLE = """
table inet fw {
    chain input { type filter hook input priority 0; policy drop; iif lo accept; tcp dport 22 accept; }
    chain output { type filter hook output priority 0; policy accept; }
}
"""
OWN_TABLES = """
table ip early {
    chain pre { type filter hook prerouting priority -150; policy drop; iif lo accept; }
}
table inet fw {
    chain input { type filter hook input priority 0; policy drop; iif lo accept; }
    chain output { type filter hook output priority 0; policy drop; }
}
"""


def is_heard(here: Namespace, there: Namespace) -> bool:
    """Return True if a datagram from `there` to the group is received `here`."""
    with here.entered():
        receiver = UdpTransport(UdpConfig(group=GROUP, port=PORT, interface="veth0"))
    with there.entered():
        sender = UdpTransport(UdpConfig(group=GROUP, port=PORT, interface="veth0"))
    with receiver, sender:
        assert sender.send(Train(np.frombuffer(b"hello", np.uint8), 5, sender.destination))
        select.select([receiver.group.fileno()], [], [], 1.0)
        return receiver.group.receive() is not None


@pytest.mark.root
@pytest.mark.parametrize(
    ("tables", "beside"),
    [
        pytest.param(OWN_TABLE, "", id="one table", marks=pytest.mark.nightly),
        pytest.param(OWN_TABLE, INPUT_DROPS, id="one table beside iptables", marks=pytest.mark.nightly),
        pytest.param(OWN_TABLES, "", id="tables for each hook", marks=pytest.mark.nightly),
        pytest.param(OWN_TABLES, INPUT_DROPS, id="tables for each hook beside iptables"),
    ],
)
def test_a_drop_policy_in_a_table_of_nft_is_overcome_by_the_commands_told(
    network: Network, require_tool: Callable[[str], str], tables: str, beside: str
) -> None:
    host, other = two_hosts(network)
    host.run(require_tool("nft"), tables)
    host.run("sh", "-c", beside or "true")
    found = doctor(host)
    assert {"group_dropped", "way_back_dropped", "igmp_dropped"} <= found.problems("fault")
    assert not is_heard(host, other)
    for finding in found.findings:
        if finding["check"] == "firewall":
            host.run("sh", "-c", finding["advice"][0])
    again = doctor(host)
    assert not {"group_dropped", "way_back_dropped", "igmp_dropped", "firewall_refuses"} & again.problems()
    assert is_heard(host, other)
    assert is_heard(other, host)


@pytest.mark.root
def test_a_reject_of_nft_is_called_so(network: Network, require_tool: Callable[[str], str]) -> None:
    host, _ = two_hosts(network)
    nft = require_tool("nft")
    host.run(nft, "add table inet fw; add chain inet fw output { type filter hook output priority 0; }")
    host.run(nft, f"add rule inet fw output ip daddr {GROUP} reject")
    found = doctor(host)
    assert f"nft inet fw destination {GROUP} reject (handle " in found.of("group_dropped")["text"]
    assert "above" not in " ".join(found.of("firewall_refuses")["advice"])


@pytest.mark.root
def test_a_table_for_the_other_family_drops_nothing(network: Network, require_tool: Callable[[str], str]) -> None:
    host, _ = two_hosts(network)
    host.run(require_tool("nft"), "table ip6 fw { chain input { type filter hook input priority 0; policy drop; }; }")
    assert not {"group_dropped", "way_back_dropped", "igmp_dropped"} & doctor(host).problems()


@pytest.mark.root
@pytest.mark.nightly
def test_a_bus_with_ipv6_is_let_through_by_the_commands_told(
    network: Network, require_tool: Callable[[str], str]
) -> None:
    host, _ = two_hosts(network)
    host.run(require_tool("nft"), OWN_TABLE)
    uri = "fjm2://[ff15::57:71]:5740?interface=veth0"
    for finding in doctor(host, uri=uri).findings:
        if finding["check"] == "firewall":
            host.run("sh", "-c", finding["advice"][0])
    assert not {"group_dropped", "way_back_dropped", "igmp_dropped"} & doctor(host, uri=uri).problems()


@pytest.mark.root
def test_a_loopback_that_a_table_of_nft_drops_is_let_through_by_the_command_told(
    network: Network, require_tool: Callable[[str], str]
) -> None:
    host, _ = two_hosts(network)
    host.run(require_tool("nft"), "table inet fw { chain input { type filter hook input priority 0; policy drop; }; }")
    (command,) = doctor(host).check("offload")["advice"]
    host.run("sh", "-c", command)
    assert "127.0.0.1" not in doctor(host).check("offload")["text"]


@pytest.mark.root
def test_without_privileges_the_unchecked_parts_are_named(network: Network) -> None:
    pair = two_hosts(network)
    pair[0].run("iptables", "-A", "INPUT", "-d", GROUP, "-j", "DROP")
    found = unprivileged(pair[0])
    assert found.check("firewall")["verdict"] == "unknown"
    assert found.of("nothing_comes_back")["verdict"] == "fault"


@pytest.mark.root
@pytest.mark.nightly
def test_the_reverse_path_filter_is_named_by_its_counter(network: Network) -> None:
    host, other, elsewhere = (network.namespace() for _ in range(3))
    network.link(host, other, "veth0")
    network.link(host, elsewhere, "veth1")
    other.ip("address", "flush", "dev", "veth0", "scope", "global")
    other.ip("address", "add", "10.99.0.9/24", "dev", "veth0")
    host.ip("route", "add", "10.99.0.0/24", "via", "10.57.2.2")  # answers would leave by the other interface
    host.run("sysctl", "-qw", "net.ipv4.conf.all.rp_filter=1")
    subscriber(other, "veth0")
    found = doctor(host)
    finding = found.of("reverse_path_dropped")
    assert finding["figures"]["packets"] > 0
    assert "10.99.0.9" in finding["text"]
    host.run("sh", "-c", finding["advice"][1])
    assert "reverse_path_dropped" not in doctor(host).problems()


@pytest.mark.root
@pytest.mark.nightly
def test_the_reverse_path_rule_of_iptables_is_named(network: Network) -> None:
    host, other = network.namespace(), network.namespace()
    network.link(host, other)
    other.ip("address", "flush", "dev", "veth0", "scope", "global")
    other.ip("address", "add", "10.99.0.9/24", "dev", "veth0")
    host.run("iptables", *["-t", "raw", "-A", "PREROUTING", "-m", "rpfilter", "--invert", "-j", "DROP"])
    subscriber(other, "veth0")
    found = doctor(host)
    assert found.of("reverse_path_dropped")["advice"] == ["iptables -t raw -D PREROUTING -m rpfilter --invert -j DROP"]
    assert "10.99.0.9" in found.of("dropped_inside")["text"]
