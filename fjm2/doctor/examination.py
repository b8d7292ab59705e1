"""The whole examination, in order: what can be read and tried on this host, then the bus, then other hosts."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from fjm2.base.errors import ConfigError
from fjm2.base.quantities import counted
from fjm2.norm import UdpTransport
from fjm2.norm.net.udp_receiver import CAN_OPEN

from .arp import other_owner
from .firewall import check_firewall, read_firewall
from .host import check_buffers, check_clock, check_drops, check_offload, check_permissions, check_python
from .keepers import check_keepers
from .kernel import UdpSocketLine, changes
from .listening import ListeningResult, listen
from .network import check_network, reverse_path_mode
from .observations import judge_bus, judge_other_groups, judge_wrong_interface
from .pair import judge_nobody, judge_pair
from .prober import Prober
from .scene import Scene
from .selfprobe import check_membership, judge_echo, probe_self
from .verdict import Finding, fault, ok, unknown, warning


def examine(scene: Scene, *, listens: bool = True) -> Iterator[Finding]:
    """Yield all findings about this host and, if `listens`, about the bus. Takes about five seconds."""
    yield from check_network(scene)
    yield check_python()
    yield check_clock()
    yield check_offload(scene)
    if not CAN_OPEN:
        yield fault(
            "sockets",
            "no_recvmsg",
            "Python's sockets have no recvmsg on this system: FJM2 cannot run here",
            "run it on Linux or macOS, or in WSL or a container",
        )
    elif scene.place is not None and scene.interface.is_up:
        yield from _on_sockets(scene, listens)
    yield check_permissions()


def _on_sockets(scene: Scene, listens: bool) -> Iterator[Finding]:
    """Yield the findings of checks that need open sockets."""
    kernel = scene.kernel
    firewall, counters = read_firewall(scene.is_ipv6), kernel.counters()
    with contextlib.ExitStack() as opened:
        try:
            transport = opened.enter_context(UdpTransport(scene.on(scene.interface.name)))
        except (ConfigError, OSError) as error:
            text = error.strerror or str(error) if isinstance(error, OSError) else str(error)
            yield fault("sockets", "cannot_open", f"cannot open the sockets of the bus: {text}")
            return
        yield from _elsewhere(scene)
        yield from check_buffers(scene, transport)
        if scene.udp.is_multicast:
            yield check_membership(scene)
            echo = probe_self(scene, transport)
            yield from judge_echo(scene, echo)
            result = listen(scene, transport) if listens else None
            is_losing = echo.received < echo.sent or (result is not None and bool(result.lost))
            yield from check_firewall(scene, firewall, read_firewall(scene.is_ipv6), is_losing=is_losing)
            risen = changes(counters, kernel.counters())
            if result is not None:
                yield from _judge_listening(scene, result, risen)
                yield from check_keepers(scene)
            yield check_drops(risen, counters, _sockets(scene))


def _elsewhere(scene: Scene) -> Iterator[Finding]:
    assert scene.place is not None
    address, name = scene.place.address, scene.interface.name
    hardware = None if scene.interface.is_loopback else other_owner(address, name)
    if hardware is not None:
        yield fault(
            "addresses",
            "address_twice",
            f"another host on {name} also has the address {address} ({hardware}): answers may go to it",
            f"find the host with hardware address {hardware}, and change the address of one of the two",
        )


def _sockets(scene: Scene) -> list[UdpSocketLine]:
    """Return the sockets of all programs that have joined the group."""
    lines = scene.kernel.udp_sockets(scene.is_ipv6) or ()
    return [one for one in lines if (one.host, one.port) == (scene.group, scene.udp.port)]


def _judge_listening(scene: Scene, result: ListeningResult, risen: dict[str, int]) -> Iterator[Finding]:
    heard = result.heard
    yield from _inside(scene, result, risen)
    yield from judge_bus(heard, result.seconds, f"{scene.group} port {scene.udp.port}")
    yield from judge_wrong_interface(scene.interface.name, heard.is_silent, result.others, scene.uri_on)
    yield from judge_other_groups(scene.group, scene.udp.port, result.groups)
    if result.gateways:
        hosts = ", ".join(sorted(set(result.gateways.values())))
        yield ok("gateways", f"fjm2d runs at {hosts}", gateways=len(result.gateways))


def _inside(scene: Scene, result: ListeningResult, risen: dict[str, int]) -> Iterator[Finding]:
    """Yield findings about datagrams that reached the interface but not the socket: this host dropped them."""
    lost = result.lost
    filtered = risen.get("TcpExt.IPReversePathFilter", 0)
    name = scene.interface.name
    if filtered:
        senders = f", {', '.join(lost[:5])} among them," if lost else ""
        yield fault(
            "reverse_path",
            "reverse_path_dropped",
            f"rp_filter dropped {counted(filtered, 'packet')}{senders} during the examination: they arrived on another "
            "interface than the route back to their senders uses",
            *(f"ip route add {host}/32 dev {name}" for host in lost[:1]),
            f"sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.{name}.rp_filter=2",
            packets=filtered,
            mode=reverse_path_mode(scene, name),
        )
    elif lost:
        yield fault(
            "delivery",
            "dropped_inside",
            f"datagrams from {', '.join(lost[:5])} to {scene.group} reach {name}, but no socket: this host drops them",
            "look at this host's firewall rules in INPUT and PREROUTING",
            senders=lost[:5],
        )
    elif result.wire:
        yield ok("delivery", f"datagrams to {scene.group} that reach {name} also reach the socket")


def probe(scene: Scene, address: str | None, watch_s: float | None, tell: Callable[[str], None]) -> Iterator[Finding]:
    """Yield findings about the paths to listeners on other hosts. Takes about five seconds for each listener, plus
    `watch_s`."""
    if scene.place is None or not scene.udp.is_multicast or not CAN_OPEN:
        return
    try:
        prober = Prober(scene, address)
    except (ConfigError, OSError) as error:
        yield unknown("listener", f"cannot probe: {error}")
        return
    with prober:
        tell("looking for listeners")
        found = prober.find()
        if not found or (address is not None and not any(_is_at(one.host, address) for one in found)):
            yield judge_nobody(scene, address)
        for one in found:
            if one.cookie == bytes(8):
                yield warning(
                    "listener",
                    "listener_does_not_answer",
                    f"{one.host} is heard by multicast but does not answer: probes or answers are dropped",
                    f"on {one.host}, let the firewall pass UDP to port {one.unicast[1] if one.unicast else '?'}, and "
                    "run fjm2 doctor there",
                )
                continue
            tell(f"probing {one.host}")
            prober.measure(one)
            if watch_s is not None:
                prober.watch(one, watch_s, partial(_tell_watch, tell, one.host, watch_s))
            yield from judge_pair(scene, one)


def _is_at(host: str, address: str) -> bool:
    return host.partition("%")[0] == address.partition("%")[0]


def _tell_watch(tell: Callable[[str], None], host: str, seconds: float, elapsed: float) -> None:
    tell(f"watching {host}: {elapsed:.0f} of {seconds:g} s")
