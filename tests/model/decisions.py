"""Model of how a cell decides: three keepers, one message, two consumers that acknowledge it.

A keeper receives the message, flushes it, confirms it, crashes, restarts, is elected. A manager replicates any prefix
of its log, commits, hands the message out, and logs an acknowledgement. An election is one step with one voter.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .explorer import State, Step

PROPERTIES = {
    "S1": "a message whose send completed before a manager was elected is known to that manager when it serves",
    "S2": "the acknowledgements of two consumers for the same message never both succeed",
}
RULES = {
    "none": "all rules are kept",
    "ack-before-fsync": "STORED is sent when the message is seen, not when it is on disk",
    "presence-leads": "a keeper that believes to be the closest serves, without votes",
    "no-recovery-read": "a new manager does not read what its voter has stored",
    "amnesia": "a keeper that lost its disk votes and confirms at once",
    "no-fence": "a follower takes records of an older epoch",
    "no-up-to-date": "votes are given to a candidate with an older log",
    "promise-not-kept": "a crash forgets the promised epoch",
    "old-epoch-commit": "records of an older epoch count as committed by copies (Raft, figure 8)",
    "serve-before-open": "a manager serves before its OPEN record is on two keepers",
}
KEEPERS = range(3)
OPEN = 0
"""A record is an integer: four times its epoch, plus OPEN or the number of the consumer (1, 2) that acknowledged."""


class Manager(NamedTuple):
    """A keeper's state while it believes to be the manager."""

    epoch: int
    matched: tuple[int, ...]
    """Number of records of its log that each keeper has confirmed."""
    committed: int
    handed: int
    """The consumer that has the message, 1 or 2; 0 for none."""
    had_completed: int
    """1 if the send had completed when it was elected."""


class Keeper(NamedTuple):
    """Disk and memory of a keeper."""

    is_up: int
    promised: int
    """The newest epoch that it has promised, on disk."""
    log: tuple[int, ...]
    on_disk: int
    """1 if it holds the message on disk."""
    seen: int
    confirmed: int
    """1 if the publisher has its STORED."""
    manager: Manager | tuple[()]


class Rest(NamedTuple):
    """Everything that belongs to no keeper."""

    completed: int
    successes: int
    """Bit 0 and bit 1: the acknowledgement of the first and the second consumer succeeded."""
    crashes_left: int


