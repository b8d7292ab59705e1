"""Tests of `fjm2 doctor` with several hosts.

The doctor finds the members of the bus, and two hosts examine the network between them.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from doctoring import DEADLINE_S, FJM2, GROUP, PORT, URI, Outcome, doctor, listen, subscriber, two_hosts
from netns import Network

# Nodes on the bus.


@pytest.mark.root
@pytest.mark.nightly
def test_two_senders_with_one_node_id_are_named(network: Network, tmp_path: Path) -> None:
    hosts = [network.namespace() for _ in range(3)]
    network.switch(*hosts)
    payload = tmp_path / "payload"
    payload.write_bytes(bytes(8_000_000))
    for host in hosts[1:]:
        place = f"--group {GROUP} --port {PORT} --interface veth0 --node-id 77 --rate 5e6 --data"
        host.start(*FJM2, "norm", "send", *place.split(), str(payload))
    time.sleep(1.5)  # by then both send
    found = doctor(hosts[0])
    finding = found.of("node_id_twice")
    assert found.code == 2
    assert finding["figures"]["node_id"] == 77
    assert {where.partition(":")[0] for where in finding["figures"]["addresses"]} == {"10.57.1.2", "10.57.1.3"}


@pytest.mark.root
@pytest.mark.nightly
def test_a_subscriber_whose_path_became_too_narrow_for_data_is_named(network: Network) -> None:
    """Probes and announcements still reach it, so that the publisher waits for it. A third host sees why."""
    hosts = [network.namespace() for _ in range(3)]
    switch = network.switch(*hosts)
    subscriber(hosts[1], "veth0")
    uri = f"fjm2://{GROUP}:{PORT}?interface=veth0"
    hosts[2].start(
        "env", "FJM2_NO_GSO=1", *FJM2, "pub", "news", "x" * 4000, "--count", "100000", "--rate", "500", "--uri", uri
    )
    time.sleep(1.5)  # by then it publishes
    assert not doctor(hosts[0]).problems("fault")
    switch.ip("link", "set", "port2", "mtu", "1300")
    finding = doctor(hosts[0]).of("receiver_gets_little")
    assert finding["figures"]["host"] == "10.57.1.2"
    assert finding["figures"]["datagram_bytes"] > 1300
    assert "desk-7" in finding["text"]


@pytest.mark.root
def test_two_buses_on_one_port_are_named(network: Network) -> None:
    hosts = [network.namespace() for _ in range(2)]
    network.switch(*hosts)
    subscriber(hosts[1], "veth0")
    other = f"fjm2://239.192.57.72:{PORT}?interface=veth0"
    hosts[1].start(*FJM2, "pub", "news", "--count", "600", "--rate", "50", "--uri", other)
    time.sleep(1.0)  # by then it publishes
    found = doctor(hosts[0])
    assert found.of("other_group_on_port")["figures"]["groups"] == ["239.192.57.72"]
    assert found.check("bus")["figures"]["connections"] == 1


@pytest.mark.root
@pytest.mark.nightly
def test_other_programs_in_the_group_are_named(network: Network, tmp_path: Path) -> None:
    pair = two_hosts(network)
    payload = tmp_path / "payload"
    payload.write_bytes(bytes(8_000_000))
    place = f"--group {GROUP} --port {PORT} --interface veth0 --node-id 4242 --rate 5e6 --data"
    pair[1].start(*FJM2, "norm", "send", *place.split(), str(payload))
    subscriber(pair[1], "veth0")
    chatter = (
        "import socket, time\n"
        "out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton('10.57.1.2'))\n"
        f"for _ in range(300): out.sendto(b'hello, world', ('{GROUP}', {PORT})); time.sleep(0.05)\n"
    )
    pair[1].start(sys.executable, "-c", chatter)
    time.sleep(1.5)
    found = doctor(pair[0])
    assert found.of("foreign_traffic")["figures"]["senders"][0].startswith("10.57.1.2:")
    assert found.of("foreign_norm")["figures"]["nodes"] == [4242]


GATEWAY = """
import random, socket, time
from fjm2d.forwarding.election import Election
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("10.57.1.2"))
election = Election(4242, random.randbytes, time.monotonic())
election.is_usable = True
election.set_mates({17: bytes(32)}, time.monotonic())
for _ in range(300):
    now = time.monotonic()
    election.handle_timeout(now)
    beacon = election.poll_beacon([(1, 5740)], now)
    if beacon is not None:
        out.sendto(beacon, ("239.192.57.41", 5742))
    time.sleep(0.05)
