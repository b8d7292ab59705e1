"""Firewall rules of any tool in one form, and what they do to a packet. No I/O.

A condition is True or False for a packet, or None if it depends on more than is known here. So a walk through the
chains has one outcome, or two that are both possible.
"""

import ipaddress
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Condition = tuple[str, tuple[str, ...], bool]
"""Condition of a rule: its subject, values of which one must match, and True if the condition is negated."""

_DEPTH_MAX = 16  # as many jumps as nft allows
_PASSED, _NEXT = "passed", "next"


@dataclass(frozen=True, slots=True)
class Packet:
    """A hypothetical packet. A range of ports, such as (40000, 60000), stands for any port in it; None for no ports."""

    way: str
    """Direction of the packet: in or out."""
    interface: str
    protocol: str
    """Protocol of the packet: udp, igmp or icmpv6."""
    source: str | None
    """Source address of the packet; None if it may be any address."""
    destination: str | None
    source_ports: tuple[int, int] | None = None
    ports: tuple[int, int] | None = None
    is_multicast: bool = True

    @property
    def is_ipv6(self) -> bool:
        return ":" in (self.destination or self.source or "")


@dataclass(frozen=True, slots=True)
class Rule:
    """A firewall rule."""

    tool: str
    """Tool that lists the rule: iptables, ip6tables or nft."""
    table: str
    chain: str
    text: str
    """The rule as its tool prints it."""
    remedy: str
    """Command that removes the rule."""
    conditions: tuple[Condition, ...]
    target: str
    """Action of the rule: accept, drop, return, jump:CHAIN, goto:CHAIN, or "" if the next rule follows in any case."""
    packets: int | None = None
    """Number of packets that the rule matched; None if they are not counted."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.tool, self.table, self.chain, self.text

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(subject for subject, _, _ in self.conditions)


@dataclass(slots=True)
class Chain:
    """A list of rules. A base chain has a hook."""

    tool: str
    table: str
    name: str
    hook: str = ""
    """Hook of a base chain: input, output, prerouting or postrouting. Empty for a chain that is only jumped to."""
    priority: int = 0
    policy: str = "accept"
    rules: list[Rule] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.tool, self.table, self.name

    def sees(self, packet: Packet) -> bool:
        """Return False if the packet is of another family than the chain's table."""
        family = {"iptables": "ip", "ip6tables": "ip6"}.get(self.tool, self.table.partition(" ")[0])
        return family not in ("ip", "ip6") or packet.is_ipv6 == (family == "ip6")


@dataclass(frozen=True, slots=True)
class Fate:
    """The outcome for a packet."""

    is_dropped: bool | None
    """True if the packet is dropped, False if it is not, None if it may be."""
    rule: Rule | None = None
    """Rule that drops the packet; None if the policy of a chain does."""
    chain: Chain | None = None
    """Base chain in which the packet is dropped; None if it is not."""


