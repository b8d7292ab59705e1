"""The host's firewall: reads its rules, and finds those that block a bus."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from fjm2.base.quantities import counted

from .rules import Chain, Fate, Packet, Rule, Ruleset, matches, parse_iptables, parse_nft
from .scene import Scene
from .verdict import Finding, fault, ok, unknown, warning

Hits = dict[tuple[str, str, str, str], int]
"""Number of packets by which the counters of rules increased, by the keys of the rules."""

_TIMEOUT_S = 1.0  # listing rules takes milliseconds
_REVERSE_PATH = {"rpfilter", "fib"}
"""Names of reverse-path conditions in iptables and nft."""
_EPHEMERAL = (32_768, 60_999)
"""Range that Linux draws source ports from by default."""
_NFT_WORD = re.compile(r"[A-Za-z][A-Za-z0-9/._-]*")
"""Names that nft reads without quotation marks."""


@dataclass(frozen=True, slots=True)
class FirewallState:
    """Firewall rules, as far as they could be read."""

    ruleset: Ruleset | None
    """The rules; None if nothing could be read, for lack of privileges or tools."""
    reason: str = ""


def read_firewall(is_ipv6: bool) -> FirewallState:
    """Read all rules, with their current counters."""
    chains: list[Chain] = []
    problems: list[str] = []
    has_read = False
    tool = "ip6tables" if is_ipv6 else "iptables"
    for command in ((f"{tool}-save", "-c"), ("nft", "-j", "list", "ruleset")):
        text, problem = _output_of(*command)
        if text is None:
            problems.append(problem)
            continue
        has_read = True
        chains += (
            parse_iptables(text, tool) if command[0] != "nft" else without_iptables_tables(chains, parse_nft(text))
        )
    if not has_read:
        return FirewallState(None, "; ".join(problems))
    return FirewallState(Ruleset(chains))


def without_iptables_tables(chains: list[Chain], found: list[Chain]) -> list[Chain]:
    """Return chains found by nft, without the tables of iptables, which nft lists as well."""
    families = {"iptables": "ip", "ip6tables": "ip6"}
    known = {(f"{families[one.tool]} {one.table}", one.name) for one in chains}
    return [one for one in found if (one.table, one.name) not in known]


def _output_of(*command: str) -> tuple[str | None, str]:
    """Return the output of a tool, or None and the reason why there is none."""
    path = shutil.which(command[0]) or shutil.which(command[0], path="/usr/sbin:/sbin")
    if path is None:
        return None, f"no {command[0]}"
    try:
        done = subprocess.run((path, *command[1:]), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None, f"{command[0]} does not answer"
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        return None, f"{command[0]}: {said[0] if said else 'no reason given'}"
    return done.stdout, ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """A kind of packet that a bus depends on, and the consequence if it is dropped."""

    problem: str
    name: str
    consequence: str
    packet: Packet


def requirements(scene: Scene) -> Iterator[Requirement]:
    """Yield the kinds of packets that a bus depends on, in both directions: data of the group, packets from one member
    to another, and IGMP or MLD."""
    assert scene.place is not None
    name, own, group = scene.interface.name, scene.place.address.partition("%")[0], scene.group
    data = (scene.udp.port, scene.udp.port)
    # Our own address stands for a neighbour's in rules about networks.
    control, routers, everybody, word = (
        ("icmpv6", "ff02::16", "ff02::1", "MLD") if scene.is_ipv6 else ("igmp", "224.0.0.22", "224.0.0.1", "IGMP")
    )
    udp = "udp"
    yield Requirement(
        "group_dropped",
        f"packets to {group} port {data[0]}",
        "no other host hears this one",
        Packet("out", name, udp, own, group, _EPHEMERAL, data),
    )
    yield Requirement(
        "group_dropped",
        f"packets from others to {group} port {data[0]}",
        "this host hears no other",
        Packet("in", name, udp, own, group, _EPHEMERAL, data),
    )
    yield Requirement(
        "way_back_dropped",
        "packets from members to this host alone (NACKs, acknowledgements)",
        "this host sends no repairs to others, and its flow control does not see them",
        Packet("in", name, udp, own, own, _EPHEMERAL, _EPHEMERAL, is_multicast=False),
    )
    yield Requirement(
        "way_back_dropped",
        "packets from this host to one member alone (NACKs, acknowledgements)",
        "nothing that this host loses is repaired",
        Packet("out", name, udp, own, own, _EPHEMERAL, _EPHEMERAL, is_multicast=False),
    )
    if not scene.interface.is_loopback:
        yield Requirement(
            "igmp_dropped",
            f"outgoing {word} reports",
            "switches never learn that this host is a member, and send it nothing",
            Packet("out", name, control, own, routers),
        )
        yield Requirement(
            "igmp_dropped",
            f"incoming {word} queries",
            "this host does not answer them, and switches forget it after minutes",
            Packet("in", name, control, own, everybody),
        )


def check_firewall(scene: Scene, before: FirewallState, after: FirewallState, *, is_losing: bool) -> Iterator[Finding]:
    """Yield findings about rules that drop packets which a bus needs.

    Such rules are found by their conditions, and by the increase of their counters between two readings. `is_losing` is
    True if packets of the bus were lost within the host between the readings. Only then is a rule blamed that is not
    fully understood but has dropped packets.
    """
    if before.ruleset is None or after.ruleset is None:
        yield unknown("firewall", f"cannot read the rules ({before.reason or after.reason})", "sudo fjm2 doctor")
        return
    hits = risen(before.ruleset, after.ruleset)
    told: set[object] = set()
    for requirement in requirements(scene):
        for cause, finding in _judge(requirement, after.ruleset, hits, is_losing):
            if cause not in told:
                told.add(cause)
                yield finding
    if not told:
        rules = sum(1 for _ in after.ruleset.rules())
        yield ok("firewall", f"none of {counted(rules, 'rule')} blocks IGMP, the group or the way back", rules=rules)


def risen(before: Ruleset, after: Ruleset) -> Hits:
    """Return the number of packets by which the counter of each rule has increased. Other rules are left out."""
    earlier = {rule.key: rule.packets for rule in before.rules()}
    found = {}
    for rule in after.rules():
        was = earlier.get(rule.key)
        if rule.packets is not None and was is not None and rule.packets > was:
            found[rule.key] = rule.packets - was
    return found


def _judge(requirement: Requirement, ruleset: Ruleset, hits: Hits, is_losing: bool) -> Iterator[tuple[object, Finding]]:
    """Yield causes and findings for one requirement: one for each chain that drops its packets, or else one for those
    that may. Requirements with the same cause are reported once."""
    fates = list(ruleset.fates(requirement.packet))
    for fate in fates:
        if fate.is_dropped and fate.chain is not None:
            yield (requirement, fate.chain.key), _dropping(requirement, fate, fate.chain, hits)
    if fates and not any(fate.is_dropped for fate in fates):
        yield _perhaps(requirement, fates[0], ruleset, hits, is_losing)


def _perhaps(
    requirement: Requirement, fate: Fate, ruleset: Ruleset, hits: Hits, is_losing: bool
) -> tuple[object, Finding]:
    """Return the cause and the finding for packets that may be dropped."""
    rule = _counting(requirement.packet, ruleset, hits)
    if rule is not None:
        return rule.key, _blaming(requirement, rule, hits[rule.key], is_losing)
    is_benign = fate.rule is not None and (fate.rule.packets is not None or _REVERSE_PATH & set(fate.rule.subjects))
    if fate.rule is not None and is_benign:
        seen = ", but did not during the examination" if fate.rule.packets is not None else ""
        return fate.rule.key, unknown("firewall", f"{_named(fate.rule)} may drop {requirement.name}{seen}")
    assert fate.chain is not None
    where = _named(fate.rule) if fate.rule else f"the policy of {_chain_named(fate.chain)}"
    text = f"the firewall may drop {requirement.name}: {where}; it has conditions that the doctor does not understand"
    return where, warning("firewall", requirement.problem, text, _allowing(requirement.packet, fate.chain))


def _blaming(requirement: Requirement, rule: Rule, count: int, is_losing: bool) -> Finding:
    """Blame a rule with unknown conditions whose counter increased, for packets of the bus or for others."""
    problem = "reverse_path_dropped" if _REVERSE_PATH & set(rule.subjects) else requirement.problem
    if not is_losing:
        text = f"{_named(rule)} dropped {counted(count, 'packet')} during the examination: perhaps {requirement.name}"
        return warning("firewall", problem, text, f"if it should not: {rule.remedy}", packets=count)
    seen = f"{counted(count, 'packet')} during the examination"
    text = f"the firewall drops {requirement.name}: {_named(rule)}, {seen}; {requirement.consequence}"
    return fault("firewall", problem, text, rule.remedy, packets=count)


def _dropping(requirement: Requirement, fate: Fate, chain: Chain, hits: Hits) -> Finding:
    if fate.rule is not None:
        count = hits.get(fate.rule.key, 0)
        seen = f", {counted(count, 'packet')} during the examination" if count else ""
        text = f"the firewall drops {requirement.name}: {_named(fate.rule)}{seen}; {requirement.consequence}"
        return fault("firewall", requirement.problem, text, fate.rule.remedy, packets=count)
    reason = f"{_chain_named(chain)} drops everything that is not allowed"
    text = f"the firewall drops {requirement.name}, since {reason}; {requirement.consequence}"
    return fault("firewall", requirement.problem, text, _allowing(requirement.packet, chain))


def _counting(packet: Packet, ruleset: Ruleset, hits: Hits) -> Rule | None:
    """Return a rule with unknown conditions that may drop the packet, and whose counter increased."""
    dropping = (rule for rule in ruleset.rules() if rule.target == "drop" and rule.key in hits)
    return next((rule for rule in dropping if matches(rule, packet) is None), None)


def _named(rule: Rule) -> str:
    return f"{rule.tool} -t {rule.table} {rule.text}" if rule.tool != "nft" else f"nft {rule.table} {rule.text}"


def _chain_named(chain: Chain) -> str:
    return f"{chain.tool}'s {chain.table} {chain.name}" if chain.tool == "nft" else f"{chain.tool}'s {chain.name}"


def _allowing(packet: Packet, chain: Chain) -> str:
    """Return a command that makes a base chain accept the packet."""
    one_group = packet.is_multicast and packet.protocol == "udp" and packet.ports is not None
    if chain.tool == "nft":
        return _allowing_by_nft(packet, chain, packet.ports if one_group else None)
    interface = "-i" if packet.way == "in" else "-o"
    table = [] if chain.table == "filter" else ["-t", chain.table]
    words = [chain.tool, *table, "-I", chain.name, interface, packet.interface, "-p", packet.protocol]
    if one_group and packet.ports is not None:
        words += ["-d", packet.destination or "", "--dport", str(packet.ports[0])]
    return " ".join([*words, "-j", "ACCEPT"])


def _allowing_by_nft(packet: Packet, chain: Chain, ports: tuple[int, int] | None) -> str:
    name = packet.interface if _NFT_WORD.fullmatch(packet.interface) else f'"{packet.interface}"'
    words = [*chain.table.split(" ", 1), chain.name, "iifname" if packet.way == "in" else "oifname", name]
    if ports is not None:
        words += ["ip6" if packet.is_ipv6 else "ip", "daddr", packet.destination or "", "udp", "dport", str(ports[0])]
    else:
        words += ["meta", "l4proto", "ipv6-icmp" if packet.protocol == "icmpv6" else packet.protocol]
    return " ".join(["nft", "insert", "rule", *map(shlex.quote, words), "accept"])


def allow_loopback() -> tuple[str, ...]:
    """Return commands that let the firewall pass what 127.0.0.1 sends to itself; none if its rules cannot be read, or
    drop nothing of that."""
    ruleset = read_firewall(False).ruleset or Ruleset(())
    own = "127.0.0.1"
    packets = [Packet(way, "lo", "udp", own, own, _EPHEMERAL, _EPHEMERAL, is_multicast=False) for way in ("out", "in")]
    found = ((packet, fate) for packet in packets for fate in ruleset.fates(packet) if fate.is_dropped)
    commands = (
        fate.rule.remedy if fate.rule else _allowing(packet, fate.chain) for packet, fate in found if fate.chain
    )
    return tuple(dict.fromkeys(commands))