"""


@pytest.mark.root
def test_gateways_are_listed(network: Network) -> None:
    host, other = two_hosts(network)
    other.start(sys.executable, "-c", GATEWAY)
    finding = doctor(host).check("gateways")
    assert finding["text"] == "fjm2d runs at 10.57.1.2"
    assert finding["figures"]["gateways"] == 1


# Two hosts.


@pytest.mark.root
def test_two_healthy_hosts_reach_each_other(network: Network) -> None:
    pair = two_hosts(network)
    process, _ = listen(pair[1])
    found = doctor(pair[0], "--probe")
    assert not found.problems("fault")
    for check in ("listener", "multicast_out", "multicast_in", "unicast", "way_back", "path_mtu", "clock_difference"):
        assert found.check(check)["verdict"] == "ok", check
    assert found.check("rtt")["figures"]["p50_ms"] <= found.check("rtt")["figures"]["p99_ms"]
    assert "1500 bytes" in found.check("path_mtu")["text"]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130
    assert "probed by 10.57.1.1" in err
    assert "Traceback" not in err


@pytest.mark.root
def test_ipv6_is_probed_as_well(network: Network) -> None:
    pair = two_hosts(network)
    uri = f"fjm2://[ff15::57:71]:{PORT}?interface=veth0"
    _, address = listen(pair[1], uri)
    assert address.startswith("fe80::")
    found = doctor(pair[0], "--probe", address, uri=uri)
    assert not found.problems("fault")
    for check in ("multicast_out", "multicast_in", "unicast", "way_back", "path_mtu"):
        assert found.check(check)["verdict"] == "ok", check
    beside = doctor(pair[0], uri=uri)
    assert not beside.problems("fault")
    assert beside.check("delivery")["verdict"] == "ok"  # by the listener's beacons
    pair[0].run("ip6tables", *["-A", "INPUT", "-d", "ff15::57:71", "-j", "DROP"])
    blocked = doctor(pair[0], uri=uri)
    assert {"group_dropped", "dropped_inside"} <= blocked.problems("fault")


@pytest.mark.root
@pytest.mark.nightly
def test_an_mtu_black_hole_is_named(network: Network) -> None:
    host, other = network.namespace(), network.namespace()
    switch = network.switch(host, other)
    switch.ip("link", "set", "port2", "mtu", "1000")  # the port accepts larger datagrams, and drops them
    listen(other)
    found = doctor(host, "--probe")
    finding = found.of("mtu_black_hole")
    assert found.code == 2
    passed, lost = finding["figures"]["passed_bytes"], finding["figures"]["lost_bytes"]
    assert 960 <= passed <= 972 < lost <= 980
    assert finding["advice"][0] == f"in the URI of every member: &segment_bytes={passed - 48}"


@pytest.mark.root
def test_filtered_multicast_is_distinguished_from_a_dead_link(network: Network) -> None:
    pair = two_hosts(network)
    listen(pair[1])
    pair[1].run("iptables", "-A", "INPUT", "-d", GROUP, "-j", "DROP")
    one_way = doctor(pair[0], "--probe")
    assert one_way.check("multicast_out")["problem"] == "multicast_filtered"
    assert one_way.check("multicast_in")["verdict"] == "ok"
    assert "firewall on 10.57.1.2" in one_way.check("multicast_out")["advice"][0]
    assert any("IGMP snooping" in cause for cause in one_way.check("multicast_out")["advice"])
    pair[1].run("iptables", "-A", "OUTPUT", "-d", GROUP, "-j", "DROP")
    neither = doctor(pair[0], "--probe", "10.57.1.2")
    assert [one["check"] for one in neither.findings if one["problem"] == "multicast_filtered"] == [
        "multicast_out",
        "multicast_in",
    ]
    assert neither.check("unicast")["verdict"] == "ok"
    pair[1].run("iptables", "-A", "INPUT", "-j", "DROP")
    assert doctor(pair[0], "--probe", "10.57.1.2").of("no_listener")["advice"][1] == (
        "check whether the host is reachable: ping 10.57.1.2"
    )


@pytest.mark.root
@pytest.mark.parametrize("which", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_way_back_that_is_closed_is_named(network: Network, which: int) -> None:
    pair = two_hosts(network)
    host = pair[which]
    host.run("iptables", *["-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "ACCEPT"])
    host.run("iptables", *f"-A INPUT -p udp -d {GROUP} -j ACCEPT".split())
    host.run("iptables", *f"-A INPUT -p udp --dport {PORT + 1} -j ACCEPT".split())
    host.run("iptables", *["-A", "INPUT", "-p", "udp", "-j", "DROP"])
    listen(pair[1])
    finding = doctor(pair[0], "--probe").check("way_back")
    assert finding["problem"] == "way_back_dropped"
    remedy = finding["advice"][0].partition(": ")[2]
    host.run("sh", "-c", remedy)
    assert doctor(pair[0], "--probe").check("way_back")["verdict"] == "ok"


@pytest.mark.root
def test_a_host_that_does_not_listen_is_named_even_if_another_does(network: Network) -> None:
    pair = two_hosts(network)
    listen(pair[1])
    found = doctor(pair[0], "--probe", "10.57.1.99")
    assert found.code == 2
    assert "10.57.1.99 answers neither" in found.of("no_listener")["text"]
    assert found.check("unicast")["verdict"] == "ok"


@pytest.mark.root
def test_loss_between_hosts_is_measured(network: Network) -> None:
    pair = two_hosts(network)
    listen(pair[1])
    pair[1].lose(0.4)
    found = doctor(pair[0], "--probe")
    finding = found.of("much_loss")
    assert finding["figures"]["received"] < 0.85 * finding["figures"]["sent"]
    assert "mtu_black_hole" not in found.problems()


@pytest.mark.root
@pytest.mark.nightly
def test_multicast_that_stops_is_named(network: Network) -> None:
    pair = two_hosts(network)
    listen(pair[1])
    argv = ("ip", "netns", "exec", pair[0].name, *FJM2, "doctor", "--json", "--uri", URI, "--probe", "--watch", "20")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(6)  # by then it watches
        pair[1].run("iptables", "-A", "INPUT", "-d", GROUP, "-j", "DROP")
        out, err = process.communicate(timeout=DEADLINE_S)
    found = Outcome(subprocess.CompletedProcess(argv, process.returncode, out, err))
    finding = found.of("multicast_stops")
    assert "multicast to 10.57.1.2 arrived at first and stopped after" in finding["text"]
    assert "querier" in finding["text"]
    assert found.check("multicast_out")["verdict"] == "ok"
