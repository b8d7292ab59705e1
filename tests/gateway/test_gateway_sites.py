"""Tests of gateways on real sockets: LANs in namespaces, JMS publishers and subscribers, crashes, loops and reloads."""

import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import pytest
from gateway_sites import GROUP, PORT, ROOT, Gateway, Internet, Peer, internet_here, until

from fjm2d.forwarding.node_table import NODES_MAX

pytestmark = [pytest.mark.root, pytest.mark.calm]


@pytest.fixture
def internet(tmp_path: Path) -> Iterator[Internet]:
    """Yield an Internet without LANs, and remove it after the test."""
    with internet_here(tmp_path) as made:
        yield made


def begin_publishing(publisher: Peer, subscribers: list[Peer], gateway: Gateway, beyond: int = 1) -> Peer:
    """Start publishing when all peers are ready and `gateway` knows that `beyond` other LANs want the messages."""
    until(lambda: all(peer.is_ready for peer in (publisher, *subscribers)), lambda: "not all are ready")
    until(lambda: gateway.wanted_by() >= beyond, lambda: f"{gateway.name} knows of {gateway.wanted_by()} LANs")
    time.sleep(0.5)  # within this time the publisher gets the announcements that it has asked for
    publisher.tell("begin")
    return publisher


def flow(subscribers: list[Peer], publisher: Peer, count: int, internet: Internet) -> None:
    """Wait until every subscriber has received `count` more messages."""
    goals = [subscriber.received + count for subscriber in subscribers]
    until(
        lambda: all(subscriber.received >= goal for subscriber, goal in zip(subscribers, goals, strict=True)),
        lambda: f"received {[s.received for s in subscribers]} of {goals}, sent {publisher.sent}\n{internet.logs()}",
    )


def finish(subscribers: list[Peer], publisher: Peer) -> None:
    """Close all peers. Check that every subscriber received each message once and in order."""
    publisher.close()
    until(
        lambda: all(subscriber.received >= publisher.sent for subscriber in subscribers),
        lambda: f"received {[s.received for s in subscribers]} of {publisher.sent}",
    )
    for subscriber in subscribers:
        subscriber.close()
        assert subscriber.received == publisher.sent
        assert not subscriber.faults()


def test_two_lans_share_a_bus_and_repair_losses_between_them(internet: Internet) -> None:
    (publishing, beside), (left,) = internet.lan("left", 2)
    (listening,), (right,) = internet.lan("right", 1)
    right.namespace.cut_trains("wan0")
    left.namespace.cut_trains("wan0")
    internet.introduce_all()
    internet.start_all()
    until(lambda: left.is_up() and right.is_up(), internet.logs)
    right.namespace.lose(0.02)
    subscribers = [Peer(listening, "subscribe"), Peer(beside, "subscribe")]
    publisher = begin_publishing(Peer(publishing, "publish", "1000", "1000", "BEGIN"), subscribers, left)
    flow(subscribers, publisher, 3000, internet)
    finish(subscribers, publisher)
    peer = left.status()["peers"][0]
    assert peer["datagrams_sent"] > 2000
    refusals = {**left.status()["drops"]["lan"], **right.status()["drops"]["lan"]}
    assert not refusals.get("loop")
    # Lost datagrams are repaired by requests that receivers send to the gateway by unicast.
    assert right.status()["peers"][0]["datagrams_sent"] > 50


