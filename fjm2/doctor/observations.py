"""What was heard on a bus, and what it means. No I/O; memory is bounded, whatever comes."""

import itertools
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass, field

from fjm2.base.errors import WireError
from fjm2.bus.presence import VERSION, Announcement, Flag
from fjm2.bus.presence import decode as decode_announcement
from fjm2.norm import Address, Train
from fjm2.norm.core.wire import VERSION as NORM_VERSION
from fjm2.norm.core.wire import Application, MessageType, decode

from .verdict import Finding, fault, ok, unknown, warning

_MANY = 4096
_SHOWN = 5
_DATA = NORM_VERSION << 4 | MessageType.DATA
_ANNOUNCEMENT_VERSIONS_MAX = 8
PROBE_MAGIC = b"FJM2 probe"
"""The first bytes of the doctor's own datagrams."""


@dataclass(slots=True)
class NodeHeard:
    """A NORM node."""

    addresses: list[Address] = field(default_factory=list)
    """From which it was heard, in order: one that moved has two, two that share the id have one again and again."""
    datagrams: int = 0

    @property
    def is_twofold(self) -> bool:
        """Whether one address was heard again after another: one node that moved does not do that."""
        return len(self.addresses) > len(set(self.addresses))


@dataclass(slots=True)
class Heard:
    """What came for the group."""

    ours: Set[int] = frozenset()
    """Node ids that are the doctor's own."""
    nodes: dict[int, NodeHeard] = field(default_factory=dict)
    connections: dict[int, tuple[int, Announcement]] = field(default_factory=dict)
    """By connection id: the node, and what it said last."""
    announced: set[int] = field(default_factory=set)
    """Nodes of all connections that were heard of, of those too that have said goodbye."""
    versions: dict[int, set[int]] = field(default_factory=dict)
    """Versions of announcements that are not ours, and the nodes that speak them."""
    strangers: Counter[Address] = field(default_factory=Counter)
    """Who sent what is no NORM."""
    datagrams: int = 0
    sources: set[str] = field(default_factory=set)
    """Hosts from which anything came, without scopes."""

    def take(self, train: Train) -> None:
        """A train that came for the group."""
        self.datagrams += train.count
        if len(self.sources) < _MANY:
            self.sources.add(train.address[0].partition("%")[0])
        data, size = train.data, train.segment_bytes
        if data[0] == _DATA and data.size > 8:
            self._note(int.from_bytes(data[4:8].tobytes()), train.address, train.count)  # all are one sender's
            return
        for start in range(0, data.size, size):
            self._take_one(data[start : start + size].tobytes(), train.address)

    def _take_one(self, datagram: bytes, address: Address) -> None:
        if datagram.startswith(PROBE_MAGIC):
            return
        try:
            message = decode(datagram)
        except WireError:
            if address in self.strangers or len(self.strangers) < _MANY:
                self.strangers[address] += 1
            return
        self._note(message.source_id, address, 1)
        if isinstance(message, Application) and message.source_id not in self.ours:
            self._take_announcement(message.source_id, message.content)

    def _note(self, node_id: int, address: Address, count: int) -> None:
        if node_id in self.ours or (node_id not in self.nodes and len(self.nodes) >= _MANY):
            return
        node = self.nodes.setdefault(node_id, NodeHeard())
        node.datagrams += count
        if (not node.addresses or node.addresses[-1] != address) and len(node.addresses) < _SHOWN:
            node.addresses.append(address)

    def _take_announcement(self, node_id: int, content: bytes) -> None:
        announcement = decode_announcement(content)
        if announcement is None:
            if content and content[0] != VERSION and content[0] <= _ANNOUNCEMENT_VERSIONS_MAX:
                self.versions.setdefault(content[0], set()).add(node_id)
            return
        if len(self.announced) < _MANY:
            self.announced.update((node_id, *announcement.lanes))
        if announcement.flags & Flag.GOODBYE:
            self.connections.pop(announcement.connection_id, None)
        elif announcement.connection_id in self.connections or len(self.connections) < _MANY:
            self.connections[announcement.connection_id] = node_id, announcement

    @property
    def hosts(self) -> frozenset[str]:
        """From where NORM came."""
        return frozenset(address[0] for node in self.nodes.values() for address in node.addresses)

    @property
    def is_silent(self) -> bool:
        return not self.nodes


def judge_bus(heard: Heard, seconds: float, group: str) -> Iterator[Finding]:
    """Who is on the bus, and what is wrong with it."""
    yield _connections(heard, seconds, group)
    yield from _node_ids(heard)
    yield from _client_ids(heard)
    yield from _strangers(heard, group)
    yield from _versions(heard)


