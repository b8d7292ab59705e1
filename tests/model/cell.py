"""The decision log of three members that stay, as a basis for models of what the log decides.

A keeper that is down is one that takes no steps: everything that it holds is on disk. An election is one step with one
voter, whose frames the new manager reads in the same step.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .explorer import State, Step

KEEPERS = range(3)
OPEN = 0
"""Kind of the first record of an epoch. A model numbers its own kinds from 1."""


class Record(NamedTuple):
    """A record of the decision log."""

    epoch: int
    kind: int


Log = tuple[Record, ...]


class Manager(NamedTuple):
    """A keeper's state while it believes to be the manager."""

    epoch: int
    matched: tuple[int, ...]
    """Number of records of its log that each keeper has confirmed."""
    committed: int
    reports: tuple[int, ...]
    """Keepers that have reported under FENCE, as 1 or 0, each plus 2 if it holds the frame."""


class Keeper(NamedTuple):
    """Disk and memory of a keeper."""

    promised: int
    log: Log
    holds: int
    """Mask of the frames on its disk."""
    told: int
    """1 if the writer has its STORED."""
    is_fenced: int
    """1 if it refuses frames because of a message, which it forgets when it restarts."""
    manager: Manager | tuple[()]


class Cell:
    """Elections, replication and commitment among three members."""

    range_rule = "confirm-without-frames"
    """Rule left out when a follower confirms a record without the frames that the record refers to."""

    def __init__(self, rule: str, epochs: int) -> None:
        self.rule = rule
        self._epochs = epochs

    def frames_of(self, kind: int) -> int:
        """Return the frames that a record of this kind refers to."""
        raise NotImplementedError

    def report_of(self, log: Log, known: int, end: int, holds: int) -> int:
        """Return a follower's report when it has confirmed a log to `end`, after `known`; 0 for none."""
        del log, known, end, holds
        return 0

    def after_commit(self, state: State, records: Log) -> State:
        """Return the state after these records of a manager are committed."""
        raise NotImplementedError

    def serves(self, keeper: Keeper) -> bool:
        """Return True if a manager's OPEN record is committed."""
        manager = keeper.manager
        return bool(manager) and Record(manager.epoch, OPEN) in keeper.log[: manager.committed]  # type: ignore[union-attr]

    def decided(self, keeper: Keeper) -> tuple[int, ...]:
        """Return the kinds of the records that a manager has committed."""
        manager = keeper.manager
        return kinds(keeper.log[: manager.committed]) if manager else ()

    def elections(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """Yield the elections of a keeper, with one vote besides its own."""
        keeper = state[me]
        epoch = keeper.promised + 1
        if epoch > self._epochs:
            return
        for other in KEEPERS:
            voter = state[other]
            if other == me or voter.promised >= epoch or newness(voter.log) > newness(keeper.log):
                continue
            manager = Manager(epoch, (0, 0, 0), 0, (0, 0, 0))
            log = (*keeper.log, Record(epoch, OPEN))
            leading = keeper._replace(promised=epoch, log=log, holds=keeper.holds | voter.holds, manager=manager)
            following = put(state, other, voter._replace(promised=epoch, manager=()))
            yield ("elect", me, "by", other, "epoch", epoch), put(following, me, leading)

    def replications(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """Yield the ways in which a longer prefix of the manager's log reaches a follower, which confirms it."""
        keeper = state[me]
        manager = keeper.manager
        for other in KEEPERS:
            follower = state[other]
            if other == me or follower.promised > manager.epoch:
                continue
            known = manager.matched[other]
            holds = follower.holds
            for end in range(known + 1, len(keeper.log) + 1):
                prefix = keeper.log[:end]
                if self.rule != self.range_rule:
                    needed = self.frames_of(prefix[-1].kind)
                    if needed & ~(holds | keeper.holds):
                        break
                    holds |= needed
                log = follower.log if follower.log[:end] == prefix else prefix
                reports = manager.reports
                if report := self.report_of(keeper.log, known, end, holds):
                    reports = changed(reports, other, report)
                leading = manager._replace(matched=changed(manager.matched, other, end), reports=reports)
                following = follower._replace(promised=manager.epoch, log=log, holds=holds, manager=())
                after = put(state, me, keeper._replace(manager=leading))
                yield ("replicate", me, "to", other, end), put(after, other, following)

    def commitments(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """Yield the ways in which the manager commits more of its log."""
        keeper = state[me]
        manager = keeper.manager
        for end in range(manager.committed + 1, len(keeper.log) + 1):
            has_copy = any(manager.matched[other] >= end for other in KEEPERS if other != me)
            if has_copy and keeper.log[end - 1].epoch == manager.epoch:
                following = put(state, me, keeper._replace(manager=manager._replace(committed=end)))
                yield ("commit", me, end), self.after_commit(following, keeper.log[:end])

    def logged(self, state: State, me: int, kind: int) -> State:
        """Return the state after the manager has written a record."""
        keeper = state[me]
        return put(state, me, keeper._replace(log=(*keeper.log, Record(keeper.manager.epoch, kind))))

    def canonical(self, state: State) -> State:
        """Sort the keepers, since none of them is special."""
        signatures = [_signature(state[me]) for me in KEEPERS]
        order = sorted(KEEPERS, key=signatures.__getitem__)
        if order == [0, 1, 2]:
            return state
        return (*(_renamed(state[place], order) for place in order), state[3])


def kinds(log: Log) -> tuple[int, ...]:
    """Return the kinds of the records of a log."""
    return tuple(record.kind for record in log)


def newness(log: Log) -> tuple[int, int]:
    """Return the order in which logs are newer."""
    return (log[-1].epoch if log else 0, len(log))


def put(state: State, me: int, keeper: Keeper) -> State:
    """Return the state with another keeper in a place."""
    return (*state[:me], keeper, *state[me + 1 :])


def changed(items: tuple[int, ...], place: int, item: int) -> tuple[int, ...]:
    """Return the items with another one in a place."""
    return (*items[:place], item, *items[place + 1 :])


def _signature(keeper: Keeper) -> tuple[object, ...]:
    """Return everything about a keeper that does not depend on the names of the others."""
    manager = keeper.manager
    if not manager:
        return (keeper[:5],)
    return keeper[:5], manager.epoch, manager.committed, sorted(zip(manager.matched, manager.reports, strict=True))


def _renamed(keeper: Keeper, order: list[int]) -> Keeper:
    manager = keeper.manager
    if not manager:
        return keeper
    matched = tuple(manager.matched[place] for place in order)
    reports = tuple(manager.reports[place] for place in order)
    return keeper._replace(manager=manager._replace(matched=matched, reports=reports))
