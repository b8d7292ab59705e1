"""Tests of the lab itself.

Links have the configured rate, loss and delay, and LANs have no direct route to each other.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import plain
import pytest
from internet import LAN_DEVICE, Internet, address_of

pytestmark = [pytest.mark.root, pytest.mark.alone]

ROOT = Path(__file__).parents[2]


def test_gateway_hosts_reach_each_other_and_lans_do_not(lab: Internet) -> None:
    a, b = lab["a"], lab["b"]
    assert plain.reaches(a.gateway.namespace, b.gateway.namespace, b.gateway.address)
    assert plain.reaches(b.gateway.namespace, lab.admin, lab.admin_address)
    assert plain.reaches(a.hosts[0], a.hosts[1], address_of(a.hosts[1], LAN_DEVICE))
    assert not plain.reaches(a.hosts[0], b.gateway.namespace, b.gateway.address)
    assert not plain.reaches(a.gateway.namespace, b.hosts[0], address_of(b.hosts[0], LAN_DEVICE))


def test_a_delay_line_is_on_time_and_passes_trains_whole(lab: Internet) -> None:
    a, b = lab["a"].gateway, lab["b"].gateway
    direct_s = plain.median(plain.one_way_s(a, b, 50))
    with lab.delay(0.020) as delay:
        times = plain.one_way_s(a, b, 200)
        assert plain.arrivals_of_train(a, b, 40, 1_400) == 40
    assert len(times) == 200
    assert min(times) >= 0.020
    assert plain.median(times) < 0.021 + direct_s
    assert delay.result["dropped"] == 0
    # The delay line counts a train as one packet.
    assert delay.result["packets"] < 250
    assert plain.median(plain.one_way_s(a, b, 50)) < 0.005


def test_a_delay_line_reorders_and_duplicates(lab: Internet) -> None:
    a, b = lab["a"].gateway, lab["b"].gateway
    with lab.delay(0.001, reorder=0.2, duplicate=0.1):
        times = plain.one_way_s(a, b, 300, every_s=0.0005)
    assert 310 <= len(times) <= 350
    assert 0.1 < sum(each > 0.003 for each in times) / len(times) < 0.35


def test_a_rate_limit_holds_with_and_without_delay(lab: Internet) -> None:
    a, b = lab["a"].gateway, lab["b"].gateway
    share = 1472 / 1514
    with lab.rate(50):
        assert plain.capacity_bps(a, b, 50) == pytest.approx(50e6 * share, rel=0.03)
        with lab.delay(0.020):
            assert plain.capacity_bps(a, b, 50) == pytest.approx(50e6 * share, rel=0.03)
        assert lab.queue_drops()["b1"] > 0


def test_loss_applies_to_each_datagram_of_a_train(lab: Internet) -> None:
    a, b = lab["a"].gateway, lab["b"].gateway
    with lab.loss(0.2):
        arrived = sum(plain.arrivals_of_train(a, b, 40, 1_000) for _ in range(3))
    assert 120 * 0.6 < arrived < 120
    assert plain.arrivals_of_train(a, b, 40, 1_000) == 40


def test_nothing_crosses_in_a_blackout(lab: Internet) -> None:
    a, b = lab["a"].gateway, lab["b"].gateway
    with lab.blackout():
        assert plain.one_way_s(a, b, 5) == []
    assert len(plain.one_way_s(a, b, 5)) == 5


@pytest.mark.parametrize(("number", "options"), [(signal.SIGTERM, ()), (signal.SIGINT, ("--no-gateways",))])
def test_the_interactive_lab_removes_everything_when_it_ends(
    lab: Internet,  # noqa: ARG001, skips the test if the lab cannot be made
    number: signal.Signals,
    options: tuple[str, ...],
) -> None:
    command = (sys.executable, "-m", "tests.lab", *options)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process, process.stdout:
        while "Ctrl-C" not in (line := process.stdout.readline()):
            assert line, "ended"
        assert namespaces_of(process.pid) > 10
        os.kill(process.pid, number)
        assert process.wait(20) == 0
    assert namespaces_of(process.pid) == 0


def namespaces_of(pid: int) -> int:
    return sum(path.name.startswith(f"fjm2-{pid}-") for path in Path("/run/netns").iterdir())
