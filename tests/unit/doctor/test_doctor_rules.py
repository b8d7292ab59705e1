"""Tests of parsing firewall rules and predicting the fate of packets, against a model that knows all conditions."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.doctor.rules import Chain, Packet, Rule, Ruleset, parse_iptables, parse_nft

GROUP = "239.192.57.40"
DATA = Packet("in", "eth0", "udp", "10.1.2.3", GROUP, (32_768, 60_999), (5740, 5740))
QUERY = Packet("in", "eth0", "igmp", "10.1.2.3", "224.0.0.1")
BACK = Packet("in", "eth0", "udp", "10.1.2.3", "10.1.2.9", (32_768, 60_999), (32_768, 60_999), is_multicast=False)
OUT = Packet("out", "eth0", "udp", "10.1.2.9", GROUP, (32_768, 60_999), (5740, 5740))


def saved(*rules: str, policy: str = "ACCEPT", chains: str = "") -> Ruleset:
    text = f"*filter\n:INPUT {policy} [0:0]\n:OUTPUT ACCEPT [0:0]\n{chains}"
    return Ruleset(parse_iptables(text + "".join(f"[5:300] {rule}\n" for rule in rules) + "COMMIT\n"))


@pytest.mark.parametrize(
    ("rule", "packet", "is_dropped"),
    [
        ("-A INPUT -j DROP", DATA, True),
        ("-A INPUT -p igmp -j DROP", QUERY, True),
        ("-A INPUT -p 2 -j DROP", QUERY, True),
        ("-A INPUT -p igmp -j DROP", DATA, False),
        ("-A INPUT -i eth0 -j DROP", DATA, True),
        ("-A INPUT -i eth+ -j REJECT --reject-with icmp-port-unreachable", DATA, True),
        ("-A INPUT ! -i eth0 -j DROP", DATA, False),
        ("-A INPUT -d 239.0.0.0/8 -j DROP", DATA, True),
        ("-A INPUT ! -d 239.0.0.0/8 -j DROP", DATA, False),
        ("-A INPUT ! -d 239.0.0.0/8 -j DROP", BACK, True),
        ("-A INPUT -p udp -m udp --dport 5740 -j DROP", DATA, True),
        ("-A INPUT -p udp -m udp --dport 5700:5800 -j DROP", DATA, True),
        ("-A INPUT -p udp -m udp --dport 5741 -j DROP", DATA, False),
        ("-A INPUT -p udp -m udp --dport 40000 -j DROP", BACK, None),
        ("-A INPUT -p udp -m udp --dport 1024:65535 -j DROP", BACK, True),
        ("-A INPUT -p udp -m multiport --dports 53,5740,6000:7000 -j DROP", DATA, True),
        ("-A INPUT -p udp -m multiport ! --dports 53,5740 -j DROP", DATA, False),
        ("-A INPUT -m conntrack --ctstate INVALID -j DROP", DATA, False),
        ("-A INPUT -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP", DATA, True),
        ("-A INPUT -m pkttype --pkt-type multicast -j DROP", DATA, True),
        ("-A INPUT -m pkttype --pkt-type multicast -j DROP", BACK, False),
        ("-A INPUT -m statistic --mode random --probability 0.50000000000 -j DROP", DATA, None),
        ('-A INPUT -m comment --comment "keep -j out" -j DROP', DATA, True),
        ("-A INPUT -j LOG --log-prefix DROP", DATA, False),
        ("-A OUTPUT -d 239.0.0.0/8 -j DROP", OUT, True),
        ("-A OUTPUT -d 239.0.0.0/8 -j DROP", DATA, False),
    ],
)
def test_iptables_rules_match_their_packets(rule: str, packet: Packet, is_dropped: bool | None) -> None:
    fate = saved(rule).fate(packet)
    assert fate.is_dropped is is_dropped
    if is_dropped:
        assert fate.rule is not None
        assert fate.rule.remedy == rule.replace("-A ", "iptables -D ", 1)
        assert fate.rule.packets == 5


def test_earlier_accept_rules_win() -> None:
    drop = "-A INPUT -j DROP"
    assert saved("-A INPUT -p udp -m udp --dport 5740 -j ACCEPT", drop).fate(DATA).is_dropped is False
    assert saved("-A INPUT -m set --match-set good src -j ACCEPT", drop).fate(DATA).is_dropped is None
    assert saved("-A INPUT -m limit --limit 5/min -j LOG", drop).fate(DATA).is_dropped is True


def test_policies_and_user_chains_are_followed() -> None:
    assert saved(policy="DROP").fate(DATA).is_dropped is True
    assert saved(policy="DROP").fate(DATA).rule is None
    chain = ":guard - [0:0]\n"
    rules = ("-A INPUT -j guard", "-A guard -d 224.0.0.0/4 -j RETURN", "-A guard -j DROP")
    assert saved(*rules, chains=chain).fate(DATA).is_dropped is False
    assert saved(*rules, chains=chain).fate(BACK).is_dropped is True
    assert saved(*rules, chains=chain, policy="DROP").fate(DATA).is_dropped is True
    assert saved("-A INPUT -g guard", "-A INPUT -j DROP", chains=chain).fate(DATA).is_dropped is False
    assert saved("-A INPUT -j guard", "-A guard -j guard", chains=chain).fate(DATA).is_dropped is False


def nft(expression: list[dict[str, Any]], family: str = "inet", policy: str = "accept") -> Ruleset:
    chain = {"family": family, "table": "t", "name": "c", "type": "filter", "hook": "input", "prio": 0}
    rule = {"family": family, "table": "t", "chain": "c", "handle": 7, "expr": expression}
    entries = [{"metainfo": {}}, {"chain": chain | {"policy": policy}}, {"rule": rule}]
    return Ruleset(parse_nft(json.dumps({"nftables": entries})))


def matching(left: dict[str, Any], right: object, op: str = "==") -> dict[str, Any]:
    return {"match": {"op": op, "left": left, "right": right}}


PORT = {"payload": {"protocol": "udp", "field": "dport"}}
TO = {"payload": {"protocol": "ip", "field": "daddr"}}


@pytest.mark.parametrize(
    ("condition", "is_dropped"),
    [
        (matching(PORT, 5740), True),
        (matching(PORT, 5741), False),
        (matching(PORT, 5740, "!="), False),
        (matching(PORT, {"set": [53, {"range": [5000, 6000]}]}), True),
        (matching(TO, {"prefix": {"addr": "239.0.0.0", "len": 8}}), True),
        (matching(TO, {"range": ["239.192.57.0", "239.192.57.39"]}), False),
        (matching(TO, "@allowed"), None),
        (matching({"meta": {"key": "iifname"}}, "eth0"), True),
        (matching({"meta": {"key": "pkttype"}}, "multicast"), True),
        (matching({"meta": {"key": "l4proto"}}, {"set": ["tcp", "udp"]}), True),
        (matching({"ct": {"key": "state"}}, ["established", "related"], "in"), False),
        (matching({"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, False), None),
        ({"limit": {"rate": 5}}, None),
    ],
)
def test_nft_rules_match_their_packets(condition: dict[str, Any], is_dropped: bool | None) -> None:
    fate = nft([condition, {"counter": {"packets": 9, "bytes": 1}}, {"drop": None}]).fate(DATA)
    assert fate.is_dropped is is_dropped
    if fate.rule is not None:
        assert fate.rule.remedy == "nft delete rule inet t c handle 7"
        assert fate.rule.packets == 9


def test_nft_tables_apply_to_their_family() -> None:
    assert nft([{"drop": None}], "ip6").fate(DATA).is_dropped is False
    assert nft([{"drop": None}], "ip").fate(DATA).is_dropped is True
    assert nft([{"log": None}], policy="drop").fate(DATA).is_dropped is True


@given(st.text() | st.text(' -*:[]!ADROPINUT"0123456789.\n'))
def test_any_iptables_output_is_parsed(text: str) -> None:
    Ruleset(parse_iptables("*filter\n:INPUT DROP [0:0]\n" + text)).fate(DATA)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["nftables", "chain", "rule", "expr", "match", "left", "right", "op", "jump", "counter", "set"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.text() | JSON.map(json.dumps) | JSON.map(lambda inner: json.dumps({"nftables": inner})))
def test_any_nft_output_is_parsed(text: str) -> None:
    Ruleset(parse_nft(text)).fate(DATA)


@given(JSON)
def test_any_nft_expression_is_parsed(expression: object) -> None:
    nft(expression).fate(DATA)  # type: ignore[arg-type]


# The model: if every unknown condition is decided, a packet has one fate. The predicted fates must include it.

CHAINS = ("INPUT", "one", "two")
TARGETS = st.sampled_from(["accept", "drop", "return", "", "jump:one", "jump:two", "goto:two"])
CONDITIONS = {True: (("in", ("eth0",), False),), False: (("in", ("eth9",), False),), None: (("?", ("?",), False),)}
RULES = st.tuples(st.sampled_from([True, False, None]), TARGETS)


def concrete(chains: dict[str, Chain], name: str, choices: dict[int, bool], depth: int = 0) -> str | None:
    """Return the fate of a packet in a chain: accept, drop, or None if the packet passes the end of the chain."""
    for rule in chains[name].rules:
        holds = choices.get(id(rule), rule.conditions == CONDITIONS[True])
        if not holds or not rule.target:
            continue
        kind, _, to = rule.target.partition(":")
        if kind == "return":
            return None
        if kind in ("accept", "drop"):
            return kind
        if depth < 16:
            outcome = concrete(chains, to, choices, depth + 1)
            if outcome is not None or kind == "goto":
                return outcome
    return None


@given(st.lists(st.lists(RULES, max_size=4), min_size=3, max_size=3), st.sampled_from(["accept", "drop"]))
def test_every_actual_fate_is_among_the_predicted_ones(made: list[list[tuple[bool | None, str]]], policy: str) -> None:
    chains = {}
    for name, rules in zip(CHAINS, made, strict=True):
        chain = chains[name] = Chain("t", "f", name, "input" if name == "INPUT" else "", policy=policy)
        for holds, target in rules:
            if name == "two" and ":" in target:  # avoids loops, which the kernel refuses
                target = "drop"
            if name == "one" and target == "jump:one":
                target = "jump:two"
            chain.rules.append(Rule("t", "f", name, "", "", CONDITIONS[holds], target))
    fate = Ruleset(chains.values()).fate(DATA)
    open_rules = [rule for chain in chains.values() for rule in chain.rules if rule.conditions == CONDITIONS[None]]
    for decided in itertools.product([True, False], repeat=min(len(open_rules), 6)):
        choices = {id(rule): holds for rule, holds in zip(open_rules, decided, strict=False)}
        outcome = concrete(chains, "INPUT", choices) or policy
        assert fate.is_dropped is None or fate.is_dropped == (outcome == "drop")