class Ruleset:
    """All firewall chains of a host."""

    def __init__(self, chains: Iterable[Chain]) -> None:
        self.chains = list(chains)
        self._by_name = {one.key: one for one in self.chains}

    def rules(self) -> Iterator[Rule]:
        for chain in self.chains:
            yield from chain.rules

    def fate(self, packet: Packet) -> Fate:
        """Return the outcome for a packet in all hooks that it passes: the first chain that drops it, or may."""
        found = list(self.fates(packet))
        return next((one for one in found if one.is_dropped), found[0] if found else Fate(False))

    def fates(self, packet: Packet) -> Iterator[Fate]:
        """Yield the outcome in each base chain that drops a packet, or may, in the order of the kernel. To pass, the
        packet must be accepted by all of them: no chain overrides another."""
        hooks = ("prerouting", "input") if packet.way == "in" else ("output", "postrouting")
        for hook in hooks:
            for chain in sorted((one for one in self.chains if one.hook == hook), key=lambda one: one.priority):
                if not chain.sees(packet):
                    continue
                ends = self._ends(chain, packet, 0)
                if _PASSED in ends:
                    ends.setdefault(chain.policy, ends[_PASSED])
                if "drop" in ends:
                    yield Fate(None if "accept" in ends else True, ends["drop"], chain)

    def _ends(self, chain: Chain, packet: Packet, depth: int) -> dict[str, Rule | None]:
        """Return the possible outcomes of a chain, with the rule of each: accept, drop, or passing its end."""
        ends: dict[str, Rule | None] = {}
        for rule in chain.rules:
            holds = matches(rule, packet)
            if holds is False or not rule.target:
                continue
            here = self._ends_of(rule, packet, depth)
            goes_on = here.pop(_NEXT, rule) is None or not holds
            for kind, by in here.items():
                ends.setdefault(kind, by)
            if not goes_on:
                return ends
        ends.setdefault(_PASSED, None)
        return ends

    def _ends_of(self, rule: Rule, packet: Packet, depth: int) -> dict[str, Rule | None]:
        """Return the possible outcomes of a rule that matches. `_NEXT` is among them if the next rule may be
        reached."""
        kind, _, name = rule.target.partition(":")
        if kind == "return":
            return {_PASSED: None}
        if kind in ("accept", "drop"):
            return {kind: rule}
        chain = self._by_name.get((rule.tool, rule.table, name))
        if chain is None or depth >= _DEPTH_MAX:
            return {_NEXT: None}
        ends = self._ends(chain, packet, depth + 1)
        if kind == "jump" and _PASSED in ends:
            ends[_NEXT] = ends.pop(_PASSED)
        return ends


def matches(rule: Rule, packet: Packet) -> bool | None:
    """Return True if a rule matches a packet, or None if that depends on more than is known of the packet."""
    outcome: bool | None = True
    for subject, values, is_negated in rule.conditions:
        holds = _any(_holds(subject, value, packet) for value in values)
        if holds is not None and is_negated:
            holds = not holds
        if holds is False:
            return False
        outcome = outcome if holds else None
    return outcome


def _any(answers: Iterable[bool | None]) -> bool | None:
    known: bool | None = False
    for answer in answers:
        if answer:
            return True
        known = known if answer is False else None
    return known


def _holds(subject: str, value: str, packet: Packet) -> bool | None:
    match subject:
        case "protocol":
            return value in ("all", "0") or _PROTOCOLS.get(value, value) == packet.protocol
        case "in" | "out":
            return packet.way == subject and _is_interface(value, packet.interface)
        case "source":
            return _in_network(packet.source, value)
        case "destination":
            return _in_network(packet.destination, value)
        case "sport":
            return _in_ports(packet.source_ports, value)
        case "dport":
            return _in_ports(packet.ports, value)
        case "state":
            return value.lower() == "new"
        case "pkttype" | "addrtype":
            return (value.lower() == "multicast") == packet.is_multicast
        case "family":
            return (value == "ipv6") == packet.is_ipv6
        case _:
            return None


_PROTOCOLS = {"2": "igmp", "17": "udp", "58": "icmpv6", "ipv6-icmp": "icmpv6", "icmp6": "icmpv6"}


def _is_interface(pattern: str, name: str) -> bool:
    if pattern.endswith(("+", "*")):
        return name.startswith(pattern[:-1])
    return pattern == name


def _in_network(address: str | None, text: str) -> bool | None:
    if address is None:
        return None
    try:
        low, _, high = text.partition("-")
        one = ipaddress.ip_address(address.partition("%")[0])
        if high:
            first, last = ipaddress.ip_address(low), ipaddress.ip_address(high)
            return first.version == one.version and first.packed <= one.packed <= last.packed
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    return network.version == one.version and one in network


def _in_ports(ports: tuple[int, int] | None, text: str) -> bool | None:
    if ports is None:
        return False
    low, _, high = text.replace(":", "-").partition("-")
    if not (low or "0").isdigit() or not (high or "0").isdigit():
        return None
    first = int(low or 0)
    last = int(high) if high else (first if "-" not in text.replace(":", "-") else 65_535)
    if first <= ports[0] and ports[1] <= last:
        return True
    return False if ports[1] < first or last < ports[0] else None


# Parser for iptables.

