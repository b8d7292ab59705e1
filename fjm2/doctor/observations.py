"""Packets heard on a bus, and the findings that follow from them. No I/O. Memory is bounded, whatever is received."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field

from fjm2.base.errors import WireError
from fjm2.base.quantities import counted, node_text
from fjm2.bus.presence import VERSION, Announcement, Flag
from fjm2.bus.presence import decode as decode_announcement
from fjm2.norm import Address, Train
from fjm2.norm.core.wire import VERSION as NORM_VERSION
from fjm2.norm.core.wire import Ack, Application, FromReceiver, MessageType, Nack, Position, Status, StatusFlag, decode

from .verdict import Finding, fault, ok, unknown, warning

_NODES_MAX = 4096  # bounds the memory that forged ids can take
_SHOWN_MAX = 5  # items listed in a text
_DATA = NORM_VERSION << 4 | MessageType.DATA
_ANNOUNCEMENT_VERSION_MAX = 8  # higher numbers are not announcements of a later FJM2, but other data
_ANSWERS_MIN = 3
"""Answers, with data between them, that show a problem."""
_GAINED_MIN = 0.5
"""Part of the data that a healthy receiver gets. If only small datagrams arrive, it is less."""
PROBE_MAGIC = b"FJM2 probe"
"""First bytes of the doctor's own datagrams."""


@dataclass(slots=True)
class ObservedNode:
    """A NORM node that was heard."""

    addresses: list[Address] = field(default_factory=list)
    """Addresses that the node was heard from, in order. A node that moved has two. If two nodes share the id, addresses
    repeat."""
    datagrams: int = 0

    @property
    def is_shared(self) -> bool:
        """True if an address was heard again after another: then two nodes share the id, because a node that moved does
        not move back."""
        return len(self.addresses) > len(set(self.addresses))


@dataclass(slots=True)
class ObservedReceiver:
    """A receiver of one sender, as its answers show it."""

    progress: int
    """Bytes that were new there, as the first answer tells."""
    sent: int
    """Bytes of the sender's data that had been heard by then."""
    gained: int = 0
    """Bytes that were new there between the first and the last answer."""
    heard: int = 0
    """Bytes of data that were heard between these answers."""
    answers: int = 1
    """Answers with data of the sender between them."""
    is_lacking: bool = False
    """True if it requested repairs."""
    is_well: bool = False
    """True if it confirmed anything, or is full."""

    @property
    def is_stuck(self) -> bool:
        """True if it answers, and gets little of what the sender sends."""
        is_losing = self.gained < _GAINED_MIN * self.heard
        return self.is_lacking and not self.is_well and is_losing and self.answers >= _ANSWERS_MIN


