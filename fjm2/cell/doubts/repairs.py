"""The search for frames that were counted too early."""

from typing import Final

from fjm2.cell.context import Context
from fjm2.cell.fetches import FETCH_FULL_S, FETCH_INTERVAL_S, FETCH_RANGES_MAX
from fjm2.cell.outgoing import SendCommand
from fjm2.cell.replica import Replica
from fjm2.cell.wire.commands import Fetch
from fjm2.cell.wire.ranges import Range


class Repairs:
    """Asks other members, each time a moment after the last question."""

    def __init__(self, context: Context, replica: Replica) -> None:
        self._context: Final = context
        self._replica = replica
        self._doubts_at = 0.0
        self._asked: set[Range] = set()
        """Ranges of the present round. In the next one all are asked for again."""

    def settle(self, now: float) -> set[int]:
        """Ask for what is lacking. Return the writers of ledgers that were in doubt and are so no more."""
        doubts = self._replica.ledgers.doubts
        if doubts and now >= self._doubts_at:
            self._doubts_at = now + (FETCH_FULL_S if self._replica.fetches.lack_room(now) else FETCH_INTERVAL_S)
            self._fetch(self._replica.readiness.doubtful())
        self._replica.readiness.advance()
        return {ledger.producer_id for ledger in doubts.poll_settled()}

    def _fetch(self, ranges: list[Range]) -> None:
        """Ask for as many ranges as one message holds, in turns: nobody may have the first ones."""
        if not ranges:
            return
        due = [each for each in ranges if each not in self._asked]
        if not due:
            self._asked.clear()
            due = ranges
        taken = due[:FETCH_RANGES_MAX]
        self._asked.update(taken)
        context = self._context
        command = Fetch(reply_to=context.node_id, cell_id=context.cell_id, ranges=tuple(taken))
        context.outgoing.append(SendCommand(command))
