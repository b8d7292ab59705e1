"""The host's firewall: its rules, where they can be read, and which of them stand in the way of a bus."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from .rules import Chain, Fate, Packet, Rule, Ruleset, matches, parse_iptables, parse_nft
from .scene import Scene
from .verdict import Finding, fault, ok, unknown, warning

Hits = dict[tuple[str, str, str, str], int]
"""By how much rules' counters have risen, by their keys."""

_TIMEOUT_S = 1.0
_REVERSE_PATH = {"rpfilter", "fib"}
"""What iptables and nft call conditions about the way back to a sender."""
_EPHEMERAL = (32_768, 60_999)
"""From which the kernel draws ports, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What could be read."""

    ruleset: Ruleset | None
    """None: nothing, for want of privileges or of tools."""
    reason: str = ""


def read_firewall(is_ipv6: bool) -> Reading:
    """All rules as they are now, with their counters."""
    chains: list[Chain] = []
    problems: list[str] = []
    has_read = False
    tool = "ip6tables" if is_ipv6 else "iptables"
    for command in ((f"{tool}-save", "-c"), ("nft", "-j", "list", "ruleset")):
        text, problem = _said(*command)
        if text is None:
            problems.append(problem)
            continue
        has_read = True
        chains += parse_iptables(text, tool) if command[0] != "nft" else besides(chains, parse_nft(text))
    if not has_read:
        return Reading(None, "; ".join(problems))
    return Reading(Ruleset(chains))


def besides(chains: list[Chain], found: list[Chain]) -> list[Chain]:
    """What nft has found, but for iptables' own tables, which it shows as well."""
    families = {"iptables": "ip", "ip6tables": "ip6"}
    known = {(f"{families[one.tool]} {one.table}", one.name) for one in chains}
    return [one for one in found if (one.table, one.name) not in known]


def _said(*command: str) -> tuple[str | None, str]:
    """What a tool prints, or why it does not."""
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
class Matter:
    """Something a bus needs to get through, and what comes of it if it does not."""

    problem: str
    name: str
    consequence: str
    packet: Packet


def matters(scene: Scene) -> Iterator[Matter]:
    """Both ways: the group's data, what members send to one of them, and what keeps memberships alive."""
    assert scene.place is not None
    name, own, group = scene.interface.name, scene.place.address.partition("%")[0], scene.group
    data = (scene.udp.port, scene.udp.port)
    # For rules about networks, our own address stands for a neighbour's.
    control, routers, everybody, word = (
        ("icmpv6", "ff02::16", "ff02::1", "MLD") if scene.is_ipv6 else ("igmp", "224.0.0.22", "224.0.0.1", "IGMP")
    )
    udp = "udp"
    yield Matter(
        "group_dropped",
        f"what is sent to {group} port {data[0]}",
        "nobody hears this host",
        Packet("out", name, udp, own, group, _EPHEMERAL, data),
    )
    yield Matter(
        "group_dropped",
        f"what comes for {group} port {data[0]}",
        "this host hears nobody",
        Packet("in", name, udp, own, group, _EPHEMERAL, data),
    )
    yield Matter(
        "way_back_dropped",
        "what other members send to this host alone (NACKs, acknowledgements)",
        "this host cannot repair for others, and its flow control does not see them",
        Packet("in", name, udp, own, own, _EPHEMERAL, _EPHEMERAL, is_multicast=False),
    )
    yield Matter(
        "way_back_dropped",
        "what this host sends to another member alone (NACKs, acknowledgements)",
        "nothing that this host misses is repaired",
        Packet("out", name, udp, own, own, _EPHEMERAL, _EPHEMERAL, is_multicast=False),
    )
    if not scene.interface.is_loopback:
        yield Matter(
            "igmp_dropped",
            f"{word} reports that leave",
            "switches never learn that this host is a member, and send it nothing",
            Packet("out", name, control, own, routers),
        )
        yield Matter(
            "igmp_dropped",
            f"{word} queries that come in",
            "this host does not answer, and switches forget it after minutes",
            Packet("in", name, control, own, everybody),
        )


