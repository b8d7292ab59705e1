"""The writer's side of STORED: which of its frames the cell has confirmed, and whether the cell can confirm at all."""

import math
from collections import defaultdict
from enum import Enum, auto
from typing import Final, NamedTuple

from fjm2.base.ledger import Ledger

from .wire.commands import Heartbeat, MemberFlag
from .wire.stored import Stored, StoredFlag

ASK_AFTER_S: Final = 0.1
"""Time after which a writer that waits asks for STORED. Keepers send it unasked after each fdatasync, so that this only
replaces a lost one."""
NEVER: Final = math.inf


class Standing(Enum):
    """The ability of a cell to confirm."""

    ABLE = auto()
    """W members answer and take messages."""
    FULL = auto()
    """W members answer, but fewer than W have taken messages for the timeout: the others say that they are full."""
    SILENT = auto()
    """Fewer than W members have answered for the timeout."""
    UNKNOWN = auto()
    """No manager has been heard."""


class _Answer:
    """The last STORED of a member, with the most that it said of each ledger in this incarnation and configuration."""

    __slots__ = ("configuration", "counts", "heard_at", "incarnation", "is_full", "progress", "table_version")

    def __init__(self, stored: Stored) -> None:
        self.incarnation = stored.incarnation
        self.configuration = stored.configuration
        self.table_version = stored.table_version
        self.progress: dict[Ledger, tuple[int, int]] = {}
        self.counts = False
        self.is_full = False
        self.heard_at = 0.0

    def is_of(self, stored: Stored) -> bool:
        """Return True if a STORED continues this one: of the same incarnation, configuration and table version."""
        return (
            self.incarnation == stored.incarnation
            and self.configuration == stored.configuration
            and self.table_version == stored.table_version
        )


class _Count(NamedTuple):
    """Counts of a ledger that are confirmed, by W disks and by W memories."""

    on_disk: int
    seen: int


