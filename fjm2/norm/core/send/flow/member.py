"""One member of the acking set: when it was heard, and how long its silence is borne."""

from enum import Enum, auto

from fjm2.norm.core.wire import Position

from .evidence import Evidence

_PATIENCE_GROWTH = 2.0
"""A member that comes back is given this many times its silence the next time: it pauses now and then, but it lives."""
_PATIENCE_KEPT_S = 60.0
"""How long a member that came back is given more time than others."""
_FULL_INTERVAL_S = 1.0
"""Shortest time between two reports that the same member is full."""


class MemberState(Enum):
    """A state in the life of a member. Eviction or goodbye ends it in any state."""

    PRESENT = auto()
    """Marks wait for it."""
    ASIDE = auto()
    """It is silent. Marks are completed without it, and what it lacks can be repaired as far as the buffers reach."""
    RETURNED = auto()
    """It was silent, answers again, and has not caught up. Marks wait for it, and what it may lack is kept."""


LEGAL = {
    MemberState.PRESENT: {MemberState.ASIDE},
    MemberState.ASIDE: {MemberState.RETURNED},
    MemberState.RETURNED: {MemberState.PRESENT, MemberState.ASIDE},
}
"""Moves from state to state that are allowed."""


class Member:
    """A receiver that confirms, or that did until it fell silent."""

    __slots__ = (
        "_full_told_at",
        "_is_full_told",
        "_patience_s",
        "_patience_until",
        "early",
        "evidence",
        "has_requested",
        "heard_at",
        "is_full",
        "is_on_trial",
        "is_volunteer",
        "kept_sent",
        "kept_streams",
        "owes_since",
        "state",
    )

    def __init__(self, now: float, evidence: Evidence, is_volunteer: bool) -> None:
        self.state = MemberState.PRESENT
        self.heard_at = now
        """Time when it was last heard, or became a member."""
        self.owes_since: float | None = None
        """Time when it was asked what it had not confirmed when it was set aside; None if it has confirmed since."""
        self.is_volunteer = is_volunteer
        """True if it joined by answering a probe. The application named the others."""
        self.is_on_trial = is_volunteer
        """True if it joined by itself and has confirmed nothing yet. Anyone can claim to be a receiver."""
        self.early: Position | None = None
        """A position near the place where it began, whose confirmation ends its trial; None if none is known yet."""
        self.has_requested = False
        """True if that is the first position that it requested."""
        self.is_full = False
        """True if it says that its application takes nothing at the moment."""
        self.kept_sent = 0
        """Segments of all objects that it had confirmed when it was set aside."""
        self.kept_streams: dict[int, int] = {}
        """Object id of each stream, and the first segment that it had not confirmed when it was set aside."""
        self.evidence = evidence
        """The record of its progress."""
        self._patience_s = 0.0
        self._patience_until = 0.0
        self._is_full_told = False
        self._full_told_at = -_FULL_INTERVAL_S

    def move_to(self, state: MemberState) -> None:
        """Change the state, along a legal move."""
        if state not in LEGAL[self.state]:
            raise AssertionError(f"{self.state} to {state}")
        self.state = state

    def owed_since(self, asked_at: float) -> float:
        """Return the time since when it owes a confirmation. Marks have been asking since `asked_at`."""
        return asked_at if self.owes_since is None else self.owes_since

    def silence_s(self, asked_at: float, now: float) -> float:
        """Return for how long it has been asked, since `asked_at` at the latest, and has said nothing."""
        return now - max(self.heard_at, self.owed_since(asked_at))

    def patience_s(self, usual_s: float, now: float) -> float:
        """Return how long a silence of it is borne: as usual, or longer if it came back from a longer one."""
        return max(usual_s, self._patience_s) if now < self._patience_until else usual_s

    def set_aside(self, asked_at: float, kept_sent: int, kept_streams: dict[int, int]) -> None:
        """Go on without it, and note what it had confirmed. If it has not caught up since the last time, keep that."""
        if self.state is not MemberState.RETURNED:
            self.owes_since = asked_at
            self.kept_sent, self.kept_streams = kept_sent, kept_streams
        self.is_full = self._is_full_told = False
        self.move_to(MemberState.ASIDE)

    def come_back(self, now: float) -> None:
        """Note that it answers again after a silence."""
        self.move_to(MemberState.RETURNED)
        self._patience_s = _PATIENCE_GROWTH * (now - self.heard_at)
        self._patience_until = now + _PATIENCE_KEPT_S
        self.heard_at = now

    def catch_up(self) -> None:
        """Note that it has confirmed a mark."""
        self.is_on_trial = False
        if self.state is MemberState.RETURNED:
            self.move_to(MemberState.PRESENT)
            self.owes_since = None

    def excuse(self, late_s: float, now: float) -> None:
        """Do not count a time in which the sender asked nothing, because it did not run."""
        self.heard_at = min(self.heard_at + late_s, now)
        self.evidence.moved_at = min(self.evidence.moved_at + late_s, now)
        if self.owes_since is not None:
            self.owes_since = min(self.owes_since + late_s, now)

    def note_full(self, is_full: bool, now: float) -> bool:
        """Note if it says that it is full. Return True if it was reported full, and is no longer."""
        if is_full or self.is_full:
            self.evidence.moved_at = now  # it need not make progress while it is full
        self.is_full = is_full
        if is_full or not self._is_full_told:
            return False
        self._is_full_told = False
        return True

    def is_full_to_tell(self, now: float) -> bool:
        """Return True once each time that it is full, at a bounded rate. The caller reports it."""
        if not self.is_full or self._is_full_told or now - self._full_told_at < _FULL_INTERVAL_S:
            return False
        self._is_full_told, self._full_told_at = True, now
        return True