def check_firewall(scene: Scene, before: Reading, after: Reading, *, is_losing: bool) -> Iterator[Finding]:
    """Rules that drop what a bus needs, by what they say and by what they have counted between the two readings.

    `is_losing` tells whether something of the bus was seen to be lost within the host in the meantime: only then is a
    rule to blame that is not understood, and has dropped something.
    """
    if before.ruleset is None or after.ruleset is None:
        yield unknown("firewall", f"rules cannot be read ({before.reason or after.reason})", "sudo fjm2 doctor")
        return
    hits = risen(before.ruleset, after.ruleset)
    told: set[object] = set()
    for matter in matters(scene):
        cause, finding = _judge(matter, after.ruleset, hits, is_losing)
        if finding is not None and cause not in told:
            told.add(cause)
            yield finding
    if not told:
        rules = sum(1 for _ in after.ruleset.rules())
        yield ok("firewall", f"none of {rules} rules is in the way of IGMP, the group or the way back", rules=rules)


def risen(before: Ruleset, after: Ruleset) -> Hits:
    """By how many packets each rule's counter has risen."""
    earlier = {rule.key: rule.packets for rule in before.rules()}
    found = {}
    for rule in after.rules():
        was = earlier.get(rule.key)
        if rule.packets is not None and was is not None and rule.packets > was:
            found[rule.key] = rule.packets - was
    return found


def _judge(matter: Matter, ruleset: Ruleset, hits: Hits, is_losing: bool) -> tuple[object, Finding | None]:
    """What is to be said of it, and by what cause: one that is vague is told of once."""
    fate = ruleset.fate(matter.packet)
    if fate.is_dropped is False:
        return None, None
    if fate.is_dropped:
        return matter, _dropping(matter, fate, hits)
    rule = _counting(matter.packet, ruleset, hits)
    if rule is not None:
        return rule.key, _blaming(matter, rule, hits[rule.key], is_losing)
    is_benign = fate.rule is not None and (fate.rule.packets is not None or _REVERSE_PATH & set(fate.rule.subjects))
    if fate.rule is not None and is_benign:
        seen = ", and did not while we looked" if fate.rule.packets is not None else ""
        return fate.rule.key, unknown("firewall", f"{_named(fate.rule)} may drop {matter.name}{seen}")
    where = _named(fate.rule) if fate.rule else f"the policy of {fate.chain.name if fate.chain else '?'}"
    text = f"the firewall may drop {matter.name}: {where}; more than is understood here decides"
    return where, warning("firewall", matter.problem, text, _allowing(matter.packet))


def _blaming(matter: Matter, rule: Rule, count: int, is_losing: bool) -> Finding:
    """A rule that is not understood has dropped something, be it of the bus or not."""
    problem = "reverse_path_dropped" if _REVERSE_PATH & set(rule.subjects) else matter.problem
    if not is_losing:
        text = f"{_named(rule)} dropped {count} packets while we looked: perhaps {matter.name}"
        return warning("firewall", problem, text, f"if it is not meant: {rule.remedy}", packets=count)
    text = f"the firewall drops {matter.name}: {_named(rule)}, {count} packets while we looked; {matter.consequence}"
    return fault("firewall", problem, text, rule.remedy, packets=count)


def _dropping(matter: Matter, fate: Fate, hits: Hits) -> Finding:
    if fate.rule is not None:
        count = hits.get(fate.rule.key, 0)
        counted = f", {count} packets while we looked" if count else ""
        text = f"the firewall drops {matter.name}: {_named(fate.rule)}{counted}; {matter.consequence}"
        return fault("firewall", matter.problem, text, fate.rule.remedy, packets=count)
    chain = fate.chain
    name = f"{chain.tool}'s {chain.name}" if chain else "a chain"
    text = f"the firewall drops {matter.name}, as {name} drops whatever is not allowed; {matter.consequence}"
    return fault("firewall", matter.problem, text, _allowing(matter.packet))


def _counting(packet: Packet, ruleset: Ruleset, hits: Hits) -> Rule | None:
    """A rule that may drop the packet, and has dropped something meanwhile."""
    dropping = (rule for rule in ruleset.rules() if rule.target == "drop" and rule.key in hits)
    return next((rule for rule in dropping if matches(rule, packet) is None), None)


def _named(rule: Rule) -> str:
    return f"{rule.tool} -t {rule.table} {rule.text}" if rule.tool != "nft" else f"nft {rule.table} {rule.text}"


def _allowing(packet: Packet) -> str:
    """A rule that lets it through."""
    is_ipv6 = ":" in (packet.destination or "")
    chain, interface = ("INPUT", "-i") if packet.way == "in" else ("OUTPUT", "-o")
    words = ["ip6tables" if is_ipv6 else "iptables", "-I", chain, interface, packet.interface, "-p", packet.protocol]
    if packet.is_multicast and packet.protocol == "udp":
        words += ["-d", packet.destination or "", "--dport", str(packet.ports[0] if packet.ports else "")]
    return " ".join([*words, "-j", "ACCEPT"])
