"""Model of a change of members: one message, two to four keepers, lost disks.

An identity is a keeper with an incarnation: a keeper that loses its disk is somebody else afterwards. A configuration
is a set of identities. Everything that a keeper holds is on disk, and a crash is a keeper that takes no more steps. So
only the loss of a disk is a step. An election is one step with the voters that it needs; so is the reading of a new
manager.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import NamedTuple

from .explorer import State, Step

PROPERTIES = {
    "S1": "a message whose send completed before a manager was elected is known to that manager when it serves",
    "S3": "no two managers commit different records at the same place of the log",
    "E": "if all keepers are reachable, one of them can be elected",
}
RULES = {
    "none": "all rules are kept",
    "managers-read-one": "a new manager reads a quorum of the newest configuration only",
    "votes-of-one": "votes are counted in the newest configuration only",
    "commit-by-one": "records are committed by the newest configuration only",
    "overlapping-changes": "a change begins before the last one is complete, and the two newest configurations count",
    "stored-at-once": "STORED counts before its CONFIGURE is committed",
    "return-unnamed": "an amnesiac returns when it holds what K - W + 1 others hold, without a CONFIGURE",
    "report-before-note": "a member reports what it holds before it has CONFIGURE on disk",
    "lost-ones-block": "members known to have lost their disks do not make up a quorum",
    "no-backfill": "a change completes before the new majority holds what the old one reported",
    "change-before-open": "a change begins before a record of the manager's own epoch is committed",
    "mute-learner": "a learner does not vote before CONFIGURE is complete",
    "mute-stranger": "a keeper does not vote before CONFIGURE is on its own disk",
}
OPEN, BEGUN, COMPLETE = 0, 1, 2
"""Kinds of a record: OPEN, and CONFIGURE with state 0 and 1."""


class Record(NamedTuple):
    """A record of the decision log."""

    epoch: int
    kind: int
    members: int
    """The configuration as a mask of identities; 0 for OPEN."""


Log = tuple[Record, ...]


class Number(NamedTuple):
    """Number of a configuration. Only one manager makes numbers in an epoch, and each change has another mask."""

    epoch: int
    members: int


class Manager(NamedTuple):
    """A keeper's state while it believes to be the manager."""

    epoch: int
    matched: tuple[int, ...]
    """Twice the number of records of its log that each keeper has confirmed, plus the incarnation that did."""
    committed: int
    has_read: int
    """1 when it has read what the members store."""
    had_completed: int
    """1 if the send had completed when it was elected."""
    reported: int
    """1 if a member has reported that it holds the message."""


class Keeper(NamedTuple):
    """Disk and memory of a keeper."""

    incarnation: int
    is_amnesiac: int
    """1 between the loss of its disk and its return, where it returns without a CONFIGURE."""
    promised: int
    log: Log
    holds: int
    told: Number | tuple[()]
    """Number of the configuration under which the publisher has its STORED."""
    manager: Manager | tuple[()]


class Rest(NamedTuple):
    """Everything that belongs to no keeper."""

    completed: int
    committed: Log
    """Every record that a manager has committed."""
    has_diverged: int
    """1 if a manager committed something else."""
    losses_left: int


class View(NamedTuple):
    """The newest configuration in a log."""

    number: Number
    old: int
    """The configuration before it, while the change to the newest one is begun; else 0."""


class Bounds(NamedTuple):
    """Bounds of a case."""

    members: int
    """Number of founders."""
    keepers: int
    epochs: int
    losses: int
    """Number of disks that get lost."""
    changes: tuple[str, ...]
    """Kinds of change that a manager may begin: add, remove, return, replace."""
    changes_max: int
    is_stored: bool = False
    """True if the message is on all disks, and its send completed, at the start."""


@cache
def view_of(log: Log, founders: int) -> View:
    """Return the configuration that a keeper with this log goes by."""
    number, old = Number(0, founders), 0
    for record in log:
        if record.kind == BEGUN:
            number, old = Number(record.epoch, record.members), number.members
        elif record.kind == COMPLETE:
            old = 0
    return View(number, old)