@pytest.mark.calm
def test_a_standby_takes_over_within_three_seconds_and_nothing_is_lost(internet: Internet) -> None:
    (publishing,), (left,) = internet.lan("left", 1)
    (listening,), rights = internet.lan("right", 1, gateways=2, label="right")
    internet.introduce_all()
    internet.start_all()
    first, second = sorted(rights, key=lambda gateway: gateway.keys.public.id)
    until(lambda: left.is_up() and first.is_up() and len(first.status()["mates"]) == 1, internet.logs)
    until(lambda: [g.status()["is_forwarder"] for g in (first, second)] == [True, False], internet.logs)
    # Gateways of one LAN are not peers, so nothing can go from one to the other.
    assert [peer["name"] for peer in first.status()["peers"]] == [left.name]
    subscribers = [Peer(listening, "subscribe")]
    publisher = begin_publishing(Peer(publishing, "publish", "300", "500", "BEGIN"), subscribers, left)
    flow(subscribers, publisher, 500, internet)
    sent_before = first.status()["peers"][0]["datagrams_received"]
    assert sent_before > 100
    assert not second.status()["groups"][0]["datagrams_sent"] > 20  # these are its own questions for announcements
    first.kill()
    killed_at, killed_wall = time.monotonic(), time.time()
    until(lambda: second.status().get("is_forwarder"), internet.logs)
    before = subscribers[0].received
    until(lambda: subscribers[0].received > before + 50, internet.logs)
    took_s = time.monotonic() - killed_at
    assert took_s < 4.0, f"took {took_s:.1f} s until messages came again"
    began = second.events("forwarding_began")[-1]
    assert began["mates"] == []
    assert datetime.fromisoformat(began["time"]).timestamp() - killed_wall < 3.0
    flow(subscribers, publisher, 500, internet)
    # The first gateway comes back, and leaves forwarding to the second.
    first.start()
    until(lambda: first.is_up() and len(first.status()["mates"]) == 1, internet.logs)
    assert [g.status()["is_forwarder"] for g in (first, second)] == [False, True]
    # After a clean stop the takeover does not wait for a timeout.
    second.stop()
    until(lambda: first.status()["is_forwarder"], internet.logs, deadline_s=2.0)
    finish(subscribers, publisher)
    assert not publisher.last("error")
    for gateway in (left, first):
        assert not gateway.status()["drops"]["lan"].get("loop")


@pytest.mark.nightly
def test_lans_joined_twice_without_labels_have_one_gateway_each_and_no_storm(internet: Internet) -> None:
    (publishing, beside), lefts = internet.lan("left", 2, gateways=2)
    (listening,), rights = internet.lan("right", 1, gateways=2)
    internet.introduce_all()
    for gateway in internet.gateways:
        gateway.namespace.cut_trains("lan0")
        rule = "INPUT -i lan0 -p udp -m pkttype --pkt-type multicast -m statistic --mode random --probability 0.05"
        gateway.namespace.run("iptables", "-A", *rule.split(), "-j", "DROP")
    internet.start_all()
    for pair in (lefts, rights):
        until(lambda pair=pair: all(len(gateway.status().get("mates", ())) == 1 for gateway in pair), internet.logs)
        until(lambda pair=pair: sum(gateway.status()["is_forwarder"] for gateway in pair) == 1, internet.logs)
    forwarding = next(gateway for gateway in lefts if gateway.status()["is_forwarder"])
    assert forwarding.get("/healthz")[0] == 200
    subscribers = [Peer(listening, "subscribe"), Peer(beside, "subscribe")]
    publisher = begin_publishing(Peer(publishing, "publish", "200", "300", "BEGIN"), subscribers, forwarding)
    flow(subscribers, publisher, 500, internet)
    forwarding.kill()
    flow(subscribers, publisher, 500, internet)
    finish(subscribers, publisher)
    alive = [gateway for gateway in internet.gateways if gateway is not forwarding]

    def multicast() -> int:
        return sum(int(gateway.status()["groups"][0]["datagrams_sent"]) for gateway in alive)

    carried = multicast()
    assert carried < 3 * publisher.sent, internet.logs()
    time.sleep(2.0)
    assert multicast() - carried < 50


