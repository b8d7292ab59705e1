"""Tests that every instrument in the gateway's lists of instruments appears in its status, metrics and traces."""

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path

from fjm2.base.instruments import Instrument
from fjm2d import config as configuration
from fjm2d.counting import GatewayCounters
from fjm2d.gateway import Gateway
from fjm2d.instruments import GATEWAY_INSTRUMENTS, LAN_INSTRUMENTS, LINK_INSTRUMENTS
from fjm2d.keys import KeyPair
from fjm2d.report import metrics_of, status_of
from fjm2d.tunnel import Drop, PeerConfig

OWN, OTHER = KeyPair(bytes([1]) * 32), KeyPair(bytes([2]) * 32)


def settings(folder: Path, port: int) -> Path:
    """Write a configuration file of a gateway that sends no datagram off this host, and return its path."""
    file = folder / "fjm2d.toml"
    file.write_text(
        f'key_file = "{folder / "key"}"\n[wan]\nlisten = ["127.0.0.1:{port}"]\n'
        f'[lan]\ninterface = "127.0.0.1"\nttl = 0\nbeacon = "239.192.57.92:{port + 1}"\n'
        f'[status]\nlisten = ""\n[[group]]\naddress = "239.192.57.93:{port + 1}"\n'
    )
    return file


def fields(instruments: Iterable[Instrument]) -> set[str]:
    return {one.field for one in instruments if one.field}


def traced(instruments: Iterable[Instrument], kind: str) -> set[str]:
    return {one.trace for one in instruments if one.trace and one.kind == kind}


def test_every_listed_counter_is_in_status_metrics_and_traces(port: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        gateway = Gateway(configuration.load(settings(tmp_path, port), {}), OWN)
        gateway.open()
        try:
            peer = gateway.endpoint.add_peer(PeerConfig(public_key=OTHER.public, name="b", addresses=()), gateway.now())
            peer.stats.drops[Drop.FORGED] += 1
            gateway.endpoint.drops[Drop.FORGED] += 1
            check(gateway)
        finally:
            await gateway.close()

    asyncio.run(scenario())


def check(gateway: Gateway) -> None:
    status = status_of(gateway, None)
    assert fields(LINK_INSTRUMENTS) <= status["peers"][0].keys()
    assert fields(LAN_INSTRUMENTS) <= status["groups"][0].keys()
    assert fields(GATEWAY_INSTRUMENTS) <= status.keys()

    text = metrics_of(gateway, None)
    for one in (*LINK_INSTRUMENTS, *LAN_INSTRUMENTS, *GATEWAY_INSTRUMENTS):
        if one.metric and one.field not in {"rtt_ms", "rate_bps"}:  # unknown until the peer is connected
            assert f"# HELP {one.metric} {one.sentence}\n# TYPE {one.metric} {one.kind}\n{one.metric}" in text
    listed = {one.metric for one in (*LINK_INSTRUMENTS, *LAN_INSTRUMENTS, *GATEWAY_INSTRUMENTS)}
    counters = set(re.findall(r"^# TYPE (\w+) counter$", text, re.MULTILINE))
    assert counters <= listed, "a counter of the gateway is in no list"

    own, link, lan = GatewayCounters(gateway).readings()
    for reading, instruments in ((own, GATEWAY_INSTRUMENTS), (link, LINK_INSTRUMENTS), (lan, LAN_INSTRUMENTS)):
        assert set(reading.counters) == traced(instruments, "counter")
        assert set(reading.gauges) == traced(instruments, "gauge")