class StoredTracker:
    """Tells how far a writer's ledgers are confirmed: by W members of equal configuration and table version.

    The members, their incarnations and W come from heartbeats of a serving manager, which name committed configurations
    only. A STORED of another configuration, of an older table than the newest one heard, or of another incarnation than
    the heartbeat's does not count.
    """

    def __init__(self, producer_id: int, confirm_timeout_s: float) -> None:
        self._producer_id = producer_id
        self._timeout_s = confirm_timeout_s
        self._heartbeat: Heartbeat | None = None
        self._incarnations: dict[bytes, int] = {}
        """Incarnation of each member that may confirm."""
        self._majority = 0
        self._answers: dict[bytes, _Answer] = {}
        self._confirmed: dict[Ledger, _Count] = {}
        self._sent: dict[Ledger, int] = {}
        self._ask_at = NEVER
        self._able_at = -NEVER
        """The last time at which W members answered that they take messages."""
        self._began_at = NEVER

    @property
    def table_version(self) -> int:
        """Newest table version heard."""
        return 0 if self._heartbeat is None else self._heartbeat.table_version

    def receive_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """Learn the members and the table version. Heartbeats of older epochs are ignored."""
        known = self._heartbeat
        if known is not None:
            if heartbeat.cell_id != known.cell_id or (heartbeat.epoch, heartbeat.number) < (known.epoch, known.number):
                return
            if heartbeat.table_version < known.table_version:
                return  # a table never goes back: a forgery, or a manager that lost its epoch
        if known is None:
            self._began_at = self._able_at = now
        self._heartbeat = heartbeat
        self._incarnations = {
            member.keeper_id: member.incarnation
            for member in heartbeat.members
            if not member.flags & MemberFlag.AMNESIAC
        }
        self._majority = len(heartbeat.members) // 2 + 1
        members = {member.keeper_id for member in heartbeat.members}
        for keeper_id in [keeper_id for keeper_id in self._answers if keeper_id not in members]:
            del self._answers[keeper_id]
        self._confirm()

    def receive_stored(self, stored: Stored, now: float) -> None:
        """Take a member's answer. Those of strangers are ignored, so that memory is bounded by the members."""
        heartbeat = self._heartbeat
        if heartbeat is None or stored.cell_id != heartbeat.cell_id:
            return
        if all(member.keeper_id != stored.keeper_id for member in heartbeat.members):
            return
        answer = self._answers.get(stored.keeper_id)
        if answer is None or not answer.is_of(stored):
            answer = self._answers[stored.keeper_id] = _Answer(stored)
        answer.counts = not stored.flags & StoredFlag.DOES_NOT_COUNT
        answer.is_full = bool(stored.flags & StoredFlag.FULL)
        answer.heard_at = now
        for ledger, on_disk, seen in stored.counts_of(self._producer_id):
            if ledger in self._sent:
                disk_before, seen_before = answer.progress.get(ledger, (0, 0))
                # Answers overtake each other on the way; what was on disk stays there.
                answer.progress[ledger] = max(on_disk, disk_before), max(seen, seen_before)
        self._confirm()
        if self._count(now, is_taking=True) >= self._majority:
            self._able_at = now

    def note_sent(self, ledger: Ledger, through: int, now: float) -> None:
        """Note that the frames of a ledger are sent through a sequence, and have to be confirmed."""
        self._sent[ledger] = max(through, self._sent.get(ledger, 0))
        if self._ask_at == NEVER:
            self._ask_at = now + ASK_AFTER_S

    def forget(self, ledger: Ledger) -> None:
        """Forget a ledger that is written no more."""
        self._sent.pop(ledger, None)
        self._confirmed.pop(ledger, None)
        for answer in self._answers.values():
            answer.progress.pop(ledger, None)

    def confirmed(self, ledger: Ledger, *, on_disk: bool = True) -> int:
        """Return the sequence through which W members have a ledger on disk, or have at least seen it.

        It never falls.
        """
        count = self._confirmed.get(ledger)
        return 0 if count is None else count.on_disk if on_disk else count.seen

    def standing(self, now: float) -> Standing:
        """Return the cell's ability to confirm, of which only the times of answers tell."""
        if self._heartbeat is None:
            return Standing.UNKNOWN
        if self._count(now, is_taking=False) < self._majority:
            return Standing.SILENT if now - self._began_at >= self._timeout_s else Standing.ABLE
        return Standing.FULL if now - self._able_at >= self._timeout_s else Standing.ABLE

    def is_full(self, now: float) -> bool:
        """Return True if W members answer, and fewer than W take messages at present."""
        return self._count(now, is_taking=True) < self._majority <= self._count(now, is_taking=False)

    def poll_timeout(self) -> float:
        """Return the time at which to ask for STORED, or NEVER."""
        return self._ask_at

    def poll_request(self, now: float) -> bool:
        """Return True if it is time to ask all members for STORED."""
        if now < self._ask_at:
            return False
        self._ask_at = now + ASK_AFTER_S
        return True

    def _count(self, now: float, *, is_taking: bool) -> int:
        """Return the number of members that answered within the timeout, and that take messages if asked for."""
        oldest = now - self._timeout_s
        return sum(
            answer.heard_at > oldest and not (is_taking and answer.is_full)
            for keeper_id, answer in self._answers.items()
            if self._may_confirm(keeper_id, answer)
        )

    def _may_confirm(self, keeper_id: bytes, answer: _Answer) -> bool:
        heartbeat = self._heartbeat
        return (
            heartbeat is not None
            and answer.counts
            and answer.configuration == heartbeat.configuration
            and answer.incarnation == self._incarnations.get(keeper_id)
        )

    def _confirm(self) -> None:
        groups: dict[int, list[_Answer]] = defaultdict(list)
        for keeper_id, answer in self._answers.items():
            # A keeper with an older table may have counted a frame that it should have kept.
            if self._may_confirm(keeper_id, answer) and answer.table_version >= self.table_version:
                groups[answer.table_version].append(answer)
        is_waiting = False
        for ledger, through in self._sent.items():
            disk, seen = self._confirmed.get(ledger, _Count(0, 0))
            for answers in groups.values():
                if len(answers) >= self._majority:
                    disks, memories = zip(*(answer.progress.get(ledger, (0, 0)) for answer in answers), strict=True)
                    # The count of the W-th best: W members have at least that.
                    disk = max(disk, sorted(disks, reverse=True)[self._majority - 1])
                    seen = max(seen, sorted(memories, reverse=True)[self._majority - 1])
            # A count beyond what was sent is a forgery, or another writer's: it confirms nothing.
            self._confirmed[ledger] = _Count(min(disk, through), min(seen, through))
            is_waiting = is_waiting or disk < through
        if not is_waiting:
            self._ask_at = NEVER
