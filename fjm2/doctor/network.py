"""Checks of what a bus uses on this host: settings, interface, route, addresses, MTU, bridges, reverse path."""

import errno
import ipaddress
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fjm2.base.errors import ConfigError
from fjm2.norm.net.interfaces import HAS_NETLINK, Interface, find_interface

from .scene import Scene, is_switched_on
from .verdict import Finding, fault, ok, unknown, warning

_ALL_MULTICAST = ipaddress.IPv4Network("224.0.0.0/4")
_LINK_BLOCK = ipaddress.ip_network("224.0.0.0/24")
_SOURCE_SPECIFIC = (ipaddress.ip_network("232.0.0.0/8"), ipaddress.ip_network("ff30::/12"))


def check_network(scene: Scene) -> Iterator[Finding]:
    """Yield the findings of checks that send no packets."""
    yield _settings(scene)
    yield _interface(scene)
    if scene.place is None:
        return
    if scene.udp.is_multicast:
        yield _route(scene)
    yield _addresses(scene)
    yield _mtu(scene)
    yield _reverse_path(scene)
    yield from _bridge(scene)


def _settings(scene: Scene) -> Finding:
    bus, told = scene.bus, f"{scene.bus.group} port {scene.bus.port}, ttl {scene.bus.ttl}"
    group = ipaddress.ip_address(scene.group)
    if not scene.udp.is_multicast:
        return warning(
            "settings",
            "group_is_no_group",
            f"{bus.group} is the address of one host: multicast is neither used nor checked",
            "for a bus, use a group: fjm2://239.192.57.40:5740",
        )
    if group in _LINK_BLOCK:
        return warning(
            "settings",
            "group_is_reserved",
            f"{group} is in 224.0.0.0/24, which is reserved for routing protocols, and flooded by switches",
            "choose a group in 239.0.0.0/8",
        )
    if any(group in network for network in _SOURCE_SPECIFIC if network.version == group.version):
        return warning(
            "settings",
            "group_is_source_specific",
            f"{group} is reserved for source-specific multicast: routers do not forward it to FJM2's members",
            "choose a group in 239.0.0.0/8, or in ff15::/16",
        )
    if bus.ttl == 0 and scene.place is not None and not scene.interface.is_loopback:
        return warning("settings", "ttl_is_0", f"{told}: nothing leaves this host", "remove ttl=0 from the URI")
    return ok("settings", f"{told}, segments of {bus.sender.segment_bytes} bytes")


def _interface(scene: Scene) -> Finding:
    if scene.place is None:
        return _no_place(scene)
    one = scene.interface
    why = "as the URI names it" if scene.bus.interface else "as the kernel's route to the group says"
    if not HAS_NETLINK:
        return unknown("interface", f"{one.name}: its state cannot be read on this system")
    if not is_switched_on(one):
        return _down(one)
    if not one.is_up:
        return fault(
            "interface",
            "no_carrier",
            f"{one.name} ({scene.place.address}) has no carrier: nothing can be sent or received",
            "check the cable, the switch port, or the other end of a virtual link",
        )
    if not one.has_multicast:
        return fault(
            "interface",
            "no_multicast_flag",
            f"multicast is switched off on {one.name}",
            f"ip link set {one.name} multicast on",
        )
    where = "which reaches this host only" if one.is_loopback else "up, with a carrier"
    return ok("interface", f"{one.name} ({scene.place.address}), {why}; {where}", name=one.name, mtu=one.mtu)


def _down(interface: Interface) -> Finding:
    name = interface.name
    return fault("interface", "interface_down", f"{name} is switched off", f"ip link set {name} up")


def _no_place(scene: Scene) -> Finding:
    """Return the finding that the bus has no interface: it does not exist, has no address, is down, or there is no
    route to the group."""
    named = scene.bus.interface
    found = [one for one in scene.interfaces if one.name == named]
    if named is not None and found:
        if not is_switched_on(found[0]):
            return _down(found[0])
        kind = "IPv6" if scene.is_ipv6 else "IPv4"
        return fault(
            "interface",
            "no_address",
            f"{named} has no {kind} address, which the group {scene.group} needs",
            f"ip address add ADDRESS/PREFIX dev {named}",
            "or name another interface in the URI",
        )
    if named is not None:
        return fault("interface", "interface_unknown", scene.problem, *_names(scene, scene.candidates()))
    if not scene.interfaces or not HAS_NETLINK:
        return unknown("interface", scene.problem, f"name one in the URI: {scene.uri_on('ADDRESS')}")
    return _no_route(scene)


