"""The nodes in memory: their profiles, and how long they have been silent. No I/O; times are arguments.

There are two clocks: `now` is monotonic seconds, and decides states; wall-clock times are only shown and stored.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from fjm2.base.quantities import counted

from ..errors import Refusal
from .look_alikes import looks_of
from .measures import Meter

NAME_MAX = 64
"""Maximum number of characters of a name."""


def in_one_form(name: str) -> str:
    """Return a name in the form that is stored and compared. Raise ValueError if it is not printable."""
    if not name.isprintable() or name != name.strip():
        raise ValueError("expected printable characters, without blanks at either end")
    return unicodedata.normalize("NFC", name)


class State(StrEnum):
    """State of a node, by how long it has been silent."""

    LIVE = "live"
    STALE = "stale"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Profile:
    """Facts that a node tells when it registers."""

    id: str
    name: str
    public_key: str
    endpoints: tuple[str, ...]
    groups: tuple[str, ...]
    lan: str | None
    version: str


@dataclass(slots=True, eq=False)
class Node:
    """A registered node."""

    profile: Profile
    token_id: str
    """Id of the token that registered the node. No other token may update the node."""
    address: str
    """Address that the node's requests come from."""
    registered_at: float
    """Wall-clock time of the first registration."""
    last_seen: float
    """Wall-clock time of the last request."""
    heard_at: float
    """Monotonic time of the last request."""
    state: State = State.LIVE
    is_forwarder: bool | None = None
    """True if the node says that it forwards for its LAN; None if it says nothing."""
    meter: Meter = field(default_factory=Meter)

    @property
    def id(self) -> str:
        """Id of the node, made from its public key."""
        return self.profile.id

    def advert_addresses(self) -> Iterator[tuple[str, int]]:
        """Yield those endpoints that have the address of the node's requests: nobody may aim datagrams at others."""
        for endpoint in self.profile.endpoints:
            host, _, port = endpoint.rpartition(":")
            if host.strip("[]") == self.address:
                yield self.address, int(port)


@dataclass(frozen=True, slots=True)
class Silences:
    """Times of silence, in seconds, after which a node changes its state."""

    stale_s: float
    gone_s: float
    forget_s: float

    def state_after(self, silence_s: float) -> State:
        """Return the state of a node that has been silent for `silence_s` seconds."""
        if silence_s >= self.gone_s:
            return State.GONE
        return State.STALE if silence_s >= self.stale_s else State.LIVE


class Registry:
    """All nodes, by id. Names, ids and public keys are unique."""

    def __init__(self, silences: Silences, nodes_max: int, nodes_per_token: int) -> None:
        self._silences = silences
        self._nodes_max = nodes_max
        self._nodes_per_token = nodes_per_token
        self._of_token: Counter[str] = Counter()
        self._nodes: dict[str, Node] = {}
        self._ids: dict[str, str] = {}
        self._names_by_look: defaultdict[str, set[str]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def ids(self) -> set[str]:
        """Return the ids of all nodes."""
        return set(self._nodes)

    def find(self, node_id: str) -> Node | None:
        """Return the node with this id; None if there is none."""
        return self._nodes.get(node_id)

    def named(self, name: str) -> Node | None:
        """Return the node with this name; None if there is none."""
        node_id = self._ids.get(name)
        return None if node_id is None else self._nodes[node_id]

    def look_alike(self, name: str) -> str | None:
        """Return the name of a node that people would take for this name; None if there is none."""
        found = {other for look in looks_of(name) for other in self._names_by_look.get(look, ())} - {name}
        return min(found, default=None)

    def conflicting(self, profile: Profile) -> list[Node]:
        """Return the nodes with the same name or the same id, which a node of this profile would replace."""
        found = {node.id: node for node in (self.named(profile.name), self.find(profile.id)) if node is not None}
        return list(found.values())

    def check_room(self, token_id: str, replaced: Iterable[Node]) -> None:
        """Raise Refusal if there is no room for another node of this token in place of the replaced ones."""
        gone = list(replaced)
        if len(self._nodes) >= self._nodes_max and not gone:
            text = (
                f"with {counted(self._nodes_max, 'node')}, no more can be registered: remove some, or raise nodes_max"
            )
            raise Refusal(503, "full", text, 60)
        if self._of_token[token_id] - sum(node.token_id == token_id for node in gone) >= self._nodes_per_token:
            text = (
                f"this token has registered {counted(self._nodes_per_token, 'node')}: remove some, or use another one"
            )
            raise Refusal(403, "too_many_nodes", text)

    def put(self, node: Node) -> None:
        """Add a node, in place of those that conflict with it."""
        for other in self.conflicting(node.profile):
            self.remove(other.id)
        self._nodes[node.id] = node
        self._ids[node.profile.name] = node.id
        for look in looks_of(node.profile.name):
            self._names_by_look[look].add(node.profile.name)
        self._of_token[node.token_id] += 1

    def remove(self, node_id: str) -> Node | None:
        """Remove the node with this id, and return it; return None if there is none."""
        node = self._nodes.pop(node_id, None)
        if node is not None:
            del self._ids[node.profile.name]
            for look in looks_of(node.profile.name):
                self._names_by_look[look].discard(node.profile.name)
                if not self._names_by_look[look]:
                    del self._names_by_look[look]
            self._of_token[node.token_id] -= 1
            if not self._of_token[node.token_id]:
                del self._of_token[node.token_id]
        return node

    def expire(self, now: float) -> tuple[list[Node], list[Node]]:
        """Update the states of nodes. Return the nodes whose state has changed, and those to be forgotten."""
        changed, forgotten = [], []
        for node in self._nodes.values():
            silence = now - node.heard_at
            if silence >= self._silences.forget_s:
                forgotten.append(node)
                continue
            state = self._silences.state_after(silence)
            if state is not node.state:
                node.state = state
                changed.append(node)
        return changed, forgotten

    def counts(self) -> dict[State, int]:
        """Return the number of nodes in each state."""
        counts = dict.fromkeys(State, 0)
        for node in self._nodes.values():
            counts[node.state] += 1
        return counts
