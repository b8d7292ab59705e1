"""Tests of the share of a WAN's capacity that JMS uses from LAN to LAN.

The round trip is 40 ms. The WAN loses datagrams in some of the tests.
"""

import sys
from pathlib import Path
from typing import Any

import plain
import pytest
from gateways import Gateway, static_gateways, uri
from internet import Internet
from programs import Program

pytestmark = [pytest.mark.root, pytest.mark.alone]

WAN_MBIT = 100
ONE_WAY_S = 0.020
SECONDS = 10
SETTINGS = {"rate": "94mbit"}
"""Settings of the publisher. The headers of the tunnel use the rest of the capacity."""
QUEUE_DROPS_SHARE_MAX = 0.001
_BENCH = (sys.executable, "-m", "fjm2bench")


@pytest.mark.parametrize(("loss", "share"), [(0.0, 0.9), (0.01, 0.7)])
def test_jms_fills_a_wan(lab: Internet, tmp_path: Path, loss: float, share: float) -> None:
    left, right = lab["a"].gateway, lab["b"].gateway
    with lab.rate(WAN_MBIT), lab.delay(ONE_WAY_S):
        capacity_bps = plain.capacity_bps(left, right, WAN_MBIT)
        assert capacity_bps > 0.95e6 * WAN_MBIT, "the machine is too busy to measure anything"
        link_drops = lab.queue_drops()["b1"]
        with static_gateways(lab, tmp_path, "a1 b1", rate=f"{WAN_MBIT}mbit") as gateways:
            if loss:
                with lab.loss(loss):
                    sent = transfer(lab)
            else:
                sent = transfer(lab)
            drops, datagrams = queue_drops(gateways["a1"])
        link_drops = lab.queue_drops()["b1"] - link_drops
    reached = sent["gbit_per_s"] * 1e9 / capacity_bps
    print(
        f"{sent['gbit_per_s'] * 1e3:.1f} of {capacity_bps / 1e6:.1f} Mbit/s = {reached:.1%} at {loss:.0%} loss; "
        f"of {datagrams:.0f} datagrams {drops:.0f} dropped by the gateway, {link_drops} by the link"
    )
    assert reached >= share
    assert drops < QUEUE_DROPS_SHARE_MAX * datagrams
    assert link_drops < QUEUE_DROPS_SHARE_MAX * datagrams


def test_jms_fills_a_wan_whose_rate_is_measured(lab: Internet, tmp_path: Path) -> None:
    """The measured time includes the start, while the gateway still measures the rate."""
    left, right = lab["a"].gateway, lab["b"].gateway
    with lab.rate(WAN_MBIT), lab.delay(ONE_WAY_S):
        capacity_bps = plain.capacity_bps(left, right, WAN_MBIT)
        assert capacity_bps > 0.95e6 * WAN_MBIT, "the machine is too busy to measure anything"
        link_drops = lab.queue_drops()["b1"]
        with static_gateways(lab, tmp_path, "a1 b1", rate="measure") as gateways:
            sent = transfer(lab)
            datagrams = queue_drops(gateways["a1"])[1]
        link_drops = lab.queue_drops()["b1"] - link_drops
    reached = sent["gbit_per_s"] * 1e9 / capacity_bps
    print(f"{reached:.1%} of {capacity_bps / 1e6:.1f} Mbit/s; {link_drops} of {datagrams:.0f} dropped by the link")
    assert reached >= 0.7
    assert link_drops < 10 * QUEUE_DROPS_SHARE_MAX * datagrams


def transfer(lab: Internet) -> dict[str, Any]:
    """Send messages from LAN A to LAN B until the subscriber has confirmed all of them.

    Return the publisher's result.
    """
    ends = ("--layer", "jms", "--uri", uri(**SETTINGS), "--size", "8192", "--json", "--timeout", 90)
    with Program(lab["b"].hosts[0], *_BENCH, "sub", *ends) as subscriber:
        subscriber.wait_for("ready")
        with Program(lab["a"].hosts[0], *_BENCH, "pub", *ends, "--seconds", SECONDS) as publisher:
            sent: dict[str, Any] = publisher.wait_until(lambda: next(iter(publisher.reports), None), "a result", 90.0)
            assert publisher.wait() == 0, f"{publisher}"
        assert subscriber.wait() == 0, f"{subscriber}"
    assert sent["messages"] * sent["size"] * 8 > 10e6 * SECONDS
    return sent


def queue_drops(gateway: Gateway) -> tuple[float, float]:
    """Return the number of datagrams that a gateway dropped because a queue was full, and the number that it sent."""
    dropped = sum(gateway.metric("fjm2d_peer_drops_total", reason=reason) for reason in ("queue_full", "urgent_full"))
    return dropped, gateway.metric("fjm2d_peer_sent_datagrams_total")
