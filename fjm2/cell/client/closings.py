"""Ledgers whose final sets their writer waits for: it has ended them, and may send again what they lack."""

import math
from collections.abc import Iterator
from typing import Final

from fjm2.base.ledger import Ledger

from ..stored_tracker import ASK_AFTER_S
from ..wire.commands import Heartbeat, MemberFlag
from ..wire.stored import Stored, StoredFlag
from .outgoing import LedgerFinal

NEVER: Final = math.inf


class Closings:
    """Learns final sets from the answers of members: W of them say that a ledger is closed.

    W members had the final set on disk when it was decided. One of any W has it whole, and none has more.
    """

    def __init__(self) -> None:
        self._through: dict[Ledger, dict[bytes, int]] = {}
        """How far the members that say "closed" have each ledger that is waited for."""
        self._heartbeat: Heartbeat | None = None
        self._ask_at = NEVER

    def wait_for(self, ledger: Ledger, now: float) -> None:
        """Wait for the final set of a ledger from now on."""
        self._through.setdefault(ledger, {})
        self._ask_at = min(self._ask_at, now + ASK_AFTER_S)

    def forget(self, producer_id: int) -> None:
        """Wait no more for the ledgers of a producer."""
        self._through = {ledger: told for ledger, told in self._through.items() if ledger.producer_id != producer_id}

    def receive_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Learn the members. What they said in another configuration does not count any more."""
        known = self._heartbeat
        is_same = known is not None and (known.cell_id, known.configuration) == (
            heartbeat.cell_id,
            heartbeat.configuration,
        )
        if not is_same:
            for told in self._through.values():
                told.clear()
        self._heartbeat = heartbeat

    def receive_stored(self, stored: Stored) -> Iterator[LedgerFinal]:
        """Take an answer of a member. Yield the final sets that are known now."""
        heartbeat = self._heartbeat
        if not self._through or heartbeat is None or not _counts(stored, heartbeat):
            return
        for progress in stored.progresses():
            told = self._through.get(progress.ledger)
            if told is not None and progress.is_closed:
                told[stored.keeper_id] = max(progress.on_disk, told.get(stored.keeper_id, 0))
                if len(told) > len(heartbeat.members) // 2:
                    del self._through[progress.ledger]
                    yield LedgerFinal(progress.ledger, max(told.values()))

    def lanes_to_ask(self, now: float) -> list[int]:
        """Return the lanes in which to ask for STORED; none if it is not time yet."""
        if now < self._ask_at or not self._through:
            return []
        self._ask_at = now + ASK_AFTER_S
        return sorted({ledger.lane for ledger in self._through})

    def poll_timeout(self) -> float:
        """Return the time at which to ask, or NEVER."""
        return self._ask_at if self._through else NEVER


def _counts(stored: Stored, heartbeat: Heartbeat) -> bool:
    """Return True if an answer is that of a member as the manager knows it."""
    return (
        stored.cell_id == heartbeat.cell_id
        and stored.configuration == heartbeat.configuration
        and not stored.flags & StoredFlag.DOES_NOT_COUNT
        and any(
            (member.keeper_id, member.incarnation) == (stored.keeper_id, stored.incarnation)
            and not member.flags & MemberFlag.AMNESIAC
            for member in heartbeat.members
        )
    )
