"""Simulated network of gateways' tunnels, in virtual time.

Its links lose, duplicate, delay and reorder datagrams. Runs with the same seed are equal.
"""

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

import numpy as np

from fjm2.norm import Address, Train
from fjm2d.keys import KeyPair
from fjm2d.tunnel import Endpoint, EndpointConfig, Kind, Peer, PeerConfig
from fjm2d.tunnel.events import Event

WALL_NS = 1_700_000_000_000_000_000
IP_BYTES = 28
IPV6_BYTES = 48
GROUP = 77


@dataclass(slots=True)
class Path:
    """The link from one node to another, in one direction."""

    delay_s: float = 0.02
    loss: float = 0.0
    duplicate: float = 0.0
    jitter_s: float = 0.0
    """Largest extra delay, drawn at random for each datagram, so that they overtake each other. 0 keeps their order."""
    mtu: int = 1500
    rate_bps: float = math.inf
    queue_s: float = 0.1
    is_cut: bool = False
    free_at: float = 0.0
    dropped: Counter[str] = field(default_factory=Counter)
    carried_bytes: int = 0
    newest_at: float = -math.inf


def key_of(name: str) -> KeyPair:
    """Return the key pair of a gateway. It is always the same for the same name."""
    return KeyPair(hashlib.sha256(name.encode()).digest())


class Node:
    """A gateway's tunnel with its address, and everything that came out of the tunnel."""

    def __init__(self, net: "Net", name: str, config: EndpointConfig, address: Address) -> None:
        self.net = net
        self.name = name
        self.config = config
        self.keys = key_of(name)
        self.address = address
        """Source address of the node's packets. A test changes it to simulate a NAT."""
        self.received: list[tuple[int, bytes]] = []
        """Group and content of each datagram that arrived through the tunnel for the LAN."""
        self.keeps = True
        """True if arriving datagrams are added to `received`."""
        self.received_bytes = 0
        self.events: list[tuple[float, Event]] = []
        self.sent: list[Train] = []
        """Copies of the trains that the node sent while `records` was true."""
        self.records = False
        self.is_running = True
        self.busy_until = -math.inf
        """Time until which the host is too busy to run the node. Until then trains that arrive wait."""
        self.endpoint = self._endpoint()

    def _endpoint(self) -> Endpoint:
        random = Random(f"{self.name} {self.net.seed} {self.net.now}")
        return Endpoint(self.keys, self.config, wall_ns=self.wall_ns, random=random, entropy=random.randbytes)

    def wall_ns(self) -> int:
        return WALL_NS + int(self.net.now * 1e9)

    def restart(self) -> None:
        """Simulate a new process with the same key, which has no peers yet."""
        self.endpoint = self._endpoint()
        self.is_running = True

    def add(self, other: "Node", *, knows: bool = True, **options: object) -> Peer:
        addresses = (other.address,) if knows else ()
        config = PeerConfig(public_key=other.keys.public, name=other.name, addresses=addresses, **options)  # type: ignore[arg-type]
        peer = self.endpoint.add_peer(config, self.net.now)
        self.settle()
        return peer

    def peer(self, other: "Node") -> Peer:
        return self.endpoint.peers[other.keys.public.id]

    def send(self, other: "Node", *contents: bytes, source: int = 0, kind: Kind = Kind.NORM) -> None:
        """Send datagrams of equal length to another node. The last one may be shorter."""
        self.endpoint.send(
            [self.peer(other)], kind, GROUP, b"".join(contents), len(contents[0]), self.net.now, source=source
        )
        self.settle()

    def receive(self, data: bytes, segment_bytes: int, source: Address) -> None:
        if not self.is_running:
            return
        if self.net.now < self.busy_until:
            self.net.at(self.busy_until, lambda: self.receive(data, segment_bytes, source))
            return
        train = Train(np.frombuffer(data, np.uint8), segment_bytes, source)
        for item in self.endpoint.receive_train(train, self.net.now):
            self.received_bytes += item.data.size
            if self.keeps:
                whole = item.data.tobytes()
                step = item.segment_bytes
                self.received += [(item.group, whole[at : at + step]) for at in range(0, len(whole), step)]
        self.settle()

    def settle(self) -> None:
        if not self.is_running or self.net.now < self.busy_until:
            return
        while (train := self.endpoint.poll_train(self.net.now)) is not None:
            if self.records:
                self.sent.append(Train(train.data.copy(), train.segment_bytes, train.address))
            self.net.carry(self, train)
        while (event := self.endpoint.poll_event()) is not None:
            self.events.append((self.net.now, event))

    def events_of(self, kind: type) -> list[tuple[float, Event]]:
        return [(at, event) for at, event in self.events if isinstance(event, kind)]

    @property
    def contents(self) -> list[bytes]:
        return [content for _, content in self.received]


