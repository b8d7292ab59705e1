"""Tests of finding network interfaces, and of choosing the right one."""

import re
import socket
import time

import pytest
from netns import Network

from fjm2.errors import ConfigError
from fjm2.norm.net import interfaces
from fjm2.norm.net.interfaces import (
    LOST_COUNT,
    Interface,
    InterfaceWatch,
    find_interface,
    list_interfaces,
    local_address,
)

V4, V6 = socket.AF_INET, socket.AF_INET6


def test_the_loopback_is_found_by_name_address_and_route() -> None:
    by_name = find_interface("lo", V4)
    assert by_name == find_interface("127.0.0.1", V4) == find_interface(None, V4, "127.0.0.1")
    assert by_name in list_interfaces()
    assert (by_name.is_up, by_name.has_multicast, by_name.ipv4[0]) == (True, True, "127.0.0.1")
    assert by_name.mtu > 0


@pytest.mark.parametrize("text", ["eth77", "192.0.2.77", "fe80::1", "::1"])
def test_the_error_for_a_wrong_interface_lists_the_interfaces(text: str) -> None:
    expected = f"interface='{text}': expected the name or the IPv4 address of an interface; there are lo (127.0.0.1"
    with pytest.raises(ConfigError, match=f"^{re.escape(expected)}"):
        find_interface(text, V4)


def test_without_netlink_interface_names_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interfaces, "HAS_NETLINK", False)
    lo = find_interface("lo", V4)
    assert (lo.name, lo.ipv4) == ("lo", ("127.0.0.1",))
    assert find_interface("127.0.0.1", V4) == lo
    assert local_address(lo, "lo", V4, "127.0.0.1") == "127.0.0.1"
    with pytest.raises(ConfigError, match="expected the name of an interface, as routes are not known"):
        find_interface(None, V4, "239.1.2.3")


@pytest.mark.root
def test_the_best_address_is_first(network: Network) -> None:
    host, peer = network.namespace(), network.namespace()
    network.link(host, peer)
    host.ip("address", "add", "fd57::1/64", "dev", "veth0", "nodad", "preferred_lft", "0")
    host.ip("address", "add", "fd57::2/64", "dev", "veth0", "nodad")
    host.ip("address", "add", "10.57.1.77/24", "dev", "veth0")
    host.ip("address", "add", "fd57::9/64", "dev", "veth0", "optimistic")
    host.ip("link", "set", "veth0", "multicast", "off")
    with host.entered():
        veth = find_interface("veth0", V6)
        assert veth.ipv4 == ("10.57.1.1", "10.57.1.77")
        assert veth.ipv6[-2] == "fd57::1"
        assert "fd57::2" in veth.ipv6[:2]
        assert not veth.has_multicast
        link_local = veth.ipv6[-1]
        assert re.fullmatch(r"fe80::[0-9a-f:]+%veth0", link_local)
        assert local_address(veth, "veth0", V6, "ff15::1") == veth.ipv6[0]
        assert local_address(veth, "veth0", V6, "ff12::1") == link_local
        assert local_address(veth, None, V6, "fe80::99%veth0") == link_local
        assert local_address(veth, "fd57::1", V6, "ff12::1") == "fd57::1"
        assert local_address(veth, "10.57.1.77", V4, "239.1.2.3") == "10.57.1.77"
        assert local_address(veth, "veth0", V4, "10.57.1.77") in veth.ipv4


@pytest.mark.root
def test_an_interface_that_cannot_be_chosen_is_refused(network: Network) -> None:
    host, peer = network.namespace(), network.namespace()
    for name in ("veth1", "veth2"):
        network.link(host, peer, name)
        host.ip(*f"address add fe80::57/64 dev {name} nodad".split())
    host.ip("link", "add", "bare0", "type", "veth")
    with host.entered():
        with pytest.raises(ConfigError, match="interface='fe80::57': expected an address with its scope, as several"):
            find_interface("fe80::57", V6)
        assert find_interface("fe80::57%veth2", V6).name == "veth2"
        with pytest.raises(ConfigError, match="'bare0': expected an interface with an IPv4 address; there are lo"):
            find_interface("bare0", V4)
        with pytest.raises(ConfigError, match=r"^no network interface leads to 239\.1\.2\.3 ") as error:
            find_interface(None, V4, "239.1.2.3")
        assert "(Network is unreachable): connect this host" in str(error.value)
        assert "in a URI ?interface=127.0.0.1&ttl=0; there are lo" in str(error.value)


def _poll_until(watch: InterfaceWatch, wanted: int) -> set[int]:
    heard: set[int] = set()
    deadline = time.monotonic() + 5.0
    while wanted not in heard and time.monotonic() < deadline:
        heard |= watch.poll() or set()
        time.sleep(0.01)
    return heard


@pytest.mark.root
def test_the_watch_reports_removed_interfaces(network: Network) -> None:
    host = network.namespace()
    switch = network.switch(host)
    with switch.entered():
        watch = InterfaceWatch()
        port = find_by_name("port1")
    assert watch.poll() is None
    switch.ip("link", "set", "port1", "nomaster")
    assert watch.poll() == set()  # it has left the bridge, but it still exists
    switch.ip("link", "delete", "port1")
    assert port.index in _poll_until(watch, port.index)
    time.sleep(0.1)
    watch.poll()
    assert watch.poll() is None
    for number in range(400):
        switch.ip("link", "set", "br0", "mtu", str(1400 + number % 2))
    assert LOST_COUNT in _poll_until(watch, LOST_COUNT)
    watch.close()


def find_by_name(name: str) -> Interface:
    """Return the interface with this name, whichever addresses it has."""
    return next(one for one in list_interfaces() if one.name == name)
