"""Tests of the look for sockets of others, by which a bus knows that nobody else hears it."""

import socket
import sys
from pathlib import Path

import pytest

from fjm2.bus.config import BusConfig
from fjm2.jms.sends import lone_bus
from fjm2.jms.sends.lone_bus import is_alone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such table")

HOSTS = {4: ("239.192.57.40", "127.0.0.1"), 6: ("ff11::57", "::1")}


@pytest.fixture(params=HOSTS)
def version(request: pytest.FixtureRequest) -> int:
    found: int = request.param
    return found


def bound(version: int, host: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind((host, port))
    return opened


def config(version: int, port: int, ttl: int = 0) -> BusConfig:
    return BusConfig(group=HOSTS[version][0], port=port, ttl=ttl)


def test_a_bus_is_alone_until_somebody_else_binds_its_port(version: int, port: int) -> None:
    with bound(version, "", port), bound(version, "", port + 1):
        assert is_alone(config(version, port))
        with bound(version, "", port):
            assert not is_alone(config(version, port))
        assert is_alone(config(version, port))


def test_what_leaves_the_host_may_be_heard_by_anybody(version: int, port: int) -> None:
    with bound(version, "", port):
        assert not is_alone(config(version, port, ttl=1))


def test_a_peer_may_be_anywhere(port: int) -> None:
    with bound(4, "127.0.0.1", port):
        assert not is_alone(BusConfig(group="127.0.0.1", port=port, ttl=0))


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"a head\n\nodd\n"])
def test_a_table_that_cannot_be_read_tells_nothing(
    port: int, content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "udp"
    if content is not None:
        table.write_bytes(content)
    monkeypatch.setattr(lone_bus, "_TABLES", {4: table, 6: table})
    with bound(4, "", port):
        assert not is_alone(config(4, port))