class Net:
    """A network of nodes and paths, with virtual time."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.now = 1000.0
        self.random = Random(seed)
        self.nodes: dict[str, Node] = {}
        self.paths: dict[tuple[str, str], Path] = {}
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def node(self, name: str, config: EndpointConfig | None = None) -> Node:
        address = (f"192.0.2.{len(self.nodes) + 1}", 5740)
        node = self.nodes[name] = Node(self, name, config or EndpointConfig(), address)
        return node

    def path(self, start: Node, end: Node) -> Path:
        return self.paths.setdefault((start.name, end.name), Path())

    def both(self, one: Node, other: Node) -> tuple[Path, Path]:
        return self.path(one, other), self.path(other, one)

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (when, next(self._numbers), do))

    def carry(self, sender: Node, train: Train) -> None:
        """Put a train on its path. Datagrams that arrive in order are delivered as one train."""
        receiver = next((node for node in self.nodes.values() if node.address == train.address), None)
        if receiver is None:
            return
        path = self.path(sender, receiver)
        whole, step = train.data.tobytes(), train.segment_bytes
        run: list[bytes] = []
        last_at = self.now
        for content in (whole[at : at + step] for at in range(0, len(whole), step)):
            for times in range(1 + (self.random.random() < path.duplicate)):
                arrives = self._arrival(path, content, IPV6_BYTES if ":" in train.address[0] else IP_BYTES)
                if arrives is None:
                    continue
                if path.jitter_s or times:
                    self._deliver(receiver, content, len(content), sender.address, arrives)
                else:
                    run.append(content)
                    last_at = arrives
        if run:
            self._deliver(receiver, b"".join(run), len(run[0]), sender.address, last_at)

    def _arrival(self, path: Path, content: bytes, ip_bytes: int) -> float | None:
        if path.is_cut:
            path.dropped["cut"] += 1
            return None
        if len(content) + ip_bytes > path.mtu:
            path.dropped["too long"] += 1
            return None
        if self.random.random() < path.loss:
            path.dropped["lost"] += 1
            return None
        leaves = max(self.now, path.free_at)
        if leaves - self.now > path.queue_s:
            path.dropped["queue"] += 1
            return None
        path.free_at = leaves + 8 * (len(content) + ip_bytes) / path.rate_bps
        path.carried_bytes += len(content)
        arrives = path.free_at + path.delay_s + self.random.uniform(0, path.jitter_s)
        path.newest_at = max(path.newest_at, arrives)
        return arrives if path.jitter_s else path.newest_at

    def _deliver(self, receiver: Node, data: bytes, segment_bytes: int, source: Address, at: float) -> None:
        self.at(at, lambda: receiver.receive(data, segment_bytes, source))

    def run(self, seconds: float) -> None:
        """Let virtual time pass, and deliver what is due."""
        end = self.now + seconds
        for _ in range(5_000_000):
            due = self._due[0][0] if self._due else math.inf
            timers = {
                node: max(node.endpoint.poll_timeout(), node.busy_until)
                for node in self.nodes.values()
                if node.is_running
            }
            timer = min(timers.values(), default=math.inf)
            if min(due, timer) > end:
                self.now = end
                return
            if due <= timer:
                self.now = max(self.now, due)
                heapq.heappop(self._due)[2]()
                continue
            self.now = max(self.now, timer)
            for node, at in timers.items():
                if at <= self.now:
                    node.endpoint.handle_timeout(self.now)
                    node.settle()
        raise AssertionError("the nodes keep each other busy without end")

    def until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Let virtual time pass until a condition holds.

        Return the seconds that this took, or infinity if the condition did not hold within `seconds`.
        """
        start = self.now
        while self.now < start + seconds:
            if condition():
                return self.now - start
            self.run(0.01)
        return self.now - start if condition() else math.inf


def connected(seed: int = 0, config: EndpointConfig | None = None, **options: object) -> tuple[Net, Node, Node]:
    """Return a network, and two gateways with a session that have finished their search for the path MTU."""
    net = Net(seed)
    a, b = net.node("a", config), net.node("b", config)
    a.add(b, **options)
    b.add(a, **options)
    net.run(2)
    assert a.peer(b).is_up
    assert b.peer(a).is_up
    return net, a, b


def datagrams(number: int, size: int, seed: int = 0) -> Iterator[bytes]:
    """Generate datagrams with random content. The content is the same for the same seed."""
    random = Random(seed)
    return (random.randbytes(size) for _ in range(number))


def exchange(a: Node, b: Node, seconds: float = 1.0) -> bool:
    """Return True if a datagram sent from a to b, and another from b to a, arrive exactly once."""
    a.received.clear()
    b.received.clear()
    a.send(b, b"from a to b")
    b.send(a, b"from b to a")
    a.net.run(seconds)
    return b.contents.count(b"from a to b") == a.contents.count(b"from b to a") == 1


def chatter(a: Node, b: Node, seconds: float, every_s: float = 0.1) -> None:
    """Send data both ways at intervals, for some seconds."""
    net = a.net
    end = net.now + seconds

    def speak() -> None:
        for one, other in ((a, b), (b, a)):
            if one.is_running and other.keys.public.id in one.endpoint.peers:
                one.send(other, bytes(100))
        if net.now + every_s < end:
            net.at(net.now + every_s, speak)

    net.at(net.now, speak)
