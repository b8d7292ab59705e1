"""Doubtful sequences whose frames cannot come any more, as the manager of an epoch hears it from the members."""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.configuration import Membership
from fjm2.cell.ledger_table import LedgerTable
from fjm2.cell.wire.commands import Counted, CountedFlag
from fjm2.cell.wire.fields import Member


class Lacks:
    """Tells which frames of fenced ledgers were confirmed to nobody, and never will be.

    A member that has FENCE in its log and lacks a frame has not confirmed it, and never will. A frame that W confirmed
    is on one of any K - W + 1 members. So as many that lack it prove that it was not, if they are the ones that could
    confirm it: if no member took another one's place since its subscription was added. Otherwise all members have to
    lack it. Nothing is lost then either, and one that is silent may be the last that has it.
    """

    def __init__(self, ledgers: LedgerTable) -> None:
        self._ledgers = ledgers
        self._number = 0
        """Configuration of the members that have spoken. In another one they have to do so again."""
        self._said: dict[Ledger, dict[Member, RangeSet]] = {}

    def note(self, message: Counted, member: Member, membership: Membership) -> None:
        """Take a member's word that it is in doubt itself."""
        if membership.number != self._number:
            self._said.clear()
            self._number = membership.number
        if not message.flags & CountedFlag.FENCED:
            return
        for each in message.ranges:
            for first, end in self._ledgers.doubts.within(each.ledger, each.first, each.last + 1):
                said = self._said.setdefault(each.ledger, {}).setdefault(member, RangeSet())
                said.add(first, end)

    def of(self, ledger: Ledger, end: int, me: Member, membership: Membership, newest: int) -> RangeSet:
        """Return the sequences before `end` whose frames cannot come. `newest` is the version of the table when the
        members came together, or a later one."""
        found = RangeSet()
        said = self._said.get(ledger, {}) if membership.number == self._number else {}
        for first, stop, sure, _ in self._ledgers.doubts.told_within(ledger, 1, end):
            for low, high in _parts(said.values(), first, stop):
                lacking = {me, *(member for member, ranges in said.items() if ranges.covers(low, high))}
                if lacking >= membership.members or (sure >= newest and membership.can_read(lacking)):
                    found.add(low, high)
        return found

    def forget_settled(self) -> None:
        """Forget the ledgers that are not in doubt any more."""
        self._said = {ledger: said for ledger, said in self._said.items() if ledger in self._ledgers.doubts}


def _parts(said: Iterable[RangeSet], first: int, end: int) -> Iterator[tuple[int, int]]:
    """Part a range where one of several sets begins or ends."""
    bounds = {first, end}
    for ranges in said:
        for part in ranges.within(first, end):
            bounds.update(part)
    return pairwise(sorted(bounds))
