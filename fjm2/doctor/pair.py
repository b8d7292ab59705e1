"""Judges the measurements between two hosts. No I/O."""

from collections.abc import Iterator

from fjm2.base.quantities import counted

from .prober import ProbedListener, Series, all_times, percentile
from .scene import Scene, same_network
from .verdict import Finding, fault, ok, unknown, warning

_HERE = "this host"
_LOSS_FAULT = 0.2  # share of round trips; a LAN that loses this many has a defect
_SLOW_MS = 100.0  # no LAN takes this long, so that FJM2's first estimate of the round-trip time is too small
_CLOCK_S = 0.5  # times to live are rarely shorter than seconds


def judge_nobody(scene: Scene, address: str | None) -> Finding:
    """Return the finding that no listener was found by any means."""
    to_start = f"start one on the other host: fjm2 doctor --listen --uri '{scene.bus.to_uri()}'"
    if address is None:
        return fault(
            "listener",
            "no_listener",
            "no listener was heard, and none answered by multicast",
            to_start,
            "if one is running, name its host to ask it by unicast: fjm2 doctor --probe ADDRESS",
        )
    return fault(
        "listener",
        "no_listener",
        f"{address} answers neither by multicast nor by unicast (port {scene.door_port})",
        to_start,
        f"check whether the host is reachable: ping {address}",
        f"let the firewalls of both hosts pass UDP to port {scene.door_port}",
    )


def judge_pair(scene: Scene, one: ProbedListener) -> Iterator[Finding]:
    """Yield findings about the path to a listener and back: whether packets arrive, how many, and how large they may
    be."""
    yield ok("listener", f"{one.host} answers", host=one.host)
    yield from _ways(scene, one)
    yield from _quality(one)
    yield from _sizes(scene, one)
    yield from _clock(one)
    if one.watched is not None:
        yield from _watched(one)


def _ways(scene: Scene, one: ProbedListener) -> Iterator[Finding]:
    unicast = one.got("unicast") + one.got("answered") + one.got("way_back") > 0
    goes_out, comes_in = one.by_multicast > 0, one.got("both") + one.got("answered") > 0
    multicast = goes_out or comes_in
    yield _multicast(scene, one, "multicast_out", goes_out, f"from here to {one.host}", one.host, unicast or multicast)
    yield _multicast(scene, one, "multicast_in", comes_in, f"from {one.host} to here", _HERE, unicast or multicast)
    if one.got("unicast"):
        yield ok("unicast", f"arrives both ways ({one.got('unicast')} of {_sent(one, 'unicast')})")
    else:
        yield fault(
            "unicast",
            "unicast_dropped",
            f"packets to {one.host} port {scene.door_port}, or its answers, do not arrive",
            f"let the firewall of {one.host} pass UDP: iptables -I INPUT -p udp -s {_own(scene)} -j ACCEPT",
            _find_rule(one.host),
        )
    yield from _ways_back(scene, one, goes_out)


def _multicast(
    scene: Scene, one: ProbedListener, check: str, works: bool, way: str, receiver: str, reachable: bool
) -> Finding:
    if works:
        return ok(check, f"to {scene.group} arrives, {way}")
    if not reachable:
        return unknown(check, f"to {scene.group}, {way}: nothing else arrives either")
    return fault(
        check,
        "multicast_filtered",
        f"to {scene.group} does not arrive, {way}, though other packets do",
        *_likely_causes(scene, one, receiver),
    )


def _likely_causes(scene: Scene, one: ProbedListener, receiver: str) -> Iterator[str]:
    """Yield likely causes of missing multicast, in the order in which a packet meets them."""
    if not same_network(_own(scene), one.host):
        yield (
            f"{_own(scene)} and {one.host} seem to be in different networks: routers forward no multicast unless they "
            "are set up for it, and ttl must be larger than 1; or run a gateway (fjm2d) in each"
        )
    where = "here" if receiver == _HERE else "there"
    yield f"a firewall on {receiver}: run fjm2 doctor {where}, as root, to find the rule"
    yield "the other host's bus is on another interface: run fjm2 doctor there to see on which"
    yield "a switch with IGMP snooping and no querier: enable a querier in it (or in a router), or disable snooping"
    yield "wireless access points and virtual switches that filter multicast, or isolate their clients"
    yield f"rp_filter on {receiver}, if its route to the sender differs: sysctl net.ipv4.conf.all.rp_filter"


def _ways_back(scene: Scene, one: ProbedListener, goes_out: bool) -> Iterator[Finding]:
    """Yield findings about packets from a member to one multicast sender: repair requests and acknowledgements."""
    low = f"{_own(scene)}"
    if goes_out and not one.got("group"):
        yield fault(
            "way_back",
            "way_back_dropped",
            f"{one.host} hears our multicast, but its unicast answers are dropped: no NACK and no "
            "acknowledgement arrives here",
            f"on this host: iptables -I INPUT -p udp -s {one.host} -j ACCEPT",
            _find_rule(_HERE),
        )
    elif "way_back" in one.series and not one.got("way_back"):
        yield fault(
            "way_back",
            "way_back_dropped",
            f"our unicast answers to {one.host} are dropped: it receives no NACK and no acknowledgement from us",
            f"on {one.host}: iptables -I INPUT -p udp -s {low} -j ACCEPT",
            _find_rule(one.host),
        )
    elif one.got("group") and one.got("way_back"):
        yield ok("way_back", "NACKs and acknowledgements arrive, both ways")