def bit(me: int, incarnation: int) -> int:
    """Return the mask of one identity."""
    return 1 << (2 * me + incarnation)


def is_majority(members: int, present: int, lost: int = 0) -> bool:
    """Return True if W members are present, or K - W + 1 are and the lost ones make up W."""
    enough = members.bit_count() // 2 + 1
    if (members & present).bit_count() >= enough:
        return True
    return (members & (present | lost)).bit_count() >= enough and is_reading(members, present & ~lost)


def is_reading(members: int, present: int) -> bool:
    """Return True if K - W + 1 members are present."""
    count = members.bit_count()
    return (members & present).bit_count() >= count - count // 2


def newness(log: Log) -> tuple[int, int]:
    """Return the order in which logs are newer."""
    return (log[-1].epoch if log else 0, len(log))


class Membership:
    """The rules of a cell whose members change."""

    def __init__(self, rule: str, bounds: Bounds) -> None:
        self.rule = rule
        self._bounds = bounds
        self._keepers = range(bounds.keepers)
        self._founders = sum(bit(me, 0) for me in range(bounds.members))
        self._electable: dict[object, bool] = {}

    def start(self) -> State:
        """Return founders with empty logs, and spares."""
        held = int(self._bounds.is_stored)
        founder = Keeper(0, 0, 0, (), held, (), ())
        spares = self._bounds.keepers - self._bounds.members
        rest = Rest(held, (), 0, self._bounds.losses)
        return (*(founder,) * self._bounds.members, *(founder._replace(holds=0),) * spares, rest)

    def violation(self, state: State) -> str | None:
        """Return S1, S3, E or None."""
        if state[-1].has_diverged:
            return "S3"
        for keeper in state[:-1]:
            manager = keeper.manager
            if manager and manager.had_completed and not keeper.holds and serves(keeper):
                return "S1"
        return None if self._can_elect(state) else "E"

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        """Yield all steps of all keepers."""
        for me in self._keepers:
            keeper = state[me]
            view = self._view(keeper)
            identity = bit(me, keeper.incarnation)
            if self._is_named(me, keeper):
                if not keeper.holds:
                    yield ("store", me), put(state, me, keeper._replace(holds=1))
                elif not state[-1].completed and keeper.told != view.number and view.number.members & identity:
                    told = put(state, me, keeper._replace(told=view.number))
                    yield ("confirm", me, view.number), self._counted(told)
                yield from self._elections(state, me)
            if keeper.manager:
                yield from self._managing(state, me)
                yield from self._replicate(state, me)
                yield from self._begin(state, me)
            if keeper.is_amnesiac:
                yield from self._return(state, me)
            if state[-1].losses_left and not keeper.incarnation and not keeper.is_amnesiac:
                yield from self._lose(state, me)

    def _lost(self, state: State) -> int:
        """Return the identities that are known to be no more."""
        if self.rule == "lost-ones-block":
            return 0
        return sum(bit(me, 0) for me in self._keepers if state[me].incarnation)

    def _view(self, keeper: Keeper) -> View:
        return view_of(keeper.log, self._founders)

    def _is_named(self, me: int, keeper: Keeper) -> bool:
        """Return True if the configuration on its own disk names a keeper."""
        view = self._view(keeper)
        return bool((view.number.members | view.old) & bit(me, keeper.incarnation)) and not keeper.is_amnesiac

    def _votes(self, me: int, keeper: Keeper) -> bool:
        """Return True if a keeper votes, for any candidate that names it."""
        if self.rule == "mute-learner":
            view = self._view(keeper)
            return bool((view.old or view.number.members) & bit(me, keeper.incarnation))
        if self.rule == "mute-stranger":
            return self._is_named(me, keeper)
        return not keeper.is_amnesiac

    def _configurations(self, view: View, newest_only: str = "") -> tuple[int, ...]:
        """Return both configurations while a change is begun, or the newest one if `newest_only` is left out."""
        if view.old and self.rule != newest_only:
            return (view.number.members, view.old)
        return (view.number.members,)

    def _counted(self, state: State) -> State:
        """Complete the send if W members of one configuration have confirmed."""
        numbers = {keeper.told for keeper in state[:-1] if keeper.told}
        for number in numbers:
            present = sum(3 << 2 * me for me in self._keepers if state[me].told == number)
            is_committed = not number.epoch or (number.epoch, BEGUN, number.members) in state[-1].committed
            if is_majority(number.members, present) and (is_committed or self.rule == "stored-at-once"):
                keepers = (keeper._replace(told=()) for keeper in state[:-1])
                return (*keepers, state[-1]._replace(completed=1))
        return state

    def _lose(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """A disk is lost, unless a member's disk is lost already: one at a time."""
        view = view_of(state[-1].committed, self._founders)
        members = view.number.members | view.old
        alive = sum(bit(each, state[each].incarnation) for each in self._keepers if not state[each].is_amnesiac)
        if members & ~alive or not members & bit(me, 0):
            return
        rest = state[-1]._replace(losses_left=state[-1].losses_left - 1)
        is_unnamed = self.rule == "return-unnamed"
        lost = Keeper(int(not is_unnamed), int(is_unnamed), 0, (), 0, state[me].told, ())
        yield ("lose", me), (*put(state, me, lost)[:-1], rest)

    def _return(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """An amnesiac takes all that K - W + 1 others hold."""
        others = [each for each in self._keepers if each != me and self._is_named(each, state[each])]
        for read in subsets(others):
            log = max((state[each].log for each in read), key=newness)
            view = view_of(log, self._founders)
            present = sum(bit(each, 0) for each in read)
            if all(is_reading(members, present) for members in self._configurations(view)):
                promised = max(state[each].promised for each in read)
                holds = max(state[each].holds for each in read)
                back = Keeper(0, 0, promised, log, holds, state[me].told, ())
                yield ("return", me, "from", *read), put(state, me, back)

    def _elections(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        keeper = state[me]
        epoch = keeper.promised + 1
        if epoch > self._bounds.epochs:
            return
        voters = [each for each in self._willing(state, me) if state[each].promised < epoch]
        for votes in self._quorums(state, me, voters):
            manager = Manager(epoch, (0,) * len(self._keepers), 0, 0, state[-1].completed, 0)
            log = (*keeper.log, Record(epoch, OPEN, 0))
            following = put(state, me, keeper._replace(promised=epoch, log=log, manager=manager))
            for each in votes:
                following = put(following, each, state[each]._replace(promised=epoch, manager=()))
            yield ("elect", me, "by", *votes, "epoch", epoch), following

    def _willing(self, state: State, me: int) -> list[int]:
        """Return the others that would vote for a keeper, but for what they have promised."""
        mine = newness(state[me].log)
        others = (each for each in self._keepers if each != me and self._votes(each, state[each]))
        return [each for each in others if newness(state[each].log) <= mine]

    def _quorums(self, state: State, me: int, voters: list[int]) -> Iterator[tuple[int, ...]]:
        """Yield the smallest sets of voters that elect a keeper."""
        configurations = self._configurations(self._view(state[me]), "votes-of-one")
        lost = self._lost(state)
        found: list[set[int]] = []
        for votes in subsets(voters, smallest=0):
            present = sum(bit(each, state[each].incarnation) for each in (me, *votes))
            if any(each.issubset(votes) for each in found):
                continue
            if all(is_majority(members, present, lost) for members in configurations):
                found.append(set(votes))
                yield votes

    def _can_elect(self, state: State) -> bool:
        key = tuple((keeper.incarnation, keeper.is_amnesiac, keeper.log) for keeper in state[:-1])
        known = self._electable.get(key)
        if known is None:
            candidates = [me for me in self._keepers if self._is_named(me, state[me])]
            known = any(any(True for _ in self._quorums(state, me, self._willing(state, me))) for me in candidates)
            known = known or any(keeper.is_amnesiac for keeper in state[:-1])
            self._electable[key] = known
        return known

    def _managing(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The manager reads, commits and completes a change."""
        keeper = state[me]
        manager, log = keeper.manager, keeper.log
        view = self._view(keeper)
        if not manager.has_read:
            others = [each for each in self._keepers if each != me and self._is_named(each, state[each])]
            seen: set[int] = set()
            for read in subsets(others, smallest=0):
                present = sum(bit(each, state[each].incarnation) for each in (me, *read))
                holds = max(state[each].holds for each in (me, *read))
                needed = self._configurations(view, "managers-read-one")
                if holds not in seen and all(is_reading(members, present) for members in needed):
                    seen.add(holds)
                    reading = manager._replace(has_read=1, reported=holds if view.old else 0)
                    yield ("read", me, "from", *read), put(state, me, keeper._replace(holds=holds, manager=reading))
        lost = self._lost(state)
        present_at = [
            sum(1 << (2 * each + matched % 2) for each, matched in enumerate(manager.matched) if matched // 2 >= end)
            | bit(me, keeper.incarnation)
            for end in range(len(log) + 1)
        ]
        for end in range(manager.committed + 1, len(log) + 1):
            if log[end - 1].epoch == manager.epoch and self._commits(log[:end], present_at[end], lost):
                yield ("commit", me, end), self._committed(state, me, end)
        if view.old and self._may_complete(state, keeper, view):
            record = Record(manager.epoch, COMPLETE, 0)
            yield ("complete", me), put(state, me, keeper._replace(log=(*log, record)))

    def _commits(self, log: Log, present: int, lost: int) -> bool:
        """Return True if a prefix of a log is on enough disks."""
        view = view_of(log, self._founders)
        configurations = self._configurations(view, "commit-by-one")
        return all(is_majority(members, present, lost) for members in configurations)

    def _committed(self, state: State, me: int, end: int) -> State:
        keeper, rest = state[me], state[-1]
        prefix = keeper.log[:end]
        shorter = min(end, len(rest.committed))
        if prefix[:shorter] != rest.committed[:shorter]:
            rest = rest._replace(has_diverged=1)
        elif end > shorter:
            rest = rest._replace(committed=prefix)
        following = put(state, me, keeper._replace(manager=keeper.manager._replace(committed=end)))
        return self._counted((*following[:-1], rest))

    def _may_complete(self, state: State, keeper: Keeper, view: View) -> bool:
        manager = keeper.manager
        assert manager
        place = max(place for place, record in enumerate(keeper.log) if record.kind == BEGUN)
        if manager.committed <= place or not manager.has_read:
            return False
        if not manager.reported or self.rule == "no-backfill":
            return True
        holders = sum(bit(each, state[each].incarnation) for each in self._keepers if state[each].holds)
        return is_majority(view.number.members, holders)

    def _begin(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The manager begins a change."""
        keeper = state[me]
        manager, log = keeper.manager, keeper.log
        view = self._view(keeper)
        is_open = serves(keeper) or (self.rule == "change-before-open" and manager.has_read)
        if not is_open or sum(record.kind == BEGUN for record in log) >= self._bounds.changes_max:
            return
        is_pending = view.old or any(record.kind == COMPLETE for record in log[manager.committed :])
        if is_pending and self.rule != "overlapping-changes":
            return
        for name, members in self._changes(state, view.number.members):
            reported = keeper.holds
            if self.rule == "report-before-note":
                reported = max(state[each].holds for each in self._keepers if view.number.members & 3 << 2 * each)
            following = keeper._replace(
                log=(*log, Record(manager.epoch, BEGUN, members)), manager=manager._replace(reported=reported)
            )
            yield ("begin", me, name, bin(members)), put(state, me, following)

    def _changes(self, state: State, members: int) -> Iterator[tuple[str, int]]:
        for each in self._keepers:
            identity = bit(each, state[each].incarnation)
            if members & identity:
                if "remove" in self._bounds.changes:
                    yield "remove", members ^ identity
            elif members & 3 << 2 * each:
                if "return" in self._bounds.changes:
                    yield "return", members ^ 3 << 2 * each
            else:
                if "add" in self._bounds.changes:
                    yield "add", members | identity
                if "replace" in self._bounds.changes:
                    for gone in self._keepers:
                        if members & bit(gone, 0):
                            yield "replace", members ^ bit(gone, 0) | identity

    def _replicate(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """Any longer prefix of the log reaches a member or learner, which confirms it and reports what it holds."""
        keeper = state[me]
        manager = keeper.manager
        view = self._view(keeper)
        begun = max((place for place, record in enumerate(keeper.log) if record.kind == BEGUN), default=-1)
        for other in self._keepers:
            follower = state[other]
            identity = bit(other, follower.incarnation)
            if other == me or follower.is_amnesiac or not (view.number.members | view.old) & identity:
                continue
            if follower.promised > manager.epoch:
                continue
            old = manager.matched[other]
            known = old // 2 if old % 2 == follower.incarnation else 0
            for end in range(known + 1, len(keeper.log) + 1):
                prefix = keeper.log[:end]
                log = follower.log if follower.log[:end] == prefix else prefix
                following = follower._replace(promised=manager.epoch, log=log, manager=())
                reported = manager.reported
                if view.old and known <= begun < end and self.rule != "report-before-note":
                    reported |= follower.holds
                matched = (*manager.matched[:other], 2 * end + follower.incarnation, *manager.matched[other + 1 :])
                leading = keeper._replace(manager=manager._replace(matched=matched, reported=reported))
                yield ("replicate", me, "to", other, end), put(put(state, me, leading), other, following)

    def canonical(self, state: State) -> State:
        """Sort the founders, and the spares: none of them is special."""
        count = self._bounds.members
        signatures = [_signature(state[me], me) for me in self._keepers]
        order = sorted(self._keepers, key=lambda me: (me >= count, signatures[me]))
        if order == list(self._keepers):
            return state
        names = tuple(order.index(me) for me in self._keepers)
        keepers = (_renamed(state[place], order, names) for place in order)
        return (*keepers, state[-1]._replace(committed=_renamed_log(state[-1].committed, names)))


def serves(keeper: Keeper) -> bool:
    """Return True if a manager's OPEN is committed, and it has read what the members store."""
    manager = keeper.manager
    assert manager
    if not manager.has_read or not manager.committed:
        return False
    return any(record.epoch == manager.epoch for record in keeper.log[: manager.committed])


def put(state: State, me: int, keeper: Keeper) -> State:
    """Return the state with another keeper in a place."""
    return (*state[:me], keeper, *state[me + 1 :])


def subsets(items: list[int], smallest: int = 1) -> Iterator[tuple[int, ...]]:
    """Yield the subsets of a list, the smaller ones first."""
    for size in range(smallest, len(items) + 1):
        yield from combinations(items, size)


def _signature(keeper: Keeper, me: int) -> tuple[object, ...]:
    """Return everything about a keeper that does not depend on the names of the others."""
    log = tuple((record.epoch, record.kind, record.members >> 2 * me & 3) for record in keeper.log)
    told = keeper.told[0] + 1 if keeper.told else 0
    mine = (*keeper[:3], keeper.holds, told, log)
    manager = keeper.manager
    return (*mine, manager.epoch, *manager[2:], sorted(manager.matched)) if manager else mine


def _renamed(keeper: Keeper, order: list[int], names: tuple[int, ...]) -> Keeper:
    manager = keeper.manager
    if manager:
        manager = manager._replace(matched=tuple(manager.matched[place] for place in order))
    told = Number(keeper.told[0], _renamed_mask(keeper.told[1], names)) if keeper.told else ()
    return keeper._replace(log=_renamed_log(keeper.log, names), told=told, manager=manager)


@cache
def _renamed_mask(members: int, names: tuple[int, ...]) -> int:
    return sum((members >> 2 * me & 3) << 2 * name for me, name in enumerate(names))


@cache
def _renamed_log(log: Log, names: tuple[int, ...]) -> Log:
    return tuple(record._replace(members=_renamed_mask(record.members, names)) for record in log)
