"""Tests of commands that send while their network interface is down."""

import json
import time
from pathlib import Path

import pytest
from commanding import Start, starting
from netns import Namespace, Network

GROUP = "239.192.57.98"
BUS = f"fjm2://{GROUP}:5740?interface=veth0"
CUT_OFF = "not sent: the network interface is down; check cable and address, or run `fjm2 doctor`\n"
WAIT_S = 10.0

pytestmark = pytest.mark.root


@pytest.fixture(params=["switched off", "unplugged"])
def host(request: pytest.FixtureRequest, network: Network) -> Namespace:
    """Return a host whose only way out is down."""
    host, peer = network.namespace(), network.namespace()
    network.link(host, peer)
    (host if request.param == "switched off" else peer).ip("link", "set", "veth0", "down")
    deadline = time.monotonic() + WAIT_S  # the kernel looks at carriers once a second
    while " UP " in host.ip("-br", "address", "show", "veth0"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return host


def test_pub_fails_if_nothing_was_sent(host: Namespace, tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("some")
    with starting(BUS) as start:
        for arguments in (["k", "x"], ["k", "x", "--quiet"], ["k", "--file", path], ["k", "x", "--non-persistent"]):
            code, _, err = start("pub", *arguments, within=host).end()
            assert code == 1, (arguments, err)
            assert err.endswith(CUT_OFF), (arguments, err)


def norm_send(start: Start, host: Namespace, path: Path, *more: object) -> tuple[int, bytes, str]:
    where = ("--group", GROUP, "--port", 5741, "--interface", "veth0")
    return start("norm", "send", *where, "--data", path, *more, within=host).end()


def test_norm_send_fails_if_nothing_was_sent(host: Namespace, tmp_path: Path) -> None:
    path = tmp_path / "some.bin"
    path.write_bytes(b"some")
    with starting(BUS) as start:
        code, out, err = norm_send(start, host, path, "--json")
        assert (code, json.loads(out)["ok"]) == (1, False), err
        assert err.endswith(CUT_OFF)


def test_without_receivers_on_a_good_network_nothing_fails(network: Network, tmp_path: Path) -> None:
    host, peer = network.namespace(), network.namespace()
    network.link(host, peer)
    path = tmp_path / "some.bin"
    path.write_bytes(b"some")
    with starting(BUS) as start:
        code, _, err = start("pub", "k", "x", within=host).end()
        assert (code, CUT_OFF in err) == (0, False), err
        code, _, err = norm_send(start, host, path)
        assert (code, CUT_OFF in err) == (0, False), err