_HOOKS = {"INPUT": "input", "OUTPUT": "output", "PREROUTING": "prerouting", "POSTROUTING": "postrouting"}
_PRIORITIES = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
_SUBJECTS = {
    "-p": "protocol",
    "-i": "in",
    "-o": "out",
    "-s": "source",
    "-d": "destination",
    "--dport": "dport",
    "--sport": "sport",
    "--dports": "dport",
    "--sports": "sport",
    "--ctstate": "state",
    "--state": "state",
    "--pkt-type": "pkttype",
    "--dst-type": "addrtype",
    "--src-range": "source",
    "--dst-range": "destination",
}
_SPLIT = {"--dports", "--sports", "--ctstate", "--state"}
_TARGETS = {"ACCEPT": "accept", "DROP": "drop", "REJECT": "drop", "RETURN": "return"}
_TRANSPARENT = {"udp", "tcp", "multiport", "conntrack", "state", "pkttype", "addrtype", "iprange", "comment", "icmp6"}
"""Match modules that add no condition besides their options."""
_PLAIN_TARGETS = {"LOG", "NFLOG", "MARK", "CONNMARK", "CT", "NOTRACK", "TRACE", "ULOG", "CHECKSUM", "TOS", "DSCP"}


def parse_iptables(text: str, tool: str = "iptables") -> list[Chain]:
    """Parse the output of `iptables-save -c`. Lines that make no sense are skipped."""
    chains: dict[tuple[str, str], Chain] = {}
    table = ""
    for line in text.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith(":"):
            name, _, rest = line[1:].partition(" ")
            hook = _HOOKS.get(name, "") if table != "nat" else ""
            policy = "drop" if rest.startswith("DROP") else "accept"
            chains[table, name] = Chain(tool, table, name, hook, _PRIORITIES.get(table, 0), policy)
        elif line.startswith(("[", "-A ")):
            rule = _iptables_rule(line, table, tool)
            if rule is not None and (table, rule.chain) in chains:
                chains[table, rule.chain].rules.append(rule)
    return list(chains.values())


def _iptables_rule(line: str, table: str, tool: str) -> Rule | None:
    packets: int | None = None
    if line.startswith("["):
        count, _, line = line[1:].partition("] ")
        packets = int(count.partition(":")[0]) if count.partition(":")[0].isdigit() else None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if len(words) < 2 or words[0] != "-A":
        return None
    conditions, target = _iptables_conditions(words[2:])
    where = "" if table == "filter" else f" -t {table}"
    remedy = f"{tool}{where} -D {line.removeprefix('-A ')}"
    return Rule(tool, table, words[1], line, remedy, conditions, target, packets)


def _iptables_conditions(words: Sequence[str]) -> tuple[tuple[Condition, ...], str]:
    conditions: list[Condition] = []
    target, negated, at = "", False, 0
    while at < len(words):
        word, value = words[at], words[at + 1] if at + 1 < len(words) else ""
        at += 2
        if word == "!":
            negated, at = True, at - 1
            continue
        if word in ("-j", "-g"):
            target = _iptables_target(word, value)
            break  # options of the target follow
        if word in _SUBJECTS:
            values = tuple(value.split(",")) if word in _SPLIT else (value,)
            conditions.append((_SUBJECTS[word], values, negated))
        elif word == "-m":
            if value not in _TRANSPARENT:
                conditions.append((value or "?", (value,), False))
        elif word == "--comment":
            pass
        elif not word.startswith("-") or value.startswith("-") or value == "!":
            at -= 1  # an option without a value, or one value more
        negated = False
    return tuple(conditions), target


def _iptables_target(word: str, name: str) -> str:
    if name in _TARGETS:
        return _TARGETS[name]
    if name in _PLAIN_TARGETS:
        return ""
    return f"{'goto' if word == '-g' else 'jump'}:{name}"


# Parser for nft.

_NFT_META = {"iifname": "in", "iif": "in", "oifname": "out", "oif": "out", "l4proto": "protocol", "pkttype": "pkttype"}
_NFT_PAYLOAD = {"saddr": "source", "daddr": "destination", "sport": "sport", "dport": "dport", "protocol": "protocol"}


