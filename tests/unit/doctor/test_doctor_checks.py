"""Tests of the doctor's verdicts on made-up measurements and kernel settings."""

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.doctor import Finding, Verdict, exit_code
from fjm2.doctor.firewall import FirewallState, check_firewall, without_iptables_tables
from fjm2.doctor.host import check_drops, judge_buffer, judge_clock
from fjm2.doctor.kernel import Kernel, UdpSocketLine
from fjm2.doctor.network import check_network, reverse_path_mode
from fjm2.doctor.pair import judge_nobody, judge_pair
from fjm2.doctor.prober import ProbedListener, Series, Watched
from fjm2.doctor.rules import Chain, Ruleset, parse_iptables
from fjm2.doctor.scene import Scene, same_network
from fjm2.doctor.verdict import fault, ok, unknown, warning
from fjm2.norm import UdpConfig
from fjm2.norm.net.interfaces import Interface
from fjm2.norm.net.udp_opening import Place
from fjm2.uri import BusConfig

GROUP = "239.192.57.40"
ETH0 = Interface("eth0", 2, ("10.1.2.3",), mtu=1500)
MIB = 1 << 20


def scene(root: Path = Path("/nonexistent"), one: Interface = ETH0, **bus: Any) -> Scene:
    config = BusConfig(**{"group": GROUP, "interface": one.name} | bus)
    udp = UdpConfig(group=config.group, port=config.port, interface=config.interface)
    address = one.addresses(udp.family)[0]
    return Scene(config, udp, (one,), Place(one, address), kernel=Kernel(root))


def found(findings: Any) -> dict[str, Finding]:
    return {one.problem: one for one in findings if one.problem}


@pytest.mark.parametrize("uri", ["fjm2://", "fjm2://?ttl=2", "fjm2://?interface=tv7", "fjm2://?ttl=2&interface=tv7"])
def test_advice_to_name_an_interface_has_the_whole_uri(uri: str) -> None:
    bus = BusConfig.from_uri(uri)
    udp = UdpConfig(group=bus.group, port=bus.port, interface=bus.interface)
    lo = replace(ETH0, name="lo7", is_loopback=True)
    for interfaces in ((replace(ETH0, name="tv0"), replace(ETH0, name="tv1")), (lo,)):
        (finding,) = (one for one in check_network(Scene(bus, udp, interfaces, problem="none")) if one.problem)
        assert finding.verdict is Verdict.FAULT
        named = [BusConfig.from_uri(line.split()[-1]) for line in finding.advice if "://" in line]
        expected = [one.name for one in interfaces if one is not lo] or ["127.0.0.1"]
        assert [one.interface for one in named] == expected
        if lo not in interfaces:
            assert named == [replace(bus, interface=name) for name in expected]


@given(st.lists(st.sampled_from(Verdict)))
def test_the_exit_code_is_the_worst_verdict(verdicts: list[Verdict]) -> None:
    findings = [Finding("check", verdict, "text") for verdict in verdicts]
    expected = 2 if Verdict.FAULT in verdicts else 1 if Verdict.WARNING in verdicts else 0
    assert exit_code(findings) == expected


def test_findings_are_json() -> None:
    made = [ok("a", "fine", number=1), unknown("b", "dark", "look"), warning("c", "p", "t", "x"), fault("d", "q", "u")]
    for one in made:
        told = json.loads(json.dumps(one.as_dict()))
        assert told["verdict"] == one.verdict.value
        assert told["advice"] == list(one.advice)
        assert set(told) == {"check", "verdict", "text", "problem", "advice", "figures"}


