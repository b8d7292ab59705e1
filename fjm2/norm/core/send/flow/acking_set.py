"""The acking set: the receivers whose confirmation flow control waits for, and how they join and leave it."""

from collections.abc import Iterable

from fjm2.norm.core.config import Flow, SenderConfig
from fjm2.norm.core.events import EvictionReason
from fjm2.norm.core.wire import Position

from .evidence import Evidence
from .member import Member, MemberState

_MEMBERS_MAX = 4096
"""Maximum number of members, of evicted nodes, and of departed nodes that are remembered: anyone may claim to be a
receiver, and each costs memory."""
_NEWCOMERS_MAX = 1024
"""Maximum number of members that are waited for and have confirmed nothing since they joined or came back."""
_TRIAL_TIMEOUTS = 4
"""Multiple of `ack_timeout_s` within which a newcomer must confirm something, whatever else it sends."""
_STALL_TIMEOUTS = 2
"""Multiple of `ack_timeout_s` within which a member that is waited for must make progress, whatever else it sends."""
_PERIODS_PER_TIMEOUT = 2
"""Periods in `ack_timeout_s` of which what receivers miss first is compared: progress shows after two at the latest."""
_DISTRUST_TIMEOUTS = 4
"""Multiple of `ack_timeout_s` for which nobody may join after the first one that joined by itself and only held up."""
_DISTRUST_GROWTH = 2.0
"""Each further one closes the set for this many times longer."""
_DISTRUST_MAX_S = 300.0
"""Longest time for which nobody may join: a group recovers from an attack within minutes."""
_DEPARTED_S = 10.0
"""How long a node that said goodbye may not join by itself: its last answers may still be on their way."""