@pytest.mark.nightly
def test_gateways_of_one_lan_that_do_not_know_each_other_say_so(internet: Internet) -> None:
    _, (one, other) = internet.lan("left", 0, gateways=2)
    _, (far,) = internet.lan("right", 0)
    far.configure(one.as_peer(), other.as_peer())
    for gateway in (one, other):
        gateway.configure(far.as_peer())
    internet.start_all()
    for gateway, stranger in ((one, other), (other, one)):
        until(lambda gateway=gateway: gateway.events("another_gateway"), internet.logs)
        event = gateway.events("another_gateway")[0]
        address = stranger.namespace.ip("-o", "-4", "address", "show", "lan0").split()[3].partition("/")[0]
        assert (event["id"], event["address"]) == (stranger.keys.public.id_text, address)
        assert "[[peer]]" in event["do"]
        code, body = gateway.get("/healthz")
        assert code == 503
        assert f"another gateway, {stranger.keys.public.id_text} at {address}, is on this LAN" in body
        assert "fjm2d_other_gateways 1\n" in gateway.get("/metrics")[1]
    assert far.get("/healthz")[0] == 200
    one.configure(far.as_peer(), other.as_peer())
    other.configure(far.as_peer(), one.as_peer())
    for gateway in (one, other):
        gateway.send_signal(signal.SIGHUP)
    until(lambda: all(len(gateway.status()["mates"]) == 1 for gateway in (one, other)), internet.logs)
    until(lambda: all(gateway.get("/healthz")[0] == 200 for gateway in (one, other)), internet.logs)


def test_three_lans_get_everything_once_and_nothing_loops(internet: Internet) -> None:
    (publishing, beside), (left,) = internet.lan("left", 2)
    (listening,), (middle,) = internet.lan("middle", 1)
    (watching,), (right,) = internet.lan("right", 1)
    internet.introduce_all()
    internet.start_all()
    gateways = (left, middle, right)
    until(lambda: all(gateway.is_up(2) for gateway in gateways), internet.logs)
    subscribers = [Peer(host, "subscribe") for host in (beside, listening, watching)]
    publisher = begin_publishing(Peer(publishing, "publish", "300", "500", "BEGIN"), subscribers, left, beyond=2)
    # A subscriber on the gateway's own host works like any other.
    subscribers.append(Peer(right.namespace, "subscribe"))
    until(lambda: subscribers[3].is_ready, internet.logs)
    flow(subscribers, publisher, 1000, internet)
    publisher.close()
    until(lambda: all(s.received >= publisher.sent for s in subscribers[:3]), internet.logs)
    for subscriber in subscribers:
        subscriber.close()
        assert not subscriber.faults()
    assert [s.received for s in subscribers[:3]] == [publisher.sent] * 3
    # No datagram that came into a LAN from outside went out again. Feedback of the receiving LANs goes to the left one.
    sent = {peer["name"]: peer["bytes_sent"] for peer in middle.status()["peers"]}
    assert sent[right.name] < left.status()["peers"][0]["bytes_sent"] / 10
    for gateway in gateways:
        assert not gateway.status()["drops"]["lan"].get("loop")


@pytest.mark.nightly
def test_data_without_subscribers_elsewhere_stay_on_their_lan(internet: Internet) -> None:
    (publishing, beside), (left,) = internet.lan("left", 2)
    (listening,), (right,) = internet.lan("right", 1)
    internet.introduce_all()
    internet.start_all()
    until(lambda: left.is_up() and right.is_up(), internet.logs)
    near = [Peer(beside, "subscribe")]
    publisher = Peer(publishing, "publish", "1000", "500", "BEGIN")
    until(lambda: publisher.is_ready and near[0].is_ready, internet.logs)
    publisher.tell("begin")
    flow(near, publisher, 1000, internet)
    status = left.status()
    assert status["drops"]["lan"]["not_wanted"] > 500
    assert status["peers"][0]["bytes_sent"] < 100_000
    far = [Peer(listening, "subscribe")]
    until(lambda: far[0].received > 200, internet.logs)
    far[0].close()
    until(lambda: left.wanted_by() == 0, internet.logs)


