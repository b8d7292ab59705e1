"""A network in virtual time: nodes, routers and links, and the trains that pass between them."""

import heapq
from collections.abc import Callable, Iterable
from random import Random

from fjm2.base.errors import ConfigError
from fjm2.norm.core.config import ReceiverConfig, SenderConfig, SessionConfig
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.train import Address, Train

from .link import Link, Place, Router
from .node import Log, Node

__all__ = ["GROUP", "Link", "Log", "Network", "Node", "Place", "Router"]

_Task = tuple[float, int, Callable[..., object], tuple[object, ...]]
"""Time, order among tasks of the same time, function, and its arguments."""

GROUP: Address = ("239.255.0.1", 6003)
"""Address of the group that all nodes are in."""


class Network:
    """Nodes, routers and links in virtual time."""

    def __init__(self, seed: int = 0, *, delay_s: float = 0.005) -> None:
        self.seed = seed
        """Seed of everything random in the network."""
        self.delay_s = delay_s
        """Delay in seconds of links for which no delay is given."""
        self.now = 0.0
        """Virtual seconds since the beginning."""
        self.hub = Router("hub")
        """Router that links all nodes that have no other link."""
        self.nodes: list[Node] = []
        """Nodes in the order in which they were made."""
        self.on_send: Callable[[Node, Train], None] | None = None
        """Function called with the sending node and each train, so that tests can inspect trains; None for no call."""
        self._random = Random(seed)
        self._agenda: list[_Task] = []
        self._count = 0
        self._unlinked: dict[Node, None] = {}
        self._by_address: dict[Address, Node] = {}
        self._next_hops: dict[Node, dict[Place, Link]] = {}
        """Next link towards each destination, by the destination, and then by the place where a train is."""
        self._is_news = True

    # Building.

    def sender(self, config: SenderConfig | None = None, *, node_id: int | None = None) -> Node:
        """Add a node that sends with the given settings. It also receives, with default settings."""
        return self.node(SessionConfig(node_id=node_id or len(self.nodes) + 1, sender=config or SenderConfig()))

    def receiver(self, config: ReceiverConfig | None = None, *, node_id: int | None = None) -> Node:
        """Add a node that receives with the given settings."""
        return self.node(SessionConfig(node_id=node_id or len(self.nodes) + 1, receiver=config or ReceiverConfig()))

    def node(self, config: SessionConfig, *, random: Random | None = None) -> Node:
        """Add a node. `random` is the engine's random generator, which is made from the network's seed unless given."""
        number = len(self.nodes) + 1
        # One generator for each node: adding a node changes nothing for others.
        random = random or Random(f"{self.seed}/{number}")
        node = Node(self, (f"node-{number}", 6003), config, GROUP, random)
        self.nodes.append(node)
        self._by_address[node.address] = node
        self._unlinked[node] = None
        return node

    def router(self, name: str = "router") -> Router:
        """Add a place where links meet."""
        return Router(name)

    def link(
        self,
        start: Place,
        end: Place,
        *,
        delay_s: float | None = None,
        jitter_s: float | None = None,
        rate_bps: float | None = None,
        queue_bytes: int | None = None,
    ) -> Link:
        """Return the link from one place to a neighbour. If there is none yet, make it, and the link back.

        The arguments apply to both directions. Later changes of the returned link apply to its direction only. Raises
        ConfigError if the link would close a loop.
        """
        link = next((link for link in start.links if link.end is end), None)
        if link is None:
            link = self._join(start, end)
        for way in (link, link.back):
            way.shape(delay_s=delay_s, jitter_s=jitter_s, rate_bps=rate_bps, queue_bytes=queue_bytes)
        return link

    def _join(self, start: Place, end: Place) -> Link:
        if _group_of(start) is _group_of(end):
            raise ConfigError(f"{start} and {end} have a way to each other already: expected a tree")
        _group_of(start).group = _group_of(end)
        link = Link(start, end, Random(self._random.random()), self.delay_s)
        back = Link(end, start, Random(self._random.random()), self.delay_s)
        link.back, back.back = back, link
        start.links.append(link)
        end.links.append(back)
        for place in (start, end):
            if isinstance(place, Node):
                self._unlinked.pop(place, None)
        self._next_hops.clear()
        return link

    def _link_strays(self) -> None:
        for node in list(self._unlinked):
            self.link(node, self.hub)

    # Running.

    def at(self, time: float, action: Callable[[], object]) -> None:
        """Call `action` at the virtual time `time`."""
        self._plan(time, action)

    def run(self, until: float) -> None:
        """Run the network up to and including the virtual time `until`."""
        self._pass(until, None)
        self.now = max(self.now, until)

    def run_until(self, condition: Callable[[], bool], deadline: float) -> bool:
        """Run until `condition` returns True, or up to the virtual time `deadline`. Return True if the condition holds.

        The condition is checked whenever a node has received an event.
        """
        return self._pass(deadline, condition)

    def _pass(self, until: float, condition: Callable[[], bool] | None) -> bool:
        self._link_strays()
        agenda, pop = self._agenda, heapq.heappop
        self._is_news = True
        while True:
            if condition is not None and self._is_news:
                self._is_news = False
                if condition():
                    return True
            if not agenda or agenda[0][0] > until:
                return False
            at, _, action, arguments = pop(agenda)
            self.now = at
            action(*arguments)

    def _plan(self, at: float, action: Callable[..., object], *arguments: object) -> None:
        if at == NEVER:
            return
        self._count += 1
        heapq.heappush(self._agenda, (max(at, self.now), self._count, action, arguments))

    # Calls of nodes (`World`).

    def wake(self, node: Node, at: float) -> None:
        """Wake a node at the virtual time `at`."""
        self._plan(at, node.wake, at)

    def notice(self) -> None:
        """Note that a node received an event."""
        self._is_news = True

    def send(self, node: Node, train: Train) -> None:
        """Carry a train from a node to the train's address: that of one node, or of the group."""
        if self.on_send is not None:
            self.on_send(node, train)
        self._link_strays()
        data = train.data.copy()  # the sender reuses its buffer for the next train
        data.flags.writeable = False  # receivers only borrow it
        target = None if train.address == GROUP else self._by_address.get(train.address)
        if target is None and train.address != GROUP:
            return
        self._forward(node, Train(data, train.segment_bytes, node.address), None, target)

    def _forward(self, place: Place, train: Train, back: Link | None, target: Node | None) -> None:
        """Carry a train on from a place: towards the target, or by all links except the one by which it arrived."""
        links: Iterable[Link] = place.links
        if target is not None:
            towards = self._towards(target).get(place)
            links = () if towards is None else (towards,)
        now = self.now
        together: dict[float, list[Link]] = {}
        for link in links:
            if link is back:
                continue
            if link.is_plain:
                together.setdefault(now + link.delay_s, []).append(link)
                continue
            for at, part in link.carry(train, now):
                if part is train:
                    together.setdefault(at, []).append(link)
                else:
                    self._plan(at, self._arrive, part, (link,), target)
        for at, some in together.items():
            self._plan(at, self._arrive, train, some, target)

    def _arrive(self, train: Train, links: Iterable[Link], target: Node | None) -> None:
        for link in links:
            place = link.end
            if isinstance(place, Node) and (target is None or target is place):
                place.receive(train, target is not None)
            if target is not place and len(place.links) > 1:
                self._forward(place, train, link.back, target)

    def _towards(self, target: Node) -> dict[Place, Link]:
        hops = self._next_hops.get(target)
        if hops is None:
            hops = self._next_hops[target] = {}
            reached: list[Place] = [target]
            for place in reached:
                for link in place.links:
                    if link.end is not target and link.end not in hops:
                        hops[link.end] = link.back
                        reached.append(link.end)
        return hops


def _group_of(place: Place) -> Place:
    """Return the place that stands for the tree of `place`. Shorten the path to it for the next call."""
    while place.group is not place:
        place.group = place.group.group
        place = place.group
    return place
