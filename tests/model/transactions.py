"""Model of a transaction: two sessions, a message that both get, a commit request of the first session with one part.

The first session sends the part, and a request that names the part and acknowledges the message. The second session
gets the message after the first one is fenced, and acknowledges it alone. The first session asks for the outcome when
it likes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from .cell import KEEPERS, Cell, Keeper, Log, kinds, put
from .explorer import State, Step

PROPERTIES = {
    "T1": "a client is never told both outcomes of a transaction",
    "T2": "a manager holds the parts of every transaction that it has committed",
    "S2": "the acknowledgements of two sessions for the same message never both succeed",
}
RULES = {
    "none": "all rules are kept",
    "apply-without-parts": "a manager commits a transaction before it holds the parts",
    "confirm-without-frames": "a follower confirms a record without the frames that it refers to",
    "no-ownership": "a manager commits though the session owns the message no more",
    "answer-at-once": "a client is told an outcome before its record is committed",
    "unknown-unrecorded": "a client that asks for an unknown transaction is told that it is refused, without a record",
    "outcome-forgotten": "a repeated request is decided anew",
}
RETURN, APPLY, REFUSE, ACKNOWLEDGE = 1, 2, 3, 4
"""Kinds of a record: the first session is fenced, its transaction is decided, the second session acknowledges."""
PART, REQUEST = 1, 2
"""Frames."""
COMMITTED, REFUSED, ACKNOWLEDGED = 1, 2, 4
"""Answers of the manager that reached a client."""
ANSWERS = {APPLY: COMMITTED, REFUSE: REFUSED, ACKNOWLEDGE: ACKNOWLEDGED}


class Rest(NamedTuple):
    """Everything that belongs to no keeper."""

    told: int
    """Mask of the answers that clients have: they hear as soon as there is one."""


class Transactions(Cell):
    """The rules by which a transaction is decided."""

    def start(self) -> State:
        """Return three keepers without part and request. The first session has the message."""
        keeper = Keeper(0, (), 0, 0, 0, ())
        return keeper, keeper, keeper, Rest(0)

    def violation(self, state: State) -> str | None:
        """Return T1, T2, S2 or None."""
        rest = state[3]
        if rest.told & COMMITTED and rest.told & REFUSED:
            return "T1"
        if rest.told & COMMITTED and rest.told & ACKNOWLEDGED:
            return "S2"
        for keeper in state[:3]:
            if not keeper.holds & PART and APPLY in self.decided(keeper):
                return "T2"
        return None

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        """Yield all steps of all keepers."""
        for me in KEEPERS:
            keeper = state[me]
            yield from self.elections(state, me)
            if keeper.manager:
                # A follower's frames matter once it is a manager, and when it confirms: then it fetches them.
                for frame in (PART, REQUEST):
                    if not keeper.holds & frame:
                        yield ("store", me, frame), put(state, me, keeper._replace(holds=keeper.holds | frame))
                yield from self.replications(state, me)
                yield from self.commitments(state, me)
                if self.serves(keeper):
                    yield from self._handing(state, me)
                    yield from self._deciding(state, me)

    def frames_of(self, kind: int) -> int:
        """Return the frames of a transaction for its APPLY."""
        return PART | REQUEST if kind == APPLY else 0

    def after_commit(self, state: State, records: Log) -> State:
        """Tell the clients."""
        for kind in kinds(records):
            state = _told(state, ANSWERS.get(kind, 0))
        return state

    def _handing(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The message comes back from the first session; the second one gets and acknowledges it."""
        written = kinds(state[me].log)
        if ACKNOWLEDGE in written or APPLY in written:
            return
        if RETURN not in written:
            yield ("fence first", me), self._written(state, me, RETURN)
        else:
            yield ("acknowledge", me), self._written(state, me, ACKNOWLEDGE)

    def _deciding(self, state: State, me: int) -> Iterator[tuple[Step, State]]:
        """The manager decides a request that it holds, and one that it does not know when asked for its outcome."""
        keeper = state[me]
        written = kinds(keeper.log)
        outcomes = [kind for kind in written if kind in (APPLY, REFUSE)]
        if len(outcomes) > (self.rule == "outcome-forgotten"):
            return
        if keeper.holds & REQUEST:
            has_parts = keeper.holds & PART or self.rule == "apply-without-parts"
            is_owner = (RETURN not in written and ACKNOWLEDGE not in written) or self.rule == "no-ownership"
            if not is_owner:
                yield ("refuse", me), self._written(state, me, REFUSE)
            elif has_parts:
                yield ("apply", me), self._written(state, me, APPLY)
        elif self.rule == "unknown-unrecorded":
            yield ("answer refused", me), _told(state, REFUSED)
        else:
            yield ("refuse unknown", me), self._written(state, me, REFUSE)

    def _written(self, state: State, me: int, kind: int) -> State:
        following = self.logged(state, me, kind)
        return _told(following, ANSWERS.get(kind, 0)) if self.rule == "answer-at-once" else following


def _told(state: State, answer: int) -> State:
    return (*state[:3], state[3]._replace(told=state[3].told | answer))
