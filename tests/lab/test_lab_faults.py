"""Tests of traffic between LANs when gateways, the node-list service or the Internet fail."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from gateways import Admin, make_gateways, static_gateways
from internet import GatewayHost, Internet, address_of
from peers import until
from traffic import traffic

pytestmark = [pytest.mark.root, pytest.mark.alone]

RECOVERY_S = 3.0
REPORT_S = 0.3
"""Longest time between a message and the subscriber's report of it, on a busy machine."""
START_S = 1.5
"""Time in which a gateway's process starts on a busy machine."""
BLACKOUT_S = 20.0
BACK_S = 10.0
ADMIN_BACK_S = 25.0
"""Time in which gateways find the node-list service again. They retry less and less often, at last every 18 s."""


def test_admin_may_be_down_and_come_back(lab: Internet, tmp_path: Path) -> None:
    gateways = make_gateways(lab, tmp_path, "a1 b1")
    with ExitStack() as stack:
        admin = Admin(lab, tmp_path, heartbeat_s=1, stale_s=3)
        for gateway in gateways.values():
            gateway.know_admin(admin.address, admin.token(gateway.name))
        for running in (admin, *gateways.values()):
            stack.enter_context(running)
        for gateway in gateways.values():
            gateway.wait_until_up(1)
        flow = stack.enter_context(traffic(lab, "b"))
        admin.kill()
        killed_at = time.monotonic()
        time.sleep(4)
        # A gateway that starts while the service is down uses its saved list.
        gateways["b1"].kill()
        gateways["b1"].restart()
        gateways["b1"].wait_until_up(1)
        assert flow.longest_silence_s("b", killed_at) < RECOVERY_S + START_S
        flow.end()
        admin.start()
        live = lambda: {name for name, node in admin.nodes().items() if node["state"] == "live"}  # noqa: E731
        until(lambda: live() == {"a1", "b1"}, ADMIN_BACK_S, lambda: f"{admin.nodes()}")


def test_the_other_gateway_of_a_lan_takes_over(lab: Internet, tmp_path: Path) -> None:
    with static_gateways(lab, tmp_path, "a1 a2 b1") as gateways, traffic(lab, "b") as flow:
        forwarder = min((gateways["a1"], gateways["a2"]), key=lambda gateway: gateway.keys.public.id)
        time.sleep(1)
        killed_at = time.monotonic()
        forwarder.kill()
        time.sleep(RECOVERY_S + 1)
        assert flow.longest_silence_s("b", killed_at) < RECOVERY_S + REPORT_S
        # The killed gateway comes back and forwards again, without an interruption of the traffic.
        back_at = time.monotonic()
        forwarder.restart()
        forwarder.wait_until_up(1)
        time.sleep(RECOVERY_S)
        assert flow.longest_silence_s("b", back_at) < RECOVERY_S + REPORT_S
        flow.end()


@pytest.mark.parametrize("name", ["a1", "b1"])
def test_a_gateway_that_is_killed_and_restarted_is_back_in_three_seconds(
    lab: Internet, tmp_path: Path, name: str
) -> None:
    with static_gateways(lab, tmp_path, "a1 b1") as gateways, traffic(lab, "b") as flow:
        gateways[name].kill()
        time.sleep(1)
        before = flow.received("b")
        back_at = time.monotonic()
        gateways[name].restart()
        until(lambda: flow.received("b") > before, RECOVERY_S + START_S, lambda: f"{flow}")
        print(f"{name} was back after {time.monotonic() - back_at:.2f} s")
        flow.end()


def test_messages_sent_during_a_blackout_arrive_afterwards(lab: Internet, tmp_path: Path) -> None:
    with static_gateways(lab, tmp_path, "a1 b1") as gateways, traffic(lab, "b") as flow:
        with lab.blackout():
            dark_at = time.monotonic()
            time.sleep(0.5)
            before = flow.received("b")
            time.sleep(BLACKOUT_S - 0.5)
            assert flow.received("b") == before
            assert flow.sent > before + 50 * BLACKOUT_S, "the publisher was held up"
        light_at = time.monotonic()
        assert light_at - dark_at >= BLACKOUT_S
        until(lambda: flow.received("b") > before, BACK_S, lambda: f"{flow}\n{gateways['a1']}\n{gateways['b1']}")
        print(f"first message {time.monotonic() - light_at:.2f} s after the blackout")
        flow.end()


def test_a_broken_file_is_explained_and_keeps_the_running_configuration(lab: Internet, tmp_path: Path) -> None:
    with static_gateways(lab, tmp_path, "a1 b1") as gateways, traffic(lab, "b") as flow:
        gateway = gateways["a1"]
        good = gateway.config_path.read_text()
        for broken, told in (
            (good.replace('rate = "none"', 'rate = "quick"'), ("wan.rate", "quick", "measure")),
            (good.replace("[lan]", "[lan"), ("TOML",)),
            (good.replace('name = "b1"', 'nom = "b1"'), ("peer[1].nom", "endpoints")),
        ):
            assert broken != good
            gateway.config_path.write_text(broken)
            lines = len(gateway.program.lines)
            at = time.monotonic()
            gateway.reload()
            line = gateway.program.wait_for_line(told[0], after=lines)
            assert all(word in line for word in (*told, str(gateway.config_path))), line
            time.sleep(0.5)
            assert gateway.program.is_running
            assert flow.longest_silence_s("b", at) < 1.0
        gateway.config_path.write_text(good.replace('rate = "none"', 'rate = "50mbit"'))
        gateway.reload()
        rate = lambda: gateway.metric("fjm2d_peer_rate_bits_per_second")  # noqa: E731
        until(lambda: rate() == 50e6, BACK_S, lambda: f"{rate()} {gateway}")
        flow.end()


def test_traffic_follows_a_gateway_whose_address_changes(lab: Internet, tmp_path: Path) -> None:
    with static_gateways(lab, tmp_path, "a1 b1") as gateways, traffic(lab, "b") as flow:
        changed_at = time.monotonic()
        with moved(lab, gateways["b1"].host) as address:
            gateways["a1"].program.wait_for_line(f"address={address}:", timeout_s=RECOVERY_S)
            time.sleep(1)
            assert flow.longest_silence_s("b", changed_at) < RECOVERY_S + REPORT_S
            flow.end()


def test_a_gateway_behind_a_nat_calls_its_peer(lab: Internet, tmp_path: Path) -> None:
    gateways = make_gateways(lab, tmp_path, "a1 b1")
    caller, called = gateways["b1"], gateways["a1"]
    called.know_peers([caller], has_endpoints=False)
    caller.know_peers([called])
    with lab.translated(caller.host) as shown, called, caller:
        called.wait_until_up(1)
        assert any(f"address={shown}:" in line for line in called.program.lines if "peer_up" in line)
        with traffic(lab, "b") as flow:
            time.sleep(1)
            flow.end()


@contextmanager
def moved(lab: Internet, host: GatewayHost) -> Iterator[str]:
    """Give a host another address in the same subnet, and restore the old address afterwards."""
    other = f"{host.address}77"  # 10.57.N.1 becomes 10.57.N.177
    readdress(lab, host, host.address, other)
    try:
        yield other
    finally:
        readdress(lab, host, other, host.address)


def readdress(lab: Internet, host: GatewayHost, gone: str, come: str) -> None:
    router = address_of(lab.router, host.wan_device)
    host.namespace.ip("address", "del", f"{gone}/24", "dev", host.wan_device)
    host.namespace.ip("address", "add", f"{come}/24", "dev", host.wan_device)
    host.namespace.ip("route", "replace", "default", "via", router)