def _connections(heard: Heard, seconds: float, group: str) -> Finding:
    if heard.connections:
        hosts = len(heard.hosts)
        names = sorted({repr(one.client_id) for _, one in heard.connections.values() if one.client_id})
        told = f" ({', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''})" if names else ""
        many = f"{_count(len(heard.connections), 'connection')} from {_count(hosts, 'address', 'addresses')}{told}"
        return ok(
            "bus", f"{many}, {heard.datagrams:,} datagrams in {seconds:.1f} s", connections=len(heard.connections)
        )
    if heard.nodes:
        count = _count(len(heard.nodes), "NORM node")
        return ok("bus", f"no FJM2 connection, but {count} in {group} within {seconds:.1f} s", nodes=len(heard.nodes))
    return unknown(
        "bus",
        f"nobody else was heard in {group} within {seconds:.1f} s",
        "start a subscriber on another host, or: fjm2 doctor --listen there, fjm2 doctor --probe here",
    )


def _node_ids(heard: Heard) -> Iterator[Finding]:
    twofold = {node_id: one for node_id, one in heard.nodes.items() if one.is_twofold}
    for node_id, node in itertools.islice(twofold.items(), _SHOWN):
        where = " and ".join(f"{host}:{port}" for host, port in sorted(set(node.addresses)))
        yield fault(
            "node_ids",
            "node_id_twice",
            f"two senders use the node id {node_id}: {where}; receivers mix up what they send",
            "give each a node id of its own, or none (one is drawn then): --node-id",
            node_id=node_id,
            addresses=[f"{host}:{port}" for host, port in sorted(set(node.addresses))],
        )
    if heard.nodes and not twofold:
        yield ok("node_ids", f"{_count(len(heard.nodes), 'node id')}, each with one address")


def _client_ids(heard: Heard) -> Iterator[Finding]:
    counts = Counter(one.client_id for _, one in heard.connections.values() if one.client_id)
    for client_id, count in counts.most_common(_SHOWN):
        if count > 1:
            yield warning(
                "client_ids",
                "client_id_twice",
                f"{count} connections call themselves {client_id!r}",
                "give each a client_id of its own",
            )


def _strangers(heard: Heard, group: str) -> Iterator[Finding]:
    if heard.strangers:
        (host, port), count = heard.strangers.most_common(1)[0]
        yield warning(
            "strangers",
            "foreign_traffic",
            f"something that is no NORM is sent to {group}, {count} datagrams by {host}:{port}: another program uses "
            "the group and port",
            "choose another group or port for one of the two, in the URI of every member",
            senders=[f"{host}:{port}" for (host, port), _ in heard.strangers.most_common(_SHOWN)],
        )
    others = sorted(set(heard.nodes) - heard.announced) if heard.connections else []
    if others:
        told = ", ".join(str(node) for node in others[:_SHOWN])
        where = sorted({host for node in others for host, _ in heard.nodes[node].addresses})
        yield warning(
            "strangers",
            "foreign_norm",
            f"NORM nodes that are of no FJM2 connection share {group} ({told} at {', '.join(where[:_SHOWN])}): two "
            "buses on one port, or another NORM program",
            "choose another group or port for one of the two, in the URI of every member",
            nodes=others[:_SHOWN],
        )


def _versions(heard: Heard) -> Iterator[Finding]:
    for version, nodes in sorted(heard.versions.items()):
        yield warning(
            "versions",
            "other_version",
            f"{_count(len(nodes), 'node')} announce themselves in version {version}, this FJM2 knows {VERSION}: they "
            "get everything, but are not waited for",
            "install the same version of FJM2 on all hosts",
        )


def judge_other_groups(group: str, port: int, groups: Set[str]) -> Iterator[Finding]:
    """Groups besides ours for which something came at our port, or that a program of this host listens to there."""
    others = sorted(groups - {group})
    if others:
        yield warning(
            "port",
            "other_group_on_port",
            f"port {port} is also that of {', '.join(others[:_SHOWN])}: two buses on one port; programs that do not "
            "bind to their group get both (so does FJM2 on Windows)",
            "give each bus a port of its own",
            groups=others[:_SHOWN],
        )
    else:
        yield ok("port", f"no other group on port {port}")


def judge_wrong_interface(ours: str, silent: bool, others: dict[str, Heard]) -> Iterator[Finding]:
    """The bus may be where we are not."""
    elsewhere = {name: heard for name, heard in others.items() if not heard.is_silent}
    for name, heard in elsewhere.items():
        hosts = ", ".join(sorted(heard.hosts)[:_SHOWN])
        if silent:
            yield fault(
                "interface",
                "wrong_interface",
                f"the bus is on {name} ({hosts}), and nothing of it on {ours}: wrong interface",
                f"name it in the URI: &interface={name}",
                interface=name,
            )
        else:
            yield warning(
                "interface",
                "bus_on_two_interfaces",
                f"members are heard on {ours} and on {name} ({hosts}): a bus is on one interface of a host",
                f"if those on {name} are meant: &interface={name}; to reach both, run a gateway (fjm2d)",
                interface=name,
            )


def _count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or noun + 's'}"