def test_a_broken_file_keeps_the_configuration_and_a_good_one_replaces_it(internet: Internet) -> None:
    _, (left,) = internet.lan("left", 0)
    _, (right,) = internet.lan("right", 0)
    internet.introduce_all()
    internet.start_all()
    until(lambda: left.is_up() and right.is_up(), internet.logs)
    good = left.file.read_text()
    left.file.write_text(good.replace(f"{GROUP}:{PORT}", "10.1.1.1:5740").replace('rate = "none"', "rate = 3"))
    left.send_signal(signal.SIGHUP)
    refused = until(lambda: left.events("reload_refused"), internet.logs)
    assert {one["key"] for one in refused} == {"group[1].address", "wan.rate"}
    assert all(one["file"] == str(left.file) and one["allowed"] for one in refused)
    assert left.is_up()
    left.file.write_text(good.replace("lan0", "eth7"))
    left.send_signal(signal.SIGHUP)
    fixed = until(lambda: [one for one in left.events("reload_refused") if "keys" in one], internet.logs)
    assert fixed[0]["keys"] == ["lan.interface"]
    more = '[[group]]\naddress = "239.192.57.77:5777"\ncarry = "always"\n'
    left.file.write_text(good.replace('rate = "none"', 'rate = "8mbit"').replace("[[peer]]", f"{more}[[peer]]"))
    left.send_signal(signal.SIGHUP)
    until(lambda: left.events("reloaded"), internet.logs)
    status = left.status()
    assert [group["group"] for group in status["groups"]] == [f"{GROUP}:{PORT}", "239.192.57.77:5777"]
    assert status["peers"][0]["rate_bps"] == 8e6
    assert status["peers"][0]["state"] == "up"  # the session survived the reload
    left.file.write_text(good[: good.index("[[peer]]")])
    left.send_signal(signal.SIGHUP)
    until(lambda: not left.status()["peers"], internet.logs)
    assert left.stop() == 0
    assert right.stop() == 0
    assert right.events("stopped")


def test_health_metrics_and_status_reflect_the_gateway(internet: Internet) -> None:
    _, (left,) = internet.lan("left", 0)
    _, (right,) = internet.lan("right", 0)
    internet.introduce_all()
    internet.start_all()
    until(lambda: left.is_up() and right.is_up(), internet.logs)
    assert left.get("/healthz") == (200, '{"status": "ok", "faults": []}\n')
    code, metrics = left.get("/metrics")
    assert code == 200
    label = f'{{peer="{right.name}",id="{right.keys.public.id_text}"}}'
    assert f"fjm2d_peer_up{label} 1\n" in metrics
    assert metrics.count("# TYPE fjm2d_peer_sent_bytes_total counter") == 1
    assert left.get("/secret")[0] == 404
    shown = left.namespace.run(sys.executable, "-m", "fjm2d", "status", "--config", str(left.file))
    assert right.name in shown
    assert "up" in shown
    left.namespace.ip("link", "set", "lan0", "down")
    until(lambda: left.get("/healthz")[0] == 503, lambda: str(left.get("/healthz")))
    assert "is down" in left.get("/healthz")[1]
    left.namespace.ip("link", "set", "lan0", "up")
    until(lambda: left.get("/healthz")[0] == 200, lambda: str(left.get("/healthz")))


def test_a_path_that_is_too_narrow_is_a_fault_until_the_length_is_configured(internet: Internet) -> None:
    _, (left,) = internet.lan("a", 0)
    _, (right,) = internet.lan("b", 0)
    internet.introduce_all()
    rule = "OUTPUT -o wan0 -p udp -m length --length 1201:65535"
    left.namespace.run("iptables", "-A", *rule.split(), "-j", "DROP")
    internet.start_all()
    until(lambda: left.events("path_too_narrow"), internet.logs, 30)
    event = left.events("path_too_narrow")[0]
    assert (event["level"], event["peer"], event["bytes"]) == ("warning", right.name, 1280)
    code, body = left.get("/healthz")
    assert code == 503
    assert f"packets of 1280 bytes do not get through to {right.name}" in body
    assert "`mtu` in [wan]" in body
    assert left.status()["faults"]
    assert right.get("/healthz")[0] == 200, "the reverse path is wide enough"
    left.stop()
    left.file.write_text(left.file.read_text().replace("[wan]", "[wan]\nmtu = 1200"))
    left.start()
    until(lambda: left.is_up(), internet.logs)
    time.sleep(3.0)
    assert left.get("/healthz")[0] == 200