def parse_nft(text: str) -> list[Chain]:
    """Parse the output of `nft -j list ruleset`: the families ip, ip6 and inet."""
    try:
        entries = json.loads(text)["nftables"]
    except (ValueError, KeyError, TypeError):
        return []
    chains: dict[tuple[str, str], Chain] = {}
    for entry in entries if isinstance(entries, list) else []:
        if not isinstance(entry, dict):
            continue
        chain, rule = entry.get("chain"), entry.get("rule")
        if isinstance(chain, dict) and chain.get("family") in ("ip", "ip6", "inet"):
            table = f"{chain['family']} {chain.get('table')}"
            hook = str(chain.get("hook", "")) if chain.get("type", "filter") != "nat" else ""
            priority = chain.get("prio", 0)
            chains[table, str(chain.get("name"))] = Chain(
                "nft",
                table,
                str(chain.get("name")),
                hook,
                priority if isinstance(priority, int) else 0,
                str(chain.get("policy", "accept")),
            )
        elif isinstance(rule, dict):
            found = chains.get((f"{rule.get('family')} {rule.get('table')}", str(rule.get("chain"))))
            if found is not None:
                found.rules.append(_nft_rule(rule, found))
    return list(chains.values())


def _nft_rule(rule: Mapping[str, Any], chain: Chain) -> Rule:
    conditions: list[Condition] = []
    if chain.table.startswith("ip "):
        conditions.append(("family", ("ipv4",), False))
    elif chain.table.startswith("ip6 "):
        conditions.append(("family", ("ipv6",), False))
    target, packets, told = "", None, []
    expressions = rule.get("expr")
    for part in expressions if isinstance(expressions, list) else []:
        if not isinstance(part, dict) or not part:
            continue
        kind, body = next(iter(part.items()))
        match kind:
            case "match":
                condition = _nft_condition(body)
                conditions.append(condition)
                told.append(f"{condition[0]} {'!= ' if condition[2] else ''}{', '.join(condition[1])}")
            case "counter":
                packets = body.get("packets") if isinstance(body, dict) else None
            case "accept" | "drop" | "return":
                target = kind
            case "reject":
                target = "drop"  # to a bus it is the same
            case "jump" | "goto":
                target = f"{kind}:{body.get('target') if isinstance(body, dict) else ''}"
            case "log" | "comment" | "notrack" | "mangle":
                pass
            case _:
                conditions.append((kind, (kind,), False))
                told.append(kind)
        if target:
            told.append("reject" if kind == "reject" else target.replace(":", " "))
    handle = rule.get("handle", "?")
    remedy = f"nft delete rule {chain.table} {chain.name} handle {handle}"
    return Rule(
        "nft",
        chain.table,
        chain.name,
        f"{' '.join(told)} (handle {handle})",
        remedy,
        tuple(conditions),
        target,
        packets,
    )


def _nft_condition(body: object) -> Condition:
    if not isinstance(body, dict):
        return "?", ("?",), False
    subject, values = _nft_subject(body.get("left")), tuple(_nft_values(body.get("right")))
    if body.get("op") not in ("==", "!=", "in"):
        subject = "?"
    return subject, values or ("?",), body.get("op") == "!="


def _nft_subject(left: object) -> str:
    match left:
        case {"meta": {"key": str(key)}}:
            return _NFT_META.get(key, f"meta {key}")
        case {"payload": {"protocol": str(), "field": "nexthdr"}}:
            return "protocol"
        case {"payload": {"protocol": str(), "field": str(name)}}:
            return _NFT_PAYLOAD.get(name, name)
        case {"ct": {"key": "state"}}:
            return "state"
        case {"fib": _}:
            return "fib"
        case _:
            return "?"


def _nft_values(right: object) -> Iterator[str]:
    match right:
        case str() | int():
            yield str(right)
        case {"prefix": {"addr": address, "len": length}}:
            yield f"{address}/{length}"
        case {"range": [low, high]}:
            yield f"{low}-{high}"
        case {"set": [*members]} | [*members]:
            for member in members:
                yield from _nft_values(member)
        case _:
            yield "?"