@pytest.mark.parametrize(
    ("wanted", "got", "limit", "verdict", "problem"),
    [
        (8 * MIB, 8 * MIB, 8 * MIB, Verdict.OK, None),
        (8 * MIB, 8 * MIB, 4 * MIB, Verdict.OK, None),
        (8 * MIB, 8 * MIB, None, Verdict.OK, None),
        (8 * MIB, 8 * MIB, 212_992, Verdict.WARNING, "buffer_small_for_others"),
        (8 * MIB, 4 * MIB, 4 * MIB, Verdict.WARNING, "buffer_small"),
        (8 * MIB, 212_992, 212_992, Verdict.WARNING, "buffer_small"),
        (8 * MIB, 65_536, 65_536, Verdict.FAULT, "buffer_tiny"),
        (65_536, 65_536, 65_536, Verdict.OK, None),
    ],
)
def test_small_buffers_are_reported(
    wanted: int, got: int, limit: int | None, verdict: Verdict, problem: str | None
) -> None:
    finding = judge_buffer("receive", wanted, got, limit, "net.core.rmem_max")
    assert (finding.verdict, finding.problem) == (verdict, problem)
    if problem is not None:
        assert finding.advice[0] == f"sysctl -w net.core.rmem_max={wanted}"


def test_unsynchronised_clocks_are_reported() -> None:
    assert judge_clock(0, 0x2001).verdict is Verdict.OK
    assert judge_clock(5, 0x40).problem == "clock_not_synchronised"
    assert judge_clock(0, 0x40).problem == "clock_not_synchronised"
    assert judge_clock(-1, 0).verdict is Verdict.UNKNOWN


def test_new_drops_are_distinguished_from_earlier_ones() -> None:
    before, risen = {"Udp.RcvbufErrors": 9}, {"Udp.RcvbufErrors": 3}
    assert check_drops({}, {}, ()).verdict is Verdict.UNKNOWN
    assert check_drops({}, before, ()).verdict is Verdict.OK
    assert check_drops(risen, before, ()).figures["risen"] == risen
    mine = UdpSocketLine(GROUP, 5740, drops=17, inode=1)
    assert "17 datagrams" in check_drops({}, before, (mine,)).text
    assert check_drops({}, before, (mine,)).problem == "socket_drops"


@pytest.mark.parametrize(
    ("bus", "problem"),
    [
        ({"group": "224.0.0.17"}, "group_is_reserved"),
        ({"group": "232.1.2.3"}, "group_is_source_specific"),
        ({"group": "10.1.2.9"}, "group_is_no_group"),
        ({"ttl": 0}, "ttl_is_0"),
    ],
)
def test_problematic_settings_are_reported(bus: dict[str, Any], problem: str) -> None:
    assert problem in found(check_network(scene(**bus)))


def test_modes_of_the_reverse_path_filter_are_read(tmp_path: Path) -> None:
    assert reverse_path_mode(scene(tmp_path), "eth0") is None
    for name, mode in (("all", 0), ("eth0", 1)):
        folder = tmp_path / "proc/sys/net/ipv4/conf" / name
        folder.mkdir(parents=True)
        (folder / "rp_filter").write_text(f"{mode}\n")
    assert reverse_path_mode(scene(tmp_path), "eth0") == 1


@pytest.mark.parametrize(("snoops", "asks", "expected"), [(1, 0, True), (1, 1, False), (0, 0, False)])
def test_snooping_bridges_without_querier_are_reported(tmp_path: Path, snoops: int, asks: int, expected: bool) -> None:
    bridge = tmp_path / "sys/class/net/br7"
    (bridge / "bridge").mkdir(parents=True)
    (bridge / "bridge/multicast_snooping").write_text(f"{snoops}\n")
    (bridge / "bridge/multicast_querier").write_text(f"{asks}\n")
    (tmp_path / "sys/class/net/eth0").mkdir()
    (tmp_path / "sys/class/net/eth0/master").symlink_to("../br7")
    problems = found(check_network(scene(tmp_path)))
    assert ("snooping_without_querier" in problems) is expected
    if expected:
        assert "br7" in problems["snooping_without_querier"].text