@pytest.mark.nightly
def test_over_ipv6_the_path_mtu_is_measured_and_nothing_is_fragmented(internet: Internet) -> None:
    (host_a,), (left,) = internet.lan("a", 1)
    (host_b,), (right,) = internet.lan("b", 1)
    for number, gateway in enumerate((left, right), 1):
        gateway.namespace.ip(*f"address add fd57::{number}/64 dev wan0 nodad".split())
        gateway.namespace.ip("link", "set", "wan0", "mtu", "1400")
        gateway.wan_host = f"[fd57::{number}]"
    for gateway, other in ((left, right), (right, left)):
        gateway.configure(other.as_peer())
        settings = gateway.file.read_text().replace("[wan]", '[wan]\nlisten = ["0.0.0.0:5741", "[::]:5741"]')
        gateway.file.write_text(settings)
        gateway.start()
    subscriber, publisher = Peer(host_b, "subscribe"), Peer(host_a, "publish", "1400", "200", "waiting")
    begin_publishing(publisher, [subscriber], left)
    peer = lambda: left.status()["peers"][0]  # noqa: E731
    until(lambda: 1396 <= peer()["mtu_bytes"] <= 1400, internet.logs)
    assert peer()["address"] == "[fd57::2]:5741"
    for gateway in (left, right):
        gateway.namespace.ip("link", "set", "wan0", "mtu", "1300")
    until(lambda: 1296 <= peer()["mtu_bytes"] <= 1300, internet.logs)
    flow([subscriber], publisher, 100, internet)
    assert peer()["split"] > 100
    for gateway in (left, right):
        counts = dict(line.split() for line in gateway.namespace.run("cat", "/proc/net/snmp6").splitlines())
        assert {counts[name] for name in ("Ip6FragCreates", "Ip6ReasmReqds")} == {"0"}
    # Datagrams from left to right get lost: both gateways notice.
    rule = ("OUTPUT", "-p", "udp", "-j", "DROP")
    left.namespace.run("ip6tables", "-A", *rule)
    until(lambda: not left.is_up() and not right.is_up(), internet.logs, 8)
    assert [gateway.events("peer_down")[-1]["reason"] for gateway in (left, right)] == ["deaf", "silent"]
    assert left.status()["drops"]["wan"]["send_eperm"] > 0
    left.namespace.run("ip6tables", "-D", *rule)
    flow([subscriber], publisher, 100, internet)
    finish([subscriber], publisher)