@dataclass(slots=True)
class Observations:
    """Findings about nodes, connections and hosts, from the packets that were sent to the group."""

    ours: Set[int] = frozenset()
    """Node ids of the doctor itself."""
    nodes: dict[int, ObservedNode] = field(default_factory=dict)
    connections: dict[int, tuple[int, Announcement]] = field(default_factory=dict)
    """Node and latest announcement, by connection id."""
    announced: set[int] = field(default_factory=set)
    """Nodes of all connections, including those that have said goodbye."""
    versions: dict[int, set[int]] = field(default_factory=dict)
    """Nodes that announce themselves in another version than ours, by version."""
    strangers: Counter[Address] = field(default_factory=Counter)
    """Datagrams that are not NORM, by sender."""
    datagrams: int = 0
    sources: set[str] = field(default_factory=set)
    """Addresses of all hosts that sent anything, without scopes."""
    data: Counter[int] = field(default_factory=Counter)
    """Bytes of datagrams with data, by sender."""
    largest: Counter[int] = field(default_factory=Counter)
    """Length of the largest of them in bytes, by sender."""
    receivers: dict[tuple[int, int], ObservedReceiver] = field(default_factory=dict)
    """Receivers that tell their progress, by their own node id and that of the sender."""

    def receive(self, train: Train) -> None:
        """Handle a train sent to the group."""
        self.datagrams += train.count
        if len(self.sources) < _NODES_MAX:
            self.sources.add(train.address[0].partition("%")[0])
        data, size = train.data, train.segment_bytes
        if data[0] == _DATA and data.size > 8:
            sender_id = int.from_bytes(data[4:8].tobytes())
            self._note(sender_id, train.address, train.count)  # a train has one sender
            if sender_id in self.nodes:
                self.data[sender_id] += data.size
                self.largest[sender_id] = max(self.largest[sender_id], min(size, data.size))
            return
        for start in range(0, data.size, size):
            self._receive_datagram(data[start : start + size].tobytes(), train.address)

    def _receive_datagram(self, datagram: bytes, address: Address) -> None:
        if datagram.startswith(PROBE_MAGIC):
            return
        try:
            message = decode(datagram)
        except WireError:
            if address in self.strangers or len(self.strangers) < _NODES_MAX:
                self.strangers[address] += 1
            return
        self._note(message.source_id, address, 1)
        if isinstance(message, Application) and message.source_id not in self.ours:
            self._receive_announcement(message.source_id, message.content)
        elif isinstance(message, FromReceiver):
            self._receive_answer(message)

    def _receive_answer(self, answer: FromReceiver) -> None:
        status = next((each for each in answer.extensions if isinstance(each, Status)), None)
        if status is None:
            return
        key, data = (answer.source_id, answer.sender_id), self.data[answer.sender_id]
        receiver = self.receivers.get(key)
        if receiver is None:
            if len(self.receivers) >= _NODES_MAX:
                return
            receiver = self.receivers[key] = ObservedReceiver(status.progress, data)
        elif data - receiver.sent > receiver.heard:
            receiver.answers += 1
            receiver.heard = data - receiver.sent
            receiver.gained = (status.progress - receiver.progress) & 0xFFFFFFFF
        has_confirmed = isinstance(answer, Ack) and isinstance(answer.content, Position)
        receiver.is_lacking |= isinstance(answer, Nack)
        receiver.is_well |= has_confirmed or bool(status.flags & StatusFlag.FULL)

    def _note(self, node_id: int, address: Address, count: int) -> None:
        if node_id in self.ours or (node_id not in self.nodes and len(self.nodes) >= _NODES_MAX):
            return
        node = self.nodes.setdefault(node_id, ObservedNode())
        node.datagrams += count
        if (not node.addresses or node.addresses[-1] != address) and len(node.addresses) < _SHOWN_MAX:
            node.addresses.append(address)

    def _receive_announcement(self, node_id: int, content: bytes) -> None:
        announcement = decode_announcement(content)
        if announcement is None:
            if content and content[0] != VERSION and content[0] <= _ANNOUNCEMENT_VERSION_MAX:
                self.versions.setdefault(content[0], set()).add(node_id)
            return
        if len(self.announced) < _NODES_MAX:
            self.announced.update((node_id, *announcement.lanes))
        if announcement.flags & Flag.GOODBYE:
            self.connections.pop(announcement.connection_id, None)
        elif announcement.connection_id in self.connections or len(self.connections) < _NODES_MAX:
            self.connections[announcement.connection_id] = node_id, announcement

    @property
    def hosts(self) -> frozenset[str]:
        """Hosts that sent NORM packets."""
        return frozenset(address[0] for node in self.nodes.values() for address in node.addresses)

    @property
    def is_silent(self) -> bool:
        return not self.nodes


def judge_bus(heard: Observations, seconds: float, group: str) -> Iterator[Finding]:
    """Yield findings about the members of the bus: their connections, ids and versions, and traffic that is not
    theirs."""
    yield _connections(heard, seconds, group)
    yield from _progress(heard)
    yield from _node_ids(heard)
    yield from _client_ids(heard)
    yield from _strangers(heard, group)
    yield from _versions(heard)


def _connections(heard: Observations, seconds: float, group: str) -> Finding:
    if heard.connections:
        hosts = len(heard.hosts)
        names = sorted({repr(one.client_id) for _, one in heard.connections.values() if one.client_id})
        told = f" ({', '.join(names[:_SHOWN_MAX])}{', ...' if len(names) > _SHOWN_MAX else ''})" if names else ""
        many = f"{counted(len(heard.connections), 'connection')} from {counted(hosts, 'address')}{told}"
        return ok(
            "bus",
            f"{many}, {counted(heard.datagrams, 'datagram')} in {seconds:.1f} s",
            connections=len(heard.connections),
        )
    if heard.nodes:
        count = counted(len(heard.nodes), "NORM node")
        return ok("bus", f"no FJM2 connection, but {count} in {group} within {seconds:.1f} s", nodes=len(heard.nodes))
    return unknown(
        "bus",
        f"no other member was heard in {group} within {seconds:.1f} s",
        "start a subscriber on another host, or: fjm2 doctor --listen there, fjm2 doctor --probe here",
    )


def _progress(heard: Observations) -> Iterator[Finding]:
    stuck = {key: one for key, one in heard.receivers.items() if one.is_stuck}
    for (node_id, sender_id), one in itertools.islice(stuck.items(), _SHOWN_MAX):
        host, sender = (_host_of(heard, node) for node in (node_id, sender_id))
        client_id = next((each.client_id for node, each in heard.connections.values() if node == node_id), None)
        name = repr(client_id) if client_id else f"node {node_text(node_id)}"
        size, part = heard.largest[sender_id], one.gained / one.heard
        yield fault(
            "progress",
            "receiver_gets_little",
            f"{name} at {host} answers, but gets only {part:.0%} of the data from {sender}: its MTU, or that "
            f"of the path, is too small for datagrams of {size} bytes, or the path is too slow",
            f"on {host}: fjm2 doctor",
            f"on {sender}: ping -M do -s {size} {host}",
            "give all interfaces and switch ports along the path the same MTU: ip link set INTERFACE mtu 1500",
            "or send smaller segments, in the URI of the publishers: &segment_bytes=1200",
            node_id=node_id,
            host=host,
            datagram_bytes=size,
        )
    if heard.receivers and not stuck:
        yield ok(
            "progress", f"{counted(len({node for node, _ in heard.receivers}), 'receiver')} answered, none is stuck"
        )


