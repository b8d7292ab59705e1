"""The nodes in memory: who they are, and whether they have been heard of. No I/O; times are arguments.

Two clocks: `now` is monotonic seconds and decides states; wall-clock times are only shown and kept.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from ..errors import Refusal
from .measures import Meter

NAME_MAX = 64
"""Characters of a name."""


def in_one_form(name: str) -> str:
    """A name as it is kept and compared. ValueError for what cannot be printed."""
    if not name.isprintable() or name != name.strip():
        raise ValueError("expected printable characters, and no blanks around them")
    return unicodedata.normalize("NFC", name)


class State(StrEnum):
    """By how long a node has been silent."""

    LIVE = "live"
    STALE = "stale"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a node says of itself when it registers."""

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
    """The token that it registered with, the only one that may speak for it."""
    address: str
    """Where its requests come from."""
    registered_at: float
    last_seen: float
    """By the wall clock."""
    heard_at: float
    """By the monotonic clock."""
    state: State = State.LIVE
    is_forwarder: bool | None = None
    """Whether it says that it forwards for its LAN."""
    meter: Meter = field(default_factory=Meter)

    @property
    def id(self) -> str:
        return self.profile.id

    def advert_addresses(self) -> Iterator[tuple[str, int]]:
        """Endpoints at the address that its requests come from: nobody can have datagrams sent to somebody else."""
        for endpoint in self.profile.endpoints:
            host, _, port = endpoint.rpartition(":")
            if host.strip("[]") == self.address:
                yield self.address, int(port)


@dataclass(frozen=True, slots=True)
class Silences:
    """How long, in seconds, until a silent node changes its state."""

    stale_s: float
    gone_s: float
    forget_s: float

    def state_after(self, silence_s: float) -> State:
        if silence_s >= self.gone_s:
            return State.GONE
        return State.STALE if silence_s >= self.stale_s else State.LIVE


class Registry:
    """Every node by id. Of a name, an id and a public key there is one each."""

    def __init__(self, silences: Silences, nodes_max: int, nodes_per_token: int) -> None:
        self._silences = silences
        self._nodes_max = nodes_max
        self._nodes_per_token = nodes_per_token
        self._of_token: Counter[str] = Counter()
        self._nodes: dict[str, Node] = {}
        self._ids: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def ids(self) -> set[str]:
        return set(self._nodes)

    def find(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def named(self, name: str) -> Node | None:
        node_id = self._ids.get(name)
        return None if node_id is None else self._nodes[node_id]

    def conflicting(self, profile: Profile) -> list[Node]:
        """Nodes that would be replaced by this one: the same name, or the same id."""
        found = {node.id: node for node in (self.named(profile.name), self.find(profile.id)) if node is not None}
        return list(found.values())

    def check_room(self, token_id: str, replaced: Iterable[Node]) -> None:
        """Refuses one more node, by this token, if there is no room for it."""
        gone = list(replaced)
        if len(self._nodes) >= self._nodes_max and not gone:
            raise Refusal(503, "full", f"there are {self._nodes_max} nodes, and no more can be registered", 60)
        if self._of_token[token_id] - sum(node.token_id == token_id for node in gone) >= self._nodes_per_token:
            told = f"this token has registered {self._nodes_per_token} nodes: remove some, or use another token"
            raise Refusal(403, "too_many_nodes", told)

    def put(self, node: Node) -> None:
        """Add a node, instead of those that stand in its way."""
        for other in self.conflicting(node.profile):
            self.remove(other.id)
        self._nodes[node.id] = node
        self._ids[node.profile.name] = node.id
        self._of_token[node.token_id] += 1

    def remove(self, node_id: str) -> Node | None:
        node = self._nodes.pop(node_id, None)
        if node is not None:
            del self._ids[node.profile.name]
            self._of_token[node.token_id] -= 1
            if not self._of_token[node.token_id]:
                del self._of_token[node.token_id]
        return node

    def expire(self, now: float) -> tuple[list[Node], list[Node]]:
        """Nodes whose state has changed, and those to be forgotten."""
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
        counts = dict.fromkeys(State, 0)
        for node in self._nodes.values():
            counts[node.state] += 1
        return counts