def _find_rule(host: str) -> str:
    """Return advice for a host where something else than iptables drops packets."""
    where = "here" if host == _HERE else "there"
    return (
        f"if {host} has a firewall of another kind, such as nft's: run fjm2 doctor {where}, as root, to find the rule"
    )


def _quality(one: ProbedListener) -> Iterator[Finding]:
    for name, check in (("both", "multicast_loss"), ("group", "multicast_loss"), ("unicast", "unicast_loss")):
        series = one.series.get(name)
        if series is not None and series.received:
            if check == "multicast_loss" and name == "group" and one.got("both"):
                continue
            by = {"both": "by multicast", "group": "out by multicast and back by unicast"}.get(name, "by unicast")
            yield _loss(check, series, one, by)
    times = list(all_times(one))
    if times:
        half, most = percentile(times, 0.5), percentile(times, 0.99)
        text = f"p50 {half:.2f} ms, p99 {most:.2f} ms"
        figures = {"p50_ms": round(half, 3), "p99_ms": round(most, 3)}
        if half > _SLOW_MS:
            yield warning(
                "rtt",
                "slow",
                f"{text}: long for a LAN",
                "set a first estimate in the URI: &grtt_s=" + f"{half / 1000:.2g}",
                **figures,
            )
        else:
            yield ok("rtt", text, **figures)


def _loss(check: str, series: Series, one: ProbedListener, by: str) -> Finding:
    lost = series.sent - series.received
    part = lost / series.sent
    figures = {"sent": series.sent, "received": series.received}
    if not lost:
        return ok(check, f"none of {counted(series.sent, 'round trip')} {by} was lost", **figures)
    text = f"{lost} of {counted(series.sent, 'round trip')} {by} with {one.host} were lost ({part:.0%})"
    advice = "look at the error counters along the path: ip -s link, the switch ports, the radio"
    if part >= _LOSS_FAULT:
        return fault(check, "much_loss", text + ": too many to repair at any speed", advice, **figures)
    return warning(check, "loss", text + ": they are repaired, at a cost in speed", advice, **figures)


def _sizes(scene: Scene, one: ProbedListener) -> Iterator[Finding]:
    wanted = scene.datagram_bytes
    for lost, passed, way in (
        (one.lost_out, one.passed_out, f"from here to {one.host}"),
        (one.lost_back, one.passed_back, f"from {one.host} to here"),
    ):
        if lost is None and passed is None:
            continue
        if lost is None:
            yield ok("path_mtu", f"packets of {(passed or 0) + scene.ip_bytes} bytes arrive whole, {way}")
            continue
        text = (
            f"packets of more than {(passed or 0) + scene.ip_bytes} bytes are silently dropped, {way}: something "
            "there has a smaller MTU than this host's interface"
        )
        figures = {"passed_bytes": passed, "lost_bytes": lost}
        remedy = "or give all interfaces and switch ports along the path the same MTU: ip link set INTERFACE mtu 1500"
        if passed is None or passed < wanted:
            fits = max(64, (passed or 0) - (wanted - scene.bus.sender.segment_bytes))
            yield fault(
                "path_mtu",
                "mtu_black_hole",
                text,
                f"in the URI of every member: &segment_bytes={fits}",
                remedy,
                **figures,
            )
        else:
            yield warning("path_mtu", "mtu_differs", f"{text}; packets of the bus fit", remedy, **figures)
        return


def _clock(one: ProbedListener) -> Iterator[Finding]:
    offset = one.clock_offset_s
    if offset is None:
        return
    text = f"the clock of {one.host} is {abs(offset) * 1000:,.1f} ms {'ahead' if offset > 0 else 'behind'}"
    if abs(offset) > _CLOCK_S:
        yield warning(
            "clock_difference",
            "clocks_differ",
            f"{text}: messages with a time to live expire too early or too late",
            "timedatectl set-ntp true",
            offset_s=round(offset, 6),
        )
    else:
        yield ok("clock_difference", text, offset_s=round(offset, 6))


def _watched(one: ProbedListener) -> Iterator[Finding]:
    watched = one.watched
    assert watched is not None
    if watched.unicast_stopped_s is not None:
        yield fault(
            "watch",
            "everything_stops",
            f"after {watched.unicast_stopped_s:.0f} s nothing arrived any more, not even unicast: the listener has "
            "ended, or the link is down",
        )
        return
    for stopped, way in ((watched.stopped_out_s, f"to {one.host}"), (watched.stopped_in_s, f"from {one.host}")):
        if stopped is not None:
            yield fault(
                "watch",
                "multicast_stops",
                f"multicast {way} arrived at first and stopped after {stopped:.0f} s, while unicast continues: a "
                "switch with IGMP snooping has forgotten the members, since no querier makes them report",
                "enable an IGMP querier in the switch or in a router",
                "or disable IGMP snooping in the switch",
                "or enable a querier in a Linux bridge of the network: ip link set BRIDGE type bridge mcast_querier 1",
            )
    if watched.stopped_out_s is None and watched.stopped_in_s is None:
        yield ok("watch", f"multicast arrived for {watched.seconds:g} s, both ways")


def _own(scene: Scene) -> str:
    assert scene.place is not None
    return scene.place.address


def _sent(one: ProbedListener, kind: str) -> int:
    return one.series[kind].sent
