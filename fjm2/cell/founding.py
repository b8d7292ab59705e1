"""The founding of a cell: candidates agree on the keepers closest to the bus, all of which keep the configuration."""

from typing import Final

from fjm2.base.ledger import Ledger

from .configuration import distance
from .context import Context
from .ledger_table import LedgerTable
from .outgoing import CellJoined, LossFound, SendCommand
from .replica import NOBODY, Remembered, Replica
from .times import FOUNDING_S, HERE_S
from .wire.commands import FOUNDERS_MAX, Founding, FoundingStep
from .wire.fields import Member
from .wire.records import ConfigureRecord, FenceRecord, Record

FOUNDING_NUMBER: Final = 1
"""Number of the configuration that a cell is founded with. It is the first entry of the log, in epoch 0."""
_CANDIDATES_MAX: Final = 64
"""Most candidates that a keeper remembers: more than ever wait for a cell of five."""


class Founder:
    """One keeper's part in the founding of a cell."""

    def __init__(self, context: Context, replica: Replica, members_wanted: int, now: float) -> None:
        if members_wanted not in range(1, FOUNDERS_MAX + 1):
            raise ValueError(f"members_wanted={members_wanted}: expected 1 to {FOUNDERS_MAX}")
        self._context = context
        self._replica = replica
        self._wanted = members_wanted
        self._candidates: dict[Member, float] = {}
        self._steady_since = now
        """Time since which the candidates have been the same."""
        self._prepared: set[bytes] = set()
        self._next_at = now
        self.is_done = False
        """True once all founders are known to have the configuration on disk."""

    @property
    def next_at(self) -> float:
        return self._next_at

    @property
    def _configuration(self) -> ConfigureRecord | None:
        """The founding that this keeper accepted, for ever."""
        return self._replica.log.membership.newest

    def receive(self, message: Founding, now: float) -> None:
        """Take a step of a founder."""
        match message.step:
            case FoundingStep.HERE:
                self._note_candidate(message, now)
            case FoundingStep.PREPARE:
                self._prepare(message, now)
            case FoundingStep.PREPARED:
                self._note_prepared(message)
            case _:
                configuration = self._configuration
                is_accepted = configuration is not None and message.members == configuration.members
                if is_accepted and message.cell_id == self._context.cell_id:
                    self.is_done = True

    def _note_candidate(self, message: Founding, now: float) -> None:
        member = message.members[0]
        if message.members_wanted != self._wanted:
            return
        if member not in self._candidates:
            if len(self._candidates) >= _CANDIDATES_MAX:
                return
            self._steady_since = now
        self._candidates[member] = now

    def _prepare(self, message: Founding, now: float) -> None:
        """Keep the configuration, unless there is another one. The answer follows when it is on disk."""
        if self._context.me not in message.members or len(message.members) != message.members_wanted:
            return
        if self._configuration is None and not self._context.cell_id:
            self._accept(message.cell_id, message.members, now)
        elif message.cell_id == self._context.cell_id:
            self.handle_synced()

    def _accept(self, cell_id: int, members: tuple[Member, ...], now: float) -> None:
        self._context.cell_id = cell_id
        self._replica.propose(0, (ConfigureRecord(FOUNDING_NUMBER, len(members), members, True),), now)

    def handle_synced(self) -> None:
        """Answer the proposer once the configuration is on disk."""
        if self._configuration is not None and self._replica.log.on_disk >= 1:
            if self._context.me.keeper_id not in self._prepared:
                # An identity with a cell and no configuration is one that heard of a cell that others founded.
                self._context.events.append(CellJoined(self._context.cell_id))
            self._prepared.add(self._context.me.keeper_id)
            self._send(FoundingStep.PREPARED, (self._context.me,))
            self._check_found()

    def _note_prepared(self, message: Founding) -> None:
        configuration = self._configuration
        if configuration is None or message.cell_id != self._context.cell_id:
            return
        if message.members[0] in configuration.members:
            self._prepared.add(message.members[0].keeper_id)
            self._check_found()

    def _check_found(self) -> None:
        configuration = self._configuration
        if configuration is None or self.is_done:
            return
        if all(member.keeper_id in self._prepared for member in configuration.members):
            self.is_done = True
            self._send(FoundingStep.FOUND, configuration.members)

    def handle_timeout(self, now: float) -> None:
        """Repeat the step that this keeper is at."""
        if now < self._next_at:
            return
        self._next_at = now + HERE_S * self._context.random.uniform(0.8, 1.2)
        configuration = self._configuration
        if configuration is not None:
            # Any founder may go on with the founding that it accepted: the proposer may be gone.
            self._send(FoundingStep.PREPARE, configuration.members)
            return
        if self._context.cell_id:
            return
        self._expire(now)
        self._candidates.setdefault(self._context.me, now)
        self._candidates[self._context.me] = now
        self._send(FoundingStep.HERE, (self._context.me,))
        if now - self._steady_since >= FOUNDING_S and len(self._candidates) >= self._wanted:
            self._propose(now)

    def _expire(self, now: float) -> None:
        gone = [member for member, heard_at in self._candidates.items() if now - heard_at > FOUNDING_S]
        for member in gone:
            del self._candidates[member]
            self._steady_since = now

    def _propose(self, now: float) -> None:
        """Found a cell of the closest candidates, if this keeper is the closest of all."""
        if self._wanted == 1:
            members: tuple[Member, ...] = (self._context.me,)
        else:
            closest = sorted(self._candidates, key=lambda each: distance(each.keeper_id, self._context.bus_key))
            members = tuple(closest[: self._wanted])
        if members[0] == self._context.me and len({member.keeper_id for member in members}) == self._wanted:
            self._accept(self._context.random.getrandbits(64) or 1, members, now)
            self._send(FoundingStep.PREPARE, members)

    def _send(self, step: FoundingStep, members: tuple[Member, ...]) -> None:
        cell_id = 0 if step is FoundingStep.HERE else self._context.cell_id
        message = Founding(step=step, members_wanted=self._wanted, cell_id=cell_id, members=members)
        self._context.outgoing.append(SendCommand(message))


