"""Tests of `fjm2 doctor` on one host: for each fault that a test causes, the doctor must name it.

Other tests are about the command itself.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from doctoring import DEADLINE_S, FJM2, GROUP, PORT, URI, doctor, subscriber, two_hosts, unprivileged
from netns import Network, set_up, wait_until_up

from fjm2.commands import main

LOCAL_S = 10.0
"""Longest time that an examination of one host takes, even on a busy machine."""
RMEM_MAX = Path("/proc/sys/net/core/rmem_max")


# A single host.


@pytest.mark.root
def test_a_healthy_host_has_no_fault(network: Network) -> None:
    pair = two_hosts(network)
    began_at = time.monotonic()
    found = doctor(pair[0])
    assert time.monotonic() - began_at < LOCAL_S
    assert found.problems() <= {"clock_not_synchronised", "kernel_drops", "buffer_small", "buffer_small_for_others"}
    assert found.check("interface")["text"].startswith("veth0 (10.57.1.1), as the URI names it")
    assert found.check("self_probe")["figures"]["received"] == found.check("self_probe")["figures"]["sent"] > 0
    assert GROUP in found.check("membership")["text"]
    assert found.check("firewall")["verdict"] == "ok"
    assert found.check("bus")["verdict"] == "unknown"


@pytest.mark.root
def test_no_multicast_route_is_named(network: Network) -> None:
    pair = two_hosts(network)
    uri = f"fjm2://{GROUP}:{PORT}"
    found = doctor(pair[0], uri=uri)
    finding = found.of("no_multicast_route")
    assert found.code == 2
    assert finding["advice"] == [
        f"name it in the URI: {uri}?interface=veth0",
        "ip route add 224.0.0.0/4 dev veth0",
    ]
    pair[0].run("sh", "-c", finding["advice"][1])
    assert found.problems("fault") == {"no_multicast_route"}
    assert not doctor(pair[0], uri=uri).problems("fault")


@pytest.mark.root
def test_no_ipv6_multicast_route_is_named(network: Network) -> None:
    pair = two_hosts(network)
    pair[0].ip("-6", "route", "del", "multicast", "ff00::/8", "dev", "veth0", "table", "local")
    uri = f"fjm2://[ff15::57:71]:{PORT}?interface=veth0"
    finding = doctor(pair[0], uri=uri).of("no_multicast_route")
    pair[0].run("sh", "-c", finding["advice"][0])
    assert not doctor(pair[0], uri=uri).problems("fault")


@pytest.mark.root
@pytest.mark.parametrize("uri", [URI, f"fjm2://{GROUP}:{PORT}", f"fjm2://{GROUP}:{PORT}?interface=10.57.1.1"])
def test_an_interface_that_is_down_is_named(network: Network, uri: str) -> None:
    pair = two_hosts(network)
    pair[0].ip("link", "set", "veth0", "down")
    found = doctor(pair[0], uri=uri)
    finding = found.of("interface_down")
    assert found.code == 2
    assert "veth0" in finding["text"]
    assert finding["advice"] == ["ip link set veth0 up"]


@pytest.mark.root
def test_an_unplugged_cable_is_distinguished_from_an_interface_that_is_down(network: Network) -> None:
    pair = two_hosts(network)
    pair[0].ip("link", "add", "dangling", "type", "veth", "peer", "name", "nowhere")
    set_up(pair[0], "dangling", "10.57.77.1/24")
    assert "dangling" in doctor(pair[0], uri=f"fjm2://{GROUP}:{PORT}?interface=dangling").of("no_carrier")["text"]


@pytest.mark.root
def test_an_interface_without_multicast_or_address_or_that_is_not_there(network: Network) -> None:
    pair = two_hosts(network)
    pair[0].ip("link", "set", "veth0", "multicast", "off")
    assert doctor(pair[0]).of("no_multicast_flag")["advice"] == ["ip link set veth0 multicast on"]
    pair[0].ip("link", "set", "veth0", "multicast", "on")
    pair[0].ip("address", "flush", "dev", "veth0")
    assert "veth0 has no IPv4 address" in doctor(pair[0]).of("no_address")["text"]
    finding = doctor(pair[0], uri=f"fjm2://{GROUP}:{PORT}?interface=eth7").of("interface_unknown")
    assert "interface='eth7'" in finding["text"]


@pytest.mark.root
@pytest.mark.nightly
def test_a_bus_on_another_interface_is_named(network: Network) -> None:
    host, wrong, right = (network.namespace() for _ in range(3))
    network.link(host, wrong, "veth0")
    network.link(host, right, "veth1")
    subscriber(right, "veth1")
    found = doctor(host)
    finding = found.of("wrong_interface")
    assert found.code == 2
    assert "the bus is on veth1 (10.57.2.2), and nothing of it on veth0" in finding["text"]
    assert finding["advice"] == [f"name it in the URI: {URI.replace('veth0', 'veth1')}"]
    better = doctor(host, uri=URI.replace("veth0", "veth1"))
    assert "wrong_interface" not in better.problems()
    assert "desk-7" in better.check("bus")["text"]


@pytest.mark.root
def test_an_interface_by_the_default_route_is_a_guess(network: Network) -> None:
    host, first, second = (network.namespace() for _ in range(3))
    network.link(host, first, "veth0")
    network.link(host, second, "veth1")
    host.ip("route", "add", "default", "via", "10.57.1.2")
    uri = f"fjm2://{GROUP}:{PORT}"
    finding = doctor(host, uri=uri).of("interface_is_a_guess")
    assert finding["figures"]["others"] == ["veth1"]
    host.ip("route", "add", "224.0.0.0/4", "dev", "veth1")
    found = doctor(host, uri=uri)
    assert "interface_is_a_guess" not in found.problems()
    assert found.check("interface")["text"].startswith("veth1 (")


@pytest.mark.root
def test_an_address_on_two_hosts_is_named(network: Network) -> None:
    host, other = two_hosts(network)
    other.ip("address", "add", "10.57.1.1/24", "dev", "veth0")
    hardware = other.run("cat", "/sys/class/net/veth0/address").strip()
    assert hardware in doctor(host).of("address_twice")["text"]
    other.ip("address", "del", "10.57.1.1/24", "dev", "veth0")
    assert "address_twice" not in doctor(host).problems()


@pytest.mark.root
def test_an_address_on_two_interfaces_is_named(network: Network) -> None:
    host, other = network.namespace(), network.namespace()
    network.link(host, other)
    host.ip("link", "add", "twin", "type", "veth", "peer", "name", "mate")
    set_up(host, "twin", "10.57.1.1/32")
    assert "10.57.1.1 is on veth0 and twin" in doctor(host).of("address_twice")["text"]


@pytest.mark.root
def test_a_host_with_two_interfaces_in_one_lan_is_healthy(network: Network) -> None:
    host, other = network.namespace(), network.namespace()
    switch = network.switch(host, other)
    host.ip(*f"link add veth1 type veth peer name port3 netns {switch.name}".split())
    switch.ip("link", "set", "port3", "master", "br0", "up")
    set_up(host, "veth1", "10.57.1.3/24")
    wait_until_up(host, "veth1")
    subscriber(host, "veth1")  # veth0 hears it, from an address of its own host
    assert not doctor(host).problems() & {"address_twice", "dropped_inside"}
    other.ip("address", "add", "10.57.1.1/24", "dev", "veth0")
    hardware = other.run("cat", "/sys/class/net/veth0/address").strip()
    assert hardware in doctor(host).of("address_twice")["text"]  # though the host itself answers, too


# The kernel.


@contextmanager
def tiny_buffers(size: int) -> Iterator[None]:
    """Limit the receive buffers of the whole machine for a moment. There is no such setting for a single namespace."""
    before = RMEM_MAX.read_text()
    RMEM_MAX.write_text(str(size))
    try:
        yield
    finally:
        RMEM_MAX.write_text(before)


@pytest.mark.root
@pytest.mark.alone
def test_a_tiny_rmem_max_is_named(network: Network) -> None:
    pair = two_hosts(network)
    before = RMEM_MAX.read_text()
    with tiny_buffers(65_536):
        found = unprivileged(pair[0])
    assert RMEM_MAX.read_text() == before
    finding = found.of("buffer_tiny")
    assert finding["verdict"] == "fault"
    assert finding["figures"] == {"wanted_bytes": 8 << 20, "got_bytes": 65_536, "limit_bytes": 65_536}
    assert finding["advice"][0] == f"sysctl -w net.core.rmem_max={8 << 20}"


@pytest.mark.root
def test_offload_that_is_switched_off_is_named(network: Network) -> None:
    pair = two_hosts(network)
    finding = doctor(pair[0], env={"FJM2_NO_GSO": "1"}).of("offload_off")
    assert finding["advice"] == ["unset FJM2_NO_GSO"]
    assert "µs a train instead of" in finding["text"]
    assert doctor(pair[0]).check("offload")["verdict"] == "ok"


@pytest.mark.root
def test_a_loopback_that_does_not_work_is_not_taken_for_a_kernel_without_gso(network: Network) -> None:
    pair = two_hosts(network)
    for broken in ("iptables -A INPUT -i lo -j DROP", "ip link set lo down"):
        pair[0].run("sh", "-c", broken)
        finding = doctor(pair[0]).check("offload")
        assert finding["verdict"] == "unknown", finding
        assert "127.0.0.1 does not reach itself" in finding["text"]


@pytest.mark.root
def test_segments_that_do_not_fit_are_named(network: Network) -> None:
    pair = two_hosts(network)
    pair[0].ip("link", "set", "veth0", "mtu", "1300")
    finding = doctor(pair[0]).of("segments_exceed_mtu")
    fitting = finding["advice"][0].rpartition("&")[2]
    assert "segments_exceed_mtu" not in doctor(pair[0], uri=f"{URI}&{fitting}").problems()


@pytest.mark.root
@pytest.mark.nightly
def test_a_bridge_that_snoops_without_a_querier_is_named(network: Network) -> None:
    host, other = network.namespace(), network.namespace()
    network.link(host, other)
    host.ip("link", "add", "br0", "type", "bridge", "mcast_snooping", "1")
    host.ip("address", "flush", "dev", "veth0")
    host.ip("link", "set", "veth0", "master", "br0")
    set_up(host, "br0", "10.57.1.1/24")
    uri = URI.replace("veth0", "br0")
    finding = doctor(host, uri=uri).of("snooping_without_querier")
    host.run("sh", "-c", finding["advice"][0])
    assert "snooping_without_querier" not in doctor(host, uri=uri).problems()


# Other systems.

ELSEWHERE = """
import ctypes, json, pathlib, socket, subprocess, sys, tempfile
sys.platform = sys.argv[1]
from fjm2.doctor import examine, look
from fjm2.doctor.kernel import Kernel
from fjm2.uri import BusConfig
bus = BusConfig(group="GROUP", port=int(sys.argv[2]), interface=sys.argv[3] or None, ttl=0)
print(json.dumps([one.as_dict() for one in examine(look(bus, Kernel(pathlib.Path(tempfile.mkdtemp()))))]))
"""


@pytest.mark.root
@pytest.mark.parametrize("interface", ["veth0", "", "eth7"])
def test_facts_that_another_system_hides_are_reported_as_unknown(network: Network, interface: str) -> None:
    pair = two_hosts(network)
    pair[0].ip("route", "add", "default", "dev", "veth0")
    code = ELSEWHERE.replace("GROUP", GROUP)
    findings = json.loads(pair[0].run(sys.executable, "-W", "error", "-c", code, "darwin", str(PORT), interface))
    verdicts = {one["check"]: one["verdict"] for one in findings}
    assert not [one for one in findings if one["verdict"] == "fault" and one["problem"] != "interface_unknown"]
    assert verdicts["clock"] == "unknown"
    if interface == "veth0":
        told = {one["check"] for one in findings if "on this system" in one["text"]}
        assert told >= {"interface", "route", "addresses", "mtu", "reverse_path", "membership", "clock", "drops"}
        assert verdicts["self_probe"] == "ok"


# The command.


def run_locally(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    argv = (*FJM2, "doctor", *arguments)
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=DEADLINE_S, env=os.environ | (env or {}), check=False
    )


def test_it_is_read_by_people(port: int) -> None:
    done = run_locally("--uri", f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0")
    assert done.returncode in (0, 1), done.stdout
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert all(line.split()[0] in ("ok", "warning", "unknown", "→") for line in lines[:-2]), done.stdout
    assert "interface: lo (127.0.0.1), as the URI names it" in done.stdout
    assert lines[-1].endswith((".", "unknown."))


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_closed_output_pipe_is_no_error(port: int, form: tuple[str, ...]) -> None:
    argv = (*FJM2, "doctor", *form, "--uri", f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (1, "")


def test_ctrl_c_ends_it_at_once(port: int) -> None:
    argv = (*FJM2, "doctor", "--uri", f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (130, "")


def test_a_listener_ends_by_itself_and_counts(port: int) -> None:
    uri = f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0"
    done = run_locally("--listen", "--timeout", "0.3", "--json", "--uri", uri)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"hosts": [], "answered": 0, "refused": 0}


def test_a_port_in_use_is_reported_in_one_line(port: int) -> None:
    uri = f"fjm2://{GROUP}:{port}?interface=127.0.0.1&ttl=0"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port + 1))
        done = run_locally("--listen", "--timeout", "5", "--uri", uri)
    assert done.returncode == 1
    assert done.stderr == (
        f"Error: cannot bind to 127.0.0.1 port {port + 1}, which probes are sent to: Address already in use; "
        "`ss -ulpn` shows the program that has it, such as a gateway: stop it, and listen again\n"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--listen", "--probe"], "--listen and --probe: expected one of them, on different hosts"),
        (["--watch", "5"], "--watch is only valid with --probe"),
        (["--timeout", "5"], "--timeout is only valid with --listen"),
        (["--uri", "fjm2://239.1.1.1:99999"], "port=99999: expected 1 to 65535"),
        (["--probe", "--watch", "nan"], "nan: expected seconds, or a number with a unit"),
        (["--probe", "10.300.2.3"], "--probe 10.300.2.3: expected the IPv4 address of a host, or its name"),
    ],
)
def test_mistakes_are_told_in_a_line(arguments: list[str], expected: str) -> None:
    done = CliRunner().invoke(main, ["doctor", *arguments], env={"FJM2_URI": f"fjm2://{GROUP}?interface=127.0.0.1"})
    assert done.exit_code == 2
    assert expected in done.output


def test_help_has_an_example_and_the_exit_codes() -> None:
    text = CliRunner().invoke(main, ["doctor", "--help"]).output
    assert "Example: fjm2 doctor --uri" in text
    assert "exit code is 0" in text