class Decisions:
    """The rules of a cell whose members stay."""

    def __init__(self, rule: str, epochs: int, crashes: int, is_stored: bool) -> None:
        self.rule = rule
        self._epochs = epochs
        self._crashes = crashes
        self._held = int(is_stored)

    def start(self) -> State:
        """Return three empty keepers, or three that hold the message and have confirmed it."""
        held = self._held
        keeper = Keeper(1, 0, (), held, held, held, ())
        return keeper, keeper, keeper, Rest(held, 0, self._crashes)

    def canonical(self, state: State) -> State:
        """Sort the keepers, since none of them is special."""
        signatures = [_signature(state[me], me) for me in KEEPERS]
        order = sorted(KEEPERS, key=signatures.__getitem__)
        if order == [0, 1, 2]:
            return state
        return (*(_renamed(state[place], order) for place in order), state[3])

    def violation(self, state: State) -> str | None:
        """Return S1, S2 or None."""
        if state[3].successes == 3:
            return "S2"
        for keeper in state[:3]:
            manager = keeper.manager
            if not manager or not manager.had_completed or keeper.on_disk or _is_acknowledged(keeper.log):
                continue
            if self._serves(keeper):
                return "S1"
        return None

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        """Yield all steps of all keepers."""
        for me in KEEPERS:
            keeper = state[me]
            if not keeper.is_up:
                back = keeper._replace(is_up=1, seen=keeper.on_disk)
                yield ("restart", me), _put(state, me, back)
                continue
            yield from self._storing(state, me)
            if state[3].crashes_left:
                yield ("crash", me), self._crash(state, me)
            if self.rule == "presence-leads":
                yield from self._usurp(state, me)
            else:
                yield from self._elections(state, me)
            if keeper.manager:
                yield from self._managing(state, me)
                yield from self._replicate(state, me)

    def _serves(self, keeper: Keeper) -> bool:
        manager = keeper.manager
        assert manager
        opened = manager.epoch * 4 + OPEN in keeper.log[: manager.committed]
        return opened or self.rule in ("serve-before-open", "presence-leads")

    def _storing(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The message arrives, is flushed, is confirmed."""
        keeper = state[me]
        if not keeper.seen:
            yield ("receive", me), _put(state, me, keeper._replace(seen=1))
        if keeper.seen and not keeper.on_disk:
            yield ("flush", me), _put(state, me, keeper._replace(on_disk=1))
        may_confirm = keeper.on_disk or (self.rule == "ack-before-fsync" and keeper.seen)
        if may_confirm and not keeper.confirmed:
            count = 1 + sum(each.confirmed for each in state[:3])
            rest = state[3]._replace(completed=int(count >= 2))
            yield ("confirm", me), (*_put(state, me, keeper._replace(confirmed=1))[:3], rest)

    def _crash(self, state: State, me: int) -> State:
        keeper = state[me]
        promised = 0 if self.rule in ("promise-not-kept", "amnesia") else keeper.promised
        log, on_disk = ((), 0) if self.rule == "amnesia" else (keeper.log, keeper.on_disk)
        down = Keeper(0, promised, log, on_disk, 0, keeper.confirmed, ())
        rest = state[3]._replace(crashes_left=state[3].crashes_left - 1)
        return (*_put(state, me, down)[:3], rest)

    def _usurp(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """Presence alone makes a manager."""
        keeper = state[me]
        epoch = keeper.promised + 1
        if epoch <= self._epochs and not keeper.manager:
            manager = Manager(epoch, (0, 0, 0), 0, 0, state[3].completed)
            leading = keeper._replace(promised=epoch, log=(*keeper.log, epoch * 4 + OPEN), manager=manager)
            yield ("usurp", me, epoch), _put(state, me, leading)

    def _elections(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """One vote besides one's own is a majority of three."""
        keeper = state[me]
        epoch = keeper.promised + 1
        if epoch > self._epochs:
            return
        for other in KEEPERS:
            voter = state[other]
            if other == me or not voter.is_up or voter.promised >= epoch:
                continue
            if self.rule != "no-up-to-date" and _newness(voter.log) > _newness(keeper.log):
                continue
            reads = self.rule != "no-recovery-read"
            on_disk = keeper.on_disk | voter.on_disk if reads else keeper.on_disk
            manager = Manager(epoch, (0, 0, 0), 0, 0, state[3].completed)
            log = (*keeper.log, epoch * 4 + OPEN)
            leading = Keeper(1, epoch, log, on_disk, keeper.seen | on_disk, keeper.confirmed, manager)
            still = voter.manager if self.rule == "no-fence" else ()
            following = _put(state, other, voter._replace(promised=epoch, manager=still))
            yield ("elect", me, "by", other, "epoch", epoch), _put(following, me, leading)

    def _managing(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The manager fetches, commits, hands out and acknowledges."""
        keeper = state[me]
        manager, log = keeper.manager, keeper.log
        others = [other for other in KEEPERS if other != me]
        is_elsewhere = any(state[other].is_up and state[other].on_disk for other in others)
        if not keeper.on_disk and is_elsewhere and self.rule != "no-recovery-read":
            yield ("fetch", me), _put(state, me, keeper._replace(on_disk=1, seen=1))
        for end in range(manager.committed + 1, len(log) + 1):
            has_copy = any(manager.matched[other] >= end for other in others)
            if has_copy and (log[end - 1] // 4 == manager.epoch or self.rule == "old-epoch-commit"):
                yield ("commit", me, end), _lead(state, me, manager._replace(committed=end))
        is_acknowledged = _is_acknowledged(log)
        if self._serves(keeper) and keeper.on_disk and not is_acknowledged and not manager.handed:
            # The consumers are equal: the first one to get the message is the first.
            for consumer in (1, 2) if _names_consumer(state) else (1,):
                yield ("hand", me, "to", consumer), _lead(state, me, manager._replace(handed=consumer))
        if manager.handed and not is_acknowledged:
            acknowledged = (*log, manager.epoch * 4 + manager.handed)
            yield ("log", me, manager.handed), _put(state, me, keeper._replace(log=acknowledged))
        for record in log[: manager.committed]:
            if consumer := record & 3:
                successes = state[3].successes | consumer
                if successes != state[3].successes:
                    yield ("succeed", me, consumer), (*state[:3], state[3]._replace(successes=successes))

    def _replicate(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """Any longer prefix of the log reaches a follower, which confirms it."""
        keeper = state[me]
        manager = keeper.manager
        is_unfenced = self.rule in ("no-fence", "presence-leads")
        for other in KEEPERS:
            follower = state[other]
            if other == me or not follower.is_up or (follower.promised > manager.epoch and not is_unfenced):
                continue
            rival = follower.manager
            if rival and (rival.epoch < manager.epoch or not is_unfenced):
                rival = ()
            promised = max(follower.promised, manager.epoch)
            for end in range(manager.matched[other] + 1, len(keeper.log) + 1):
                prefix = keeper.log[:end]
                log = follower.log if follower.log[:end] == prefix else prefix
                following = follower._replace(promised=promised, log=log, manager=rival)
                matched = (*manager.matched[:other], end, *manager.matched[other + 1 :])
                confirmed = _lead(state, me, manager._replace(matched=matched))
                yield ("replicate", me, "to", other, end), _put(confirmed, other, following)


def _put(state: State, me: int, keeper: Keeper) -> State:
    return (*state[:me], keeper, *state[me + 1 :])


def _lead(state: State, me: int, manager: Manager) -> State:
    return _put(state, me, state[me]._replace(manager=manager))


def _is_acknowledged(log: tuple[int, ...]) -> bool:
    return any(record & 3 for record in log)


def _newness(log: tuple[int, ...]) -> tuple[int, int]:
    return (log[-1] // 4 if log else 0, len(log))


def _names_consumer(state: State) -> bool:
    """Return True if anything tells one consumer from the other."""
    if state[3].successes:
        return True
    return any((each.manager and each.manager.handed) or _is_acknowledged(each.log) for each in state[:3])


def _signature(keeper: Keeper, me: int) -> tuple[object, ...]:
    """Return everything about a keeper that does not depend on the names of the others."""
    manager = keeper.manager
    if not manager:
        return (keeper[:6],)
    return keeper[:6], manager.epoch, *manager[2:], manager.matched[me], sorted(manager.matched)


def _renamed(keeper: Keeper, order: list[int]) -> Keeper:
    manager = keeper.manager
    if not manager:
        return keeper
    return keeper._replace(manager=manager._replace(matched=tuple(manager.matched[place] for place in order)))
