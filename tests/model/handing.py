"""Model of handing out: one message on all disks, two sessions, the first of which may be fenced.

A manager writes HAND and delivers at once, before HAND is committed. After a takeover a session claims what it works
on.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .cell import KEEPERS, Cell, Keeper, Log, kinds
from .explorer import State, Step

PROPERTIES = {
    "S2": "the acknowledgements of two sessions for the same message never both succeed",
    "F": "a session that gets a message after another session got it is told so by the flag",
}
RULES = {
    "none": "all rules are kept",
    "unowned-acknowledged": "a manager takes the acknowledgement of a session that does not own the message",
    "success-at-once": "a session is told of success before its acknowledgement is committed",
    "flag-by-record": "a new manager flags only messages that a HAND record names",
    "no-lease": "a manager delivers though W members may follow another one",
}
HAND, RETURN, ACKNOWLEDGE = 1, 3, 4
"""Kinds of a record. HAND and ACKNOWLEDGE are followed by the same for the second session; only the first is fenced."""
SESSIONS = range(2)


class Rest(NamedTuple):
    """Everything that belongs to no keeper."""

    got: int
    """Mask of the sessions that have got the message."""
    succeeded: int
    """Mask of the sessions whose acknowledgement succeeded."""
    is_unflagged: int
    """1 if a session got the message after another, without the flag."""


class Handing(Cell):
    """The rules by which messages are handed out and acknowledged."""

    def start(self) -> State:
        """Return three keepers with empty logs."""
        keeper = Keeper(0, (), 0, 0, 0, ())
        return keeper, keeper, keeper, Rest(0, 0, 0)

    def violation(self, state: State) -> str | None:
        """Return S2, F or None."""
        if state[3].succeeded == 3:
            return "S2"
        return "F" if state[3].is_unflagged else None

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        """Yield all steps of all keepers."""
        for me in KEEPERS:
            yield from self.elections(state, me)
            if state[me].manager:
                yield from self.replications(state, me)
                yield from self.commitments(state, me)
                if self.serves(state[me]):
                    yield from self._handing(state, me)
                    yield from self._acknowledging(state, me)

    def frames_of(self, kind: int) -> int:
        """Return 0: the message is on all disks."""
        del kind
        return 0

    def after_commit(self, state: State, records: Log) -> State:
        """Tell the sessions of their success."""
        for kind in kinds(records):
            if kind >= ACKNOWLEDGE:
                state = _succeeded(state, kind - ACKNOWLEDGE)
        return state

    def _handing(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The manager hands out, delivers, takes claims, and fences."""
        keeper = state[me]
        written = kinds(keeper.log)
        if any(kind >= ACKNOWLEDGE for kind in written):
            return
        owner = _owner(written)
        if owner == 0:
            yield ("fence", me, "session", 0), self.logged(state, me, RETURN)
        for session in SESSIONS:
            is_fenced = session == 0 and RETURN in written
            if owner is None and not is_fenced:
                verb = "claim" if state[3].got & 1 << session else "hand"
                yield (verb, me, "session", session), self.logged(state, me, HAND + session)
        if owner is not None and not state[3].got & 1 << owner and self._leads(state, keeper):
            rest = state[3]
            others = {kind - HAND for kind in written if HAND <= kind < RETURN} - {owner}
            is_flagged = bool(others) or (keeper.manager.epoch > 1 and self.rule != "flag-by-record")
            is_unflagged = int(bool(rest.got) and not is_flagged)
            rest = rest._replace(got=rest.got | 1 << owner, is_unflagged=is_unflagged)
            yield ("deliver", me, "session", owner, "flagged" if is_flagged else "bare"), (*state[:3], rest)

    def _leads(self, state: State, keeper: Keeper) -> bool:
        """Return True as long as clocks say that no other manager serves."""
        if self.rule == "no-lease":
            return True
        return sum(each.promised <= keeper.manager.epoch for each in state[:3]) >= 2  # type: ignore[union-attr]

    def _acknowledging(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """A session acknowledges."""
        written = kinds(state[me].log)
        for session in SESSIONS:
            if not state[3].got & 1 << session or ACKNOWLEDGE + session in written:
                continue
            is_unowned = _owner(written) != session or any(kind >= ACKNOWLEDGE for kind in written)
            if is_unowned and self.rule != "unowned-acknowledged":
                continue
            following = self.logged(state, me, ACKNOWLEDGE + session)
            if self.rule == "success-at-once":
                following = _succeeded(following, session)
            yield ("acknowledge", me, "session", session), following


def _owner(written: tuple[int, ...]) -> int | None:
    """Return the session that owns the message by a log."""
    owner = None
    for kind in written:
        if kind == RETURN:
            owner = None
        elif kind < RETURN and kind >= HAND:
            owner = kind - HAND
    return owner


def _succeeded(state: State, session: int) -> State:
    return (*state[:3], state[3]._replace(succeeded=state[3].succeeded | 1 << session))