def _no_route(scene: Scene) -> Finding:
    candidates = scene.candidates()
    off = [one for one in candidates if not is_switched_on(one)]
    network = "ff00::/8" if scene.is_ipv6 else "224.0.0.0/4"
    if candidates and len(off) == len(candidates):
        return fault(
            "interface",
            "interface_down",
            f"no interface leads to {scene.group}: {', '.join(one.name for one in off)} could, but is switched off",
            *(f"ip link set {one.name} up" for one in off),
        )
    ready = [one for one in candidates if one not in off]
    family = " -6" if scene.is_ipv6 else ""
    table = " table local" if scene.is_ipv6 else ""
    return fault(
        "route",
        "no_multicast_route",
        f"no route leads to {scene.group}, and the URI names no interface: the bus cannot be opened",
        *_names(scene, ready),
        *(f"ip{family} route add {network} dev {one.name}{table}" for one in ready),
    )


def _names(scene: Scene, interfaces: Sequence[Interface]) -> Iterator[str]:
    """Yield the advice to name one of these interfaces or, without any, to do with the loopback."""
    for one in interfaces:
        yield f"name it in the URI: {scene.uri_on(one.name)}"
    if not interfaces:
        yield f"connect this host to a network; a bus of this host alone is {_uri_here(scene)}"


def _uri_here(scene: Scene) -> str:
    """Return the URI of the same bus on the loopback."""
    return replace(scene.bus, interface="::1" if scene.is_ipv6 else "127.0.0.1", ttl=0).to_uri()


def _route(scene: Scene) -> Finding:
    one = scene.interface
    if not HAS_NETLINK:
        return unknown("route", "routes cannot be read on this system")
    if scene.is_ipv6 and not _can_reach(scene):
        kind = "local" if one.is_loopback else "multicast"
        return fault(
            "route",
            "no_multicast_route",
            f"{one.name} has no route for IPv6 multicast: sends are refused",
            f"ip -6 route add {kind} ff00::/8 dev {one.name} table local",
        )
    if scene.bus.interface is None:
        return _routes_choice(scene)
    try:
        routed = find_interface(None, scene.udp.family, scene.group).name
    except (ConfigError, OSError):
        return ok("route", f"none leads to {scene.group}, and none is needed: the URI names {one.name}")
    if routed == one.name:
        return ok("route", f"to {scene.group}: on {one.name}, as the URI says")
    return ok(
        "route",
        f"the kernel's route leads to {routed}, but the bus is on {one.name}, as the URI says: "
        "programs whose URI names no interface are not on this bus",
        routed=routed,
    )


def _routes_choice(scene: Scene) -> Finding:
    """Judge the kernel's choice of an interface. The choice is a guess if it follows the default route and there are
    alternatives."""
    one, others = scene.interface, [other.name for other in scene.candidates() if other.is_up]
    if one.name in others:
        others.remove(one.name)
    if not others or _has_multicast_route(scene):
        return ok("route", f"to {scene.group}: on {one.name}")
    return warning(
        "route",
        "interface_is_a_guess",
        f"{scene.group} uses {one.name} only because the default route does; {_list(others)} may be meant instead",
        f"if {one.name} is right, say so in the URI: {scene.uri_on(one.name)}",
        *(f"otherwise: {scene.uri_on(other)}" for other in others),
        others=others,
    )


def _has_multicast_route(scene: Scene) -> bool:
    """Return True if a route is for multicast, or routes cannot be read."""
    text = scene.kernel.text("proc/net/route")
    if text is None or scene.is_ipv6:
        return True
    return any(network.subnet_of(_ALL_MULTICAST) for network in parse_routes(text))


def parse_routes(text: str) -> list[ipaddress.IPv4Network]:
    """Return the destinations in /proc/net/route."""
    found = []
    for line in text.splitlines()[1:]:
        words = line.split()
        try:
            destination, mask = (int.from_bytes(bytes.fromhex(words[at]), "little") for at in (1, 7))
            found.append(ipaddress.IPv4Network((destination, str(ipaddress.IPv4Address(mask)))))
        except (ValueError, IndexError):
            continue
    return found


def _can_reach(scene: Scene) -> bool:
    """Return True if the kernel would send to an IPv6 group on the interface. Nothing is sent."""
    index = scene.interface.index
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        return probe.connect_ex((scene.group, scene.udp.port, 0, index)) != errno.ENETUNREACH