def _host_of(heard: Observations, node_id: int) -> str:
    node = heard.nodes.get(node_id)
    return node.addresses[-1][0] if node is not None and node.addresses else "an unknown host"


def _node_ids(heard: Observations) -> Iterator[Finding]:
    shared = {node_id: one for node_id, one in heard.nodes.items() if one.is_shared}
    for node_id, node in itertools.islice(shared.items(), _SHOWN_MAX):
        where = " and ".join(f"{host}:{port}" for host, port in sorted(set(node.addresses)))
        yield fault(
            "node_ids",
            "node_id_twice",
            f"two senders use the node id {node_id}: {where}; receivers confuse their data",
            "give each its own node id, or none to have one drawn: --node-id",
            node_id=node_id,
            addresses=[f"{host}:{port}" for host, port in sorted(set(node.addresses))],
        )
    if heard.nodes and not shared:
        yield ok("node_ids", f"{counted(len(heard.nodes), 'node id')}, each with one address")


def _client_ids(heard: Observations) -> Iterator[Finding]:
    counts = Counter(one.client_id for _, one in heard.connections.values() if one.client_id)
    for client_id, count in counts.most_common(_SHOWN_MAX):
        if count > 1:
            yield warning(
                "client_ids",
                "client_id_twice",
                f"the client id {client_id!r} is used by {counted(count, 'connection')}",
                "give each its own client_id",
            )


def _strangers(heard: Observations, group: str) -> Iterator[Finding]:
    if heard.strangers:
        (host, port), count = heard.strangers.most_common(1)[0]
        yield warning(
            "strangers",
            "foreign_traffic",
            f"datagrams that are not NORM are sent to {group}, {count} of them by {host}:{port}: another program uses "
            "the group and port",
            "choose another group or port for one of the two, in the URI of every member",
            senders=[f"{host}:{port}" for (host, port), _ in heard.strangers.most_common(_SHOWN_MAX)],
        )
    others = sorted(set(heard.nodes) - heard.announced) if heard.connections else []
    if others:
        told = ", ".join(str(node) for node in others[:_SHOWN_MAX])
        where = sorted({host for node in others for host, _ in heard.nodes[node].addresses})
        yield warning(
            "strangers",
            "foreign_norm",
            f"NORM nodes without an FJM2 connection share {group} ({told} at {', '.join(where[:_SHOWN_MAX])}): two "
            "buses on one port, or another NORM program",
            "choose another group or port for one of the two, in the URI of every member",
            nodes=others[:_SHOWN_MAX],
        )


def _versions(heard: Observations) -> Iterator[Finding]:
    for version, nodes in sorted(heard.versions.items()):
        yield warning(
            "versions",
            "other_version",
            f"{counted(len(nodes), 'node')} announced themselves in version {version}, but this FJM2 knows "
            f"{VERSION}: they receive everything, but publishers do not wait for them",
            "install the same version of FJM2 on all hosts",
        )


def judge_other_groups(group: str, port: int, groups: Set[str]) -> Iterator[Finding]:
    """Yield findings about other groups on our port: those with traffic, and those that programs of this host listen
    to."""
    others = sorted(groups - {group})
    if others:
        yield warning(
            "port",
            "other_group_on_port",
            f"port {port} is also used by {', '.join(others[:_SHOWN_MAX])}: two buses on one port; programs that do "
            "not bind to their group receive both (FJM2 on Windows is one)",
            "give each bus its own port",
            groups=others[:_SHOWN_MAX],
        )
    else:
        yield ok("port", f"no other group on port {port}")


def judge_wrong_interface(
    ours: str, silent: bool, others: dict[str, Observations], uri_on: Callable[[str], str]
) -> Iterator[Finding]:
    """Yield findings about members heard on other interfaces than ours. `uri_on` returns the URI of the bus with an
    interface."""
    elsewhere = {name: heard for name, heard in others.items() if not heard.is_silent}
    for name, heard in elsewhere.items():
        hosts = ", ".join(sorted(heard.hosts)[:_SHOWN_MAX])
        if silent:
            yield fault(
                "interface",
                "wrong_interface",
                f"the bus is on {name} ({hosts}), and nothing of it on {ours}: wrong interface",
                f"name it in the URI: {uri_on(name)}",
                interface=name,
            )
        else:
            yield warning(
                "interface",
                "bus_on_two_interfaces",
                f"members are heard on {ours} and on {name} ({hosts}): FJM2 uses one interface of a host",
                f"if those on {name} are meant: {uri_on(name)}; to reach both, run a gateway (fjm2d)",
                interface=name,
            )