def test_addresses_are_compared_by_network() -> None:
    assert same_network("10.1.2.3", "10.1.2.200")
    assert not same_network("10.1.2.3", "10.1.3.3")
    assert same_network("fe80::1%eth0", "fe80::2")
    assert not same_network("10.1.2.3", "fe80::2")


def firewall(*rules: str) -> FirewallState:
    text = "*filter\n:INPUT ACCEPT [0:0]\n" + "".join(f"{rule}\n" for rule in rules)
    return FirewallState(Ruleset(parse_iptables(text)))


@pytest.mark.parametrize(
    ("match", "count", "is_losing", "verdict", "problem"),
    [
        ("-m recent --name guests", 0, False, Verdict.UNKNOWN, None),
        ("-m recent --name guests", 9, False, Verdict.WARNING, "group_dropped"),
        ("-m recent --name guests", 9, True, Verdict.FAULT, "group_dropped"),
        ("-m rpfilter --invert", 0, True, Verdict.UNKNOWN, None),
        ("-m rpfilter --invert", 9, True, Verdict.FAULT, "reverse_path_dropped"),
    ],
)
def test_a_rule_with_unknown_conditions_is_blamed_only_after_losses(
    match: str, count: int, is_losing: bool, verdict: Verdict, problem: str | None
) -> None:
    before, after = (firewall(f"[{packets}:0] -A INPUT {match} -j DROP") for packets in (100, 100 + count))
    (finding,) = check_firewall(scene(), before, after, is_losing=is_losing)
    assert (finding.verdict, finding.problem) == (verdict, problem)


def test_only_tables_of_iptables_are_removed_from_those_of_nft() -> None:
    read = [Chain("iptables", "filter", "INPUT")]
    same, others = (
        Chain("nft", "ip filter", "INPUT"),
        [Chain("nft", "inet filter", "INPUT"), Chain("nft", "ip x", "INPUT")],
    )
    assert without_iptables_tables(read, [same, *others]) == others


def test_a_firewall_that_cannot_be_read_is_unknown() -> None:
    nothing = FirewallState(None, "no iptables; no nft")
    (finding,) = check_firewall(scene(), nothing, nothing, is_losing=True)
    assert (finding.verdict, "no iptables" in finding.text) == (Verdict.UNKNOWN, True)


# Probing another host.

ALL_WELL = {"group": 100, "both": 100, "unicast": 100, "answered": 50, "way_back": 5}
SENT = ALL_WELL


def listening(by_multicast: int = 200, **received: int) -> ProbedListener:
    one = ProbedListener(1, "10.1.2.9", ("10.1.2.9", 5741), by_multicast=by_multicast)
    for kind, count in (ALL_WELL | received).items():
        one.series[kind] = Series(SENT[kind], [0.5 + at / 1000 for at in range(count)])
    return one


def verdicts(one: ProbedListener, **bus: Any) -> dict[str, Finding]:
    return {finding.check: finding for finding in judge_pair(scene(**bus), one)}


def test_two_healthy_hosts_have_no_faults() -> None:
    one = listening()
    one.passed_out = one.passed_back = 1472
    one.clock_offset_s, one.watched = -0.003, Watched(10.0)
    findings = verdicts(one)
    assert {finding.verdict for finding in findings.values()} == {Verdict.OK}
    assert {"multicast_out", "multicast_in", "unicast", "way_back", "rtt", "path_mtu", "watch"} <= set(findings)
    assert findings["rtt"].figures == {"p50_ms": 0.543, "p99_ms": 0.598}
    assert "3.0 ms behind" in findings["clock_difference"].text