def return_alone(context: Context, replica: Replica, remembered: Remembered, now: float) -> None:
    """Have the only member of a cell go on with what its disk has, which nobody else could give it more of.

    Name its new incarnation, if its operator has accepted a loss, or its disk failed. The store remembers the one that
    it had before the disk failed; with another one in the log, something is lost. Then no ledger with holes goes on: it
    is fenced, to be closed with what is there. One that lost its end fails its writer, which begins another one.
    """
    log, me = replica.log, context.me
    newest = log.membership.newest
    if newest is None or log.membership.size > 1 or newest.members[0].keeper_id != me.keeper_id:
        return
    replica.give_up_lacking()
    if me in log.membership:
        return
    if replica.promise.epoch < log.last_epoch:
        replica.store_promise(log.last_epoch, NOBODY)
    records: list[Record] = [ConfigureRecord(newest.number + 1, newest.members_wanted, (me,), True)]
    if newest.members[0].incarnation != remembered.incarnation:
        lost = _lost_frames(replica.ledgers)
        records += [FenceRecord(each) for each in replica.ledgers.open_ledgers if each in lost]
        decisions = sum(entry.index > log.last_index for entry in remembered.entries)
        context.events.append(LossFound(sum(lost.values()), len(lost), decisions))
    replica.propose(log.last_epoch, tuple(records), now)


def _lost_frames(ledgers: LedgerTable) -> dict[Ledger, int]:
    """Return the number of frames that are missing in each ledger, but for those behind its last one."""
    lost = {ledger: ledgers.lost.count(ledger) for ledger in ledgers.lost.ledgers}
    for ledger in ledgers.open_ledgers:
        holes = ledgers.missing(ledger, 1, ledgers.highest_seen(ledger))
        if holes:
            lost[ledger] = lost.get(ledger, 0) + sum(end - first for first, end in holes)
    return lost