def test_gateways_find_each_other_by_the_node_list_and_continue_without_it(internet: Internet) -> None:
    (publishing,), (left,) = internet.lan("left", 1)
    (listening,), (right,) = internet.lan("right", 1)
    admin = internet.admin
    for gateway in internet.gateways:
        token_file = gateway.folder / "token"
        token_file.write_text(f"{admin.token(gateway.name)}\n")
        gateway.configure(f'[admin]\nurl = "{admin.url}"\ntoken_file = "{token_file}"\n')
    # The first gateway starts without waiting for the service.
    left.start()
    until(lambda: left.events("admin_away"), internet.logs)
    assert left.get("/healthz")[0] == 200
    admin.start()
    until(lambda: left.events("registered"), lambda: f"{internet.logs()}\n{admin.log}")
    right.start()
    began_at = time.monotonic()
    until(lambda: left.is_up() and right.is_up(), lambda: f"{internet.logs()}\n{admin.log}")
    assert time.monotonic() - began_at < 5
    assert [peer["name"] for peer in left.status()["peers"]] == [right.name]
    admin.kill()
    subscribers = [Peer(listening, "subscribe")]
    publisher = begin_publishing(Peer(publishing, "publish", "300", "500", "BEGIN"), subscribers, left)
    flow(subscribers, publisher, 500, internet)
    # Restarted without the service, the gateway uses the saved list.
    left.kill()
    left.start()
    until(left.is_up, internet.logs)
    assert left.status()["admin"]["is_from_file"]
    flow(subscribers, publisher, 500, internet)
    admin.start()
    until(lambda: right.status()["admin"]["is_reached"], lambda: f"{internet.logs()}\n{admin.log}")
    until(lambda: left.status()["admin"]["is_reached"], lambda: f"{internet.logs()}\n{admin.log}")
    until(lambda: not left.status()["admin"]["is_from_file"], internet.logs)
    finish(subscribers, publisher)
    assert len(left.events("peer_removed")) == 0


def test_a_flood_of_rubbish_and_of_nodes_changes_nothing(internet: Internet) -> None:
    (publishing,), (left,) = internet.lan("left", 1)
    (listening,), (right,) = internet.lan("right", 1)
    internet.introduce_all()
    internet.start_all()
    until(lambda: left.is_up() and right.is_up(), internet.logs)
    subscribers = [Peer(listening, "subscribe")]
    publisher = begin_publishing(Peer(publishing, "publish", "100", "200", "BEGIN"), subscribers, left)
    some = random.Random(57)
    with publishing.entered():
        attacker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with attacker:
        own = publishing.ip("-o", "-4", "address", "show", "lan0").split()[3].partition("/")[0]
        attacker.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        for number in range(20_000):
            head = bytes([0x10 | number % 8, 4, 0, 0]) + some.randbytes(12)
            junk = head if number % 2 else some.randbytes(some.randrange(1, 200))
            attacker.sendto(junk, (GROUP, PORT))
            attacker.sendto(junk, ("239.192.57.41", 5742))
            if number % 200 == 0:
                time.sleep(0.005)
    flow(subscribers, publisher, 200, internet)
    status = left.status()
    assert status["drops"]["lan"]["not_norm"] > 100
    assert sum(status["drops"]["beacons"].values()) > 100
    assert status["groups"][0]["nodes_on_lan"] <= NODES_MAX
    assert not left.events("unexpected")
    assert not right.events("unexpected")
    finish(subscribers, publisher)


@pytest.mark.calm
@pytest.mark.nightly
def test_after_a_blackout_and_a_crash_everything_arrives(internet: Internet) -> None:
    (publishing,), (left,) = internet.lan("left", 1)
    (listening,), (right,) = internet.lan("right", 1)
    # A gateway behind a NAT can call others but cannot be called.
    left.configure(right.as_peer(is_found=False))
    right.configure(left.as_peer())
    internet.start_all()
    until(lambda: left.is_up() and right.is_up(), internet.logs)
    subscribers = [Peer(listening, "subscribe")]
    publisher = begin_publishing(Peer(publishing, "publish", "300", "300", "BEGIN"), subscribers, left)
    flow(subscribers, publisher, 300, internet)
    internet.cut(right, is_cut=True)
    until(lambda: left.events("peer_down") and right.events("peer_down"), internet.logs)
    time.sleep(1.0)
    internet.cut(right, is_cut=False)
    until(lambda: subscribers[0].received > publisher.sent - 100, internet.logs)
    right.kill()
    before = subscribers[0].received
    began_at = time.monotonic()
    right.start()
    until(lambda: subscribers[0].received > before + 100, internet.logs)
    took_s = time.monotonic() - began_at
    assert took_s < 6.0, f"took {took_s:.1f} s from the start of the process"
    until(lambda: subscribers[0].received > publisher.sent - 100, internet.logs)
    finish(subscribers, publisher)
    assert subscribers[0].last("gaps") == 0