class AckingSet:
    """Members, and nodes that are none any more: those that were evicted, and those that said goodbye."""

    __slots__ = (
        "_departed",
        "_distrust_s",
        "_distrust_until",
        "_evicted",
        "_excluded",
        "_is_open",
        "_timeout_s",
        "aside",
        "behind",
        "members",
    )

    def __init__(self, config: SenderConfig) -> None:
        self._is_open = config.flow is Flow.MIN
        """True if receivers join by answering a probe."""
        self._timeout_s = config.ack_timeout_s
        self.members: dict[int, Member] = {}
        """Members by node id. Changed in place: others may keep a reference."""
        self.aside: set[int] = set()
        """Members that are silent. Marks do not wait for them."""
        self.behind: set[int] = set()
        """Members that marks wait for, and that have confirmed nothing since they joined by themselves or came back."""
        self._distrust_s = _DISTRUST_TIMEOUTS * config.ack_timeout_s
        """How long nobody may join after the next one that joins by itself and only holds the sender up."""
        self._distrust_until = 0.0
        self._evicted: dict[int, Evidence] = {}
        """Nodes that were given up and have not come back, oldest first, with the record of their progress."""
        self._departed: dict[int, float] = {}
        """Nodes that said goodbye, and until when each may not join by itself, oldest first."""
        self._excluded: frozenset[int] = frozenset()
        """Nodes that may not join by themselves."""

    @property
    def nodes(self) -> frozenset[int]:
        """The members."""
        return frozenset(self.members)

    @property
    def evicted(self) -> frozenset[int]:
        """Members that were given up, and have neither come back nor left."""
        return frozenset(self._evicted)

    @property
    def stalled(self) -> frozenset[int]:
        """Those of `evicted` that made no progress, and have shown none since."""
        return frozenset(node for node, evidence in self._evicted.items() if evidence.is_stalled)

    @property
    def full(self) -> frozenset[int]:
        """Members that say that they are full."""
        return frozenset(node for node, member in self.members.items() if member.is_full)

    @property
    def returned(self) -> list[Member]:
        """Members that came back after a silence, and have not caught up."""
        return [member for node in self.behind if (member := self.members[node]).state is MemberState.RETURNED]

    def is_measured(self, node: int) -> bool:
        """Return True if the round-trip time of a node counts: it is a member that has confirmed something, or there is
        none.

        Anyone may claim to be far away, and the round-trip time slows the whole group down.
        """
        member = self.members.get(node)
        if member is not None and not member.is_on_trial:
            return True
        return all(other.is_on_trial for other in self.members.values())

    # Joining and leaving.

    def replace(self, nodes: frozenset[int], now: float, excluded: frozenset[int]) -> None:
        """Make these nodes the members, and keep the excluded ones from joining by themselves."""
        self._excluded = excluded - nodes
        members = {node: self.members.get(node) or self._named(now) for node in nodes}
        self.members.clear()
        self.members.update(members)
        for member in members.values():
            member.is_on_trial = False
        self.aside &= nodes
        self.behind = {node for node in self.behind & nodes if members[node].state is MemberState.RETURNED}
        for node in nodes & self._evicted.keys():
            del self._evicted[node]
        for node in nodes & self._departed.keys():
            del self._departed[node]

    def _named(self, now: float) -> Member:
        return Member(now, Evidence(now, self._timeout_s / _PERIODS_PER_TIMEOUT), is_volunteer=False)

    def may_join(self, node: int, now: float) -> bool:
        """Return True if a node that is no member may join, now that it has answered a probe."""
        if not self._is_open or now < self._distrust_until or node in self._excluded or self._is_departed(node, now):
            return False
        has_room = len(self.members) < _MEMBERS_MAX and len(self.behind) < _NEWCOMERS_MAX
        evidence = self._evicted.get(node)
        return has_room and (evidence is None or evidence.may_return(now))

    def join(self, node: int, kept_streams: dict[int, int], now: float) -> None:
        """Make a node a member because it answers. `kept_streams` tells how far others have confirmed each stream."""
        evidence = self._evicted.pop(node, None) or Evidence(now, self._timeout_s / _PERIODS_PER_TIMEOUT)
        evidence.moved_at = now
        member = self.members[node] = Member(now, evidence, is_volunteer=True)
        member.kept_streams = kept_streams
        self.behind.add(node)

    def depart(self, node: int, now: float) -> None:
        """Forget a node that has said goodbye, and do not take its last answers for those of a newcomer."""
        self._drop(node)
        self._evicted.pop(node, None)
        self._departed.pop(node, None)
        self._departed[node] = now + _DEPARTED_S
        while len(self._departed) > _MEMBERS_MAX or next(iter(self._departed.values())) <= now:
            del self._departed[next(iter(self._departed))]

    def _is_departed(self, node: int, now: float) -> bool:
        until = self._departed.get(node)
        if until is None:
            return False
        if now < until:
            return True
        del self._departed[node]
        return False

    def _drop(self, node: int) -> Member | None:
        self.aside.discard(node)
        self.behind.discard(node)
        return self.members.pop(node, None)

    # Falling silent and coming back.

    def set_aside(self, node: int, asked_at: float, kept_sent: int, kept_streams: dict[int, int]) -> None:
        """Let marks no longer wait for a silent member. See `Member.set_aside`."""
        self.members[node].set_aside(asked_at, kept_sent, kept_streams)
        self.aside.add(node)
        self.behind.discard(node)

    def take_back(self, node: int, now: float) -> None:
        """Let marks wait again for a member that was silent."""
        self.members[node].come_back(now)
        self.aside.discard(node)
        self.behind.add(node)

    def note_caught_up(self, node: int) -> None:
        """Note that a member that is waited for has confirmed a mark."""
        if node in self.behind:
            self.members[node].catch_up()
            self.behind.discard(node)

    @property
    def on_trial(self) -> list[int]:
        """Members that marks wait for, that joined by themselves, and have confirmed nothing yet."""
        return [node for node in self.behind if self.members[node].is_on_trial]

    # Progress.

    def evidence_of(self, node: int) -> Evidence | None:
        """Return the record of the progress of a member, or of one that was evicted; None for others."""
        member = self.members.get(node)
        return self._evicted.get(node) if member is None else member.evidence

    def note_counter(self, node: int, counter: int, sent_bytes: int, now: float) -> None:
        """Note the counter that a receiver sends. `sent_bytes` have been sent to all for the first time so far."""
        evidence = self.evidence_of(node)
        if evidence is not None:
            evidence.note_counter(counter, sent_bytes, now)

    def note_confirmed(self, node: int, position: Position, now: float) -> None:
        """Note the position that a receiver confirms."""
        evidence = self.evidence_of(node)
        if evidence is not None:
            evidence.note_confirmed(position, now)

    def end_stall(self, node: int) -> None:
        """Note that a node has everything, although it was given up because it made no progress."""
        if node in self._evicted:
            self._evicted[node].end_stall()

    def note_missing(self, node: int, first: Position, now: float) -> None:
        """Note the first position that a receiver's NACK requests."""
        evidence = self.evidence_of(node)
        if evidence is not None:
            evidence.note_missing(first, now)

    # Eviction.

    def reason_to_evict(self, node: int, asked_at: float, now: float) -> EvictionReason | None:
        """Return why a member must be given up, or None if it need not.

        `asked_at` is the time since when members are asked for what they have not confirmed.
        """
        member = self.members[node]
        since = member.owed_since(asked_at)
        if now - max(since, member.heard_at) >= self._timeout_s:
            return EvictionReason.SILENT
        if member.is_on_trial and now - since >= _TRIAL_TIMEOUTS * self._timeout_s:
            return EvictionReason.NO_PROGRESS
        if not member.is_full and now - max(since, member.evidence.moved_at) >= _STALL_TIMEOUTS * self._timeout_s:
            return EvictionReason.NO_PROGRESS
        return None

    def evict(self, gone: Iterable[tuple[int, EvictionReason]], now: float) -> None:
        """Give members up. Trust newcomers less if any of these joined by itself and only held the sender up."""
        is_suspect = False
        for node, reason in gone:
            member = self._drop(node)
            assert member is not None
            is_stalled = reason is EvictionReason.NO_PROGRESS
            is_suspect |= member.is_on_trial or (is_stalled and member.is_volunteer)
            if is_stalled:
                member.evidence.note_stalled(_DISTRUST_TIMEOUTS * self._timeout_s, now)
            self._evicted.pop(node, None)
            self._evicted[node] = member.evidence
        if is_suspect and now >= self._distrust_until:
            self._distrust_until = now + self._distrust_s
            self._distrust_s = min(self._distrust_s * _DISTRUST_GROWTH, _DISTRUST_MAX_S)
        while len(self._evicted) > _MEMBERS_MAX:
            del self._evicted[next(iter(self._evicted))]

    def excuse(self, late_s: float, now: float) -> None:
        """Do not count a time in which this sender asked nothing, because it did not run."""
        for member in self.members.values():
            member.excuse(late_s, now)
