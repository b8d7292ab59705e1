"""Tests of commands that send while their network interface is down, or while a firewall refuses what they send."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commanding import Start, starting
from netns import Namespace, Network
from representatives import representatives

GROUP = "239.192.57.98"
BUS = f"fjm2://{GROUP}:5740?interface=veth0"
CUT_OFF = "not sent: the network interface is down; check cable and address, or run `fjm2 doctor`\n"
REFUSED = (
    "not sent: the kernel refuses to send it: Operation not permitted; a firewall rule of this host, most likely: "
    "run `fjm2 doctor` as root, which names it\n"
)
WAIT_S = 10.0

pytestmark = pytest.mark.root


@pytest.fixture(params=representatives(["switched off", "unplugged"], "switched off"))
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


RULES = {
    "nft drop": "add rule inet fw output oifname veth0 drop",
    "nft reject": "add rule inet fw output oifname veth0 reject",
    "nft policy": "chain inet fw output { policy drop; }",
    "iptables drop": f"-A OUTPUT -d {GROUP} -j DROP",
}


def refuse(host: Namespace, nft: str, rule: str) -> None:
    """Have a firewall refuse what a host sends."""
    if rule.startswith("iptables"):
        host.run("iptables", *RULES[rule].split())
    else:
        host.run(nft, "add table inet fw; add chain inet fw output { type filter hook output priority 0; }")
        host.run(nft, RULES[rule])


@pytest.mark.parametrize("rule", representatives(RULES, "nft policy"))
def test_commands_fail_if_the_kernel_refused_what_they_sent(
    network: Network, tmp_path: Path, require_tool: Callable[[str], str], rule: str
) -> None:
    host, peer = network.namespace(), network.namespace()
    network.link(host, peer)
    refuse(host, require_tool("nft"), rule)
    path = tmp_path / "some.txt"
    path.write_text("some")
    with starting(BUS) as start:
        for arguments in (["k", "x"], ["k", "x", "--quiet"], ["k", "--file", path], ["k", "x", "--non-persistent"]):
            code, _, err = start("pub", *arguments, within=host).end()
            assert code == 1, (arguments, err)
            assert err.endswith(REFUSED), (arguments, err)
        code, _, err = start("request", "k", "x", "--timeout", "1", within=host).end()
        assert code == 1
        assert err.endswith(f"Error: {REFUSED}"), err
        code, out, err = norm_send(start, host, path, "--json")
        assert (code, json.loads(out)["ok"]) == (1, False), err
        assert err.endswith(REFUSED)


@pytest.mark.nightly
def test_a_publisher_that_knows_subscribers_but_may_not_send_fails_and_tells_why(
    network: Network, require_tool: Callable[[str], str]
) -> None:
    host, peer = network.namespace(), network.namespace()
    network.link(host, peer)
    with starting(BUS) as start:
        start("sub", "k", within=peer)
        refuse(host, require_tool("nft"), "nft drop")
        for more in (["--timeout", "2"], ["--non-persistent"]):
            code, _, err = start("pub", "k", "x", *more, within=host).end()
            assert code == 1, (more, err)
            assert REFUSED in err, (more, err)


def test_commands_that_wait_warn_once_of_refused_sends(network: Network, require_tool: Callable[[str], str]) -> None:
    host, peer = network.namespace(), network.namespace()
    network.link(host, peer)
    refuse(host, require_tool("nft"), "nft reject")
    with starting(BUS) as start:
        subscriber = start("sub", "k", "--timeout", "6", within=host)
        _, _, err = subscriber.end()
        assert err.count("warning: the kernel refuses what this host sends over veth0: Operation not permitted") == 1, (
            err
        )
