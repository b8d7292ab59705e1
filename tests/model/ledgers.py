"""Model of the closing of a ledger: one frame of a writer's former life, and the decisions that refer to it.

The frame is a message, whose APPLY is an acknowledgement, or a request, whose APPLY is its execution. After CLOSE the
outbox sends a frame outside the final set again, under the next producer epoch.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .cell import KEEPERS, Cell, Keeper, Log, kinds, put
from .explorer import State, Step

PROPERTIES = {
    "L1": "a frame whose send completed is in the final set",
    "L2": "a frame outside the final set is never applied",
    "L3": "a manager holds every frame of a final set that it has committed",
}
RULES = {
    "none": "all rules are kept",
    "close-without-own": "the final set is what the followers report, without what the manager holds",
    "fence-by-message": "a member that was told of FENCE, and has it not in its log, reports and counts",
    "fence-unheeded": "members with FENCE in their log take frames",
    "confirm-after-fence": "a member with FENCE in its log sends STORED for frames that it holds",
    "apply-outside": "a manager applies a frame outside the final set",
    "confirm-without-frames": "a follower confirms a record without the frames that it refers to",
}
FENCE, CLOSE_WITHOUT, CLOSE_WITH, APPLY = 1, 2, 3, 4
"""Kinds of a record: CLOSE without and with the frame in the final set."""
REPORTED = 1


class Rest(NamedTuple):
    """Everything that belongs to no keeper."""

    completed: int
    closed: int
    """1 if CLOSE without the frame is committed, 2 if CLOSE with it is."""
    applied: int


class Ledgers(Cell):
    """The rules by which a ledger is closed."""

    def start(self) -> State:
        """Return three keepers without the frame."""
        keeper = Keeper(0, (), 0, 0, 0, ())
        return keeper, keeper, keeper, Rest(0, 0, 0)

    def violation(self, state: State) -> str | None:
        """Return L1, L2, L3 or None."""
        rest = state[3]
        if rest.completed and rest.closed == 1:
            return "L1"
        if rest.applied and rest.closed == 1:
            return "L2"
        for keeper in state[:3]:
            if not keeper.holds and CLOSE_WITH in self.decided(keeper):
                return "L3"
        return None

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        """Yield all steps of all keepers."""
        for me in KEEPERS:
            keeper = state[me]
            yield from self._storing(state, me)
            yield from self.elections(state, me)
            if keeper.is_fenced:
                yield ("restart", me), put(state, me, keeper._replace(is_fenced=0, manager=()))
            if keeper.manager:
                yield from self.replications(state, me)
                yield from self.commitments(state, me)
                yield from self._deciding(state, me)
                if self.rule == "fence-by-message" and FENCE in kinds(keeper.log):
                    yield from self._messages(state, me)

    def frames_of(self, kind: int) -> int:
        """Return 1 for records that refer to the frame."""
        return int(kind in (CLOSE_WITH, APPLY))

    def report_of(self, log: Log, known: int, end: int, holds: int) -> int:
        """Return a report if FENCE comes into the follower's log."""
        if FENCE in kinds(log[:end]) and FENCE not in kinds(log[:known]):
            return REPORTED + 2 * holds
        return 0

    def after_commit(self, state: State, records: Log) -> State:
        """Note the final set, and that the frame is applied."""
        committed = kinds(records)
        rest = state[3]._replace(applied=int(APPLY in committed or state[3].applied))
        for kind, closed in ((CLOSE_WITHOUT, 1), (CLOSE_WITH, 2)):
            if kind in committed:
                rest = rest._replace(closed=closed)
        return (*state[:3], rest)

    def _storing(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The frame arrives and is on disk; the writer hears STORED."""
        keeper = state[me]
        is_fenced = keeper.is_fenced or (FENCE in kinds(keeper.log) and self.rule != "fence-unheeded")
        if not keeper.holds and not is_fenced:
            yield ("store", me), put(state, me, keeper._replace(holds=1))
        may_confirm = not is_fenced or self.rule == "confirm-after-fence"
        if keeper.holds and not keeper.told and may_confirm:
            told = put(state, me, keeper._replace(told=1))
            completed = int(sum(each.told for each in told[:3]) >= 2)
            yield ("confirm", me), (*told[:3], state[3]._replace(completed=completed))

    def _messages(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """A member is told of FENCE, refuses the frame from then on, and reports."""
        keeper = state[me]
        manager = keeper.manager
        for other in KEEPERS:
            follower = state[other]
            if other == me or follower.promised > manager.epoch or manager.reports[other]:
                continue
            report = REPORTED + 2 * follower.holds
            reports = (*manager.reports[:other], report, *manager.reports[other + 1 :])
            after = put(state, me, keeper._replace(manager=manager._replace(reports=reports)))
            yield ("tell", me, "to", other), put(after, other, follower._replace(is_fenced=1))

    def _deciding(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The manager fences, closes and applies."""
        keeper = state[me]
        if not self.serves(keeper):
            return
        manager = keeper.manager
        written = kinds(keeper.log)
        is_outside = CLOSE_WITHOUT in written and self.rule != "apply-outside"
        if keeper.holds and APPLY not in written and not is_outside:
            yield ("apply", me), self.logged(state, me, APPLY)
        if FENCE not in written:
            yield ("fence", me), self.logged(state, me, FENCE)
        elif CLOSE_WITHOUT not in written and CLOSE_WITH not in written:
            reports = [report for report in manager.reports if report]
            if not reports:
                return
            is_held = any(report & 2 for report in reports)
            if self.rule != "close-without-own":
                is_held = is_held or bool(keeper.holds)
            if is_held:
                closing = put(state, me, keeper._replace(holds=1))
                yield ("close with", me), self.logged(closing, me, CLOSE_WITH)
            else:
                yield ("close without", me), self.logged(state, me, CLOSE_WITHOUT)
