"""The acking set: the receivers whose confirmation flow control waits for, and how they join and leave it."""

from fjm2.norm.core.config import Flow, SenderConfig

_MEMBERS_MAX = 4096
"""Most members, and most evicted members remembered. Anyone can claim to be a receiver, and each costs memory."""
_NEWCOMERS_MAX = 1024
"""Most members that have joined by themselves and not confirmed anything yet."""
_TRIAL_TIMEOUTS = 4
"""Multiple of `ack_timeout_s` within which a newcomer must confirm something, whatever else it sends."""
_DISTRUST_TIMEOUTS = 4
"""Multiple of `ack_timeout_s` for which nobody may join after the first newcomer that confirmed nothing."""
_DISTRUST_GROWTH = 2.0
"""Factor by which each further newcomer that confirms nothing lengthens the time for which nobody may join."""
_DISTRUST_MAX_S = 300.0
"""Longest time in seconds for which nobody may join. A group thus recovers from an attack within minutes."""


class AckingSet:
    """Members with the time each was last heard, newcomers on trial, and members that were evicted."""

    __slots__ = (
        "_distrust_s",
        "_distrust_until",
        "_evicted",
        "_excluded",
        "_is_open",
        "_newcomers",
        "_timeout_s",
        "heard_at",
    )

    def __init__(self, config: SenderConfig) -> None:
        self._is_open = config.flow is Flow.MIN
        """True if receivers join by answering a probe."""
        self._timeout_s = config.ack_timeout_s
        self.heard_at: dict[int, float] = {}
        """Time at which each member was last heard, by node id. Changed in place: others may keep a reference."""
        self._newcomers: set[int] = set()
        """Members that joined by themselves and have confirmed nothing yet. Anyone can claim to be a receiver."""
        self._distrust_s = _DISTRUST_TIMEOUTS * config.ack_timeout_s
        """Seconds for which nobody may join after the next newcomer that confirms nothing."""
        self._distrust_until = 0.0
        self._evicted: dict[int, None] = {}
        """Members that were given up and have not come back, oldest first."""
        self._excluded: frozenset[int] = frozenset()
        """Nodes that may not join by themselves."""

    @property
    def nodes(self) -> frozenset[int]:
        """Node ids of the members."""
        return frozenset(self.heard_at)

    @property
    def evicted(self) -> frozenset[int]:
        """Node ids of members that were given up, and that have neither come back nor left."""
        return frozenset(self._evicted)

    @property
    def has_newcomers(self) -> bool:
        """True if a member that joined by itself has not confirmed anything yet."""
        return bool(self._newcomers)

    def replace(self, nodes: frozenset[int], now: float, excluded: frozenset[int]) -> None:
        """Make `nodes` the members, and keep `excluded` nodes from joining by themselves."""
        self._excluded = excluded - nodes
        members = {node: self.heard_at.get(node, now) for node in nodes}
        self.heard_at.clear()
        self.heard_at.update(members)
        self._newcomers.clear()
        for node in nodes & self._evicted.keys():
            del self._evicted[node]

    def note_heard(self, node: int, is_answer: bool, now: float) -> None:
        """Note that a receiver is alive. If it answers a probe and may join, it becomes a member."""
        if node in self.heard_at:
            self.heard_at[node] = now
        elif is_answer and node not in self._excluded and self._may_join(now):
            self.heard_at[node] = now
            self._newcomers.add(node)
            self._evicted.pop(node, None)

    def _may_join(self, now: float) -> bool:
        has_room = len(self.heard_at) < _MEMBERS_MAX and len(self._newcomers) < _NEWCOMERS_MAX
        return self._is_open and has_room and now >= self._distrust_until

    def note_confirmed(self, node: int) -> None:
        """End a newcomer's trial: it has confirmed something."""
        self._newcomers.discard(node)

    def remove(self, node: int) -> None:
        """Forget a node that has left."""
        self.heard_at.pop(node, None)
        self._evicted.pop(node, None)
        self._newcomers.discard(node)

    def evict_silent(self, awaited: set[int], asked_at: float, now: float) -> list[int]:
        """Evict the awaited members that were silent, or on trial, for too long. Return their node ids."""
        gone = [node for node in awaited if self._is_given_up(node, asked_at, now)]
        if now >= self._distrust_until and not self._newcomers.isdisjoint(gone):
            self._distrust_until = now + self._distrust_s
            self._distrust_s = min(self._distrust_s * _DISTRUST_GROWTH, _DISTRUST_MAX_S)
        for node in gone:
            self._newcomers.discard(node)
            self.heard_at.pop(node, None)
            self._evicted[node] = None
        while len(self._evicted) > _MEMBERS_MAX:
            del self._evicted[next(iter(self._evicted))]
        return gone

    def _is_given_up(self, node: int, asked_at: float, now: float) -> bool:
        """Return True if a member has fallen silent, or is a newcomer that has not confirmed anything in time.

        Other members may be slow to confirm, as long as they answer at all.
        """
        is_overdue = node in self._newcomers and now - asked_at >= _TRIAL_TIMEOUTS * self._timeout_s
        return is_overdue or now - self.heard_at.get(node, 0.0) >= self._timeout_s
