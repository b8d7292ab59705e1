"""Tests of `fjm2 doctor` on hosts whose firewall drops datagrams.

The doctor names each rule, and the remedy that it proposes helps.
"""

from collections.abc import Callable

import pytest
from doctoring import GROUP, PORT, doctor, subscriber, two_hosts, unprivileged
from netns import Network


@pytest.mark.root
@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("-A OUTPUT -p igmp -j DROP", "igmp_dropped"),
        pytest.param("-A INPUT -p igmp -j DROP", "igmp_dropped", marks=pytest.mark.nightly),
        (f"-A INPUT -d {GROUP} -j DROP", "group_dropped"),
        pytest.param(f"-A INPUT -p udp --dport {PORT} -j DROP", "group_dropped", marks=pytest.mark.nightly),
        (f"-A OUTPUT -p udp -d {GROUP} -j REJECT", "group_dropped"),
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


@pytest.mark.root
def test_without_privileges_the_unchecked_parts_are_named(network: Network) -> None:
    pair = two_hosts(network)
    pair[0].run("iptables", "-A", "INPUT", "-d", GROUP, "-j", "DROP")
    found = unprivileged(pair[0])
    assert found.check("firewall")["verdict"] == "unknown"
    assert found.of("nothing_comes_back")["verdict"] == "fault"


@pytest.mark.root
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