def _addresses(scene: Scene) -> Finding:
    assert scene.place is not None
    if not HAS_NETLINK:
        return unknown("addresses", "cannot be read on this system")
    counts = Counter(address for one in scene.interfaces for address in (*one.ipv4, *one.ipv6))
    mine = scene.interface.addresses(scene.udp.family)
    twice = [address for address in mine if counts[address] > 1]
    if not twice:
        return ok("addresses", f"{', '.join(mine)}")
    owners = [one.name for one in scene.interfaces if twice[0] in (*one.ipv4, *one.ipv6)]
    return fault(
        "addresses",
        "address_twice",
        f"{twice[0]} is on {_list(owners)}: answers may go to the wrong one",
        *(f"ip address del {twice[0]}/PREFIX dev {name}" for name in owners if name != scene.interface.name),
    )


def _mtu(scene: Scene) -> Finding:
    mtu, needed = scene.interface.mtu, scene.datagram_bytes + scene.ip_bytes
    segment_bytes = scene.bus.sender.segment_bytes
    if not mtu:
        return unknown("mtu", "cannot be read on this system")
    if needed <= mtu:
        return ok("mtu", f"{mtu} bytes; the largest packets of the bus have {needed}", mtu=mtu, needed=needed)
    fits = mtu - needed + segment_bytes
    return fault(
        "mtu",
        "segments_exceed_mtu",
        f"segments of {segment_bytes} bytes make packets of {needed}, but {scene.interface.name} takes {mtu}: they are "
        "fragmented, or lost",
        f"in the URI of every member: &segment_bytes={max(64, fits)}",
        f"or: ip link set {scene.interface.name} mtu {needed}",
        mtu=mtu,
        needed=needed,
    )


def _reverse_path(scene: Scene) -> Finding:
    """Check rp_filter, which silently drops packets, multicast too, if they arrive on another interface than the route
    back to their sender uses."""
    name = scene.interface.name
    if scene.is_ipv6:
        return ok("reverse_path", "IPv6 has no rp_filter")
    mode = reverse_path_mode(scene, name)
    if mode is None:
        return unknown("reverse_path", "there is no rp_filter on this system")
    if mode != 1 or scene.interface.is_loopback:
        meaning = {0: "off", 1: "strict", 2: "loose"}.get(mode, str(mode))
        return ok("reverse_path", f"rp_filter of {name} is {meaning}", mode=mode)
    return ok("reverse_path", f"rp_filter of {name} is strict: routes to senders must lead to {name}, too", mode=mode)


def reverse_path_mode(scene: Scene, name: str) -> int | None:
    """Return the mode of rp_filter: 0 for off, 1 for strict, 2 for loose. It is the higher of the global setting and
    the interface's own."""
    modes = [scene.kernel.number(f"proc/sys/net/ipv4/conf/{one}/rp_filter") for one in ("all", name)]
    known = [mode for mode in modes if mode is not None]
    return max(known) if known else None


def _bridge(scene: Scene) -> Iterator[Finding]:
    """Check bridges of this host: a bridge is a switch, and may filter multicast like one."""
    name = scene.interface.name
    for bridge in _bridges(scene, name):
        folder = f"sys/class/net/{bridge}/bridge"
        snoops, asks = (scene.kernel.number(f"{folder}/multicast_{what}") for what in ("snooping", "querier"))
        if snoops is None:
            continue
        if snoops and not asks:
            yield warning(
                "bridge",
                "snooping_without_querier",
                f"the bridge {bridge} filters multicast by IGMP snooping, and is no querier itself: without a "
                "querier on the network, memberships run out after minutes",
                f"ip link set {bridge} type bridge mcast_querier 1",
                f"or turn snooping off: ip link set {bridge} type bridge mcast_snooping 0",
            )
        else:
            yield ok("bridge", f"{bridge} {'filters multicast, and is a querier' if snoops else 'floods multicast'}")


def _bridges(scene: Scene, name: str) -> list[str]:
    """Return the interface itself if it is a bridge, or the bridge that it is a port of."""
    if scene.kernel.text(f"sys/class/net/{name}/bridge/multicast_snooping") is not None:
        return [name]
    uevent = scene.kernel.root / f"sys/class/net/{name}/master"
    try:
        return [uevent.resolve(strict=True).name]
    except OSError:
        return []


def _list(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