@pytest.mark.parametrize(
    ("one", "faulty"),
    [
        (listening(by_multicast=0, group=0, both=0), {"multicast_out"}),
        (listening(both=0, answered=0), {"multicast_in"}),
        (listening(by_multicast=0, group=0, both=0, answered=0), {"multicast_out", "multicast_in"}),
        (listening(group=0), {"way_back"}),
        (listening(way_back=0), {"way_back"}),
        (listening(unicast=0), {"unicast"}),
        (listening(both=60), {"multicast_loss"}),
    ],
)
def test_each_direction_is_judged_separately(one: ProbedListener, faulty: set[str]) -> None:
    findings = verdicts(one)
    assert {check for check, finding in findings.items() if finding.verdict is Verdict.FAULT} == faulty
    assert all(finding.advice for finding in findings.values() if finding.verdict is Verdict.FAULT)


def test_a_way_that_fails_is_not_among_the_round_trips_that_are_counted() -> None:
    assert "100 round trips by multicast was lost" in verdicts(listening())["multicast_loss"].text
    one_way = verdicts(listening(both=0, answered=0))
    assert "100 round trips out by multicast and back by unicast was lost" in one_way["multicast_loss"].text
    assert "a firewall on this host: run fjm2 doctor here" in one_way["multicast_in"].advice[0]
    assert (
        "a firewall on 10.1.2.9: run fjm2 doctor there"
        in verdicts(listening(by_multicast=0, group=0, both=0))["multicast_out"].advice[0]
    )


def test_different_networks_are_the_first_likely_cause() -> None:
    one = listening(by_multicast=0, group=0, both=0, answered=0)
    one.host = "172.16.1.1"
    assert "different networks" in verdicts(one)["multicast_out"].advice[0]


@pytest.mark.parametrize(
    ("passed", "lost", "problem"),
    [(972, 973, "mtu_black_hole"), (None, 256, "mtu_black_hole"), (1460, 1461, "mtu_differs"), (1472, None, None)],
)
def test_lost_sizes_are_judged_by_what_the_bus_needs(passed: int | None, lost: int | None, problem: str | None) -> None:
    one = listening()
    one.passed_out, one.lost_out = passed, lost
    finding = verdicts(one)["path_mtu"]
    assert finding.problem == problem
    if passed == 972:
        assert finding.advice[0].endswith("&segment_bytes=924")


def test_clock_differences_are_reported() -> None:
    one = listening()
    one.clock_offset_s = 2.0
    assert verdicts(one)["clock_difference"].problem == "clocks_differ"


def test_multicast_that_stops_is_reported() -> None:
    one = listening()
    one.watched = Watched(300.0, stopped_in_s=259.0)
    finding = verdicts(one)["watch"]
    assert (finding.problem, "after 259 s" in finding.text) == ("multicast_stops", True)
    one.watched = Watched(300.0, unicast_stopped_s=12.0)
    assert verdicts(one)["watch"].problem == "everything_stops"


def test_missing_listeners_are_reported() -> None:
    assert "--probe ADDRESS" in judge_nobody(scene(), None).advice[1]
    assert "port 5741" in judge_nobody(scene(), "10.1.2.9").text


# The documentation.

ROOT = Path(__file__).parents[3]


def test_docs_list_every_problem() -> None:
    named: set[str] = set()
    for path in (ROOT / "fjm2/doctor").glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            match call:
                case ast.Call(func=ast.Name("warning" | "fault" | "Requirement"), args=[*arguments]):
                    place = 0 if call.func.id == "Requirement" else 1  # type: ignore[attr-defined]
                    if isinstance(arguments[place], ast.Constant):
                        named.add(str(arguments[place].value))
    page = (ROOT / "docs/doctor.md").read_text()
    table = page.partition("## From symptom to verdict")[2].partition("##")[0]
    told = {name for line in table.splitlines() if line.startswith("|") for name in line.split("|")[2].split(", ")}
    told = {name.strip() for name in told} - {"`problem` in `--json`", "---"}
    assert len(named) > 30
    assert not named - told, f"the table of symptoms in docs/doctor.md lacks {sorted(named - told)}: add a row"
    assert not told - named, (
        f"the table of symptoms in docs/doctor.md has {sorted(told - named)}, which no check reports"
    )