def test_the_guide_joins_two_sites(internet: Internet, tmp_path: Path) -> None:
    """Run all commands and use all files of the guide's first section, in order."""
    guide = Guide(internet, tmp_path)
    guide.run("paris", "fjm2d keygen paris.key")
    guide.run("lyon", "fjm2d keygen lyon.key")
    guide.write("paris")
    guide.write("lyon")
    for place in ("paris", "lyon"):
        guide.run(place, f"fjm2d check --config {place}.toml")
    runs = [guide.start(place, f"fjm2d run --config {place}.toml") for place in ("paris", "lyon")]
    for process in runs:
        assert process.stderr is not None
        assert any("peer_up" in line for line in process.stderr)
    until(lambda: "up" in guide.run("lyon", "fjm2d status --config lyon.toml"), lambda: "lyon's peer is not up")
    subscriber = guide.start("lyon", 'fjm2 sub greetings --uri "fjm2://239.192.57.40:5740?interface=eth0" --count 1')
    until(lambda: " yes " in guide.run("lyon", "fjm2d status --config lyon.toml"), lambda: "nobody has subscribed")
    guide.run("paris", 'fjm2 pub greetings "hello, Lyon" --uri "fjm2://239.192.57.40:5740?interface=eth0"')
    out, _ = subscriber.communicate(timeout=10)
    assert "hello, Lyon" in out
    for process in runs:
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0
    assert not guide.left_out


class Guide:
    """The section on joining two sites in docs/gateway.md, and the two hosts that its commands run on."""

    ADDRESSES: ClassVar = {"paris": "203.0.113.1", "lyon": "198.51.100.1"}

    def __init__(self, internet: Internet, folder: Path) -> None:
        text = (ROOT / "docs" / "gateway.md").read_text()
        section = text.partition("## Join two sites")[2].partition("systemd run them")[0]
        blocks = [block.partition("\n") for block in section.split("```")[1::2]]
        commands = [code for kind, _, code in blocks if kind == "bash" and "pip install" not in code]
        self.left_out = {line for code in commands for line in code.splitlines()}
        self._files = [code for kind, _, code in blocks if kind == "toml"]
        self._folder = folder
        self._hosts = {place: internet.network.namespace() for place in self.ADDRESSES}
        self._keys: dict[str, str] = {}
        self._done: set[str] = set()
        paris, lyon = self._hosts.values()
        internet.network.link(paris, lyon, "wan0")
        for place, namespace in self._hosts.items():
            internet.network.switch(namespace, device="eth0")
            namespace.ip(*f"address add {self.ADDRESSES[place]}/32 dev wan0".split())
            (folder / place).mkdir()
        paris.ip(*f"route add {self.ADDRESSES['lyon']} dev wan0 src {self.ADDRESSES['paris']}".split())
        lyon.ip(*f"route add {self.ADDRESSES['paris']} dev wan0 src {self.ADDRESSES['lyon']}".split())

    def start(self, place: str, command: str) -> subprocess.Popen[str]:
        self.left_out.discard(command)
        module, rest = command.split(" ", 1)
        line = f"cd {self._folder / place} && PYTHONPATH={ROOT} exec {sys.executable} -m {module} {rest}"
        return self._hosts[place].start("sh", "-c", line)

    def run(self, place: str, command: str) -> str:
        """Run a command of the guide to its end, and return its output."""
        assert command in self.left_out or command in self._done
        self._done.add(command)
        out, err = self.start(place, command).communicate(timeout=20)
        if "keygen" in command:
            self._keys[place] = out.strip()
        assert "Error" not in err, err
        return out

    def write(self, place: str) -> None:
        (file,) = [code for code in self._files if f'name = "{place}"\nkey_file' in code]
        for other, key in self._keys.items():
            file = file.replace(f"{other.upper()}_KEY", key)
        (self._folder / place / f"{place}.toml").write_text(file)
